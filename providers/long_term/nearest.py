"""What the memories share that show one record: the one whose indexed text is nearest to the query."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from providers.long_term.base import Artefact, SpaceProvider
from providers.types import Effect, Query, Record, Retrieval


class NearestProvider(SpaceProvider[Artefact]):
    """A memory that shows its nearest record, if that reaches the floor; a subclass says how."""

    KIND: ClassVar[str]
    """The kind of its records."""
    COUNTS_USE: ClassVar[bool] = False
    """Whether showing a record has the effect `use`."""

    @abstractmethod
    def headline(self, record: Record) -> str:
        """What a preview shows of the record."""

    @abstractmethod
    def shown(self, record: Record) -> str:
        """What is injected of the record."""

    def lead(self, query: Query) -> tuple[str, str] | None:
        record = self._nearest(query)
        return (self.headline(record), record.id) if record else None

    def find(self, query: Query) -> Retrieval:
        record = self._nearest(query)
        if record is None:
            return Retrieval(provider=self.card.name)
        use = Effect(provider=self.card.name, kind="use", record_id=record.id)
        return Retrieval(
            provider=self.card.name,
            text=self.shown(record),
            item_ids=(record.id,),
            effects=(use,) if self.COUNTS_USE else (),
        )

    def _nearest(self, query: Query) -> Record | None:
        hits = self.space.search_dense(query.embedding, self.card.top_k, kind=self.KIND)
        return next(iter(self.fitting(query, (record for record, _ in hits))), None)
