"""A descriptor in words and coarse bins that mean the same for every provider: what a router may see of it.

No reward, confidence or retrieval score goes out as a number, so that a router cannot learn one provider's scale.
"""

from __future__ import annotations

from collections.abc import Collection

from providers.types import Descriptor

FIELDS = ("trust", "age", "support", "reuse", "wins")
"""What a descriptor says, in order."""
BINS = {
    "trust": ("failed", "low", "medium", "high"),
    "age": ("new", "recent", "old", "stale"),
    "support": ("one run", "two runs", "several runs", "many runs"),
    "reuse": ("never", "once", "few", "often"),
    "wins": ("untested", "rarely", "mostly", "always"),
}
"""The words of every field, from the least to the most."""
AGES = (10, 100, 400)
"""Governed runs from which on a memory is recent, old, stale."""
_BETWEEN = "; "


def in_words(known: Descriptor, run: int) -> str:
    """A descriptor as `trust high; age new; ...`, `run` being the number of runs that its space has taken in."""
    return _BETWEEN.join(f"{field} {BINS[field][place]}" for field, place in bins(known, run).items())


def bins(known: Descriptor, run: int) -> dict[str, int]:
    """The place of every field's word in `BINS`, 0 to 3."""
    age = max(0, run - known.seen_run)
    share = known.wins / known.reuse if known.reuse else 0.0
    return {
        "trust": _trust(known),
        "age": sum(age >= bound for bound in AGES),
        "support": sum(known.support >= bound for bound in (2, 3, 6)),
        "reuse": sum(known.reuse >= bound for bound in (1, 2, 6)),
        "wins": 0 if not known.reuse else 3 if share == 1.0 else 2 if share >= 0.5 else 1,
    }


def trust_in_words(known: Descriptor) -> str:
    """How far to trust a record: failed, low, medium or high."""
    return BINS["trust"][_trust(known)]


def places(words: str) -> dict[str, int]:
    """The bins that `in_words` wrote; fields that are not there, or not understood, are left out."""
    found = {}
    for part in words.split(_BETWEEN):
        field, _, word = part.strip().partition(" ")
        if word in BINS.get(field, ()):
            found[field] = BINS[field].index(word)
    return found


def only(words: str, fields: Collection[str]) -> str:
    """Those parts of a descriptor in words that belong to `fields`."""
    return _BETWEEN.join(part for part in words.split(_BETWEEN) if part.partition(" ")[0] in fields)


def _trust(known: Descriptor) -> int:
    if known.label == "verified_fail":
        return 0
    sure = known.confidence or 0.0
    if known.label == "verified_success" and sure >= 0.8:
        return 3
    return 2 if known.label == "verified_success" and sure >= 0.6 else 1
