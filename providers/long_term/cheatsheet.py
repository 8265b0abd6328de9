"""Dynamic Cheatsheet: one sheet that every retrieval has rewritten for its task, beside summaries of past runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from providers.base import Distiller, PastRun, ProviderCard, SheetEntry, SheetItem
from providers.lexical import tokenise
from providers.long_term.base import SpaceProvider, with_origins
from providers.space import LIVE, Space
from providers.types import Effect, Outcome, Query, Record, Retrieval, Trajectory, content_hash


class Cheatsheet(SpaceProvider[str]):
    """The original's retrieval-synthesis mode: the nearest run, the sheet and the task go to a curator (the distiller),
    whose sheet is injected and becomes the sheet; what it does not write forward is lost.

    Retrieving writes nothing. The rewriting is returned as effects, item by item (new, reworded, used, dropped), so
    that of two sheets that were written at once none wipes out the other. The whole sheet keeps within 200 words:
    beyond them the least used items go, of equals the oldest.
    A preview shows the item of the sheet as it stands that has most of the task's words, or the nearest run.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="cheatsheet",
        title="Dynamic Cheatsheet",
        family="similarity",
        stores="a summary of every run, and one short sheet that evolves",
        retrieves="the sheet, rewritten for the task with the most similar run",
        gate="all",
        top_k=1,
    )

    def __init__(self, space: Space, distiller: Distiller, max_words: int = 200) -> None:
        super().__init__(space, distiller)
        self.max_words = max_words

    def lead(self, query: Query) -> tuple[str, str] | None:
        asked = set(tokenise(query.text))
        items = self.fitting(query, self._sheet())
        if items:
            first = max(items, key=lambda item: len(asked & set(tokenise(_text_of(item)))))
            return _text_of(first), first.id
        runs = self._runs(query)
        return (_text_of(runs[0]), runs[0].id) if runs else None

    def find(self, query: Query) -> Retrieval:
        records = [*self.fitting(query, self._sheet()), *self._runs(query)]
        return Retrieval(provider=self.card.name, item_ids=tuple(record.id for record in records))

    async def refine(self, query: Query, found: Retrieval) -> Retrieval:
        """Have the sheet rewritten for the query; what changes in it is returned as effects."""
        records = await asyncio.to_thread(self.standing, found.item_ids)
        sheet = [record for record in records if record.kind == "item"]
        runs = [record for record in records if record.kind == "run"]
        if not records:
            return Retrieval(provider=self.card.name)
        entries = await self.distiller.curate(
            query.text,
            [SheetItem.model_validate({key: i.payload[key] for key in SheetItem.model_fields}) for i in sheet],
            [PastRun(question=run.text, summary=run.payload["example"]) for run in runs],
            self.max_words,
        )
        if not entries:
            return Retrieval(provider=self.card.name)
        shown = [record_id for entry in entries for record_id in _rests_on(entry, sheet, runs)]
        return Retrieval(
            provider=self.card.name,
            text="\n\n".join(["Cheatsheet:", *(_rendered(entry.description, entry.example) for entry in entries)]),
            item_ids=tuple(dict.fromkeys(shown)),
            effects=tuple(self._changes(entries, sheet, runs)),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return await self.distiller.run_summary(trajectory, outcome)

    def draft(self, trajectory: Trajectory, artefact: str) -> list[Record]:
        payload = {"description": trajectory.question, "example": artefact}
        return [self.space.new_record("run", trajectory, 0, text=trajectory.question, payload=payload)]

    def take(self, effect: Effect, correct: bool) -> None:
        if effect.kind == "new":
            self._write(effect.record_id, effect.payload)
            self._trim()
            return
        for item in self.standing([effect.record_id]):
            if effect.kind == "drop":
                self.space.archive(item.id, "not written forward")
            elif effect.kind == "use":
                self._put(item, {"uses": item.payload["uses"] + 1})
            elif effect.kind == "reword":
                self._put(item, {key: effect.payload[key] for key in ("description", "example")})
                self._trim()
            else:
                super().take(effect, correct)

    def _changes(self, entries: Sequence[SheetEntry], sheet: Sequence[Record], runs: Sequence[Record]) -> list[Effect]:
        """What the rewritten sheet changes in the one that it was written from; what it loses makes room first."""
        changes: list[tuple[str, str, dict[str, Any]]] = []
        forward: set[str] = set()
        for entry in entries:
            words = {"description": entry.description, "example": entry.example}
            item = _continued(entry, sheet)
            if item is None:
                item_id = content_hash(self.card.name, "item", entry.description, entry.example)
                changes.append(("new", item_id, words | {"sources": list(_rests_on(entry, sheet, runs))}))
                forward.add(item_id)
                continue
            forward.add(item.id)
            if entry.used:
                changes.append(("use", item.id, {}))
            if words != {key: item.payload[key] for key in words}:
                changes.append(("reword", item.id, words))
        lost: list[tuple[str, str, dict[str, Any]]] = [("drop", i.id, {}) for i in sheet if i.id not in forward]
        return [
            Effect(provider=self.card.name, kind=kind, record_id=record_id, payload=payload)
            for kind, record_id, payload in (*lost, *changes)
        ]

    def _write(self, item_id: str, payload: dict[str, Any]) -> None:
        """A new item, with the origins of the runs that it was made of; one that was there before returns."""
        sources = [run for source in payload["sources"] if (run := self.space.get(source)) is not None]
        origins = [origin for run in sources for origin in run.origins]
        known = self.space.get(item_id)
        if known is not None:
            fresh = {"order": self._next_order()} if known.state not in LIVE else {}
            self._put(with_origins(known.model_copy(update={"state": "active"}), origins), fresh)
            return
        record = Record(
            id=item_id,
            provider=self.card.name,
            namespace=self.space.namespace,
            kind="item",
            payload={
                "description": payload["description"],
                "example": payload["example"],
                "uses": 0,
                "order": self._next_order(),
            },
            text=payload["description"],
            text_hash=content_hash(payload["description"]),
        )
        self.space.add([with_origins(record, origins) if origins else record])

    def _put(self, item: Record, changed: dict[str, Any]) -> None:
        payload = item.payload | changed
        self.space.update(item.model_copy(update={"payload": payload, "text": payload["description"]}))

    def _trim(self) -> None:
        items = self._sheet()
        words = sum(len(_text_of(item).split()) for item in items)
        for item in sorted(items, key=lambda item: (item.payload["uses"], item.payload["order"])):
            if words <= self.max_words:
                return
            words -= len(_text_of(item).split())
            self.space.archive(item.id, f"the sheet holds {self.max_words} words")

    def _sheet(self) -> list[Record]:
        return sorted(self.space.records("item"), key=lambda item: int(item.payload["order"]))

    def _runs(self, query: Query) -> list[Record]:
        hits = self.space.search_dense(query.embedding, self.card.top_k, kind="run")
        return self.fitting(query, (record for record, _ in hits))

    def _next_order(self) -> int:
        order = self.space.counter("items") + 1
        self.space.set_counter("items", order)
        return order


def _continued(entry: SheetEntry, sheet: Sequence[Record]) -> Record | None:
    """The item that an entry continues; None where it is new."""
    position = entry.continues
    return sheet[position] if position is not None and 0 <= position < len(sheet) else None


def _rests_on(entry: SheetEntry, sheet: Sequence[Record], runs: Sequence[Record]) -> tuple[str, ...]:
    """Ids of the item that an entry continues, else of the run that it names, else of all runs that were shown."""
    item = _continued(entry, sheet)
    if item is not None:
        return (item.id,)
    if entry.source is not None and 0 <= entry.source < len(runs):
        return (runs[entry.source].id,)
    return tuple(run.id for run in runs)


def _rendered(description: str, example: str) -> str:
    return f"{description}\n{example}".strip()


def _text_of(record: Record) -> str:
    return _rendered(record.payload["description"], record.payload["example"])
