"""Providers and routers as a server has to treat them: none may hold the others, and what fails is written down.

Where one is late or fails, the request is still served: without that preview, without that retrieval, or by the
fallback policy. Every such case is a `Trouble` in the answer, a counter and a log line.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import structlog

from providers.base import MemoryProvider, ProviderCard
from providers.errors import MemrouteError, ProviderError
from providers.types import Effect, Outcome, Preview, Query, Retrieval, StoreReceipt, Trajectory
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy
from router.policies.fuse import Fuser, RuleFuser
from router.session import PREVIEW_LIMIT
from serve.failures import EngineFailure
from serve.messages import Trouble

SHARED_THREADS = 4
"""In which providers are probed one after another, in about a millisecond each."""
THREADS = 2
"""Of each provider that is slow or failed: one that hangs holds up itself alone."""
PATIENCE = 0.05
"""Seconds that the providers of one request are given in one thread."""
FAILURES = 3
"""In a row, after which a provider or router rests."""

REASONS = {"slow": "late", "invalid": "invalid", "cut": "invalid"}
"""What an engine's failure counts as, by its kind; all others are `failed`."""
UNFIT = ("invalid", "cut")
"""Kinds of answers that say nothing against the engine's health."""

Phase = Literal["begin", "in", "end"]
D = TypeVar("D", BeginDecision, InDecision, EndDecision)

log = structlog.get_logger("memroute.serve")


@dataclass
class Notes:
    """What went wrong while one request was served, and how long its stages took, in seconds."""

    troubles: list[Trouble] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def trouble(self, stage: str, name: str, reason: str, error: BaseException | None = None) -> None:
        """Write one down; the error's own words are for the log, not for the caller."""
        self.troubles.append(Trouble.model_validate({"stage": stage, "name": name, "reason": reason}))
        log.warning("trouble", stage=stage, name=name, reason=reason, error=words(error))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - started


class Rests:
    """Who failed three times in a row is left alone for a while, and then asked again."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failures: defaultdict[str, int] = defaultdict(int)
        self._until: dict[str, float] = {}

    def resting(self, name: str) -> bool:
        return time.monotonic() < self._until.get(name, 0.0)

    def failed(self, name: str) -> None:
        self._failures[name] += 1
        if self._failures[name] >= FAILURES:
            self._until[name] = time.monotonic() + self._seconds

    def doubtful(self, name: str) -> bool:
        """Whether it failed when it was last asked."""
        return name in self._failures

    def worked(self, name: str) -> None:
        self._failures.pop(name, None)
        self._until.pop(name, None)


class Lanes:
    """Threads for probing: some that ask all providers one after another, and some of each provider's own."""

    def __init__(self) -> None:
        self.shared = ThreadPoolExecutor(SHARED_THREADS, thread_name_prefix="probe")
        self._own: dict[str, ThreadPoolExecutor] = {}

    def of(self, provider: str) -> ThreadPoolExecutor:
        if provider not in self._own:
            self._own[provider] = ThreadPoolExecutor(THREADS, thread_name_prefix=f"probe-{provider}")
        return self._own[provider]

    def close(self) -> None:
        """Without waiting: a probe that hangs must not hold up the end."""
        for pool in (self.shared, *self._own.values()):
            pool.shutdown(wait=False, cancel_futures=True)


class _Round:
    """One request's probes, each made once by whichever thread takes it first."""

    def __init__(self, query: Query, providers: Mapping[str, MemoryProvider]) -> None:
        self.waiting = dict(providers)
        self.found: dict[str, Preview | Exception] = {}
        self._query = query

    def all(self) -> None:
        """Probe until nobody waits."""
        while True:
            try:
                name, provider = self.waiting.popitem()
            except KeyError:
                return
            self._probe(name, provider)

    def one(self, name: str) -> None:
        """Probe this provider, where it still waits."""
        provider = self.waiting.pop(name, None)
        if provider is not None:
            self._probe(name, provider)

    def _probe(self, name: str, provider: MemoryProvider) -> None:
        try:
            self.found[name] = provider.probe(self._query)
        except Exception as error:  # noqa: BLE001  (a provider may be a stranger's code; its failure is written down)
            self.found[name] = error


async def probe_in_time(
    query: Query, providers: Mapping[str, MemoryProvider], lanes: Lanes, rests: Rests, seconds: float, notes: Notes
) -> tuple[Preview, ...]:
    """One preview per provider, in order, within `seconds` altogether: empty where it is late or fails.

    Handing a probe to a thread costs almost as much as the probe, so one thread asks all who worked last time. Who did
    not has a thread of its own, and so have those who still wait when that one is not through after `PATIENCE`.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    asked = {name: provider for name, provider in providers.items() if not rests.resting(name)}
    doubtful = [name for name in asked if rests.doubtful(name)]
    probes = _Round(query, asked)
    works = {loop.run_in_executor(lanes.of(name), probes.one, name) for name in doubtful}
    works.add(loop.run_in_executor(lanes.shared, probes.all))
    _, running = await asyncio.wait(works, timeout=min(PATIENCE, seconds))
    if running:
        works |= {loop.run_in_executor(lanes.of(name), probes.one, name) for name in tuple(probes.waiting)}
        _, running = await asyncio.wait(works, timeout=until - loop.time())
    for work in running:
        work.cancel()
    return tuple(_preview(name, probes, name in asked, rests, notes) for name in providers)


def _preview(name: str, probes: _Round, asked: bool, rests: Rests, notes: Notes) -> Preview:
    """What a provider's probe gave, in the length that is shown; empty where there is none, which is noted."""
    found = probes.found.get(name)
    if isinstance(found, Preview):
        rests.worked(name)
        return found.model_copy(update={"provider": name, "text": found.text.strip()[:PREVIEW_LIMIT]})
    if asked:
        rests.failed(name)
        notes.trouble("probe", name, "late" if found is None else "failed", found)
    else:
        notes.trouble("probe", name, "resting")
    return Preview(provider=name)


class Attended:
    """A provider during one request: a retrieval that is late or fails gives nothing, and is written down."""

    def __init__(self, provider: MemoryProvider, name: str, rests: Rests, seconds: float, notes: Notes) -> None:
        self._provider, self._name = provider, name
        self._rests, self._seconds, self._notes = rests, seconds, notes

    @property
    def card(self) -> ProviderCard:
        return self._provider.card

    def probe(self, query: Query) -> Preview:
        return self._provider.probe(query)

    async def retrieve(self, query: Query) -> Retrieval:
        if self._rests.resting(self._name):
            self._notes.trouble("retrieve", self._name, "resting")
            return Retrieval(provider=self._name)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._provider.retrieve(query)
        except TimeoutError as error:
            self._notes.trouble("retrieve", self._name, "late", error)
        except Exception as error:  # noqa: BLE001  (a provider may be a stranger's code; its failure is written down)
            self._notes.trouble("retrieve", self._name, "failed", error)
        self._rests.failed(self._name)
        return Retrieval(provider=self._name)

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        """Raises ProviderError whatever a provider fails with, and BankError where the bank cannot be written."""
        try:
            return await self._provider.store(trajectory, outcome)
        except MemrouteError:
            raise
        except Exception as error:
            log.warning("trouble", stage="store", name=self._name, reason="failed", error=words(error))
            raise ProviderError(f"{self._name} failed while storing") from error

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        self._provider.apply(effects, outcome)


class AttendedFuser:
    """Writes notes of several memories: where the one that is asked is late or fails, rules write them."""

    def __init__(self, fuser: Fuser, seconds: float, notes: Notes) -> None:
        self._fuser, self._seconds, self._notes = fuser, seconds, notes

    async def fuse(self, question: str, parts: Sequence[tuple[str, str]]) -> str:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._fuser.fuse(question, parts)
        except TimeoutError as error:
            self._notes.trouble("fuse", "fuser", "late", error)
        except MemrouteError as error:
            self._notes.trouble("fuse", "fuser", "failed", error)
        return await RuleFuser().fuse(question, parts)


class AttendedRouter:
    """A policy during one request: where it is late, fails, or decides what it may not, the fallback decides."""

    def __init__(self, router: Policy, fallback: Policy, rests: Rests, seconds: float, notes: Notes) -> None:
        self.name = router.name
        self._router, self._fallback = router, fallback
        self._rests, self._seconds, self._notes = rests, seconds, notes

    async def begin(self, context: BeginContext) -> BeginDecision:
        known = {preview.provider for preview in context.previews}

        def legal(decision: BeginDecision) -> bool:
            chosen = decision.providers
            return set(chosen) <= known and len(set(chosen)) == len(chosen) and _combines(decision)

        return await self._decide(
            "begin", lambda: self._router.begin(context), lambda: self._fallback.begin(context), legal
        )

    async def step(self, context: InContext) -> InDecision:
        return await self._decide("in", lambda: self._router.step(context), lambda: self._fallback.step(context), _any)

    async def end(self, context: EndContext) -> EndDecision:
        known = {card.name for card in context.cards}

        def legal(decision: EndDecision) -> bool:
            return set(decision.providers) <= known and len(set(decision.providers)) == len(decision.providers)

        return await self._decide("end", lambda: self._router.end(context), lambda: self._fallback.end(context), legal)

    async def _decide(
        self,
        phase: Phase,
        ask: Callable[[], Awaitable[D]],
        instead: Callable[[], Awaitable[D]],
        legal: Callable[[D], bool],
    ) -> D:
        decided = await self._ask(phase, ask, legal)
        return decided if decided is not None else (await instead()).model_copy(update={"fallback": True})

    async def _ask(self, phase: Phase, ask: Callable[[], Awaitable[D]], legal: Callable[[D], bool]) -> D | None:
        """The router's decision; None where there is no legal one, which is noted."""
        if self._rests.resting(self.name):
            self._note(phase, "resting")
            return None
        try:
            async with asyncio.timeout(self._seconds):
                decision = await ask()
        except TimeoutError as error:
            self._rests.failed(self.name)
            self._note(phase, "late", error)
            return None
        except EngineFailure as failure:
            if failure.kind not in UNFIT:
                self._rests.failed(self.name)
            self._note(phase, REASONS.get(failure.kind, "failed"), failure)
            return None
        except Exception as error:  # noqa: BLE001  (whatever a router fails with, its task is served)
            self._rests.failed(self.name)
            self._note(phase, "failed", error)
            return None
        self._rests.worked(self.name)
        if not legal(decision):
            self._note(phase, "invalid")
            return None
        if decision.fallback:  # the policy's own rule already stood in for an illegal answer
            self._note(phase, "invalid")
        return decision

    def _note(self, phase: Phase, reason: str, error: BaseException | None = None) -> None:
        self._notes.trouble(phase, self.name, reason, error)


def _combines(decision: BeginDecision) -> bool:
    return len(decision.providers) <= 1 or decision.combine != "single"


def _any(decision: InDecision) -> bool:
    return True


def words(error: BaseException | None) -> str:
    """An error in its own words, for the log."""
    return "" if error is None else f"{type(error).__name__}: {error}"[:300]
