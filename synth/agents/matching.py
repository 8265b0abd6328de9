"""The one generic matcher of the case-based agent: how well a link, label or site fits the question and the memory."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from providers.types import SkillSpec
from synth.agents.pages import Hit
from synth.agents.reading import Advice, Operation, Question, word_keys

MEMORY_WEIGHT = 0.8
"""What the memory's word counts beside the question's."""
TRUST_GAP = 0.1
"""How much better another site must suit before a page is not believed."""
RANK_COST = 0.06
"""What one rank further down a list of search results costs."""
SKILL_FIT = 0.5
"""Least share of a skill's own words that the question must hold before the skill is called."""
_OPERATION_WORDS = {
    "value": frozenset[str](),
    "extreme": word_keys("compare largest smallest"),
    "count": word_keys("count number many"),
}
"""What the operation asked for is called, whatever the question's own words for it."""


class Matcher:
    """Scores texts against one question and one memory; `jitter` is the seeded noise that makes repeats differ."""

    def __init__(self, question: Question, advice: Advice, noise: float, source: random.Random) -> None:
        self.question = question
        self.advice = advice
        self.spent: frozenset[str] = frozenset()
        """Question words that served to find whose page it is; they name no field wanted."""
        self._noise = noise
        self._random = source
        self._advice_on: dict[str, float] = {}

    def jitter(self) -> float:
        return self._random.gauss(0.0, self._noise)

    def rate(self, text: str) -> float:
        """How well a link or label fits the question and the memory's words."""
        return self.coverage(text) + MEMORY_WEIGHT * self._advised(text)

    def rate_hit(self, hit: Hit, rank: int) -> float:
        """A search result: the site that it stands on, its section, the label of its snippet, its rank."""
        label = hit.gist.partition(" - ")[2].partition(": ")[0]
        return (
            self.rate(hit.site)
            + 0.5 * self.rate(hit.title.partition(": ")[2])
            + 0.5 * self.rate(label if len(label) < 60 else "")
            - RANK_COST * rank
        )

    def coverage(self, text: str) -> float:
        """Share of a text's words that stand in the question; words after ` - ` count half."""
        weights = _weighed_words(text)
        total = sum(weights.values())
        wanted = self.question.words - self.spent
        return sum(w for word, w in weights.items() if word in wanted) / total if total else 0.0

    def relevance(self, cue: frozenset[str]) -> float:
        """Share of a memory line's own words that stand in the question, scaled to [0, 1]."""
        return min(1.0, 2.5 * len(cue & self.question.words) / len(cue)) if cue else 0.0

    def distrusts(self, site: str, seen: set[str]) -> bool:
        """Whether another site seen in this run suits the question and the memory's advice clearly better."""
        rates = {name: self.rate(name) for name in seen | {site} if name}
        return bool(site) and rates[site] < max(0.0, *rates.values()) - TRUST_GAP

    def choose_skill(
        self, skills: tuple[SkillSpec, ...], operation: Operation
    ) -> tuple[SkillSpec, dict[str, Any]] | None:
        """The skill whose own words the question holds best, with its arguments; None where none fits or binds."""
        known = self.question.words | _OPERATION_WORDS[operation.kind]
        best: tuple[float, SkillSpec, dict[str, Any]] | None = None
        for skill in skills:
            words = word_keys(skill.name.replace("_", " "))
            fit = len(words & known) / len(words) if words else 0.0
            arguments = bind_arguments(skill, self.question, operation)
            if arguments is not None and fit >= SKILL_FIT and (best is None or fit > best[0]):
                best = (fit, skill, arguments)
        return None if best is None else best[1:]

    def _advised(self, text: str) -> float:
        """What the memory says of a name like this one: the best word for it plus the worst against it."""
        name = text.rsplit(": ", 1)[-1]
        if name not in self._advice_on:
            self._advice_on[name] = self._weigh_advice(word_keys(name))
        return self._advice_on[name]

    def _weigh_advice(self, words: frozenset[str]) -> float:
        best, worst = 0.0, 0.0
        for mention in self.advice.mentions:
            union = len(words | mention.words)
            likeness = len(words & mention.words) / union if union else 0.0
            if likeness < 0.5:
                continue
            value = likeness**2 * mention.weight * (0.6 + 0.4 * self.relevance(mention.cue))
            best, worst = max(best, value), min(worst, value)
        return best + worst


@lru_cache(maxsize=65536)
def _weighed_words(text: str) -> Mapping[str, float]:
    head, _, tail = text.partition(" - ")
    return dict.fromkeys(word_keys(tail), 0.5) | dict.fromkeys(word_keys(head), 1.0)


def bind_arguments(skill: SkillSpec, question: Question, operation: Operation) -> dict[str, Any] | None:
    """A skill's arguments from the question's names, threshold and direction; None where they do not fit."""
    names = list(question.names)
    arguments: dict[str, Any] = {}
    for parameter in skill.parameters:
        if parameter.type == "list":
            if len(names) < 2:
                return None
            arguments[parameter.name], names = names, []
        elif parameter.type in ("float", "int"):
            if operation.threshold is None:
                return None
            arguments[parameter.name] = operation.threshold
        elif parameter.name == "direction":
            if not operation.direction:
                return None
            arguments[parameter.name] = "largest" if operation.direction > 0 else "smallest"
        elif names:
            arguments[parameter.name] = names.pop(0)
        else:
            return None
    return None if names and operation.kind != "value" else arguments
