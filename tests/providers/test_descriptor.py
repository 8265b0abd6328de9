"""The verifier's descriptor: equations 1 and 2 with values worked by hand, label rules as tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.governance.descriptor import (
    Label,
    boundary,
    confidence,
    dispersion,
    expectation,
    label_of_scores,
    label_of_views,
    one_hot,
    renormalised,
    reward,
    settled_label,
    spread,
    uncertainty,
)

ONE_VIEW = np.asarray([[1.0, 0.75, 0.5, 0.25]])
THREE_VIEWS = np.asarray([[1.0, 1.0, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5]])
SUCCESS: Label = "verified_success"
FAIL: Label = "verified_fail"
UNCERTAIN: Label = "uncertain"


def test_a_score_is_the_expectation_of_its_token_values() -> None:
    assert expectation(one_hot(1)) == 0.0
    assert expectation(one_hot(4)) == 0.75
    assert expectation((0.0, 0.0, 0.5, 0.0, 0.5)) == 0.75
    assert spread((0.5, 0.0, 0.0, 0.0, 0.5)) == 1.0
    assert spread(one_hot(3)) == 0.0


def test_probabilities_are_renormalised_over_the_allowed_tokens() -> None:
    assert renormalised({"4": 0.3, "5": 0.1, "the": 0.6}) == pytest.approx((0, 0, 0, 0.75, 0.25))
    assert renormalised({"the": 1.0}) is None
    assert renormalised({"4": float("nan")}) is None


def test_reward_is_the_weighted_mean_over_criteria_and_views() -> None:
    """Eq. 1: (1 + .75 + .5 + .25) / 4 = .625; over three views (.75 + .5 + .25) / 3 = .5."""
    assert reward(ONE_VIEW) == 0.625
    assert reward(ONE_VIEW, (1.0, 0.0, 0.0, 0.0)) == 1.0
    assert reward(ONE_VIEW, (0.5, 0.0, 0.0, 0.5)) == 0.625
    assert reward(THREE_VIEWS) == pytest.approx(0.5)


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.5, 0.5, 0.5, 0.5), (2.0, -1.0, 0.0, 0.0)])
def test_weights_must_be_shares_of_the_criteria(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        reward(ONE_VIEW, weights)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.45, 1.0), (0.65, 1.0), (0.55, 1.0), (0.40, 0.5), (0.70, 0.5), (0.35, 0.0), (0.75, 0.0), (0.0, 0.0), (1.0, 0.0)],
)
def test_the_boundary_score_falls_off_outside_of_the_band(value: float, expected: float) -> None:
    assert boundary(value) == pytest.approx(expected, abs=1e-12)


def test_dispersion_takes_criteria_alone_for_one_view_and_the_larger_for_several() -> None:
    """One view: std of (1, .75, .5, .25) is sqrt(.078125) = .2795, of .5 at most.

    Three views: criteria std (.25, 0, .25), mean 1/6; views std (sqrt(1/6), sqrt(1/6), 0, 0), mean .2041 -> .4082.
    """
    assert dispersion(ONE_VIEW) == pytest.approx(0.559017)
    assert dispersion(THREE_VIEWS) == pytest.approx(0.408248)
    assert dispersion(THREE_VIEWS[:1]) == pytest.approx(0.5)
    assert dispersion(np.full((1, 4), 0.75)) == 0.0
    assert dispersion(np.asarray([[0.0, 0.0, 1.0, 1.0]])) == 1.0


def test_uncertainty_mixes_boundary_and_dispersion() -> None:
    """Eq. 2 at R = .625 (in the band): .5 * 1 + .5 * .559; all criteria equal at 1: certain; at .5: the band alone."""
    assert uncertainty(ONE_VIEW) == pytest.approx(0.779508)
    assert uncertainty(ONE_VIEW, mix=1.0) == 1.0
    assert uncertainty(np.ones((1, 4))) == 0.0
    assert uncertainty(np.full((1, 4), 0.5)) == 0.5


@pytest.mark.parametrize(
    ("scores", "blocked", "expected"),
    [
        ((5, 5, 5, 5), False, SUCCESS),
        ((4, 4, 3, 1), False, SUCCESS),
        ((5, 3, 5, 5), False, UNCERTAIN),
        ((3, 5, 5, 5), False, UNCERTAIN),
        ((3, 3, 3, 2), False, UNCERTAIN),
        ((5, 2, 5, 5), False, FAIL),
        ((2, 5, 5, 5), False, FAIL),
        ((5, 5, 2, 5), False, FAIL),
        ((5, 5, 5, 5), True, FAIL),
    ],
)
def test_label_rules_of_one_view(scores: tuple[int, ...], blocked: bool, expected: Label) -> None:
    assert label_of_scores(scores, blocked) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([SUCCESS], SUCCESS),
        ([SUCCESS, SUCCESS, UNCERTAIN], SUCCESS),
        ([FAIL, UNCERTAIN, FAIL], FAIL),
        ([SUCCESS, SUCCESS, FAIL], UNCERTAIN),
        ([SUCCESS, UNCERTAIN], UNCERTAIN),
        ([SUCCESS, UNCERTAIN, UNCERTAIN], UNCERTAIN),
    ],
)
def test_labels_of_several_views(labels: list[Label], expected: Label) -> None:
    assert label_of_views(labels) == expected


@pytest.mark.parametrize(
    ("stated", "ruled", "expected"), [(SUCCESS, SUCCESS, SUCCESS), (SUCCESS, FAIL, UNCERTAIN), ("", FAIL, UNCERTAIN)]
)
def test_a_label_that_its_scores_contradict_is_uncertain(stated: str, ruled: Label, expected: Label) -> None:
    assert settled_label(stated, ruled) == expected


def test_confidence_needs_agreement_stability_and_evidence() -> None:
    certain = [0.0] * 4
    assert confidence([SUCCESS], np.ones((1, 4)), certain, [1.0], SUCCESS) == 1.0
    assert confidence([SUCCESS], np.ones((1, 4)), certain, [0.0], SUCCESS) == 0.5
    spreads = [0.0] * 12
    # rewards .75, .5, .25: std .2041, so stability .5918; two of three labels agree; all grounded
    found = confidence([SUCCESS, SUCCESS, UNCERTAIN], THREE_VIEWS, spreads, [1.0, 1.0, 1.0], SUCCESS)
    assert found == pytest.approx(2 / 3 * (0.591752 + 1) / 2, abs=1e-5)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=4, max_size=4), min_size=1, max_size=3),
    st.data(),
)
def test_all_of_it_stays_within_0_and_1(rows: list[list[float]], data: st.DataObject) -> None:
    means = np.asarray(rows)
    labels: list[Label] = [data.draw(st.sampled_from([SUCCESS, FAIL, UNCERTAIN])) for _ in rows]
    grounded = [data.draw(st.floats(0, 1)) for _ in rows]
    values = [
        reward(means),
        boundary(reward(means)),
        dispersion(means),
        uncertainty(means),
        confidence(labels, means, means.ravel().tolist(), grounded, label_of_views(labels)),
    ]
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in values)
