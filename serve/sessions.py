"""The service itself, without HTTP: begin -> memory, step -> working memory or nothing, end -> who keeps the run.

The lifecycle is `router.session.MemorySession`'s; here it is continued from what stands in the database at every call,
so that a restart loses nothing. What a call acknowledges is written before it returns.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import structlog
from pydantic import BaseModel

from providers.base import MemoryProvider, ProviderCard
from providers.errors import MemrouteError
from providers.forgetting import Forgotten, Selection, holds_text, strings_in
from providers.namespaces import DEFAULT, within
from providers.skills import SkillRunner, calls_tools
from providers.types import Injection, Outcome, Query, SkillSpec, Split, Step, Task, Trajectory, content_hash
from router.context import BeginContext, EndContext, InContext
from router.decisions import SHORT_TERM, BeginDecision, EndDecision, InDecision, Policy
from router.policies.fuse import Fuser, RuleFuser
from router.session import Decided, MemorySession, offer
from serve.attended import Attended, AttendedFuser, AttendedRouter, Lanes, Notes, Rests, probe_in_time
from serve.auth import ANYWHERE, Caller
from serve.database import Kept, Noted, ServeDatabase, Session
from serve.errors import Refusal
from serve.memories import Memories
from serve.messages import (
    Audit,
    BeginRequest,
    Begun,
    Decision,
    Ended,
    EndRequest,
    GivenInjection,
    GivenSkill,
    RouteBeginRequest,
    Routed,
    RouteEndRequest,
    RouteInRequest,
    SentOutcome,
    SentStep,
    SessionView,
    SkillAnswer,
    SkillCall,
    Stepped,
    StepRequest,
)
from serve.metrics import Metrics
from serve.rendering import quoted_memories, quoted_working
from serve.shadow import Shadowed
from synth.config import ServeConfig

SUITE = "served"
"""The suite's name in tasks that come from outside."""
SWEEP_SECONDS = 2.0
AUDIT_ENTRIES = 1000
DAY_SECONDS = 86_400.0
WARMING = "warm up"
OPENING_SECONDS = 10.0
"""How long a start, or a namespace's first request, waits for indexes to open; the next probe finds the rest late."""
UNKNOWN = Outcome(correct=None, source="unknown")
RULES = RuleFuser()

log = structlog.get_logger("memroute.serve")
A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True)
class Retry:
    """A caller's own name for a call: the same name and content get the same answer, however often they are sent."""

    name: str


class Sessions:
    """Serves the sessions of all callers over one run's memories. Start it, and close it at the end."""

    def __init__(
        self,
        memories: Memories,
        database: ServeDatabase,
        settings: ServeConfig,
        *,
        router: Policy,
        fallback: Policy,
        acting: Policy | None = None,
        fuser: Fuser = RULES,
        metrics: Metrics | None = None,
    ) -> None:
        """`acting` is the policy of shadow mode: it acts, and `router` only decides and is logged."""
        self.memories, self.settings = memories, settings
        self.metrics = metrics or Metrics()
        self.draining = False
        self.readiness: dict[str, Callable[[], str]] = {}
        """Named checks of whatever else has to be ready; each says what is missing, or nothing."""
        self._database = database
        self._router, self._fallback, self._acting, self._fuser = router, fallback, acting, fuser
        self._skills = SkillRunner()
        self._lanes, self._rests = Lanes(), Rests(settings.rest_seconds)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._waiting = 0
        self._beside: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._started = False

    # Life of the service

    async def start(self) -> None:
        """Load what the first request would wait for, finish what a crash interrupted, and start to sweep."""
        providers, embedding = await asyncio.to_thread(self._asked, DEFAULT, WARMING)
        await self._open(Query(text=WARMING, embedding=embedding, namespace=DEFAULT), providers)
        await self.sweep()
        self._sweeper = asyncio.create_task(self._sweep_on())
        self._started = True

    async def close(self) -> None:
        """Wait for what runs beside requests, and close what this service opened; memories are the caller's."""
        self.draining = True
        self._started = False
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        if self._beside:
            await asyncio.wait(self._beside, timeout=self.settings.router_seconds)
        self._lanes.close()
        self._skills.close()
        await asyncio.to_thread(self._database.close)

    def missing(self) -> list[str]:
        """Why this service is not ready, in sentences; nothing where it is."""
        found = [] if self._started else ["The service has not started."]
        if self.draining:
            found.append("The service is ending.")
        return found + [said for check in self.readiness.values() if (said := check())]

    @property
    def policy_name(self) -> str:
        """Who acts."""
        return (self._acting or self._router).name

    # The three phases of a session

    async def begin(self, caller: Caller, request: BeginRequest, retry: Retry | None = None) -> Begun:
        """Probe the memories, decide, retrieve; the session stands when this returns."""
        if self.draining:
            raise Refusal(503, "The server is ending; begin on another one, or later.", retry_after=5.0)
        caller.need("read")
        namespace = caller.namespace(request.namespace)
        self._check_length("The question", request.question, self.settings.max_question)
        async with self._serving(caller, retry) as notes:
            call = _Call("begin", "", request, retry)
            if (known := await self._answered(caller, call, Begun)) is not None:
                return known
            await self._check_room(caller)
            session_id = secrets.token_hex(16)
            task_id = request.task_id or session_id
            task = Task(id=task_id, question=request.question, suite=SUITE, split=Split.TEST)
            memory = await self._begun(task, namespace, notes)
            now = time.time()
            decision = self._decision(memory.decisions[-1])
            session = Session(
                id=session_id,
                key=caller.key,
                namespace=namespace,
                task_id=task_id,
                question=request.question,
                created=now,
                expires=now + self.settings.session_seconds,
                state=memory.state,
                decisions=(decision,),
                troubles=tuple(notes.troubles),
            )
            begun = Begun(
                session_id=session_id,
                namespace=namespace,
                expires=session.expires,
                injections=await self._given(session, memory.injections),
                memory="",
                skills=tuple(_given_skill(skill) for skill in memory.skills),
                decision=decision,
                previews=memory.state.previews,
                troubles=tuple(notes.troubles),
            )
            begun = begun.model_copy(update={"memory": quoted_memories(begun.injections)})
            read = {"providers": decision.providers, "items": [i.id for part in begun.injections for i in part.items]}
            with notes.timed("persist"):
                await self._database.save(
                    session, answer=call.kept(begun), noted=Noted(caller.key, "begin", namespace, session_id, read)
                )
            self.metrics.decided("begin", decision)
            self.metrics.injected(begun.injections)
            return begun

    async def step(self, caller: Caller, session_id: str, request: StepRequest, retry: Retry | None = None) -> Stepped:
        """Take in new steps, and say what working memory to show before the next one."""
        caller.need("read")
        async with self._serving(caller, retry, session_id) as notes:
            call = _Call("step", session_id, request, retry)
            if (known := await self._answered(caller, call, Stepped)) is not None:
                return known
            session = await self._open_session(caller, session_id)
            new = self._numbered(session, request)
            steps = (*await self._database.steps(session_id), *new)
            memory = self._continued(session, notes)
            with notes.timed("observe"):
                await asyncio.to_thread(memory.observe, steps)
            with notes.timed("decide"):
                text = await memory.step(steps)
            decided = memory.decisions[-1]
            decision = self._decision(decided)
            session = self._moved(session, notes, decision).model_copy(
                update={"state": memory.state, "steps": len(steps), "characters": session.characters + _length(new)}
            )
            injection = (await self._given(session, memory.injections))[-1] if text else None
            stepped = Stepped(
                session_id=session_id,
                steps=len(steps),
                memory=quoted_working(text),
                injection=injection,
                decision=decision,
                troubles=tuple(notes.troubles),
            )
            with notes.timed("persist"):
                await self._database.save(session, new_steps=new, answer=call.kept(stepped))
            self.metrics.decided("in", decision)
            self.metrics.injected((injection,) if injection else ())
            return stepped

    async def end(self, caller: Caller, session_id: str, request: EndRequest, retry: Retry | None = None) -> Ended:
        """Decide who keeps the run, and store it there; with `outcome_later` both wait for the outcome."""
        caller.need("write")
        self._check_length("The answer", request.answer or "", self.settings.max_text)
        async with self._serving(caller, retry, session_id) as notes:
            call = _Call("end", session_id, request, retry)
            if (known := await self._answered(caller, call, Ended)) is not None:
                return known
            session = await self._existing(caller, session_id)
            if session.ending is not None and session.ending == (call.name, call.request_hash):
                return await self._answer_end(await self._settled(session, notes), call, notes)
            session = await self._open_session(caller, session_id)
            new = self._numbered(session, request)
            steps = (*await self._database.steps(session_id), *new)
            session = _finished(self._moved(session, notes), request, steps).model_copy(
                update={"ending": (call.name, call.request_hash) if retry else None}
            )
            if request.outcome_later and request.outcome.correct is None:
                ended = self._ended(session, notes)
                noted = Noted(caller.key, "end", session.namespace, session_id, {"outcome": "later"})
                await self._database.save(session, drop_steps=True, answer=call.kept(ended), noted=noted)
                return ended
            session = await self._decide_end(session, notes, drop_steps=True)
            return await self._answer_end(await self._settled(session, notes), call, notes)

    async def draft_end(self, caller: Caller, session_id: str, request: EndRequest) -> None:
        """Keep how a session ends where nobody ends it: when it expires, over restarts too, its run is kept so."""
        caller.need("write")
        async with self._serving(caller, None, session_id) as notes:
            session = await self._open_session(caller, session_id)
            await self._database.save(self._moved(session, notes).model_copy(update={"draft": request}))

    async def outcome(self, caller: Caller, session_id: str, request: SentOutcome, retry: Retry | None = None) -> Ended:
        """Take in an outcome that comes late; gates that an unknown one left closed are tried again."""
        caller.need("write")
        async with self._serving(caller, retry, session_id) as notes:
            call = _Call("outcome", session_id, request, retry)
            if (known := await self._answered(caller, call, Ended)) is not None:
                return known
            session = await self._existing(caller, session_id)
            outcome = _outcome(request)
            if session.status == "open":
                raise Refusal(409, "The session has not ended; an outcome belongs to a finished run.")
            if session.status == "ending":
                session = await self._settled(session, notes)
            if session.status == "ended" and session.outcome != UNKNOWN and session.outcome is not None:
                if session.outcome.correct is not None and session.outcome != outcome:
                    raise Refusal(409, "The session has another outcome already; the first one stands.")
                if session.outcome == outcome:
                    return self._ended(session, notes)
            session = self._moved(session, notes).model_copy(update={"outcome": outcome})
            session = await self._decide_end(session, notes)
            return await self._answer_end(await self._settled(session, notes), call, notes)

    async def view(self, caller: Caller, session_id: str) -> SessionView:
        """A session as it stands."""
        caller.need("read")
        session = await self._existing(caller, session_id)
        return SessionView(
            session_id=session.id,
            namespace=session.namespace,
            task_id=session.task_id,
            status=session.status,
            steps=session.steps,
            expires=session.expires,
            previews=session.state.previews,
            injections=await self._given(session, session.state.injections),
            decisions=session.decisions,
            outcome=session.outcome,
            receipts=session.receipts,
        )

    async def call_skill(self, caller: Caller, skill_id: str, request: SkillCall) -> SkillAnswer:
        """Run a skill that the session was given, where it needs none of the caller's tools."""
        caller.need("read")
        session = await self._existing(caller, request.session_id)
        skill = next((skill for skill in session.state.skills if skill.code_id == skill_id), None)
        if skill is None:
            raise Refusal(404, "The session was given no such skill.")
        if calls_tools(skill):
            raise Refusal(
                409,
                f"The skill {skill.name!r} calls tools, and the server has none: run it with MemoryClient and yours.",
            )
        async with self._serving(caller, None):
            result = (await self._skills.run(skill, request.arguments, ())).result
        return SkillAnswer(observation=result.observation, error=result.error)

    # Decisions without a session

    async def route_begin(self, caller: Caller, request: RouteBeginRequest) -> Routed:
        """A Begin decision over the caller's own previews."""
        caller.need("read")
        self._check_length("The question", request.question, self.settings.max_question)
        names = [preview.provider for preview in request.previews]
        if len(set(names)) < len(names):
            raise Refusal(422, "Two previews are of one provider; send one of each.")
        cards = self._cards(names, request.cards)
        async with self._serving(caller, None) as notes:
            with notes.timed("encode"):
                embedding = await self._encoded(request.question)
            context = BeginContext(
                task_id=request.task_id,
                question=request.question,
                embedding=embedding,
                previews=tuple(p.model_copy(update={"text": p.text.strip()[:200]}) for p in request.previews),
                cards=cards,
            )
            with notes.timed("decide"):
                decision = await self._policy(notes).begin(context)
            return self._routed("begin", Decided("begin", context, decision), notes)

    async def route_in(self, caller: Caller, request: RouteInRequest) -> Routed:
        """An In decision over the caller's own working memory; without any it is no_op, and nobody is asked."""
        caller.need("read")
        self._check_length("The question", request.question, self.settings.max_question)
        self._check_length("The summary", request.summary, self.settings.max_text)
        self._check_steps(request.recent)
        first = max(0, request.step - len(request.recent))
        context = InContext(
            task_id=request.task_id,
            question=request.question,
            step=request.step,
            summary=request.summary,
            recent=tuple(step.numbered(first + place) for place, step in enumerate(request.recent)),
        )
        async with self._serving(caller, None) as notes:
            with notes.timed("decide"):
                asked = request.summary != ""
                decision = await self._policy(notes).step(context) if asked else InDecision(action="no_op")
            return self._routed("in", Decided("in", context, decision, forced=not asked), notes)

    async def route_end(self, caller: Caller, request: RouteEndRequest) -> Routed:
        """An End decision over the caller's own memories, reduced to those whose gate is open."""
        caller.need("read")
        self._check_length("The question", request.question, self.settings.max_question)
        self._check_length("The summary", request.summary, self.settings.max_text)
        names = request.providers or tuple(card.name for card in request.cards or self.memories.cards)
        cards, outcome = self._cards(names, request.cards), _outcome(request.outcome)
        context = EndContext(
            task_id=request.task_id, question=request.question, summary=request.summary, outcome=outcome, cards=cards
        )
        accepting = {card.name for card in cards if card.accepts(outcome)}
        async with self._serving(caller, None) as notes:
            with notes.timed("decide"):
                decision = await self._policy(notes).end(context) if accepting else EndDecision()
            kept = tuple(name for name in decision.providers if name in accepting)
            decision = decision.model_copy(update={"providers": kept})
            return self._routed("end", Decided("end", context, decision, forced=not accepting), notes)

    # What administrators do

    async def forget(self, caller: Caller, selection: Selection) -> Forgotten:
        """Remove what is selected from the memories, with everything made of it, and from open and ended sessions."""
        caller.need("admin")
        if caller.scope != ANYWHERE:
            selection = selection.model_copy(update={"namespace": caller.namespace(selection.namespace)})
        selection.checked()
        forgotten = await asyncio.to_thread(self.memories.forget, selection)
        named = [name for name, value in selection.model_dump(exclude_none=True).items() if name != "namespace"]
        noted = Noted(
            caller.key, "forget", selection.namespace or "", detail={"by": named, "records": forgotten.records}
        )
        await self._database.forget(lambda session, steps: _selects(selection, session, steps), noted)
        return forgotten

    async def audit(self, caller: Caller, limit: int) -> Audit:
        """The latest entries of the audit log on namespaces that the caller reaches."""
        caller.need("admin")
        scope = None if caller.scope == ANYWHERE else caller.scope
        return Audit(entries=await self._database.audit(scope, min(limit, AUDIT_ENTRIES)))

    async def count_open(self) -> int:
        """Sessions that are not ended."""
        return await self._database.open_sessions()

    # Sweeping: what expires, and what was interrupted

    async def sweep(self) -> None:
        """Finish interrupted ends, end what waited in vain for an outcome, and delete what expired."""
        now = time.time()
        gone = []
        for session in await self._database.unfinished(now):
            async with self._lock(session.id):
                current = await self._database.session(session.id)
                if current is None or (current.status != "ending" and current.expires > now):
                    continue
                try:
                    if await self._expire(current, now):
                        gone.append(current.id)
                except MemrouteError as error:
                    log.warning("sweep", session=current.id, error=str(error))
        await self._database.expire(gone, now + self.settings.session_seconds)
        await self._database.clean(now, now - DAY_SECONDS * self.settings.audit_days)

    async def _expire(self, session: Session, now: float) -> bool:
        """Bring a session to its end; whether it is to be deleted."""
        notes, over = Notes(), session.expires <= now
        if session.status == "open" and session.draft is not None:
            session = _finished(session, session.draft, await self._database.steps(session.id))
        if session.status == "waiting":
            session = await self._decide_end(session, notes, drop_steps=True)
        if session.status == "ending":
            session = await self._settled(session, notes)
            await self._database.save(session, noted=self._stored(session))
        if over and session.status == "ended" and session.effects_due:
            await self._apply_effects(session, notes)  # nobody said how it ended, and nobody will
        return over

    async def _sweep_on(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.settings.session_seconds))
            try:
                await self.sweep()
                self.metrics.sessions.set(await self.count_open())
            except MemrouteError as error:
                log.warning("sweep", error=str(error))

    # The pieces

    async def _open(self, query: Query, providers: Mapping[str, MemoryProvider]) -> None:
        """Open the indexes of the query's namespace, once: opening takes longer than a probe may."""
        if self.memories.is_open(query.namespace):
            return
        async with self._lock(f"open {query.namespace}"):
            if not self.memories.is_open(query.namespace):
                await probe_in_time(query, providers, self._lanes, self._rests, OPENING_SECONDS, Notes())
                self.memories.opened(query.namespace)

    def _asked(self, namespace: str, text: str) -> tuple[Mapping[str, MemoryProvider], np.ndarray]:
        """The memories of a namespace, and what they are asked for as a vector."""
        return self.memories.of(namespace), np.asarray(self.memories.encoder.encode([text])[0])

    async def _begun(self, task: Task, namespace: str, notes: Notes) -> MemorySession:
        """A session after its Begin; providers that were late or failed are in the notes."""
        with notes.timed("encode"):
            providers, embedding = await asyncio.to_thread(self._asked, namespace, task.question)
        query = Query(text=task.question, embedding=embedding, namespace=namespace, task_id=task.id)
        await self._open(query, providers)
        with notes.timed("probe"):
            previews = await probe_in_time(
                query, providers, self._lanes, self._rests, self.settings.probe_seconds, notes
            )
        attended = {
            name: Attended(provider, name, self._rests, self.settings.retrieve_seconds, notes)
            for name, provider in providers.items()
        }
        memory = MemorySession(
            task,
            query,
            attended,
            self._policy(notes),
            previews=previews,
            fuser=AttendedFuser(self._fuser, self.settings.router_seconds, notes),
        )
        with notes.timed("decide and retrieve"):
            await memory.begin()
        return memory

    def _continued(self, session: Session, notes: Notes) -> MemorySession:
        """The session as it stood after its last call."""
        task = Task(id=session.task_id, question=session.question, suite=SUITE, split=Split.TEST)
        query = Query(text=session.question, embedding=np.zeros(0, np.float32), namespace=session.namespace)
        providers = self.memories.of(session.namespace)
        return MemorySession(
            task, query, providers, self._policy(notes), state=session.state, describe=self.memories.describe
        )

    async def _decide_end(self, session: Session, notes: Notes, *, drop_steps: bool = False) -> Session:
        """Decide who keeps the run, and write down that it is to be stored there; nothing is stored yet."""
        assert session.trajectory is not None
        assert session.outcome is not None
        memory = self._continued(session, notes)
        with notes.timed("decide"):
            ending = await memory.end(session.trajectory, session.outcome)
        decision = self._decision(memory.decisions[-1]).model_copy(update={"providers": ending.stores})
        session = self._moved(session, notes, decision).model_copy(
            update={"decision": ending.decision, "status": "ending"}
        )
        await self._database.save(session, drop_steps=drop_steps)
        self.metrics.decided("end", decision)
        return session

    async def _settled(self, session: Session, notes: Notes) -> Session:
        """Apply effects and store where it was decided; whatever is done already is not done again."""
        if session.status != "ending":
            return session
        assert session.trajectory is not None
        assert session.outcome is not None
        assert session.decision is not None
        known = session.outcome.correct is not None
        if known and session.effects_due:
            await self._apply_effects(session, notes)
        stored = {receipt.provider for receipt in session.receipts if receipt.status == "stored"}
        providers = {
            name: Attended(provider, name, self._rests, self.settings.retrieve_seconds, notes)
            for name, provider in (await asyncio.to_thread(self.memories.of, session.namespace)).items()
        }
        due = [name for name in session.decision.providers if name not in stored]
        with notes.timed("store"):
            receipts = await offer(due, session.trajectory, session.outcome, providers)
        earlier = tuple(receipt for receipt in session.receipts if receipt.provider not in due)
        self.metrics.stored(receipts)
        trajectory = session.trajectory.model_copy(update={"steps": ()}) if known else session.trajectory
        return session.model_copy(
            update={
                "status": "ended",
                "receipts": (*earlier, *receipts),
                "trajectory": trajectory,
                "effects_due": session.effects_due and not known,
            }
        )

    async def _apply_effects(self, session: Session, notes: Notes) -> None:
        failed = await asyncio.to_thread(
            self.memories.apply_once,
            session.id,
            session.namespace,
            session.state.effects,
            session.outcome or UNKNOWN,
        )
        for name in failed:
            notes.trouble("store", name, "failed")

    async def _answer_end(self, session: Session, call: _Call, notes: Notes) -> Ended:
        ended = self._ended(session, notes)
        with notes.timed("persist"):
            await self._database.save(session, answer=call.kept(ended), noted=self._stored(session))
        return ended

    @staticmethod
    def _stored(session: Session) -> Noted:
        detail = {
            "outcome": session.outcome.model_dump(include={"correct", "source"}) if session.outcome else None,
            "receipts": {
                receipt.provider: {"status": receipt.status, "records": receipt.record_ids}
                for receipt in session.receipts
            },
        }
        return Noted(session.key, "store", session.namespace, session.id, detail)

    def _ended(self, session: Session, notes: Notes) -> Ended:
        assert session.trajectory is not None
        return Ended(
            session_id=session.id,
            trajectory_id=session.trajectory.id,
            status="waiting" if session.status == "waiting" else "ended",
            outcome=session.outcome or UNKNOWN,
            decision=None if session.status == "waiting" else session.decisions[-1],
            receipts=session.receipts,
            troubles=tuple(notes.troubles),
        )

    def _policy(self, notes: Notes) -> Policy:
        """Who decides this request."""
        seconds = self.settings.router_seconds
        if self._acting is None:
            return AttendedRouter(self._router, self._fallback, self._rests, seconds, notes)
        acting = AttendedRouter(self._acting, self._fallback, self._rests, seconds, notes)
        router = AttendedRouter(self._router, self._fallback, self._rests, seconds, Notes())
        return Shadowed(acting, router, self._spawn, lambda phase, alike: self._shadowed(phase, alike))

    def _shadowed(self, phase: str, alike: bool) -> None:
        self.metrics.shadow.labels(phase, str(alike).lower()).inc()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the request; too much of it is left undone."""
        if len(self._beside) >= self.settings.max_queue:
            work.close()
            return
        task = asyncio.create_task(work)
        self._beside.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._beside.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("beside", error=f"{type(error).__name__}: {error}")

        task.add_done_callback(done)

    def _decision(self, decided: Decided) -> Decision:
        made = decided.decision
        return Decision(
            policy=self.policy_name,
            providers=() if isinstance(made, InDecision) else made.providers,
            combine=made.combine if isinstance(made, BeginDecision) else "single",
            action=made.action if isinstance(made, InDecision) else None,
            fallback=made.fallback,
            forced=decided.forced,
        )

    def _routed(self, phase: str, decided: Decided, notes: Notes) -> Routed:
        decision = self._decision(decided)
        self.metrics.decided(phase, decision)
        return Routed(decision=decision, troubles=tuple(notes.troubles))

    def _cards(self, names: Sequence[str], given: Sequence[ProviderCard]) -> tuple[ProviderCard, ...]:
        """The cards of these providers in that order: the caller's own, else the server's."""
        known = {card.name: card for card in (*self.memories.cards, *given)}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise Refusal(422, f"There is no provider {unknown[0]!r} here; send its card.")
        return tuple(known[name] for name in names)

    async def _given(self, session: Session, injections: Sequence[Injection]) -> tuple[GivenInjection, ...]:
        if not injections:
            return ()
        return await asyncio.to_thread(self._described, session, injections)

    def _described(self, session: Session, injections: Sequence[Injection]) -> tuple[GivenInjection, ...]:
        titles = {card.name: card.title for card in self.memories.cards}
        return tuple(
            GivenInjection(
                id=f"{session.id}.{place}",
                phase=injection.phase,
                provider=injection.provider,
                title=titles.get(
                    injection.provider, "working memory" if injection.provider == SHORT_TERM else "several memories"
                ),
                text=injection.text,
                items=self.memories.items(injection.provider, session.namespace, injection.item_ids)
                if injection.provider in titles
                else (),
                skills=injection.skills,
            )
            for place, injection in enumerate(injections)
        )

    async def _encoded(self, text: str) -> np.ndarray:
        rows = await asyncio.to_thread(self.memories.encoder.encode, [text])
        return np.asarray(rows[0])

    def _moved(self, session: Session, notes: Notes, *decisions: Decision) -> Session:
        """The session after a call: it expires later, and knows what was decided and what went wrong."""
        return session.model_copy(
            update={
                "expires": time.time() + self.settings.session_seconds,
                "decisions": (*session.decisions, *decisions),
                "troubles": tuple(dict.fromkeys((*session.troubles, *notes.troubles))),
            }
        )

    async def _existing(self, caller: Caller, session_id: str) -> Session:
        """A session that the caller reaches; of others it is not even said whether they exist."""
        session = await self._database.session(session_id)
        if session is None and await self._database.expired(session_id):
            raise Refusal(410, "The session has expired; begin another one.")
        if session is None or not caller.reaches(session.namespace):
            raise Refusal(404, "There is no such session; begin one with POST /v1/sessions.")
        if session.expires <= time.time() and session.status != "ending":
            raise Refusal(410, "The session has expired; begin another one.")
        return session

    async def _open_session(self, caller: Caller, session_id: str) -> Session:
        session = await self._existing(caller, session_id)
        if session.status != "open":
            raise Refusal(409, "The session has ended already; GET it to see where its run was stored.")
        return session

    async def _check_room(self, caller: Caller) -> None:
        if await self._database.open_sessions(caller.key) >= self.settings.max_sessions:
            raise Refusal(
                429, f"The key has {self.settings.max_sessions} open sessions, its most; end some.", retry_after=30.0
            )

    def _numbered(self, session: Session, request: StepRequest) -> tuple[Step, ...]:
        """The new steps with their places. Raises Refusal where they do not follow on, or are too many or too long."""
        if request.known is not None and request.known != session.steps:
            raise Refusal(
                409, f"The server knows of {session.steps} steps, not of {request.known}; send those after them."
            )
        if session.steps + len(request.steps) > self.settings.max_steps:
            raise Refusal(413, f"A session has at most {self.settings.max_steps} steps.")
        self._check_steps(request.steps)
        new = tuple(step.numbered(session.steps + place) for place, step in enumerate(request.steps))
        if session.characters + _length(new) > self.settings.max_session:
            raise Refusal(413, f"The steps of a session hold at most {self.settings.max_session:,} characters.")
        return new

    def _check_steps(self, steps: Sequence[SentStep]) -> None:
        for step in steps:
            for what, text in (
                ("An observation", step.observation),
                ("A thought", step.thought),
                ("An error", step.error or ""),
            ):
                self._check_length(what, text, self.settings.max_text)

    @staticmethod
    def _check_length(what: str, text: str, limit: int) -> None:
        if len(text) > limit:
            raise Refusal(413, f"{what} has {len(text):,} characters, and at most {limit:,} are taken.")

    @asynccontextmanager
    async def _serving(
        self, caller: Caller, retry: Retry | None, session_id: str | None = None
    ) -> AsyncIterator[Notes]:
        """One request's turn: after those before it, and alone on its session and its retry's name."""
        if self._slots.locked() and self._waiting >= self.settings.max_queue:
            raise Refusal(503, "The server is busy; send the request again in a moment.", retry_after=1.0)
        self._waiting += 1
        self.metrics.queue.set(self._waiting)
        notes = Notes()
        async with AsyncExitStack() as held:
            try:
                if retry is not None:
                    await held.enter_async_context(self._lock(f"retry {caller.key} {retry.name}"))
                if session_id is not None:
                    await held.enter_async_context(self._lock(session_id))
                await held.enter_async_context(self._slots)
            finally:
                self._waiting -= 1
                self.metrics.queue.set(self._waiting)
            try:
                yield notes
            finally:
                self.metrics.noted(notes)

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def _answered(self, caller: Caller, call: _Call, kind: type[A]) -> A | None:
        """The answer that the same call got before. Raises Refusal where its name stood for another request."""
        if call.retry is None:
            return None
        known = await self._database.answer(caller.key, call.name)
        if known is None:
            return None
        if known.request != call.request_hash:
            raise Refusal(409, "The idempotency key was used for another request; use a new one for each.")
        return kind.model_validate_json(known.body)


class _Call:
    """One call with its caller's name for it, as it is recognised when it is sent again."""

    def __init__(self, action: str, session_id: str, request: BaseModel, retry: Retry | None) -> None:
        self.retry = retry
        self.name = retry.name if retry else ""
        self._parts = (action, session_id, request)

    @property
    def request_hash(self) -> str:
        action, session_id, request = self._parts
        return content_hash(action, session_id, request.model_dump(mode="json"))

    def kept(self, answer: BaseModel) -> Kept | None:
        """The answer as it is kept for a retry; None for a call without a name."""
        return Kept(self.name, self.request_hash, answer.model_dump_json()) if self.retry else None


def _length(steps: Sequence[Step]) -> int:
    """Characters of steps as they are kept."""
    return sum(len(step.model_dump_json()) for step in steps)


def _outcome(sent: SentOutcome) -> Outcome:
    return Outcome(correct=sent.correct, source=sent.source)


def _finished(session: Session, request: EndRequest, steps: tuple[Step, ...]) -> Session:
    """The session with its whole run, and nothing decided about it."""
    return session.model_copy(
        update={
            "steps": len(steps),
            "trajectory": _trajectory(session, request, steps),
            "outcome": _outcome(request.outcome),
            "draft": None,
            "status": "waiting",
        }
    )


def _trajectory(session: Session, request: EndRequest, steps: tuple[Step, ...]) -> Trajectory:
    return Trajectory.make(
        task_id=session.task_id,
        question=session.question,
        agent=request.agent or "agent",
        seed=0,
        steps=steps,
        answer=request.answer,
        status=request.status,
        injections=session.state.injections,
        usage=request.usage,
    )


def _given_skill(skill: SkillSpec) -> GivenSkill:
    return GivenSkill(
        id=skill.code_id,
        name=skill.name,
        doc=skill.doc,
        parameters=skill.parameters,
        input_schema=input_schema(skill),
        calls_tools=calls_tools(skill),
        code=skill.code,
    )


JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}


def input_schema(skill: SkillSpec) -> dict[str, Any]:
    """JSON Schema of a skill's arguments, as function calling has it."""
    return {
        "type": "object",
        "properties": {
            parameter.name: {"type": JSON_TYPES[parameter.type], "description": parameter.doc}
            for parameter in skill.parameters
        },
        "additionalProperties": False,
    }


def _selects(selection: Selection, session: Session, steps: tuple[Step, ...]) -> bool:
    """Whether a session holds what is to be forgotten; what cannot be told of it without its records is kept."""
    if selection.namespace is not None and not within(session.namespace, selection.namespace):
        return False
    runs = (*steps, *(session.trajectory.steps if session.trajectory else ()))
    if selection.task is not None and session.task_id != selection.task:
        return False
    if selection.source is not None and not any(s.lineage and s.lineage.source == selection.source for s in runs):
        return False
    if selection.older_than is not None and session.created >= time.time() - selection.older_than:
        return False
    if selection.text is None:
        return True
    return holds_text(selection.text, strings_in([session.model_dump(), *(step.model_dump() for step in runs)]))
