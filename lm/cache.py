"""Answers on disk: an identical question is never paid for twice, and a resumed run asks nothing again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from lm.errors import MemrouteError
from lm.types import Completion

_SCHEMA = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, created REAL NOT NULL, answer TEXT NOT NULL)"


def cache_key(request: dict[str, Any]) -> str:
    """SHA-256 over the canonical JSON of everything that changes an answer; a key or header is never part of it."""
    text = json.dumps(request, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class ResponseCache:
    """Completions by key in one SQLite file (WAL), shared by threads and processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            with self._connection:
                self._connection.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def get(self, key: str) -> Completion | None:
        """The stored answer, or None."""
        try:
            with self._lock:
                row = self._connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            raise self._broken(error) from error
        return Completion.model_validate_json(row[0]) if row else None

    def put(self, key: str, answer: Completion) -> None:
        """Store an answer; the first one stays, so that all who asked at once read the same later."""
        try:
            with self._lock, self._connection:
                self._connection.execute(
                    "INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (key, time.time(), answer.model_dump_json())
                )
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def close(self) -> None:
        self._connection.close()

    def _broken(self, error: sqlite3.Error) -> MemrouteError:
        return MemrouteError(
            f"The answer cache {self._path} cannot be used ({error}): free the disk, or delete the file."
        )
