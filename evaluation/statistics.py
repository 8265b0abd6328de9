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
Resampled = NDArray[np.float32]

LEVEL = 0.95
"""Level of every interval."""
CHUNK = 64
"""Rows that are resampled in one matrix product: at 10,000 resamples 2.5 MB per chunk and product."""


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
        return self.estimates([values])[0]

    def estimates(self, rows: Sequence[Values]) -> list[Estimate | None]:
        """`estimate` of every row; two matrix products for all of them, in chunks that keep memory small."""
        return [found for start in range(0, len(rows), CHUNK) for found in self._chunk(rows[start : start + CHUNK])]

    def difference(self, values: Values, baseline: Values) -> Estimate | None:
        """Mean of `values - baseline` over the tasks where both are scored, and its interval."""
        return self.estimate(values - baseline)

    def _chunk(self, rows: Sequence[Values]) -> list[Estimate | None]:
        stacked = np.stack(rows)
        scored = ~np.isnan(stacked)
        totals = np.where(scored, stacked, 0.0).astype(np.float32) @ self._weights.T
        counts = scored.astype(np.float32) @ self._weights.T
        return [_interval(*parts) for parts in zip(stacked, scored, totals, counts, strict=True)]


def _interval(values: Values, scored: NDArray[np.bool_], totals: Resampled, counts: Resampled) -> Estimate | None:
    """One row's estimate from its totals and its numbers of scored tasks in every resample."""
    n = int(scored.sum())
    if n == 0:
        return None
    means = totals[counts > 0].astype(np.float64) / counts[counts > 0]
    mean = float(values[scored].mean())
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail]) if means.size else (mean, mean)
    return Estimate(mean, float(low), float(high), n)


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """Estimates of independent samples as one over all their tasks.

    Each weighs by its tasks. The interval is a normal one: the widths of theirs stand for their standard errors.
    """
    n = sum(one.n for one in estimates)
    half = math.hypot(*(one.n * (one.high - one.low) / 2 for one in estimates)) / n
    mean = math.fsum(one.n * one.mean for one in estimates) / n
    return Estimate(mean, mean - half, mean + half, n)


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
        return self.p_values([values - baseline])[0]

    def p_values(self, differences: Sequence[Values]) -> list[float | None]:
        """The p of every row of differences; one matrix product for all of them, in chunks that keep memory small."""
        return [
            p for start in range(0, len(differences), CHUNK) for p in self._chunk(differences[start : start + CHUNK])
        ]

    def _chunk(self, differences: Sequence[Values]) -> list[float | None]:
        stacked = np.stack(differences)
        counted = np.nan_to_num(stacked, nan=0.0)
        flipped = np.abs(counted.astype(np.float32) @ self._signs.T)
        observed = np.abs(counted.sum(axis=1)) - 1e-4
        reached = (flipped >= observed[:, None]).sum(axis=1)
        found: list[float | None] = []
        for row, plain, count in zip(stacked, counted, reached.tolist(), strict=True):
            p = (1 + count) / (flipped.shape[1] + 1) if plain.any() else 1.0
            found.append(None if np.isnan(row).all() else p)
        return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: reject where the result is below the family-wise error rate.

    Ours, because scipy has Benjamini-Hochberg alone, and statsmodels would bring four more packages and pandas for it.
    """
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
