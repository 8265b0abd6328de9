"""Running the arms of prepared tasks: equal episodes once, bounded concurrency, failures counted, safe to stop."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Never

from tqdm import tqdm

from providers.errors import AgentError
from router.decisions import Arm, InMode
from synth.episode import Prepared, run_episode
from synth.facts import Episode, EpisodeKey
from synth.workbench import Workbench

_DRAIN_SECONDS = 10.0
_LEAST_FOR_SHARE = 20


@dataclass(frozen=True)
class Unit:
    """Arms of one task that inject the same content with the same repeat: their In modes run one after the other."""

    prepared: Prepared
    providers: tuple[str, ...]
    """All arms that share it; the first names it."""
    in_modes: tuple[InMode, ...]
    repeat: int


@dataclass
class Progress:
    """What this process did so far in a stage, for the bar and for `fail_on_error`."""

    ran: int = 0
    shared: int = 0
    failed: int = 0
    first_error: str = ""


@dataclass
class Tally:
    """What a stage's arms came to, from its facts."""

    arms: int = 0
    episodes: int = 0
    shared_begin: int = 0
    """Arms that are another provider's episode."""
    shared_in: int = 0
    """Arms that are the query arm's episode, because working memory injected nothing."""
    failed: int = 0
    timeouts: int = 0

    def line(self) -> str:
        saved = (self.shared_begin + self.shared_in) / self.arms if self.arms else 0.0
        return (
            f"{self.arms} arms, {self.episodes} episodes; {saved:.0%} shared "
            f"(Begin {self.shared_begin}, In {self.shared_in}); {self.failed} failed, {self.timeouts} timed out"
        )


@dataclass
class ArmRunner:
    """Runs units of one stage and writes their episodes to the facts."""

    bench: Workbench
    stage: str
    max_steps: int
    keep_trajectories: bool
    progress: Progress = field(default_factory=Progress)

    async def run(self, units: Sequence[Unit], description: str) -> dict[EpisodeKey, Episode]:
        """Every unit's episodes, those in the facts included.

        A stop (Ctrl-C, or too many failures) lets running episodes end, keeps what is done, and starts no other.

        Raises:
            AgentError: more episodes failed than `explore.fail_on_error` allows.
        """
        known = self.bench.run.facts.episodes(self.stage, sorted({unit.prepared.task.id for unit in units}))
        results: dict[EpisodeKey, Episode] = {}
        queue = deque(units)
        total = sum(len(unit.providers) * len(unit.in_modes) for unit in units)
        with tqdm(total=total, desc=description, unit="arm", disable=None, leave=False, file=sys.stderr) as bar:
            workers = [
                asyncio.create_task(self._work(queue, known, results, bar))
                for _ in range(min(self.bench.run.config.explore.concurrency, max(1, len(units))))
            ]
            try:
                await _first_failure(workers)
            finally:
                queue.clear()
                await _drain(workers)
                self.bench.run.facts.flush()
        return results

    async def _work(
        self, queue: deque[Unit], known: dict[EpisodeKey, Episode], results: dict[EpisodeKey, Episode], bar: tqdm[Never]
    ) -> None:
        while queue:
            unit = queue.popleft()
            episodes = await self._episodes(unit, known)
            results.update({episode.key: episode for episode in episodes})
            arms = len(unit.providers) * len(unit.in_modes)
            self.progress.shared += arms - len(episodes)
            bar.set_postfix(shared=self.progress.shared, failed=self.progress.failed, refresh=False)
            bar.update(arms)
            await asyncio.sleep(0)

    async def _episodes(self, unit: Unit, known: dict[EpisodeKey, Episode]) -> list[Episode]:
        """The unit's episodes: query first, which is also the no_op one where it injected no working memory."""
        episodes: list[Episode] = []
        for mode in sorted(unit.in_modes, key=lambda mode: mode == "no_op"):
            if mode == "no_op" and episodes and episodes[0].status == "done" and not episodes[0].in_injections:
                continue
            episodes.append(await self._episode(unit, mode, known))
        return episodes

    async def _episode(self, unit: Unit, mode: InMode, known: dict[EpisodeKey, Episode]) -> Episode:
        key = episode_key(self.stage, unit.prepared, unit.providers[0], mode, unit.repeat)
        earlier = known.get(key)
        if earlier is not None and earlier.status == "done":
            return earlier
        arm = Arm(provider=unit.providers[0], in_mode=mode, repeat=unit.repeat)
        episode = await run_episode(self.bench, unit.prepared, arm, key, self.max_steps)
        episode = episode.model_copy(update={"attempt": earlier.attempt + 1 if earlier is not None else 0})
        kept = {} if self.keep_trajectories else {"trajectory": None, "in_records": ()}
        self.bench.run.facts.add_episode(episode.model_copy(update=kept))
        self._count(episode)
        return episode

    def _count(self, episode: Episode) -> None:
        progress = self.progress
        progress.ran += 1
        if episode.status == "done":
            return
        progress.failed += 1
        progress.first_error = progress.first_error or episode.error
        limit = self.bench.run.config.explore.fail_on_error
        if _too_many(progress.failed, progress.ran, limit):
            raise AgentError(
                f"{self.stage}: {progress.failed} of {progress.ran} episodes failed, and explore.fail_on_error"
                f" = {limit} stops there; the first: {progress.first_error}; mend the cause and start again"
                " (what is done is kept)"
            )


def arms_of(providers: Iterable[str], modes: Sequence[InMode], repeats: int) -> list[Arm]:
    """Every provider in every In mode and repeat, in that order."""
    return [
        Arm(provider=provider, in_mode=mode, repeat=repeat)
        for provider in providers
        for mode in modes
        for repeat in range(repeats)
    ]


def units_of(prepared: Iterable[Prepared], arms: Sequence[str], modes: tuple[InMode, ...], repeats: int) -> list[Unit]:
    """Group every task's arms by what they inject, in task order."""
    units = []
    for one in prepared:
        groups: dict[str, list[str]] = {}
        for provider in arms:
            groups.setdefault(one.content_key(provider), []).append(provider)
        units += [Unit(one, tuple(group), modes, repeat) for repeat in range(repeats) for group in groups.values()]
    return units


def tally(stage: str, units: Iterable[Unit], episodes: Mapping[EpisodeKey, Episode]) -> Tally:
    """Count the arms of `units` and the episodes that stand for them."""
    total = Tally()
    for unit in units:
        for mode in unit.in_modes:
            total.arms += len(unit.providers)
            total.shared_begin += len(unit.providers) - 1
            episode = episodes.get(episode_key(stage, unit.prepared, unit.providers[0], mode, unit.repeat))
            if episode is None:
                total.shared_in += 1
                continue
            total.episodes += 1
            total.failed += episode.status == "failed"
            total.timeouts += episode.status == "timeout"
    return total


def episode_key(stage: str, prepared: Prepared, provider: str, mode: InMode, repeat: int) -> EpisodeKey:
    return EpisodeKey(
        stage=stage,
        task_id=prepared.task.id,
        content_key=prepared.content_key(provider),
        in_mode=mode,
        repeat=repeat,
    )


def episode_of(
    episodes: Mapping[EpisodeKey, Episode], stage: str, task_id: str, content_key: str, mode: InMode, repeat: int
) -> Episode | None:
    """The episode of an arm: its own, or the query arm's where that injected no working memory."""
    own = EpisodeKey(stage=stage, task_id=task_id, content_key=content_key, in_mode=mode, repeat=repeat)
    return episodes.get(own) or (episodes.get(own.model_copy(update={"in_mode": "query"})) if mode == "no_op" else None)


def _too_many(bad: int, ran: int, limit: bool | float | int) -> bool:
    if isinstance(limit, bool):
        return limit and bad > 0
    if limit >= 1:
        return bad >= limit
    return ran >= _LEAST_FOR_SHARE and bad / ran > limit


async def _first_failure(workers: Sequence[asyncio.Task[None]]) -> None:
    if workers:
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in done:
            worker.result()


async def _drain(workers: Sequence[asyncio.Task[None]]) -> None:
    """Let running episodes end, for a few seconds at most, then cancel them."""
    running = [worker for worker in workers if not worker.done()]
    if running:
        await asyncio.wait(running, timeout=_DRAIN_SECONDS)
    for worker in running:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
