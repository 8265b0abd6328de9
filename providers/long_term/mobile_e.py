"""Mobile-E: tips from every run and shortcuts from solved ones, found by the words that they share with the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard, Shortcut
from providers.lexical import tokenise
from providers.long_term.base import SpaceProvider
from providers.types import Outcome, Query, Record, Retrieval, Trajectory, content_hash

MAX_TIPS = 5
LEAST_TIP = 11
SHORTLIST = 64
"""Records of a kind, best by BM25, among which the words are counted."""


@dataclass(frozen=True)
class Learned:
    """What one run gives: tips (text, kind) and perhaps a shortcut."""

    tips: tuple[str, ...]
    kind: str
    shortcut: Shortcut | None


class MobileE(SpaceProvider[Learned]):
    """Two lists: two tips and two shortcuts are injected, and a shortcut with its precondition and its steps.

    A tip counts the words of the task that it has; a shortcut 2 for each in its name, else 1 for one in its
    description. Stop words and single letters are no words, and nothing without a shared word is given. An equal tip is
    kept once. A shortcut's name is taken once, as in the original: a later run under that name becomes an origin of it.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="mobile_e",
        title="Mobile-E",
        family="insight",
        stores="tips from every task, and named shortcuts with preconditions from solved ones",
        retrieves="two tips and two shortcuts that share words",
        gate="all",
        top_k=2,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        found = self._tips(query) or self._shortcuts(query)
        return (_shown(found[0]), found[0].id) if found else None

    def find(self, query: Query) -> Retrieval:
        tips, shortcuts = self._tips(query), self._shortcuts(query)
        blocks = [
            _block(header, records) for header, records in (("Tips:", tips), ("Shortcuts:", shortcuts)) if records
        ]
        return Retrieval(
            provider=self.card.name,
            text="\n\n".join(blocks),
            item_ids=tuple(record.id for record in (*tips, *shortcuts)),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Learned | None:
        tips = await self.distiller.tips(trajectory, outcome)
        kept = tuple(tip for tip in tips if len(tip) >= LEAST_TIP and _words(tip))[:MAX_TIPS]
        shortcut = await self.distiller.shortcut(trajectory, outcome) if outcome.correct is True else None
        kind = "failure" if outcome.correct is False else "success"
        return Learned(kept, kind, shortcut) if kept or shortcut else None

    def draft(self, trajectory: Trajectory, artefact: Learned) -> list[Record]:
        drafts = [
            self.space.new_record(
                "tip",
                trajectory,
                position,
                text=tip,
                payload={"kind": artefact.kind},
                signature=content_hash("tip", " ".join(tip.lower().split())),
            )
            for position, tip in enumerate(artefact.tips)
        ]
        shortcut = artefact.shortcut
        if shortcut is not None:
            drafts.append(
                self.space.new_record(
                    "shortcut",
                    trajectory,
                    0,
                    text=f"{shortcut.name.replace('_', ' ')}. {shortcut.description}",
                    payload=shortcut.model_dump(mode="json"),
                    signature=content_hash("shortcut", shortcut.name.lower()),
                )
            )
        return drafts

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        kept = [self.keep_once(draft, vector[np.newaxis]) for draft, vector in zip(drafts, vectors, strict=True)]
        return tuple(dict.fromkeys(kept))

    def _tips(self, query: Query) -> list[Record]:
        asked = _words(query.text)
        return self._best(query, "tip", lambda record: len(asked & _words(record.text)))

    def _shortcuts(self, query: Query) -> list[Record]:
        asked = _words(query.text)

        def score(record: Record) -> int:
            named = asked & _words(record.payload["name"])
            return 2 * len(named) + len((asked - named) & _words(record.payload["description"]))

        return self._best(query, "shortcut", score)

    def _best(self, query: Query, kind: str, score: Callable[[Record], int]) -> list[Record]:
        """At most two records of a kind with the highest score above 0, of equals the one that BM25 puts first."""
        scored = [(score(record), record) for record, _ in self.space.search_lexical(query.text, SHORTLIST, kind=kind)]
        ranked = sorted((entry for entry in scored if entry[0] > 0), key=lambda entry: -entry[0])
        return self.fitting(query, (record for _, record in ranked))[: self.card.top_k]


def _words(text: str) -> frozenset[str]:
    """Index terms without the single letters that possessives and abbreviations leave."""
    return frozenset(term for term in tokenise(text) if len(term) > 1 or not term.isascii())


def _block(header: str, records: Sequence[Record]) -> str:
    return "\n".join([header, *(f"- {_shown(record)}" for record in records)])


def _shown(record: Record) -> str:
    """A tip as it is; a shortcut with what must hold before it is used, and its steps."""
    if record.kind == "tip":
        return record.text
    shortcut = Shortcut.model_validate(record.payload)
    steps = "; ".join(shortcut.steps)
    return f"{shortcut.name}: {shortcut.description}\n  Only where {shortcut.precondition}.\n  Steps: {steps}."
