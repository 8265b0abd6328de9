"""`memroute bench harm`: the same tasks with false memories injected, with the write gate in between, with safe ones.

GovMem (section VI) prepared this pilot and never ran it. Memories are lessons of real runs without memory: false ones
from runs whose answer was wrong and that were taken for successes, safe ones from runs that were right. Every run is
offered by several agents with one lineage, as correlated traces are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field
from tqdm import tqdm

from evaluation.drift.bench import Interval, interval_of
from evaluation.drift.signals import CONFIRMED, OutcomeLooker
from evaluation.drift.sources import Source, source_runs
from evaluation.drift.stream import DriftTask, Recorder, fresh_bank
from evaluation.online import Streaming
from evaluation.statistics import Bootstrap, Values
from providers.errors import ConfigError
from providers.governance.lifecycle import EVERYTHING, Governor, Rules
from providers.governance.verifier import Verifier
from providers.long_term.memguard import MemGuard
from providers.types import Flow, Outcome, Split, Task, Trajectory, content_hash
from router.context import EndContext
from router.decisions import EndDecision, Policy
from router.policies.fixed import InOnly, Single
from synth.config import RunConfig
from synth.runs import Run
from synth.workbench import Workbench

VERSION = 1
NONE, FALSE, FALSE_GATED, SAFE, SAFE_GATED = "none", "false", "false_gated", "safe", "safe_gated"
ARMS = (NONE, FALSE, FALSE_GATED, SAFE, SAFE_GATED)
PROVIDER = MemGuard.CARD.name


class HarmSettings(Flow):
    """How many runs the memories come from, and how many tasks they are tried on."""

    sources: int = Field(default=120, ge=1)
    """Warm-up tasks that are run without memory, under the wide step limit."""
    tasks: int = Field(default=150, ge=1)
    copies: int = Field(default=5, ge=1)
    """Agents that offer each run, all with its lineage."""
    split: Split = Split.EXPLORE
    seed: int = 0
    batch: int = Field(default=4, ge=1)
    resamples: int = Field(default=10_000, ge=1)


class Kept(Flow):
    """What a bank made of its offers, in records."""

    offers: int
    shown: int
    waiting: int
    refused: int
    """Rejected, or given way to another record."""


class ArmRun(Flow):
    """One arm's bank and tasks."""

    kept: Kept
    tasks: tuple[DriftTask, ...]


class Arm(Flow):
    """One arm's figures. Shares from 0 to 1."""

    solved: Interval
    steps: Interval
    solved_minus_none: Interval | None = None
    steps_minus_none: Interval | None = None
    shown: float
    """Share of tasks that a memory was shown in."""
    followed: float
    """Share of tasks whose agent named what a shown memory names."""
    harmed: int
    """Tasks that were solved without memory and not with it."""
    helped: int
    kept: Kept


class HarmBench(Flow):
    """What `memroute bench harm` gives."""

    settings: HarmSettings
    right_sources: int
    wrong_sources: int
    arms: dict[str, Arm]
    false_gated_minus_false: Interval
    """Solved: what the gate keeps of the harm."""


class Reads(Single):
    """One provider for every task; nothing is stored."""

    async def end(self, context: EndContext) -> EndDecision:
        return EndDecision()


async def bench_harm(settings: HarmSettings, config: RunConfig) -> HarmBench:
    """Run what does not stand in the run's folder yet, and compare the arms. Raises ConfigError where there are no
    wrong runs, or no right ones, to make memories of."""
    with Run.open(config) as run:
        async with Workbench(run) as bench:
            sources = await source_runs(bench, settings.sources, settings.seed, settings.batch)
            if len({source.correct for source in sources}) < 2:
                raise ConfigError(f"All {len(sources)} source runs ended alike: give more --sources.")
            tasks = bench.suite.tasks(settings.split, settings.tasks)[: settings.tasks]
            runs = {arm: await _arm_run(bench, settings, arm, sources, tasks) for arm in ARMS}
    return compared(settings, sources, runs)


def compared(settings: HarmSettings, sources: Sequence[Source], runs: dict[str, ArmRun]) -> HarmBench:
    """The figures of arms that ran the same tasks."""
    ids = sorted({task.task_id for ran in runs.values() for task in ran.tasks})
    bootstrap = Bootstrap(len(ids), settings.resamples, settings.seed)
    solved = {arm: _values(ids, ran, "correct") for arm, ran in runs.items()}
    steps = {arm: _values(ids, ran, "steps") for arm, ran in runs.items()}
    arms = {}
    for arm, ran in runs.items():
        done = [task for task in ran.tasks if not task.error]
        both = solved[arm] - solved[NONE]
        arms[arm] = Arm(
            solved=interval_of(bootstrap.estimate(solved[arm])),
            steps=interval_of(bootstrap.estimate(steps[arm])),
            solved_minus_none=None if arm == NONE else interval_of(bootstrap.estimate(both)),
            steps_minus_none=None if arm == NONE else interval_of(bootstrap.difference(steps[arm], steps[NONE])),
            shown=_share(bool(task.retrieved) for task in done),
            followed=_share(bool(task.followed) for task in done),
            harmed=int((both < 0).sum()),
            helped=int((both > 0).sum()),
            kept=ran.kept,
        )
    return HarmBench(
        settings=settings,
        right_sources=sum(source.correct for source in sources),
        wrong_sources=sum(not source.correct for source in sources),
        arms=arms,
        false_gated_minus_false=interval_of(bootstrap.difference(solved[FALSE_GATED], solved[FALSE])),
    )


async def _arm_run(
    bench: Workbench, settings: HarmSettings, arm: str, sources: Sequence[Source], tasks: Sequence[Task]
) -> ArmRun:
    """Fill the arm's bank, then run the tasks over it as it is: nothing that they do changes it."""
    runs = [source.trajectory.id for source in sources]
    path = _file(bench, arm, [*_identity(bench, settings), settings.copies, runs, [task.id for task in tasks]])
    if path.exists():
        return ArmRun.model_validate_json(path.read_text(encoding="utf-8"))
    print(f"harm: {arm}", file=sys.stderr)
    done: list[DriftTask] = []
    with fresh_bank(bench, bench.run.root / "bank.harm.sqlite") as bank:
        provider = MemGuard(bank.space(PROVIDER), bench.distiller)
        kept = await fill(provider, arm, sources, settings.copies)
        policy: Policy = InOnly() if arm == NONE else Reads(PROVIDER)
        recorder = Recorder(provider, OutcomeLooker())
        streaming = Streaming(bench, policy, {PROVIDER: provider}, settings.seed)
        for start in _batches(tasks, settings.batch, arm):
            ran = await streaming.batch(tasks[start : start + settings.batch])
            done += [await recorder.note("main", each) for each in ran]
    result = ArmRun(kept=kept, tasks=tuple(done))
    _write(path, result.model_dump_json())
    return result


async def fill(provider: MemGuard, arm: str, sources: Sequence[Source], copies: int) -> Kept:
    """Offer the arm's runs as successes, each by so many agents; afterwards the bank is read and no more governed.

    The verifier is taken in by all of them, so that nothing but the gate stands between a run and the bank.
    """
    governor = Governor(Verifier(OutcomeLooker()), rules=Rules(gate=arm in (FALSE_GATED, SAFE_GATED)))
    provider.governor = governor
    wanted = {NONE: (), FALSE: (False,), FALSE_GATED: (False,), SAFE: (True,), SAFE_GATED: (True,)}[arm]
    offers = [copy_of(s.trajectory, number) for s in sources if s.correct in wanted for number in range(copies)]
    for offer in offers:
        await provider.store(offer, Outcome(correct=True, source="verifier"))
    provider.governor = replace(governor, mode="admission")
    states = [record.state for record in provider.space.records(state=EVERYTHING)]
    return Kept(
        offers=len(offers),
        shown=sum(state in ("active", "guard") for state in states),
        waiting=states.count("candidate"),
        refused=sum(state in ("rejected", "archived") for state in states),
    )


def copy_of(run: Trajectory, number: int) -> Trajectory:
    """The run as another agent tells it, confirmed: the same pages, the same words."""
    fields = run.model_dump(exclude={"id"})
    return Trajectory.make(**fields | {"agent": f"{run.agent} {number}", "status": (*run.status, CONFIRMED)})


def _identity(bench: Workbench, settings: HarmSettings) -> list[object]:
    config = bench.config
    own = (VERSION, settings.seed, settings.batch, config.seed, config.distiller)
    return [*own, config.agent.model_dump(), config.encoder.model_dump()]


def _file(bench: Workbench, name: str, parts: Sequence[object]) -> Path:
    return bench.run.root / "harm" / f"{name}-{content_hash(*parts)[:8]}.json"


def _write(path: Path, text: str) -> None:
    from providers.files import write_atomically

    write_atomically(path, text)


def _batches(tasks: Sequence[Task], batch: int, title: str) -> Iterable[int]:
    return tqdm(range(0, len(tasks), batch), desc=title, unit="batch", disable=None, leave=False, file=sys.stderr)


def _values(ids: Sequence[str], ran: ArmRun, field: str) -> Values:
    """One value per task; NaN where it failed or was not scored."""
    found = {task.task_id: getattr(task, field) for task in ran.tasks if not task.error}
    return np.array([float("nan") if found.get(one) is None else float(found[one]) for one in ids])


def _share(flags: Iterable[bool]) -> float:
    collected = list(flags)
    return sum(collected) / len(collected) if collected else 0.0
