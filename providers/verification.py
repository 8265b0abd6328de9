"""Verifying a bank: every page, row and index file is read, and what is damaged is named."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np
from pydantic import ValidationError

from providers.errors import BankError
from providers.index_file import index_folder, index_path, read_identity
from providers.schema import APPLICATION_ID, BANK_SCHEMA, COLUMNS, content_sum, encoder_of, row_digest
from providers.types import Flow, Record, StoreReceipt

Key = tuple[str, str]
NORM_TOLERANCE = 1e-3
PAGE_FINDINGS = 20


class Finding(Flow):
    """One thing that is not as it should be. A `note` harms nothing: what it names is made again when needed."""

    level: Literal["damage", "note"]
    where: str
    what: str


class Verification(Flow):
    """What was read, and what was found."""

    bank: str
    findings: tuple[Finding, ...]
    rows: dict[str, int]
    """Rows that were read, by table."""

    @property
    def ok(self) -> bool:
        return not any(finding.level == "damage" for finding in self.findings)


def verify(path: Path) -> Verification:
    """Read the bank at `path` and its index files, changing nothing. Raises BankError where there is no file."""
    if not path.is_file():
        raise BankError(f"There is no bank {path}.")
    reader = _Reader(path)
    reader.read()
    return Verification(bank=str(path), findings=tuple(reader.findings), rows=dict(reader.rows))


class _Reader:
    """Goes through one bank, noting what it finds; damage in one table does not stop it from reading the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.findings: list[Finding] = []
        self.rows: Counter[str] = Counter()
        self.sums: Counter[tuple[str, str]] = Counter()
        self.facts: Counter[Key] = Counter()
        self.records: Counter[tuple[str, str]] = Counter()
        self.texts: dict[tuple[str, str, str], bool] = {}
        """Whether the record of a place has text, and so needs a vector."""

    def read(self) -> None:
        with closing(self._connect()) as connection:
            if not self._guarded("file", lambda: self._read_file(connection)):
                return
            parts: dict[str, Callable[[sqlite3.Connection], None]] = {
                "records": self._read_records,
                "vectors": self._read_vectors,
                "offers": self._read_offers,
                "counters": self._read_counters,
                "generations": self._read_spaces,
            }
            for table, part in parts.items():
                self._guarded(table, lambda part=part: part(connection))  # type: ignore[misc]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{quote(str(self.path.absolute()))}?mode=rw", uri=True)

    def _guarded(self, where: str, work: Callable[[], None]) -> bool:
        """Do a part of the work; where SQLite cannot go on, that is a finding."""
        try:
            work()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._damage(where, f"it cannot be read: {error}")
            return False
        return True

    def _damage(self, where: str, what: str) -> None:
        self.findings.append(Finding(level="damage", where=where, what=what))

    def _read_file(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it is not a memroute bank")
        for (verdict,) in connection.execute(f"PRAGMA integrity_check({PAGE_FINDINGS})"):
            if verdict != "ok":
                self._damage("pages", " ".join(str(verdict).split()))
        self.meta = dict(connection.execute("SELECT key, value FROM meta"))
        if self.meta.get("schema_version") != str(BANK_SCHEMA):
            raise sqlite3.DatabaseError(
                f"schema version {self.meta.get('schema_version')}, not {BANK_SCHEMA}: open it once to migrate it"
            )
        recorded = encoder_of(self.meta)
        if recorded is None:
            raise sqlite3.DatabaseError("what it says of its encoder is not what was written")
        self.dimension = recorded[1]
        if "scrub" in self.meta:
            what = "bytes of forgotten rows may still be in the file; they go when it is next opened for writing"
            self.findings.append(Finding(level="note", where="file", what=what))

    def _rows_of(
        self, connection: sqlite3.Connection, table: str
    ) -> Iterator[tuple[str, tuple[str, str], list[object]]]:
        """Each row whose digest holds: its name for people, its space, and the columns after the space."""
        for row in connection.execute(f"SELECT {COLUMNS[table]}, digest FROM {table}"):
            self.rows[table] += 1
            *values, digest = row
            key = (values[0], values[1])
            name = f"{table} of {key[0]!r} in {key[1]!r}" + (f", {values[2]!r}" if table != "generations" else "")
            if row_digest(*values) != digest:
                self._damage(name, "it is not what was stored")
            sums = {"records": self.sums, "vectors": self.sums, "offers": self.facts, "counters": self.facts}.get(table)
            if sums is not None:
                sums[key] = content_sum((sums[key], digest))
            yield name, key, values[2:]

    def _read_records(self, connection: sqlite3.Connection) -> None:
        for name, key, (record_id, kind, state, signature, body, _) in self._rows_of(connection, "records"):
            self.records[key] += 1
            try:
                record = Record.model_validate_json(str(body))
            except ValidationError as error:
                self._damage(name, f"its content cannot be read ({error.error_count()} errors)")
                continue
            columns = (*key, record_id, kind, state, signature)
            written = (record.provider, record.namespace, record.id, record.kind, record.state, record.signature)
            if columns != written:
                self._damage(name, "its columns and its content differ")
            self.texts[(*key, record.id)] = bool(record.text)

    def _read_vectors(self, connection: sqlite3.Connection) -> None:
        dimension = self.dimension
        for name, key, (record_id, blob) in self._rows_of(connection, "vectors"):
            if not self.texts.pop((*key, str(record_id)), False):
                self._damage(name, "it belongs to no record with text")
            vector = np.frombuffer(blob if isinstance(blob, bytes) else b"", dtype=np.uint8)
            if len(vector) != 4 * dimension:
                self._damage(name, f"it has not {dimension} dimensions")
            elif not abs(float(np.linalg.norm(vector.view(np.float32).astype(np.float64))) - 1.0) < NORM_TOLERANCE:
                self._damage(name, "it is not of unit length")
        for (provider, namespace, record_id), embedded in self.texts.items():
            if embedded:
                self._damage(f"records of {provider!r} in {namespace!r}, {record_id!r}", "its vector is missing")

    def _read_offers(self, connection: sqlite3.Connection) -> None:
        for name, _, (_, receipt) in self._rows_of(connection, "offers"):
            try:
                StoreReceipt.model_validate_json(str(receipt))
            except ValidationError:
                self._damage(name, "its receipt cannot be read")

    def _read_counters(self, connection: sqlite3.Connection) -> None:
        for _ in self._rows_of(connection, "counters"):
            pass

    def _read_spaces(self, connection: sqlite3.Connection) -> None:
        spaces = set()
        for name, key, (generation, records, content, facts) in self._rows_of(connection, "generations"):
            spaces.add(key)
            if self.records[key] != records:
                self._damage(name, f"{self.records[key]} of {records} records are there")
            elif self.sums[key] != content:
                self._damage(name, "its rows are not those that were stored")
            if self.facts[key] != facts:
                self._damage(name, "its receipts and counters are not those that were stored")
            self._read_index(key, {"generation": generation, "records": records, "content": content})
        for key in sorted((self.records.keys() | self.sums.keys() | self.facts.keys()) - spaces):
            self._damage(f"generations of {key[0]!r} in {key[1]!r}", "the space's row is missing")
        if str(len(spaces)) != self.meta.get("spaces"):
            self._damage("generations", f"{len(spaces)} of {self.meta.get('spaces')} spaces are there")
        known = {index_path(self.path, *key) for key in spaces}
        for path in sorted(set(index_folder(self.path).glob("*")) - known):
            self.findings.append(Finding(level="note", where=str(path), what="it belongs to no space of this bank"))

    def _read_index(self, key: tuple[str, str], held: dict[str, object]) -> None:
        path = index_path(self.path, *key)
        if not path.exists():
            return
        try:
            identity = read_identity(path)
        except BankError as error:
            self.findings.append(Finding(level="note", where=str(path), what=f"{error} It is made again when needed."))
            return
        if {name: identity.get(name) for name in held} != held or identity.get("encoder") != self.meta.get("encoder"):
            what = "it is of another state of the bank; it is made again when needed"
            self.findings.append(Finding(level="note", where=str(path), what=what))
