"""DILU: a digest of every run under its question, and one digest per question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard
from providers.long_term.base import with_origins
from providers.long_term.nearest import NearestProvider
from providers.types import Outcome, Record, Trajectory, content_hash

NEIGHBOURS = 5


class Dilu(NearestProvider[tuple[str, bool | None]]):
    """Digests by the cosine of questions (MemAgent Tables 6 and 7).

    As in the original, an item whose question contains the new one is rewritten in place: the newest run of a question
    is the one that is shown. Questions that contain the new one are looked for among its five nearest.
    """

    KIND = "digest"
    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="dilu",
        title="DILU",
        family="similarity",
        stores="a short digest of each run's steps under its question, the newest per question",
        retrieves="the digest of the nearest question",
        gate="all",
        top_k=1,
    )

    def headline(self, record: Record) -> str:
        return str(record.payload["digest"])

    def shown(self, record: Record) -> str:
        return f"What was done for a similar question:\n{record.payload['digest']}"

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> tuple[str, bool | None] | None:
        digest = await self.distiller.digest(trajectory, outcome)
        return (digest, outcome.correct) if digest else None

    def draft(self, trajectory: Trajectory, artefact: tuple[str, bool | None]) -> list[Record]:
        payload = {"question": trajectory.question, "digest": with_result(*artefact)}
        signature = content_hash(_plain(trajectory.question))
        text = trajectory.question
        return [self.space.new_record(self.KIND, trajectory, 0, text=text, payload=payload, signature=signature)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        known = self._holding(draft, vectors[0])
        if known is None:
            return super().keep(drafts, vectors)
        payload = known.payload | {"digest": draft.payload["digest"]}
        self.space.update(with_origins(known, draft.origins).model_copy(update={"payload": payload}))
        return (known.id,)

    def _holding(self, draft: Record, vector: np.ndarray) -> Record | None:
        """The record of the same question, or one whose question contains it."""
        known = self.space.find_signature(draft.signature, kind=self.KIND)
        question = _plain(draft.text)
        if known is not None or not question:
            return known
        near = self.space.search_dense(vector, NEIGHBOURS, kind=self.KIND)
        return next((record for record, _ in near if question in _plain(record.text)), None)


def with_result(digest: str, correct: bool | None) -> str:
    """The digest with its result, where that is known."""
    return digest if correct is None else f"{digest}\nResult: {'correct' if correct else 'wrong'}."


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
