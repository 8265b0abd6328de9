"""Memp: a script and its concrete steps per solved question; failures revise or remove what they were shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard, Script
from providers.errors import ProviderError
from providers.long_term.base import Refused, with_origins
from providers.long_term.nearest import NearestProvider
from providers.space import LIVE
from providers.types import Effect, Origin, Outcome, Record, StoreReceipt, Trajectory, content_hash

LEAST_HITS = 3
LEAST_RATE = 0.5


@dataclass(frozen=True)
class Revision:
    """A script rewritten after a failed run, from what the record said at its `seen`th revision."""

    record: Record
    script: Script

    @property
    def seen(self) -> int:
        return int(self.record.payload["revisions"])


class _RevisedMeanwhile(ProviderError):
    """Another writer revised the record after it was read."""


class Memp(NearestProvider[Script | tuple[Revision, ...]]):
    """Scripts by the cosine of questions, under the original's update policy `reflect` (MemAgent Tables 6 and 7).

    A correct run adds its script, once per question. A failed run revises the scripts that it was shown, which its own
    injections name (so a question that was decorated before the run changes nothing), and adds none. Each record counts
    its hits and successes; at three hits or more with a success rate below 0.5 it goes. No count enters the text.
    """

    KIND = "script"
    COUNTS_USE = True
    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="memp",
        title="Memp",
        family="structural",
        stores="a general script and its steps per solved task; a failure revises the one it used",
        retrieves="script and steps of the nearest task",
        gate="all",
        top_k=1,
    )

    def headline(self, record: Record) -> str:
        return str(record.payload["script"])

    def shown(self, record: Record) -> str:
        return f"Script:\n{record.payload['script']}\n\nAs it was done:\n{record.payload['steps']}"

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        while True:
            try:
                return await super().store(trajectory, outcome)
            except _RevisedMeanwhile:
                continue

    def closed(self, outcome: Outcome) -> str | None:
        if outcome.correct is None:
            return "it adds correct runs and revises after wrong ones, and the outcome is unknown"
        return super().closed(outcome)

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Script | tuple[Revision, ...] | None:
        if outcome.correct:
            return await self.distiller.script(trajectory, outcome)
        served = await asyncio.to_thread(self._served, trajectory)
        if not served:
            raise Refused("a wrong run revises the scripts that it was shown, and it was shown none that is still kept")
        revisions = []
        for record in served:
            before = Script(script=record.payload["script"], steps=record.payload["steps"])
            after = await self.distiller.revised_script(before, trajectory)
            if after is not None and after != before:
                revisions.append(Revision(record, after))
        return tuple(revisions) or None

    def draft(self, trajectory: Trajectory, artefact: Script | tuple[Revision, ...]) -> list[Record]:
        if not isinstance(artefact, Script):
            origin = Origin(trajectory_id=trajectory.id, task_id=trajectory.task_id)
            return [_revised(revision, origin) for revision in artefact]
        payload = {
            "question": trajectory.question,
            "script": artefact.script,
            "steps": artefact.steps,
            "hits": 0,
            "successes": 0,
            "revisions": 0,
        }
        signature = content_hash(" ".join(trajectory.question.lower().split()))
        text = trajectory.question
        return [self.space.new_record(self.KIND, trajectory, 0, text=text, payload=payload, signature=signature)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        kept = []
        for draft, vector in zip(drafts, vectors, strict=True):
            if draft.payload["revisions"] == 0:
                kept.append(self.keep_once(draft, vector[np.newaxis]))
            elif self._revise(draft):
                kept.append(draft.id)
        return tuple(kept)

    def take(self, effect: Effect, correct: bool) -> None:
        """Count a hit and whether its task ended correct; a script that mostly failed goes."""
        record = self.space.get(effect.record_id)
        if record is None or record.state not in LIVE:
            return
        hits, successes = record.payload["hits"] + 1, record.payload["successes"] + int(correct)
        payload = record.payload | {"hits": hits, "successes": successes}
        self.space.update(record.model_copy(update={"payload": payload}))
        if hits >= LEAST_HITS and successes / hits < LEAST_RATE:
            self.space.archive(record.id, f"{successes} of {hits} tasks that it was shown to ended correct")

    def _revise(self, draft: Record) -> bool:
        """Put the revised text into the record as it stands now; False where it is gone."""
        standing = self.standing([draft.id])
        if not standing:
            return False
        (record,) = standing
        if record.payload["revisions"] != draft.payload["revisions"] - 1:
            raise _RevisedMeanwhile(f"The script {draft.id} was revised by another writer.")
        revised = {name: draft.payload[name] for name in ("script", "steps", "revisions")}
        self.space.update(with_origins(record, draft.origins).model_copy(update={"payload": record.payload | revised}))
        return True

    def _served(self, trajectory: Trajectory) -> list[Record]:
        """The records that the run was shown and that still stand."""
        shown = [injection for injection in trajectory.injections if injection.provider == self.card.name]
        return self.standing([item for injection in shown for item in injection.item_ids])


def _revised(revision: Revision, origin: Origin) -> Record:
    payload = revision.record.payload | revision.script.model_dump() | {"revisions": revision.seen + 1}
    return revision.record.model_copy(update={"payload": payload, "origins": (origin,)})
