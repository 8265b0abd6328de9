"""What exploration on a budget would have kept of a full grid that was run: F1 of kept rows against episodes saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from providers.errors import ConfigError
from providers.types import Flow, Split
from router.decisions import NONE
from router.table import RoutingTable, TableRow
from synth.arms import episode_of, units_of
from synth.budget import Chooser, Option, Result, options_of, results_of, rounds_of
from synth.episode import Prepared, prepare
from synth.explore import STAGE, split_waves
from synth.facts import Episode, EpisodeKey
from synth.runs import Run
from synth.success import success_set
from synth.tables import similarities
from synth.workbench import Workbench

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

Decision = tuple[str, str]
"""A kept Begin decision: task and provider."""


class CurvePoint(Flow):
    """One budget. Shares are fractions of the full grid after sharing."""

    by: Literal["undecided", "random"]
    share: float
    """What the config would say."""
    episodes: int
    saved: float
    """Share of the full grid's episodes that were not run."""
    precision: float
    recall: float
    f1: float
    """Of the Begin decisions that the filter keeps, against those it keeps of the full grid."""


@dataclass(frozen=True)
class _Grid:
    """A full grid with its outcomes, wave by wave."""

    waves: Sequence[Sequence[Option]]
    truth: Mapping[EpisodeKey, Result]
    """Of episodes that have a row of their own."""


async def budget_curve(run: Run, shares: Sequence[float] = SHARES, draws: int = 5) -> list[CurvePoint]:
    """Replay the choice over the run's exploration, which must be a full and scored grid; nothing is run.

    Random selection is averaged over `draws` seeds.
    """
    if run.facts.mark(STAGE) is None or run.config.explore.budget is not None:
        raise ConfigError("the curve needs a full grid: run `memroute explore` without explore.budget first")
    table = RoutingTable.load(run.table(STAGE))
    async with Workbench(run) as bench:
        tasks = bench.tasks(Split.EXPLORE)
        prepared = await prepare(bench, STAGE, tasks)
        episodes = run.facts.episodes(STAGE, bodies=False)
        grid = _grid(bench, prepared, episodes)
    full = _kept(run, table, prepared, episodes)
    points = []
    for share in shares:
        points.append(_point(run, table, prepared, grid, episodes, full, share, "undecided", [run.config.seed]))
        points.append(_point(run, table, prepared, grid, episodes, full, share, "random", range(draws)))
    return points


def _grid(bench: Workbench, prepared: Sequence[Prepared], episodes: Mapping[EpisodeKey, Episode]) -> _Grid:
    config = bench.run.config.explore
    near = similarities(bench, prepared)
    by_id = {one.task.id: one for one in prepared}
    waves = []
    for wave in split_waves([one.task for one in prepared], config.waves):
        part = [by_id[task.id] for task in wave]
        units = units_of(part, [NONE, *bench.providers], config.in_modes, config.repeats)
        waves.append(options_of(STAGE, units, near))
    return _Grid(waves, results_of(episodes))


def _point(
    run: Run,
    table: RoutingTable,
    prepared: Sequence[Prepared],
    grid: _Grid,
    episodes: Mapping[EpisodeKey, Episode],
    full: set[Decision],
    share: float,
    by: Literal["undecided", "random"],
    seeds: Sequence[int],
) -> CurvePoint:
    found = []
    for seed in seeds:
        ran = _spend(grid, Chooser(by, run.config.explore.positive, seed), share)
        kept = _kept(run, table, prepared, {key: episodes[key] for key in ran})
        both = len(kept & full)
        precision, recall = both / len(kept) if kept else 0.0, both / len(full) if full else 0.0
        f1 = 2 * precision * recall / (precision + recall) if both else 0.0
        found.append((len(ran), precision, recall, f1))
    count, precision, recall, f1 = (math.fsum(column) / len(found) for column in zip(*found, strict=True))
    return CurvePoint(
        by=by,
        share=share,
        episodes=round(count),
        saved=round(1 - count / len(grid.truth), 4) if grid.truth else 0.0,
        precision=round(precision, 4),
        recall=round(recall, 4),
        f1=round(f1, 4),
    )


def _spend(grid: _Grid, chooser: Chooser, share: float) -> set[EpisodeKey]:
    """The episodes that a budget would have run."""
    known: dict[EpisodeKey, Result] = {}
    earlier: list[Option] = []
    for options in grid.waves:
        for count in rounds_of(len(options), share):
            for option in chooser.choose(options, earlier, known, count):
                if option.key in grid.truth:
                    known[option.key] = grid.truth[option.key]
        earlier += options
    return set(known)


def _kept(
    run: Run, table: RoutingTable, prepared: Sequence[Prepared], episodes: Mapping[EpisodeKey, Episode]
) -> set[Decision]:
    """Begin decisions that the filter keeps where only `episodes` ran (MemAgent 4.3)."""
    settings, positive = run.config.rewards, run.config.explore.positive
    kept: set[Decision] = set()
    for one, whole in zip(prepared, table.rows, strict=True):
        row = _only(whole, one, episodes)
        success = success_set(row, table.providers, positive)
        judge = {name: _judge(row, name) for name in success.succeeding}
        rated = [name for name in success.succeeding if judge[name] != 0.0]
        if success.kind == "all":
            rated = sorted(rated, key=lambda name: -(judge[name] or 0.0))[: settings.top_k]
        kept |= {(row.task_id, name) for name in rated}
    return kept


def _judge(row: TableRow, provider: str) -> float | None:
    """The provider's mean judge reward; None where nothing was judged."""
    values = [cell.judge for cell in row.cells if cell.arm.provider == provider and cell.judge is not None]
    return math.fsum(values) / len(values) if values else None


def _only(row: TableRow, one: Prepared, episodes: Mapping[EpisodeKey, Episode]) -> TableRow:
    """A row whose cells without an episode are unscored."""
    cells = []
    for cell in row.cells:
        arm = cell.arm
        key = one.content_key(arm.provider)
        ran = episode_of(episodes, STAGE, row.task_id, key, arm.in_mode, arm.repeat) is not None
        cells.append(cell if ran else cell.model_copy(update={"correct": None, "judge": None}))
    return row.model_copy(update={"cells": tuple(cells)})
