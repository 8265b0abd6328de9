"""Routing tables made by hand, with ties, gaps and unscored cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation import metrics
from evaluation.failures import failures
from evaluation.metrics import Outcomes, taken
from providers.errors import ConfigError
from providers.types import Preview
from router.decisions import Arm
from router.table import Cell, RoutingTable, TableRow

Grid = dict[str, list[list[float | None]]]
"""Arm -> task -> repeat -> correctness."""


def table_of(grid: Grid, families: list[str] | None = None, providers: tuple[str, ...] = ("a", "b")) -> RoutingTable:
    tasks = len(next(iter(grid.values())))
    rows = []
    for task in range(tasks):
        cells = tuple(
            Cell(arm=Arm(provider=arm, repeat=repeat), correct=value, steps=1.0 + repeat, injected=10.0)
            for arm, by_task in grid.items()
            for repeat, value in enumerate(by_task[task])
        )
        rows.append(
            TableRow(
                task_id=f"t{task}",
                question="?",
                family=families[task] if families else "f",
                previews=tuple(Preview(provider=name) for name in providers),
                cells=cells,
            )
        )
    return RoutingTable(suite="toy", split="dev", providers=providers, rows=tuple(rows))


def test_cells_average_over_repeats_and_skip_what_is_unscored() -> None:
    outcomes = Outcomes.of(table_of({"none": [[0, 1]], "a": [[1, None]], "b": [[None, None]]}))
    assert outcomes.arms == ("none", "a", "b")
    assert outcomes.correct[0, :2].tolist() == [0.5, 1.0]
    assert math.isnan(outcomes.correct[0, 2])
    assert outcomes.steps[0, 0] == 1.5
    assert outcomes.steps[0, 1] == 1.0
    assert math.isnan(outcomes.steps[0, 2])


def test_an_arm_that_did_not_run_is_unscored() -> None:
    outcomes = Outcomes.of(table_of({"none": [[0, 1]], "a": [[1, 1]]}))
    assert math.isnan(outcomes.correct[0, 2])


def test_an_arm_outside_the_table_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'c'"):
        Outcomes.of(table_of({"none": [[1]], "c": [[1]]}))
    with pytest.raises(ConfigError, match="'ghost'"):
        Outcomes.of(table_of({"none": [[1]]})).columns(["ghost"], "knn")


def test_best_provider_ignores_none_and_takes_the_first_of_a_tie() -> None:
    outcomes = Outcomes.of(table_of({"none": [[1], [1]], "a": [[1], [0]], "b": [[0], [1]]}))
    assert metrics.best_provider(outcomes) == "a"
    gap = Outcomes.of(table_of({"none": [[1], [1]], "a": [[1], [0]], "b": [[None], [1]]}))
    assert metrics.best_provider(gap) == "b"
    assert metrics.best_provider(Outcomes.of(table_of({"none": [[1]]}))) is None


def test_plain_oracle_takes_the_best_scored_arm_of_each_task() -> None:
    outcomes = Outcomes.of(table_of({"none": [[0], [0], [None]], "a": [[1], [0], [None]], "b": [[None], [1], [None]]}))
    values = taken(outcomes.correct, metrics.oracle_columns(outcomes.correct))
    assert values[:2].tolist() == [1.0, 1.0]
    assert math.isnan(values[2])


def test_oracle_breaks_ties_by_the_better_arm_overall() -> None:
    outcomes = Outcomes.of(table_of({"none": [[0], [0], [0]], "a": [[1], [0], [0]], "b": [[1], [1], [0]]}))
    assert metrics.oracle_columns(outcomes.correct).tolist() == [2, 2, 2]


def test_cross_fitted_oracle_is_scored_on_the_half_it_did_not_see() -> None:
    outcomes = Outcomes.of(table_of({"none": [[0, 0], [0, 0]], "a": [[1, 0], [1, 1]], "b": [[0, 1], [0, 0]]}))
    crossed = metrics.cross_fit(outcomes)
    assert crossed is not None
    assert [columns.tolist() for columns in crossed.columns] == [[1, 1], [2, 1]]
    assert crossed.values.tolist() == [0.0, 1.0]


def test_cross_fitted_oracle_needs_two_repeats_and_survives_a_missing_half() -> None:
    assert metrics.cross_fit(Outcomes.of(table_of({"none": [[1]], "a": [[1]], "b": [[1]]}))) is None
    crossed = metrics.cross_fit(Outcomes.of(table_of({"none": [[0, 0]], "a": [[1, None]], "b": [[0, 1]]})))
    assert crossed is not None
    assert crossed.values.tolist() == [0.0]


def test_cross_fitting_removes_luck() -> None:
    """Twenty arms of pure chance: the plain oracle looks perfect, the cross-fitted one does not."""
    draw = np.random.default_rng(0)
    names = tuple(f"p{k}" for k in range(20))
    grid = {name: draw.integers(0, 2, size=(300, 2)).astype(float).tolist() for name in ("none", *names)}
    outcomes = Outcomes.of(table_of(grid, providers=names))
    plain = taken(outcomes.correct, metrics.oracle_columns(outcomes.correct)).mean()
    crossed = metrics.cross_fit(outcomes)
    assert crossed is not None
    assert plain > 0.95
    assert crossed.values.mean() == pytest.approx(0.5, abs=0.06)


def test_best_of_k_counts_tasks_with_every_draw_scored() -> None:
    draws = np.array([[0, 1, 1], [0, 0, 1], [1, math.nan, 1.0]])
    values = metrics.best_of_k(draws, 2)
    assert values is not None
    assert values[:2].tolist() == [1.0, 0.0]
    assert math.isnan(values[2])
    assert metrics.best_of_k(draws, 4) is None
    assert metrics.best_of_k(draws, 1) is None


def test_oracle_of_one_draw_picks_within_each_repeat() -> None:
    """The first task's arms take turns: on their means the oracle gets one half, on single draws one."""
    outcomes = Outcomes.of(table_of({"none": [[0, 0], [0, 0]], "a": [[1, 0], [0, 1]], "b": [[0, 1], [0, None]]}))
    assert metrics.oracle_of_one_draw(outcomes).tolist() == [1.0, 0.0]
    assert taken(outcomes.correct, metrics.oracle_columns(outcomes.correct)).tolist() == [0.5, 0.5]


def test_pools_grow_by_what_a_provider_adds() -> None:
    """`b` is best alone; `c` is next best but solves what `b` does, `a` solves what `b` does not."""
    grid: Grid = {
        "none": [[0], [0], [0], [0]],
        "a": [[0], [0], [0], [1]],
        "b": [[1], [1], [1], [0]],
        "c": [[1], [1], [0], [0]],
    }
    outcomes = Outcomes.of(table_of(grid, providers=("a", "b", "c")))
    assert metrics.nested_pools(outcomes) == [("b",), ("b", "a"), ("b", "a", "c")]
    part = metrics.restricted(outcomes, ("a",))
    assert part.arms == ("none", "a")
    assert part.correct[:, 1].tolist() == [0, 0, 0, 1]
    assert list(part.by_repeat) == [0]


def test_alone_keeps_bare_and_working_runs_apart() -> None:
    bare = [0.0, 1.0, None]
    cells = [Cell(arm=Arm(provider="none", in_mode="no_op", repeat=r), correct=value) for r, value in enumerate(bare)]
    cells += [Cell(arm=Arm(provider="none", in_mode="query", repeat=r), correct=1.0, injected=50.0) for r in (0, 1)]
    row = TableRow(task_id="t", question="?", family="f", previews=(), cells=tuple(cells))
    alone = metrics.Alone.of(RoutingTable(suite="toy", split="dev", providers=(), rows=(row,)), ["gone", "t"])
    assert math.isnan(alone.working[0])
    assert (alone.working[1], alone.injected[1]) == (1.0, 50.0)
    assert alone.draws[1, :2].tolist() == [0.0, 1.0]
    assert np.isnan(alone.draws[1, 2])
    assert len(alone.by_repeat) == 2


def test_coverage_and_unique_solves_use_complete_tasks_only() -> None:
    outcomes = Outcomes.of(
        table_of(
            {
                "none": [[0, 0], [0, 0], [1, 1], [0, 0], [0, 0]],
                "a": [[1, 0], [0, 0], [1, 1], [1, 1], [0, 0]],
                "b": [[0, 0], [0, 0], [1, 0], [None, None], [1, 1]],
            }
        )
    )
    assert metrics.coverage(outcomes) == (1, 2, 0, 1)
    assert metrics.unique_solves(outcomes) == {"none": 0, "a": 1, "b": 1}


def test_failure_classes_leave_no_task_out_and_none_in_two() -> None:
    """Five tasks that `b` fails: nobody can; the bare agent can; one provider can; three can; and one with a gap."""
    grid: Grid = {
        "none": [[0], [1], [0], [0], [0], [0]],
        "a": [[0], [0], [1], [1], [1], [1]],
        "b": [[0], [0], [0], [0], [0], [1]],
        "c": [[0], [0], [0], [1], [None], [0]],
        "d": [[0], [1], [0], [1], [0], [0]],
    }
    outcomes = Outcomes.of(table_of(grid, providers=("a", "b", "c", "d")))
    found = failures(outcomes, [outcomes.columns(["b"] * 6, "b")])
    assert (found.decisions, found.failed) == (5, 4)
    assert (found.ceiling, found.interference, found.routing, found.quality) == (1, 1, 1, 1)
    solved = failures(outcomes, [outcomes.columns(["a"] * 6, "a")])
    assert (solved.failed, solved.ceiling, solved.interference) == (2, 1, 1)


def test_by_family_is_none_where_nothing_is_scored() -> None:
    outcomes = Outcomes.of(
        table_of({"none": [[1], [0], [None]], "a": [[1], [1], [1]], "b": [[0], [0], [0]]}, ["x", "x", "y"])
    )
    assert metrics.by_family(outcomes, outcomes.arm("none")) == {"x": 0.5, "y": None}


def test_covered_uses_the_tasks_scored_everywhere() -> None:
    nan = math.nan
    value, floor, ceiling = np.array([1, 0, nan]), np.array([0, 0, 0.0]), np.array([1, 1, 1.0])
    assert metrics.covered(value, floor, ceiling) == pytest.approx(0.5)


scores = st.sampled_from([0.0, 1.0, None])
grids = st.integers(1, 12).flatmap(
    lambda tasks: st.fixed_dictionaries(
        {
            arm: st.lists(st.lists(scores, min_size=2, max_size=2), min_size=tasks, max_size=tasks)
            for arm in ("none", "a", "b")
        }
    )
)


@given(grids, st.randoms(use_true_random=False))
def test_no_policy_beats_the_plain_oracle(grid: Grid, draw: object) -> None:
    """On every task where a policy's arm is scored, the oracle is scored too, and not below it."""
    outcomes = Outcomes.of(table_of(grid))
    picks = [draw.choice(outcomes.arms) for _ in outcomes.task_ids]  # type: ignore[attr-defined]
    values = taken(outcomes.correct, outcomes.columns(picks, "any"))
    best = taken(outcomes.correct, metrics.oracle_columns(outcomes.correct))
    scored = ~np.isnan(values)
    assert not np.isnan(best[scored]).any()
    assert (best[scored] >= values[scored]).all()


@given(grids)
def test_unscored_is_never_read_as_wrong(grid: Grid) -> None:
    """Removing unscored cells changes no outcome; scoring them as wrong would."""
    outcomes = Outcomes.of(table_of(grid))
    for column, arm in enumerate(("none", "a", "b")):
        for task, values in enumerate(grid[arm]):
            scored = [value for value in values if value is not None]
            seen = outcomes.correct[task, column]
            assert math.isnan(seen) if not scored else seen == pytest.approx(sum(scored) / len(scored))
