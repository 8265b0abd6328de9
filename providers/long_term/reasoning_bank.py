"""ReasoningBank: titled reasoning items from successes and failures, found by the question that they come from."""

from __future__ import annotations

from typing import ClassVar

from providers.base import ProviderCard, ReasoningItem
from providers.long_term.base import SpaceProvider
from providers.types import Outcome, Query, Record, Retrieval, Trajectory

MAX_ITEMS = 3

_HEADERS = {
    True: "Reasoning from a similar task that was solved:",
    False: "Reasoning from a similar task that failed:",
    None: "Reasoning from a similar task:",
}


class ReasoningBank(SpaceProvider[tuple[bool | None, tuple[ReasoningItem, ...]]]):
    """One record per run holds its items; they are injected together (the baseline of MemGuard 4.1).

    As in the original a run gives at most three items, whatever its outcome, is found by its question, and is never
    merged or deleted.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="reasoning_bank",
        title="ReasoningBank",
        family="insight",
        stores="up to three titled pieces of reasoning per task, from successes and failures",
        retrieves="those of the task with the nearest question",
        gate="all",
        top_k=1,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        record = self._nearest(query)
        return (_item(record.payload["items"][0]), record.id) if record else None

    def find(self, query: Query) -> Retrieval:
        record = self._nearest(query)
        if record is None:
            return Retrieval(provider=self.card.name)
        blocks = [_HEADERS[record.payload["correct"]], *(_item(item) for item in record.payload["items"])]
        return Retrieval(provider=self.card.name, text="\n".join(blocks), item_ids=(record.id,))

    async def distil(
        self, trajectory: Trajectory, outcome: Outcome
    ) -> tuple[bool | None, tuple[ReasoningItem, ...]] | None:
        items = await self.distiller.reasoning(trajectory, outcome)
        return (outcome.correct, items[:MAX_ITEMS]) if items else None

    def draft(self, trajectory: Trajectory, artefact: tuple[bool | None, tuple[ReasoningItem, ...]]) -> list[Record]:
        correct, items = artefact
        payload = {"correct": correct, "items": [item.model_dump() for item in items]}
        return [self.space.new_record("items", trajectory, 0, text=trajectory.question, payload=payload)]

    def _nearest(self, query: Query) -> Record | None:
        hits = self.space.search_dense(query.embedding, self.card.top_k, kind="items")
        return next(iter(self.fitting(query, (record for record, _ in hits))), None)


def _item(item: dict[str, str]) -> str:
    return f"{item['title']}: {item['description']} {item['content']}"
