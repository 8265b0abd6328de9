"""What a routing table says, as arrays: outcomes per task and arm, and what follows from them without any policy.

Shapes: tasks in the table's order, arms as `none` followed by the providers in the order of the config.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evaluation.statistics import Values, headroom
from providers.errors import ConfigError
from router.decisions import NONE
from router.table import Cell, RoutingTable

Matrix = NDArray[np.float64]
Columns = NDArray[np.intp]

SOLVED = 0.5
"""An arm solves a task from this mean correctness up, as for P+."""


@dataclass(frozen=True)
class Outcomes:
    """A routing table as arrays of shape (tasks, arms); NaN where nothing ran or nothing was scored."""

    task_ids: tuple[str, ...]
    families: tuple[str, ...]
    """Of each task."""
    arms: tuple[str, ...]
    correct: Matrix
    """Mean correctness over In modes and repeats, 0 to 1."""
    steps: Matrix
    injected: Matrix
    """Characters injected at Begin and In together."""
    by_repeat: dict[int, Matrix]
    """Mean correctness of one repeat."""
    begin_chars: Matrix
    seconds: Matrix

    @classmethod
    def of(cls, table: RoutingTable) -> Outcomes:
        """Read every cell once."""
        arms = (NONE, *table.providers)
        position = {arm: column for column, arm in enumerate(arms)}
        repeats = sorted({cell.arm.repeat for row in table.rows for cell in row.cells})
        shape = (len(table.rows), len(arms))
        correct, steps, injected, begin_chars, seconds = (np.full(shape, np.nan) for _ in range(5))
        by_repeat = {repeat: np.full(shape, np.nan) for repeat in repeats}
        for index, row in enumerate(table.rows):
            of_arm: dict[str, list[Cell]] = {}
            for cell in row.cells:
                of_arm.setdefault(cell.arm.provider, []).append(cell)
            for arm, cells in of_arm.items():
                if arm not in position:
                    raise ConfigError(
                        f"the routing table of {table.split} has an arm {arm!r} that is not among its providers; "
                        f"remove tables/{table.split}.json and evaluate again"
                    )
                at = (index, position[arm])
                correct[at] = _mean([cell.correct for cell in cells])
                ran = [cell for cell in cells if cell.correct is not None]
                steps[at] = _mean([cell.steps for cell in ran])
                injected[at] = _mean([cell.injected for cell in ran])
                begin_chars[at] = _mean([cell.begin_chars for cell in ran])
                seconds[at] = _mean([cell.seconds for cell in ran])
                for repeat in repeats:
                    by_repeat[repeat][at] = _mean([cell.correct for cell in cells if cell.arm.repeat == repeat])
        return cls(
            task_ids=tuple(row.task_id for row in table.rows),
            families=tuple(row.family for row in table.rows),
            arms=arms,
            correct=correct,
            steps=steps,
            injected=injected,
            by_repeat=by_repeat,
            begin_chars=begin_chars,
            seconds=seconds,
        )

    def columns(self, picks: Sequence[str], policy: str) -> Columns:
        """Column of the arm picked for each task."""
        position = {arm: column for column, arm in enumerate(self.arms)}
        for pick in picks:
            if pick not in position:
                raise ConfigError(
                    f"policy {policy!r} picked {pick!r}, which was not run; arms of this table: {', '.join(self.arms)}"
                )
        return np.array([position[pick] for pick in picks], dtype=np.intp)

    def arm(self, name: str) -> Values:
        """Mean correctness of one arm on every task."""
        return self.correct[:, self.arms.index(name)]


def taken(matrix: Matrix, columns: Columns) -> Values:
    """The cell of each task in the column chosen for it."""
    return matrix[np.arange(len(columns)), columns]


def _mean(values: Sequence[float | None]) -> float:
    scored = [value for value in values if value is not None]
    return math.fsum(scored) / len(scored) if scored else math.nan


def mean_or_none(values: Values) -> float | None:
    """Mean over scored tasks; None where there is none."""
    scored = values[~np.isnan(values)]
    return float(scored.mean()) if scored.size else None


def covered(values: Values, floor: Values, ceiling: Values) -> float | None:
    """Headroom that `values` covers between two policies, over the tasks where all three are scored."""
    scored = ~np.isnan(values + floor + ceiling)
    return headroom(*(mean_or_none(part[scored]) for part in (values, floor, ceiling)))


def best_arm(matrix: Matrix) -> int | None:
    """Column with the highest mean over its scored tasks (ties: the first); None where nothing is scored."""
    means = [mean_or_none(matrix[:, column]) for column in range(matrix.shape[1])]
    scored = [(mean, -column) for column, mean in enumerate(means) if mean is not None]
    return -max(scored)[1] if scored else None


def best_provider(outcomes: Outcomes) -> str | None:
    """The provider (never `none`) with the highest accuracy over its scored tasks."""
    column = best_arm(outcomes.correct[:, 1:])
    return None if column is None else outcomes.arms[1 + column]


def oracle_columns(matrix: Matrix) -> Columns:
    """For each task the arm with the best mean correctness.

    Ties, which are frequent where outcomes are 0 or 1, go to the arm with the higher mean over all tasks of `matrix`,
    then to the first: nothing outside `matrix` is used, so a cross-fitted oracle is blind to the half it is scored on.
    """
    scored = ~np.isnan(matrix)
    counts = scored.sum(axis=0)
    overall = np.where(scored, matrix, 0.0).sum(axis=0) / np.maximum(counts, 1)
    values = np.where(scored, matrix, -1.0)
    columns: Columns = np.argmax(values + 1e-6 * overall, axis=1)
    return columns


@dataclass(frozen=True)
class CrossFit:
    """The oracle chosen on one half of the repeats and scored on the other, both ways."""

    columns: tuple[Columns, Columns]
    values: Values
    """Mean over the ways in which the task is scored."""


def cross_fit(outcomes: Outcomes) -> CrossFit | None:
    """Cross-fitted oracle: repeats dealt alternately to two halves; None with fewer than two repeats.

    The plain oracle picks the luckiest of many noisy draws and rises with their number even if memory does nothing;
    this one is scored on draws that it did not choose by.
    """
    repeats = sorted(outcomes.by_repeat)
    if len(repeats) < 2:
        return None
    halves = [average([outcomes.by_repeat[repeat] for repeat in repeats[start::2]]) for start in (0, 1)]
    chosen = (oracle_columns(halves[0]), oracle_columns(halves[1]))
    ways = [taken(halves[1], chosen[0]), taken(halves[0], chosen[1])]
    return CrossFit(columns=chosen, values=average(ways))


def average(parts: Sequence[Matrix]) -> Matrix:
    """Element-wise mean over the parts that are scored; NaN where none is."""
    stacked = np.stack(parts)
    scored = ~np.isnan(stacked)
    counts = scored.sum(axis=0)
    totals = np.where(scored, stacked, 0.0).sum(axis=0)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True)
class Alone:
    """The task agent without long-term memory, in the order of a split's tasks."""

    working: Values
    """Mean correctness with working memory (In-only, MemAgent 5.3)."""
    by_repeat: tuple[Values, ...]
    """The same, repeat by repeat."""
    steps: Values
    injected: Values
    draws: Matrix
    """Correctness without any memory, shape (tasks, draws)."""

    @classmethod
    def of(cls, table: RoutingTable, task_ids: Sequence[str]) -> Alone:
        """Read the table of the arms without long-term memory; NaN for a task that it lacks."""
        rows = {row.task_id: row.cells for row in table.rows}
        cells = [rows.get(task_id, ()) for task_id in task_ids]
        working = [[cell for cell in part if cell.arm.in_mode == "query"] for part in cells]
        bare = [[cell for cell in part if cell.arm.in_mode == "no_op"] for part in cells]
        ran = [[cell for cell in part if cell.correct is not None] for part in working]
        return cls(
            working=np.array([_mean([cell.correct for cell in part]) for part in working]),
            by_repeat=_by_repeat(working),
            steps=np.array([_mean([cell.steps for cell in part]) for part in ran]),
            injected=np.array([_mean([cell.injected for cell in part]) for part in ran]),
            draws=np.stack(_by_repeat(bare), axis=1) if any(bare) else np.zeros((len(cells), 0)),
        )


def _by_repeat(cells: Sequence[Sequence[Cell]]) -> tuple[Values, ...]:
    repeats = sorted({cell.arm.repeat for part in cells for cell in part})
    return tuple(
        np.array([_mean([cell.correct for cell in part if cell.arm.repeat == repeat]) for part in cells])
        for repeat in repeats
    )


def best_of_k(draws: Matrix, k: int) -> Values | None:
    """Best of the first k columns of `draws`: what luck alone gives; None where there are fewer than k or two.

    A task counts only where all k runs are scored.
    """
    if k < 2 or draws.shape[1] < k:
        return None
    first = draws[:, :k]
    return np.where(np.isnan(first).any(axis=1), np.nan, first.max(axis=1))


def oracle_of_one_draw(outcomes: Outcomes) -> Values:
    """The best of one run of every arm, averaged over repeats: as many draws as `best_of_k` with k arms takes.

    A task counts only in repeats where every arm is scored.
    """
    draws = [best_of_k(draw, draw.shape[1]) for draw in outcomes.by_repeat.values()]
    scored = [best for best in draws if best is not None]
    return average(scored) if scored else np.full(len(outcomes.task_ids), np.nan)


def restricted(outcomes: Outcomes, providers: Sequence[str]) -> Outcomes:
    """The same tasks with none and `providers` alone."""
    kept = [0, *(column for column, arm in enumerate(outcomes.arms) if arm in providers and column)]
    return replace(
        outcomes,
        arms=tuple(outcomes.arms[column] for column in kept),
        correct=outcomes.correct[:, kept],
        steps=outcomes.steps[:, kept],
        injected=outcomes.injected[:, kept],
        by_repeat={repeat: matrix[:, kept] for repeat, matrix in outcomes.by_repeat.items()},
        begin_chars=outcomes.begin_chars[:, kept],
        seconds=outcomes.seconds[:, kept],
    )


def nested_pools(explore: Outcomes) -> list[tuple[str, ...]]:
    """Pools of 1, 2, ... providers, grown one by one: each next provider adds most to the pool's plain oracle.

    Ties go to the provider that is better alone, then to the first. Chosen on exploration, so that a pool's oracle on
    another split is not also the best of all pools there.
    """
    left, pools = list(explore.arms[1:]), list[tuple[str, ...]]()
    reached = explore.arm(NONE)
    while left:
        gains = {
            name: (mean_or_none(np.fmax(reached, explore.arm(name))) or 0.0, mean_or_none(explore.arm(name)) or 0.0)
            for name in left
        }
        best = max(left, key=lambda name: gains[name])
        reached = np.fmax(reached, explore.arm(best))
        pools.append((*(pools[-1] if pools else ()), best))
        left.remove(best)
    return pools


def coverage(outcomes: Outcomes) -> tuple[int, ...]:
    """Number of tasks that exactly 0, 1, 2, ... arms solve (`none` is an arm), over tasks with every arm scored.

    MemAgent Table 13.
    """
    complete = outcomes.correct[~np.isnan(outcomes.correct).any(axis=1)]
    solved = (complete >= SOLVED).sum(axis=1)
    return tuple(int((solved == k).sum()) for k in range(len(outcomes.arms) + 1))


def unique_solves(outcomes: Outcomes) -> dict[str, int]:
    """Tasks that one arm solves and no other does (`none` included), over tasks with every arm scored."""
    complete = outcomes.correct[~np.isnan(outcomes.correct).any(axis=1)]
    solved = complete >= SOLVED
    alone = solved[solved.sum(axis=1) == 1]
    return {arm: int(alone[:, column].sum()) for column, arm in enumerate(outcomes.arms)}


def family_names(outcomes: Outcomes) -> tuple[str, ...]:
    """Families in the order of their first task."""
    return tuple(dict.fromkeys(outcomes.families))


def by_family(outcomes: Outcomes, values: Values) -> dict[str, float | None]:
    """Mean of per-task values over the scored tasks of each family."""
    families = np.array(outcomes.families)
    return {family: mean_or_none(values[families == family]) for family in family_names(outcomes)}
