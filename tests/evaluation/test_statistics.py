"""Intervals, tests and corrections against hand-computed and library results."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics import (
    Bootstrap,
    Estimate,
    SignFlip,
    benjamini_hochberg,
    entropy_bits,
    headroom,
    holm,
    pooled,
)

NAN = math.nan
outcomes = st.lists(st.sampled_from([0.0, 0.5, 1.0, NAN]), min_size=1, max_size=40)


def test_unscored_tasks_leave_the_denominator() -> None:
    estimate = Bootstrap(5, 500, seed=0).estimate(np.array([1.0, NAN, 0.0, NAN, 1.0]))
    assert estimate is not None
    assert estimate.n == 3
    assert estimate.mean == pytest.approx(2 / 3)


def test_nothing_scored_gives_no_estimate() -> None:
    assert Bootstrap(2, 100, seed=0).estimate(np.array([NAN, NAN])) is None
    assert Bootstrap(0, 100, seed=0).estimate(np.array([])) is None


def test_interval_of_a_proportion_agrees_with_the_normal_approximation() -> None:
    values = np.array([1.0] * 120 + [0.0] * 180)
    estimate = Bootstrap(300, 10_000, seed=3).estimate(values)
    assert estimate is not None
    half = 1.96 * math.sqrt(0.4 * 0.6 / 300)
    assert estimate.low == pytest.approx(0.4 - half, abs=0.006)
    assert estimate.high == pytest.approx(0.4 + half, abs=0.006)


def test_pairing_makes_the_interval_of_a_difference_narrow() -> None:
    shared = np.random.default_rng(0).integers(0, 2, 200).astype(float)
    better = shared.copy()
    better[np.flatnonzero(shared == 0)[:20]] = 1.0
    difference = Bootstrap(200, 4_000, seed=1).difference(better, shared)
    assert difference is not None
    assert difference.mean == pytest.approx(0.1)
    assert 0.05 < difference.low < 0.1 < difference.high < 0.15


def test_difference_counts_only_tasks_scored_on_both_sides() -> None:
    difference = Bootstrap(4, 200, seed=0).difference(np.array([1.0, NAN, 1.0, 0.0]), np.array([0.0, 0.0, NAN, 0.0]))
    assert difference is not None
    assert (difference.mean, difference.n) == (0.5, 2)


def test_same_seed_same_interval_other_seed_another() -> None:
    values = np.random.default_rng(5).random(50)
    first, again, other = (Bootstrap(50, 300, seed).estimate(values) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@given(outcomes)
def test_interval_holds_the_mean_and_stays_in_range(values: list[float]) -> None:
    estimate = Bootstrap(len(values), 200, seed=0).estimate(np.array(values))
    if estimate is not None:
        assert 0 <= estimate.low <= estimate.high <= 1
        assert 0 <= estimate.mean <= 1
        assert estimate.n == sum(not math.isnan(value) for value in values)


def test_pooled_runs_agree_with_a_bootstrap_over_all_their_tasks() -> None:
    draw = np.random.default_rng(0)
    runs = [draw.choice([-1.0, 0.0, 1.0], p=[0.2, 0.5, 0.3], size=size) for size in (200, 400, 600)]
    each = [Bootstrap(len(run), 4000, seed=1).estimate(run) for run in runs]
    whole = Bootstrap(1200, 4000, seed=1).estimate(np.concatenate(runs))
    found = pooled([estimate for estimate in each if estimate])
    assert whole is not None
    assert found.n == 1200
    assert found.mean == pytest.approx(whole.mean)
    assert (found.low, found.high) == pytest.approx((whole.low, whole.high), abs=0.004)


def test_one_run_pools_to_itself_and_a_small_one_weighs_little() -> None:
    one = Estimate(0.5, 0.4, 0.6, 300)
    assert pooled([one]) == Estimate(0.5, pytest.approx(0.4), pytest.approx(0.6), 300)
    assert pooled([one, Estimate(0.1, -0.1, 0.3, 100)]).mean == pytest.approx(0.4)


def test_sign_flip_agrees_with_the_exact_sign_test() -> None:
    better, worse = np.array([1.0] * 9 + [0.0] * 1 + [1.0] * 5), np.array([0.0] * 9 + [1.0] * 1 + [1.0] * 5)
    exact = stats.binomtest(9, 10).pvalue
    assert SignFlip(15, 20_000, seed=0).p(better, worse) == pytest.approx(exact, abs=0.005)


def test_sign_flip_without_any_difference_is_one_and_without_pairs_none() -> None:
    same = np.array([1.0, 0.0, 1.0])
    assert SignFlip(3, 100, seed=0).p(same, same) == 1.0
    assert SignFlip(1, 100, seed=0).p(np.array([NAN]), np.array([1.0])) is None


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_benjamini_hochberg_by_hand() -> None:
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_corrections_keep_order_and_only_raise(p_values: list[float]) -> None:
    for corrected in (holm(p_values), benjamini_hochberg(p_values)):
        assert all(raw <= new + 1e-12 and new <= 1 for raw, new in zip(p_values, corrected, strict=True))
        order = np.argsort(p_values, kind="stable")
        assert all(np.diff(np.array(corrected)[order]) >= -1e-12)


def test_headroom() -> None:
    assert headroom(0.45, 0.25, 0.65) == pytest.approx(0.5)
    assert headroom(0.2, 0.25, 0.65) == pytest.approx(-0.125)
    assert headroom(0.5, 0.5, 0.5) is None
    assert headroom(None, 0.1, 0.5) is None


def test_entropy() -> None:
    assert entropy_bits([1.0, 0.0]) == 0
    assert entropy_bits([0.25] * 4) == pytest.approx(2)


def test_many_rows_at_once_give_what_one_at_a_time_gives() -> None:
    draw = np.random.default_rng(5)
    rows = [np.where(draw.random(40) < 0.1, NAN, draw.integers(0, 3, 40) / 2) for _ in range(150)]
    rows.append(np.full(40, NAN))
    bootstrap, flips = Bootstrap(40, 300, seed=2), SignFlip(40, 300, seed=2)
    assert bootstrap.estimates(rows) == [bootstrap.estimate(row) for row in rows]
    differences = [row - rows[0] for row in rows]
    assert flips.p_values(differences) == [flips.p(row, rows[0]) for row in rows]
    assert flips.p_values(differences)[-1] is None
    assert bootstrap.estimates([]) == []
