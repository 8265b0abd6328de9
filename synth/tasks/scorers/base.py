"""What a scorer is, and how the ones that are no coroutine and those that are get called alike."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Protocol

from providers.types import Outcome, Task


class Scorer(Protocol):
    """Compares an answer with a task's gold. Both are there and not blank: see `scored`."""

    def score(self, task: Task, answer: str) -> Outcome | Awaitable[Outcome]:
        """Correct, wrong, or None where it cannot be said.

        Raises SuiteError for gold that this scorer cannot read, ModelError where it asks a model that fails.
        """
        ...


async def scored(scorer: Scorer, task: Task, answer: str | None) -> Outcome:
    """The outcome of an answer: no gold is unscored, no answer is wrong, the rest is the scorer's."""
    if task.gold is None:
        return Outcome(correct=None, reason="the task has no gold answer")
    if answer is None or not answer.strip():
        return Outcome(correct=False, score=0.0, reason="no answer was given", source="gold")
    outcome = scorer.score(task, answer)
    return await outcome if inspect.isawaitable(outcome) else outcome


def verdict(correct: bool, reason: str = "") -> Outcome:
    """The outcome of a comparison with gold."""
    if not reason:
        reason = "the answer matches" if correct else "the answer differs from the gold one"
    return Outcome(correct=correct, score=float(correct), reason=reason, source="gold")
