"""Pages and search results as the case-based agent keeps them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from providers import page_text

HEADER = frozenset({"URL", "Site", "Last updated", "Last checked"})
_HIT = re.compile(r"^\d+\. \[([^\]]+)\]\(([^)]+)\)(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """One observed page."""

    title: str
    url: str
    site: str
    fields: dict[str, str]
    links: tuple[tuple[str, str], ...]

    @property
    def subject(self) -> str:
        """`Chad` of `Chad: Geography`."""
        return self.title.split(": ", 1)[0]

    @property
    def listed(self) -> list[str]:
        """The names on a page that is little more than a list of links; empty for any other page."""
        plain = [text for text, _ in self.links if ": " not in text]
        return plain if len(plain) >= 3 and len(self.fields) <= 2 else []

    @classmethod
    def read(cls, observation: str) -> Page:
        fields = page_text.fields(observation)
        return cls(
            page_text.title(observation),
            fields.get("URL", ""),
            fields.get("Site", ""),
            {label: value for label, value in fields.items() if label not in HEADER},
            tuple(page_text.links(observation)),
        )


class Hit(NamedTuple):
    """One search result: the page's title and address, and the rest of its line (site, snippet)."""

    title: str
    url: str
    gist: str

    @property
    def site(self) -> str:
        return self.gist.partition(" - ")[0]


def read_hits(observation: str) -> tuple[Hit, ...]:
    """The results on one page of a search, in order."""
    return tuple(Hit(m.group(1), m.group(2), m.group(3).strip(" -")) for m in _HIT.finditer(observation))


def same_name(name: str, other: str) -> bool:
    """Whether two names are one, but for case and a leading article."""
    return name.casefold().removeprefix("the ") == other.casefold().removeprefix("the ")
