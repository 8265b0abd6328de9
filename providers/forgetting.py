"""Forgetting: memories are removed from a bank with everything made of them, down to the bytes of its files."""

from __future__ import annotations

import json
import sqlite3
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from providers.embedder import CachedEncoder
from providers.errors import BankError, ConfigError
from providers.index_file import index_path
from providers.lexical import tokenise
from providers.namespaces import STAGES, checked_namespace, within
from providers.redaction import redact
from providers.schema import count_spaces
from providers.types import Flow, Record

if TYPE_CHECKING:
    from providers.bank import Key, MemoryBank

SCRUB = "scrub"
"""The key in `meta` that says that removed rows may still be in the file's bytes."""


class Selection(Flow):
    """What to forget: records for which all that is given holds. Something must be given."""

    task: str | None = None
    """Records that come from this task, alone or among others."""
    source: str | None = None
    """Records from runs that saw this page or used this tool."""
    text: str | None = None
    """Records with this text in anything they hold, in any case and Unicode form."""
    older_than: float | None = None
    """Records made more than so many seconds ago."""
    namespace: str | None = None
    """Records of this tenant, user or project, those below it included; alone, everything that is kept there."""
    provider: str | None = None

    def checked(self) -> Selection:
        """Raises ConfigError where nothing is given or something cannot be meant."""
        if self.namespace is not None:
            checked_namespace(self.namespace)
        if not any((self.task, self.source, self.text, self.namespace)) and self.older_than is None:
            raise ConfigError("Say what to forget: a task, a source, a text, an age or a namespace.")
        if self.older_than is not None and self.older_than < 0:
            raise ConfigError(f"An age is 0 seconds or more, not {self.older_than:g}.")
        if any(value is not None and not value.strip() for value in (self.task, self.source, self.text)):
            raise ConfigError("An empty task, source or text would name every record; give one that names some.")
        return self

    @property
    def whole_spaces(self) -> bool:
        return self.task is None and self.source is None and self.text is None and self.older_than is None

    def matches(self, record: Record, now: float) -> bool:
        """Whether what is given of a record's content holds; namespace and provider are the space's."""
        return (
            (self.task is None or any(origin.task_id == self.task for origin in record.origins))
            and (self.source is None or any(self.source in origin.sources for origin in record.origins))
            and (self.text is None or holds_text(self.text, _strings(record)))
            and (self.older_than is None or record.created < now - self.older_than)
        )


class ForgottenSpace(Flow):
    """What was removed from one space."""

    provider: str
    namespace: str
    records: int
    derived: int
    """Of them, those that were not selected and linked to a selected one."""
    vectors: int
    receipts: int
    events: int
    counters: int


class Forgotten(Flow):
    """What was removed."""

    spaces: tuple[ForgottenSpace, ...]
    cached_texts: int
    """Encodings that were removed from the encoder's cache."""

    @property
    def records(self) -> int:
        return sum(space.records for space in self.spaces)


def forget(bank: MemoryBank, selection: Selection) -> Forgotten:
    """Remove the selected records, and those that link to them, with vectors, receipts, events and encodings.

    One transaction removes the rows; then the file is written anew without their bytes, and the index files of the
    spaces concerned go. Raises BankError where another process keeps the old bytes in use: the rows are gone then, and
    the next opening cleans the file.
    """
    forgotten = remove(bank, selection)
    if forgotten.spaces:
        scrub(bank)
    return forgotten


def remove(bank: MemoryBank, selection: Selection) -> Forgotten:
    """The first half of `forget`: the rows go, and `scrub` has still to take their bytes out of the file."""
    selection.checked()
    if bank.in_transaction:
        raise BankError("Forgetting was begun inside a transaction, whose records are not rows yet: begin it outside.")
    texts: set[str] = set()
    spaces = []
    with bank.transaction() as connection:
        for key in _keys(connection, selection):
            removed = _forget_in(bank, connection, key, selection, texts)
            if removed is not None:
                spaces.append(removed)
        if spaces:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, '1')", (SCRUB,))
            count_spaces(connection)
    for space in spaces:
        index_path(bank.path, space.provider, space.namespace).unlink(missing_ok=True)
    encodings = bank.encoder.forget(sorted(texts)) if isinstance(bank.encoder, CachedEncoder) else 0
    tokenise.cache_clear()
    redact.cache_clear()
    return Forgotten(spaces=tuple(spaces), cached_texts=encodings)


def scrub(bank: MemoryBank) -> None:
    """Write the file anew, so that no byte of a removed row is left in it or in its log."""
    try:
        _write_anew(bank)
    except BankError as error:
        raise BankError(
            f"The rows are removed from {bank.path}, but their bytes are still in the file, which is written anew when "
            f"the bank is next opened while nobody reads and its disk has room. {error}"
        ) from error


def _write_anew(bank: MemoryBank) -> None:
    with bank.exclusively() as connection:
        connection.execute("VACUUM")
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise BankError("It could not be now, since another process is reading.")
        connection.execute("DELETE FROM meta WHERE key = ?", (SCRUB,))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _keys(connection: sqlite3.Connection, selection: Selection) -> list[Key]:
    keys = connection.execute("SELECT provider, namespace FROM generations ORDER BY provider, namespace").fetchall()
    return [
        (provider, namespace)
        for provider, namespace in keys
        if provider != STAGES
        and selection.provider in (None, provider)
        and (selection.namespace is None or within(namespace, selection.namespace))
    ]


def _forget_in(
    bank: MemoryBank, connection: sqlite3.Connection, key: Key, selection: Selection, texts: set[str]
) -> ForgottenSpace | None:
    """Remove what is selected in one space, and add its texts to `texts`; None where there was nothing."""
    bodies = connection.execute("SELECT body FROM records WHERE provider = ? AND namespace = ?", key)
    records = {record.id: record for (body,) in bodies if (record := Record.model_validate_json(body))}
    now = time.time()
    chosen = {record.id for record in records.values() if selection.matches(record, now)}
    ids = chosen | _linked(records, chosen)
    texts.update(records[record_id].text for record_id in ids)
    counts = _empty(connection, key) if selection.whole_spaces else _delete(bank, connection, key, ids)
    if not any(counts.values()):
        return None
    provider, namespace = key
    return ForgottenSpace(provider=provider, namespace=namespace, derived=len(ids) - len(chosen), **counts)


def _linked(records: Mapping[str, Record], chosen: AbstractSet[str]) -> set[str]:
    """Ids of the records that link to chosen ones, directly or through others."""
    found: set[str] = set()
    frontier = set(chosen)
    while frontier:
        frontier = {r.id for r in records.values() if not frontier.isdisjoint(r.links)} - found - set(chosen)
        found |= frontier
    return found


def _empty(connection: sqlite3.Connection, key: Key) -> dict[str, int]:
    """Remove a whole space; a later one of that name starts at a generation that this one never had."""
    counts = {}
    for name, table in _TABLES.items():
        cursor = connection.execute(f"DELETE FROM {table} WHERE provider = ? AND namespace = ?", key)
        counts[name] = cursor.rowcount
    connection.execute(
        "INSERT OR REPLACE INTO meta SELECT 'generation_floor', CAST(max(generation) + 1 AS TEXT) FROM ("
        " SELECT generation FROM generations UNION ALL"
        " SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'generation_floor')"
    )
    connection.execute("DELETE FROM generations WHERE provider = ? AND namespace = ?", key)
    return counts


def _delete(bank: MemoryBank, connection: sqlite3.Connection, key: Key, ids: AbstractSet[str]) -> dict[str, int]:
    """Remove these records of a space with what belongs to them."""
    counts = dict.fromkeys(_TABLES, 0)
    if not ids:
        return counts
    change = bank.change(key)
    for record_id in sorted(ids):
        place = (*key, record_id)
        for name in ("records", "vectors"):
            where = "WHERE provider = ? AND namespace = ? AND id = ?"
            for (digest,) in connection.execute(f"SELECT digest FROM {name} {where}", place).fetchall():
                connection.execute(f"DELETE FROM {name} {where}", place)
                change.content -= digest
                counts[name] += 1
        cursor = connection.execute("DELETE FROM events WHERE provider = ? AND namespace = ? AND record_id = ?", place)
        counts["events"] += cursor.rowcount
    change.records -= counts["records"]
    change.touched = True
    for trajectory_id, receipt, digest in connection.execute(
        "SELECT trajectory_id, receipt, digest FROM offers WHERE provider = ? AND namespace = ?", key
    ).fetchall():
        if not ids.isdisjoint(json.loads(receipt)["record_ids"]):
            connection.execute(
                "DELETE FROM offers WHERE provider = ? AND namespace = ? AND trajectory_id = ?", (*key, trajectory_id)
            )
            change.facts -= digest
            counts["receipts"] += 1
    return counts


_TABLES = {"records": "records", "vectors": "vectors", "receipts": "offers", "events": "events", "counters": "counters"}


def _strings(record: Record) -> Iterator[str]:
    """Every text in a record."""
    yield record.text
    yield record.signature
    yield from (source for origin in record.origins for source in origin.sources)
    if record.descriptor is not None:
        yield from (observation.text for observation in record.descriptor.observations)
    yield from strings_in(record.payload)


def strings_in(value: Any) -> Iterator[str]:
    """Every text in plain values, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key)
            yield from strings_in(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from strings_in(part)


def holds_text(text: str, parts: Iterable[str]) -> bool:
    """Whether one of the parts holds `text`, in any case and Unicode form."""
    return any(_folded(text) in _folded(part) for part in parts)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
