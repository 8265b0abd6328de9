"""The policies that GovMem compares (sections IV and V) as it describes them; thresholds that it leaves open are ours.

They believe the cluster that a candidate comes with; none sees more than a `Case` has.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from providers.governance.evidence import Candidate, scope_of
from providers.governance.gate import Audit, Case, Decision, audit

Policy = Callable[[Case], Audit]

FREQUENT = 3
"""Observations that make a claim frequent."""
SEVERAL = 2
"""Sources, or independent groups, that are more than one."""
CONFIDENT = 0.7
"""Mean of what the observations' authors say of them."""


def raw_frequency(case: Case) -> Audit:
    """Promote what was observed often."""
    count = len(case.candidate.observations)
    return _when(case, "raw_frequency", count >= FREQUENT, f"observed {count} times", count)


def unique_source(case: Case) -> Audit:
    """Promote what several sources say."""
    count = len(_sources(case.candidate))
    return _when(case, "unique_source", count >= SEVERAL, f"{count} different sources", count)


def source_scope(case: Case) -> Audit:
    """Promote what several sources say of the right environment; unknown environments pass."""
    count = len(_sources(case.candidate))
    inside = in_scope(case.candidate)
    reason = f"{count} different sources, {'in' if inside else 'out of'} scope"
    return _when(case, "source_scope", inside and count >= SEVERAL, reason, count if inside else 0)


def confidence(case: Case) -> Audit:
    """Promote what its authors are sure of."""
    mean = _mean_confidence(case.candidate)
    return _when(case, "confidence", mean >= CONFIDENT, f"mean confidence {mean:.2f}", mean)


def counterexample(case: Case) -> Audit:
    """Promote what was observed often, unless something contradicts it where it is to hold."""
    count, against = len(case.candidate.observations), len(case.evidence.contradicting)
    reason = f"observed {count} times, {against} contradicting groups"
    free = not against
    return _when(case, "counterexample", free and count >= FREQUENT, reason, count if free else 0)


def review_all_correlated(case: Case) -> Audit:
    """Leave everything to a person that is not independent; source and scope decide on the rest."""
    dependency = case.dependency
    if dependency == "independent":
        verdict = source_scope(case)
        return verdict.model_copy(update={"policy": "review_all_correlated"})
    reasons = [f"its support is not independent: {dependency}"]
    return audit(case, "review_all_correlated", Decision.NEEDS_REVIEW, reasons, 0.0, checked=False)


def govmem_lite(case: Case) -> Audit:
    """Promote what independent groups say, in scope and uncontradicted; reject the rest."""
    groups, stands = case.groups, _stands(case)
    reason = (
        f"{groups} independent groups, {'in scope and uncontradicted' if stands else 'out of scope or contradicted'}"
    )
    return _when(case, "govmem_lite", stands and groups >= SEVERAL, reason, groups if stands else 0)


def govmem_verified(case: Case, several: float = SEVERAL) -> Audit:
    """GovMem-lite, with a check for what has too little independent support: passed, failed, or left to a person.

    `several` groups need no check.
    """
    groups, stands = case.groups, _stands(case)
    if not stands:
        return govmem_lite(case).model_copy(update={"policy": "govmem_verified"})
    if groups >= several:
        reason = f"{groups} independent groups, in scope and uncontradicted"
        return _when(case, "govmem_verified", True, reason, groups)
    decision, score = {
        "passed": (Decision.PROMOTE, float(SEVERAL)),
        "failed": (Decision.REJECT, 0.0),
        "unknown": (Decision.NEEDS_REVIEW, float(groups)),
    }[case.check]
    reasons = [f"{groups} independent group, and a check {case.check}"]
    return audit(case, "govmem_verified", decision, reasons, score, checked=True)


def in_scope(candidate: Candidate) -> bool:
    """Whether nothing that a candidate was made of comes from another environment. Versions are not looked at."""
    return all(scope_of(o.environment, candidate.environment) != "other" for o in candidate.observations)


def _stands(case: Case) -> bool:
    """Whether scope and counterevidence let the claim stand."""
    return in_scope(case.candidate) and not case.evidence.contradicting


def _when(case: Case, name: str, promote: bool, reason: str, score: float) -> Audit:
    decision = Decision.PROMOTE if promote else Decision.REJECT
    return audit(case, name, decision, [reason], float(score), checked=False)


def _sources(candidate: Candidate) -> set[str]:
    return {observation.source for observation in candidate.observations if observation.source}


def _mean_confidence(candidate: Candidate) -> float:
    said = [o.confidence for o in candidate.observations if o.confidence is not None]
    return fmean(said) if said else 0.0


PUBLISHED: dict[str, Policy] = {
    "raw_frequency": raw_frequency,
    "unique_source": unique_source,
    "source_scope": source_scope,
    "confidence": confidence,
    "counterexample": counterexample,
    "review_all_correlated": review_all_correlated,
    "govmem_lite": govmem_lite,
    "govmem_verified": govmem_verified,
}
