"""A space: the records that one provider has in one namespace, and the searches over them."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from providers.embedder import Encoder
from providers.errors import BankError
from providers.index_file import index_path, read_index, write_index
from providers.redaction import redact, redact_values
from providers.schema import COLUMNS, Held, content_sum, row_digest
from providers.types import Origin, Record, StoreReceipt, Trajectory, content_hash
from providers.view import LIVE as LIVE
from providers.view import Row, Tags, View, Written

if TYPE_CHECKING:
    from providers.bank import MemoryBank

REDACTED = "redacted_secrets"
"""The counter of what was taken out of a space's records before they were stored."""
KEPT_CHANGES = 32
SQL_VARIABLES = 500


@dataclass
class Change:
    """What one transaction does to one space: the rows of all its records carry the generation after `before`'s."""

    before: Held
    new: bool
    """Whether the space was never written to before."""
    records: int = 0
    content: int = 0
    facts: int = 0
    """What is added to each of what is held."""
    touched: bool = False
    """Whether records were written or removed."""
    written: dict[str, Written] = field(default_factory=dict)
    """The records as they are so far. They become rows when the transaction ends, each once."""
    rows: list[Row] = field(default_factory=list)
    """What they became."""

    @property
    def generation(self) -> int:
        """The generation of the records that are written."""
        return self.before.generation + 1

    @property
    def held(self) -> Held:
        """What the space holds afterwards."""
        return Held(
            self.before.generation + self.touched,
            self.before.records + self.records,
            content_sum((self.before.content, self.content)),
            content_sum((self.before.facts, self.facts)),
        )


class Space:
    """What one provider keeps in one namespace. Thread-safe; indexes are caches that follow the rows.

    Inside `transaction`, searches see what was committed before it; everything else sees its own writes too.
    """

    def __init__(self, bank: MemoryBank, provider: str, namespace: str) -> None:
        """Use `MemoryBank.space`, which checks the namespace."""
        self.bank = bank
        self.provider = provider
        self.namespace = namespace
        self._key = (provider, namespace)
        self._lock = threading.RLock()
        self._pinned = 0
        self._view = View(bank.encoder.dimension, self._fetch)
        self._loaded = False
        self._facts_checked = False
        self._indexed = 0
        """The generation of the index file, as far as known; 0 for none."""
        self._changes: list[Change] = []
        """Committed by this process and not yet in the view."""

    @property
    def encoder(self) -> Encoder:
        return self.bank.encoder

    @property
    def generation(self) -> int:
        """Grows with every change of the space's records; equal generations mean equal content."""
        with self.snapshot():
            return self._view.generation

    # Writing

    def transaction(self) -> AbstractContextManager[object]:
        """All writes inside are committed together, or none is. Nests within a thread; must not span an `await`."""
        return self.bank.transaction()

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
            origins=(Origin(trajectory_id=trajectory.id, task_id=trajectory.task_id, sources=sources_of(trajectory)),),
            signature=signature,
        )

    def add(self, records: Sequence[Record], vectors: np.ndarray | None = None) -> None:
        """Add records with their vectors; `vectors` (n, dimension) saves encoding `Record.text` here.

        A record without text gets no vector. One whose id is already there is left as it is. Secrets are taken out of
        text and payload, and counted; a text that had some is encoded here.
        """
        embedded = [record for record in records if record.text]
        if vectors is not None and len(vectors) != len(embedded):
            raise BankError(f"{len(vectors)} vectors were given for {len(embedded)} records with text.")
        cleaned = {record.id: _without_secrets(record) for record in records}
        if vectors is None:
            vectors = self.encoder.encode([cleaned[record.id][0].text for record in embedded])
        given = dict(zip((record.id for record in embedded), vectors, strict=True))
        with self.bank.transaction() as connection:
            new = {record.id: record for record in records if self.get(record.id) is None}
            for record_id, record in new.items():
                clean, secrets = cleaned[record_id]
                changed = clean.text != record.text
                vector = self.encoder.encode([clean.text])[0] if changed else given.get(record_id)
                self._write(clean, vector)
                self._count_secrets(secrets)
                self._note(connection, record_id, "added", record.kind)

    def restore(self, records: Sequence[Record], vectors: np.ndarray) -> None:
        """Write records as they were exported, over none of the same id and without an event of its own.

        `vectors`, shape (n, dimension), has those of the records with text, in order.
        """
        rows = iter(vectors)
        with self.bank.transaction():
            for record in records:
                clean, secrets = _without_secrets(record)
                vector = next(rows) if record.text else None
                changed = clean.text != record.text
                self._write(clean, self.encoder.encode([clean.text])[0] if changed else vector)
                self._count_secrets(secrets)

    def update(self, record: Record, event: str = "updated", reason: str = "") -> None:
        """Replace the record of that id, and note it as `event`; it is encoded again only where its text changed."""
        with self.bank.transaction() as connection:
            before = self.existing(record.id)
            record, secrets = _without_secrets(record)
            if record.text == before.text:
                vector = self._vector(record.id)
            else:
                record = record.model_copy(update={"text_hash": content_hash(record.text)})
                vector = self.encoder.encode([record.text])[0] if record.text else None
            self._write(record, vector)
            self._count_secrets(secrets)
            self._note(connection, record.id, event, reason)

    def archive(self, record_id: str, reason: str, links: tuple[str, ...] | None = None) -> None:
        """Take a record out of retrieval; the row stays. `links`, where given, says which records stand for it now."""
        with self.bank.transaction() as connection:
            record = self.existing(record_id)
            record = record.model_copy(update={"state": "archived", "links": record.links if links is None else links})
            self._write(record, self._vector(record_id))
            self._note(connection, record_id, "archived", reason)

    def note_offer(self, trajectory_id: str, receipt: StoreReceipt) -> bool:
        """Remember what became of an offered trajectory, unless that is known: the first receipt stands."""
        clean = receipt.model_copy(update={"reason": redact(receipt.reason)[0]})
        values = (*self._key, trajectory_id, clean.model_dump_json())
        digest = row_digest(*values)
        with self.bank.transaction() as connection:
            added = connection.execute("INSERT OR IGNORE INTO offers VALUES (?, ?, ?, ?, ?)", (*values, digest))
            if added.rowcount:
                self.bank.change(self._key).facts += digest
        return bool(added.rowcount)

    def set_counter(self, name: str, value: int) -> bool:
        """Set a persisted whole number; whether that is another than it was."""
        values = (*self._key, name, value)
        digest = row_digest(*values)
        with self.bank.transaction() as connection:
            before = connection.execute(
                "SELECT digest FROM counters WHERE provider = ? AND namespace = ? AND name = ?", values[:3]
            ).fetchone()
            connection.execute("INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?, ?)", (*values, digest))
            self.bank.change(self._key).facts += digest - (before[0] if before else 0)
        return before is None or bool(before[0] != digest)

    # Reading

    def get(self, record_id: str) -> Record | None:
        """The record of that id in whatever state, or None."""
        pending = self._pending.get(record_id)
        if pending is not None:
            return pending.record
        with self.snapshot():
            return self._view.get(record_id)

    def existing(self, record_id: str) -> Record:
        """The record of that id; BankError where there is none."""
        record = self.get(record_id)
        if record is None:
            raise BankError(f"{self.provider!r} has no record {record_id!r} in namespace {self.namespace!r}.")
        return record

    def records(self, kind: str | None = None, state: Iterable[str] = LIVE) -> list[Record]:
        """Records by kind and state, in order of their ids."""
        states = set(state)
        pending = self._pending
        with self.snapshot():
            ids = self._view.ids(kind, states)
            found = self._view.all_of([record_id for record_id in ids if record_id not in pending] if pending else ids)
        if pending:
            found += [row.record for row in pending.values() if _fits(row.record, kind, states)]
            found.sort(key=attrgetter("id"))
        return found

    def count(self, kind: str | None = None, state: Iterable[str] = LIVE) -> int:
        """How many records `records` would give."""
        states, pending = set(state), self._pending
        with self.snapshot():
            before = [tags for record_id in pending if (tags := self._view.tags.get(record_id)) is not None]
            count = len(self._view.ids(kind, states))
        written = [row.record for row in pending.values()]
        return count + sum(_fits(r, kind, states) for r in written) - sum(_fits(t, kind, states) for t in before)

    def find_signature(self, signature: str, kind: str | None = None, state: Iterable[str] = LIVE) -> Record | None:
        """The record with that content signature, or None; of several the one with the least id."""
        states = set(state)
        with self.snapshot():
            ids = {record_id for record_id, row in self._pending.items() if row.record.signature == signature}
            ids |= self._view.with_signature(signature)
            found = [record for record_id in sorted(ids) if (record := self.get(record_id)) is not None]
        fitting = (r for r in found if r.signature == signature and r.state in states and kind in (None, r.kind))
        return next(fitting, None)

    def receipt_of(self, trajectory_id: str) -> StoreReceipt | None:
        """What became of a trajectory that was offered before, or None."""
        row = self._row("SELECT receipt, digest FROM offers", "trajectory_id", trajectory_id)
        return StoreReceipt.model_validate_json(row) if row is not None else None

    def counter(self, name: str) -> int:
        """A persisted whole number, 0 where it was never set."""
        row = self._row("SELECT value, digest FROM counters", "name", name)
        return int(row) if row is not None else 0

    def vectors(self, record_ids: Sequence[str]) -> np.ndarray:
        """The records' vectors, shape (len(record_ids), dimension); zeros where a record has none."""
        pending = self._pending
        with self.snapshot():
            table = self._view.vectors(record_ids)
        for row, record_id in enumerate(record_ids if pending else ()):
            if record_id in pending:
                vector = pending[record_id].vector
                table[row] = 0.0 if vector is None else vector
        return table

    def search_dense(self, embedding: np.ndarray, k: int, kind: str | None = None) -> list[tuple[Record, float]]:
        """The k live records nearest by cosine, best first; equal scores are ordered by id."""
        if embedding.shape != (self.encoder.dimension,):
            raise BankError(
                f"A query of shape {embedding.shape} was given to a bank of {self.encoder.dimension} dimensions: "
                "encode the query with the bank's own encoder."
            )
        with self.snapshot():
            return self._with_records(self._view.dense(kind).search(embedding, k))

    def near(
        self, embeddings: np.ndarray, least: float, kind: str | None = None, state: Iterable[str] = LIVE
    ) -> list[list[tuple[Record, float]]]:
        """For each embedding, shape (n, dimension), all records of a kind and of these states whose cosine is above
        `least`, in order of their ids."""
        states, pending = set(state), self._pending
        with self.snapshot():
            found = [
                self._with_records([(name, cosine) for name, cosine in hits if name not in pending])
                for hits in self._view.dense(kind, states).above(embeddings, least)
            ]
        for written in pending.values():
            if written.vector is None or not _fits(written.record, kind, states):
                continue
            for hits, embedding in zip(found, embeddings, strict=True):
                cosine = float(np.dot(written.vector, embedding))
                if cosine > least:
                    hits.append((written.record, cosine))
        return [sorted(hits, key=lambda hit: hit[0].id) for hits in found]

    def search_lexical(self, text: str, k: int | None = None, kind: str | None = None) -> list[tuple[Record, float]]:
        """The k live records (None: all) that share words with `text`, by BM25 in [0, 1), best first, then by id."""
        with self.snapshot():
            return self._with_records(self._view.lexical(kind).best_bm25(text, k))

    def lexical_scores(self, text: str, kind: str | None = None) -> dict[str, float]:
        """BM25 in [0, 1) of every live record that shares words with `text`, by id, in no order."""
        with self.snapshot():
            return self._view.lexical(kind).bm25(text)

    def lexical_scores_of(self, text: str, record_ids: Sequence[str], kind: str | None = None) -> list[float]:
        """BM25 in [0, 1) of these live records, in that order; 0 where there is none or it shares no word."""
        with self.snapshot():
            return self._view.lexical(kind).bm25_of(text, record_ids)

    def search_tfidf(self, text: str, k: int | None = None, kind: str | None = None) -> list[tuple[Record, float]]:
        """The k live records (None: all) that share words with `text`, by TF-IDF cosine, best first, then by id."""
        with self.snapshot():
            return self._with_records(self._view.lexical(kind).best_tfidf(text, k))

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside, outside of a transaction, belongs to one committed state. Keep it short."""
        return _Snapshot(self)

    def pin(self) -> None:
        """Begin a snapshot; `unpin` ends it."""
        self._lock.acquire()
        self._pinned += 1
        self.bank.count_reader(+1)
        if self._pinned == 1:
            try:
                self._refresh()
            except BaseException:
                self.unpin()
                raise

    def unpin(self) -> None:
        self.bank.count_reader(-1)
        self._pinned -= 1
        self._lock.release()

    def committed_rows(self, connection: sqlite3.Connection) -> list[Row]:
        """All rows as a connection sees them, in order of their ids. Raises BankError where one is damaged or lost."""
        rows = self._read_rows(connection, 0)
        held = self.bank.held(self._key)
        if (len(rows), content_sum(row.digest for row in rows)) != (held.records, held.content):
            raise self._damaged(f"{len(rows)} of {held.records} records: what is there")
        return rows

    # The view over the rows

    def take_over(self, change: Change) -> None:
        """Told by the bank after a commit, so that this process need not read back what it wrote."""
        self._changes.append(change)
        if len(self._changes) > KEPT_CHANGES:
            self._changes.clear()

    def save_index(self, least: int) -> bool:
        """Write the index file where the space has at least that many records and no current file; whether it did."""
        with self._lock:
            view = self._view
            if not self._loaded or len(view.tags) < least or self._indexed == view.generation:
                return False
            identity = self._identity(view.generation, len(view.tags), view.content)
            path = index_path(self.bank.path, *self._key)
            try:
                write_index(path, identity, view.dump())
            except OSError as error:
                raise BankError(
                    f"The index file {path} cannot be written ({error}): free some space, or check its folder; all "
                    "records are stored, and the index is made again when the bank is next opened."
                ) from error
            self._indexed = view.generation
            return True

    def _refresh(self) -> None:
        """Take over the rows that changed since the last look, and nothing else."""
        if self.bank.is_current(self._key):
            return
        with self.bank.reporting():
            held = self.bank.held(self._key)
            if self._loaded and held.generation == self._view.generation:
                return
            if not self._loaded and self._load_index(held):
                return
            if not self._follow_changes(held.generation):
                with self.bank.one_state() as connection:
                    held = self.bank.held(self._key)
                    self._view.follow(self._read_rows(connection, self._view.generation), held.generation)
            if not self._agrees(held):
                self._reload()
        self._loaded = True

    def _follow_changes(self, generation: int) -> bool:
        """Bring the view to `generation` by this process's own changes; False where another one's are among them."""
        changes, self._changes = self._changes, []
        for change in changes:
            if self._loaded and change.before.generation == self._view.generation < generation:
                self._view.follow(change.rows, change.generation)
        return self._loaded and self._view.generation == generation

    def _reload(self) -> None:
        """Read all rows: some were removed, or this is damage."""
        self._view = View(self.encoder.dimension, self._fetch)
        with self.bank.one_state() as connection:
            held = self.bank.held(self._key)
            self._view.follow(self._read_rows(connection, 0), held.generation)
        if not self._agrees(held):
            raise BankError(
                f"The bank {self.bank.path} is damaged: {self.provider!r} in {self.namespace!r} has "
                f"{len(self._view.tags)} of {held.records} records, or others than were stored; "
                "see `memroute bank verify`, and restore a copy."
            )

    def _agrees(self, held: Held) -> bool:
        return (len(self._view.tags), self._view.content) == (held.records, held.content)

    def _load_index(self, held: Held) -> bool:
        """Take the view from the index file where it belongs to what the bank holds; it is a cache, so any doubt
        about it means that the rows are read instead."""
        path = index_path(self.bank.path, *self._key)
        if not path.exists():
            return False
        try:
            parts = read_index(path, self._identity(held.generation, held.records, held.content))
        except BankError:
            return False
        self._view.load(parts, held.generation, held.content)
        self._loaded, self._indexed = True, held.generation
        return True

    def _identity(self, generation: int, records: int, content: int) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "namespace": self.namespace,
            "generation": generation,
            "records": records,
            "content": content,
            "encoder": self.encoder.identity,
            "dimension": self.encoder.dimension,
        }

    def _read_rows(self, connection: sqlite3.Connection, after: int) -> list[Row]:
        """The rows of later generations, each held against its digest."""
        rows = connection.execute(
            f"SELECT {_RECORD_COLUMNS}, v.vector, v.digest FROM records r"
            " LEFT JOIN vectors v USING (provider, namespace, id)"
            " WHERE r.provider = ? AND r.namespace = ? AND r.generation > ? ORDER BY r.id",
            (*self._key, after),
        )
        return [self._row_of(row) for row in rows]

    def _row_of(self, values: tuple[Any, ...]) -> Row:
        record = self._record_of(values[:7])
        blob, blob_digest = values[7:]
        if blob is None:
            return Row(record, None, values[6])
        if row_digest(*self._key, record.id, blob) != blob_digest or len(blob) != 4 * self.encoder.dimension:
            raise self._damaged(f"the vector of record {record.id!r}")
        vector = np.frombuffer(blob, dtype=np.float32)
        return Row(record, vector, content_sum((values[6], blob_digest)))

    def _record_of(self, values: tuple[Any, ...]) -> Record:
        *parts, digest = values
        if row_digest(*self._key, *parts) != digest:
            raise self._damaged(f"record {parts[0]!r}")
        try:
            return Record.model_validate_json(parts[4])
        except ValidationError as error:
            raise self._damaged(f"record {parts[0]!r}") from error

    def _damaged(self, what: str) -> BankError:
        return BankError(
            f"The bank {self.bank.path} is damaged: {what} of {self.provider!r} in {self.namespace!r} is not what was "
            "stored; see `memroute bank verify`, and restore a copy."
        )

    def _fetch(self, record_ids: Sequence[str]) -> Iterator[tuple[Record, int]]:
        """Records by id as they are committed now, each with its generation."""
        found = 0
        for start in range(0, len(record_ids), SQL_VARIABLES):
            part = record_ids[start : start + SQL_VARIABLES]
            marks = ",".join("?" * len(part))
            with self.bank.reporting():
                rows = self.bank.committed.execute(
                    f"SELECT {_RECORD_COLUMNS} FROM records r"
                    f" WHERE r.provider = ? AND r.namespace = ? AND r.id IN ({marks})",
                    (*self._key, *part),
                ).fetchall()
            found += len(rows)
            yield from ((self._record_of(row), int(row[5])) for row in rows)
        if found < len(record_ids) and self.bank.held(self._key).generation == self._view.generation:
            raise self._damaged(f"one of the records {', '.join(map(repr, record_ids[:3]))}")

    def _with_records(self, hits: Sequence[tuple[str, float]]) -> list[tuple[Record, float]]:
        records = {record.id: record for record in self._view.all_of([name for name, _ in hits])}
        return [(records[name], score) for name, score in hits if name in records]

    # Rows

    @property
    def _pending(self) -> dict[str, Written]:
        """What this thread's transaction has written here so far."""
        return self.bank.pending(self._key)

    def _vector(self, record_id: str) -> np.ndarray | None:
        pending = self._pending.get(record_id)
        if pending is not None:
            return pending.vector
        with self.snapshot():
            return self._view.vector(record_id)

    def _row(self, query: str, column: str, value: str) -> Any:
        """The first column of this space's row of that name, held against its digest; None where there is none."""
        with self.bank.reporting():
            self._check_facts()
            row = self.bank.current.execute(
                f"{query} WHERE provider = ? AND namespace = ? AND {column} = ?", (*self._key, value)
            ).fetchone()
        if row is None:
            return None
        if row_digest(*self._key, value, row[0]) != row[1]:
            raise self._damaged(f"{column} {value!r}")
        return row[0]

    def _check_facts(self) -> None:
        """Once per opening: a receipt or counter that was lost, or changed its name, must not read as never set."""
        if self._facts_checked:
            return
        with self.bank.one_state() as connection:
            held = self.bank.held(self._key)
            found = [
                row_digest(*row)
                for table in ("offers", "counters")
                for row in connection.execute(
                    f"SELECT {COLUMNS[table]} FROM {table} WHERE provider = ? AND namespace = ?", self._key
                )
            ]
        if content_sum(found) != held.facts:
            raise self._damaged("one of the receipts and counters")
        self._facts_checked = True

    def _write(self, record: Record, vector: np.ndarray | None) -> None:
        if (record.provider, record.namespace) != self._key:
            raise BankError(
                f"A record of {record.provider!r} in {record.namespace!r} was written to the space of "
                f"{self.provider!r} in {self.namespace!r}: make it with `new_record`."
            )
        if not record.created:
            record = record.model_copy(update={"created": time.time()})
        if vector is not None:
            vector = np.ascontiguousarray(vector, dtype=np.float32)
        change = self.bank.change(self._key)
        change.touched = True
        change.written[record.id] = Written(record, vector)

    def put_down(self, connection: sqlite3.Connection, change: Change) -> None:
        """Make rows of what a transaction has written here, at its end; a vector that is there already stays."""
        records, vectors, bare = [], [], []
        for record_id, written in change.written.items():
            record, place = written.record, (*self._key, record_id)
            before, vector_before = self._stored_digests(connection, place)
            columns = (record.kind, record.state, record.signature, record.model_dump_json(), change.generation)
            digest = row_digest(*place, *columns)
            records.append((*place, *columns, digest))
            vector_digest = None
            if written.vector is not None:
                blob = written.vector.tobytes()
                vector_digest = row_digest(*place, blob)
                if vector_digest != vector_before:
                    vectors.append((*place, blob, vector_digest))
            elif vector_before is not None:
                bare.append(place)
            now = content_sum((digest, vector_digest or 0))
            change.records += before is None
            change.content += now - (before or 0) - (vector_before or 0)
            change.rows.append(Row(record, written.vector, now))
        connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", records)
        connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?)", vectors)
        connection.executemany("DELETE FROM vectors WHERE provider = ? AND namespace = ? AND id = ?", bare)

    @staticmethod
    def _stored_digests(connection: sqlite3.Connection, place: tuple[str, str, str]) -> tuple[int | None, int | None]:
        """Digests of the rows that a record and its vector have; None for one that there is not."""
        found: tuple[int | None, int | None] | None = connection.execute(
            "SELECT r.digest, v.digest FROM records r LEFT JOIN vectors v USING (provider, namespace, id)"
            " WHERE r.provider = ? AND r.namespace = ? AND r.id = ?",
            place,
        ).fetchone()
        return found or (None, None)

    def _count_secrets(self, secrets: int) -> None:
        if secrets:
            self.set_counter(REDACTED, self.counter(REDACTED) + secrets)

    def _note(self, connection: sqlite3.Connection, record_id: str, event: str, detail: str) -> None:
        connection.execute(
            "INSERT INTO events (provider, namespace, record_id, event, detail, at) VALUES (?, ?, ?, ?, ?, ?)",
            (*self._key, record_id, event, detail, time.time()),
        )


class _Snapshot:
    """`Space.snapshot` as a class: a store takes some thirty, and generators would cost more than what they guard."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __enter__(self) -> None:
        self._space.pin()

    def __exit__(self, *_: object) -> None:
        self._space.unpin()


def _fits(item: Record | Tags, kind: str | None, states: Set[str]) -> bool:
    return item.state in states and kind in (None, item.kind)


_RECORD_COLUMNS = "r.id, r.kind, r.state, r.signature, r.body, r.generation, r.digest"


def sources_of(trajectory: Trajectory) -> tuple[str, ...]:
    """Where the observations of a run came from, in order, each once."""
    return tuple(dict.fromkeys(step.lineage.source for step in trajectory.steps if step.lineage is not None))


def _without_secrets(record: Record) -> tuple[Record, int]:
    """The record with secrets taken out of text and payload, and how many there were."""
    text, in_text = redact(record.text)
    payload, in_payload = redact_values(record.payload)
    if not in_text + in_payload:
        return record, 0
    clean = record.model_copy(update={"text": text, "text_hash": content_hash(text), "payload": payload})
    return clean, max(in_text, in_payload)
