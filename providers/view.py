"""What is known in memory of one space's rows: an image of one committed state, and the indexes over it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from providers.dense import DenseIndex
from providers.index_file import IndexParts
from providers.lexical import LexicalIndex
from providers.schema import content_sum
from providers.types import Record

LIVE = ("active", "guard", "provisional")
"""The states that are retrieved from."""
_LIVE = frozenset(LIVE)


@dataclass(frozen=True)
class Written:
    """A record as a transaction has it, and its vector (None: it has none)."""

    record: Record
    vector: np.ndarray | None


@dataclass(frozen=True)
class Row(Written):
    """A record as it was committed."""

    digest: int
    """Sum of the digests of its two rows."""


@dataclass(frozen=True)
class Tags:
    """What indexes need to know of a record."""

    kind: str
    state: str
    signature: str


@dataclass
class _Index:
    """The records of one kind (None: of all kinds) in some states, by id, with their indexes, each made when first
    asked for."""

    kind: str | None
    states: frozenset[str]
    members: set[str]
    ordered: list[str]
    dense: DenseIndex | None = None
    lexical: LexicalIndex | None = None

    def wants(self, tags: Tags) -> bool:
        return tags.state in self.states and self.kind in (None, tags.kind)


@dataclass
class View:
    """One committed state of a space. Not thread-safe; records are read from the bank when first asked for."""

    dimension: int
    fetch: Callable[[Sequence[str]], Iterable[tuple[Record, int]]]
    """Reads the records of these ids, with their generations; of one that is gone meanwhile it gives nothing."""
    generation: int = 0
    content: int = 0
    """Sum of the rows' digests."""
    tags: dict[str, Tags] = field(default_factory=dict)
    _digests: dict[str, int] = field(default_factory=dict)
    _records: dict[str, Record] = field(default_factory=dict)
    _signatures: dict[str, set[str]] = field(default_factory=dict)
    _vectors: dict[str, np.ndarray] = field(default_factory=dict)
    """Those that are not in `_table`."""
    _table: np.ndarray | None = None
    _table_rows: dict[str, int] = field(default_factory=dict)
    _indexes: dict[tuple[str | None, frozenset[str]], _Index] = field(default_factory=dict)

    # Reading

    def get(self, record_id: str) -> Record | None:
        return next(iter(self.all_of([record_id])), None) if record_id in self.tags else None

    def all_of(self, record_ids: Sequence[str]) -> list[Record]:
        """The records of these ids, in that order; one that was changed since comes as it is now."""
        newer: dict[str, Record] = {}
        missing = [record_id for record_id in record_ids if record_id not in self._records]
        if not missing:
            return [self._records[record_id] for record_id in record_ids]
        for record, generation in self.fetch(missing):
            (self._records if generation <= self.generation else newer)[record.id] = record
        found = (self._records.get(record_id) or newer.get(record_id) for record_id in record_ids)
        return [record for record in found if record is not None]

    def ids(self, kind: str | None, states: Iterable[str] = _LIVE) -> list[str]:
        """Ids of the records of a kind in these states, in order."""
        return self._index(kind, frozenset(states)).ordered

    def with_signature(self, signature: str) -> set[str]:
        return self._signatures.get(signature, set())

    def vector(self, record_id: str) -> np.ndarray | None:
        row = self._table_rows.get(record_id)
        if row is not None and self._table is not None:
            found: np.ndarray = self._table[row]
            return found
        return self._vectors.get(record_id)

    def vectors(self, record_ids: Sequence[str]) -> np.ndarray:
        """The vectors of the ids, shape (ids, dimension), in an array of their own; zeros where there is none."""
        found = np.zeros((len(record_ids), self.dimension), dtype=np.float32)
        rows = np.array([self._table_rows.get(record_id, -1) for record_id in record_ids], dtype=np.int64)
        if self._table is not None:
            found[rows >= 0] = self._table[rows[rows >= 0]]
        for place in np.flatnonzero(rows < 0).tolist():
            vector = self._vectors.get(record_ids[place])
            if vector is not None:
                found[place] = vector
        return found

    def dense(self, kind: str | None, states: Iterable[str] = _LIVE) -> DenseIndex:
        index = self._index(kind, frozenset(states))
        if index.dense is None or index.dense.outgrown:
            index.dense = DenseIndex(self.dimension, *self._with_vectors(index.ordered))
        return index.dense

    def lexical(self, kind: str | None) -> LexicalIndex:
        index = self._index(kind)
        if index.lexical is None:
            index.lexical = LexicalIndex()
            for record in self.all_of(index.ordered):
                index.lexical.add(record.id, record.text)
        return index.lexical

    # Following the rows

    def follow(self, changed: Sequence[Row], generation: int) -> None:
        """Take over the rows that changed since `self.generation`."""
        stale: dict[str, bool] = {}
        for row in changed:
            record = row.record
            before = self._records.get(record.id)
            stale[record.id] = before is None or before.text != record.text
            self._set_tags(record)
            self._records[record.id] = record
            self.content = content_sum((self.content, row.digest, -self._digests.get(record.id, 0)))
            self._digests[record.id] = row.digest
            if stale[record.id] or row.vector is None:
                self._table_rows.pop(record.id, None)
                self._vectors.pop(record.id, None)
                if row.vector is not None:
                    self._vectors[record.id] = row.vector
        for index in self._indexes.values():
            self._reindex(index, [row.record.id for row in changed], stale)
        self.generation = generation

    def _set_tags(self, record: Record) -> None:
        before = self.tags.get(record.id)
        if before is not None and before.signature:
            self._signatures[before.signature].discard(record.id)
        if record.signature:
            self._signatures.setdefault(record.signature, set()).add(record.id)
        self.tags[record.id] = Tags(record.kind, record.state, record.signature)

    def _reindex(self, index: _Index, changed: Sequence[str], stale: Mapping[str, bool]) -> None:
        """Bring one index in line with the changed records; an unchanged text is not indexed again."""
        entering, leaving = [], []
        for record_id in changed:
            was, will = record_id in index.members, index.wants(self.tags[record_id])
            if was and (not will or stale[record_id]):
                index.members.discard(record_id)
                del index.ordered[bisect_left(index.ordered, record_id)]
                leaving.append(record_id)
                was = False
            if will and not was:
                index.members.add(record_id)
                insort(index.ordered, record_id)
                entering.append(record_id)
        if index.dense is not None:
            index.dense.remove(*leaving)
            index.dense.add(*self._with_vectors(entering))
        if index.lexical is not None:
            for record_id in leaving:
                index.lexical.remove(record_id)
            for record_id in entering:
                index.lexical.add(record_id, self._records[record_id].text)

    def _with_vectors(self, record_ids: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """Those of the ids that have a vector, and the vectors, shape (ids, dimension)."""
        rows = [self._table_rows.get(record_id, -1) for record_id in record_ids]
        if self._table is not None and rows and min(rows) >= 0:
            return list(record_ids), self._table[rows]
        found = [(record_id, vector) for record_id in record_ids if (vector := self.vector(record_id)) is not None]
        vectors = np.stack([v for _, v in found]) if found else np.zeros((0, self.dimension), dtype=np.float32)
        return [record_id for record_id, _ in found], vectors

    def _index(self, kind: str | None, states: frozenset[str] = _LIVE) -> _Index:
        index = self._indexes.get((kind, states))
        if index is None:
            index = self._indexes[kind, states] = _Index(kind, states, set(), [])
            index.ordered = sorted(record_id for record_id, tags in self.tags.items() if index.wants(tags))
            index.members = set(index.ordered)
        return index

    # As parts of an index file

    def dump(self) -> IndexParts:
        """Tags, vectors and those indexes over live records that were made, for `load`."""
        ids = sorted(self.tags)
        with_vector, table = self._with_vectors(ids)
        lists: dict[str, Sequence[str]] = {
            "ids": ids,
            "kinds": [self.tags[record_id].kind for record_id in ids],
            "states": [self.tags[record_id].state for record_id in ids],
            "signatures": [self.tags[record_id].signature for record_id in ids],
            "with_vector": with_vector,
        }
        arrays: dict[str, np.ndarray] = {
            "digests": np.array([self._digests[i] for i in ids], dtype=np.int64),
            "vectors": table,
        }
        for (kind, states), index in self._indexes.items():
            if states != _LIVE:
                continue
            mark = _mark(kind)
            if index.lexical is not None:
                lexical_lists, lexical_arrays = index.lexical.dump()
                lists |= {f"lexical.{name}{mark}": values for name, values in lexical_lists.items()}
                arrays |= {f"lexical.{name}{mark}": array for name, array in lexical_arrays.items()}
            if index.dense is not None and not index.dense.exact:
                lists[f"dense.names{mark}"], arrays[f"dense.cells{mark}"] = index.dense.dump()
        return IndexParts(lists, arrays)

    def load(self, parts: IndexParts, generation: int, content: int) -> None:
        """Take over what `dump` gave at that generation."""
        lists, arrays = parts.lists, parts.arrays
        ids = lists["ids"]
        for record_id, kind, state, signature in zip(
            ids, lists["kinds"], lists["states"], lists["signatures"], strict=True
        ):
            self.tags[record_id] = Tags(kind, state, signature)
            if signature:
                self._signatures.setdefault(signature, set()).add(record_id)
        self._digests = dict(zip(ids, arrays["digests"].tolist(), strict=True))
        self._table = arrays["vectors"]
        self._table_rows = {record_id: row for row, record_id in enumerate(lists["with_vector"])}
        for name in lists:
            part, _, mark = name.partition("@")
            if part == "lexical.names":
                self._index(_kind(mark)).lexical = LexicalIndex.load(*_lexical_parts(parts, f"@{mark}"))
            elif part == "dense.names":
                index = self._index(_kind(mark))
                index.dense = DenseIndex.load(self.dimension, lists[name], index.members, arrays[f"dense.cells@{mark}"])
        self.generation, self.content = generation, content


def _mark(kind: str | None) -> str:
    return "@*" if kind is None else f"@={kind}"


def _kind(mark: str) -> str | None:
    return None if mark == "*" else mark[1:]


def _lexical_parts(parts: IndexParts, mark: str) -> tuple[dict[str, Sequence[str]], dict[str, np.ndarray]]:
    lists = {name: parts.lists[f"lexical.{name}{mark}"] for name in ("names", "terms")}
    arrays = {name: parts.arrays[f"lexical.{name}{mark}"] for name in ("first", "entry_term", "entry_count", "length")}
    return lists, arrays
