"""What pages and searches gave, on disk: an agent that opens the same page again, or another run, asks nobody."""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from contextlib import closing
from pathlib import Path

from providers.errors import SuiteError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pages (
    key TEXT PRIMARY KEY, fetched REAL NOT NULL, url TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL);
"""


class PageCache:
    """Bodies by key in one SQLite file, shared by threads and processes; `days` old ones are fetched again."""

    def __init__(self, path: Path, days: float) -> None:
        self._path, self._seconds = path, days * 86_400
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise SuiteError(f"The page cache {path} cannot be used ({error}): name another as `cache`.") from error

    def get(self, key: str) -> tuple[str, str, bytes] | None:
        """The address, content type and body that were kept; None where there is nothing fresh."""
        with self._lock, closing(self._connection.cursor()) as cursor:
            row = cursor.execute("SELECT fetched, url, type, body FROM pages WHERE key = ?", (key,)).fetchone()
        if row is None or time.time() - row[0] > self._seconds:
            return None
        return row[1], row[2], zlib.decompress(row[3])

    def put(self, key: str, url: str, kind: str, body: bytes) -> None:
        """Keep a body."""
        with self._lock, closing(self._connection.cursor()) as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?, ?)",
                (key, time.time(), url, kind, zlib.compress(body, 3)),
            )

    def close(self) -> None:
        self._connection.close()
