"""The write gate before admission: what the runs behind a record saw of it, as the evidence that the gate counts.

A record is a candidate memory. Each of its runs gives one observation of it, with the lineage of the page or tool that
the run had it from, so runs that read one source, or repeat what they were told, count once. What other records of the
space say of the same things counts, too: one lesson is seldom worded twice alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers.governance.admission import Admission
from providers.governance.content import hidden_instruction
from providers.governance.evidence import (
    COPY_WORDS,
    Candidate,
    Observation,
    Relation,
    dependency_groups,
    dependency_keys,
    effective_support,
    observations_of,
    relation,
    wording_of,
)
from providers.governance.gate import Audit, Case, Decision, write_gate
from providers.lexical import tokenise
from providers.redaction import redact
from providers.space import Space
from providers.types import Record, Trajectory, content_hash

GATED = ("active", "guard", "candidate")
"""States whose records are evidence, too; a record outside of them was refused."""
CLAIM_CHARACTERS = 600
LEAST_SHARE = 0.25
"""Share of a claim's terms that an observation must have, for the claim to have come from it (ours)."""
MOST_OBSERVATIONS = 64
"""Most observations that are kept with one record."""
_UNSAID = frozenset(("code", "code_id", "edited_from", "reject_reason", "source_status"))
"""Parts of payloads that make no claim."""
_NAMED = re.compile(r'"([^"]+)"')
_ASIDE = re.compile(r'"[^"]+"|\([^()]*\)')


def claim_of(record: Record) -> str:
    """What a record says: its content, or else all that its payload says; at most 600 characters."""
    content = record.payload.get("content")
    said = content if isinstance(content, str) and content.strip() else "\n".join(_strings(record.payload))
    return (said or record.text)[:CLAIM_CHARACTERS]


def observed(record: Record, trajectory: Trajectory) -> Observation:
    """What one run saw of a record, with the lineage of the step that has most of the claim's terms.

    Where no step has enough of them, or the claim was injected into the run (an echo), the agent alone says it.
    """
    claim = claim_of(record)
    found = Observation(
        id=trajectory.id,
        text=redact(claim)[0],
        prompt_family=f"{trajectory.agent}:{content_hash(trajectory.settings)}",
        agent=trajectory.agent,
    )
    words = wording_of(claim)
    if len(words.split()) >= COPY_WORDS and _was_told(words, trajectory):
        return found.model_copy(update={"parent": f"echo {content_hash(words)}"})
    seen = _nearest(claim, [each for each in observations_of(trajectory) if each.trust != "model"])
    if seen is None:
        return found
    lineage = ("source", "tool", "environment", "agent", "trust", "edit")
    return found.model_copy(update={"parent": seen.parent, **{name: getattr(seen, name) for name in lineage}})


def joined(known: Sequence[Observation], new: Sequence[Observation]) -> tuple[Observation, ...]:
    """All observations, each run's once, at most 64.

    Above that, those go first that depend on nothing that an earlier one does not; then the newest. So a crowd can keep
    others from being counted, but never counts for more itself.
    """
    every: dict[str, Observation] = {}
    for observation in (*known, *new):
        every.setdefault(observation.id, observation)
    if len(every) <= MOST_OBSERVATIONS:
        return tuple(every.values())
    kept: list[tuple[Observation, set[str]]] = []
    for observation in every.values():
        keys = set(dependency_keys(observation))
        if not any(keys <= others for _, others in kept):
            kept.append((observation, keys))
    return tuple(observation for observation, _ in kept[:MOST_OBSERVATIONS])


def support_of(observations: Sequence[Observation]) -> float:
    """Effective support: what depends on one another counts once (GovMem, section III)."""
    return effective_support(dependency_groups(observations))


def case_of(space: Space, record: Record) -> Case:
    """A record as the gate sees it: its own observations, and those of others in the space that speak of the same."""
    claim = claim_of(record)
    own = record.descriptor.observations if record.descriptor is not None else ()
    environments = [observation.environment for observation in own if observation.environment]
    environment = max(environments, key=environments.count) if environments else ""
    candidate = Candidate(id=record.id, claim=claim, environment=environment, observations=own)
    return Case(candidate, tuple(_others(claim, space, record)), says=says_of)


def says_of(claim: str, text: str) -> Relation:
    """What one lesson says of another: they name the same quoted things, then as `relation` by what is said of these.

    Quoted names are held against each other apart: lessons that differ in the one thing that they name share most of
    their other words, and would else support each other. What stands in brackets is left out.
    """
    if claim == text:
        return "supports"
    named, others = set(_NAMED.findall(claim)), set(_NAMED.findall(text))
    if not named and not others:
        return relation(claim, text)
    fewer, more = sorted((named, others), key=len)
    if not fewer or not fewer <= more:
        return "unrelated"
    found = relation(_ASIDE.sub(" ", claim), _ASIDE.sub(" ", text))
    return found if found != "supports" or named == others else "unrelated"


def audited(space: Space, record: Record) -> Audit:
    """The gate's decision on a record as it stands, with what it rests on."""
    audit = write_gate(case_of(space, record))
    if audit.decision is Decision.REJECT:
        return audit
    found = next(filter(None, map(hidden_instruction, _strings(record.payload))), None)
    if found is None or audit.decision is Decision.NEEDS_REVIEW:
        return audit
    reason = "a part of it addresses its reader instead of stating something"
    return audit.model_copy(update={"decision": Decision.NEEDS_REVIEW, "reasons": (reason,)})


def gated(found: Admission, audit: Audit) -> Admission:
    """The state that admission found, as far as the gate lets the record there."""
    said = f"{'; '.join(audit.reasons)} ({audit.observations} runs, {audit.dependency}, support {audit.support:g})"
    if audit.decision is Decision.REJECT:
        return Admission("rejected", f"refused by the write gate: {said}")
    if audit.decision is Decision.NEEDS_REVIEW and found.state in ("active", "guard"):
        return Admission("candidate", f"held back by the write gate: {said}")
    return Admission(found.state, f"{found.reason}; write gate: {said}")


def _was_told(words: str, trajectory: Trajectory) -> bool:
    """Whether long-term memory said these words to the run at its begin."""
    return any(words in wording_of(shown.text) for shown in trajectory.injections if shown.phase == "begin")


def _nearest(claim: str, observations: Sequence[Observation]) -> Observation | None:
    """The observation with the largest share of the claim's terms, of equals the latest; None where none has enough."""
    terms = set(tokenise(claim))
    best: tuple[float, Observation | None] = (LEAST_SHARE, None)
    for observation in observations:
        share = len(terms & set(tokenise(observation.text))) / len(terms) if terms else 0.0
        if share >= best[0]:
            best = (share, observation)
    return best[1]


def _others(claim: str, space: Space, record: Record) -> Iterator[Observation]:
    for other in space.records(state=GATED):
        if other.id == record.id or other.descriptor is None:
            continue
        for observation in other.descriptor.observations:
            if says_of(claim, observation.text) != "unrelated":
                yield observation.model_copy(update={"id": f"{other.id}:{observation.id}"})


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if key not in _UNSAID:
                yield from _strings(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _strings(part)
