"""Relevance floors: chosen by accuracy on dev alone, and what they would share is what they do share."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import toy_config

from providers.errors import ConfigError
from synth.config import ExploreConfig, RunConfig
from synth.explore import exploration_tally, explore
from synth.floors import GRID, Outcomes, choose_floor, floor_lines, floor_point, tune_floors
from synth.runs import Run
from synth.warmup import warm_up


def outcomes(*tasks: tuple[float, float, float], least: float | None = None) -> Outcomes:
    """Tasks as (own, bare, greatest cosine)."""
    own, bare, greatest = (np.array(column, dtype=np.float64) for column in zip(*tasks, strict=True))
    return Outcomes(own, bare, np.full(len(tasks), least) if least is not None else greatest, greatest)


HARMFUL_WHEN_FAR = outcomes(*[(0, 1, 0.32)] * 4, *[(1, 0, 0.62)] * 6, *[(1, 1, 0.9)] * 2)


def test_the_floor_keeps_out_what_harms_and_lets_in_what_helps() -> None:
    assert choose_floor(HARMFUL_WHEN_FAR, "best") == 0.6
    point = floor_point(HARMFUL_WHEN_FAR, 0.6)
    assert (point.correct, point.empty, point.cut) == (1.0, round(4 / 12, 4), 0.0)
    assert point.gain == pytest.approx(4 / 12, abs=1e-4)
    assert point.gain_error == pytest.approx(math.sqrt(4 / 12 * 8 / 12 / 11), abs=1e-4)


def test_no_floor_stands_where_every_one_costs() -> None:
    helps = outcomes(*[(1, 0, cosine) for cosine in (0.12, 0.34, 0.56, 0.78)])
    assert choose_floor(helps, "best") is None
    assert floor_point(helps, None).gain == 0


def test_a_floor_under_all_that_was_retrieved_is_none() -> None:
    assert choose_floor(outcomes(*[(1, 0, 0.5)] * 6), "best") is None


def test_of_equal_floors_the_highest_is_taken() -> None:
    idle = outcomes(*[(1, 1, cosine) for cosine in (0.12, 0.34, 0.56)], *[(0, 0, 0.3)] * 3)
    assert choose_floor(idle, "best") == max(GRID)


def test_within_an_error_a_floor_may_cost_what_noise_does_and_no_more() -> None:
    noisy = outcomes(*[(1, 0, 0.31), (0, 1, 0.32), (1, 0, 0.33)], *[(1, 0, 0.8)] * 8, *[(1, 1, 0.9)] * 9)
    assert choose_floor(noisy, "best") is None
    assert choose_floor(noisy, "within_error") == 0.8


def test_a_part_that_is_kept_out_is_counted_and_not_guessed() -> None:
    mixed = outcomes(*[(1, 0, 0.7)] * 4, least=0.2)
    point = floor_point(mixed, 0.5)
    assert (point.correct, point.empty, point.cut) == (1.0, 0.0, 1.0)


def test_an_unscored_task_counts_for_neither_side() -> None:
    partly = outcomes((math.nan, 1, 0.3), (1, math.nan, 0.3), (1, 0, 0.9), (0, 1, 0.3))
    assert floor_point(partly, 0.5).correct == 1.0
    assert floor_point(outcomes((math.nan, math.nan, 0.3)), 0.5).gain is None


TASKS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0]), st.floats(-1, 1)), min_size=2
)


@given(TASKS)
def test_the_best_floor_is_never_worse_than_none_and_no_floor_is_better(
    tasks: list[tuple[float, float, float]],
) -> None:
    made = outcomes(*tasks)
    chosen = float(made.under(choose_floor(made, "best")).mean())
    others = [float(made.under(floor).mean()) for floor in (None, *GRID)]
    assert chosen >= max(others) - 1e-5


@given(TASKS)
def test_the_looser_rule_never_shows_more_and_stays_within_its_error(tasks: list[tuple[float, float, float]]) -> None:
    made = outcomes(*tasks)
    best, loose = choose_floor(made, "best"), choose_floor(made, "within_error")
    assert best is None or (loose is not None and loose >= best)
    lost = made.under(best) - made.under(loose)
    assert lost.mean() <= lost.std(ddof=1) / math.sqrt(len(lost)) + 1e-5


def floored_config(runs_dir: Path, name: str = "toy", **changes: object) -> RunConfig:
    """One wave over the toy world, with a real provider whose digests the toy agent takes nothing from."""
    return toy_config(runs_dir, name, providers=("voyager",), explore=ExploreConfig(waves=1), **changes)


async def test_what_floors_would_share_is_what_an_exploration_with_them_shares(tmp_path: Path) -> None:
    with Run.open(floored_config(tmp_path)) as run:
        await warm_up(run)
        await explore(run)
        report = await tune_floors(run)
        assert await tune_floors(run) == report
    assert set(report.floors) == {"voyager"}
    assert all(point.gain == 0 for point in report.providers[0].points)
    assert report.providers[0].explored.empty > 0
    assert report.sharing.saved > report.sharing_floors_off.saved
    assert report.same_for_all[-1].saved == report.sharing.saved
    saved = [same.saved for same in report.same_for_all]
    assert saved == sorted(saved)
    printed = "\n".join(floor_lines(report))
    assert f"relevance_floors: {{voyager: {report.floors['voyager']:g}}}" in printed
    with Run.open(floored_config(tmp_path, "floored", relevance_floors=report.floors)) as run:
        await warm_up(run)
        await explore(run)
        assert round((await exploration_tally(run)).saved, 4) == report.sharing.saved
        with pytest.raises(ConfigError, match="floors are tuned on a run without any"):
            await tune_floors(run)


async def test_a_run_that_was_not_explored_has_no_floors(tmp_path: Path) -> None:
    with Run.open(floored_config(tmp_path)) as run:
        await warm_up(run)
        with pytest.raises(ConfigError, match="memroute explore"):
            await tune_floors(run)


async def test_memories_that_take_no_floor_are_left_out(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        await explore(run)
        report = await tune_floors(run)
    assert (report.providers, report.floors) == ((), {})
    assert report.sharing == report.sharing_floors_off
    assert {same.saved for same in report.same_for_all} == {report.sharing.saved}
