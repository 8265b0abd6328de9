"""Answers on disk: an identical question is never paid for twice, and a resumed run asks nothing again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lm.errors import MemrouteError
from lm.types import Completion, Purpose

_SCHEMA = """
CREATE TABLE IF NOT EXISTS completions (
    key TEXT PRIMARY KEY, prompt TEXT NOT NULL, base_url TEXT NOT NULL, model TEXT NOT NULL, settings TEXT NOT NULL,
    purpose TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL, hits INTEGER NOT NULL, answer TEXT NOT NULL,
    digest TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS completions_prompt ON completions (prompt);
CREATE TABLE IF NOT EXISTS misses (
    purpose TEXT, reason TEXT, count INTEGER NOT NULL, PRIMARY KEY (purpose, reason)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spending (
    purpose TEXT, model TEXT, calls INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, cost REAL NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (purpose, model)) WITHOUT ROWID;
"""

NEW = "new prompt"
DAMAGED = "damaged answer"


@dataclass(frozen=True)
class Question:
    """Everything that changes an answer. A key or a header is never part of it."""

    base_url: str
    model: str
    messages: list[dict[str, Any]]
    settings: dict[str, Any]
    """Sampling settings, schema, tools, and the sample's index."""

    @cached_property
    def key(self) -> str:
        """SHA-256 over the canonical JSON of all of it."""
        return _digest([self.base_url, self.model, self.messages, self.settings])

    @cached_property
    def prompt(self) -> str:
        """SHA-256 over the messages alone."""
        return _digest(self.messages)

    def brief(self) -> dict[str, Any]:
        """The settings with long values as digests: enough to say which of them differ."""
        return {
            name: _digest(value)[:16] if isinstance(value, dict | list) else value
            for name, value in self.settings.items()
        }


class ResponseCache:
    """Completions by question in one SQLite file (WAL), shared by threads and processes; and what they cost."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        with self._explained():
            self._connection = sqlite3.connect(path, timeout=30.0, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_SCHEMA)
            _add_digests(self._connection)

    def get(self, question: Question) -> tuple[Completion | None, str]:
        """The stored answer and "", or None and why there is none: a new prompt, or in what an earlier one differed.

        An answer that is not what was stored is deleted, to be asked for again.
        """
        with self._explained():
            row = self._connection.execute(
                "SELECT answer, digest FROM completions WHERE key = ?", (question.key,)
            ).fetchone()
            if row is None:
                return None, self._reason(question)
            with self._connection:
                if _answer_digest(question.key, row[0]) != row[1]:
                    self._connection.execute("DELETE FROM completions WHERE key = ?", (question.key,))
                    return None, DAMAGED
                self._connection.execute(
                    "UPDATE completions SET hits = hits + 1, used = ? WHERE key = ?", (time.time(), question.key)
                )
        return Completion.model_validate_json(row[0]), ""

    def put(self, question: Question, answer: Completion, purpose: Purpose, miss: str) -> None:
        """Store an answer; the first one stays, so that all who asked at once read the same later."""
        now = time.time()
        settings = json.dumps(question.brief(), sort_keys=True)
        row = (question.key, question.prompt, question.base_url, question.model, settings, purpose, now, now, 0)
        text = answer.model_dump_json()
        with self._explained(), self._connection:
            self._connection.execute(
                "INSERT OR IGNORE INTO completions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, text, _answer_digest(question.key, text)),
            )
            self._connection.execute(
                "INSERT INTO misses VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1", (purpose, miss)
            )

    def spend(
        self, purpose: Purpose, model: str, prompt_tokens: int, completion_tokens: int, cost: float | None
    ) -> None:
        """Add a paid call to what the file's users have spent so far; a `cost` of None is counted as unpriced."""
        with self._explained(), self._connection:
            self._connection.execute(
                "INSERT INTO spending VALUES (?, ?, 1, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + 1,"
                " prompt_tokens = prompt_tokens + excluded.prompt_tokens,"
                " completion_tokens = completion_tokens + excluded.completion_tokens,"
                " cost = cost + excluded.cost, unpriced = unpriced + excluded.unpriced",
                (purpose, model, prompt_tokens, completion_tokens, cost or 0.0, int(cost is None)),
            )

    def close(self) -> None:
        self._connection.close()

    def _reason(self, question: Question) -> str:
        """In what the nearest earlier question with the same messages differs."""
        rows = self._connection.execute(
            "SELECT base_url, model, settings FROM completions WHERE prompt = ?", (question.prompt,)
        ).fetchall()
        here = {"endpoint": question.base_url, "model": question.model, **question.brief()}
        nearest = min(
            (_differing(here, {"endpoint": url, "model": model, **json.loads(text)}) for url, model, text in rows),
            key=len,
            default=None,
        )
        return NEW if nearest is None else f"other {' and '.join(nearest)}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """One thread at a time, and SQLite's errors as one sentence that names the file."""
        try:
            with self._lock:
                yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a damaged schema, quoted by SQLite
            raise broken(self._path, error) from error


def broken(path: Path, error: Exception) -> MemrouteError:
    """What to say where SQLite refuses the cache file."""
    return MemrouteError(f"The answer cache {path} cannot be used ({error}): free the disk, or delete the file.")


def _add_digests(connection: sqlite3.Connection) -> None:
    """Give the answers of a file that was made before they had digests theirs."""
    columns = "SELECT count(*) FROM pragma_table_info('completions') WHERE name = 'digest'"
    if connection.execute(columns).fetchone()[0]:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not connection.execute(columns).fetchone()[0]:
            connection.create_function("answer_digest", 2, _answer_digest, deterministic=True)
            connection.execute("ALTER TABLE completions ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
            connection.execute("UPDATE completions SET digest = answer_digest(key, answer)")


def _answer_digest(key: str, answer: str) -> str:
    return _digest([key, answer])[:16]


def _differing(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
