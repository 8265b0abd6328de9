"""The bank: one SQLite file that holds what every memory keeps, and the rules for writing to it."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from providers.embedder import Encoder
from providers.errors import BankError
from providers.index_file import remove_indexes
from providers.namespaces import DEFAULT, checked_namespace
from providers.schema import (
    APPLICATION_ID,
    BANK_SCHEMA,
    COLUMNS,
    NOTHING,
    SCHEMA,
    Held,
    count_spaces,
    encoder_of,
    made_with,
    migrate,
    row_digest,
    write_space,
)
from providers.space import Change, Space
from providers.view import Written

if TYPE_CHECKING:
    from providers.forgetting import Forgotten, Selection
    from providers.transfer import Transferred
    from providers.verification import Verification

BUSY_SECONDS = 30.0
INDEXED_FROM = 2_000
"""Records from which on a space's indexes are kept beside the bank; fewer are indexed again in no time."""
USUAL_PAGES, BATCH_PAGES = 1_000, 8_000
"""Pages of the log from which on they are moved to the main file, which waits for the disk twice; a batch has a longer
log, since it waits at its end anyway."""
CHECKED_BYTES = 64 * 2**20
"""Banks of at most this size are checked page by page when they are opened; rows have digests of their own."""

Key = tuple[str, str]
"""Provider and namespace."""

MENDS = {
    "SQLITE_FULL": "its disk is full: free some space and start again; what was stored before is intact",
    "SQLITE_IOERR": "its disk cannot be used: check it and its free space; what was stored before is intact",
    "SQLITE_BUSY": f"another process has been writing to it for over {BUSY_SECONDS:.0f} s: wait for it or stop it",
    "SQLITE_READONLY": "it cannot be written: check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "it cannot be opened: check that its folder exists and is writable",
    "SQLITE_NOTADB": "it is not a memroute bank: name another file, or move this one away to start an empty bank",
    "SQLITE_CORRUPT": "it is damaged: restore a copy, or move it away to start an empty bank",
}


class MemoryBank:
    """One bank file in WAL mode. Any number of threads and processes may read and write it at once.

    A writer holds SQLite's write lock from BEGIN IMMEDIATE on, so a transaction is all or nothing and writers queue.
    Readers see the last committed state and never wait for a writer.
    """

    def __init__(self, path: Path, encoder: Encoder) -> None:
        """Use `MemoryBank.open`; this expects a checked file."""
        self.path = path
        self.encoder = encoder
        self._connections: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        self._thread = threading.local()
        self._spaces: dict[tuple[str, str], Space] = {}
        self._writer = self._connect()

    @classmethod
    def open(cls, path: Path, encoder: Encoder) -> MemoryBank:
        """Open the bank at `path`, or make an empty one.

        A bank of an older schema version is brought to this one. Raises BankError where the file is damaged, of another
        kind, or was filled through another encoder.
        """
        if not path.exists():
            _create(path, encoder)
        bank = cls(path, encoder)
        try:
            bank._check()
        except BaseException:
            bank._disconnect()
            raise
        return bank

    def space(self, provider: str, namespace: str = DEFAULT) -> Space:
        """The part of the bank that one provider has in one namespace; the same object every time.

        There is no other way to search, and no space sees another. Raises ConfigError for what is no namespace.
        """
        key = (provider, checked_namespace(namespace))
        with self._guard:
            if key not in self._spaces:
                self._spaces[key] = Space(self, *key)
            return self._spaces[key]

    def release(self, namespace: str) -> None:
        """Let go of what is in memory of a namespace; it is read again from the rows when it is next asked for."""
        with self._guard:
            keys = [key for key in self._spaces if key[1] == namespace]
            released = [self._spaces.pop(key) for key in keys]
        for space in released:
            space.save_index(INDEXED_FROM)

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """All writes inside are committed together, or none is. Nests within a thread; must not span an `await`."""
        return nullcontext(self._writer) if self.in_transaction else self._outermost()

    @contextmanager
    def _outermost(self) -> Iterator[sqlite3.Connection]:
        if getattr(self._thread, "reading", 0):
            raise BankError("A transaction was begun inside a snapshot, which could block both: begin it outside.")
        with self._writing, self.reporting():
            self._writer.execute("BEGIN IMMEDIATE")
            changes: dict[Key, Change] = {}
            self._thread.changes = changes
            self._thread.current = set()
            try:
                yield self._writer
                for key, change in changes.items():
                    self.space(*key).put_down(self._writer, change)
                    write_space(self._writer, key, change.held)
                if any(change.new for change in changes.values()):
                    count_spaces(self._writer)
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            finally:
                self._thread.changes = None
            for key, change in changes.items():
                if change.touched:
                    self.space(*key).take_over(change)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Transactions inside are each all or nothing, as ever, but reach the disk together when the batch ends."""
        with self.reporting():
            self._writer.execute("PRAGMA synchronous = NORMAL")
            self._writer.execute(f"PRAGMA wal_autocheckpoint = {BATCH_PAGES}")
            try:
                yield
            finally:
                self._writer.execute(f"PRAGMA wal_autocheckpoint = {USUAL_PAGES}")
                self._writer.execute("PRAGMA synchronous = FULL")
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    @property
    def in_transaction(self) -> bool:
        """True on the thread that is inside `transaction`."""
        return getattr(self._thread, "changes", None) is not None

    def is_current(self, key: Key) -> bool:
        """Whether this thread's transaction has asked before for this space: nobody commits while it lasts."""
        if not self.in_transaction:
            return False
        asked: set[Key] = self._thread.current
        known = key in asked
        asked.add(key)
        return known

    def pending(self, key: Key) -> dict[str, Written]:
        """What this thread's transaction has written to a space so far; empty outside of one."""
        change = self._thread.changes.get(key) if self.in_transaction else None
        return change.written if change is not None else {}

    def change(self, key: Key) -> Change:
        """What this thread's transaction does to a space, to be added to."""
        changes: dict[Key, Change] = self._thread.changes
        if key not in changes:
            held = _held(self._writer, key)
            floor = self._writer.execute("SELECT value FROM meta WHERE key = 'generation_floor'").fetchone()
            changes[key] = Change(held or Held(int(floor[0]) if floor else 0), new=held is None)
        return changes[key]

    def held(self, key: Key) -> Held:
        """What a space holds, as committed."""
        return _held(self.committed, key) or NOTHING

    @contextmanager
    def one_state(self) -> Iterator[sqlite3.Connection]:
        """All that is read inside through `committed` is of one committed state."""
        connection = self.committed
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("COMMIT")

    def count_reader(self, change: int) -> None:
        """Counts the snapshots that this thread is inside of; there it must not begin a transaction."""
        self._thread.reading = getattr(self._thread, "reading", 0) + change

    @property
    def current(self) -> sqlite3.Connection:
        """The connection to read through: inside a transaction it sees the transaction's own writes."""
        return self._writer if self.in_transaction else self.committed

    @property
    def committed(self) -> sqlite3.Connection:
        """This thread's connection to what is committed."""
        reader: sqlite3.Connection | None = getattr(self._thread, "reader", None)
        if reader is None:
            reader = self._thread.reader = self._connect()
        return reader

    @contextmanager
    def exclusively(self) -> Iterator[sqlite3.Connection]:
        """The writer's connection outside of a transaction, while no other thread writes."""
        with self._writing, self.reporting():
            yield self._writer

    def forget(self, selection: Selection) -> Forgotten:
        """Remove what is selected with everything made of it; see `providers.forgetting`."""
        from providers.forgetting import forget

        return forget(self, selection)

    def export(self, path: Path, provider: str | None = None, namespace: str | None = None) -> Transferred:
        """Write the bank, or what one provider or namespace has in it, as JSON Lines; see `providers.transfer`."""
        from providers.transfer import export

        return export(self, path, provider, namespace)

    def import_(self, path: Path) -> Transferred:
        """Take in what `export` wrote, all or nothing; see `providers.transfer`."""
        from providers.transfer import import_

        return import_(self, path)

    def verify(self) -> Verification:
        """Read every row and index file and name what is damaged; see `providers.verification`."""
        from providers.verification import verify

        return verify(self.path)

    def fork(self, path: Path) -> MemoryBank:
        """A consistent copy at `path`, opened; whatever is written meanwhile is in it whole or not at all."""
        with self.reporting():
            _place(path, lambda copy: self.committed.backup(copy))
        return MemoryBank.open(path, self.encoder)

    def close(self) -> None:
        """Keep the indexes of large spaces, and close the file."""
        try:
            for space in self._spaces.values():
                space.save_index(INDEXED_FROM)
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        with self._guard:
            while self._connections:
                self._connections.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Turns SQLite's errors into BankErrors that name the file and the mend."""
        with reporting(self.path):
            yield

    def _connect(self) -> sqlite3.Connection:
        with self.reporting():
            connection = sqlite3.connect(
                f"file:{quote(str(self.path.absolute()))}?mode=rw",
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                connection.execute("PRAGMA synchronous = FULL")
            except UnicodeDecodeError as error:  # a damaged schema, quoted in SQLite's message
                connection.close()
                raise BankError(f"The bank {self.path} cannot be used: {MENDS['SQLITE_CORRUPT']}.") from error
            except sqlite3.Error:
                connection.close()
                raise
            with self._guard:
                self._connections.append(connection)
        return connection

    def _check(self) -> None:
        with self.reporting():
            if self.path.stat().st_size == 0:
                raise BankError(f"The bank {self.path} is empty (0 bytes), so {MENDS['SQLITE_CORRUPT']}.")
            (application,) = self._writer.execute("PRAGMA application_id").fetchone()
            if application != APPLICATION_ID:
                raise unusable(self.path, "SQLITE_NOTADB")
            self._check_pages()
            meta = dict(self._writer.execute("SELECT key, value FROM meta"))
            if meta.get("schema_version") != str(BANK_SCHEMA):
                self._migrate(meta.get("schema_version"))
                meta = dict(self._writer.execute("SELECT key, value FROM meta"))
            self._check_spaces(meta.get("spaces"))
            if "scrub" in meta:
                self._finish_scrub()
        recorded = encoder_of(meta)
        if recorded is None:
            raise unusable(self.path, "SQLITE_CORRUPT")
        if recorded != (self.encoder.identity, self.encoder.dimension):
            was, asked = recorded, f"{self.encoder.identity} with {self.encoder.dimension} dimensions"
            raise BankError(
                f"The bank {self.path} was filled through the encoder {was[0]} with {was[1]} dimensions, not {asked}: "
                "set `encoder` to the one that it was made with, or use another bank file."
            )

    def _finish_scrub(self) -> None:
        """What was forgotten leaves the file's bytes now, if it could not before."""
        from providers.forgetting import scrub

        with suppress(BankError):  # still in use elsewhere: the mark stays
            scrub(self)

    def _check_pages(self) -> None:
        if self.path.stat().st_size > CHECKED_BYTES:
            return
        (verdict,) = self._writer.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            found = " ".join(verdict.split())
            raise BankError(f"The bank {self.path} cannot be used: {MENDS['SQLITE_CORRUPT']} ({found}).")

    def _check_spaces(self, expected: str | None) -> None:
        """What each space is said to hold is as it was written, and none is missing."""
        keys = self._writer.execute("SELECT provider, namespace FROM generations").fetchall()
        for key in keys:
            _held(self._writer, key)
        if str(len(keys)) != expected:
            raise BankError(
                f"The bank {self.path} cannot be used: {MENDS['SQLITE_CORRUPT']} ({len(keys)} of {expected} spaces)."
            )

    def _migrate(self, version: str | None) -> None:
        """One transaction: a crash leaves the bank as it was."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            found = self._writer.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()[0]
            migrate(self._writer, int(found) if str(found).isdigit() else -1)
            self._writer.execute("COMMIT")
        except BankError as error:
            raise BankError(
                f"The bank {self.path} has schema version {version} and this memroute reads {BANK_SCHEMA}: "
                "use the memroute that made it, or another file."
            ) from error
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")


def replace_bank(source: Path, target: Path) -> None:
    """Give a closed bank file another bank's name in one step; neither has index files afterwards."""
    source.replace(target)
    remove_indexes(source)
    remove_indexes(target)


def _held(connection: sqlite3.Connection, key: Key) -> Held | None:
    """What a space holds as this connection sees it; None where it was never written to."""
    row = connection.execute(
        f"SELECT {COLUMNS['generations']}, digest FROM generations WHERE provider = ? AND namespace = ?", key
    ).fetchone()
    if row is None:
        return None
    if row_digest(*row[:-1]) != row[-1]:
        raise BankError(
            f"The bank is damaged: what {key[0]!r} in {key[1]!r} holds is not what was stored; "
            "see `memroute bank verify`, and restore a copy."
        )
    return Held(*row[2:-1])


def unusable(path: Path, code: str) -> BankError:
    """The error for a file that SQLite reads and that is no bank, or not as it was written, with the code's mend."""
    return BankError(f"The bank {path} cannot be used: {MENDS[code]}.")


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into BankErrors that name the file and the mend."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        mend = next((text for code, text in MENDS.items() if name.startswith(code)), "")
        raise BankError(f"The bank {path} cannot be used: {mend or error}{f' ({error})' if mend else ''}.") from error


def _create(path: Path, encoder: Encoder) -> None:
    """An empty bank at `path`; where another process makes one at the same moment, the first stands."""

    def fill(connection: sqlite3.Connection) -> None:
        connection.executescript(f"PRAGMA application_id = {APPLICATION_ID}; BEGIN; {SCHEMA} COMMIT;")
        rows = [
            ("schema_version", str(BANK_SCHEMA)),
            ("spaces", "0"),
            *made_with(encoder.identity, encoder.dimension),
        ]
        connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        connection.commit()

    with reporting(path):
        try:
            _place(path, fill)
        except BankError:
            if not path.exists():
                raise


def _place(path: Path, fill: Callable[[sqlite3.Connection], object]) -> None:
    """Build a database beside `path` and give it that name in one step; an existing file is never replaced."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            with closing(sqlite3.connect(temporary)) as connection:
                fill(connection)
                connection.execute("PRAGMA journal_mode = WAL")
            os.link(temporary, path)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(temporary + suffix).unlink(missing_ok=True)
    except OSError as error:
        if path.exists():
            raise BankError(f"There is already a file {path}: name another one, or move it away.") from error
        raise BankError(
            f"The bank {path} cannot be made ({error}): give it a folder on a writable local disk with free space."
        ) from error
