"""Reading a judge model's reply: its reasons, then one whole number per dimension, in a closed vocabulary.

What is not exactly that is refused with the reason; nothing is guessed, rounded or filled in.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from providers.errors import JudgeError
from synth.judge.scale import DIMENSIONS, JudgedPhase, Verdict, check_scores

REASON = "reason"

_THINKING = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_FENCE = re.compile(r"\s*(```)?\s*")
_STATED = (
    r"\b{name}\s*(?:(?:score\s*)?[:=(]|score\s+of|is|at|scores|scored)\s*([0-5])(?![.,]?\d)"
    r"|\b{name}\W{{0,2}}([0-5])\s*/\s*5\b"
)
"""A score that prose gives to a dimension: `noise: 4`, `noise is 4`, `noise 4/5`; no other number near the word."""


class _TwiceError(ValueError):
    """A key stands twice in one object."""


def read_verdict(phase: JudgedPhase, reply: str) -> Verdict:
    """The verdict of a reply: of several the last binds, prose may stand before it and nothing after it.

    Raises:
        JudgeError: there is none, or it is malformed, out of range, given before its reason, or contradicts itself.
    """
    text = _visible(_THINKING.sub("", reply))
    given, rest = _last_object(text)
    if not _FENCE.fullmatch(rest):
        raise JudgeError("words follow the verdict, so that it stands before its reasons")
    reason = given.get(REASON)
    if not isinstance(reason, str) or not reason.strip():
        raise JudgeError(f'the verdict has no "{REASON}"')
    if next(iter(given)) != REASON:
        raise JudgeError(f'the scores stand before the "{REASON}"')
    scores = {name: value for name, value in given.items() if name != REASON}
    check_scores(phase, scores)
    _check_agreement(phase, reason, scores)
    return Verdict(phase=phase, scores=scores, reason=" ".join(reason.split()))


def _visible(text: str) -> str:
    """`text` without characters that show nothing (zero-width spaces and joiners, marks of order, soft hyphens)."""
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def _last_object(text: str) -> tuple[dict[str, Any], str]:
    """The last JSON object of the text that stands in no other, and what follows it."""
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    found: dict[str, Any] | None = None
    problem, rest = "there is no JSON object in it", ""
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
            found, rest = value, text[end:]
        except _TwiceError as error:
            raise JudgeError(str(error)) from error
        except (ValueError, RecursionError) as error:
            found, problem, end = None, f"its JSON does not parse ({error})", place + 1
        place = text.find("{", end)
    if found is None:
        raise JudgeError(problem)
    return found, rest


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise _TwiceError(f'"{key}" stands twice in it')
    return dict(pairs)


def _check_agreement(phase: JudgedPhase, reason: str, scores: Mapping[str, Any]) -> None:
    """Refuse a reason that itself gives a dimension another score than the verdict."""
    for dimension in DIMENSIONS[phase]:
        name = dimension.name.replace("_", "[ _]")
        said = [a or b for a, b in re.findall(_STATED.format(name=name), reason, re.IGNORECASE)]
        if said and int(said[-1]) != scores[dimension.name]:
            given = scores[dimension.name]
            raise JudgeError(f"the reason gives {dimension.name} {said[-1]} and the verdict {given}: they contradict")
