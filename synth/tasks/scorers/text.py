"""Scorers that need nothing but the two texts: exact, numeric and regex."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from providers.errors import SuiteError
from providers.types import Outcome, Task
from synth.tasks.factbook_score import text_key
from synth.tasks.scorers.base import verdict
from synth.tasks.scorers.figures import figure, same_unit

if TYPE_CHECKING:
    import regex

_MINUS = re.compile(r"(?<![\w)])[-−](?=[$€£]?\.?\d)")

REGEX_SECONDS = 2.0
"""A pattern that takes longer is the suite's fault, not the answer's."""


class Exact:
    """The same text but for case, accents, punctuation, articles and spacing. Gold may be a list: any of it will do."""

    def score(self, task: Task, answer: str) -> Outcome:
        accepted = task.gold if isinstance(task.gold, list | tuple) else [task.gold]
        return verdict(any(_same(str(gold), answer) for gold in accepted))


class Numeric:
    """The same figure: currency, percent signs, thousands separators and words such as `million` are read.

    `tolerance` is relative (0.01 is one per cent). An answer may leave out the gold's unit, but not give another one:
    nothing is converted. `1,234` is read as in English, `1.234,5` and `1,5` as in most of Europe.
    """

    def __init__(self, tolerance: float = 0.0) -> None:
        if not 0 <= tolerance < 1:
            raise SuiteError(f"The numeric scorer's tolerance is {tolerance!r}: give a share from 0 to below 1.")
        self._tolerance = max(tolerance, 1e-14)

    def score(self, task: Task, answer: str) -> Outcome:
        gold, given = figure(str(task.gold)), figure(answer)
        if gold is None:
            raise SuiteError(f"The gold of task {task.id} is no figure: give it another scorer than numeric.")
        if given is None:
            return verdict(False, "the answer is no single figure")
        near = math.isclose(given[0], gold[0], rel_tol=self._tolerance)
        return verdict(near and same_unit(gold[1], given[1]))


class Regex:
    """Gold is a regular expression that the whole answer must match, white space around it and case aside."""

    def score(self, task: Task, answer: str) -> Outcome:
        pattern = _compiled(str(task.gold), task.id)
        try:
            return verdict(pattern.fullmatch(answer.strip(), timeout=REGEX_SECONDS) is not None)
        except TimeoutError:
            return Outcome(correct=None, reason=f"the pattern took more than {REGEX_SECONDS:g} s on this answer")


@lru_cache(maxsize=4096)
def _compiled(gold: str, task_id: str) -> regex.Pattern[str]:
    import regex

    try:
        return regex.compile(gold, regex.IGNORECASE)
    except regex.error as error:
        raise SuiteError(f"The gold of task {task_id} is no regular expression ({error}): mend it.") from error


def _same(gold: str, answer: str) -> bool:
    """Texts without a letter or digit (`!`, `+`) are compared as they stand."""
    key = _key(gold)
    return _key(answer) == key if key else answer.strip() == gold.strip()


def _key(text: str) -> str:
    """The minus of a number is no punctuation: `-5` is not `5`."""
    return text_key(_MINUS.sub("minus ", text))


def gold_text(gold: Any) -> str:
    """Gold as a reader is shown it."""
    return "; ".join(map(str, gold)) if isinstance(gold, list | tuple) else str(gold)
