"""A client of `memroute serve`, asynchronous and plain. Skills run here, sandboxed, with the caller's own tools."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from providers.base import ProviderCard
from providers.errors import EngineError
from providers.forgetting import Forgotten, Selection
from providers.tools import Tool, ToolResult
from providers.types import Injection, Outcome, SkillSpec, Step
from serve.messages import (
    Begun,
    Ended,
    EndRequest,
    GivenInjection,
    GivenSkill,
    Providers,
    SentStep,
    SessionView,
    Stepped,
)

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from providers.skills import SkillRunner

TRIES = 4
WAIT_SECONDS = 0.2
LONGEST_WAIT = 5.0
PASSING = (429, 502, 503, 504, 507)
"""Statuses after which the same request may work."""

A = TypeVar("A", bound=BaseModel)
S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
Source = Literal["gold", "verifier", "user", "unknown"]


class ServerRefused(EngineError):
    """The server did not serve a request; `status` is 0 where it could not be reached."""

    def __init__(self, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.status = status


class MemoryClient:
    """Sessions of one server. A call that may be lost is sent again under the same name, so that none counts twice."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        namespace: str | None = None,
        timeout: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`namespace` is that of all sessions; None takes the key's own. `timeout` is of one call, in seconds."""
        self._namespace = namespace
        self._skills: SkillRunner | None = None
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, and the sandbox where one was started."""
        await self._http.aclose()
        if self._skills is not None:
            self._skills.close()

    async def begin(self, question: str, *, task_id: str | None = None, namespace: str | None = None) -> ServedSession:
        """Begin a task: its session holds what the router retrieved."""
        body = {"question": question, "task_id": task_id, "namespace": namespace or self._namespace}
        return ServedSession(self, await self._call(Begun, "/v1/sessions", body))

    async def end(self, session_id: str, request: EndRequest) -> Ended:
        """End a task of which only the id is at hand; `ServedSession.end` is the usual way."""
        return await self._call(Ended, f"/v1/sessions/{session_id}/end", request.model_dump(mode="json"))

    async def outcome(self, session_id: str, correct: bool | None, source: Source = "user") -> Ended:
        """Say after the end whether the answer was correct, and who says so."""
        return await self._call(Ended, f"/v1/sessions/{session_id}/outcome", {"correct": correct, "source": source})

    async def view(self, session_id: str) -> SessionView:
        """A session as the server has it."""
        return await self._call(SessionView, f"/v1/sessions/{session_id}", None)

    async def providers(self) -> tuple[ProviderCard, ...]:
        """The memories that the server routes among."""
        return (await self._call(Providers, "/v1/providers", None)).providers

    async def forget(self, selection: Selection) -> Forgotten:
        """Remove memories with everything made of them; the key needs the right `admin`."""
        return await self._call(Forgotten, "/v1/forget", selection.model_dump(mode="json"))

    async def run_skill(self, skill: SkillSpec, arguments: Mapping[str, Any], tools: tuple[Tool, ...]) -> ToolResult:
        """Run a skill in this process's sandbox with these tools."""
        if self._skills is None:
            from providers.skills import SkillRunner

            self._skills = SkillRunner()
        return (await self._skills.run(skill, arguments, tools)).result

    async def _call(self, kind: type[A], path: str, body: Mapping[str, Any] | None) -> A:
        """Send a request until it is answered; a POST carries one name over all tries."""
        headers = {"idempotency-key": secrets.token_hex(16)} if body is not None else {}
        for tries_left in reversed(range(TRIES)):
            try:
                response = await self._http.request("GET" if body is None else "POST", path, json=body, headers=headers)
            except httpx.TransportError as error:
                if not tries_left:
                    raise ServerRefused(f"The server at {self._http.base_url} cannot be reached ({error}).") from error
                await _wait(TRIES - tries_left, None)
                continue
            if response.status_code not in PASSING or not tries_left:
                return _answer(kind, response)
            await _wait(TRIES - tries_left, response.headers.get("retry-after"))
        raise AssertionError("unreachable")


class ServedSession:
    """One task's memory, as an agent sees it (`synth.agents.base.AgentSession`)."""

    def __init__(self, client: MemoryClient, begun: Begun) -> None:
        self.begun = begun
        self._client = client
        self._sent = 0
        self._injections = [_injection(part, None) for part in begun.injections]

    @property
    def id(self) -> str:
        return self.begun.session_id

    @property
    def memory(self) -> str:
        """What Begin injected, quoted for a prompt; empty where there is nothing."""
        return self.begun.memory

    @property
    def skills(self) -> tuple[SkillSpec, ...]:
        """Callable skills retrieved at Begin."""
        return tuple(_skill(skill) for skill in self.begun.skills)

    @property
    def injections(self) -> tuple[Injection, ...]:
        """All that was injected so far."""
        return tuple(self._injections)

    async def step(self, steps: Sequence[Step]) -> str:
        """The working memory to show before the next action, or empty. `steps` are all steps of the task so far."""
        stepped = await self.stepped(steps)
        return stepped.memory

    async def stepped(self, steps: Sequence[Step]) -> Stepped:
        """The same with its decision."""
        body = {"steps": _sent(steps[self._sent :]), "known": self._sent}
        stepped = await self._client._call(Stepped, f"/v1/sessions/{self.id}/step", body)
        self._sent = len(steps)
        if stepped.injection is not None:
            self._injections.append(_injection(stepped.injection, len(steps)))
        return stepped

    async def call_skill(self, skill: SkillSpec, arguments: dict[str, object], tools: tuple[Tool, ...]) -> ToolResult:
        """Run a retrieved skill here, in the sandbox, with the task's own tools."""
        return await self._client.run_skill(skill, arguments, tools)

    async def end(
        self,
        answer: str | None,
        *,
        steps: Sequence[Step] = (),
        outcome: Outcome | None = None,
        outcome_later: bool = False,
        agent: str = "",
        status: Sequence[str] = (),
    ) -> Ended:
        """End the task: the router decides who keeps the run.

        `steps` are all steps of the task, so that those after the last `step` are kept too. Without an outcome the run
        counts as unscored, which memories of solved runs alone do not keep.
        """
        body = {
            "answer": answer,
            "steps": _sent(steps[self._sent :]),
            "known": self._sent,
            "outcome": {"correct": outcome.correct, "source": outcome.source} if outcome else {},
            "outcome_later": outcome_later,
            "agent": agent,
            "status": list(status),
        }
        ended = await self._client._call(Ended, f"/v1/sessions/{self.id}/end", body)
        self._sent = max(self._sent, len(steps))
        return ended

    async def outcome(self, correct: bool | None, source: Source = "user") -> Ended:
        """Say after the end whether the answer was correct, and who says so."""
        return await self._client.outcome(self.id, correct, source)


class _Waiting(Generic[S]):
    """The plain side of something asynchronous, whose calls are made in a thread with an event loop."""

    def __init__(self, portal: BlockingPortal, behind: S) -> None:
        self._portal, self._behind = portal, behind


def _waits(method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[_Waiting[S], P], R]:
    """The same call, which waits."""

    @functools.wraps(method)
    def call(waiting: _Waiting[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        answer: R = waiting._portal.call(functools.partial(method, waiting._behind, *args, **kwargs))
        return answer

    return call


class SyncServedSession(_Waiting[ServedSession]):
    """`ServedSession` whose calls wait. A skill's tools are called in the client's own event loop."""

    @property
    def begun(self) -> Begun:
        return self._behind.begun

    @property
    def id(self) -> str:
        return self._behind.id

    @property
    def memory(self) -> str:
        """What Begin injected, quoted for a prompt; empty where there is nothing."""
        return self._behind.memory

    @property
    def skills(self) -> tuple[SkillSpec, ...]:
        """Callable skills retrieved at Begin."""
        return self._behind.skills

    @property
    def injections(self) -> tuple[Injection, ...]:
        """All that was injected so far."""
        return self._behind.injections

    step = _waits(ServedSession.step)
    stepped = _waits(ServedSession.stepped)
    call_skill = _waits(ServedSession.call_skill)
    end = _waits(ServedSession.end)
    outcome = _waits(ServedSession.outcome)


class SyncMemoryClient(_Waiting[MemoryClient]):
    """`MemoryClient` for code without an event loop: the same calls, each of which waits."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        namespace: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        from anyio.from_thread import start_blocking_portal

        self._held = ExitStack()
        portal = self._held.enter_context(start_blocking_portal())
        super().__init__(portal, MemoryClient(url, key=key, namespace=namespace, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and the thread that they live in."""
        self._portal.call(self._behind.close)
        self._held.close()

    def begin(self, question: str, *, task_id: str | None = None, namespace: str | None = None) -> SyncServedSession:
        """Begin a task: its session holds what the router retrieved."""
        return SyncServedSession(self._portal, self._begun(question, task_id=task_id, namespace=namespace))

    _begun = _waits(MemoryClient.begin)
    end = _waits(MemoryClient.end)
    outcome = _waits(MemoryClient.outcome)
    view = _waits(MemoryClient.view)
    providers = _waits(MemoryClient.providers)
    forget = _waits(MemoryClient.forget)


def _answer(kind: type[A], response: httpx.Response) -> A:
    if response.is_success:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise ServerRefused(
                f"{response.url} answered what this client does not read: is it a memroute server of this version?"
            ) from error
    try:
        sentence = str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        sentence = f"{response.url} answered with status {response.status_code}."
    raise ServerRefused(sentence, response.status_code)


async def _wait(tried: int, retry_after: str | None) -> None:
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    await asyncio.sleep(min(LONGEST_WAIT, max(asked, WAIT_SECONDS * 2**tried)))


def _sent(steps: Sequence[Step]) -> list[dict[str, Any]]:
    fields = SentStep.model_fields.keys() & Step.model_fields.keys()
    return [step.model_dump(mode="json", include=set(fields)) for step in steps]


def _injection(part: GivenInjection, step: int | None) -> Injection:
    return Injection(
        phase=part.phase,
        step=step,
        provider=part.provider,
        text=part.text,
        item_ids=tuple(item.id for item in part.items),
        skills=part.skills,
    )


def _skill(given: GivenSkill) -> SkillSpec:
    return SkillSpec(name=given.name, parameters=given.parameters, doc=given.doc, code_id=given.id, code=given.code)
