"""MemGuard's retrieval scores (equations 3 and 4) and conflict test (equation 5). Pure functions over arrays.

Signals are min-max normalised over the pool of one query, so the scores rank within it and mean nothing across queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

POSITIVE: Mapping[str, float] = {
    "relevance": 0.40,
    "quality": 0.25,
    "applicability": 0.10,
    "recency": 0.10,
    "use": 0.15,
}
"""beta+ of table 21."""
RISK: Mapping[str, float] = {"conflict": 0.20, "staleness": 0.15, "verifier_risk": 0.30}
"""beta- of table 21."""
GUARD_POSITIVE: Mapping[str, float] = {"relevance": 0.45, "quality": 0.30, "applicability": 0.25}
"""delta+ of table 21."""
GUARD_RISK: Mapping[str, float] = {"conflict": 0.15, "staleness": 0.15, "over_generality": 0.25}
"""delta- of table 21."""
CONFLICT_ABOVE = 0.72
"""tau_cf."""


@dataclass(frozen=True)
class Weights:
    """How equations 3 and 4 weigh their signals; table 21's by default."""

    positive: Mapping[str, float] = field(default_factory=lambda: POSITIVE)
    risk: Mapping[str, float] = field(default_factory=lambda: RISK)
    guard_positive: Mapping[str, float] = field(default_factory=lambda: GUARD_POSITIVE)
    guard_risk: Mapping[str, float] = field(default_factory=lambda: GUARD_RISK)


DEFAULT = Weights()


def normalised(values: np.ndarray) -> np.ndarray:
    """Min-max over the pool, to [0, 1]; a signal that is the same for all of it says nothing and is 0."""
    if len(values) == 0:
        return values.astype(float)
    low, high = float(values.min()), float(values.max())
    return np.zeros(len(values)) if high - low < 1e-12 else (values - low) / (high - low)


def positive_scores(signals: Mapping[str, np.ndarray], weights: Weights = DEFAULT) -> np.ndarray:
    """MemGuard eq. 3, S+, for every memory of the pool; `signals` has those of `POSITIVE` and `RISK`, raw."""
    # Eq. 3 lost its betas and subscripts in our copy. Terms and signs stand in its prose (relevance, quality,
    # applicability, recency and reuse raise it; conflict, staleness and verifier risk lower it), weights in table 21.
    return _weighted(signals, weights.positive, weights.risk)


def guard_scores(signals: Mapping[str, np.ndarray], weights: Weights = DEFAULT) -> np.ndarray:
    """MemGuard eq. 4, S-, for every failure guard of the pool; `signals` has those of both `GUARD` tables, raw."""
    return _weighted(signals, weights.guard_positive, weights.guard_risk)


def conflicting(similarity: float, actions: tuple[str, str], labels: tuple[str, str]) -> bool:
    """MemGuard eq. 5, for two memories of one type: alike in structure, yet they differ in action or label."""
    # Garbled in our copy as [sim_ij > tau_cf] * [act_i .. _j _i .. _j]; the notation of section 3.5 leaves one
    # reading: the second bracket is act_i != act_j OR label_i != label_j.
    return similarity > CONFLICT_ABOVE and (actions[0] != actions[1] or labels[0] != labels[1])


def best(scores: np.ndarray, ids: Sequence[str], k: int) -> list[int]:
    """Places of the k best scores, best first; equal scores are ordered by id."""
    return sorted(range(len(ids)), key=lambda place: (-float(scores[place]), ids[place]))[:k]


def _weighted(
    signals: Mapping[str, np.ndarray], raising: Mapping[str, float], lowering: Mapping[str, float]
) -> np.ndarray:
    gain = sum(weight * normalised(signals[name]) for name, weight in raising.items())
    loss = sum(weight * normalised(signals[name]) for name, weight in lowering.items())
    return np.asarray(gain - loss)
