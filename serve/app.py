"""The HTTP interface over `Sessions`: routes, statuses and nothing else."""

from __future__ import annotations

import sqlite3
from typing import Annotated, Any

import structlog
from fastapi import Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from providers.errors import MemrouteError
from providers.forgetting import Forgotten, Selection
from providers.types import Flow
from serve.auth import Caller, Keys
from serve.errors import Refusal, refusal_of
from serve.intake import Intake, refusal_headers
from serve.messages import (
    Audit,
    BeginRequest,
    Begun,
    Ended,
    EndRequest,
    Problem,
    Providers,
    RouteBeginRequest,
    Routed,
    RouteEndRequest,
    RouteInRequest,
    SentOutcome,
    SessionView,
    SkillAnswer,
    SkillCall,
    Stepped,
    StepRequest,
)
from serve.sessions import Retry, Sessions
from synth.runs import own_version

log = structlog.get_logger("memroute.serve")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": meaning}
    for status, meaning in {
        400: "The body is no JSON in UTF-8",
        401: "No key of this server",
        403: "The key may not do this, or not there",
        404: "There is no such session, skill or path",
        409: "Not now: the session has ended, knows other steps, or the idempotency key stood for another request",
        410: "The session has expired",
        413: "Larger or longer than this server takes",
        422: "A field is missing, misspelt or out of range",
        429: "Too many requests or open sessions; see Retry-After",
        503: "The server is busy or ending; see Retry-After",
        507: "The server's disk is full; nothing was acknowledged",
    }.items()
}


class Lives(Flow):
    """That the process answers."""

    alive: bool = True


class Ready(Flow):
    """Whether requests can be served, and why not."""

    ready: bool
    missing: tuple[str, ...] = ()
    policy: str


# Both are async because FastAPI sends what is not through a thread, at every request.
async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


async def _retry(
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")] = None,
) -> Retry | None:
    return Retry(idempotency_key) if idempotency_key is not None else None


Asking = Annotated[Caller, Depends(_caller)]
Named = Annotated[Retry | None, Depends(_retry)]


def make_app(sessions: Sessions, keys: Keys) -> FastAPI:
    """The app over a service that the caller starts and closes."""
    app = FastAPI(
        title="memroute",
        version=own_version(),
        summary="Decides which agent memory to retrieve from, when to show working memory, and who keeps the run",
        docs_url=None,
        redoc_url=None,
        responses=PROBLEMS,
        dependencies=[Depends(HTTPBearer(auto_error=False))],
    )
    app.state.sessions = sessions
    _session_routes(app, sessions)
    _decision_routes(app, sessions)
    _operator_routes(app, sessions)
    _handlers(app)
    settings = sessions.settings
    app.add_middleware(
        Intake, keys=keys, rate=settings.rate, max_body=settings.max_body, metrics=sessions.metrics
    )  # fmt: skip
    return app


def _session_routes(app: FastAPI, sessions: Sessions) -> None:
    @app.post("/v1/sessions", status_code=201)
    async def begin(request: BeginRequest, caller: Asking, retry: Named) -> Begun:
        """Begin a task: which memory to retrieve from, and what it gives."""
        return await sessions.begin(caller, request, retry)

    @app.get("/v1/sessions/{session_id}")
    async def view(session_id: str, caller: Asking) -> SessionView:
        """A session as it stands: decisions, previews, injections, receipts."""
        return await sessions.view(caller, session_id)

    @app.post("/v1/sessions/{session_id}/step")
    async def step(session_id: str, request: StepRequest, caller: Asking, retry: Named) -> Stepped:
        """Before the next action: whether to show working memory, and which."""
        return await sessions.step(caller, session_id, request, retry)

    @app.post("/v1/sessions/{session_id}/end")
    async def end(session_id: str, request: EndRequest, caller: Asking, retry: Named) -> Ended:
        """End a task: who keeps the run, with a receipt from each."""
        return await sessions.end(caller, session_id, request, retry)

    @app.post("/v1/sessions/{session_id}/outcome")
    async def outcome(session_id: str, request: SentOutcome, caller: Asking, retry: Named) -> Ended:
        """Say afterwards whether the answer was correct, and who says so."""
        return await sessions.outcome(caller, session_id, request, retry)

    @app.post("/v1/skills/{skill_id}/call")
    async def call_skill(skill_id: str, request: SkillCall, caller: Asking) -> SkillAnswer:
        """Run a skill of a session, where it needs no tools of the caller."""
        return await sessions.call_skill(caller, skill_id, request)


def _decision_routes(app: FastAPI, sessions: Sessions) -> None:
    @app.post("/v1/route/begin")
    async def route_begin(request: RouteBeginRequest, caller: Asking) -> Routed:
        """A Begin decision over previews of your own memories."""
        return await sessions.route_begin(caller, request)

    @app.post("/v1/route/in")
    async def route_in(request: RouteInRequest, caller: Asking) -> Routed:
        """An In decision over your own working memory."""
        return await sessions.route_in(caller, request)

    @app.post("/v1/route/end")
    async def route_end(request: RouteEndRequest, caller: Asking) -> Routed:
        """An End decision over your own memories."""
        return await sessions.route_end(caller, request)


def _operator_routes(app: FastAPI, sessions: Sessions) -> None:
    @app.get("/v1/providers")
    async def providers(caller: Asking) -> Providers:
        """The memories that this server routes among."""
        caller.need("read")
        return Providers(providers=sessions.memories.cards)

    @app.post("/v1/forget")
    async def forget(request: Selection, caller: Asking) -> Forgotten:
        """Remove memories with everything made of them; needs the right `admin`."""
        return await sessions.forget(caller, request)

    @app.get("/v1/audit")
    async def audit(caller: Asking, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Audit:
        """Who read and wrote what, latest first; needs the right `admin`."""
        return await sessions.audit(caller, limit)

    @app.get("/metrics", response_class=Response)
    async def metrics(caller: Asking) -> Response:
        """Counters for Prometheus; needs the right `admin`."""
        caller.need("admin")
        sessions.metrics.sessions.set(await sessions.count_open())
        return Response(sessions.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz")
    async def healthz() -> Lives:
        """Whether the process answers."""
        return Lives()

    @app.get("/readyz", responses={503: {"model": Ready}})
    async def readyz(response: Response) -> Ready:
        """Whether requests can be served: 503 before the start is through and while the server ends."""
        missing = sessions.missing()
        response.status_code = 503 if missing else 200
        return Ready(ready=not missing, missing=tuple(missing), policy=sessions.policy_name)


def _handlers(app: FastAPI) -> None:
    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, MemrouteError | sqlite3.Error | OSError)
        refusal = refusal_of(error)
        if not isinstance(error, Refusal):
            tell = log.error if refusal.status >= 500 else log.info
            tell("refused", status=refusal.status, error=f"{type(error).__name__}: {error}")
        return _problem(refusal.status, str(refusal), refusal_headers(refusal))

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _problem(*_what_is_wrong(error))

    def plain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        return _problem(error.status_code, _sentence(error), headers)

    def fault(request: Request, error: Exception) -> Response:
        log.error("fault", error=type(error).__name__, exc_info=error)
        return _problem(500, "The server made a mistake; it is in its log.", {})

    for kind in (MemrouteError, sqlite3.Error, OSError):
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(Exception, fault)


def _problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)


def _sentence(error: HTTPException) -> str:
    if error.status_code == 404:
        return "There is no such path here; /openapi.json lists them."
    if error.status_code == 405:
        return "This path does not take that method; /openapi.json lists them."
    if error.status_code == 400:
        return "The body is no JSON in UTF-8."
    return str(error.detail)


def _what_is_wrong(error: RequestValidationError) -> tuple[int, str]:
    """The first problem as a status and a sentence; the value is not repeated, it may be anything."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return 400, "The body is no JSON in UTF-8."
    place = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    return (
        422,
        f"{place[:200].encode('ascii', 'replace').decode()}: {first['msg'].encode('utf-8', 'replace').decode()}.",
    )
