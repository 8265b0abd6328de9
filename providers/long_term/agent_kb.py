"""Agent-KB: plans and lessons of solved tasks; a student suggests from the plans, a teacher refines by the lessons."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import Experience, ProviderCard
from providers.long_term.base import Refused, SpaceProvider
from providers.long_term.hybrid import search_hybrid
from providers.types import Outcome, Query, Record, Retrieval, Trajectory, content_hash

WORDS_SHARE = 0.5


class AgentKb(SpaceProvider[Experience]):
    """Experiences of four fields by 0.5 TF-IDF + 0.5 cosine of the question (MemAgent Tables 6 and 7).

    Retrieving asks three times, as in the original: for the text to search by, the student for suggestions from the
    plans of the three nearest, the teacher for what their lessons add. A preview asks nobody: it shows the nearest
    question with its plan.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="agent_kb",
        title="Agent-KB",
        family="similarity",
        stores="plan and lessons of each solved task, for the whole and for its search",
        retrieves="advice merged from the plans and lessons of three similar tasks",
        gate="success",
        top_k=3,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        found = self._similar(query)
        return (f"{found[0].text}\n{found[0].payload['plan']}", found[0].id) if found else None

    def find(self, query: Query) -> Retrieval:
        return Retrieval(provider=self.card.name, item_ids=tuple(record.id for record in self._similar(query)))

    async def reworded(self, query: Query) -> Query:
        """The query with the text to search by, encoded only where it is another; a base never written asks nobody."""
        if await asyncio.to_thread(lambda: self.space.generation) == 0:
            return query
        text = await self.distiller.search_text(query.text)
        if text == query.text:
            return query
        (embedding,) = await asyncio.to_thread(self.space.encoder.encode, [text])
        return query.model_copy(update={"text": text, "embedding": embedding})

    async def refine(self, query: Query, found: Retrieval) -> Retrieval:
        """The student's suggestions, then what the teacher adds."""
        records = await asyncio.to_thread(self.standing, found.item_ids)
        if not records:
            return Retrieval(provider=self.card.name)
        experiences = [_experience(record) for record in records]
        suggestions = await self.distiller.suggestions(query.text, experiences)
        refinement = await self.distiller.refinement(query.text, experiences, suggestions)
        parts = [("Suggested plan:", suggestions), ("Mind what similar tasks taught:", refinement)]
        text = "\n\n".join(f"{title}\n{part}" for title, part in parts if part)
        return Retrieval(
            provider=self.card.name, text=text, item_ids=tuple(record.id for record in records) if text else ()
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Experience | None:
        experience = await self.distiller.experience(trajectory, outcome)
        if experience is not None and not all(field.strip() for field in experience.model_dump().values()):
            raise Refused("one of the four fields of the experience is empty")
        return experience

    def draft(self, trajectory: Trajectory, artefact: Experience) -> list[Record]:
        payload = artefact.model_dump()
        text, signature = trajectory.question, content_hash(trajectory.question, payload)
        return [self.space.new_record("experience", trajectory, 0, text=text, payload=payload, signature=signature)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        return (self.keep_once(draft, vectors),)

    def _similar(self, query: Query) -> list[Record]:
        return self.fitting(query, search_hybrid(self.space, query, self.card.top_k, "experience", WORDS_SHARE))


def _experience(record: Record) -> Experience:
    return Experience.model_validate(record.payload)
