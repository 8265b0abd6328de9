"""Equations 3 to 5 with values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.governance.ranking import (
    GUARD_POSITIVE,
    GUARD_RISK,
    POSITIVE,
    RISK,
    best,
    conflicting,
    guard_scores,
    normalised,
    positive_scores,
)


def signals(names: list[str], **raw: list[float]) -> dict[str, np.ndarray]:
    size = len(next(iter(raw.values())))
    return {name: np.asarray(raw.get(name, [0.0] * size)) for name in names}


def test_the_positive_score_adds_utility_and_takes_off_risk() -> None:
    """Eq. 3 for two memories: the first has all relevance (.40) and use (.15), the second all quality (.25) and
    verifier risk (-.30); applicability is the same for both and says nothing."""
    given_ = signals(
        [*POSITIVE, *RISK],
        relevance=[0.9, 0.2],
        use=[3.0, 0.0],
        quality=[0.4, 0.8],
        applicability=[0.5, 0.5],
        verifier_risk=[0.1, 0.9],
    )
    assert positive_scores(given_) == pytest.approx([0.55, -0.05])


def test_the_score_of_a_middle_memory_is_by_its_place_between_least_and_most() -> None:
    """Relevance .5 of 0 to 1 gives .2; conflict 1 of 0 to 2 takes .1 off."""
    given_ = signals([*POSITIVE, *RISK], relevance=[0.0, 0.5, 1.0], conflict=[0.0, 1.0, 2.0])
    assert positive_scores(given_) == pytest.approx([0.0, 0.1, 0.2])


def test_the_guard_score_takes_over_generality_off_instead_of_verifier_risk() -> None:
    """Eq. 4: .45 + .30 against .25 - .25 and staleness -.15."""
    given_ = signals(
        [*GUARD_POSITIVE, *GUARD_RISK],
        relevance=[1.0, 0.0],
        quality=[1.0, 0.0],
        applicability=[0.0, 1.0],
        over_generality=[0.0, 1.0],
        staleness=[0.0, 1.0],
    )
    assert guard_scores(given_) == pytest.approx([0.75, -0.15])


def test_one_memory_alone_scores_nothing_and_none_gives_none() -> None:
    assert positive_scores(signals([*POSITIVE, *RISK], relevance=[0.7])).tolist() == [0.0]
    assert len(positive_scores({name: np.zeros(0) for name in [*POSITIVE, *RISK]})) == 0


@pytest.mark.parametrize(
    ("similarity", "actions", "labels", "expected"),
    [
        (0.73, ("open", "search"), ("verified_success", "verified_success"), True),
        (0.73, ("open", "open"), ("verified_success", "verified_fail"), True),
        (0.73, ("open", "open"), ("verified_success", "verified_success"), False),
        (0.72, ("open", "search"), ("verified_success", "verified_fail"), False),
        (0.10, ("open", "search"), ("verified_success", "verified_fail"), False),
    ],
)
def test_conflict_is_likeness_with_another_action_or_label(
    similarity: float, actions: tuple[str, str], labels: tuple[str, str], expected: bool
) -> None:
    assert conflicting(similarity, actions, labels) is expected


def test_equal_scores_are_ordered_by_id() -> None:
    assert best(np.asarray([0.5, 0.9, 0.5]), ["b", "c", "a"], 3) == [1, 2, 0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_normalised_signals_lie_in_0_to_1_in_the_same_order(values: list[float]) -> None:
    found = normalised(np.asarray(values))
    assert ((found >= 0) & (found <= 1)).all()
    order = np.argsort(values, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
