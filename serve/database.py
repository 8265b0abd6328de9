"""What serving keeps between requests and over restarts: sessions, answers kept for retries, the audit log.

One SQLite file in WAL mode. Every acknowledged call is one transaction that reaches the disk before the call is
answered, so that a killed server has lost nothing that anybody was told.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from providers.errors import BankError, ConfigError
from providers.types import Flow, Outcome, Step, StoreReceipt, Trajectory
from router.decisions import EndDecision
from router.session import SessionState
from serve.messages import AuditEntry, Decision, EndRequest, Trouble

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, namespace TEXT NOT NULL, status TEXT NOT NULL,
    expires REAL NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_expiry ON sessions (expires);
CREATE INDEX sessions_by_key ON sessions (key, status);
CREATE TABLE steps (
    session TEXT NOT NULL, place INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (session, place)
) WITHOUT ROWID;
CREATE TABLE answers (
    key TEXT NOT NULL, name TEXT NOT NULL, request TEXT NOT NULL, session TEXT NOT NULL, body TEXT NOT NULL,
    expires REAL NOT NULL, PRIMARY KEY (key, name)
) WITHOUT ROWID;
CREATE INDEX answers_by_expiry ON answers (expires);
CREATE TABLE gone (id TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, action TEXT NOT NULL, namespace TEXT NOT NULL,
    session TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE INDEX audit_by_namespace ON audit (namespace, id);
CREATE INDEX audit_by_time ON audit (at);
"""

Status = Literal["open", "waiting", "ending", "ended"]
"""`waiting` for an outcome; `ending`: decided, and the stores are being made; `ended`: nothing is left to do."""

T = TypeVar("T")


class Session(Flow):
    """A session as it is kept. Steps stand in rows of their own until the run is stored."""

    id: str
    key: str
    """The name of the key that began it."""
    namespace: str
    task_id: str
    question: str
    status: Status = "open"
    created: float
    expires: float
    steps: int = 0
    characters: int = 0
    """Of all its steps."""
    state: SessionState
    decisions: tuple[Decision, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    trajectory: Trajectory | None = None
    """From its end on; without its steps once the run is stored."""
    outcome: Outcome | None = None
    decision: EndDecision | None = None
    """The End decision, reduced to providers whose gate is open."""
    ending: tuple[str, str] | None = None
    """Name and hash of the end's request, so that its retry is known after a crash too."""
    draft: EndRequest | None = None
    """How an open session ends where nobody ends it, without the steps that are known; None ends it without a run."""
    effects_due: bool = True
    """Whether what the retrieval implied has still to be applied."""
    receipts: tuple[StoreReceipt, ...] = ()


@dataclass(frozen=True)
class Kept:
    """An answer that is given again to a retry: the hash of the request it belongs to, and its body."""

    name: str
    request: str
    body: str


@dataclass(frozen=True)
class Noted:
    """One line of the audit log."""

    key: str
    action: str
    namespace: str
    session: str = ""
    detail: dict[str, Any] | None = None


class ServeDatabase:
    """The file, behind one thread of its own: calls are awaited, and happen one after another."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises ConfigError where it is of another version, BankError where it is damaged."""
        self.path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="serve-database")
        self._connection = _open(path)

    async def session(self, session_id: str) -> Session | None:
        """The session of that id, or None."""
        return await self._run(lambda: self._session(session_id))

    async def steps(self, session_id: str) -> tuple[Step, ...]:
        """All steps of a session, in order."""
        return await self._run(lambda: self._steps(session_id))

    async def answer(self, key: str, name: str) -> Kept | None:
        """The answer that was given to a call of that name, or None."""
        return await self._run(lambda: self._answer(key, name))

    async def open_sessions(self, key: str | None = None) -> int:
        """How many sessions are not ended; of one key, or of all."""
        where, values = ("", ()) if key is None else (" AND key = ?", (key,))
        return await self._run(
            lambda: int(
                self._connection.execute(
                    f"SELECT count(*) FROM sessions WHERE status != 'ended'{where}", values
                ).fetchone()[0]
            )
        )

    async def save(
        self,
        session: Session,
        *,
        new_steps: Sequence[Step] = (),
        drop_steps: bool = False,
        answer: Kept | None = None,
        noted: Noted | None = None,
    ) -> None:
        """Write a session with its new steps, the answer of the call and its audit line: all, or nothing."""

        def write() -> None:
            with self._transaction() as connection:
                connection.execute(
                    "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
                    (session.id, session.key, session.namespace, session.status, session.expires,
                     session.model_dump_json()),
                )  # fmt: skip
                connection.executemany(
                    "INSERT INTO steps VALUES (?, ?, ?)",
                    [(session.id, step.index, step.model_dump_json()) for step in new_steps],
                )
                if drop_steps:
                    connection.execute("DELETE FROM steps WHERE session = ?", (session.id,))
                if answer is not None:
                    self._keep(connection, session.key, session.id, answer, session.expires)
                if noted is not None:
                    _note(connection, noted)

        await self._run(write)

    async def note(self, noted: Noted) -> None:
        """Write one line of the audit log."""

        def write() -> None:
            with self._transaction() as connection:
                _note(connection, noted)

        await self._run(write)

    async def audit(self, scope: str | None, limit: int) -> tuple[AuditEntry, ...]:
        """The latest entries on a namespace and those below it; on all without one."""
        within = "WHERE namespace = ? OR (namespace > ? AND namespace < ?)"
        values = () if scope is None else (scope, f"{scope}/", f"{scope}0")
        where = "" if scope is None else within

        def read() -> tuple[AuditEntry, ...]:
            rows = self._connection.execute(
                f"SELECT at, key, action, namespace, session, detail FROM audit {where} ORDER BY id DESC LIMIT ?",
                (*values, limit),
            )
            names = ("at", "key", "action", "namespace", "session_id")
            return tuple(
                AuditEntry(**dict(zip(names, row[:-1], strict=True)), detail=json.loads(row[-1])) for row in rows
            )

        return await self._run(read)

    async def unfinished(self, now: float) -> list[Session]:
        """Sessions whose stores were interrupted, and those that expired without their end being decided."""

        def read() -> list[Session]:
            rows = self._connection.execute(
                "SELECT body FROM sessions WHERE status = 'ending' OR expires <= ? ORDER BY expires LIMIT 1000", (now,)
            )
            return [Session.model_validate_json(body) for (body,) in rows]

        return await self._run(read)

    async def expire(self, session_ids: Sequence[str], until: float) -> None:
        """Delete sessions with their steps and the answers to them; that they expired is known until then."""

        def write() -> None:
            with self._transaction() as connection:
                _remove(connection, session_ids)
                connection.executemany("INSERT OR REPLACE INTO gone VALUES (?, ?)", [(i, until) for i in session_ids])

        if session_ids:
            await self._run(write)

    async def expired(self, session_id: str) -> bool:
        """Whether there was a session of that id not long ago."""
        return await self._run(
            lambda: self._connection.execute("SELECT 1 FROM gone WHERE id = ?", (session_id,)).fetchone() is not None
        )

    async def clean(self, now: float, audited_since: float) -> None:
        """Delete answers that no retry can ask for any more, what is known of sessions long gone, old audit lines."""

        def write() -> None:
            with self._transaction() as connection:
                connection.execute("DELETE FROM answers WHERE expires <= ?", (now,))
                connection.execute("DELETE FROM gone WHERE until <= ?", (now,))
                connection.execute("DELETE FROM audit WHERE at < ?", (audited_since,))

        await self._run(write)

    async def forget(self, chosen: Callable[[Session, tuple[Step, ...]], bool], noted: Noted) -> int:
        """Delete sessions that the predicate names, and make the file anew without their bytes; how many there were."""

        def write() -> int:
            rows = self._connection.execute("SELECT body FROM sessions").fetchall()
            sessions = [Session.model_validate_json(body) for (body,) in rows]
            gone = [session.id for session in sessions if chosen(session, self._steps(session.id))]
            with self._transaction() as connection:
                _remove(connection, gone)
                _note(connection, noted)
            if gone:
                with reporting(self.path):
                    self._connection.execute("VACUUM")
                    self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return len(gone)

        return await self._run(write)

    def close(self) -> None:
        """Wait for the calls that have begun, and close the file."""
        self._thread.shutdown(wait=True)
        self._connection.close()

    async def _run(self, call: Callable[[], T]) -> T:
        with reporting(self.path):
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _session(self, session_id: str) -> Session | None:
        row = self._connection.execute("SELECT body FROM sessions WHERE id = ?", (session_id,)).fetchone()
        return Session.model_validate_json(row[0]) if row else None

    def _steps(self, session_id: str) -> tuple[Step, ...]:
        rows = self._connection.execute("SELECT body FROM steps WHERE session = ? ORDER BY place", (session_id,))
        return tuple(Step.model_validate_json(body) for (body,) in rows)

    def _answer(self, key: str, name: str) -> Kept | None:
        row = self._connection.execute(
            "SELECT request, body FROM answers WHERE key = ? AND name = ?", (key, name)
        ).fetchone()
        return Kept(name, *row) if row else None

    @staticmethod
    def _keep(connection: sqlite3.Connection, key: str, session_id: str, answer: Kept, expires: float) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?)",
            (key, answer.name, answer.request, session_id, answer.body, expires),
        )


def _remove(connection: sqlite3.Connection, session_ids: Sequence[str]) -> None:
    rows = [(session_id,) for session_id in session_ids]
    connection.executemany("DELETE FROM sessions WHERE id = ?", rows)
    connection.executemany("DELETE FROM steps WHERE session = ?", rows)
    connection.executemany("DELETE FROM answers WHERE session = ?", rows)


def _note(connection: sqlite3.Connection, noted: Noted) -> None:
    connection.execute(
        "INSERT INTO audit (at, key, action, namespace, session, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (time.time(), noted.key, noted.action, noted.namespace, noted.session, json.dumps(noted.detail or {})),
    )


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into BankErrors that name the file and the mend."""
    try:
        yield
    except sqlite3.Error as error:
        raise BankError(
            f"The sessions in {path} cannot be used ({error}): free space on its disk and check its permissions; "
            "what was acknowledged is intact."
        ) from error


def _open(path: Path) -> sqlite3.Connection:
    with reporting(path):
        path.touch(mode=0o600)  # it holds what callers send
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            connection.close()
            raise ConfigError(
                f"The sessions in {path} have schema version {version} and this memroute reads {SCHEMA_VERSION}: "
                "use the memroute that made them, or move the file away."
            )
    return connection
