"""What a policy's decisions are worth once the truth is uncovered (GovMem, section IV)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.govmem.bundles import Truth
from providers.governance.gate import Audit, Decision
from providers.types import Flow

MISLED = 0.2
"""Utility of a future task that reads a false memory, or finds none. Table III never falls below it; that an empty
store is worth no more is ours, so that refusing everything does not count as use."""


class Scores(Flow):
    """Shares from 0 to 1, of one policy on one seed or as means over seeds. `false_promotion`: of what was promoted."""

    precision: float
    recall: float
    actionable_recall: float
    """Valid candidates that were promoted or left to a person."""
    false_promotion: float
    review: float
    b_at_1: float
    b_at_3: float
    auprc: float


class DependencyScores(Flow):
    """One row of table VI: a policy on candidates whose support has one dependency. None where nothing is counted."""

    n: int
    promoted: int
    review: int
    false_promotion: float | None
    actionable_recall: float | None


@dataclass(frozen=True)
class Judged:
    """One decision beside the truth; `bundle` is where it could be read."""

    audit: Audit
    truth: Truth
    bundle: int

    @property
    def promoted(self) -> bool:
        return self.audit.decision is Decision.PROMOTE

    @property
    def actionable(self) -> bool:
        return self.audit.decision is not Decision.REJECT


def scores_of(judged: Sequence[Judged]) -> Scores:
    """All figures of one policy on one seed. Nothing promoted: precision 1, false promotion 0, recall 0."""
    promoted = [one for one in judged if one.promoted]
    valid = [one for one in judged if one.truth.valid]
    wrong = _share([not one.truth.valid for one in promoted], empty=0.0)
    return Scores(
        precision=1 - wrong,
        recall=_share([one.promoted for one in valid]),
        actionable_recall=_share([one.actionable for one in valid]),
        false_promotion=wrong,
        review=_share([one.audit.decision is Decision.NEEDS_REVIEW for one in judged]),
        b_at_1=utility(judged, 1),
        b_at_3=utility(judged, 3),
        auprc=average_precision(judged),
    )


def utility(judged: Sequence[Judged], budget: int) -> float:
    """Mean over bundles of what a future task gains that reads the `budget` promoted memories ranked first (B@k).

    1 where all of them hold, `MISLED` where one does not or there is none. Equal scores are read in the order of the
    candidates' ids, which say nothing. (Ours: the paper names B@k without its formula; its table fits this one.)
    """
    bundles: dict[int, list[Judged]] = {one.bundle: [] for one in judged}
    for one in judged:
        if one.promoted:
            bundles[one.bundle].append(one)
    gains = []
    for promoted in bundles.values():
        read = sorted(promoted, key=lambda one: (-one.audit.score, one.audit.candidate))[:budget]
        gains.append(1.0 if read and all(one.truth.valid for one in read) else MISLED)
    return float(np.mean(gains))


def average_precision(judged: Sequence[Judged]) -> float:
    """AUPRC of the policy's scores over all candidates, whatever was decided; equal scores are one step."""
    from sklearn.metrics import average_precision_score

    valid = [one.truth.valid for one in judged]
    return float(average_precision_score(valid, [one.audit.score for one in judged]))


def by_dependency(judged: Sequence[Judged]) -> dict[str, DependencyScores]:
    """Table VI: the decisions split by what joins a candidate's support."""
    groups: dict[str, list[Judged]] = {}
    for one in judged:
        groups.setdefault(one.audit.dependency, []).append(one)
    return {name: _dependency_scores(group) for name, group in sorted(groups.items())}


def mean_scores(seeds: Sequence[Scores]) -> Scores:
    """Means over seeds."""
    means = {name: float(np.mean([getattr(one, name) for one in seeds])) for name in Scores.model_fields}
    return Scores(**means)


def differences(seeds: Sequence[Scores], others: Sequence[Scores]) -> Mapping[str, tuple[float, float, float]]:
    """Mean difference per figure over paired seeds with its 95% interval (Student's t)."""
    from scipy.special import stdtrit

    pairs, result = list(zip(seeds, others, strict=True)), {}
    for name in Scores.model_fields:
        each = np.array([getattr(a, name) - getattr(b, name) for a, b in pairs])
        mean = float(each.mean())
        half = float(stdtrit(each.size - 1, 0.975) * each.std(ddof=1) / np.sqrt(each.size)) if each.size > 1 else 0.0
        result[name] = (mean, mean - half, mean + half)
    return result


def _dependency_scores(group: Sequence[Judged]) -> DependencyScores:
    promoted = [one for one in group if one.promoted]
    valid = [one for one in group if one.truth.valid]
    return DependencyScores(
        n=len(group),
        promoted=len(promoted),
        review=sum(one.audit.decision is Decision.NEEDS_REVIEW for one in group),
        false_promotion=_share([not one.truth.valid for one in promoted]) if promoted else None,
        actionable_recall=_share([one.actionable for one in valid]) if valid else None,
    )


def _share(flags: Sequence[bool], empty: float = 0.0) -> float:
    return sum(flags) / len(flags) if flags else empty
