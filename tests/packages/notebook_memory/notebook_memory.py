"""Notebook: what every run thought, found by the question. Built on a Space alone, as any other package may."""

import asyncio

from memroute import Preview, ProviderCard, ProviderError, Retrieval, StoreReceipt
from providers.types import Effect


class Notebook:
    """One note per run; how often a note was read by a run that ended correct is counted on it."""

    CARD = ProviderCard(
        name="notebook",
        title="Notebook",
        family="similarity",
        stores="the thoughts of each run",
        retrieves="the note whose question is nearest in meaning",
        gate="all",
        top_k=1,
    )

    def __init__(self, space, distiller):
        self.space = space

    @property
    def card(self):
        return self.CARD

    def probe(self, query):
        note = self._nearest(query)
        if note is None:
            return Preview(provider="notebook")
        return Preview(provider="notebook", text=note.payload["note"][:200], item_id=note.id)

    async def retrieve(self, query):
        return await asyncio.to_thread(self._retrieve, query)

    def _retrieve(self, query):
        note = self._nearest(query)
        if note is None:
            return Retrieval(provider="notebook")
        effects = (Effect(provider="notebook", kind="read", record_id=note.id),)
        return Retrieval(provider="notebook", text=note.payload["note"], item_ids=(note.id,), effects=effects)

    async def store(self, trajectory, outcome):
        return await asyncio.to_thread(self._store, trajectory)

    def _store(self, trajectory):
        with self.space.transaction():
            earlier = self.space.receipt_of(trajectory.id)
            if earlier is not None:
                return earlier
            thoughts = " ".join(step.thought[:500] for step in trajectory.steps)[:2000]
            if thoughts:
                question = trajectory.question[:500]
                payload = {"note": f"{question}\n{thoughts}", "reads": 0}
                note = self.space.new_record("note", trajectory, 0, text=question or "-", payload=payload)
                self.space.add([note])
                receipt = StoreReceipt(provider="notebook", status="stored", record_ids=(note.id,))
            else:
                receipt = StoreReceipt(provider="notebook", status="skipped", reason="the run thought nothing")
            self.space.note_offer(trajectory.id, receipt)
            return receipt

    def apply(self, effects, outcome):
        if not effects or outcome.correct is None:
            return
        with self.space.transaction():
            for effect in effects:
                note = self.space.get(effect.record_id)
                if note is None:  # forgotten since it was read
                    continue
                payload = note.payload | {"reads": note.payload["reads"] + int(outcome.correct)}
                self.space.update(note.model_copy(update={"payload": payload}))

    def _nearest(self, query):
        if query.namespace != self.space.namespace:
            raise ProviderError(f"notebook serves the namespace {self.space.namespace!r}, not {query.namespace!r}.")
        hits = self.space.search_dense(query.embedding, 1)
        return hits[0][0] if hits else None
