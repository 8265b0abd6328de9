"""Memories with one fault each, of the kinds that reference ports have, for the kit to catch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from providers.base import Narrative, ProviderCard
from providers.errors import ModelError
from providers.governance.verifier import Verdict
from providers.long_term.base import SpaceProvider
from providers.long_term.voyager import Voyager
from providers.types import Effect, Outcome, Preview, Query, Record, Retrieval, StoreReceipt, Trajectory


class NeverAppends(Voyager):
    """Builds its record and gives a receipt, and never writes the record."""

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        return tuple(draft.id for draft in drafts)


class ForgetsOnReopening(Voyager):
    """Keeps its records in memory alone."""

    def __init__(self, space: Any, distiller: Any) -> None:
        super().__init__(space, distiller)
        self.kept: list[Record] = []

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        self.kept += drafts
        return tuple(draft.id for draft in drafts)

    def _nearest(self, query: Query) -> Record | None:
        return self.kept[-1] if self.kept else None


class TalksWhenEmpty(Voyager):
    """Greets where it has nothing."""

    def find(self, query: Query) -> Retrieval:
        found = super().find(query)
        return found if found.text else found.model_copy(update={"text": "No memory yet."})


class StoresTwice(Voyager):
    """Every offer is a new record."""

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        number = self.space.counter("offers") + 1
        self.space.set_counter("offers", number)
        return await super().store(trajectory.model_copy(update={"id": f"{trajectory.id}-{number}"}), outcome)


class IgnoresNamespaces(Voyager):
    """Looks into every namespace."""

    def _check(self, query: Query) -> None:
        pass

    def _nearest(self, query: Query) -> Record | None:
        for namespace in ("ours", "theirs"):
            hits = self.space.bank.space(self.space.provider, namespace).search_dense(query.embedding, 1)
            if hits:
                return hits[0][0]
        return None


class SharesOneList(Voyager):
    """Reads a list, adds to it and writes it back, with time for another writer in between."""

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        known = {record.id: record for record in self.space.records("list")}
        sheet = next(iter(known.values()), None)
        lines = sheet.payload["ids"] if sheet else []
        draft = self.space.new_record("list", trajectory, 0, text="list", payload={"ids": []})
        await asyncio.sleep(0.02)
        changed = (sheet or draft).model_copy(update={"id": "list", "payload": {"ids": [*lines, draft.id]}})
        if self.space.get("list") is None:
            self.space.add([changed])
        else:
            self.space.update(changed)
        return self._receipt("stored", record_ids=(draft.id,))


class AsciiOnly(Voyager):
    """Matches words of Latin letters."""

    def _nearest(self, query: Query) -> Record | None:
        asked = {word for word in query.text.lower().split() if word.isascii() and len(word) > 4}
        records = self.space.records("narrative")
        return next((r for r in records if asked & set(r.payload["question"].lower().split())), None)


class InjectsEverything(Voyager):
    """Injects every page that it ever saw."""

    def draft(self, trajectory: Trajectory, artefact: tuple[Narrative, bool | None]) -> list[Record]:
        (record,) = super().draft(trajectory, artefact)
        pages = "\n".join(step.observation for step in trajectory.steps)
        return [record.model_copy(update={"payload": record.payload | {"digest": pages}})]

    async def retrieve(self, query: Query) -> Retrieval:
        return self.find(query)


class WritesInHalves(Voyager):
    """Notes that a run was stored, and then stores it."""

    def _store(
        self, trajectory: Trajectory, artefact: tuple[Narrative, bool | None], verdict: Verdict | None
    ) -> StoreReceipt:
        drafts = self.draft(trajectory, artefact)
        receipt = self._receipt("stored", record_ids=tuple(draft.id for draft in drafts))
        self.space.note_offer(trajectory.id, receipt)
        self.space.add(drafts)
        return receipt


class ShowsScores(Voyager):
    """Prints the similarity into the text."""

    def lead(self, query: Query) -> tuple[str, str] | None:
        hits = self.space.search_dense(query.embedding, 1)
        return (f"({hits[0][1]:.4f}) {hits[0][0].payload['digest']}", hits[0][0].id) if hits else None


class AsksToPreview(Voyager):
    """Has a model word its preview."""

    def probe(self, query: Query) -> Preview:
        nothing = Trajectory.make(task_id="", question="", agent="", seed=0)
        asking = self.distiller.narrative(nothing, Outcome(correct=None))
        with contextlib.suppress(StopIteration, ModelError):
            asking.send(None)  # type: ignore[attr-defined]
        return super().probe(query)


class CountsWhenPreviewing(Voyager):
    """Counts its previews in the bank."""

    def probe(self, query: Query) -> Preview:
        self.space.set_counter("previews", self.space.counter("previews") + 1)
        return super().probe(query)


class CountsWhenRetrieving(Voyager):
    """Counts its retrievals in the bank at once instead of by effects."""

    async def retrieve(self, query: Query) -> Retrieval:
        self.space.set_counter("uses", self.space.counter("uses") + 1)
        return await super().retrieve(query)


class TakesUnscoredForCorrect(Voyager):
    """Keeps out wrong runs alone."""

    CARD: ClassVar[ProviderCard] = Voyager.CARD.model_copy(update={"gate": "success"})

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        correct = outcome.correct is not False
        return await super().store(trajectory, outcome.model_copy(update={"correct": correct}))


class HidesFailures(Voyager):
    """An outage looks like nothing to learn."""

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Narrative, bool | None] | None:
        try:
            return await super().distil(trajectory, outcome)
        except ModelError:
            return None


class HidesOutages(Voyager):
    """An outage while it retrieves looks like nothing found."""

    async def retrieve(self, query: Query) -> Retrieval:
        try:
            await self.distiller.search_text(query.text)
        except ModelError:
            return Retrieval(provider=self.card.name)
        return await super().retrieve(query)


class _Counting(Voyager):
    def find(self, query: Query) -> Retrieval:
        found = super().find(query)
        effects = tuple(Effect(provider=self.card.name, kind="use", record_id=item) for item in found.item_ids)
        return found.model_copy(update={"effects": effects})

    def take(self, effect: Effect, correct: bool) -> None:
        record = self.space.existing(effect.record_id)
        self.space.update(self.counted(record))

    def counted(self, record: Record) -> Record:
        return record.model_copy(update={"payload": record.payload | {"uses": record.payload.get("uses", 0) + 1}})


class TripsOverForgotten(_Counting):
    """Takes for granted that what was retrieved is still there."""


class LosesCounts(_Counting):
    """Counts in its own memory and writes what it has: two instances overwrite each other."""

    def __init__(self, space: Any, distiller: Any) -> None:
        super().__init__(space, distiller)
        self.uses = 0

    def counted(self, record: Record) -> Record:
        self.uses += 1
        return record.model_copy(update={"payload": record.payload | {"uses": self.uses}})


class CountsUnknown(_Counting):
    """An unknown outcome counts as a wrong one."""

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        super().apply(effects, outcome.model_copy(update={"correct": outcome.correct is True}))


class CopiesWithoutOrigin(Voyager):
    """Keeps a second copy of every digest that does not say which run it comes from."""

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        copies = [
            draft.model_copy(update={"id": f"{draft.id}-copy", "kind": "copy", "origins": ()}) for draft in drafts
        ]
        self.space.add(copies)
        return super().keep(drafts, vectors)


class GrowsWithUse(_Counting):
    """Every use becomes two further records."""

    def take(self, effect: Effect, correct: bool) -> None:
        number = self.space.counter("uses") + 1
        self.space.set_counter("uses", number)
        record = self.space.existing(effect.record_id)
        self.space.add([record.model_copy(update={"id": f"{effect.record_id}-{number}-{half}"}) for half in range(2)])


class Raises(SpaceProvider[None]):
    """Divides by zero."""

    CARD: ClassVar[ProviderCard] = Voyager.CARD

    def lead(self, query: Query) -> tuple[str, str] | None:
        raise ZeroDivisionError("division by zero")

    def find(self, query: Query) -> Retrieval:
        raise ZeroDivisionError("division by zero")

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> None:
        return None

    def draft(self, trajectory: Trajectory, artefact: None) -> list[Record]:
        return []
