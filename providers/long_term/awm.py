"""AWM: one workflow with its inputs made variables per solved task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard, Workflow
from providers.long_term.base import SpaceProvider
from providers.types import Outcome, Query, Record, Retrieval, Trajectory, content_hash


class Awm(SpaceProvider[Workflow]):
    """Workflows by the cosine of "query + workflow" (MemAgent Table 6).

    As in the original, a workflow that is already there is not kept twice: the record gains an origin instead.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="awm",
        title="AWM",
        family="structural",
        stores="one step-by-step workflow with blanks for its inputs per solved task",
        retrieves="the workflow nearest in meaning",
        gate="success",
        top_k=1,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        record = self._nearest(query)
        return (record.text, record.id) if record else None

    def find(self, query: Query) -> Retrieval:
        record = self._nearest(query)
        if record is None:
            return Retrieval(provider=self.card.name)
        text = f"Workflow from a similar task:\n{record.text}"
        return Retrieval(provider=self.card.name, text=text, item_ids=(record.id,))

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        return await self.distiller.workflow(trajectory, outcome)

    def draft(self, trajectory: Trajectory, artefact: Workflow) -> list[Record]:
        text = f"{artefact.query}\n{artefact.text}"
        signature = content_hash(" ".join(text.lower().split()))
        payload = {"query": artefact.query, "workflow": artefact.text, "variables": list(artefact.variables)}
        return [
            self.space.new_record("workflow", trajectory, 0, text=text, payload=payload, signature=signature),
        ]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        return (self.keep_once(draft, vectors),)

    def _nearest(self, query: Query) -> Record | None:
        hits = self.space.search_dense(query.embedding, self.card.top_k, kind="workflow")
        return next(iter(self.fitting(query, (record for record, _ in hits))), None)
