"""P and P+ of a task where confidence is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.decisions import Arm
from router.table import Cell, TableRow
from synth.success import rate_interval, solves, success_set


def repeated(*outcomes: tuple[float, float]) -> TableRow:
    """One provider's row: (query, no_op) outcomes by repeat."""
    cells = tuple(
        Cell(arm=Arm(provider="a", in_mode=mode, repeat=repeat), correct=correct)
        for repeat, pair in enumerate(outcomes)
        for mode, correct in zip(("query", "no_op"), pair, strict=True)
    )
    return TableRow(task_id="t", question="q", family="f", previews=(), cells=cells)


@pytest.mark.parametrize(
    ("outcomes", "solved"),
    [
        ([(1, 1)], None),
        ([(1, 1)] * 2, None),
        ([(1, 1)] * 3, True),
        ([(0, 0)] * 3, False),
        ([(1, 1), (1, 1), (0, 0)], None),
        ([(1, 0)] * 9, None),
        ([], None),
    ],
)
def test_confidence_asks_for_an_interval_on_one_side_of_one_half(
    outcomes: list[tuple[float, float]], solved: bool | None
) -> None:
    """In modes share a repeat's seed, so three repeats are three draws, not six."""
    row = repeated(*outcomes)
    assert solves(row, "a", "confident") is solved
    assert success_set(row, ["a"], "confident").providers == (() if solved is None else ("a",))


@given(st.integers(0, 40), st.integers(1, 40))
def test_an_interval_holds_its_rate_and_narrows_with_draws(wins: int, draws: int) -> None:
    wins = min(wins, draws)
    low, high = rate_interval(wins, draws)
    more_low, more_high = rate_interval(4 * wins, 4 * draws)
    assert 0 <= low <= high <= 1
    assert more_high - more_low < high - low
    mirrored = rate_interval(draws - wins, draws)
    assert mirrored == (pytest.approx(1 - high), pytest.approx(1 - low))
