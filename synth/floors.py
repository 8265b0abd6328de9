"""Relevance floors tuned on dev accuracy, from arms that were run without floors: no episode is run for a floor.

What reaches no floor is not shown, and an arm that shows nothing is the arm without long-term memory. That one was run
with the same agent seeds, so a provider's outcome under a floor is known wherever the floor leaves all that it
retrieved, or nothing of it. Where it leaves a part, the outcome of the whole stands in, and is counted (`cut`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from providers.errors import ConfigError
from providers.long_term.base import SpaceProvider
from providers.types import Flow, Retrieval, Split
from router.decisions import NONE, InMode
from synth.arms import Tally, episode_of, tally, units_of
from synth.episode import Prepared, prepare
from synth.explore import STAGE, arms_name, run_alone
from synth.facts import Episode, EpisodeKey
from synth.runs import Run
from synth.workbench import Workbench

GRID = tuple(round(0.05 * number, 2) for number in range(1, 20))
"""The floors that are compared. A finer grid would fit the dev tasks and nothing else."""

Rule = Literal["best", "within_error"]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """One provider on n tasks, each array of shape (n,).

    `own` and `bare` are mean correctness with what it retrieved and with nothing, NaN where unscored. `least` and
    `greatest` are cosines between question and indexed text over the items retrieved; infinite where no floor acts.
    """

    own: Values
    bare: Values
    least: Values
    greatest: Values

    def under(self, floor: float | None) -> Values:
        """Correctness per task with a floor; None is off."""
        return self.own if floor is None else np.where(self.greatest < floor, self.bare, self.own)


class FloorPoint(Flow):
    """What one floor (None: off) does to one provider. Shares are of tasks, 0 to 1."""

    floor: float | None
    correct: float | None
    """Mean correctness over the tasks that are scored with and without the floor."""
    gain: float | None
    """Its difference to no floor."""
    gain_error: float | None
    """Standard error of `gain`, paired by task."""
    empty: float
    """Share for which nothing reaches the floor."""
    cut: float
    """Share for which a part of what was retrieved does."""


class ProviderFloors(Flow):
    """One provider's floors on dev, from off upwards, the one that was chosen, and what that does elsewhere."""

    provider: str
    points: tuple[FloorPoint, ...]
    chosen: float | None
    explored: FloorPoint
    """The chosen floor on the exploration's tasks, which the choice has not seen."""


class Sharing(Flow):
    """Shares of the exploration's arms, 0 to 1, that needed no episode of their own."""

    saved: float
    begin: float
    within: float
    """Arms without working memory where there was none to inject."""


class SameFloor(Flow):
    """One floor for all providers: what any saving by floors costs."""

    floor: float
    gain: float | None
    """Mean over the providers of the gain on dev."""
    saved: float
    """Share of the exploration's arms that would need no episode of their own."""


class FloorReport(Flow):
    """Floors for a config, and how much of the exploration's grid would be shared with them."""

    run: str
    tasks: int
    """Dev tasks that the floors were tuned on."""
    rule: Rule
    floors: dict[str, float]
    """As `relevance_floors` of a config takes them."""
    providers: tuple[ProviderFloors, ...]
    sharing: Sharing
    sharing_floors_off: Sharing
    same_for_all: tuple[SameFloor, ...]


@dataclass(frozen=True)
class _Arms:
    """Some tasks' arms that were run without floors."""

    stage: str
    prepared: Sequence[Prepared]
    episodes: Mapping[EpisodeKey, Episode]
    cosines: Mapping[tuple[str, str], tuple[float, float]]
    """Least and greatest over the items retrieved, by task and provider."""
    modes: tuple[InMode, ...]
    repeats: int

    def outcomes(self, provider: str) -> Outcomes:
        tasks = [one.task.id for one in self.prepared]
        spans = [self.cosines.get((task, provider), (math.inf, math.inf)) for task in tasks]
        return Outcomes(
            own=np.array([self._correct(one, provider) for one in self.prepared], dtype=np.float64),
            bare=np.array([self._correct(one, NONE) for one in self.prepared], dtype=np.float64),
            least=np.array([least for least, _ in spans], dtype=np.float64),
            greatest=np.array([greatest for _, greatest in spans], dtype=np.float64),
        )

    def tally(self, floors: Mapping[str, float], providers: Sequence[str]) -> Tally:
        """What these arms would have come to with floors."""
        served = [self._served(one, floors) for one in self.prepared]
        return tally(self.stage, units_of(served, [NONE, *providers], self.modes, self.repeats), self.episodes)

    def _correct(self, one: Prepared, provider: str) -> float:
        key = one.content_key(provider)
        found = [
            episode_of(self.episodes, self.stage, one.task.id, key, mode, repeat)
            for mode in self.modes
            for repeat in range(self.repeats)
        ]
        scores = [float(e.outcome.correct) for e in found if e is not None and e.outcome.correct is not None]
        return math.fsum(scores) / len(scores) if scores else math.nan

    def _served(self, one: Prepared, floors: Mapping[str, float]) -> Prepared:
        """The task as the providers serve it with these floors; what reaches them in part stays whole."""
        served = dict(one.probe.served)
        for provider, floor in floors.items():
            if self.cosines.get((one.task.id, provider), (math.inf, math.inf))[1] < floor:
                nothing = Retrieval(provider=provider)
                served[provider] = served[provider].model_copy(update={"retrieval": nothing})
        return replace(one, probe=one.probe.model_copy(update={"served": served}))


async def tune_floors(run: Run, rule: Rule = "best") -> FloorReport:
    """Floors for the run's providers by their accuracy on dev; runs the dev arms where they were not run yet.

    Raises:
        ConfigError: the run has floors already, or was not explored.
    """
    config = run.config
    if config.relevance_floors:
        raise ConfigError("floors are tuned on a run without any: unset relevance_floors, under another --name")
    await run_alone(run, "dev")
    async with Workbench(run) as bench:
        providers = list(bench.providers)
        tunable = [name for name, provider in bench.providers.items() if isinstance(provider, SpaceProvider)]
        dev = await _dev_arms(bench, tunable)
        explored = await _explored_arms(bench, tunable)
    tuned = [_tuned(name, dev.outcomes(name), explored.outcomes(name), rule) for name in tunable]
    spelt = dict(zip(providers, config.providers, strict=True))
    floors = {one.provider: one.chosen for one in tuned if one.chosen is not None}
    return FloorReport(
        run=str(run.root),
        tasks=len(dev.prepared),
        rule=rule,
        floors={spelt[name]: floor for name, floor in floors.items()},
        providers=tuple(tuned),
        sharing=_sharing(explored.tally(floors, providers)),
        sharing_floors_off=_sharing(explored.tally({}, providers)),
        same_for_all=tuple(_same(floor, tuned, explored, providers) for floor in GRID),
    )


def floor_point(outcomes: Outcomes, floor: float | None) -> FloorPoint:
    """What a floor does on these tasks."""
    under = outcomes.under(floor)
    scored = ~np.isnan(under) & ~np.isnan(outcomes.own)
    mean, error = _paired(under - outcomes.own)
    below = floor if floor is not None else -math.inf
    return FloorPoint(
        floor=floor,
        correct=round(float(under[scored].mean()), 4) if scored.any() else None,
        gain=mean,
        gain_error=error,
        empty=_share(outcomes.greatest < below),
        cut=_share((outcomes.least < below) & (outcomes.greatest >= below)),
    )


def choose_floor(outcomes: Outcomes, rule: Rule) -> float | None:
    """The floor with the best accuracy, of equals the highest; None where it would leave all as it is.

    `within_error` goes on to the highest floor whose accuracy is at most one standard error, paired by task, below
    that best one: of memories that cannot be told apart, the one that shows least.
    """
    best, lead = None, 0.0
    for floor in GRID:
        gain, _ = _paired(outcomes.under(floor) - outcomes.own)
        if gain is not None and gain >= lead:
            best, lead = floor, gain
    chosen = best if rule == "best" else _within_error(outcomes, best)
    return chosen if chosen is not None and (outcomes.greatest < chosen).any() else None


def _within_error(outcomes: Outcomes, best: float | None) -> float | None:
    chosen = best
    for floor in (floor for floor in GRID if best is None or floor > best):
        loss, error = _paired(outcomes.under(best) - outcomes.under(floor))
        if loss is not None and error is not None and loss <= error:
            chosen = floor
    return chosen


def floor_lines(report: FloorReport) -> list[str]:
    """The report for the terminal: floors that change something, the chosen one marked, and the line for a config."""
    lines = [f"{report.tasks} dev tasks; gain against no floor with its standard error; chosen: {_RULES[report.rule]}"]
    lines.append(f"{'':2}{'provider':<16}{'floor':>6}{'correct':>9}{'gain':>17}{'empty':>7}{'in part':>9}")
    for one in report.providers:
        shown: tuple[float, float] | None = None
        for point in one.points:
            if (point.empty, point.cut) != shown or point.floor == one.chosen:
                lines.append(_line("*" if point.floor == one.chosen else "", one.provider, point))
            shown = (point.empty, point.cut)
        if one.chosen is not None:
            lines.append(_line("", f"{one.provider} (explore)", one.explored))
    for name, share in (("with them", report.sharing), ("without", report.sharing_floors_off)):
        lines.append(f"exploration {name}: {share.saved:.1%} shared (Begin {share.begin:.1%}, In {share.within:.1%})")
    for same in report.same_for_all[1::2]:
        gain = "-" if same.gain is None else f"{same.gain:+.3f}"
        lines.append(f"one floor of {same.floor:.1f} for all: {same.saved:.1%} shared, mean gain on dev {gain}")
    floors = ", ".join(f"{name}: {floor:g}" for name, floor in report.floors.items())
    return [*lines, f"relevance_floors: {{{floors}}}"]


_RULES: Mapping[Rule, str] = {
    "best": "best accuracy, of equals the highest floor",
    "within_error": "highest floor within one standard error of the best accuracy",
}


def _line(mark: str, provider: str, point: FloorPoint) -> str:
    floor = "off" if point.floor is None else f"{point.floor:.2f}"
    correct = "-" if point.correct is None else f"{point.correct:.3f}"
    gain = "-" if point.gain is None or point.gain_error is None else f"{point.gain:+.3f} +- {point.gain_error:.3f}"
    return f"{mark:2}{provider:<16}{floor:>6}{correct:>9}{gain:>17}{point.empty:>7.0%}{point.cut:>9.0%}"


def _tuned(name: str, dev: Outcomes, explored: Outcomes, rule: Rule) -> ProviderFloors:
    chosen = choose_floor(dev, rule)
    points = tuple(floor_point(dev, floor) for floor in (None, *GRID))
    return ProviderFloors(provider=name, points=points, chosen=chosen, explored=floor_point(explored, chosen))


def _same(floor: float, tuned: Sequence[ProviderFloors], explored: _Arms, providers: Sequence[str]) -> SameFloor:
    gains = [point.gain for one in tuned for point in one.points if point.floor == floor and point.gain is not None]
    saved = explored.tally({one.provider: floor for one in tuned}, providers).saved
    gain = round(math.fsum(gains) / len(gains), 4) if gains else None
    return SameFloor(floor=floor, gain=gain, saved=round(saved, 4))


def _paired(differences: Values) -> tuple[float | None, float | None]:
    """Mean of differences by task and its standard error; None where too few tasks are scored."""
    known = differences[~np.isnan(differences)]
    if len(known) < 2:
        return None, None
    return round(float(known.mean()), 6), round(float(known.std(ddof=1) / math.sqrt(len(known))), 6)


def _share(flags: NDArray[np.bool_]) -> float:
    return round(float(flags.mean()), 4) if len(flags) else 0.0


def _sharing(counts: Tally) -> Sharing:
    arms = max(1, counts.arms)
    return Sharing(
        saved=round(counts.saved, 4),
        begin=round(counts.shared_begin / arms, 4),
        within=round(counts.shared_in / arms, 4),
    )


async def _dev_arms(bench: Workbench, providers: Sequence[str]) -> _Arms:
    config = bench.config
    stage = f"arms/{arms_name(config, 'dev')}"
    prepared = await prepare(bench, "arms/dev", bench.tasks(Split.DEV))
    modes: tuple[InMode, ...] = (config.evaluate.in_mode,)
    return _arms(bench, stage, prepared, providers, modes, config.evaluate.repeats)


async def _explored_arms(bench: Workbench, providers: Sequence[str]) -> _Arms:
    explore = bench.config.explore
    prepared = await prepare(bench, STAGE, bench.tasks(Split.EXPLORE))
    return _arms(bench, STAGE, prepared, providers, explore.in_modes, explore.repeats)


def _arms(
    bench: Workbench,
    stage: str,
    prepared: Sequence[Prepared],
    providers: Sequence[str],
    modes: tuple[InMode, ...],
    repeats: int,
) -> _Arms:
    episodes = bench.run.facts.episodes(stage, bodies=False)
    cosines = {}
    for one in prepared:
        for name in providers:
            span = _span(bench, one, name)
            if span is not None:
                cosines[one.task.id, name] = span
    return _Arms(stage, prepared, episodes, cosines, modes, repeats)


def _span(bench: Workbench, one: Prepared, provider: str) -> tuple[float, float] | None:
    """Least and greatest cosine of what was retrieved; None where no floor would act, since nothing can be judged.

    Texts are those of the bank now: of an item that was reworded after it was shown, the later ones.
    """
    space = bench.bank.space(provider)
    records = [space.get(item) for item in one.retrieval(provider).item_ids]
    if not records or any(record is None or not record.text for record in records):
        return None
    vectors = space.vectors([record.id for record in records if record is not None])
    cosines = np.einsum("ij,j->i", vectors, one.query.embedding)
    return float(cosines.min()), float(cosines.max())
