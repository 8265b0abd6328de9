"""Warm-up: the banks are filled from a stream of other tasks, since empty memories teach nothing (DESIGN section 4)."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence

from providers.base import MemoryProvider
from providers.types import Flow, Split, Task, content_hash
from router.decisions import NONE
from synth.arms import Unit
from synth.episode import Prepared, keep, prepare, public_outcome
from synth.facts import Episode
from synth.runner import ArmRunner
from synth.runs import Run
from synth.workbench import Workbench

BATCH = 25
"""Tasks that see the same frozen bank; what they leave is stored after all of them ended."""


class WarmedUp(Flow):
    """What a warm-up came to."""

    tasks: int
    solved: int
    records: dict[str, int]
    """Stored records per provider, as the bank is now."""


async def warm_up(run: Run) -> WarmedUp:
    """Run the warm-up stream: `warmup.passes` passes, later ones over what is unsolved, `warmup.tries` tries per task.

    Every task is dealt to one arm, none or a provider, so that each provider earns part of its bank from runs that it
    took part in. One trajectory per task and pass, solved or not, is offered to every provider whose gate is open.
    Safe to kill: started again it ends with the same bank.
    """
    facts = run.facts
    if facts.mark("warmup") and run.bank.exists():
        print("warm-up: done already", file=sys.stderr)
        async with Workbench(run) as bench:
            return _warmed_up(bench, bench.tasks(Split.WARMUP))
    for later in ("warmup", "explore"):
        facts.set_mark(later, "")
    async with Workbench(run) as bench:
        tasks = unsolved = bench.tasks(Split.WARMUP)
        if not tasks:
            print("warm-up: no tasks (suite.warmup is 0): memories start empty", file=sys.stderr)
        for number in range(run.config.warmup.passes if tasks else 0):
            unsolved = await _pass(bench, number, unsolved)
            total, solved = len(tasks), len(tasks) - len(unsolved)
            records = ", ".join(f"{name} {count}" for name, count in bench.record_counts().items())
            print(
                f"warm-up: pass {number + 1} of {run.config.warmup.passes}: {solved} of {total} tasks solved"
                f" ({solved / total:.0%}); records: {records}",
                file=sys.stderr,
            )
        done = _warmed_up(bench, tasks)
    facts.set_mark("warmup", "done")
    return done


def _warmed_up(bench: Workbench, tasks: Sequence[Task]) -> WarmedUp:
    """What the facts say of a finished warm-up."""
    solved = {
        task_id
        for number in range(bench.config.warmup.passes)
        for task_id, episode in _recorded(bench, number, tasks).items()
        if _correct(episode)
    }
    return WarmedUp(tasks=len(tasks), solved=len(solved), records=bench.record_counts())


async def _pass(bench: Workbench, number: int, tasks: Sequence[Task]) -> list[Task]:
    """One pass over `tasks`; the tasks that it leaves unsolved, in order."""
    arms = deal(bench.run.config.seed, number, [NONE, *bench.providers])
    unsolved: list[Task] = []
    for start in range(0, len(tasks), BATCH):
        batch, label = tasks[start : start + BATCH], f"warmup/{number}/{start}"
        if bench.has_taken_in(label):
            chosen = _recorded(bench, number, batch)
        else:
            prepared = await prepare(bench, f"warmup/{number}", batch)
            chosen = await _batch(bench, number, prepared, start, arms)
            await bench.take_in(label, _Stores(bench, number, prepared, start, arms, chosen))
        unsolved += [task for task in batch if not _correct(chosen.get(task.id))]
    return unsolved


def _recorded(bench: Workbench, number: int, tasks: Sequence[Task]) -> dict[str, Episode]:
    """What `_batch` chose in a batch whose leavings the bank already has."""
    chosen: dict[str, Episode] = {}
    for attempt in range(bench.run.config.warmup.tries):
        stage = f"warmup/{number}/{attempt}"
        for episode in bench.run.facts.episodes(stage, [task.id for task in tasks], bodies=False).values():
            if episode.status == "done":
                chosen[episode.key.task_id] = episode
    return chosen


async def _batch(
    bench: Workbench, number: int, prepared: Sequence[Prepared], start: int, arms: Sequence[str]
) -> dict[str, Episode]:
    """Try the batch's tasks until correct; per task the correct episode, or else the last finished one."""
    chosen: dict[str, Episode] = {}
    tries = bench.run.config.warmup.tries
    for attempt in range(tries):
        units = [
            Unit(one, (arms[(start + place + attempt) % len(arms)],), ("query",), number * tries + attempt)
            for place, one in enumerate(prepared)
            if not _correct(chosen.get(one.task.id))
        ]
        stage = f"warmup/{number}/{attempt}"
        runner = ArmRunner(bench, stage, bench.run.config.agent.warmup_max_steps, keep_trajectories=True)
        episodes = await runner.run(units, f"warm-up pass {number + 1}, tasks {start + 1} to {start + len(prepared)}")
        for key, episode in episodes.items():
            if episode.status == "done":
                chosen[key.task_id] = bench.run.facts.episode(key) or episode
    return chosen


class _Stores:
    """What a batch leaves in the bank: its effects and trajectories, in task order."""

    def __init__(
        self,
        bench: Workbench,
        number: int,
        prepared: Sequence[Prepared],
        start: int,
        arms: Sequence[str],
        chosen: Mapping[str, Episode],
    ) -> None:
        self._facts, self._stage = bench.run.facts, f"warmup/{number}"
        tries = bench.run.config.warmup.tries
        self._work = [
            (one, arms[(start + place + episode.key.repeat - number * tries) % len(arms)], episode)
            for place, one in enumerate(prepared)
            if (episode := chosen.get(one.task.id)) is not None
        ]

    async def __call__(self, providers: Mapping[str, MemoryProvider]) -> None:
        for one, arm, episode in self._work:
            assert episode.trajectory is not None
            effects = one.retrieval(arm).effects
            if effects:
                providers[arm].apply(effects, public_outcome(episode.outcome))
            await keep(providers, self._facts, self._stage, one.task.id, episode.trajectory, episode.outcome)


def deal(seed: int, number: int, arms: Sequence[str]) -> list[str]:
    """The order in which a pass deals its tasks to the arms, round and round."""
    order = list(arms)
    random.Random(content_hash("deal", seed, number)).shuffle(order)
    return order


def _correct(episode: Episode | None) -> bool:
    return episode is not None and episode.outcome.correct is True
