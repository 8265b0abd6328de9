"""How alike two records are, for merging and conflicts (MemGuard 3.5 and D.3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from operator import eq

from providers.governance.ranking import CONFLICT_ABOVE
from providers.lexical import tokenise
from providers.types import Record

MERGE_FROM = 0.86
LEAST_COSINE = 2 * CONFLICT_ABOVE - 1
"""Cosine from which on the likeness can be above the conflict threshold, whatever the structure."""
FIELDS = ("type", "pattern", "action", "scope", "condition")
"""Parts of a structured signature, in order (MemGuard D.3)."""
_BETWEEN = "|"


def signature_of(*, kind: str, pattern: str, action: str, scope: str, condition: str) -> str:
    """MemGuard's deduplication signature: five parts, each as its sorted index terms."""
    parts = (kind, pattern, action, scope, condition)
    return _BETWEEN.join([kind, *(" ".join(sorted(set(tokenise(part)))) for part in parts[1:])])


def action_of(record: Record) -> str:
    """The recommended or avoided action; records of other providers name none."""
    return str(record.payload.get("action", ""))


class Likeness:
    """How alike other records are to one."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._parts = record.signature.split(_BETWEEN)

    def to(self, other: Record, cosine: float) -> float:
        """sim_ij: the mean of embedding cosine and structure."""
        return (cosine + self.structure(other)) / 2.0

    def structure(self, other: Record) -> float:
        """Share of equal signature parts, or of common content words where one has no structured signature; 0 to 1."""
        theirs = other.signature.split(_BETWEEN)
        if len(self._parts) == len(theirs) == len(FIELDS):
            return float(sum(map(eq, self._parts, theirs))) / len(FIELDS)
        words = content_words(other)
        common = len(self._words & words)
        return common / (len(self._words) + len(words) - common) if self._words or words else 1.0

    @cached_property
    def _words(self) -> frozenset[str]:
        return content_words(self._record)


def content_words(record: Record) -> frozenset[str]:
    """Index terms of all that a record holds."""
    parts = [record.text]
    for value in record.payload.values():
        parts += [value] if isinstance(value, str) else _strings(value)
    return frozenset(tokenise(" ".join(parts)))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)
