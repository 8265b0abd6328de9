"""What stands behind a candidate memory: observations, grouped by what they depend on (GovMem, section III).

Repetition is not evidence. Observations that share a source, a parent event, a tool's run, a prompt or an author are
one group and count once; what was seen in another environment, or an older version of it, does not count at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from providers.lexical import STOP_WORDS, stem, words
from providers.types import Edit, Flow, Step, Text, Trajectory, content_hash
from providers.types import Observation as Observation
from providers.types import Trust as Trust

Relation = Literal["supports", "contradicts", "unrelated"]
Scope = Literal["same", "older", "other", "unknown"]
Dependency = Literal["independent", "copied_source", "echo", "shared_prompt", "shared_tool", "low_trust", "unknown"]

TRUST_WEIGHT: dict[Trust, float] = {"tool": 1.0, "page": 1.0, "user": 1.0, "model": 0.5, "untrusted": 0.0}
"""What one independent group counts, by its most trusted member (ours: the paper gives no weights)."""
GROUNDED = frozenset({"tool", "page", "user"})

UNKNOWN = "unknown lineage"
"""What all observations share that say nothing of where they come from."""
COPY_WORDS = 8
"""Agents who use the same wording of at least so many words copy one another, whatever lineage they claim."""
SAME_SUBJECT = 0.8
"""Share of the shorter statement's words that the other must have, to be about the same thing."""

_NEGATION = frozenset("not no never cannot without isn doesn don didn won aren wasn neither nor".split())
_UNSAID = STOP_WORDS | _NEGATION | {"s", "t"}
_EDITING = re.compile(r"edit|write|patch|apply|insert|replace|create|delete", re.IGNORECASE)
_UNCHANGED = re.compile(
    r"no changes|not applied|patch failed|hunk.*failed|nothing to (?:do|change)|error:", re.IGNORECASE
)


class Candidate(Flow):
    """A memory that is proposed: the claim, where it is to hold, and the observations it was made of."""

    id: str
    claim: Text
    environment: str = ""
    observations: tuple[Observation, ...]


@dataclass(frozen=True)
class Group:
    """Observations that depend on one another; `keys` says on what."""

    observations: tuple[Observation, ...]
    keys: tuple[str, ...]

    @property
    def weight(self) -> float:
        """0 to 1: what the group counts. What shares anything with an untrusted observation counts nothing."""
        weights = [TRUST_WEIGHT[observation.trust] for observation in self.observations]
        return max(weights) if min(weights) > 0 else 0.0

    @property
    def grounded(self) -> bool:
        return any(observation.trust in GROUNDED for observation in self.observations)


def observations_of(trajectory: Trajectory) -> list[Observation]:
    """One observation per step that saw something, from the step's lineage.

    A text that was already injected into the run has the injection as its parent: a memory that is met again in an
    agent's own words is an echo of itself.
    """
    found = []
    injected = [(injection, wording_of(injection.text)) for injection in trajectory.injections]
    for step in trajectory.steps:
        text = step.observation or step.thought
        if not text:
            continue
        lineage, wording = step.lineage, wording_of(text)
        echoed = (i for i, shown in injected if len(wording.split()) >= COPY_WORDS and wording in shown)
        parent = next((f"{i.provider}:{content_hash(i.text)}" for i in echoed), "")
        trust: Trust = lineage.trust if lineage and step.observation else "model"
        found.append(
            Observation(
                id=f"{trajectory.id}:{step.index}",
                text=text,
                source=lineage.source if lineage else "",
                tool=step.tool if trust == "tool" else "",
                prompt_family=f"{trajectory.agent}:{content_hash(trajectory.settings)}",
                parent=parent,
                environment=lineage.environment if lineage else "",
                agent=(lineage.agent if lineage else "") or trajectory.agent,
                trust=trust,
                edit=_edit(step),
            )
        )
    return found


def relation(claim: str, text: str) -> Relation:
    """What a text says of a claim, by words: about the same thing, then the same numbers and the same polarity.

    Numbers are compared where the claim has some. Lexical on purpose (no model, same answer everywhere): a paraphrase
    in other words is unrelated, which costs support and never adds any.
    """
    said, seen = _statement(claim), _statement(text)
    shorter = min(len(said.words), len(seen.words))
    if not shorter or len(said.words & seen.words) < SAME_SUBJECT * shorter:
        return "unrelated"
    if said.numbers and not seen.numbers:
        return "unrelated"
    if said.negated != seen.negated or not said.numbers <= seen.numbers:
        return "contradicts"
    return "supports"


def scope_of(observed: str, target: str) -> Scope:
    """Whether what was observed in one environment holds in another; both are `name` or `name@version`."""
    if not observed or not target:
        return "unknown"
    (name, _, version), (wanted, _, needed) = observed.partition("@"), target.partition("@")
    if name != wanted:
        return "other"
    if not needed or version == needed:
        return "same"
    if not version:
        return "unknown"
    return "older" if _order(version) < _order(needed) else "other"


def dependency_groups(observations: Sequence[Observation], *, wording: bool = True) -> list[Group]:
    """Observations that share a dependency, directly or through others, in the order of their first member.

    A page or a tool's output does not depend on who asked for it and has one form for all, so author, prompt and
    wording join only what agents and users say. `wording` False leaves out our own key: the same words.
    """
    leader = list(range(len(observations)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    first: dict[str, int] = {}
    shared: dict[int, list[str]] = {}
    for index, observation in enumerate(observations):
        for key in dependency_keys(observation, wording=wording):
            earlier = first.setdefault(key, index)
            if earlier != index:
                shared.setdefault(earlier, []).append(key)
                leader[find(index)] = find(earlier)
    members: dict[int, list[int]] = {}
    for index in range(len(observations)):
        members.setdefault(find(index), []).append(index)
    return [
        Group(
            tuple(observations[index] for index in group),
            tuple(sorted({key for index in group for key in shared.get(index, ())})),
        )
        for group in members.values()
    ]


def dependency_keys(observation: Observation, *, wording: bool = True) -> list[str]:
    """What another observation must not share with this one, to count beside it."""
    keys = [
        f"{name} {value}"
        for name, value in (
            ("source", observation.source),
            ("parent", observation.parent),
            ("tool", observation.tool),
        )
        if value
    ]
    said = observation.trust not in ("tool", "page")
    if said:
        keys += [f"prompt {observation.prompt_family}"] if observation.prompt_family else []
        keys += [f"agent {observation.agent}"] if observation.agent else []
    if not keys:
        keys = [UNKNOWN]
    if wording and said and len((words := wording_of(observation.text)).split()) >= COPY_WORDS:
        keys.append(f"wording {words}")
    return keys


def effective_support(groups: Iterable[Group]) -> float:
    """Independent groups, each by its weight: 0 upwards, never more than their number."""
    return sum(group.weight for group in groups)


def dependency_of(observations: Sequence[Observation]) -> Dependency:
    """The one word for a candidate's support (table II of the paper): the dependency that joins most of it."""
    if sum(observation.trust == "untrusted" for observation in observations) * 2 > len(observations):
        return "low_trust"
    groups = dependency_groups(observations, wording=False)
    if sum(dependency_keys(o, wording=False) == [UNKNOWN] for o in observations) * 2 > len(observations):
        return "unknown"
    if len(groups) == len(observations):
        return "independent"
    joined = Counter(key.split()[0] for group in groups for key in group.keys)
    words: dict[str, Dependency] = {
        "source": "copied_source",
        "parent": "echo",
        "agent": "echo",
        "prompt": "shared_prompt",
        "tool": "shared_tool",
    }
    return words.get(joined.most_common(1)[0][0], "unknown")


@dataclass(frozen=True)
class Evidence:
    """All that speaks for and against a claim in its scope, and what does not count with the reason for it."""

    supporting: tuple[Group, ...]
    contradicting: tuple[Group, ...]
    set_aside: tuple[tuple[Observation, str], ...]

    @property
    def support(self) -> float:
        return effective_support(self.supporting)

    @property
    def opposition(self) -> float:
        return effective_support(self.contradicting)

    @property
    def grounded(self) -> bool:
        return any(group.grounded for group in self.supporting)


def gather(
    candidate: Candidate, pool: Sequence[Observation], says: Callable[[str, str], Relation] = relation
) -> Evidence:
    """Search the candidate's observations and the whole pool for what supports and what contradicts its claim.

    `says` tells what a text says of a claim.
    The cluster that a candidate came with is only a proposal: members about something else are set aside, and what was
    put into another cluster by mistake is found again.
    """
    supporting: list[Observation] = []
    contradicting: list[Observation] = []
    aside: list[tuple[Observation, str]] = []
    own = {observation.id for observation in candidate.observations}
    everything = {observation.id: observation for observation in (*candidate.observations, *pool)}
    for observation in everything.values():
        said = says(candidate.claim, observation.text)
        if said == "unrelated":
            if observation.id in own:
                aside.append((observation, "about something else"))
            continue
        scope = scope_of(observation.environment, candidate.environment)
        if scope in ("older", "other"):
            narrowing = "supports it" if said == "supports" else "narrows it: contradicts it"
            where = "an older version" if scope == "older" else "another environment"
            aside.append((observation, f"{narrowing} in {where} ({observation.environment})"))
        elif said == "supports":
            supporting.append(observation)
        else:
            contradicting.append(observation)
    return Evidence(tuple(dependency_groups(supporting)), tuple(dependency_groups(contradicting)), tuple(aside))


@dataclass(frozen=True)
class _Statement:
    words: frozenset[str]
    numbers: frozenset[str]
    negated: bool


@lru_cache(maxsize=65_536)
def _statement(text: str) -> _Statement:
    tokens = words(text)
    said = [token for token in tokens if not token[0].isdigit()]
    return _Statement(
        words=frozenset(stem(token) for token in said if token not in _UNSAID),
        numbers=frozenset(token for token in tokens if token[0].isdigit()),
        negated=not _NEGATION.isdisjoint(said),
    )


@lru_cache(maxsize=65_536)
def wording_of(text: str) -> str:
    """The words of a text in order, whatever stands between them."""
    return " ".join(words(text))


def _order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Version parts in a form that compares: numbers as numbers, before words."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"[.\-_]", version))


def _edit(step: Step) -> Edit:
    if not _EDITING.search(step.tool):
        return "none"
    return "failed" if step.error is not None or _UNCHANGED.search(step.observation) else "applied"
