"""MemGuard's verifier descriptor from criterion scores: reward, uncertainty, confidence, label (section 3.3).

Pure functions. A view's scores are distributions over the score tokens, one per criterion, in the order of `CRITERIA`.
They reckon in plain floats: over three views of four criteria, calls of numpy cost more than what they compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import isclose, sqrt
from operator import mul
from typing import Literal

import numpy as np

CRITERIA = ("task_completion", "evidence_consistency", "execution_validity", "generalizability")
SCORES = ("1", "2", "3", "4", "5")
"""The score tokens; token v stands for phi(v) = (v - 1) / (G - 1), so 0 to 1, with G = 5 of them."""

Label = Literal["verified_success", "verified_fail", "uncertain"]
View = Literal["full", "evidence", "risk"]

BAND_LOW, BAND_HIGH = 0.45, 0.65
"""gamma: rewards between these are boundary cases."""
TAPER = 0.10
"""Delta_b: how far outside of the band the boundary score falls to 0."""
MIX = 0.5
"""alpha: share of the boundary score in the uncertainty."""
REPEAT_ABOVE = 0.55
"""eta_verify: uncertainty above which the other views are asked for."""
LARGEST_SPREAD = 0.5
"""sigma_max: the largest population standard deviation of values in [0, 1]."""
REPEATED_VIEWS: tuple[View, ...] = ("evidence", "risk")


def one_hot(score: int) -> tuple[float, ...]:
    """The distribution of an endpoint that gives its score (1 to 5) alone."""
    return tuple(float(place == score - 1) for place in range(len(SCORES)))


def renormalised(mass: Mapping[str, float]) -> tuple[float, ...] | None:
    """The distribution over the allowed score tokens by their probabilities; None where none has any."""
    shares = np.asarray([mass.get(token, 0.0) for token in SCORES], dtype=float)
    total = float(shares.sum())
    if not np.isfinite(total) or total <= 0.0 or (shares < 0.0).any():
        return None
    return tuple((shares / total).tolist())


def expectation(distribution: Sequence[float]) -> float:
    """E_v[phi(v)], 0 to 1: the mean score r of one criterion under one view."""
    return _weighted(distribution, _values(len(distribution)))


@cache
def _values(tokens: int) -> tuple[float, ...]:
    """phi of every score token."""
    return tuple(np.linspace(0.0, 1.0, tokens).tolist())


def spread(distribution: Sequence[float]) -> float:
    """Standard deviation of phi(v), as a share of the largest, 0 to 1; 0 where the score is certain."""
    squares = [value * value for value in _values(len(distribution))]
    variance = _weighted(distribution, squares) - expectation(distribution) ** 2
    return sqrt(max(0.0, variance)) / LARGEST_SPREAD


def reward(means: np.ndarray, weights: Sequence[float] | None = None) -> float:
    """MemGuard eq. 1: criterion means weighted by `weights` (sum 1; None: alike), averaged over the views.

    `means` has shape (views, criteria), values 0 to 1.
    """
    criteria = means.shape[1]
    shares = [1.0 / criteria] * criteria if weights is None else list(weights)
    if len(shares) != criteria or min(shares) < 0 or not isclose(sum(shares), 1.0, abs_tol=1e-8):
        raise ValueError(f"{shares} are no weights of {criteria} criteria: they must be at least 0 and sum to 1.")
    return _mean([_weighted(shares, row) for row in means.tolist()])


def boundary(value: float, low: float = BAND_LOW, high: float = BAND_HIGH, taper: float = TAPER) -> float:
    """How near a reward is to the uncertainty band: 1 in it, falling to 0 at `taper` outside of it."""
    # MemGuard section 3.3, garbled in our copy: a = [low - R]+ + [R - high]+ and b = max(0, 1 - a / Delta_b), with
    # [z]+ = max(z, 0). At most one of the two terms of a is positive, so a is the distance to the band.
    distance = max(low - value, 0.0) + max(value - high, 0.0)
    return max(0.0, 1.0 - distance / taper)


def dispersion(means: np.ndarray) -> float:
    """How much criteria (and views, where there are several) disagree, 0 to 1. Shape (views, criteria)."""
    # MemGuard section 3.3, garbled in our copy: d_crit is the mean over views of the population standard deviation
    # over criteria, d_view the mean over criteria of that over views; each is divided by sigma_max and cut at 1. One
    # view: s = d_crit; several: the larger of both.
    rows = means.tolist()
    criteria = min(1.0, _mean([_deviation(row) for row in rows]) / LARGEST_SPREAD)
    if len(rows) == 1:
        return criteria
    return max(criteria, min(1.0, _mean([_deviation(column) for column in zip(*rows, strict=True)]) / LARGEST_SPREAD))


def uncertainty(means: np.ndarray, weights: Sequence[float] | None = None, mix: float = MIX) -> float:
    """MemGuard eq. 2: u = alpha b + (1 - alpha) s, 0 to 1."""
    return mix * boundary(reward(means, weights)) + (1.0 - mix) * dispersion(means)


def label_of_scores(scores: Sequence[int], blocked: bool) -> Label:
    """The label rules of MemGuard B.1 for one view's scores (1 to 5, in the order of `CRITERIA`).

    `blocked`: an execution error kept the run from its end. A low generalizability fails nothing: such a run may be
    right and still teach little.
    """
    completion, evidence, validity = scores[:3]
    if blocked or min(completion, evidence, validity) <= 2:
        return "verified_fail"
    return "verified_success" if min(completion, evidence) >= 4 else "uncertain"


def settled_label(stated: str, ruled: Label) -> Label:
    """What a verifier said of a view, held against the rules: where the two contradict each other it is uncertain."""
    return ruled if stated == ruled else "uncertain"


def label_of_views(labels: Sequence[Label]) -> Label:
    """The label that more than half of the views give; success and failure together are always uncertain."""
    if {"verified_success", "verified_fail"} <= set(labels):
        return "uncertain"
    for label in set(labels):
        if 2 * labels.count(label) > len(labels):
            return label
    return "uncertain"


def confidence(
    labels: Sequence[Label], means: np.ndarray, spreads: Sequence[float], grounded: Sequence[float], label: Label
) -> float:
    """How far a verdict can be relied on, 0 to 1 (ours: the paper names the three parts and not how they combine).

    c = A (S + Q) / 2. A, label agreement: the share of views with the final label. S, reward stability: 1 less the
    larger of the deviation of the views' rewards and the mean of `spreads`, those of all score distributions (both as
    shares of the largest deviation). Q, rationale consistency: the mean over views of `grounded`, the share of a view's
    criteria whose cited evidence stands in the run. So a verdict without evidence has 0.5 at most, below what
    activates a memory, and views that contradict each other cannot be outweighed by wording.
    """
    agreement = sum(one == label for one in labels) / len(labels)
    between = min(1.0, _deviation([_mean(row) for row in means.tolist()]) / LARGEST_SPREAD)
    stability = 1.0 - min(1.0, max(between, _mean(spreads)))
    return agreement * (stability + _mean(grounded)) / 2.0


def _weighted(weights: Sequence[float], values: Sequence[float]) -> float:
    return float(sum(map(mul, weights, values)))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    """The population's standard deviation."""
    mean = _mean(values)
    return sqrt(_mean([(value - mean) ** 2 for value in values]))
