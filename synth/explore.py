"""Forced exploration: every task under every arm, in waves over a frozen bank (MemAgent 4.3; DESIGN section 4)."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from providers.base import MemoryProvider
from providers.errors import ConfigError
from providers.types import Flow, Outcome, Split, Task, content_hash
from router.context import EndContext
from router.decisions import NONE, Arm, InMode
from router.session import summarise
from router.table import RoutingTable
from synth.arms import Tally, Unit, arms_of, episode_of, tally, units_of
from synth.budget import Chooser, Option, Result, options_of, results_of, rounds_of
from synth.config import RunConfig
from synth.episode import Prepared, keep, prepare, public_outcome
from synth.facts import EndingFact, Episode, EpisodeKey, Probe
from synth.runner import ArmRunner, Progress
from synth.runs import Run
from synth.success import CONFIDENCE, draws_of, settled
from synth.tables import build_table, changed_by_in_mode, similarities
from synth.workbench import Workbench

if TYPE_CHECKING:
    from synth.ray_engine import RayEngine

STAGE = "explore"


class Explored(Flow):
    """What an exploration came to. Shares are fractions of 1."""

    tasks: int
    arms: int
    episodes: int
    shared_saved_share: float
    """Of the arms, those that needed no episode of their own: at Begin, or In."""
    shared_begin_share: float
    shared_in_share: float
    skipped: int
    """Arms that a budget left out."""
    failed: int
    timeouts: int
    changed_by_in_mode_share: float | None
    """Of the task-provider pairs, those whose outcome differs with and without working memory."""
    records: dict[str, int]


async def explore(run: Run) -> Explored:
    """Run every exploration task under every arm, and store what each wave leaves; write the exploration table.

    Safe to kill: started again it runs the episodes that are missing and ends with the same bank and table.
    """
    facts, config = run.facts, run.config
    if not facts.mark("warmup") or not run.bank.exists():
        raise ConfigError("explore needs the banks that warm-up fills: run `memroute warmup` with this config first")
    if facts.mark(STAGE) and run.table(STAGE).exists():
        print("explore: done already", file=sys.stderr)
        async with Workbench(run) as bench:
            return _explored(RoutingTable.load(run.table(STAGE)), await _tally(bench), bench.record_counts())
    async with Workbench(run) as bench:
        tasks = bench.tasks(Split.EXPLORE)
        progress = Progress()
        budget = _Budget(bench) if config.explore.budget is not None else None
        async with _engine(bench) as engine:
            for number, wave in enumerate(split_waves(tasks, config.explore.waves)):
                await _wave(bench, number, wave, progress, budget, engine)
        prepared = await prepare(bench, STAGE, tasks)
        episodes = facts.episodes(STAGE, bodies=False)
        arms = arms_of([NONE, *bench.providers], config.explore.in_modes, config.explore.repeats)
        table = build_table(bench, STAGE, prepared, episodes, arms)
        table.save(run.table(STAGE))
        counts, records = await _tally(bench), bench.record_counts()
    facts.set_mark(STAGE, "done")
    _say(table, counts, records, config.explore.repeats)
    return _explored(table, counts, records)


async def exploration_tally(run: Run) -> Tally:
    """What the run's exploration came to, from its facts."""
    async with Workbench(run) as bench:
        return await _tally(bench)


async def _tally(bench: Workbench) -> Tally:
    prepared = await prepare(bench, STAGE, bench.tasks(Split.EXPLORE))
    config = bench.config.explore
    units = units_of(prepared, [NONE, *bench.providers], config.in_modes, config.repeats)
    return tally(STAGE, units, bench.run.facts.episodes(STAGE, bodies=False))


def _explored(table: RoutingTable, counts: Tally, records: dict[str, int]) -> Explored:
    changed, pairs = changed_by_in_mode(table)
    arms = max(1, counts.arms)
    return Explored(
        tasks=len(table.rows),
        arms=counts.arms,
        episodes=counts.episodes,
        shared_saved_share=round(counts.saved, 4),
        shared_begin_share=round(counts.shared_begin / arms, 4),
        shared_in_share=round(counts.shared_in / arms, 4),
        skipped=counts.skipped,
        failed=counts.failed,
        timeouts=counts.timeouts,
        changed_by_in_mode_share=round(changed / pairs, 4) if pairs else None,
        records=records,
    )


def _say(table: RoutingTable, counts: Tally, records: dict[str, int], repeats: int) -> None:
    """What an exploration came to, for the terminal."""
    kept = ", ".join(f"{name} {count}" for name, count in records.items())
    print(f"explore: {len(table.rows)} tasks, {counts.line()}; records: {kept}", file=sys.stderr)
    changed, pairs = changed_by_in_mode(table)
    if pairs:
        print(f"explore: {changed / pairs:.1%} of {pairs} task-provider pairs change with the In mode", file=sys.stderr)
    if repeats > 1:
        labels = [settled(draws_of(row, name)) for row in table.rows for name in table.providers]
        known = sum(label is not None for label in labels)
        print(
            f"explore: {repeats} repeats settle {known} of {len(labels)} task-provider labels"
            f" (the {CONFIDENCE:.0%} interval of the rate lies on one side of one half)",
            file=sys.stderr,
        )


def split_waves(tasks: Sequence[Task], waves: int) -> list[list[Task]]:
    """`tasks` in order, cut into `waves` runs whose lengths differ by at most one."""
    edges = [len(tasks) * number // waves for number in range(waves + 1)]
    return [list(tasks[start:end]) for start, end in itertools.pairwise(edges)]


@asynccontextmanager
async def _engine(bench: Workbench) -> AsyncIterator[RayEngine | None]:
    """The cluster that the config names; None where episodes run in this process."""
    if bench.config.explore.engine == "local":
        yield None
        return
    from synth.ray_engine import RayEngine

    async with RayEngine(bench) as engine:
        yield engine


async def _wave(
    bench: Workbench,
    number: int,
    tasks: Sequence[Task],
    progress: Progress,
    budget: _Budget | None,
    engine: RayEngine | None,
) -> None:
    """Run a wave's arms over the frozen bank, then store and apply, once and in task order."""
    config, label = bench.run.config, f"{STAGE}/{number}"
    taken = bench.has_taken_in(label)
    if taken and budget is None:
        return
    prepared = await prepare(bench, STAGE, tasks, number)
    units = units_of(prepared, [NONE, *bench.providers], config.explore.in_modes, config.explore.repeats)
    runner = ArmRunner(bench, STAGE, config.agent.max_steps, keep_trajectories=True, limited=True, progress=progress)
    if engine is not None and not taken:
        await engine.freeze()
        runner.execute = engine.execute
    title = f"explore wave {number + 1} of {config.explore.waves}"
    if budget is not None:
        episodes = await budget.run(runner, number, prepared, units, title, taken=taken)
    else:
        episodes = await runner.run(units, title)
    if not taken:
        await bench.take_in(label, _Stores(bench, prepared, episodes))


class _Budget:
    """Exploration on a budget; each round's choice is a fact, so that a resumed run goes on with it."""

    def __init__(self, bench: Workbench) -> None:
        config = bench.run.config
        assert config.explore.budget is not None
        self._bench, self._settings = bench, config.explore.budget
        self._chooser = Chooser(self._settings.by, config.explore.positive, config.seed)
        self._earlier: list[Option] = []
        self._known: dict[EpisodeKey, Result] = {}

    async def run(
        self,
        runner: ArmRunner,
        number: int,
        prepared: Sequence[Prepared],
        units: Sequence[Unit],
        title: str,
        *,
        taken: bool,
    ) -> dict[EpisodeKey, Episode]:
        """The wave's episodes; those of a wave that was taken in before only teach the following ones."""
        facts = self._bench.run.facts
        options = options_of(STAGE, units, similarities(self._bench, prepared))
        episodes = facts.episodes(STAGE, [one.task.id for one in prepared], bodies=False) if taken else {}
        by_key = {option.key: unit for option, unit in _single(options, units)}
        rounds = [] if taken else rounds_of(len(options), self._settings.share)
        for place, count in enumerate(rounds):
            mark = f"budget/{STAGE}/{number}/{place}"
            recorded = facts.mark(mark)
            if recorded is None:
                known = self._known | results_of(episodes)
                chosen = [option.key for option in self._chooser.choose(options, self._earlier, known, count)]
                facts.set_mark(mark, json.dumps([key.model_dump() for key in chosen]))
            else:
                chosen = [EpisodeKey.model_validate(key) for key in json.loads(recorded)]
            episodes |= await runner.run([by_key[key] for key in chosen], f"{title}, round {place + 1}")
        self._earlier += options
        self._known |= results_of(episodes)
        return episodes


def _single(options: Sequence[Option], units: Sequence[Unit]) -> Iterator[tuple[Option, Unit]]:
    """Every option with a unit of its In mode alone."""
    singles = [replace(unit, in_modes=(mode,)) for unit in units for mode in unit.in_modes]
    return zip(options, singles, strict=True)


class _Stores:
    """What a wave leaves: per task the effects of each provider's own arm, then the representative trajectory."""

    def __init__(self, bench: Workbench, prepared: Sequence[Prepared], episodes: Mapping[EpisodeKey, Episode]) -> None:
        self._bench, self._prepared, self._episodes = bench, prepared, dict(episodes)

    async def __call__(self, providers: Mapping[str, MemoryProvider]) -> None:
        for one in self._prepared:
            for name, provider in providers.items():
                self._apply(one, name, provider)
            await self._keep(one, providers)

    def _apply(self, one: Prepared, name: str, provider: MemoryProvider) -> None:
        effects = one.retrieval(name).effects
        arms = self._finished(one, [name])
        if effects and arms:
            _, episode = self._draw("effects", one.task.id, name).choice(arms)
            provider.apply(effects, public_outcome(episode.outcome))

    async def _keep(self, one: Prepared, providers: Mapping[str, MemoryProvider]) -> None:
        arms = self._finished(one, [NONE, *providers])
        if not arms:
            return
        facts = self._bench.run.facts
        arm, drawn = self._draw("representative", one.task.id).choice(arms)
        episode = facts.episode(drawn.key)
        assert episode is not None
        assert episode.trajectory is not None
        context = EndContext(
            task_id=one.task.id,
            question=one.task.question,
            summary=summarise(episode.trajectory),
            outcome=Outcome(correct=episode.outcome.correct, source=episode.outcome.source),
            cards=tuple(provider.card for provider in providers.values()),
            descriptor=await self._bench.describe(episode.trajectory),
        )
        facts.add_ending(STAGE, one.task.id, EndingFact(provider=arm.provider, context=context))
        await keep(providers, facts, STAGE, one.task.id, episode.trajectory, episode.outcome)

    def _finished(self, one: Prepared, names: Sequence[str]) -> list[tuple[Arm, Episode]]:
        """The done arms of some providers, in a fixed order."""
        config = self._bench.run.config.explore
        found = []
        for name in names:
            for mode in config.in_modes:
                for repeat in range(config.repeats):
                    key = one.content_key(name)
                    episode = episode_of(self._episodes, STAGE, one.task.id, key, mode, repeat)
                    if episode is not None and episode.status == "done":
                        found.append((Arm(provider=name, in_mode=mode, repeat=repeat), episode))
        return found

    def _draw(self, *parts: str) -> random.Random:
        return random.Random(content_hash(self._bench.run.config.seed, *parts))


ALONE: tuple[InMode, ...] = ("no_op",)
"""In evaluation, no memory means none: neither long-term nor working memory (MemAgent 5.1)."""
WORKING: tuple[InMode, ...] = ("query",)
"""Working memory alone (In-only, MemAgent 5.3)."""


def arms_name(config: RunConfig, split: str) -> str:
    """A split's name where its arms are kept: with another agent than exploration's it has that agent's mark."""
    agent = config.evaluate.agent
    return split if agent is None else f"{split}-agent-{content_hash(agent.model_dump(mode='json'))[:8]}"


async def run_arms(run: Run, split: str) -> RoutingTable:
    """The routing table of a split over the final bank: every provider and none, nothing stored or applied."""
    return await _arms(run, split, shuffled=False)


async def run_arms_shuffled(run: Run, split: str) -> RoutingTable:
    """The control: each task gets what the providers served for a task of another family (seeded permutation)."""
    await run_arms(run, split)
    return await _arms(run, split, shuffled=True)


async def _arms(run: Run, split: str, *, shuffled: bool) -> RoutingTable:
    facts, config = run.facts, run.config
    where = arms_name(config, split)
    name = f"{where}_shuffled" if shuffled else where
    repeats = config.evaluate.repeats
    settings = content_hash(getattr(config.suite, split), repeats, config.evaluate.in_mode, ALONE)
    if facts.mark(f"arms/{name}") == settings and run.table(name).exists():
        return RoutingTable.load(run.table(name))
    if not facts.mark(STAGE) or not run.bank.exists():
        raise ConfigError(f"the {split} arms need the final bank: run `memroute explore` with this config first")
    modes: tuple[InMode, ...] = (config.evaluate.in_mode,)
    async with Workbench(run) as bench:
        tasks = bench.tasks(Split(split))
        if not tasks:
            raise ConfigError(f"suite.{split} is 0: there is no task to evaluate on; set it to 1 or more")
        prepared = await prepare(bench, f"arms/{split}", tasks)
        if shuffled:
            prepared = shuffle(prepared, config.seed)
        stage = f"arms/{name}"
        runner = ArmRunner(bench, stage, config.agent.max_steps, keep_trajectories=not shuffled)
        units = units_of(prepared, [NONE], ALONE, repeats) + units_of(prepared, list(bench.providers), modes, repeats)
        await runner.run(units, f"{name} arms")
        episodes = facts.episodes(stage, bodies=False)
        arms = arms_of([NONE], ALONE, repeats) + arms_of(bench.providers, modes, repeats)
        table = build_table(bench, stage, prepared, episodes, arms)
        counts = tally(stage, units, episodes)
    table.save(run.table(name))
    facts.set_mark(f"arms/{name}", settings)
    print(f"{name} arms: {len(tasks)} tasks, {counts.line()}", file=sys.stderr)
    return table


async def run_alone(run: Run, split: str) -> RoutingTable:
    """The task agent without long-term memory: bare as often as a split has arms, and with working memory.

    The bare runs (`no_op`) say what luck alone gives at the oracle's number of arms; those with working memory
    (`query`) are the floor of every other arm, which has it too. Episodes of the split's own arms are not run again.
    """
    await run_arms(run, split)
    facts, config = run.facts, run.config
    where = arms_name(config, split)
    name, stage = f"{where}_alone", f"arms/{where}"
    draws, repeats = max(1 + len(config.providers), config.evaluate.repeats), config.evaluate.repeats
    settings = content_hash(getattr(config.suite, split), draws, repeats)
    if facts.mark(f"arms/{name}") == settings and run.table(name).exists():
        return RoutingTable.load(run.table(name))
    async with Workbench(run) as bench:
        prepared = await prepare(bench, f"arms/{split}", bench.tasks(Split(split)))
        runner = ArmRunner(bench, stage, config.agent.max_steps, keep_trajectories=False)
        units = units_of(prepared, [NONE], WORKING, repeats) + units_of(prepared, [NONE], ALONE, draws)
        await runner.run(units, f"{split} arms without long-term memory")
        episodes = facts.episodes(stage, bodies=False)
        arms = arms_of([NONE], ALONE, draws) + arms_of([NONE], WORKING, repeats)
        table = build_table(bench, stage, prepared, episodes, arms)
    table.save(run.table(name))
    facts.set_mark(f"arms/{name}", settings)
    return table


def shuffle(prepared: Sequence[Prepared], seed: int) -> list[Prepared]:
    """Give each task the probe of a task of another family; where families do not suffice, of another task.

    A task with another family's content (a trap has its bait's) says so in `meta["kin"]` and counts as of that one.
    """
    families = [str(one.task.meta.get("kin", one.task.family)) for one in prepared]
    donors = list(range(len(prepared)))
    random.Random(content_hash("shuffle", seed)).shuffle(donors)
    for other_family in (True, False):
        for place in range(len(donors)):
            if not _fits(families, place, donors[place], other_family):
                _swap(families, donors, place, other_family)
    return [
        Prepared(one.task, one.query, _given(one.task.id, prepared[donor].probe))
        for one, donor in zip(prepared, donors, strict=True)
    ]


def _fits(families: Sequence[str], place: int, donor: int, other_family: bool) -> bool:
    return families[place] != families[donor] if other_family else place != donor


def _swap(families: Sequence[str], donors: list[int], place: int, other_family: bool) -> None:
    """Exchange a donor that does not fit with the first one such that both then do."""
    for other in range(len(donors)):
        if _fits(families, place, donors[other], other_family) and _fits(families, other, donors[place], other_family):
            donors[place], donors[other] = donors[other], donors[place]
            return


def _given(task_id: str, probe: Probe) -> Probe:
    return probe.model_copy(update={"task_id": task_id})
