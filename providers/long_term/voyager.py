"""Voyager: a narrative of every run, found by its summary, shown as a digest of its steps."""

from __future__ import annotations

from typing import ClassVar

from providers.base import Narrative, ProviderCard
from providers.long_term.base import SpaceProvider
from providers.types import Outcome, Query, Record, Retrieval, Trajectory


class Voyager(SpaceProvider[tuple[Narrative, bool | None]]):
    """One record per run of any outcome (MemAgent Tables 6 and 7): the summary is indexed, the digest returned."""

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="voyager",
        title="Voyager",
        family="similarity",
        stores="a summary of each run and a short digest of its steps",
        retrieves="the digest of the run whose summary is nearest in meaning",
        gate="all",
        top_k=1,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        record = self._nearest(query)
        return (record.payload["digest"], record.id) if record else None

    def find(self, query: Query) -> Retrieval:
        record = self._nearest(query)
        if record is None:
            return Retrieval(provider=self.card.name)
        text = f"Notes from a similar task:\n{record.payload['digest']}"
        return Retrieval(provider=self.card.name, text=text, item_ids=(record.id,))

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Narrative, bool | None] | None:
        narrative = await self.distiller.narrative(trajectory, outcome)
        return (narrative, outcome.correct) if narrative else None

    def draft(self, trajectory: Trajectory, artefact: tuple[Narrative, bool | None]) -> list[Record]:
        narrative, correct = artefact
        digest = narrative.digest
        if correct is not None:
            digest += f"\nResult: {'correct' if correct else 'wrong'}."
        payload = {"summary": narrative.summary, "digest": digest, "question": trajectory.question}
        return [self.space.new_record("narrative", trajectory, 0, text=narrative.summary, payload=payload)]

    def _nearest(self, query: Query) -> Record | None:
        hits = self.space.search_dense(query.embedding, self.card.top_k, kind="narrative")
        return next(iter(self.fitting(query, (record for record, _ in hits))), None)
