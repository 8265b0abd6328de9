"""A look at a run by rules, for machines without a model: from the signs that its agent saw. Deterministic.

It reads whether there is an answer, whether an observation holds it and concerns the question, which calls failed, and
how straight the way was. It cannot tell a wrong page from a right one: that is what its middling scores say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from providers.distill.shape import read_shape
from providers.governance.descriptor import CRITERIA, View, label_of_scores, one_hot
from providers.governance.verifier import CriterionScore, Look
from providers.lexical import tokenise
from providers.types import Step, Trajectory

SPAN = 120
"""Characters of a quotation."""
NOT_KNOWN = re.compile(r"^\W*(unknown|not found|no answer|none|n/?a|cannot|unable|i do not know)\b", re.IGNORECASE)


@dataclass(frozen=True)
class _Signs:
    """What a run shows of itself."""

    answer: str
    support: int
    """How far an observation holds the answer: 5 as it stands, 4 and 3 most of its words, 2 some, 1 none."""
    span: str
    """The line that holds it."""
    covered: float
    """Share of the question's terms that stand in the observation that holds the answer."""
    failed: float
    """Share of the calls that failed or brought nothing."""
    wasted: float
    """Share of the calls that failed, brought nothing or were made before."""
    at_limit: bool
    contested: bool
    """Several sites offered the page that was read."""
    error: str
    """The last error, empty where none was."""


class RuleLooker:
    """Scores by rules; the order of the criteria changes nothing."""

    async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
        signs = _signs(trajectory)
        scores = [_completion(signs, view), _evidence(signs, view), _validity(signs, view), _general(signs, view)]
        spans = [signs.span, signs.span, signs.error or _first_seen(trajectory), _first_seen(trajectory)]
        criteria = tuple(
            CriterionScore(distribution=one_hot(score), rationale=f"{name} by rules: {score}", evidence=span)
            for name, score, span in zip(CRITERIA, scores, spans, strict=True)
        )
        label = label_of_scores(scores, blocked=not signs.answer)
        guard = "" if label == "verified_success" else _guard(signs)
        return Look(view=view, criteria=criteria, stated=label, failure_guard=guard)


def _completion(signs: _Signs, view: View) -> int:
    if not signs.answer:
        return 1
    if NOT_KNOWN.match(signs.answer):
        return 2
    if signs.at_limit or signs.support <= 2:
        return 3
    if view == "evidence" and signs.support < 4:
        return 3
    return 5 if signs.support >= 4 and signs.covered >= 0.5 else 4


def _evidence(signs: _Signs, view: View) -> int:
    """A bare number that stands nowhere may have been counted, which cannot be seen: neither held nor refuted."""
    if not signs.answer:
        return 1
    score = signs.support
    if score == 1 and re.fullmatch(r"[\d.,]+", signs.answer):
        score = 3
    if view == "risk" and (signs.contested or signs.covered < 0.25):
        score = max(1, score - 1)
    return score


def _validity(signs: _Signs, view: View) -> int:
    share = signs.wasted if view == "risk" else signs.failed
    return 5 if share == 0 else 4 if share <= 0.2 else 3 if share <= 0.5 else 2


def _general(signs: _Signs, view: View) -> int:
    """A straight way teaches most, and none teaches more than its answer is supported."""
    score = 5 if signs.wasted <= 0.1 else 4 if signs.wasted <= 0.3 else 3 if signs.wasted <= 0.6 else 2
    if signs.at_limit or (view == "risk" and signs.contested):
        score -= 1
    return max(1, min(score, _evidence(signs, view)))


def _guard(signs: _Signs) -> str:
    if not signs.answer or signs.at_limit:
        return "Check early whether this way leads to an answer; it ran out of steps or gave none."
    if signs.contested:
        return "Check which site's page is the current one before reading a value from it."
    if signs.support <= 2:
        return "Check that the answer stands on a page that was opened before giving it."
    return "Check that the page is about what was asked for before reading a value from it."


def _signs(trajectory: Trajectory) -> _Signs:
    answer = " ".join((trajectory.answer or "").split())
    calls = [step for step in trajectory.steps if step.tool != "answer"]
    support, span, holder = _support(answer, [step.observation for step in calls if step.error is None])
    asked = set(tokenise(trajectory.question))
    failed = [_failed(step) for step in calls]
    shape = read_shape(trajectory)
    return _Signs(
        answer=answer,
        support=support,
        span=span,
        covered=len(asked & set(tokenise(holder))) / len(asked) if asked else 0.0,
        failed=sum(failed) / len(calls) if calls else 0.0,
        wasted=sum(a or b for a, b in zip(failed, _repeated(calls), strict=True)) / len(calls) if calls else 0.0,
        at_limit="step limit reached" in trajectory.status,
        contested=not shape.contested.isdisjoint(shape.opened),
        error=next((step.error for step in reversed(calls) if step.error), ""),
    )


def _support(answer: str, observations: Sequence[str]) -> tuple[int, str, str]:
    """How far one observation holds the answer (see `_Signs.support`), the line that does, and the observation."""
    if not answer:
        return 1, "", ""
    exact = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    for text in reversed(observations):
        line = next((line for line in text.splitlines() if exact.search(" ".join(line.split()))), None)
        if line is not None:
            return 5, line.strip()[:SPAN], text
    words = set(tokenise(answer))
    best = (0.0, "", "")
    for text in reversed(observations):
        for line in text.splitlines():
            share = len(words & set(tokenise(line))) / len(words) if words else 0.0
            if share > best[0]:
                best = (share, line.strip()[:SPAN], text)
    share, line, text = best
    return (4 if share >= 0.8 else 3 if share >= 0.5 else 2 if share > 0 else 1), line, text


def _failed(step: Step) -> bool:
    seen = step.observation.strip()
    return step.error is not None or not seen or seen.startswith("No results")


def _repeated(calls: Sequence[Step]) -> list[bool]:
    seen: set[str] = set()
    again = []
    for step in calls:
        call = f"{step.tool} {json.dumps(step.arguments, sort_keys=True, default=str)}"
        again.append(call in seen)
        seen.add(call)
    return again


def _first_seen(trajectory: Trajectory) -> str:
    lines = (line.strip() for step in trajectory.steps for line in step.observation.splitlines() if line.strip())
    return next(lines, "")[:SPAN]
