"""The write gate (GovMem, section III): a candidate memory is promoted, rejected or left to a person, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from typing import Literal

from providers.distill.quoting import quoted, shortened
from providers.governance.content import hidden_instruction, unfit
from providers.governance.evidence import (
    Candidate,
    Dependency,
    Evidence,
    Group,
    Observation,
    Relation,
    dependency_groups,
    dependency_of,
    gather,
    relation,
)
from providers.types import Flow

Check = Literal["passed", "failed", "unknown"]
Checker = Callable[[Candidate], Check]
"""Verifies a claim by itself (a tool call made again, a test, a page opened anew), not by what was observed."""

SHOWN_CHARACTERS = 160
MOST_SHOWN = 5


class Decision(StrEnum):
    PROMOTE = "promote"
    REJECT = "reject"
    NEEDS_REVIEW = "needs_review"


def unchecked(candidate: Candidate) -> Check:
    """The checker of a place that has none."""
    return "unknown"


class GroupNote(Flow):
    """One independent voice of an audit: what joins its observations, and what it counts (0 to 1)."""

    observations: tuple[str, ...]
    """Ids."""
    joined_by: tuple[str, ...]
    weight: float
    example: str


@dataclass(frozen=True)
class Case:
    """What a policy may look at: a candidate, all observations around it, and a check that it may ask for."""

    candidate: Candidate
    pool: Sequence[Observation] = ()
    checker: Checker = unchecked
    says: Callable[[str, str], Relation] = relation
    """What a text says of a claim."""

    @cached_property
    def evidence(self) -> Evidence:
        return gather(self.candidate, self.pool, self.says)

    @cached_property
    def groups(self) -> int:
        """Independent groups among the candidate's own observations, the cluster taken as it is."""
        return len(dependency_groups(self.candidate.observations, wording=False))

    @cached_property
    def dependency(self) -> Dependency:
        return dependency_of(self.candidate.observations)

    @cached_property
    def notes(self) -> tuple[tuple[GroupNote, ...], tuple[GroupNote, ...]]:
        """What speaks for the claim and what against it, as an audit has them."""
        evidence = self.evidence
        return tuple(map(_note, evidence.supporting)), tuple(map(_note, evidence.contradicting))

    @cached_property
    def check(self) -> Check:
        """The check's result; asked for once, since asking again would not be further evidence."""
        return self.checker(self.candidate)


class Audit(Flow):
    """A decision with all that it rests on, for a person to read and to overrule. `score` ranks within one policy."""

    candidate: str
    claim: str
    environment: str
    policy: str
    decision: Decision
    reasons: tuple[str, ...]
    score: float
    dependency: str
    observations: int
    support: float
    """Effective: independent groups, weighted by trust."""
    groups: tuple[GroupNote, ...] = ()
    against: tuple[GroupNote, ...] = ()
    set_aside: tuple[str, ...] = ()
    check: Check | None = None
    """None where none was asked for."""

    def lines(self) -> list[str]:
        """The record for a terminal. What agents, pages and tools wrote stands in quotes, as JSON, shortened."""
        where = f" in {quoted(self.environment)}" if self.environment else ""
        lines = [
            f"{self.decision.value} ({self.policy}): {quoted(shortened(self.claim, SHOWN_CHARACTERS))}{where}",
            *(f"  because {reason}" for reason in self.reasons),
            f"  {self.observations} observations, {self.dependency}, effective support {self.support:g}",
        ]
        for title, notes in (("for", self.groups), ("against", self.against)):
            for note in notes[:MOST_SHOWN]:
                joined = f", joined by {', '.join(map(quoted, note.joined_by))}" if note.joined_by else ""
                count = len(note.observations)
                lines.append(f"  {title}: {count} observation{'s' * (count > 1)}{joined}, counts {note.weight:g}")
                lines.append(f"    {quoted(note.example)}")
        lines += [f"  not counted: {quoted(reason)}" for reason in self.set_aside[:MOST_SHOWN]]
        if self.check is not None:
            lines.append(f"  check: {self.check}")
        return lines


def audit(case: Case, policy: str, decision: Decision, reasons: Sequence[str], score: float, *, checked: bool) -> Audit:
    """The record of a decision; `checked` where it rests on the check too."""
    supporting, contradicting = case.notes
    return Audit(
        candidate=case.candidate.id,
        claim=case.candidate.claim,
        environment=case.candidate.environment,
        policy=policy,
        decision=decision,
        reasons=tuple(reasons),
        score=score,
        dependency=case.dependency,
        observations=len(case.candidate.observations),
        support=case.evidence.support,
        groups=supporting,
        against=contradicting,
        set_aside=tuple(f"{observation.id}: {reason}" for observation, reason in case.evidence.set_aside),
        check=case.check if checked else None,
    )


def _note(group: Group) -> GroupNote:
    return GroupNote(
        observations=tuple(observation.id for observation in group.observations),
        joined_by=tuple(shortened(key, 60) for key in group.keys),
        weight=group.weight,
        example=shortened(group.observations[0].text, SHOWN_CHARACTERS),
    )


POLICY = "ours"
ENOUGH_SUPPORT = 2.0
"""Effective support that needs no check: two groups that pages, tools or users stand behind, or more weaker ones."""


def write_gate(case: Case, enough: float = ENOUGH_SUPPORT) -> Audit:
    """Our gate. In order: content, hidden instructions, counterevidence, scope, independent support, then the check.

    `enough` is the effective support that promotes without a check.

    It differs from GovMem-verified in what it rests on, not in a threshold: the cluster is only a proposal (strangers
    are set aside, lost observations found again), what an untrusted observation touches counts nothing, and a passed
    check alone promotes nothing that no page, tool or user stands behind.
    """
    rules = (_by_content, _by_instruction, _by_counterevidence, _by_scope, partial(_by_support, enough=enough))
    for rule in rules:
        ruling = rule(case)
        if ruling is not None:
            return audit(case, POLICY, ruling.decision, [ruling.reason], ruling.score, checked=False)
    ruling = _by_check(case)
    return audit(case, POLICY, ruling.decision, [ruling.reason], ruling.score, checked=True)


@dataclass(frozen=True)
class _Ruling:
    decision: Decision
    reason: str
    score: float = 0.0


def _by_content(case: Case) -> _Ruling | None:
    reason = unfit(case.candidate.claim, case.candidate.observations)
    return _Ruling(Decision.REJECT, reason) if reason else None


def _by_instruction(case: Case) -> _Ruling | None:
    """Whoever wrote an instruction into a memory may have written the rest too, so a person looks at it."""
    texts = (case.candidate.claim, *(observation.text for observation in case.candidate.observations))
    found = next(filter(None, map(hidden_instruction, texts)), None)
    if found is None:
        return None
    return _Ruling(Decision.NEEDS_REVIEW, f"it addresses its reader instead of stating something: {quoted(found)}")


def _by_counterevidence(case: Case) -> _Ruling | None:
    """Only opposition that counts: nobody blocks a memory by contradicting it from untrusted places."""
    against, support = case.evidence.opposition, case.evidence.support
    if not against:
        return None
    if against >= support:
        return _Ruling(Decision.REJECT, f"what contradicts it counts {against:g}, what supports it {support:g}")
    reason = f"it is contradicted: {against:g} against {support:g} of effective support"
    return _Ruling(Decision.NEEDS_REVIEW, reason, support - against)


def _by_scope(case: Case) -> _Ruling | None:
    if case.evidence.supporting:
        return None
    return _Ruling(Decision.REJECT, "nothing supports it in the environment where it is to hold")


def _by_support(case: Case, enough: float) -> _Ruling | None:
    evidence = case.evidence
    if evidence.support < enough or not evidence.grounded:
        return None
    reason = f"{len(evidence.supporting)} independent groups support it in scope, uncontradicted"
    return _Ruling(Decision.PROMOTE, reason, ENOUGH_SUPPORT + evidence.support)


def _by_check(case: Case) -> _Ruling:
    """Too little independent support: the check decides, as far as anything trusted was seen at all."""
    evidence, check = case.evidence, case.check
    if check == "failed":
        return _Ruling(Decision.REJECT, "its support is not independent, and the check failed")
    if not evidence.support:
        if check == "passed":
            reason = "the check passed, but all that supports it is untrusted"
            return _Ruling(Decision.NEEDS_REVIEW, reason)
        return _Ruling(Decision.REJECT, "all that supports it is untrusted, and the check could not tell")
    if check == "unknown":
        reason = "its support is not independent, and the check could not tell"
        return _Ruling(Decision.NEEDS_REVIEW, reason, evidence.support)
    if not evidence.grounded:
        reason = "the check passed, but only agents say it: no page, tool or user stands behind it"
        return _Ruling(Decision.NEEDS_REVIEW, reason, evidence.support)
    reason = "its support is not independent, but the check passed"
    return _Ruling(Decision.PROMOTE, reason, ENOUGH_SUPPORT + evidence.support)
