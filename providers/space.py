"""A space: the records that one provider has in one namespace, and the indexes over them."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from providers.embedder import Encoder
from providers.errors import BankError
from providers.lexical import LexicalIndex
from providers.types import Origin, Record, StoreReceipt, Trajectory, content_hash

if TYPE_CHECKING:
    from providers.bank import MemoryBank

Pending = dict[str, tuple[Record, np.ndarray | None]]
"""Records with their vectors by id, written but not yet committed."""

LIVE = ("active", "guard", "provisional")
"""The states that are retrieved from."""


class DenseIndex:
    """Inner products over unit vectors (FAISS, exact), by record id."""

    def __init__(self, dimension: int) -> None:
        import faiss

        self._selector = faiss.IDSelectorBatch
        self._index = faiss.IndexIDMap(faiss.IndexFlatIP(dimension))
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, items: Sequence[tuple[str, np.ndarray]]) -> None:
        """Index vectors under new names."""
        if not items:
            return
        numbers = np.arange(len(self._names), len(self._names) + len(items), dtype=np.int64)
        for name, _ in items:
            self._numbers[name] = len(self._names)
            self._names.append(name)
        self._index.add_with_ids(np.stack([vector for _, vector in items]), numbers)

    def remove(self, name: str) -> None:
        """Forget `name`; nothing happens where it is unknown."""
        number = self._numbers.pop(name, None)
        if number is not None:
            self._index.remove_ids(self._selector(np.array([number], dtype=np.int64)))

    def search(self, embedding: np.ndarray, k: int) -> list[tuple[str, float]]:
        """The k nearest names with their cosine; equal scores are ordered by name, also at the cut."""
        query = np.ascontiguousarray(embedding, dtype=np.float32).reshape(1, -1)
        wanted = min(k, len(self))
        reach = min(wanted + 1, len(self))
        while wanted > 0:
            scores, numbers = self._index.search(query, reach)
            if reach == len(self) or scores[0, reach - 1] < scores[0, wanted - 1]:
                hits = [(self._names[n], float(s)) for s, n in zip(scores[0], numbers[0], strict=True)]
                return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:wanted]
            reach = min(2 * reach, len(self))
        return []


class _Index:
    """The live records of one kind (None: of all kinds) with their indexes, each made when first asked for."""

    def __init__(self, kind: str | None) -> None:
        self.kind = kind
        self.members: set[str] = set()
        self.ordered: list[Record] | None = None
        self.dense: DenseIndex | None = None
        self.lexical: LexicalIndex | None = None

    def wants(self, record: Record) -> bool:
        return record.state in LIVE and (self.kind is None or record.kind == self.kind)


class Space:
    """What one provider keeps in one namespace. Thread-safe; indexes are caches that follow the rows.

    Inside `transaction`, searches see what was committed before it; everything else sees its own writes too.
    """

    def __init__(self, bank: MemoryBank, provider: str, namespace: str) -> None:
        self.bank = bank
        self.provider = provider
        self.namespace = namespace
        self._key = (provider, namespace)
        self._lock = threading.RLock()
        self._pinned = 0
        self._generation = 0
        self._records: dict[str, Record] = {}
        self._vectors: dict[str, np.ndarray] = {}
        self._signatures: dict[str, set[str]] = {}
        self._indexes: dict[str | None, _Index] = {}

    @property
    def encoder(self) -> Encoder:
        return self.bank.encoder

    @property
    def generation(self) -> int:
        """Grows with every change of the space's records; equal generations mean equal content."""
        with self.snapshot():
            return self._generation

    # Writing

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside are committed together, or none is. Nests within a thread; must not span an `await`."""
        with self.bank.transaction():
            yield

    def new_record(
        self,
        kind: str,
        trajectory: Trajectory,
        position: int,
        *,
        text: str,
        payload: dict[str, Any],
        signature: str = "",
    ) -> Record:
        """A record of this space that originates in `trajectory`; its id depends on where it came from alone."""
        return Record(
            id=content_hash(self.provider, kind, trajectory.id, position),
            provider=self.provider,
            namespace=self.namespace,
            kind=kind,
            payload=payload,
            text=text,
            text_hash=content_hash(text),
            origins=(Origin(trajectory_id=trajectory.id, task_id=trajectory.task_id),),
            signature=signature,
        )

    def add(self, records: Sequence[Record], vectors: np.ndarray | None = None) -> None:
        """Add records with their vectors; `vectors` (n, dimension) saves encoding `Record.text` here.

        A record without text gets no vector. One whose id is already there is left as it is.
        """
        embedded = [record for record in records if record.text]
        if vectors is None:
            vectors = self.encoder.encode([record.text for record in embedded])
        elif len(vectors) != len(embedded):
            raise BankError(f"{len(vectors)} vectors were given for {len(embedded)} records with text.")
        rows = {record.id: vector for record, vector in zip(embedded, vectors, strict=True)}
        with self.bank.transaction() as connection:
            known = {record.id for record in records if self.get(record.id) is not None}
            for record in records:
                if record.id in known:
                    continue
                self._write(connection, record, rows.get(record.id))
                self._note(connection, record.id, "added", record.kind)

    def update(self, record: Record) -> None:
        """Replace the record of that id; it is encoded again only where its text changed."""
        with self.bank.transaction() as connection:
            before = self.existing(record.id)
            if record.text == before.text:
                vector = self._vector(record.id)
            else:
                record = record.model_copy(update={"text_hash": content_hash(record.text)})
                vector = self.encoder.encode([record.text])[0] if record.text else None
            self._write(connection, record, vector)
            self._note(connection, record.id, "updated", "")

    def archive(self, record_id: str, reason: str) -> None:
        """Take a record out of retrieval; the row stays."""
        with self.bank.transaction() as connection:
            record = self.existing(record_id).model_copy(update={"state": "archived"})
            self._write(connection, record, self._vector(record_id))
            self._note(connection, record_id, "archived", reason)

    def note_offer(self, trajectory_id: str, receipt: StoreReceipt) -> None:
        """Remember what became of an offered trajectory; the first receipt stands."""
        with self.bank.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO offers VALUES (?, ?, ?, ?)",
                (*self._key, trajectory_id, receipt.model_dump_json()),
            )

    def set_counter(self, name: str, value: int) -> None:
        with self.bank.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)", (*self._key, name, value))

    # Reading

    def get(self, record_id: str) -> Record | None:
        """The record of that id in whatever state, or None."""
        pending = self._pending.get(record_id)
        if pending is not None:
            return pending[0]
        with self.snapshot():
            return self._records.get(record_id)

    def existing(self, record_id: str) -> Record:
        """The record of that id; BankError where there is none."""
        record = self.get(record_id)
        if record is None:
            raise BankError(f"{self.provider!r} has no record {record_id!r} in namespace {self.namespace!r}.")
        return record

    def records(self, kind: str | None = None, state: Iterable[str] = LIVE) -> list[Record]:
        """Records by kind and state, in order of their ids."""
        states = set(state)
        with self.snapshot():
            if states == set(LIVE):
                found = self._live(kind)
            else:
                found = [self._records[record_id] for record_id in sorted(self._records)]
        if pending := self._pending:
            written = [record for record, _ in pending.values()]
            found = sorted([r for r in found if r.id not in pending] + written, key=lambda record: record.id)
        return [record for record in found if record.state in states and kind in (None, record.kind)]

    def find_signature(self, signature: str, kind: str | None = None, state: Iterable[str] = LIVE) -> Record | None:
        """The record with that content signature, or None; of several the one with the least id."""
        states = set(state)
        with self.snapshot():
            ids = {record_id for record_id, (record, _) in self._pending.items() if record.signature == signature}
            ids |= self._signatures.get(signature, set())
            found = [record for record_id in sorted(ids) if (record := self.get(record_id)) is not None]
        fitting = (r for r in found if r.signature == signature and r.state in states and kind in (None, r.kind))
        return next(fitting, None)

    def receipt_of(self, trajectory_id: str) -> StoreReceipt | None:
        """What became of a trajectory that was offered before, or None."""
        with self.bank.reporting():
            row = self.bank.current.execute(
                "SELECT receipt FROM offers WHERE provider = ? AND namespace = ? AND trajectory_id = ?",
                (*self._key, trajectory_id),
            ).fetchone()
        return StoreReceipt.model_validate_json(row[0]) if row else None

    def counter(self, name: str) -> int:
        """A persisted whole number, 0 where it was never set."""
        with self.bank.reporting():
            row = self.bank.current.execute(
                "SELECT value FROM counters WHERE provider = ? AND namespace = ? AND name = ?", (*self._key, name)
            ).fetchone()
        return int(row[0]) if row else 0

    def vectors(self, record_ids: Sequence[str]) -> np.ndarray:
        """The records' vectors, shape (len(record_ids), dimension); zeros where a record has none."""
        table = np.zeros((len(record_ids), self.encoder.dimension), dtype=np.float32)
        with self.snapshot():
            known = self._vectors | {record_id: vector for record_id, (_, vector) in self._pending.items()}
        for row, record_id in enumerate(record_ids):
            vector = known.get(record_id)
            if vector is not None:
                table[row] = vector
        return table

    def search_dense(self, embedding: np.ndarray, k: int, kind: str | None = None) -> list[tuple[Record, float]]:
        """The k live records nearest by cosine, best first; equal scores are ordered by id."""
        if embedding.shape != (self.encoder.dimension,):
            raise BankError(
                f"A query of shape {embedding.shape} was given to a bank of {self.encoder.dimension} dimensions: "
                "encode the query with the bank's own encoder."
            )
        with self.snapshot():
            return [(self._records[name], score) for name, score in self._dense(kind).search(embedding, k)]

    def search_lexical(self, text: str, k: int | None = None, kind: str | None = None) -> list[tuple[Record, float]]:
        """The k live records (None: all) that share words with `text`, by BM25 in [0, 1), best first, then by id."""
        with self.snapshot():
            return self._ranked(self._lexical(kind).bm25(text), k)

    def lexical_scores(self, text: str, kind: str | None = None) -> dict[str, float]:
        """BM25 in [0, 1) of every live record that shares words with `text`, by id, in no order."""
        with self.snapshot():
            return self._lexical(kind).bm25(text)

    def search_tfidf(self, text: str, k: int | None = None, kind: str | None = None) -> list[tuple[Record, float]]:
        """The k live records (None: all) that share words with `text`, by TF-IDF cosine, best first, then by id."""
        with self.snapshot():
            return self._ranked(self._lexical(kind).tfidf(text), k)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything read inside, outside of a transaction, belongs to one committed state. Keep it short."""
        with self._lock, self.bank.reading():
            if not self._pinned:
                self._refresh()
            self._pinned += 1
            try:
                yield
            finally:
                self._pinned -= 1

    # The cache over the rows

    def _refresh(self) -> None:
        """Take over the rows that changed since the last look, and nothing else."""
        with self.bank.reporting():
            connection = self.bank.committed
            row = connection.execute(
                "SELECT generation FROM generations WHERE provider = ? AND namespace = ?", self._key
            ).fetchone()
            generation = int(row[0]) if row else 0
            if generation == self._generation:
                return
            rows = connection.execute(
                "SELECT r.body, v.vector FROM records r LEFT JOIN vectors v USING (provider, namespace, id)"
                " WHERE r.provider = ? AND r.namespace = ? AND r.generation > ? ORDER BY r.id",
                (*self._key, self._generation),
            ).fetchall()
        changed = [(Record.model_validate_json(body), blob) for body, blob in rows]
        self._follow(changed)
        self._generation = generation

    def _follow(self, changed: Sequence[tuple[Record, bytes | None]]) -> None:
        stale: dict[str, bool] = {}
        for record, blob in changed:
            before = self._records.get(record.id)
            stale[record.id] = before is None or before.text != record.text
            if before is not None:
                self._signatures.get(before.signature, set()).discard(record.id)
            if record.signature:
                self._signatures.setdefault(record.signature, set()).add(record.id)
            self._records[record.id] = record
            if blob is None:
                self._vectors.pop(record.id, None)
            elif stale[record.id]:
                self._vectors[record.id] = np.frombuffer(blob, dtype=np.float32)
        for index in self._indexes.values():
            self._reindex(index, [record for record, _ in changed], stale)

    def _reindex(self, index: _Index, changed: Sequence[Record], stale: dict[str, bool]) -> None:
        """Bring one index in line with the changed records; an unchanged text is not indexed again."""
        index.ordered = None
        entering = []
        for record in changed:
            was, will = record.id in index.members, index.wants(record)
            if was and (not will or stale[record.id]):
                self._drop(index, record.id)
                was = False
            if will and not was:
                index.members.add(record.id)
                entering.append(record)
        if index.dense is not None:
            index.dense.add([(r.id, self._vectors[r.id]) for r in entering if r.id in self._vectors])
        if index.lexical is not None:
            for record in entering:
                index.lexical.add(record.id, record.text)

    def _drop(self, index: _Index, record_id: str) -> None:
        index.members.discard(record_id)
        if index.dense is not None:
            index.dense.remove(record_id)
        if index.lexical is not None:
            index.lexical.remove(record_id)

    def _index(self, kind: str | None) -> _Index:
        index = self._indexes.get(kind)
        if index is None:
            index = self._indexes[kind] = _Index(kind)
            index.members = {record.id for record in self._records.values() if index.wants(record)}
        return index

    def _live(self, kind: str | None) -> list[Record]:
        index = self._index(kind)
        if index.ordered is None:
            index.ordered = [self._records[name] for name in sorted(index.members)]
        return index.ordered

    def _dense(self, kind: str | None) -> DenseIndex:
        index = self._index(kind)
        if index.dense is None:
            index.dense = DenseIndex(self.encoder.dimension)
            index.dense.add([(name, self._vectors[name]) for name in sorted(index.members) if name in self._vectors])
        return index.dense

    def _lexical(self, kind: str | None) -> LexicalIndex:
        index = self._index(kind)
        if index.lexical is None:
            index.lexical = LexicalIndex()
            for name in sorted(index.members):
                index.lexical.add(name, self._records[name].text)
        return index.lexical

    def _ranked(self, scores: dict[str, float], k: int | None) -> list[tuple[Record, float]]:
        best = sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))[:k]
        return [(self._records[name], score) for name, score in best]

    # Rows

    @property
    def _pending(self) -> Pending:
        return self.bank.pending(*self._key)

    def _vector(self, record_id: str) -> np.ndarray | None:
        pending = self._pending.get(record_id)
        if pending is not None:
            return pending[1]
        with self.snapshot():
            return self._vectors.get(record_id)

    def _write(self, connection: sqlite3.Connection, record: Record, vector: np.ndarray | None) -> None:
        if (record.provider, record.namespace) != self._key:
            raise BankError(
                f"A record of {record.provider!r} in {record.namespace!r} was written to the space of "
                f"{self.provider!r} in {self.namespace!r}: make it with `new_record`."
            )
        if not record.created:
            record = record.model_copy(update={"created": time.time()})
        (generation,) = connection.execute(
            "INSERT INTO generations VALUES (?, ?, 1)"
            " ON CONFLICT (provider, namespace) DO UPDATE SET generation = generation + 1 RETURNING generation",
            self._key,
        ).fetchone()
        connection.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *self._key,
                record.id,
                record.kind,
                record.state,
                record.signature,
                record.model_dump_json(),
                generation,
            ),
        )
        if vector is None:
            connection.execute(
                "DELETE FROM vectors WHERE provider = ? AND namespace = ? AND id = ?", (*self._key, record.id)
            )
        else:
            vector = np.ascontiguousarray(vector, dtype=np.float32)
            connection.execute(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", (*self._key, record.id, vector.tobytes())
            )
        self._pending[record.id] = (record, vector)

    def _note(self, connection: sqlite3.Connection, record_id: str, event: str, detail: str) -> None:
        connection.execute(
            "INSERT INTO events (provider, namespace, record_id, event, detail, at) VALUES (?, ?, ?, ?, ?, ?)",
            (*self._key, record_id, event, detail, time.time()),
        )
