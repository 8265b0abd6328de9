"""A chat endpoint in front of another one: any client of it gets memory, without knowing.

A task is recognised by what its chat starts with. At its first call memory is retrieved, and stands in the system
prompt of every call from then on; before later ones the router says whether to show working memory. What the endpoint
answers goes through byte for byte. Where memory fails, the call is passed on without it, and a header says so.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import structlog

from providers.errors import MemrouteError
from providers.types import content_hash
from serve.auth import Caller
from serve.conversation import (
    Chat,
    Reply,
    extends,
    identity_of,
    opening_of,
    question_of,
    reply_of,
    said_first,
    steps_of,
    streamed_reply,
    with_memory,
)
from serve.errors import Refusal, refusal_of
from serve.messages import BeginRequest, Begun, Ended, EndRequest, SentOutcome, SentStep, StepRequest
from serve.rendering import quoted_skills
from serve.sessions import Retry, Sessions

if TYPE_CHECKING:
    import httpx

    from synth.config import ProxyConfig

AGENT = "chat"
"""The agent's name in runs that came through the proxy."""
MOST_KEPT = 4 * 2**20
"""Bytes of a streamed answer that are read for its text."""
DONE = b"data: [DONE]"
MOST_NUMBERS = 10_000
"""Openings of which it is remembered how many tasks had them; of others it is looked up."""
SWEEP_SECONDS = 1.0
OUTCOMES = {"correct": True, "wrong": False, "unknown": None}
"""What the header `x-memroute-end` may say."""
PASSED_BACK = ("content-type", "retry-after", "x-request-id", "openai-processing-ms")
"""Headers of the endpoint that its client sees."""

log = structlog.get_logger("memroute.serve")


@dataclass
class Conversation:
    """A task as its chat has come so far."""

    caller: Caller
    begun: Begun
    task: tuple[str, ...]
    """By what it is recognised: key, namespace, the client's own name for it, opening."""
    sent: int = 0
    """Steps that its session knows of."""
    length: int = 0
    """Messages of the latest call."""
    seen: str = ""
    """Their identity."""
    first: str = ""
    """The identity of what the model said first."""
    last_step: str = ""
    working: str = ""
    """Working memory of the latest call."""
    reply: Reply | None = None
    called: float = field(default_factory=time.monotonic)
    running: int = 0
    """Calls that are not answered yet."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def memory(self) -> str:
        parts = (self.begun.memory, quoted_skills(self.begun.skills))
        return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Turn:
    """One call: the chat to pass on, what was put into it, and how it ends."""

    messages: Sequence[Mapping[str, Any]]
    conversation: Conversation | None = None
    injected: tuple[str, ...] = ()
    characters: int = 0
    trouble: str = ""
    ends: SentOutcome | None = None

    def headers(self) -> dict[str, str]:
        """What the client is told of the memory in its call."""
        found = {"x-memroute-injected": ", ".join(self.injected) or "none", "x-memroute-chars": str(self.characters)}
        if self.conversation is not None:
            found["x-memroute-session"] = self.conversation.begun.session_id
        if self.trouble:
            found["x-memroute-trouble"] = self.trouble.encode("ascii", "replace").decode()
        return found


@dataclass(frozen=True)
class Wishes:
    """What a client says of its call in headers `x-memroute-...`; all may be left out."""

    memory: Literal["on", "off"] = "on"
    task: str = ""
    """Its own name for the task, where several that start alike run at once."""
    namespace: str | None = None
    end: str = ""
    """`correct`, `wrong` or `unknown` on the last call of a task: the run is kept once it is answered."""

    def outcome(self) -> SentOutcome | None:
        """The outcome that goes with `end`. Raises Refusal 422 for another word."""
        if not self.end:
            return None
        if self.end not in OUTCOMES:
            raise Refusal(422, f"x-memroute-end: it is one of {', '.join(OUTCOMES)}.")
        correct = OUTCOMES[self.end]
        return SentOutcome(correct=correct, source="unknown" if correct is None else "user")


class Proxy:
    """Passes chats on. `start` begins to end tasks that lie idle; `close` stops that and the connections."""

    def __init__(self, sessions: Sessions, config: ProxyConfig, *, own_keys: bool) -> None:
        """`own_keys`: a call's Authorization is a key of ours; else it is the endpoint's, and goes through."""
        self._sessions, self._config, self._own_keys = sessions, config, own_keys
        self._chats: dict[tuple[str, ...], list[Conversation]] = {}
        self._numbers: dict[tuple[str, ...], int] = {}
        self._beginning: dict[tuple[str, ...], asyncio.Lock] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._http: httpx.AsyncClient | None = None

    def start(self) -> None:
        self._sweeper = asyncio.create_task(self._sweep_on())

    async def close(self) -> None:
        """Tasks that have not ended stay open: they go on with their next call, to this server or the next one."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        if self._http is not None:
            await self._http.aclose()

    async def turn(self, caller: Caller, chat: Chat, wishes: Wishes) -> Turn:
        """What to pass on in place of `chat`. Raises Refusal for what the caller may not or cannot ask for."""
        ends = wishes.outcome()
        if wishes.memory == "off" or not question_of(chat):
            self._sessions.metrics.chats.labels("off").inc()
            return Turn(chat)
        caller.need("read")
        turn = await self._remembering(caller, chat, wishes, ends)
        how = "failed" if turn.trouble else "some" if turn.injected else "none"
        self._sessions.metrics.chats.labels(how).inc()
        return turn

    async def _remembering(self, caller: Caller, chat: Chat, wishes: Wishes, ends: SentOutcome | None) -> Turn:
        namespace = caller.namespace(wishes.namespace)
        task = (caller.key, namespace, wishes.task, opening_of(chat))
        try:
            conversation = await self._conversation(caller, namespace, task, chat, wishes)
        except (MemrouteError, sqlite3.Error, OSError) as error:
            return Turn(chat, trouble=_trouble(error))
        trouble = "; ".join(f"{t.stage} {t.name} {t.reason}" for t in conversation.begun.troubles)
        async with conversation.lock:
            try:
                await self._step(conversation, chat)
            except (MemrouteError, sqlite3.Error, OSError) as error:
                conversation.working, trouble = "", _trouble(error)
            working = conversation.working
        memory = conversation.memory
        injected = [part.provider for part in conversation.begun.injections] if memory else []
        return Turn(
            with_memory(chat, memory, working),
            conversation,
            (*injected, *(("short_term_memory",) if working else ())),
            len(memory) + len(working),
            trouble,
            ends,
        )

    async def send(self, body: Mapping[str, Any], turn: Turn, authorization: str | None) -> httpx.Response:
        """Pass the call on; its answer is read later. Raises Refusal 502 where the endpoint cannot be reached."""
        import httpx

        asked = {**body, "messages": list(turn.messages)}
        if self._config.model is not None:
            asked["model"] = self._config.model
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        headers |= self._authorization(authorization)
        client = self._connect()
        url = f"{self._config.base_url}/chat/completions"
        content = json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")
        if turn.conversation is not None:
            turn.conversation.running += 1
        try:
            return await client.send(client.build_request("POST", url, content=content, headers=headers), stream=True)
        except httpx.HTTPError as error:
            self._done(turn)
            log.warning("chat endpoint", error=f"{type(error).__name__}: {error}"[:300])
            raise Refusal(
                502, "The chat endpoint behind this server cannot be reached; send the call again."
            ) from error

    async def models(self, authorization: str | None) -> httpx.Response:
        """The endpoint's list of models. Raises Refusal 502 where it cannot be reached."""
        import httpx

        try:
            url = f"{self._config.base_url}/models"
            return await self._connect().get(url, headers=self._authorization(authorization))
        except httpx.HTTPError as error:
            raise Refusal(
                502, "The chat endpoint behind this server cannot be reached; send the call again."
            ) from error

    async def whole(self, response: httpx.Response, turn: Turn) -> bytes:
        """The answer to a call that does not stream. Raises Refusal 502 where it breaks off."""
        import httpx

        try:
            content = await response.aread()
        except httpx.HTTPError as error:
            raise Refusal(502, "The chat endpoint behind this server broke off its answer.") from error
        finally:
            await response.aclose()
            self._done(turn)
        if response.is_success:
            await self._answered(turn, reply_of(content))
        return content

    async def stream(self, response: httpx.Response, turn: Turn) -> AsyncIterator[bytes]:
        """The endpoint's bytes as they come; an answer that breaks off counts as none.

        Clients hang up once they have read that it is done, so what follows from it is done before they read that.
        """
        import httpx

        kept, whole = bytearray(), False
        try:
            async for chunk in response.aiter_raw():
                if len(kept) < MOST_KEPT:
                    kept += chunk
                if not whole and DONE in kept[-len(chunk) - len(DONE) :]:
                    whole = True
                    await self._answered_to_the_end(response, turn, kept)
                yield chunk
            if not whole:
                await self._answered_to_the_end(response, turn, kept)
        except httpx.HTTPError as error:
            log.warning("chat endpoint", error=f"{type(error).__name__}: {error}"[:300])
        finally:
            self._done(turn)
            with suppress(asyncio.CancelledError):
                await asyncio.shield(asyncio.create_task(response.aclose()))

    async def _answered_to_the_end(self, response: httpx.Response, turn: Turn, events: bytearray) -> None:
        """Whether or not the client is still there."""
        if response.is_success:
            await asyncio.shield(asyncio.create_task(self._answered(turn, streamed_reply(bytes(events)))))

    async def end(self, caller: Caller, session_id: str, outcome: SentOutcome) -> Ended:
        """End a task of this caller: the run is kept with what the model answered last."""
        found = [c for chats in self._chats.values() for c in chats if c.begun.session_id == session_id]
        if not found or found[0].caller.key != caller.key:
            raise Refusal(
                404, "There is no such chat open here; POST /v1/sessions/ID/outcome says how an ended one went."
            )
        return await self._end(found[0], outcome)

    async def sweep(self) -> None:
        """End tasks that nobody calls for any more."""
        latest = time.monotonic() - self._config.idle_seconds
        idle = [c for chats in self._chats.values() for c in chats if c.called < latest and not c.running]
        for conversation in idle:
            try:
                await self._end(conversation, SentOutcome())
            except (MemrouteError, sqlite3.Error, OSError) as error:
                self._forget(conversation)
                log.warning("idle chat", error=f"{type(error).__name__}: {error}"[:300])

    # Recognising tasks

    async def _conversation(
        self, caller: Caller, namespace: str, task: tuple[str, ...], chat: Chat, wishes: Wishes
    ) -> Conversation:
        """The task that a chat belongs to, begun where it is new. Calls that start alike wait for each other here."""
        async with self._beginning.setdefault(task, asyncio.Lock()):
            known = _belonging(self._chats.get(task, ()), chat)
            if known is None:
                known = await self._begin(caller, namespace, task, chat, wishes)
                self._chats.setdefault(task, []).append(known)
            known.called = time.monotonic()
            return known

    async def _begin(
        self, caller: Caller, namespace: str, task: tuple[str, ...], chat: Chat, wishes: Wishes
    ) -> Conversation:
        """Begin a session under a name that another start of this server gives it too, so that a task goes on over a
        restart: sessions of that name that ended, or are further on than the chat, are others."""
        limit = self._sessions.settings.max_question
        request = BeginRequest(
            question=question_of(chat)[:limit], task_id=wishes.task[:200] or None, namespace=namespace
        )
        steps = steps_of(chat)
        number = self._numbers.pop(task, 0)
        while True:
            begun = await self._sessions.begin(caller, request, Retry(content_hash("chat", task, number)))
            number += 1
            try:
                view = await self._sessions.view(caller, begun.session_id)
            except Refusal as refusal:
                if refusal.status not in (404, 410):
                    raise
                continue
            if view.status == "open" and view.steps <= len(steps):
                break
        self._numbers[task] = number
        if len(self._numbers) > MOST_NUMBERS:
            del self._numbers[next(iter(self._numbers))]
        return Conversation(caller, begun, task, sent=view.steps)

    async def _step(self, conversation: Conversation, chat: Chat) -> None:
        """Tell the session what is new, and take its working memory; a call that is sent again gets the same."""
        identity = identity_of(chat)
        if identity == conversation.seen:
            return
        steps = steps_of(chat)
        new = _new_steps(conversation, chat, steps)
        conversation.working = ""
        if new:
            longest = self._sessions.settings.max_text
            request = StepRequest(steps=tuple(_cut(step, longest) for step in new), known=conversation.sent)
            session_id = conversation.begun.session_id
            stepped = await self._sessions.step(conversation.caller, session_id, request)
            conversation.sent, conversation.working = stepped.steps, stepped.memory
            conversation.last_step = identity_of_step(steps[-1])
        conversation.length, conversation.seen, conversation.first = len(chat), identity, said_first(chat)

    # Answers and ends

    def _done(self, turn: Turn) -> None:
        """A call is answered, or will not be."""
        if turn.conversation is not None:
            turn.conversation.running -= 1
            turn.conversation.called = time.monotonic()

    async def _answered(self, turn: Turn, reply: Reply | None) -> None:
        conversation = turn.conversation
        if conversation is None:
            return
        conversation.reply = reply or conversation.reply
        try:
            if turn.ends is not None:
                await self._end(conversation, turn.ends)
            else:
                await self._draft(conversation)
        except (MemrouteError, sqlite3.Error, OSError) as error:  # the answer is the client's in any case
            log.error("chat not stored", error=f"{type(error).__name__}: {error}"[:300])

    async def _draft(self, conversation: Conversation) -> None:
        """Leave word of how the task ends for another start of this server, which may not hear of it again."""
        async with conversation.lock:
            session_id, request = conversation.begun.session_id, self._ending(conversation, SentOutcome())
            await self._sessions.draft_end(conversation.caller, session_id, request)

    async def _end(self, conversation: Conversation, outcome: SentOutcome) -> Ended:
        async with conversation.lock:
            session_id, request = conversation.begun.session_id, self._ending(conversation, outcome)
            ended = await self._sessions.end(conversation.caller, session_id, request, Retry(f"chat-end-{session_id}"))
            self._forget(conversation)
            return ended

    def _ending(self, conversation: Conversation, outcome: SentOutcome) -> EndRequest:
        answer = conversation.reply.text if conversation.reply is not None else ""
        return EndRequest(answer=answer[: self._sessions.settings.max_text] or None, outcome=outcome, agent=AGENT)

    def _forget(self, conversation: Conversation) -> None:
        chats = self._chats.get(conversation.task, [])
        if conversation in chats:
            chats.remove(conversation)
        if not chats:
            self._chats.pop(conversation.task, None)
            self._beginning.pop(conversation.task, None)

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self._config.idle_seconds))
            await self.sweep()

    # The endpoint

    def _authorization(self, given: str | None) -> dict[str, str]:
        key = os.environ.get(self._config.key_env, "")
        if key:
            return {"authorization": f"Bearer {key}"}
        return {"authorization": given} if given and not self._own_keys else {}

    def _connect(self) -> httpx.AsyncClient:
        import httpx

        if self._http is None:
            self._http = httpx.AsyncClient(timeout=httpx.Timeout(self._config.timeout, connect=10.0))
        return self._http


def _trouble(error: MemrouteError | OSError | sqlite3.Error) -> str:
    """Why a call goes on without memory. Raises Refusal where the caller has asked for what it may not have."""
    refusal = refusal_of(error)
    if refusal.status in (401, 403, 422):
        raise refusal from error
    log.warning("chat without memory", error=f"{type(error).__name__}: {error}"[:300])
    return str(refusal)


def _belonging(known: Sequence[Conversation], chat: Chat) -> Conversation | None:
    """The conversation that `chat` goes on, the latest of several; None where it is a new one."""
    for conversation in reversed(known):
        if extends(chat, conversation.length, conversation.seen):
            if len(chat) == conversation.length or _follows(conversation, chat):
                return conversation
        elif conversation.first and said_first(chat) == conversation.first:
            return conversation  # its client has shortened or rewritten what lies between
    return None


def _follows(conversation: Conversation, chat: Chat) -> bool:
    """Whether the next message is what the model said, as far as that is known: twins part ways there."""
    if conversation.reply is None or conversation.first:
        return True
    answer = next((m for m in chat[conversation.length :] if m.get("role") == "assistant"), None)
    return answer is None or _says(answer, conversation.reply)


def _says(message: Mapping[str, Any], reply: Reply) -> bool:
    read = reply_of(json.dumps({"choices": [{"message": dict(message)}]}, default=str).encode())
    return read is None or not reply.text or read.text.strip() == reply.text.strip() or read.calls == reply.calls != ()


def _new_steps(conversation: Conversation, chat: Chat, steps: Sequence[SentStep]) -> Sequence[SentStep]:
    """The steps that the session does not know; where the history was rewritten, those after the last one it knows."""
    if not conversation.seen or extends(chat, conversation.length, conversation.seen):
        return steps[conversation.sent :]
    for place in range(len(steps) - 1, -1, -1):
        if identity_of_step(steps[place]) == conversation.last_step:
            return steps[place + 1 :]
    return steps[-1:]


def identity_of_step(step: SentStep) -> str:
    return content_hash(step.model_dump(mode="json"))


def _cut(step: SentStep, longest: int) -> SentStep:
    return step.model_copy(update={"observation": step.observation[:longest], "thought": step.thought[:longest]})
