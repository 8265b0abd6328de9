"""Exact match of answers with normalisation of numbers, units, text and lists.

Gold is plain JSON: `{"kind": "number", "value": 16.9, "unit": "years"}`, `{"kind": "text", "accepted": [...]}` or
`{"kind": "list", "items": [gold, ...]}` whose order is free.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from providers.types import Outcome
from synth.tasks.factbook_data import MULTIPLIERS, plain

_NUMBER = re.compile(
    r"(?P<sign>[-−]?)\s*(?P<currency>us\$|usd|\$)?\s*(?P<sign2>[-−]?)(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"\s*(?P<multiplier>thousand|million|billion|trillion)?\b\s*(?P<unit>[^()]*?)\s*(?:\([^()]*\)\s*)*"
)
_UNIT_WORDS = {
    "percent": "%",
    "per cent": "%",
    "pct": "%",
    "us dollars": "$",
    "us dollar": "$",
    "dollars": "$",
    "usd": "$",
    "us$": "$",
    "square kilometers": "sq km",
    "square kilometres": "sq km",
    "sq. km": "sq km",
    "km2": "sq km",
    "kilometers": "km",
    "kilometres": "km",
    "meters": "m",
    "metres": "m",
    "year": "years",
    "tonnes": "tons",
}
_ARTICLE = re.compile(r"\b(?:the|a|an)\b")
_SEPARATORS = (r";", r",\s", r"\band\b|&", r":\s|\s-\s|\s(?=\()|\s(?=[-$\d])")


def score(gold: Any, answer: str | None) -> Outcome:
    """Correct, wrong, or None where there is no gold."""
    if gold is None:
        return Outcome(correct=None, reason="the task has no gold answer")
    if answer is None or not answer.strip():
        return Outcome(correct=False, score=0.0, reason="no answer was given", source="gold")
    correct = matches(gold, answer)
    reason = "the answer matches" if correct else "the answer differs from the gold one"
    return Outcome(correct=correct, score=float(correct), reason=reason, source="gold")


def matches(gold: dict[str, Any], answer: str) -> bool:
    """Whether an answer says what the gold says."""
    if gold["kind"] == "number":
        return _number_matches(float(gold["value"]), str(gold["unit"]), answer)
    if gold["kind"] == "text":
        accepted = {text_key(text) for text in gold["accepted"]}
        return bool(_text_keys(answer) & accepted)
    return any(_list_matches(gold["items"], re.split(separator, answer)) for separator in _SEPARATORS)


def text_key(text: str) -> str:
    """Case, accents, punctuation, articles and spacing removed."""
    letters = re.sub(r"[^\w\s]|_", " ", plain(text).replace("'", "").replace("’", ""))
    return " ".join(_ARTICLE.sub(" ", letters).split())


def _text_keys(text: str) -> set[str]:
    """A text as it stands, and without what it adds in parentheses."""
    return {key for key in (text_key(text), text_key(re.sub(r"\([^()]*\)", " ", text))) if key}


def parse_number(text: str) -> tuple[float, str] | None:
    """The value (multiplier applied) and unit key of a text that is one figure; None otherwise."""
    lowered = unicodedata.normalize("NFKC", text).replace("(s)", "").casefold().strip().rstrip(".")
    match = _NUMBER.fullmatch(lowered)
    if match is None:
        return None
    value = float(match["number"].replace(",", "")) * MULTIPLIERS.get(match["multiplier"] or "", 1.0)
    unit = unit_key(match["unit"])
    if match["currency"]:
        unit = f"${unit.removeprefix('$')}"
    return (-value if match["sign"] or match["sign2"] else value), unit


def unit_key(unit: str) -> str:
    """One spelling per unit: `percent` -> `%`, `square kilometres` -> `sq km`, `per` -> `/`."""
    key = " ".join(plain(unit).replace("(s)", "").split()).rstrip(".")
    for word, short in _UNIT_WORDS.items():
        key = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", short, key)
    return re.sub(r"\s*(?:/|\bper\b)\s*", "/", key).strip()


def _number_matches(value: float, unit: str, answer: str) -> bool:
    parsed = parse_number(answer)
    if parsed is None or not math.isclose(parsed[0], value, rel_tol=1e-14):
        return False
    return units_agree(unit_key(unit), parsed[1])


def units_agree(gold: str, given: str) -> bool:
    """An answer may leave out the unit or its tail (`% of GDP` -> `%`), but not give another one."""
    if not given or given == gold:
        return True
    return bool(gold) and re.split(r"/| of ", gold)[0].strip() == given


def _list_matches(items: list[dict[str, Any]], parts: list[str]) -> bool:
    """Every item is matched by a part of its own."""
    rest = [_unbracketed(part.strip()) for part in parts if part.strip()]
    if len(rest) != len(items):
        return False
    for item in items:
        found = next((part for part in rest if matches(item, part)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _unbracketed(part: str) -> str:
    """The part without brackets that stand around all of it or have lost their other half."""
    whole = part.startswith("(") and part.endswith(")")
    return part.strip("() ") if whole or part.count("(") != part.count(")") else part
