"""What a request passes before it reaches the app: who calls, how often, how much it sends."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog

from serve.auth import Keys, is_loopback
from serve.errors import Refusal
from serve.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/healthz", "/readyz")
"""Paths that need no key."""
BURST_SECONDS = 2.0

log = structlog.get_logger("memroute.serve")


class Bucket:
    """Tokens of one key: `rate` a second, at most two seconds' worth at once."""

    def __init__(self, rate: float) -> None:
        self._rate, self._tokens, self._at = rate, max(1.0, rate * BURST_SECONDS), time.monotonic()

    def take(self) -> float:
        """Take one token: 0, or the seconds until there is one."""
        now = time.monotonic()
        most = max(1.0, self._rate * BURST_SECONDS)
        self._tokens, self._at = min(most, self._tokens + (now - self._at) * self._rate), now
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate
        self._tokens -= 1.0
        return 0.0


class ClientGone(Exception):
    """The client hung up before its request was whole."""


class Intake:
    """ASGI middleware: checks the key before anything of the body is read, then the rate, then the body's size.

    A whole body is handed on at once, so that a client that hangs up midway has changed nothing. The caller stands in
    `scope["state"]["caller"]`.
    """

    def __init__(self, app: Asgi, *, keys: Keys, rate: float, max_body: int, metrics: Metrics) -> None:
        self._app, self._keys, self._rate, self._max_body, self._metrics = app, keys, rate, max_body, metrics
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._admit(scope)
            body = await self._read(scope, receive)
            await self._app(scope, _handed_on(body, receive), watched)
        except Refusal as refusal:
            await answer(watched, refusal)
        except ClientGone:
            status = 499
        except Exception:
            status = 500  # answered further out
            raise
        finally:
            self._note(scope, status, time.perf_counter() - started)

    def _admit(self, scope: Scope) -> None:
        """Who calls, put into the scope. Raises Refusal without a key of ours, or where the key calls too often."""
        if scope["path"] in OPEN:
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._keys.anonymous:  # a page in this machine's browser must not call through a name of its own
            host = headers.get(b"host", b"").decode("latin-1")
            if not is_loopback(host.rsplit(":", 1)[0] if not host.endswith("]") else host):
                raise Refusal(403, "A server without keys answers to the names of this machine alone, e.g. 127.0.0.1.")
        caller = self._keys.caller(headers.get(b"authorization", b"").decode("latin-1") or None)
        wait = self._buckets.setdefault(caller.key, Bucket(self._rate)).take()
        if wait:
            raise Refusal(429, f"The key {caller.key!r} calls too often; wait a moment.", retry_after=wait)
        scope.setdefault("state", {})["caller"] = caller

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body. Raises Refusal 413 as soon as it is known to be too large."""
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > self._max_body:
            raise self._too_large()
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            body += message.get("body", b"")
            if len(body) > self._max_body:
                raise self._too_large()
            if not message.get("more_body", False):
                return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(413, f"The request is larger than {self._max_body:,} bytes; send less.")

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        found = scope.get("route")
        route = found.path if found is not None else "none"
        caller = scope.get("state", {}).get("caller")
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        log.info(
            "request",
            route=route,
            method=scope["method"],
            status=status,
            ms=round(1000 * seconds, 2),
            key=caller.key if caller else "",
        )


async def answer(send: Send, refusal: Refusal) -> None:
    """A refusal as a response, for what never reaches the app."""
    body = json.dumps({"error": str(refusal)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in refusal_headers(refusal).items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refusal_headers(refusal: Refusal) -> dict[str, str]:
    """The headers that go with a refusal."""
    headers = {}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(max(1, round(refusal.retry_after)))
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return headers


def _handed_on(body: bytes, receive: Receive) -> Receive:
    """Gives the body in one piece, then whatever the client does next."""
    given = False

    async def whole() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return whole
