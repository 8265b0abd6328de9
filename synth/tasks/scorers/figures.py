"""A figure as people and models write it: currency, separators of any country, words such as `million`, a unit."""

from __future__ import annotations

import re
import unicodedata

_NUMBERS = (
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?",  # 1,234,567.8
    r"\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?",  # 12,34,567
    r"\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d+)?",  # 1 234 567,8 and 1'234'567.8
    r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}",  # 1.234,5 and 1.234.567
    r"\d+,\d+",  # 1,5
    r"(?:\d+(?:\.\d+)?|\.\d+)(?:e[+-]?\d+)?",  # 1.5, .5 and 1.2e6
)
_FIGURE = re.compile(
    r"(?P<sign>[-+−]?)\s*(?P<currency>us\s?\$|[$€£¥₹]|(?:usd|eur|gbp|jpy|inr)\b)?\s*(?P<inner>[-+−]?)"
    rf"(?P<number>{'|'.join(_NUMBERS)})"
    r"\s*(?P<multiplier>thousand|million|billion|trillion|mn|bn)?(?![^\W\d_])\s*(?P<unit>(?:[^\W\d_]|[%°$€£¥₹]).*)?"
)
_MULTIPLIERS = {"thousand": 1e3, "million": 1e6, "mn": 1e6, "billion": 1e9, "bn": 1e9, "trillion": 1e12}
_SPELLINGS = {
    "%": "percent|per cent|pct",
    "$": "us dollars?|dollars?|usd|us ?\\$",
    "€": "euros?|eur",
    "£": "pounds sterling|gbp",
    "¥": "yen|jpy",
    "₹": "indian rupees?|rupees?|inr",
    "km²": "square kilomet(?:er|re)s?|sq\\.? km|km2|km\\^2",
    "m²": "square met(?:er|re)s?|sq\\.? m|m2|m\\^2",
    "m³": "cubic met(?:er|re)s?|cu\\.? m|m3|m\\^3",
    "km": "kilomet(?:er|re)s?",
    "cm": "centimet(?:er|re)s?",
    "mm": "millimet(?:er|re)s?",
    "m": "met(?:er|re)s?",
    "mi": "miles?",
    "ft": "feet|foot",
    "kg": "kilograms?|kgs",
    "g": "grams?",
    "t": "tonnes?|metric tons?",
    "l": "lit(?:er|re)s?",
    "h": "hours?|hrs?",
    "min": "minutes?|mins?",
    "s": "seconds?|secs?",
    "year": "years|yrs?",
    "month": "months",
    "week": "weeks",
    "day": "days",
    "°c": "degrees? celsius|° ?celsius|celsius",
    "°f": "degrees? fahrenheit|° ?fahrenheit|fahrenheit",
}
_UNITS = tuple((short, re.compile(rf"(?<!\w)(?:{spelt})(?![\w²³])")) for short, spelt in _SPELLINGS.items())
_PER = re.compile(r"\s*(?:/|\bper\b)\s*")
_LOOSE_DIGIT = re.compile(r"(?<![^\W\d_])\d")
_BRACKETED = re.compile(r"\([^()]*\)")


def figure(text: str) -> tuple[float, str] | None:
    """The value, words such as `million` applied, and the unit in one spelling; None for what is no single figure."""
    lowered = _BRACKETED.sub(" ", unicodedata.normalize("NFKC", text)).casefold()
    match = _FIGURE.fullmatch(" ".join(lowered.split()).strip(" *_`\"'").rstrip(". "))
    if match is None or _LOOSE_DIGIT.search(_PER.split(match["unit"] or "")[0]):  # "5 to 6" is no single figure
        return None
    value = _value(match["number"]) * _MULTIPLIERS.get(match["multiplier"] or "", 1.0)
    unit = _unit(match["unit"] or "")
    if match["currency"] and unit in ("", _unit(match["currency"])):
        unit = _unit(match["currency"])
    return (-value if {match["sign"], match["inner"]} & {"-", "−"} else value), unit


def same_unit(gold: str, given: str) -> bool:
    """An answer may leave out the gold's unit or its tail (`% of GDP` -> `%`), but not give another one."""
    return not gold or not given or given == gold or re.split(r"/| of ", gold)[0] == given


def _value(written: str) -> float:
    """Reads a number in whichever of the forms it is."""
    digits = re.sub("[ '’]", "", written)
    groups = re.fullmatch(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", digits)
    if groups:
        return float(digits.replace(",", ""))
    if digits.count(".") > 1 or ("." in digits and "," in digits):
        digits = digits.replace(".", "")
    return float(digits.replace(",", "."))


def _unit(written: str) -> str:
    unit = written.strip(" .").replace("(s)", "")
    for short, spelt in _UNITS:
        unit = spelt.sub(short, unit)
    return _PER.sub("/", unit)
