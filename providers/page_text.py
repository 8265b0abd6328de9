"""Reading facts off a page in markdown-like text: links, `Label: value` lines, the title, numbers, names.

Standard library alone and no state: agents read pages with it, and so does skill code inside its sandbox.
"""

from __future__ import annotations

import re

LABEL_LIMIT = 100
"""Longest label in characters; before a later colon a line is prose."""

_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(((?:[^()\s]|\([^()\s]*\))+)\)")
_FIELD = re.compile(r"^(?:[-*]\s+)?([^\[\]\":#\s][^\[\]\":]*):\s+(\S.*)$")
_NUMBER = re.compile(
    r"(?<![A-Za-z\d.])(?:(?<![\w)])[-\u2212]\s?)?[$€£]?(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[\s-]*(thousand|million|billion|trillion)s?\b)?",
    re.IGNORECASE,
)
_SCALE = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}


def links(text: str) -> list[tuple[str, str]]:
    """All `[text](url)` links in order, as (text, url); images are not links."""
    return [(found.group(1).strip(), found.group(2)) for found in _LINK.finditer(text)]


def fields(text: str) -> dict[str, str]:
    """`Label: value` lines, split at the first colon; of equal labels the first counts.

    Header lines (URL, Site, Last updated) are fields; headings, link lists, search results and labels without a
    value are not.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _FIELD.match(line.strip())
        if match and len(match.group(1)) <= LABEL_LIMIT:
            found.setdefault(match.group(1).strip(), match.group(2).strip())
    return found


def title(text: str) -> str:
    """The first `# ` heading, or empty."""
    for line in text.splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    return ""


def number(text: str) -> float | None:
    """The first number, with sign, thousands separators and a following thousand / million / billion / trillion.

    Addresses of links and digits inside words (`CO2`) are passed over. None where there is no number.
    """
    match = _NUMBER.search(_LINK.sub(r"\1", text))
    if match is None:
        return None
    value = float(match.group(1).replace(",", "")) * _SCALE.get((match.group(2) or "").lower(), 1.0)
    return -value if match.group(0)[0] in "-\u2212" else value


def names(value: str) -> list[str]:
    """The names that a field's value lists: its link texts, else its parts between semicolons."""
    linked = [text for text, _ in links(value) if text]
    return linked or [part.strip() for part in value.split(";") if part.strip()]
