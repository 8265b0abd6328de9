"""Which state a new record starts in, by the verdict on its run (MemGuard 3.3 and B.3), as one table of rules.

What MemGuard calls provisional is the state `candidate` here: kept, not retrieved from. (`provisional` records of this
house are on trial by their own provider, and are retrieved.)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from providers.governance.descriptor import BAND_LOW
from providers.types import Descriptor, Record

ACTIVE_REWARD = 0.70
ACTIVE_CONFIDENCE = 0.60

Admitted = Literal["active", "candidate", "rejected", "guard"]

FAILURE = "failure_avoidance"
"""The kind of MemGuard's own failure memories."""


class Admission(NamedTuple):
    """The state, and why."""

    state: Admitted
    reason: str


def warns(record: Record) -> bool:
    """Whether a record is a lesson from a failure, whichever provider made it."""
    return (
        record.kind == FAILURE
        or record.payload.get("kind") in ("failure", "cautionary")
        or record.payload.get("correct") is False
    )


class Thresholds(NamedTuple):
    """Least reward and confidence, 0 to 1, of what is retrieved from (table 21)."""

    reward: float = ACTIVE_REWARD
    confidence: float = ACTIVE_CONFIDENCE


DEFAULT = Thresholds()


def admit(record: Record, verdict: Descriptor, *, guards: bool = True, thresholds: Thresholds = DEFAULT) -> Admission:
    """Where a record with that verdict starts; `guards` False keeps no failure lessons (an ablation of MemGuard).

    A positive memory needs a verified success and both thresholds. A lesson from a failure needs no reward: a failed
    run has none, and its confidence says how sure the failure is.
    """
    if verdict.review == "accepted":
        return Admission("guard" if warns(record) else "active", "accepted in review")
    if verdict.review == "rejected":
        return Admission("rejected", "rejected in review")
    given, sure = verdict.reward or 0.0, verdict.confidence or 0.0
    says = f"{verdict.label}, reward {given:.2f}, confidence {sure:.2f}"
    if warns(record):
        return (
            _guard(verdict, sure >= thresholds.confidence, says)
            if guards
            else Admission("rejected", "no failure lessons are kept")
        )
    if verdict.label == "verified_fail":
        return Admission("rejected", f"its run failed ({says})")
    if given < BAND_LOW:
        return Admission("rejected", f"its run is worth too little ({says})")
    if verdict.label == "verified_success" and given >= thresholds.reward and sure >= thresholds.confidence:
        return Admission("active", says)
    return Admission("candidate", f"not sure enough ({says})")


def _guard(verdict: Descriptor, sure: bool, says: str) -> Admission:
    if verdict.label == "verified_success":
        return Admission("candidate", f"it warns of a run that succeeded ({says})")
    if sure:
        return Admission("guard", says)
    return Admission("candidate", f"not sure enough of the failure ({says})")
