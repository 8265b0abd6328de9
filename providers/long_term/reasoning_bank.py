"""ReasoningBank: titled reasoning items from successes and failures, found by the question that they come from."""

from __future__ import annotations

from typing import ClassVar

from providers.base import ProviderCard, ReasoningItem
from providers.long_term.nearest import NearestProvider
from providers.types import Outcome, Record, Trajectory

MAX_ITEMS = 3

_HEADERS = {
    True: "Reasoning from a similar task that was solved:",
    False: "Reasoning from a similar task that failed:",
    None: "Reasoning from a similar task:",
}


class ReasoningBank(NearestProvider[tuple[bool | None, tuple[ReasoningItem, ...]]]):
    """One record per run holds its items; they are injected together (the baseline of MemGuard 4.1).

    As in the original a run gives at most three items, whatever its outcome, is found by its question, and is never
    merged or deleted.
    """

    KIND = "items"
    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="reasoning_bank",
        title="ReasoningBank",
        family="insight",
        stores="up to three titled pieces of reasoning per task, from successes and failures",
        retrieves="those of the task with the nearest question",
        gate="all",
        top_k=1,
    )

    def headline(self, record: Record) -> str:
        return _item(record.payload["items"][0])

    def shown(self, record: Record) -> str:
        blocks = [_HEADERS[record.payload["correct"]], *(_item(item) for item in record.payload["items"])]
        return "\n".join(blocks)

    async def distil(
        self, trajectory: Trajectory, outcome: Outcome
    ) -> tuple[bool | None, tuple[ReasoningItem, ...]] | None:
        items = await self.distiller.reasoning(trajectory, outcome)
        return (outcome.correct, items[:MAX_ITEMS]) if items else None

    def draft(self, trajectory: Trajectory, artefact: tuple[bool | None, tuple[ReasoningItem, ...]]) -> list[Record]:
        correct, items = artefact
        payload = {"correct": correct, "items": [item.model_dump() for item in items]}
        return [self.space.new_record(self.KIND, trajectory, 0, text=trajectory.question, payload=payload)]


def _item(item: dict[str, str]) -> str:
    return f"{item['title']}: {item['description']} {item['content']}"
