"""GAIA's quasi exact match: the leaderboard's rules for numbers, lists and strings, in our own words.

One thing differs on purpose: a number that cannot be read never equals the gold one, whatever that is.
"""

from __future__ import annotations

import re
import string

from providers.types import Outcome, Task
from synth.tasks.scorers.base import verdict

_SEPARATORS = re.compile("[,;]")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Gaia:
    """Gold decides how it is compared: as a number, as a list in its order, or as a string."""

    def score(self, task: Task, answer: str) -> Outcome:
        return verdict(matches(str(task.gold), answer))


def matches(gold: str, answer: str) -> bool:
    """Whether GAIA's rules count `answer` as `gold`."""
    if _float(gold) is not None:
        return _same_number(gold, answer)
    if not _SEPARATORS.search(gold):
        return _squeezed(answer).translate(_PUNCTUATION) == _squeezed(gold).translate(_PUNCTUATION)
    wanted, given = _SEPARATORS.split(gold), _SEPARATORS.split(answer)
    return len(wanted) == len(given) and all(map(_same_element, wanted, given))


def _same_element(gold: str, answer: str) -> bool:
    """An element of a list keeps its punctuation."""
    return _same_number(gold, answer) if _float(gold) is not None else _squeezed(gold) == _squeezed(answer)


def _same_number(gold: str, answer: str) -> bool:
    """Exact equality of floats; the answer's currency, percent and thousands signs are dropped, the gold has none."""
    given = _float(re.sub("[$%,]", "", answer))
    return given is not None and given == _float(gold)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text).lower()
