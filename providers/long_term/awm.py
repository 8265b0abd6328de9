"""AWM: one workflow with its inputs made variables per solved task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard, Workflow
from providers.long_term.nearest import NearestProvider
from providers.types import Outcome, Record, Trajectory, content_hash


class Awm(NearestProvider[Workflow]):
    """Workflows by the cosine of "query + workflow" (MemAgent Table 6).

    As in the original, a workflow that is already there is not kept twice: the record gains an origin instead.
    """

    KIND = "workflow"
    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="awm",
        title="AWM",
        family="structural",
        stores="one step-by-step workflow with blanks for its inputs per solved task",
        retrieves="the workflow nearest in meaning",
        gate="success",
        top_k=1,
    )

    def headline(self, record: Record) -> str:
        return record.text

    def shown(self, record: Record) -> str:
        return f"Workflow from a similar task:\n{record.text}"

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        return await self.distiller.workflow(trajectory, outcome)

    def draft(self, trajectory: Trajectory, artefact: Workflow) -> list[Record]:
        text = f"{artefact.query}\n{artefact.text}"
        signature = content_hash(" ".join(text.lower().split()))
        payload = {"query": artefact.query, "workflow": artefact.text, "variables": list(artefact.variables)}
        return [
            self.space.new_record(self.KIND, trajectory, 0, text=text, payload=payload, signature=signature),
        ]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        return (self.keep_once(draft, vectors),)
