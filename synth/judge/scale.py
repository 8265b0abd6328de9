"""What a judge scores: dimensions with their weights and anchors per decision, and how scores become a reward.

The weights and most anchors are ours: the tables of the paper (MemAgent Tables 8 and 9) did not survive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from providers.errors import JudgeError
from providers.types import Flow

JudgedPhase = Literal["begin", "query", "no_op", "end"]

TOP = 5


@dataclass(frozen=True)
class Dimension:
    """One thing that is scored 0 to 5; of an inverted one 0 is the best."""

    name: str
    weight: float
    asks: str
    """The question that its score answers."""
    anchors: tuple[str, str, str, str, str, str]
    """What each score from 0 to 5 stands for."""
    inverted: bool = False


_RELEVANCE = (
    "empty, or about something else",
    "shares words only",
    "loosely related",
    "related, and partly needed",
    "most of what is needed",
    "exactly what is needed",
)
_UTILIZATION = (
    "memory ignored",
    "a faint echo of it",
    "one weak link to it",
    "plausible use, other causes possible",
    "clear use in one step",
    "plan or answer clearly built on it",
)
_PROGRESS = (
    "no progress",
    "trivial",
    "small, or of unclear cause",
    "a useful step",
    "a clear advance",
    "a decisive advance",
)
_NOISE = (
    "none",
    "one idle phrase",
    "mildly distracting",
    "cost about one step",
    "redirected effort",
    "caused a wrong turn or answer",
)
_REDUNDANCY = (
    "all of it is new",
    "one known detail",
    "some of it was in view",
    "half of it was in view",
    "most of it was in view",
    "all of it was in view",
)
_MISSED = (
    "nothing missed",
    "cosmetic",
    "would have helped a little",
    "would have saved about one step",
    "repeated a known step or page",
    "failed for lack of stored information",
)
_SUFFICIENCY = (
    "lacked all it needed",
    "lacked most of it",
    "lacked something important",
    "had about half in view",
    "lacked a detail",
    "had all it needed in view",
)
_FIT = (
    "nothing of this kind in the run",
    "hardly anything of this kind",
    "a weak instance",
    "a usable instance",
    "a good instance",
    "a model instance",
)
_REUSABILITY = (
    "bound to this one task",
    "one generic remark",
    "helps a near copy of the task",
    "helps tasks of this kind",
    "helps several kinds of tasks",
    "helps widely",
)
_POLLUTION = (
    "new and clean",
    "slightly repetitive",
    "partly known already",
    "half known, or partly doubtful",
    "mostly known, or doubtful",
    "known already, or misleading",
)

DIMENSIONS: Mapping[JudgedPhase, tuple[Dimension, ...]] = {
    "begin": (
        Dimension("relevance", 0.30, "Does the memory's content match what the task needs?", _RELEVANCE),
        Dimension("utilization", 0.35, "Do the agent's actions visibly follow the memory?", _UTILIZATION),
        Dimension("progress", 0.25, "Did the actions advance the task?", _PROGRESS),
        Dimension("noise", 0.10, "Did the memory mislead the agent or waste steps?", _NOISE, inverted=True),
    ),
    "query": (
        Dimension("relevance", 0.30, "Does the memory matter for the next step?", _RELEVANCE),
        Dimension("utilization", 0.30, "Does the next action differ from the one before because of it?", _UTILIZATION),
        Dimension("progress", 0.25, "Did the next action advance the task?", _PROGRESS),
        Dimension("noise", 0.15, "Does the memory repeat what was in view already?", _REDUNDANCY, inverted=True),
    ),
    "no_op": (
        Dimension(
            "missed_opportunity",
            0.50,
            "Did the memory that was held back have what the agent then lacked?",
            _MISSED,
            inverted=True,
        ),
        Dimension("self_sufficiency", 0.30, "Did the agent have what it needed in view?", _SUFFICIENCY),
        Dimension("progress", 0.20, "Did the next action advance the task?", _PROGRESS),
    ),
    "end": (
        Dimension("fit", 0.40, "Does the run hold something of the kind that this memory stores?", _FIT),
        Dimension("reusability", 0.35, "Would it help other tasks?", _REUSABILITY),
        Dimension("pollution", 0.25, "Would it crowd the memory or mislead?", _POLLUTION, inverted=True),
    ),
}
"""Dimensions per decision. End is judged only where `rewards.end` says so; else later reuse rewards it."""

Weights = Mapping[JudgedPhase, Mapping[str, float]]
"""Weights that replace the default ones of whole phases."""


class Verdict(Flow):
    """The scores of one decision by dimension name, and why, where the judge says so."""

    phase: JudgedPhase
    scores: dict[str, int]
    reason: str = ""


class Unscored(Flow):
    """Why a decision has no verdict: not drawn, nothing to read, no readable reply, or the model failed."""

    kind: Literal["not drawn", "nothing to read", "unreadable verdict", "judge failed"]
    reason: str = ""


def aggregate(phase: JudgedPhase, scores: Mapping[str, int], weights: Weights | None = None) -> float:
    """r_d = g_d * sum of w_i * h_i with h_i = s_i / 5, or 1 - s_i / 5 where inverted (MemAgent B.2); in [0, 1].

    g_d is 0 for Begin and Query where relevance is 0 (an empty or irrelevant retrieval), else 1.

    Raises:
        JudgeError: a dimension is missing, unknown, no whole number, or out of range; nothing is filled in.
    """
    check_scores(phase, scores)
    if scores.get("relevance") == 0:
        return 0.0
    of_phase = weights_of(phase, weights)
    shares = (
        (1 - scores[d.name] / TOP if d.inverted else scores[d.name] / TOP) * of_phase[d.name] for d in DIMENSIONS[phase]
    )
    return round(sum(shares), 6)


def check_scores(phase: JudgedPhase, scores: Mapping[str, object]) -> None:
    """Raise `JudgeError` unless every dimension of the phase, and no other, has a whole number from 0 to 5."""
    names = [dimension.name for dimension in DIMENSIONS[phase]]
    if set(scores) != set(names):
        raise JudgeError(f"a {phase} verdict scores {sorted(scores)}, not {names}")
    for name, score in scores.items():
        if type(score) is not int or not 0 <= score <= TOP:
            raise JudgeError(f"a {phase} verdict gives {name} = {score!r}, which is no whole number from 0 to {TOP}")


def weights_of(phase: JudgedPhase, weights: Weights | None = None) -> dict[str, float]:
    """The weight of every dimension of a phase."""
    given = (weights or {}).get(phase)
    return dict(given) if given else {dimension.name: dimension.weight for dimension in DIMENSIONS[phase]}


def weight_problems(weights: Weights) -> list[str]:
    """What is wrong with weights from a config, one sentence each."""
    problems = []
    for phase, given in weights.items():
        names = [dimension.name for dimension in DIMENSIONS[phase]]
        if set(given) != set(names):
            problems.append(f"{phase} needs exactly {', '.join(names)}")
        elif min(given.values()) < 0 or not math.isclose(math.fsum(given.values()), 1, abs_tol=1e-6):
            problems.append(f"{phase} must be 0 or more each and sum to 1, not {math.fsum(given.values()):g}")
    return problems
