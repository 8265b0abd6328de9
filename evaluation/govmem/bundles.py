"""Makes bundles of candidate memories from the specification: what policies see, and the truth apart from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from evaluation.govmem.spec import Kind, Shared, Spec
from evaluation.statistics import seeded
from providers.governance.evidence import Candidate, Observation, Trust
from providers.governance.gate import Check, Checker
from providers.types import content_hash

SERVICES = (
    "kestrel heron osprey plover curlew dunlin whimbrel sandpiper godwit lapwing turnstone avocet redshank greenshank "
    "phalarope sanderling dotterel oystercatcher bittern egret spoonbill crake moorhen gadwall wigeon pintail shoveler "
    "garganey pochard scaup eider smew goosander merganser fulmar shearwater gannet cormorant guillemot razorbill"
).split()
SETTINGS = (
    "retry limit",
    "idle timeout",
    "batch size",
    "cache capacity",
    "worker count",
    "listening port",
    "queue depth",
    "page length",
    "token quota",
    "backoff ceiling",
    "shard count",
    "heartbeat interval",
    "log retention",
    "upload ceiling",
    "connection pool",
    "snapshot period",
)
PHRASES = (
    "The {setting} of {service} is {value}.",
    "{service}: {setting} {value}",
    "For {service} the {setting} was {value} in the response.",
    "{value} is the {setting} that {service} has.",
    "On {service}, {setting} = {value}.",
    "{service} has its {setting} at {value}.",
    "Output for {service}: {setting} -> {value}",
)
Choice = TypeVar("Choice", bound=str)

CONFIDENCE_NOISE = 0.03
"""Deviation of one observation's confidence from its candidate's."""


@dataclass(frozen=True)
class Truth:
    """What no policy sees: a candidate's kind, whether it holds, and its claim (the same for halves of one)."""

    kind: str
    valid: bool
    claim: str


@dataclass(frozen=True)
class Bundle:
    """Candidates of one stretch of traces, all observations around them, the check; the truth by candidate id."""

    candidates: tuple[Candidate, ...]
    pool: tuple[Observation, ...]
    checker: Checker
    truths: Mapping[str, Truth]


@dataclass
class _Draft:
    """A candidate before clustering noise."""

    truth: Truth
    claim: str
    environment: str
    observations: list[Observation]


def make_bundles(spec: Spec, seed: int, noise: float | None = None) -> list[Bundle]:
    """The bundles of one seed. Those of two noise levels differ in the clustering alone."""
    share = spec.clustering_noise if noise is None else noise
    return [_bundle(spec, seed, number, share) for number in range(spec.bundles)]


def _bundle(spec: Spec, seed: int, number: int, noise: float) -> Bundle:
    maker = _Maker(seeded(seed, "govmem", spec.version, number))
    drafts = [maker.draft(name, kind) for name, kind in spec.kinds.items() for _ in range(kind.count)]
    pool = tuple(observation for draft in drafts for observation in draft.observations) + tuple(maker.around)
    checks = {draft.truth.claim: maker.check(spec, draft.truth.valid) for draft in drafts}
    random = seeded(seed, "govmem clustering", spec.version, number)
    clustered = _clustered(drafts, noise, random)
    order = random.permutation(len(clustered))
    pairs = [
        (_candidate(seed, number, place, clustered[index]), clustered[index].truth) for place, index in enumerate(order)
    ]
    truths = {candidate.id: truth for candidate, truth in pairs}
    results: dict[str, Check] = {id: checks[truth.claim] for id, truth in truths.items()}
    shuffled = tuple(pool[index] for index in random.permutation(len(pool)))
    return Bundle(tuple(candidate for candidate, _ in pairs), shuffled, lambda asked: results[asked.id], truths)


def _candidate(seed: int, number: int, place: int, draft: _Draft) -> Candidate:
    return Candidate(
        id=content_hash(seed, number, place),
        claim=draft.claim,
        environment=draft.environment,
        observations=tuple(draft.observations),
    )


def _clustered(drafts: list[_Draft], noise: float, random: np.random.Generator) -> list[_Draft]:
    """Clustering at fault in a share of the candidates: one in two is split, the other takes in half of a third's."""
    result: list[_Draft] = []
    for draft in drafts:
        own = list(draft.observations)
        faulty, split = random.random() < noise, random.random() < 0.5
        stranger = drafts[int(random.integers(len(drafts)))]
        if faulty and split:
            half = len(own) // 2
            result.append(_Draft(draft.truth, draft.claim, draft.environment, own[half:]))
            own = own[:half]
        elif faulty and stranger is not draft:
            own += stranger.observations[: (len(stranger.observations) + 1) // 2]
        result.append(_Draft(draft.truth, draft.claim, draft.environment, own))
    return result


class _Maker:
    """Draws the candidates of one bundle; every claim is about a thing of its own."""

    def __init__(self, random: np.random.Generator) -> None:
        self.around: list[Observation] = []
        """Observations that belong to no candidate: counterevidence, and what narrows."""
        self._random = random
        self._things = [(service, setting) for service in SERVICES for setting in SETTINGS]
        random.shuffle(self._things)
        self._made = 0

    def draft(self, name: str, kind: Kind) -> _Draft:
        service, setting = self._things.pop()
        major = int(self._random.integers(2, 9))
        environment = f"{service}@{major}"
        seen_in = {"target": environment, "older": f"{service}@{major - 1}", "other": f"{service}-lab@{major}"}
        value, otherwise = (int(v) for v in self._random.choice(np.arange(2, 900), size=2, replace=False))
        thing = {"service": service, "setting": setting}
        fewest, most = kind.observations
        shared: Shared = kind.shared[int(self._random.integers(len(kind.shared)))]
        observations = self._observations(
            kind,
            int(self._random.integers(fewest, most + 1)),
            shared,
            thing | {"value": str(value)},
            seen_in[kind.environment],
        )
        against = thing | {"value": str(otherwise)}
        if self._random.random() < kind.contradicted:
            self.around += [self._one(kind, against, environment, "page") for _ in range(2)]
        if self._random.random() < kind.narrowed:
            self.around.append(
                self._one(kind, against, seen_in["other"] if kind.environment != "other" else environment, "page")
            )
        claim = self._said(thing | {"value": str(value)})
        return _Draft(Truth(name, kind.valid, content_hash(claim)), claim, environment, observations)

    def check(self, spec: Spec, valid: bool) -> Check:
        rates = spec.check.valid if valid else spec.check.invalid
        return self._drawn(rates)

    def _observations(
        self, kind: Kind, count: int, shared: Shared, said: dict[str, str], environment: str
    ) -> list[Observation]:
        mean = float(self._random.normal(*kind.confidence))
        common = self._name()
        found = []
        for _ in range(count):
            trust: Trust = "tool" if shared == "tool" else self._drawn(kind.trust)
            observation = self._one(kind, said, environment, trust, mean)
            update: dict[str, object] = {} if shared == "nothing" else {_FIELD[shared]: f"{shared}-{common}"}
            if kind.sources == "one":
                update["source"] = f"https://notes.example/{common}"
            found.append(observation.model_copy(update=update))
        if self._random.random() < kind.repeated:
            copied = found[int(self._random.integers(len(found)))]
            found.append(copied.model_copy(update={"id": self._name(), "agent": f"agent-{self._name()}"}))
        return found

    def _one(
        self, kind: Kind, said: dict[str, str], environment: str, trust: Trust, confidence: float = 0.7
    ) -> Observation:
        stated = confidence + float(self._random.normal(0, CONFIDENCE_NOISE))
        return Observation(
            id=self._name(),
            text=self._said(said),
            source=f"https://notes.example/{self._name()}",
            tool=f"tool-{self._name()}" if trust == "tool" else "",
            prompt_family=f"prompt-{self._name()}",
            environment=environment,
            agent=f"agent-{self._name()}",
            trust=trust,
            confidence=min(1.0, max(0.0, stated)),
        )

    def _said(self, thing: dict[str, str]) -> str:
        return PHRASES[int(self._random.integers(len(PHRASES)))].format(**thing)

    def _name(self) -> str:
        self._made += 1
        return content_hash(int(self._random.integers(1 << 62)), self._made)[:8]

    def _drawn(self, chances: Mapping[Choice, float]) -> Choice:
        names = list(chances)
        return names[int(self._random.choice(len(names), p=[chances[name] for name in names]))]


_FIELD: dict[Shared, str] = {"source": "source", "prompt": "prompt_family", "tool": "tool", "parent": "parent"}
