"""What the built-in providers share: gates, receipts, previews, and work kept off the event loop."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np

from providers.base import Distiller, ProviderCard
from providers.dense import cosines_to
from providers.errors import ModelError, ProviderError
from providers.space import LIVE, Space
from providers.types import Effect, Origin, Outcome, Preview, Query, Record, Retrieval, StoreReceipt, Trajectory

if TYPE_CHECKING:
    from providers.governance.lifecycle import Governor
    from providers.governance.verifier import Verdict

PREVIEW_CHARACTERS = 200
INJECTION_CHARACTERS = 16_000
"""Most text that a retrieval gives, whatever pages or questions a run left in the bank; usual ones stay far below."""

GOVERNED_USE = "governed_use"
"""The effect of showing a governed record: its use, and whether the task was solved, are counted."""

Artefact = TypeVar("Artefact")


class Refused(ProviderError):
    """An artefact that this provider does not keep, with the reason."""


class SpaceProvider(ABC, Generic[Artefact]):
    """A memory over one space. A subclass says what it distils, which records that makes, and how it finds them."""

    CARD: ClassVar[ProviderCard]

    def __init__(self, space: Space, distiller: Distiller) -> None:
        self.space = space
        self.distiller = distiller
        self._card = self.CARD
        self.governor: Governor | None = None
        """Verifies what is offered and governs the space; None stores whatever the gate lets in."""

    @property
    def card(self) -> ProviderCard:
        return self._card

    def set_relevance_floor(self, floor: float | None) -> None:
        """Show only items whose indexed text has at least this cosine to the query; None shows whatever is best."""
        self._card = ProviderCard.model_validate(self.CARD.model_dump() | {"relevance_floor": floor})

    def probe(self, query: Query) -> Preview:
        """The first 200 characters of the item that `retrieve` would put first."""
        self._check(query)
        with self.space.snapshot():
            first = self.lead(query)
            if first is None:
                return Preview(provider=self.card.name)
            text, record_id = first
            self._hold_floor(query, [record_id])
            descriptor = self._described([record_id])
        return Preview(
            provider=self.card.name, text=text[:PREVIEW_CHARACTERS], item_id=record_id, descriptor=descriptor
        )

    async def retrieve(self, query: Query) -> Retrieval:
        """What to inject; nothing changes in the bank. Raises ModelError where the distiller is asked and fails."""
        self._check(query)
        reworded = await self.reworded(query)
        found = await self.refine(query, await asyncio.to_thread(self._retrieve, reworded))
        if self.governor is not None and self.governor.mode == "full":
            found = await asyncio.to_thread(self._governed, found)
        if len(found.text) <= INJECTION_CHARACTERS:
            return found
        return found.model_copy(update={"text": found.text[: INJECTION_CHARACTERS - 1] + "…"})

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        """Keep what this provider keeps of a run, once: the same trajectory gets the receipt it got before.

        A closed gate and a failed model call are not remembered, so the trajectory may be offered again.
        """
        earlier = await asyncio.to_thread(self.space.receipt_of, trajectory.id)
        if earlier is not None:
            return earlier
        try:
            verdict = await self.governor.verify(trajectory) if self.governor is not None else None
        except ModelError as error:
            return self._receipt("failed", str(error))
        outcome = self.judged(outcome, verdict)
        closed = self.closed(outcome)
        if closed is not None:
            return self._receipt("skipped", closed)
        try:
            artefact = await self.distil(trajectory, outcome)
        except ModelError as error:
            return self._receipt("failed", str(error))
        except Refused as refusal:
            return await asyncio.to_thread(self._note, trajectory, self._receipt("skipped", str(refusal)))
        if artefact is None:
            return await asyncio.to_thread(self._note, trajectory, self._receipt("skipped", "nothing to learn from it"))
        return await asyncio.to_thread(self._store, trajectory, artefact, verdict)

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        """Take over the effects of earlier retrievals in one transaction; an unknown outcome changes nothing."""
        if outcome.correct is None or not effects:
            return
        with self.space.transaction():
            for effect in effects:
                if effect.provider != self.card.name:
                    raise ProviderError(f"An effect of {effect.provider!r} was given to {self.card.name!r}.")
                if effect.kind != GOVERNED_USE:
                    self.take(effect, outcome.correct)
                elif self.governor is not None:
                    self.governor.used(self.space, effect.record_id, outcome.correct)

    def judged(self, outcome: Outcome, verdict: Verdict | None) -> Outcome:
        """The outcome that gate and distiller go by, where the run was verified."""
        return outcome

    def closed(self, outcome: Outcome) -> str | None:
        """Why the gate is closed to this outcome, or None where it is open."""
        if self.card.accepts(outcome):
            return None
        seen = "unknown" if outcome.correct is None else "not correct"
        return f"it keeps correct runs only, and the outcome is {seen}"

    @abstractmethod
    def lead(self, query: Query) -> tuple[str, str] | None:
        """Text and record id of the item that retrieval puts first, or None."""

    @abstractmethod
    def find(self, query: Query) -> Retrieval:
        """What the space has for the query, read within one snapshot."""

    @abstractmethod
    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Artefact | None:
        """The artefact of a run, or None where there is nothing to learn. Raises Refused, ModelError."""

    @abstractmethod
    def draft(self, trajectory: Trajectory, artefact: Artefact) -> list[Record]:
        """The records that the artefact would become in an empty space."""

    async def reworded(self, query: Query) -> Query:
        """The query to search by, where the distiller is asked for one."""
        return query

    async def refine(self, query: Query, found: Retrieval) -> Retrieval:
        """What the distiller makes of what was found; a provider that asks nobody injects it as it is."""
        return found

    def fitting(self, query: Query, records: Iterable[Record]) -> list[Record]:
        """Those of the records that reach the relevance floor; a record without indexed text cannot be judged."""
        records = list(records)
        floor = self.card.relevance_floor
        if floor is None or not records:
            return records
        vectors = self.space.vectors([record.id for record in records])
        cosines = cosines_to(vectors, query.embedding)
        return [record for record, cosine in zip(records, cosines, strict=True) if not record.text or cosine >= floor]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        """Write the drafts, inside a transaction; the ids of the records that now hold them."""
        self.space.add(drafts, vectors)
        return tuple(draft.id for draft in drafts)

    def keep_once(self, draft: Record, vector: np.ndarray) -> str:
        """Write the draft, or give its origins to the live record with its signature; the id of what holds it.

        `vector` is of shape (1, dimension). Inside a transaction.
        """
        known = self.space.find_signature(draft.signature, kind=draft.kind)
        if known is None:
            self.space.add([draft], vector)
            return draft.id
        self.space.update(with_origins(known, draft.origins), "repeated", "another run says the same")
        return known.id

    def standing(self, record_ids: Sequence[str]) -> list[Record]:
        """Those of the records that are still retrieved from, in the same order."""
        records = (self.space.get(record_id) for record_id in dict.fromkeys(record_ids))
        return [record for record in records if record is not None and record.state in LIVE]

    def take(self, effect: Effect, correct: bool) -> None:
        """Apply one effect, inside a transaction."""
        raise ProviderError(f"{self.card.name!r} has no effect {effect.kind!r}.")

    def _retrieve(self, query: Query) -> Retrieval:
        with self.space.snapshot():
            found = self.find(query)
            self._hold_floor(query, found.item_ids)
        return found

    def _governed(self, found: Retrieval) -> Retrieval:
        """What was found with the descriptor of its first governed record, and with its uses to be counted."""
        uses = tuple(
            Effect(provider=self.card.name, kind=GOVERNED_USE, record_id=item) for item in dict.fromkeys(found.item_ids)
        )
        descriptor = self._described(found.item_ids)
        return found.model_copy(update={"descriptor": descriptor, "effects": (*found.effects, *uses)})

    def _described(self, record_ids: Sequence[str]) -> str:
        """The descriptor of the first governed record among these, in words; empty where none is governed."""
        if self.governor is None:
            return ""
        for record_id in record_ids:
            record = self.space.get(record_id)
            if record is not None and record.descriptor is not None:
                return self.governor.says(self.space, record.descriptor)
        return ""

    def _store(self, trajectory: Trajectory, artefact: Artefact, verdict: Verdict | None) -> StoreReceipt:
        drafts = self.draft(trajectory, artefact)
        vectors = self.space.encoder.encode([draft.text for draft in drafts])
        with self.space.transaction():
            earlier = self.space.receipt_of(trajectory.id)
            if earlier is not None:
                return earlier
            receipt = self._receipt("stored", record_ids=self.keep(drafts, vectors))
            if self.governor is not None and verdict is not None:
                self.governor.take_in(self.space, receipt.record_ids, trajectory, verdict)
            self.space.note_offer(trajectory.id, receipt)
        return receipt

    def _note(self, trajectory: Trajectory, receipt: StoreReceipt) -> StoreReceipt:
        self.space.note_offer(trajectory.id, receipt)
        return receipt

    def _receipt(self, status: str, reason: str = "", record_ids: tuple[str, ...] = ()) -> StoreReceipt:
        return StoreReceipt.model_validate(
            {"provider": self.card.name, "status": status, "reason": reason, "record_ids": record_ids}
        )

    def _hold_floor(self, query: Query, item_ids: Sequence[str]) -> None:
        """No provider shows what its floor keeps out, whatever it is that it searches by."""
        if self.card.relevance_floor is None:
            return
        shown = [self.space.existing(item) for item in item_ids]
        if len(self.fitting(query, shown)) < len(shown):
            raise ProviderError(
                f"{self.card.name!r} would show an item below its relevance floor of {self.card.relevance_floor:g}: "
                "its search must pass what it found through `fitting`."
            )

    def _check(self, query: Query) -> None:
        if query.namespace != self.space.namespace:
            raise ProviderError(
                f"{self.card.name!r} serves namespace {self.space.namespace!r} and was asked for {query.namespace!r}: "
                "load the provider over the space of that namespace."
            )


def with_origins(record: Record, origins: Sequence[Origin]) -> Record:
    """The record with further origins; each of its m trajectories holds a share of 1/m."""
    by_trajectory = {origin.trajectory_id: origin for origin in (*record.origins, *origins)}
    share = 1.0 / len(by_trajectory)
    shared = tuple(origin.with_share(share) for origin in by_trajectory.values())
    return record.model_copy(update={"origins": shared})
