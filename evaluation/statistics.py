"""Statistics over tasks: paired bootstrap, sign-flip test, corrections for many comparisons, headroom.

Values are per task, float64, NaN where a task is unscored. NaN is never read as wrong: such a task leaves the numerator
and the denominator, and every estimate states the `n` that is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from providers.types import content_hash

Values = NDArray[np.float64]

LEVEL = 0.95
"""Level of every interval."""


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` scored tasks with its percentile interval at `LEVEL`."""

    mean: float
    low: float
    high: float
    n: int


def seeded(seed: int, *parts: object) -> np.random.Generator:
    """A generator that depends on the seed and on what it is for, and on nothing else."""
    return np.random.default_rng(int(content_hash(seed, *parts), 16))


class Bootstrap:
    """Percentile bootstrap over tasks. All estimates of one instance share its resamples, so they are paired."""

    def __init__(self, tasks: int, resamples: int, seed: int) -> None:
        self._weights = np.zeros((resamples, tasks), dtype=np.float32)
        if tasks:
            drawn = seeded(seed, "bootstrap", tasks).multinomial(tasks, np.full(tasks, 1 / tasks), size=resamples)
            self._weights[:] = drawn

    def estimate(self, values: Values) -> Estimate | None:
        """Mean of per-task values and its interval; None where no task is scored."""
        scored = ~np.isnan(values)
        n = int(scored.sum())
        if n == 0:
            return None
        totals = self._weights @ np.where(scored, values, 0.0).astype(np.float32)
        counts = self._weights @ scored.astype(np.float32)
        means = totals[counts > 0].astype(np.float64) / counts[counts > 0]
        mean = float(values[scored].mean())
        tail = 100 * (1 - LEVEL) / 2
        low, high = np.percentile(means, [tail, 100 - tail]) if means.size else (mean, mean)
        return Estimate(mean, float(low), float(high), n)

    def difference(self, values: Values, baseline: Values) -> Estimate | None:
        """Mean of `values - baseline` over the tasks where both are scored, and its interval."""
        return self.estimate(values - baseline)


class SignFlip:
    """Two-sided test of paired differences under random exchange of the two within a task.

    All tests of one instance share its draws, as all estimates of a `Bootstrap` do. The observed arrangement counts as
    one of the draws, so the least p is 1 / (resamples + 1).
    """

    def __init__(self, tasks: int, resamples: int, seed: int) -> None:
        signs = seeded(seed, "sign flip", tasks).integers(0, 2, size=(resamples, tasks), dtype=np.int8)
        self._signs = signs.astype(np.float32)
        self._signs *= 2
        self._signs -= 1

    def p(self, values: Values, baseline: Values) -> float | None:
        """The p of `values - baseline` over the tasks where both are scored; None where there is no such task."""
        differences = values - baseline
        if np.isnan(differences).all():
            return None
        counted = np.nan_to_num(differences, nan=0.0)
        if not counted.any():
            return 1.0
        flipped = self._signs @ counted.astype(np.float32)
        observed = abs(float(counted.sum())) - 1e-4
        return (1 + int((np.abs(flipped) >= observed).sum())) / (len(flipped) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: reject where the result is below the family-wise error rate."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjustment: reject where the result is below the false discovery rate."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values, method="bh")] if p_values else []


def headroom(value: float | None, floor: float | None, ceiling: float | None) -> float | None:
    """Share of the way from `floor` to `ceiling` that `value` covers; None where there is no way to cover."""
    if value is None or floor is None or ceiling is None or ceiling - floor <= 1e-9:
        return None
    return (value - floor) / (ceiling - floor)


def entropy_bits(shares: Sequence[float]) -> float:
    """Shannon entropy of shares that sum to 1, in bits: 0 where one arm takes all."""
    return max(0.0, -math.fsum(share * math.log2(share) for share in shares if share > 0))
