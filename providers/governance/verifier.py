"""What a finished run is worth as experience, from what its agent saw: never from gold or the suite's outcome.

A verifier looks at a run under one view and, where that leaves it uncertain, under two more (MemGuard 3.3, B.1, B.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from pydantic import Field

from providers.governance.descriptor import (
    CRITERIA,
    MIX,
    REPEAT_ABOVE,
    REPEATED_VIEWS,
    Label,
    View,
    confidence,
    expectation,
    label_of_scores,
    label_of_views,
    reward,
    settled_label,
    spread,
    uncertainty,
)
from providers.types import Descriptor, Flow, Outcome, Text, Trajectory

NO_ANSWER, STEP_LIMIT, TOOL_ERROR, ANSWERED = "no answer", "step limit", "tool error", "answered"
"""Categories of what was seen at run time (MemGuard's source_status)."""


_MEANS: Mapping[Label, bool | None] = {"verified_success": True, "verified_fail": False, "uncertain": None}


class CriterionScore(Flow):
    """One criterion under one view: a distribution over the score tokens, why, and words of the run that show it."""

    distribution: tuple[float, ...] = Field(min_length=3, max_length=10)
    """Over equally spaced tokens; five unless the scale itself is what is studied (MemGuard C.5)."""
    rationale: Text = ""
    evidence: Text = ""

    @property
    def score(self) -> int:
        """The likeliest score on the scale of 1 to 5; of equals the lower one."""
        likeliest = self.distribution.index(max(self.distribution))
        return round(1 + 4 * likeliest / (len(self.distribution) - 1))


class Look(Flow):
    """One view of a run: scores in the order of `CRITERIA`, and the label that the verifier stated."""

    view: View
    criteria: tuple[CriterionScore, ...] = Field(min_length=len(CRITERIA), max_length=len(CRITERIA))
    stated: str
    failure_guard: Text = ""

    @property
    def means(self) -> tuple[float, ...]:
        return tuple(expectation(criterion.distribution) for criterion in self.criteria)

    def label(self, blocked: bool) -> Label:
        """The stated label, uncertain where the scores contradict it."""
        return settled_label(self.stated, label_of_scores([each.score for each in self.criteria], blocked))


class Verdict(Flow):
    """What a verifier says of a run, with the looks that it rests on."""

    reward: float = Field(ge=0, le=1)
    confidence: float = Field(ge=0, le=1)
    uncertainty: float = Field(ge=0, le=1)
    label: Label
    source_status: str
    failure_guard: Text = ""
    looks: tuple[Look, ...] = ()
    verified_at: float
    """When the verified run ended, in seconds since 1970: the same run gives the same verdict at any time."""

    def outcome(self) -> Outcome:
        """The label in the place of an outcome; unknown where it is uncertain."""
        return Outcome(correct=_MEANS[self.label], source="verifier")

    def descriptor(self) -> Descriptor:
        """What is kept with every record of the run."""
        return Descriptor(
            reward=self.reward,
            confidence=self.confidence,
            label=self.label,
            verified_at=self.verified_at,
            uncertainty=self.uncertainty,
            support=1.0,
        )


class Looker(Protocol):
    """Scores a run under one view. Raises ModelError where a model is asked and fails."""

    async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
        """`order` is the order in which the criteria are asked for."""
        ...


class Verifier:
    """Runs the views of MemGuard 3.3 over a looker. The verdict on a trajectory is given once and kept, so that every
    provider that is offered it has the same one."""

    KEPT = 256

    def __init__(
        self,
        looker: Looker,
        *,
        repeat: bool = True,
        masked: bool = False,
        weights: Sequence[float] | None = None,
        mix: float = MIX,
    ) -> None:
        """`repeat` False never asks for further views; `masked` hides the signs seen at run time (MemGuard C.8);
        `mix` is alpha of equation 2."""
        self._looker = looker
        self._repeat = repeat
        self._masked = masked
        self._weights = weights
        self._mix = mix
        self._known: dict[str, Verdict] = {}

    async def verify(self, trajectory: Trajectory) -> Verdict:
        """Reward, confidence, uncertainty and label of a run. Raises ModelError."""
        known = self._known.get(trajectory.id)
        if known is not None:
            return known
        seen = trajectory.model_copy(update={"status": ()}) if self._masked else trajectory
        looks = [await self._looker.look(seen, "full", CRITERIA)]
        if self._repeat and uncertainty(_means(looks), self._weights, self._mix) > REPEAT_ABOVE:
            for turn, view in enumerate(REPEATED_VIEWS, 1):
                order = (*CRITERIA[turn:], *CRITERIA[:turn])
                looks.append(await self._looker.look(seen, view, order))
        verdict = self._verdict(seen, looks)
        if len(self._known) >= self.KEPT:
            self._known.pop(next(iter(self._known)))
        self._known[trajectory.id] = verdict
        return verdict

    def _verdict(self, trajectory: Trajectory, looks: Sequence[Look]) -> Verdict:
        blocked = not (trajectory.answer or "").strip()
        labels = [look.label(blocked) for look in looks]
        label = label_of_views(labels)
        means = _means(looks)
        spreads = [spread(each.distribution) for look in looks for each in look.criteria]
        text = transcript(trajectory)
        shares = [grounded_share([each.evidence for each in look.criteria], text) for look in looks]
        return Verdict(
            reward=reward(means, self._weights),
            confidence=confidence(labels, means, spreads, shares, label),
            uncertainty=uncertainty(means, self._weights, self._mix),
            label=label,
            source_status=source_status(trajectory),
            failure_guard=next((look.failure_guard for look in reversed(looks) if look.failure_guard), ""),
            looks=tuple(looks),
            verified_at=max((step.started + step.seconds for step in trajectory.steps), default=0.0),
        )


class Transcript:
    """The words of a run, to look quotations up in."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._parts = parts

    @cached_property
    def _text(self) -> str:
        return "\n".join(" ".join(part.split()) for part in self._parts).casefold()

    def holds(self, span: str) -> bool:
        """Whether the run has these words, whatever their case and spacing; no words are in no run."""
        words = " ".join(span.split()).casefold().strip("\"' ")
        return bool(words) and words != "none" and words in self._text


def transcript(trajectory: Trajectory) -> Transcript:
    """All that stands in a run."""
    parts = [trajectory.question, trajectory.answer or "", *trajectory.status]
    for step in trajectory.steps:
        parts += [step.thought, step.tool, *map(str, step.arguments.values()), step.observation, step.error or ""]
    return Transcript(parts)


def grounded_share(spans: Sequence[str], text: Transcript) -> float:
    """The share of quoted spans that stand in the run, 0 to 1."""
    return sum(text.holds(span) for span in spans) / len(spans)


def source_status(trajectory: Trajectory) -> str:
    """The category of what was seen at run time."""
    if not (trajectory.answer or "").strip():
        return NO_ANSWER
    if "step limit reached" in trajectory.status:
        return STEP_LIMIT
    return TOOL_ERROR if any(step.error for step in trajectory.steps) else ANSWERED


def ordered(scores: Mapping[str, CriterionScore]) -> tuple[CriterionScore, ...]:
    """Scores by name in the order of `CRITERIA`."""
    return tuple(scores[name] for name in CRITERIA)


def _means(looks: Sequence[Look]) -> np.ndarray:
    return np.asarray([look.means for look in looks])
