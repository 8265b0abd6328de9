"""Banks as JSON Lines: one header, then one line per record, receipt, counter and event."""

from __future__ import annotations

import base64
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from providers.errors import BankError, MemrouteError
from providers.namespaces import checked_namespace, within
from providers.schema import row_digest
from providers.types import Flow, Record, StoreReceipt

if TYPE_CHECKING:
    from providers.bank import Key, MemoryBank


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Header(_Line):
    """The first line: what wrote the file, and with which encoder its vectors were made."""

    line: Literal["header"] = "header"
    memroute_bank: Literal[1] = 1
    encoder: str
    dimension: int


class RecordLine(_Line):
    line: Literal["record"] = "record"
    record: Record
    vector: str | None = None
    """Base64 of little-endian float32."""


class ReceiptLine(_Line):
    line: Literal["receipt"] = "receipt"
    provider: str
    namespace: str
    trajectory_id: str
    receipt: StoreReceipt


class CounterLine(_Line):
    line: Literal["counter"] = "counter"
    provider: str
    namespace: str
    name: str
    value: int


class EventLine(_Line):
    line: Literal["event"] = "event"
    provider: str
    namespace: str
    record_id: str
    event: str
    detail: str
    at: float


class Transferred(Flow):
    """How much went out, or came in anew; `known` records were there already and are the same."""

    records: int = 0
    receipts: int = 0
    counters: int = 0
    events: int = 0
    known: int = 0
    encoded: int = 0
    """Records whose vectors were made anew, since the file's are another encoder's."""


_LINES: TypeAdapter[Header | RecordLine | ReceiptLine | CounterLine | EventLine] = TypeAdapter(
    Header | RecordLine | ReceiptLine | CounterLine | EventLine
)


def export(bank: MemoryBank, path: Path, provider: str | None = None, namespace: str | None = None) -> Transferred:
    """Write one committed state of the bank to `path`, whole or not at all; a namespace includes those below it.

    Raises BankError where there is already a file, or it cannot be written.
    """
    if namespace is not None:
        checked_namespace(namespace)
    counts = dict.fromkeys(("records", "receipts", "counters", "events"), 0)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            for line in _lines_of(bank, provider, namespace):
                file.write(line.model_dump_json() + "\n")
                if line.line != "header":
                    counts[f"{line.line}s"] += 1
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError as error:
        raise BankError(f"There is already a file {path}: name another one, or move it away.") from error
    except OSError as error:
        raise BankError(f"The export {path} cannot be written ({error}): give it a writable place.") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    return Transferred(**counts)


def import_(bank: MemoryBank, path: Path) -> Transferred:
    """Take a file that `export` wrote into the bank in one transaction.

    What is there already and the same is left; vectors of another encoder are made anew with the bank's own. Raises
    BankError naming the line for what is no such file, and for a record that differs from the bank's of the same id.
    """
    lines = _read(path)
    _, header = next(lines, (1, None))
    if not isinstance(header, Header):
        raise BankError(f"{path}, line 1: a header was expected; is this an export of a bank?")
    intake = _Intake(bank, header)
    with bank.transaction() as connection:
        for number, line in lines:
            try:
                intake.take(connection, line)
            except MemrouteError as error:
                raise BankError(f"{path}, line {number}: {error} Nothing was imported.") from error
        intake.write_records()
    return Transferred(**intake.counts)


class _Intake:
    """Takes lines into a bank, inside one transaction."""

    BATCH = 256

    def __init__(self, bank: MemoryBank, header: Header) -> None:
        self.bank = bank
        encoder = bank.encoder
        self.same_encoder = (header.encoder, header.dimension) == (encoder.identity, encoder.dimension)
        self.dimension = header.dimension
        self.counts = dict.fromkeys(Transferred.model_fields, 0)
        self._waiting: dict[Key, list[tuple[Record, np.ndarray | None]]] = {}

    def take(self, connection: sqlite3.Connection, line: _Line) -> None:
        if isinstance(line, RecordLine):
            self._take_record(line)
        elif isinstance(line, ReceiptLine):
            space = self.bank.space(line.provider, line.namespace)
            self.counts["receipts"] += space.note_offer(line.trajectory_id, line.receipt)
        elif isinstance(line, CounterLine):
            space = self.bank.space(line.provider, line.namespace)
            self.counts["counters"] += space.set_counter(line.name, max(line.value, space.counter(line.name)))
        elif isinstance(line, EventLine):
            self._take_event(connection, line)
        else:
            raise BankError("there is a second header.")

    def _take_record(self, line: RecordLine) -> None:
        record = line.record
        key = (record.provider, record.namespace)
        known = self.bank.space(*key).get(record.id)
        if known is not None:
            if known != record:
                raise BankError(f"record {record.id!r} of {key[0]!r} in {key[1]!r} differs from the bank's own.")
            self.counts["known"] += 1
            return
        vector = self._vector(line) if self.same_encoder else None
        waiting = self._waiting.setdefault(key, [])
        waiting.append((record, vector))
        if len(waiting) >= self.BATCH:
            self.write_records()

    def write_records(self) -> None:
        """Add the waiting records, those without a vector encoded together."""
        for key, waiting in self._waiting.items():
            missing = [record.text for record, vector in waiting if record.text and vector is None]
            made = iter(self.bank.encoder.encode(missing) if missing else ())
            vectors = [next(made) if vector is None else vector for record, vector in waiting if record.text]
            table = np.stack(vectors) if vectors else np.zeros((0, self.bank.encoder.dimension), dtype=np.float32)
            self.bank.space(*key).restore([record for record, _ in waiting], table)
            self.counts["records"] += len(waiting)
            self.counts["encoded"] += len(missing)
        self._waiting.clear()

    def _vector(self, line: RecordLine) -> np.ndarray | None:
        if line.vector is None:
            return None
        try:
            vector = np.frombuffer(base64.b64decode(line.vector, validate=True), dtype="<f4")
        except ValueError as error:
            raise BankError(f"the vector of record {line.record.id!r} cannot be read.") from error
        if vector.shape != (self.dimension,) or not np.isfinite(vector).all():
            raise BankError(f"the vector of record {line.record.id!r} has not {self.dimension} finite numbers.")
        return vector

    def _take_event(self, connection: sqlite3.Connection, line: EventLine) -> None:
        values = (line.provider, checked_namespace(line.namespace), line.record_id, line.event, line.detail, line.at)
        known = connection.execute(
            "SELECT 1 FROM events WHERE provider = ? AND namespace = ? AND record_id = ? AND event = ? AND detail = ?"
            " AND at = ?",
            values,
        ).fetchone()
        if known is None:
            connection.execute(
                "INSERT INTO events (provider, namespace, record_id, event, detail, at) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
            self.counts["events"] += 1


def _lines_of(bank: MemoryBank, provider: str | None, namespace: str | None) -> Iterator[Any]:
    yield Header(encoder=bank.encoder.identity, dimension=bank.encoder.dimension)

    def wanted(key: Key) -> bool:
        return provider in (None, key[0]) and (namespace is None or within(key[1], namespace))

    with bank.reporting(), bank.one_state() as connection:
        for key in connection.execute("SELECT provider, namespace FROM generations ORDER BY 1, 2").fetchall():
            if wanted(key):
                for row in bank.space(*key).committed_rows(connection):
                    vector = None if row.vector is None else base64.b64encode(row.vector.tobytes()).decode("ascii")
                    yield RecordLine(record=row.record, vector=vector)
        for *place, value, digest in connection.execute("SELECT * FROM offers ORDER BY 1, 2, 3"):
            if wanted((place[0], place[1])):
                _hold(bank, "receipt", (*place, value), digest)
                receipt = StoreReceipt.model_validate_json(value)
                yield ReceiptLine(provider=place[0], namespace=place[1], trajectory_id=place[2], receipt=receipt)
        for *place, value, digest in connection.execute("SELECT * FROM counters ORDER BY 1, 2, 3"):
            if wanted((place[0], place[1])):
                _hold(bank, "counter", (*place, value), digest)
                yield CounterLine(provider=place[0], namespace=place[1], name=place[2], value=value)
        for *place, record_id, event, detail, at in connection.execute(
            "SELECT provider, namespace, record_id, event, detail, at FROM events ORDER BY seq"
        ):
            if wanted((place[0], place[1])):
                yield EventLine(
                    provider=place[0], namespace=place[1], record_id=record_id, event=event, detail=detail, at=at
                )


def _hold(bank: MemoryBank, what: str, values: tuple[Any, ...], digest: int) -> None:
    if row_digest(*values) != digest:
        raise BankError(
            f"The bank {bank.path} is damaged: the {what} {values[2]!r} of {values[0]!r} in {values[1]!r} is not what "
            "was stored; see `memroute bank verify`."
        )


def _read(path: Path) -> Iterator[tuple[int, Any]]:
    """Each line's number, from 1, and what it says."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                try:
                    yield number, _LINES.validate_json(raw)
                except ValidationError as error:
                    found = error.errors(include_url=False)[0]
                    raise BankError(
                        f"{path}, line {number}: this is no line of a bank's export ({found['msg']}). Nothing was "
                        "imported."
                    ) from error
    except OSError as error:
        raise BankError(f"The export {path} cannot be read ({error}).") from error


def header_of(path: Path) -> Header:
    """The header of an export, which says with which encoder its vectors were made."""
    _, header = next(_read(path), (1, None))
    if not isinstance(header, Header):
        raise BankError(f"{path}, line 1: a header was expected; is this an export of a bank?")
    return header
