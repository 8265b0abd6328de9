"""The 2019 edition of a country: the same labels with older, deterministically different figures."""

from __future__ import annotations

import re
from functools import cache
from random import Random

from providers.types import content_hash
from synth.tasks.factbook_data import Country, parse_quantity

EDITION = 2019
YEARS_BACK = 6
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_YEAR = re.compile(r"\b20[0-2]\d\b")


@cache
def archived(country: Country) -> dict[str, dict[str, str]]:
    """The sections as the 2019 edition shows them; every figure 3 to 25 percent off, every year moved back."""
    return {
        section: {_moved_back(label): _older(country.slug, label, value) for label, value in fields.items()}
        for section, fields in country.sections.items()
    }


def _moved_back(text: str) -> str:
    return _YEAR.sub(lambda match: str(int(match[0]) - YEARS_BACK), text)


def _older(slug: str, label: str, value: str) -> str:
    if parse_quantity(value) is None:
        return value
    number = _NUMBER.search(value)
    assert number is not None
    shifted = _shift(number[0], Random(content_hash("archive", slug, label)), percent="%" in value)
    return value[: number.start()] + shifted + _moved_back(value[number.end() :])


def _shift(number: str, random: Random, *, percent: bool) -> str:
    """The number moved by 3 to 25 percent, with the same thousands separators and number of decimals."""
    value, decimals = float(number.replace(",", "")), len(number.partition(".")[2])
    share = random.uniform(0.03, 0.25)
    moved = value * (1 + share if random.random() < 0.3 else 1 - share)
    if percent and value <= 100:
        moved = min(moved, 100.0)
    return f"{moved:,.{decimals}f}" if "," in number or decimals == 0 else f"{moved:.{decimals}f}"
