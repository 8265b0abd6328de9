"""Voyager: a narrative of every run, found by its summary, shown as a digest of its steps."""

from __future__ import annotations

from typing import ClassVar

from providers.base import Narrative, ProviderCard
from providers.long_term.dilu import with_result
from providers.long_term.nearest import NearestProvider
from providers.types import Outcome, Record, Trajectory


class Voyager(NearestProvider[tuple[Narrative, bool | None]]):
    """One record per run of any outcome (MemAgent Tables 6 and 7): the summary is indexed, the digest returned."""

    KIND = "narrative"
    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="voyager",
        title="Voyager",
        family="similarity",
        stores="a summary of each run and a short digest of its steps",
        retrieves="the digest of the run whose summary is nearest in meaning",
        gate="all",
        top_k=1,
    )

    def headline(self, record: Record) -> str:
        return str(record.payload["digest"])

    def shown(self, record: Record) -> str:
        return f"Notes from a similar task:\n{record.payload['digest']}"

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Narrative, bool | None] | None:
        narrative = await self.distiller.narrative(trajectory, outcome)
        return (narrative, outcome.correct) if narrative else None

    def draft(self, trajectory: Trajectory, artefact: tuple[Narrative, bool | None]) -> list[Record]:
        narrative, correct = artefact
        digest = with_result(narrative.digest, correct)
        payload = {"summary": narrative.summary, "digest": digest, "question": trajectory.question}
        return [self.space.new_record(self.KIND, trajectory, 0, text=narrative.summary, payload=payload)]
