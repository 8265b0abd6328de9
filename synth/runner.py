"""Running episodes: bounded concurrency, another try where an error may pass, limits, and stops that lose nothing."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Never

from tqdm import tqdm

from lm.cost import Spend
from providers.errors import AgentError, ConfigError, MemrouteError
from providers.types import content_hash
from router.decisions import Arm, InMode
from synth.arms import Unit, episode_key
from synth.config import ExploreConfig
from synth.episode import Prepared, run_agent, run_episode
from synth.facts import Episode, EpisodeKey
from synth.heartbeat import Heartbeat
from synth.workbench import Workbench

_DRAIN_SECONDS = 10.0
_LEAST_FOR_SHARE = 20
"""Episodes before a share of failed ones stops a stage on its way; fewer are judged when all of them ended."""


class LimitReached(MemrouteError):
    """A stage stops at a limit that its config sets; what was done is kept."""


@dataclass
class Progress:
    """What this process did so far in a stage, for the bar and for `fail_on_error`."""

    ran: int = 0
    shared: int = 0
    failed: int = 0
    waiting: int = 0
    """Episodes that wait to be tried again."""
    first_error: str = ""
    known_cost: bool = True
    cost: float = 0.0
    """US dollars of the stage over all its starts, as far as known."""
    tokens: int = 0
    started: int = 0
    """Episodes of the stage over all its starts, repeated tries and those that run now included."""
    booked: Spend | None = None
    """What this process spent on models up to the last episode written; what a wave's stores take comes after it."""

    def words(self, calls_waiting: int) -> dict[str, str]:
        """What the bar shows beside arms done and time left; `calls_waiting`: model calls held back by a rate limit."""
        shown = {"shared": str(self.shared), "failed": str(self.failed)}
        waiting = self.waiting + calls_waiting
        if waiting:
            shown["waiting"] = str(waiting)
        if self.tokens:
            shown["cost"] = f"${self.cost:.2f}" if self.known_cost else "unknown"
        return shown


Execute = Callable[[Prepared, Arm, EpisodeKey, int], Awaitable[Episode]]
"""Runs one arm of a prepared task, under a key, with a step limit."""


@dataclass
class ArmRunner:
    """Runs units of one stage and writes their episodes to the facts.

    `limited`: the exploration's limits on episodes and cost hold for this stage.
    """

    bench: Workbench
    stage: str
    max_steps: int
    keep_trajectories: bool
    limited: bool = False
    progress: Progress = field(default_factory=Progress)
    execute: Execute | None = None
    """Runs one episode; by default in this process."""

    def __post_init__(self) -> None:
        spent = self.bench.run.facts.spent(self.stage)
        self.progress.started = max(self.progress.started, spent.episodes)
        self.progress.tokens, self.progress.cost = spent.tokens, spent.cost or 0.0
        self.progress.known_cost = spent.cost is not None
        self.progress.booked = self.progress.booked or self._spending()
        self._stopping = asyncio.Event()

    async def run(self, units: Sequence[Unit], description: str) -> dict[EpisodeKey, Episode]:
        """Every unit's episodes without their trajectories, those in the facts included.

        A stop (Ctrl-C, a limit, too many failures) lets running episodes end, keeps what is done, and starts no other.

        Raises:
            AgentError: more episodes failed than `explore.fail_on_error` allows.
            LimitReached: `explore.max_episodes` or `explore.max_cost` is used up.
        """
        facts, self._stopping = self.bench.run.facts, asyncio.Event()
        known = facts.episodes(self.stage, sorted({unit.prepared.task.id for unit in units}), bodies=False)
        results: dict[EpisodeKey, Episode] = {}
        queue = deque(units)
        total = sum(len(unit.providers) * len(unit.in_modes) for unit in units)
        heart = Heartbeat(self._settings.episode_seconds, run_agent.__code__)
        with tqdm(total=total, desc=description, unit="arm", disable=None, leave=False, file=sys.stderr) as bar:
            async with heart:
                workers: list[asyncio.Task[None]] = []
                try:
                    while queue and len(workers) < self._settings.concurrency:
                        workers.append(asyncio.create_task(self._work(queue, known, results, bar, heart)))
                        await heart.ready()
                    await _first_failure(workers)
                    self._check_failures(at_end=True)
                finally:
                    queue.clear()
                    self._stopping.set()
                    await _drain(workers)
                    facts.flush()
        return results

    @property
    def _settings(self) -> ExploreConfig:
        return self.bench.run.config.explore

    async def _work(
        self,
        queue: deque[Unit],
        known: Mapping[EpisodeKey, Episode],
        results: dict[EpisodeKey, Episode],
        bar: tqdm[Never],
        heart: Heartbeat,
    ) -> None:
        while queue:
            unit = queue.popleft()
            episodes = await self._episodes(unit, known, heart)
            results.update({episode.key: episode for episode in episodes})
            arms = len(unit.providers) * len(unit.in_modes)
            self.progress.shared += arms - len(episodes)
            bar.set_postfix(self.progress.words(self.bench.run.models.ledger.waiting), refresh=False)
            bar.update(arms)
            await asyncio.sleep(0)

    async def _episodes(self, unit: Unit, known: Mapping[EpisodeKey, Episode], heart: Heartbeat) -> list[Episode]:
        """The unit's episodes: query first, which is also the no_op one where it injected no working memory."""
        episodes: list[Episode] = []
        for mode in sorted(unit.in_modes, key=lambda mode: mode == "no_op"):
            if mode == "no_op" and episodes and episodes[0].status == "done" and not episodes[0].in_injections:
                continue
            key = episode_key(self.stage, unit.prepared, unit.providers[0], mode, unit.repeat)
            earlier = known.get(key)
            if earlier is None or earlier.status != "done":
                await heart.ready()
                heart.running += 1
                try:
                    earlier = await self._episode(unit, mode, key, earlier.attempt + 1 if earlier is not None else 0)
                finally:
                    heart.running -= 1
            episodes.append(earlier)
        return episodes

    async def _episode(self, unit: Unit, mode: InMode, key: EpisodeKey, attempt: int) -> Episode:
        """Run one episode, again where its error may pass; every try is written, the last one counts."""
        arm = Arm(provider=unit.providers[0], in_mode=mode, repeat=unit.repeat)
        for tried in range(1, self._settings.attempts + 1):
            self._check_limits()
            self.progress.started += 1
            execute = self.execute or partial(run_episode, self.bench)
            episode = await execute(unit.prepared, arm, key, self.max_steps)
            episode = episode.model_copy(update={"attempt": attempt, **self._book()})
            kept = {} if self.keep_trajectories else {"trajectory": None, "in_records": ()}
            self.bench.run.facts.add_episode(episode.model_copy(update=kept))
            again = episode.status == "failed" and episode.retryable and tried < self._settings.attempts
            if not again or await self._stopped_within(self._pause(episode, tried)):
                break
            attempt += 1
        self._count(episode)
        return episode.model_copy(update={"trajectory": None, "in_records": ()})

    def _pause(self, episode: Episode, tried: int) -> float:
        """Seconds before the next try: doubling, spread by up to half so that episodes do not come back at once."""
        spread = random.Random(content_hash(episode.key.model_dump(), tried)).uniform(0.75, 1.25)
        return max(episode.retry_after or 0.0, self._settings.backoff_seconds * 2.0 ** (tried - 1) * spread)

    async def _stopped_within(self, seconds: float) -> bool:
        """Wait; True where the stage was stopped meanwhile."""
        self.progress.waiting += 1
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            self.progress.waiting -= 1
        return True

    def _book(self) -> dict[str, float | int | None]:
        """What models took since the last booking, as the fields of the episode that is written next."""
        now, before = self._spending(), self.progress.booked or Spend()
        self.progress.booked = now
        tokens = now.prompt_tokens + now.completion_tokens - before.prompt_tokens - before.completion_tokens
        cost = None if now.cost is None else now.cost - (before.cost or 0.0)
        if tokens == 0 and now.calls == before.calls:
            return {}
        self.progress.tokens += tokens
        self.progress.cost += cost or 0.0
        self.progress.known_cost &= cost is not None
        return {"tokens": tokens, "cost": cost}

    def _spending(self) -> Spend:
        return self.bench.run.models.ledger.total()

    def _check_limits(self) -> None:
        """Raise where the next episode would be beyond a limit."""
        if not self.limited:
            return
        progress, most, cost = self.progress, self._settings.max_episodes, self._settings.max_cost
        kept = "what is done is kept; the same command with a higher limit, or none, continues"
        if most is not None and progress.started >= most:
            raise LimitReached(
                f"{self.stage}: stopped after {progress.started} episodes (explore.max_episodes); {kept}"
            )
        if cost is None:
            return
        if not progress.known_cost:
            raise ConfigError(
                "explore.max_cost cannot be kept, since the price of a model is unknown: set prompt_price and "
                "completion_price of its endpoint"
            )
        if progress.cost >= cost:
            raise LimitReached(
                f"{self.stage}: stopped at ${progress.cost:.2f} of model calls (explore.max_cost); {kept}"
            )

    def _count(self, episode: Episode) -> None:
        progress = self.progress
        progress.ran += 1
        if episode.status == "done" or self._stopping.is_set():
            return
        progress.failed += 1
        progress.first_error = progress.first_error or episode.error
        self._check_failures()

    def _check_failures(self, *, at_end: bool = False) -> None:
        """Raise where more episodes failed than the config allows; `at_end`: no further one will change a share."""
        progress, limit = self.progress, self._settings.fail_on_error
        if _too_many(progress.failed, progress.ran, limit, least=1 if at_end else _LEAST_FOR_SHARE):
            raise AgentError(
                f"{self.stage}: {progress.failed} of {progress.ran} episodes failed, and explore.fail_on_error"
                f" = {limit} stops there; the first: {progress.first_error}; mend the cause and start again"
                " (what is done is kept)"
            )


def _too_many(bad: int, ran: int, limit: bool | float | int, least: int) -> bool:
    if isinstance(limit, bool):
        return limit and bad > 0
    if limit >= 1:
        return bad >= limit
    return ran >= least and bad / ran > limit


async def _first_failure(workers: Sequence[asyncio.Task[None]]) -> None:
    if workers:
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in done:
            worker.result()


async def _drain(workers: Sequence[asyncio.Task[None]]) -> None:
    """Let running episodes end, for a few seconds at most, then cancel them."""
    running = [worker for worker in workers if not worker.done()]
    if running:
        if sys.stderr.isatty():
            print(f"\nstopping: {len(running)} episodes may end within {_DRAIN_SECONDS:g} s", file=sys.stderr)
        await asyncio.wait(running, timeout=_DRAIN_SECONDS)
    for worker in running:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
