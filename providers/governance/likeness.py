"""How alike two records are, for merging and conflicts (MemGuard 3.5 and D.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from providers.governance.ranking import CONFLICT_ABOVE
from providers.lexical import tokenise
from providers.types import Record

MERGE_FROM = 0.86
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


def structure(one: Record, other: Record) -> float:
    """Share of equal signature parts, or of common content words where a record has no structured signature; 0 to 1."""
    first, second = one.signature.split(_BETWEEN), other.signature.split(_BETWEEN)
    if len(first) == len(second) == len(FIELDS):
        return sum(a == b for a, b in zip(first, second, strict=True)) / len(FIELDS)
    ours, theirs = content_words(one), content_words(other)
    return len(ours & theirs) / len(ours | theirs) if ours | theirs else 1.0


def content_words(record: Record) -> frozenset[str]:
    """Index terms of all that a record holds."""
    return frozenset(tokenise(f"{record.text} {_flat(record.payload)}"))


def similarities(record: Record, vector: np.ndarray, pool: Sequence[Record], vectors: np.ndarray) -> np.ndarray:
    """sim_ij: the mean of embedding cosine and structure, shape (len(pool),).

    Structure is read only where the cosine alone leaves the conflict threshold within reach.
    """
    cosines = vectors @ vector
    found = np.minimum(cosines, 0.0)
    for place in map(int, np.flatnonzero((cosines + 1.0) / 2.0 > CONFLICT_ABOVE)):
        found[place] = (float(cosines[place]) + structure(record, pool[place])) / 2.0
    return np.asarray(found)


def _flat(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(_flat(part) for part in value.values())
    if isinstance(value, list | tuple):
        return " ".join(map(_flat, value))
    return value if isinstance(value, str) else ""
