"""LightWeight: a capped list of strategic and operational sentences, of which the distiller picks and merges advice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import AdviceItem, Distiller, ProviderCard, Strategies
from providers.long_term.base import SpaceProvider
from providers.space import Space
from providers.types import Effect, Outcome, Query, Record, Retrieval, Trajectory, content_hash

KINDS = ("strategic", "operational")
PER_RUN = 2
LEAST_SENTENCE = 20


class LightWeight(SpaceProvider[Strategies]):
    """At most two sentences of each kind per solved run; the whole list is read at retrieval.

    Each kind may hold 30 sentences and 20 more; the one after these prunes it to the 30 with the most of
    2 * wins + uses, of equals the newer. A picked sentence counts a use, and a win where its task ended correct.
    The original numbers its sentences by their place in the list, so that pruning hands counts to the wrong one; here a
    sentence keeps its record's id. An index of embeddings (MemAgent Table 7) orders the list and makes the preview.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="lightweight",
        title="LightWeight",
        family="insight",
        stores="a short capped list of sentences on strategy and on tool use, from solved tasks",
        retrieves="advice selected and merged from the list",
        gate="success",
        top_k=3,
    )

    def __init__(self, space: Space, distiller: Distiller, capacity: int = 30, buffer: int = 20) -> None:
        super().__init__(space, distiller)
        self.capacity = capacity
        self.buffer = buffer

    def lead(self, query: Query) -> tuple[str, str] | None:
        sentences = self._sentences(query)
        return (sentences[0].text, sentences[0].id) if sentences else None

    def find(self, query: Query) -> Retrieval:
        return Retrieval(provider=self.card.name, item_ids=tuple(record.id for record in self._sentences(query)))

    async def refine(self, query: Query, found: Retrieval) -> Retrieval:
        """Have advice selected and merged from the sentences that were found."""
        sentences = await asyncio.to_thread(self.standing, found.item_ids)
        items = [AdviceItem(text=s.text, uses=s.payload["uses"], wins=s.payload["wins"]) for s in sentences]
        advice = await self.distiller.advise(query.text, items, self.card.top_k) if items else None
        if advice is None:
            return Retrieval(provider=self.card.name)
        picked = [sentences[n] for n in dict.fromkeys(advice.picked) if 0 <= n < len(sentences)][: self.card.top_k]
        if not picked or not advice.text:
            return Retrieval(provider=self.card.name)
        return Retrieval(
            provider=self.card.name,
            text=f"Advice that may help here:\n{advice.text}",
            item_ids=tuple(record.id for record in picked),
            effects=tuple(Effect(provider=self.card.name, kind="use", record_id=record.id) for record in picked),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Strategies | None:
        found = await self.distiller.strategies(trajectory, outcome)
        if found is None:
            return None
        kept = {kind: tuple(line for line in getattr(found, kind) if len(line) >= LEAST_SENTENCE) for kind in KINDS}
        strategies = Strategies(**{kind: lines[:PER_RUN] for kind, lines in kept.items()})
        return strategies if strategies.strategic or strategies.operational else None

    def draft(self, trajectory: Trajectory, artefact: Strategies) -> list[Record]:
        return [
            self.space.new_record(
                kind,
                trajectory,
                position,
                text=line,
                payload={"uses": 0, "wins": 0},
                signature=content_hash(kind, " ".join(line.lower().split())),
            )
            for kind, lines in (("strategic", artefact.strategic), ("operational", artefact.operational))
            for position, line in enumerate(lines)
        ]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        kept: dict[str, None] = {}
        for draft, vector in zip(drafts, vectors, strict=True):
            order = self.space.counter("sentences") + 1
            self.space.set_counter("sentences", order)
            ordered = draft.model_copy(update={"payload": draft.payload | {"order": order}})
            kept[self.keep_once(ordered, vector[np.newaxis])] = None
        for kind in KINDS:
            self._prune(kind)
        return tuple(kept)

    def take(self, effect: Effect, correct: bool) -> None:
        for record in self.standing([effect.record_id]):
            counts = {"uses": record.payload["uses"] + 1, "wins": record.payload["wins"] + int(correct)}
            self.space.update(record.model_copy(update={"payload": record.payload | counts}))

    def _sentences(self, query: Query) -> list[Record]:
        """The whole list, nearest in meaning first."""
        hits = self.space.search_dense(query.embedding, len(KINDS) * (self.capacity + self.buffer))
        return self.fitting(query, (record for record, _ in hits))

    def _prune(self, kind: str) -> None:
        sentences = self.space.records(kind)
        if len(sentences) <= self.capacity + self.buffer:
            return
        sentences.sort(key=lambda record: (_worth(record), record.payload["order"]))
        for record in sentences[: len(sentences) - self.capacity]:
            self.space.archive(record.id, f"more than {self.capacity + self.buffer} {kind} sentences")


def _worth(record: Record) -> int:
    return 2 * int(record.payload["wins"]) + int(record.payload["uses"])
