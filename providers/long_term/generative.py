"""Generative: a stream of digests, found by recency, importance and relevance, of which the best rated is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard
from providers.long_term.base import SpaceProvider
from providers.long_term.dilu import with_result
from providers.types import Effect, Outcome, Query, Record, Retrieval, Trajectory

POOL = 30
DECAY = 0.99
RECENCY_WEIGHT = 0.5
RELEVANCE_WEIGHT = 3.0
IMPORTANCE_WEIGHT = 2.0


@dataclass(frozen=True)
class Memory:
    """A digest with its result, and how much of it is worth remembering, 1 to 10."""

    digest: str
    importance: int


class Generative(SpaceProvider[Memory]):
    """The three scores of Generative Agents over the 30 nearest digests, each scaled to 0..1 within them.

    Weights are the original's: recency 0.5, relevance 3, importance 2. Recency is 0.99 to the power of the stores and
    uses since the digest was last used. (The original's released code counts from the wrong end, so that the oldest
    seems newest; its paper says what is built here.) A use counts once its task's outcome is known. Of the best three
    the distiller's rating takes one, the earlier of equals (MemAgent Table 7: 3 -> 1). A preview asks nobody: it shows
    the first of the three.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="generative",
        title="Generative",
        family="similarity",
        stores="a short digest of each run's steps, with how much it is worth remembering",
        retrieves="of three near, recent and important digests the one rated best for the task",
        gate="all",
        top_k=3,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        found = self._best(query)
        return (found[0].payload["digest"], found[0].id) if found else None

    def find(self, query: Query) -> Retrieval:
        return Retrieval(provider=self.card.name, item_ids=tuple(record.id for record in self._best(query)))

    async def refine(self, query: Query, found: Retrieval) -> Retrieval:
        """Have the candidates rated and show the best."""
        candidates = await asyncio.to_thread(self.standing, found.item_ids)
        if not candidates:
            return Retrieval(provider=self.card.name)
        chosen = candidates[0]
        if len(candidates) > 1:
            digests = [record.payload["digest"] for record in candidates]
            ratings = await self.distiller.ratings(query.text, digests)
            chosen = max(zip(ratings, candidates, strict=True), key=lambda rated: rated[0])[1]
        return Retrieval(
            provider=self.card.name,
            text=f"From memory, a similar task:\n{chosen.payload['digest']}",
            item_ids=(chosen.id,),
            effects=(Effect(provider=self.card.name, kind="use", record_id=chosen.id),),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Memory | None:
        digest = await self.distiller.digest(trajectory, outcome)
        if not digest:
            return None
        importance = await self.distiller.importance(trajectory, outcome)
        return Memory(with_result(digest, outcome.correct), importance)

    def draft(self, trajectory: Trajectory, artefact: Memory) -> list[Record]:
        payload = {"question": trajectory.question, "digest": artefact.digest, "importance": artefact.importance}
        return [self.space.new_record("memory", trajectory, 0, text=trajectory.question, payload=payload)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        draft = draft.model_copy(update={"payload": draft.payload | {"used": self._tick()}})
        return super().keep([draft], vectors)

    def take(self, effect: Effect, correct: bool) -> None:
        """The digest was used just now, however the task ended."""
        record = self.space.get(effect.record_id)
        if record is not None:
            self.space.update(record.model_copy(update={"payload": record.payload | {"used": self._tick()}}))

    def _best(self, query: Query) -> list[Record]:
        hits = self.space.search_dense(query.embedding, POOL, kind="memory")
        fitting = {record.id for record in self.fitting(query, (record for record, _ in hits))}
        hits = [hit for hit in hits if hit[0].id in fitting]
        if not hits:
            return []
        now = self.space.counter("clock")
        recency = DECAY ** np.array([now - record.payload["used"] for record, _ in hits], dtype=np.float64)
        relevance = np.array([cosine for _, cosine in hits], dtype=np.float64)
        importance = np.array([record.payload["importance"] for record, _ in hits], dtype=np.float64)
        scores = (
            RECENCY_WEIGHT * _scaled(recency)
            + RELEVANCE_WEIGHT * _scaled(relevance)
            + IMPORTANCE_WEIGHT * _scaled(importance)
        )
        return [hits[position][0] for position in np.argsort(-scores, kind="stable")[: self.card.top_k]]

    def _tick(self) -> int:
        now = self.space.counter("clock") + 1
        self.space.set_counter("clock", now)
        return now


def _scaled(values: np.ndarray) -> np.ndarray:
    """Values mapped to 0..1 by their own least and greatest; all 0.5 where they are equal, as in the original."""
    least, greatest = float(values.min()), float(values.max())
    if greatest == least:
        return np.full_like(values, 0.5)
    return (values - least) / (greatest - least)
