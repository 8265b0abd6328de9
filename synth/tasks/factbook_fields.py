"""The catalogue of fields that the factbook suite asks about, with everyday phrasings, apart for every pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from providers.types import Split


@dataclass(frozen=True)
class Field:
    """One label of the site. `plain` names it almost as the page does; `phrasings` avoid the label's own words.

    Phrasings are noun phrases with a slot `{c}`: a country, or words such as `each country`.
    """

    label: str
    section: str
    plain: str
    phrasings: dict[Split, tuple[str, ...]]
    kind: Literal["number", "text"] = "number"
    unit: str | None = None
    """Word for what is counted, where the page shows a bare figure."""
    siblings: dict[str, str] = field(default_factory=dict)


def _phrasings(warmup: list[str], explore: list[str], dev: list[str], test: list[str]) -> dict[Split, tuple[str, ...]]:
    return {
        Split.WARMUP: tuple(warmup),
        Split.EXPLORE: tuple(explore),
        Split.DEV: tuple(dev),
        Split.TEST: tuple(test),
    }


FIELDS = (
    Field(
        "Median age - total",
        "People and Society",
        "median age of {c}",
        _phrasings(
            [
                "the age that splits the people of {c} into two equal halves",
                "the age at which half of {c} is younger and half older",
            ],
            [
                "the midpoint of all residents' ages in {c}",
                "how old the person in the very middle of the age queue in {c} is",
            ],
            [
                "the years lived by the typical, middle-ranked inhabitant of {c}",
                "the birthday count with as many folks above as below it in {c}",
            ],
            [
                "the 50th percentile of how old citizens of {c} are",
                "the cut-off in years dividing {c}'s populace fifty-fifty",
            ],
        ),
    ),
)
