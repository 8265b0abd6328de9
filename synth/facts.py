"""The facts of a run: append-only rows in `run.sqlite`, keyed by content and never by position.

Rows are written by one connection and committed in batches; what a kill can lose is the last fraction of a second,
and every stage runs what it does not find here.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import Field, TypeAdapter

from providers.errors import BankError
from providers.types import Flow, Outcome, Preview, Retrieval, Trajectory
from router.context import EndContext, InContext
from router.decisions import InDecision
from synth.judge.scale import Unscored, Verdict

FACTS_VERSION = 1

Status = Literal["done", "failed", "timeout"]

_VERDICT: TypeAdapter[Verdict | Unscored] = TypeAdapter(Verdict | Unscored)

_TABLES = """
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS probes (
    stage TEXT, task_id TEXT, wave INTEGER NOT NULL, previews TEXT NOT NULL,
    PRIMARY KEY (stage, task_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS retrievals (
    stage TEXT, task_id TEXT, provider TEXT, content_key TEXT NOT NULL, retrieval BLOB NOT NULL, origins TEXT NOT NULL,
    PRIMARY KEY (stage, task_id, provider));
CREATE TABLE IF NOT EXISTS episodes (
    stage TEXT, task_id TEXT, content_key TEXT, in_mode TEXT, repeat INTEGER, attempt INTEGER,
    status TEXT NOT NULL, correct INTEGER, head TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (stage, task_id, content_key, in_mode, repeat, attempt));
CREATE TABLE IF NOT EXISTS endings (
    stage TEXT, task_id TEXT, provider TEXT NOT NULL, context TEXT NOT NULL,
    PRIMARY KEY (stage, task_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS offers (
    stage TEXT, task_id TEXT, provider TEXT, status TEXT NOT NULL, reason TEXT NOT NULL, record_ids TEXT NOT NULL,
    PRIMARY KEY (stage, task_id, provider)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rewards (
    signature TEXT, phase TEXT, task_id TEXT, provider TEXT, in_mode TEXT, repeat INTEGER, step INTEGER,
    reward REAL, dimensions TEXT NOT NULL,
    PRIMARY KEY (signature, phase, task_id, provider, in_mode, repeat, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reward_notes (
    signature TEXT, phase TEXT, task_id TEXT, provider TEXT, in_mode TEXT, repeat INTEGER, step INTEGER,
    note TEXT NOT NULL,
    PRIMARY KEY (signature, phase, task_id, provider, in_mode, repeat, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, verdict TEXT NOT NULL) WITHOUT ROWID;
"""


class InRecord(Flow):
    """One In decision that was taken: there was something to inject."""

    context: InContext
    decision: InDecision


class EpisodeKey(Flow):
    """What makes two arms of a task the same episode: equal injected content, In mode, repeat."""

    stage: str
    task_id: str
    content_key: str
    in_mode: Literal["query", "no_op"]
    repeat: int


class Episode(Flow):
    """One run of one task with its one terminal status. Only a done episode has a trajectory and an outcome."""

    key: EpisodeKey
    status: Status
    attempt: int = 0
    error: str = ""
    retryable: bool = False
    retry_after: float | None = None
    """Seconds that a server asked to wait before another try."""
    outcome: Outcome = Outcome(correct=None)
    trajectory: Trajectory | None = None
    in_records: tuple[InRecord, ...] = ()
    answer: str | None = None
    steps: int = 0
    injected: int = 0
    """Characters injected at Begin and In together."""
    begin_chars: int = 0
    in_injections: int = 0
    seconds: float = 0.0
    tokens: int = 0
    """Of model calls between the episode written before it and this one: sums are exact, single values mix episodes
    that ran at the same time."""
    cost: float | None = 0.0
    """US dollars, counted as `tokens` are; None where a price is unknown."""


class Spent(Flow):
    """What a stage's episodes took over all starts of it, repeated tries included."""

    episodes: int = 0
    seconds: float = 0.0
    tokens: int = 0
    cost: float | None = 0.0
    """US dollars; None where a price is unknown."""


class Served(Flow):
    """What one provider retrieved for one task, and which tasks its items came from."""

    retrieval: Retrieval
    origins: tuple[tuple[str, float], ...] = ()
    """(origin task id, credit share): an item merged from m origins gives each 1/m."""


class Probe(Flow):
    """What the providers showed and served for one task over one frozen bank."""

    task_id: str
    wave: int
    previews: tuple[Preview, ...]
    served: dict[str, Served]


class EndingFact(Flow):
    """The context of a task's End decision and the provider whose arm's trajectory represents the task."""

    provider: str
    context: EndContext


class OfferFact(Flow):
    """What became of the representative trajectory at one provider."""

    task_id: str
    provider: str
    status: str
    reason: str
    record_ids: tuple[str, ...]


class RewardFact(Flow):
    """One scored decision; `reward` None means unscored. Empty strings and -1 stand where a field does not apply."""

    phase: Literal["begin", "in", "end"]
    task_id: str
    provider: str
    in_mode: str = ""
    repeat: int = -1
    step: int = -1
    reward: float | None
    dimensions: dict[str, int] = Field(default_factory=dict)
    note: str = ""
    """The judge's reason, or why the decision is unscored."""


class _Body(Flow):
    """The bulky part of an episode."""

    trajectory: Trajectory | None
    in_records: tuple[InRecord, ...]


def _pack(model: Flow) -> bytes:
    return zlib.compress(model.model_dump_json().encode("utf-8", "surrogatepass"), 1)


def read_spent(path: Path) -> Spent:
    """What all episodes of a `run.sqlite` took, without opening it for writing.

    Raises:
        BankError: the file is damaged or is no `run.sqlite`.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as db:
            return _spent(db.execute(_SPENT).fetchone())
    except sqlite3.DatabaseError as error:
        raise BankError(f"{path} cannot be read ({error}): start the run under another name") from error


_SPENT = (
    "SELECT COUNT(*), TOTAL(head ->> '$.seconds'), TOTAL(head ->> '$.tokens'), TOTAL(head ->> '$.cost'),"
    " TOTAL(json_type(head, '$.cost') = 'null') FROM episodes"
)


def _spent(row: tuple[Any, ...]) -> Spent:
    count, seconds, tokens, cost, unknown = row
    return Spent(episodes=count, seconds=seconds, tokens=int(tokens), cost=None if unknown else cost)


def _episode(head: str, body: bytes | None) -> Episode:
    episode = Episode.model_validate_json(head)
    if body is None:
        return episode
    rest = _Body.model_validate_json(zlib.decompress(body))
    return episode.model_copy(update={"trajectory": rest.trajectory, "in_records": rest.in_records})


class Facts:
    """The rows of one run.

    Raises:
        BankError: the file is damaged or is no `run.sqlite`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last_commit = time.monotonic()
        with self._guard():
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            verdict = self._db.execute("PRAGMA quick_check").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            self._db.executescript(_TABLES)
        version = self.mark("facts_version")
        if version is None:
            self.set_mark("facts_version", str(FACTS_VERSION))
        elif version != str(FACTS_VERSION):
            raise BankError(
                f"{path} was written by facts version {version}, this is version {FACTS_VERSION}: "
                "start a run under another name"
            )

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "full" in str(error):
                raise BankError(
                    f"the disk is full, {self.path} could not be written: free space and start again"
                ) from error
            if "I/O" in str(error):
                raise BankError(
                    f"{self.path} cannot be used ({error}): check its disk and the free space there, and start again"
                ) from error
            raise BankError(
                f"{self.path} cannot be used ({error}): close what holds it, or remove the run's folder"
            ) from error
        except sqlite3.DatabaseError as error:
            raise BankError(
                f"{self.path} is damaged ({error}): restore it from a copy, or remove the run's folder and start again"
            ) from error

    def _write(self, statement: str, values: Iterable[Any]) -> None:
        with self._guard():
            if not self._db.in_transaction:
                self._db.execute("BEGIN")
            self._db.execute(statement, tuple(values))
        if time.monotonic() - self._last_commit > 0.5:
            self.flush()

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._guard():
            return self._db.execute(statement, values).fetchall()

    def flush(self) -> None:
        """Commit what was written so far."""
        with self._guard():
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        self._last_commit = time.monotonic()

    def settle(self) -> None:
        """Commit and force to disk: called before another file is changed on the strength of these facts."""
        self.flush()
        with self._guard():
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.flush()
        self._db.close()

    def mark(self, name: str) -> str | None:
        """The value of a named mark of progress, None where it was not reached."""
        rows = self._rows("SELECT value FROM marks WHERE name = ?", name)
        return str(rows[0][0]) if rows else None

    def set_mark(self, name: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, value))
        self.flush()

    def add_probe(self, stage: str, probe: Probe) -> None:
        """Write a task's previews and retrievals; a second write of the same task changes nothing."""
        previews = json.dumps([p.model_dump() for p in probe.previews], ensure_ascii=False)
        self._write("INSERT OR IGNORE INTO probes VALUES (?, ?, ?, ?)", (stage, probe.task_id, probe.wave, previews))
        for provider, served in probe.served.items():
            self._write(
                "INSERT OR IGNORE INTO retrievals VALUES (?, ?, ?, ?, ?, ?)",
                (
                    stage,
                    probe.task_id,
                    provider,
                    served.retrieval.content_key(),
                    _pack(served.retrieval),
                    json.dumps(served.origins),
                ),
            )

    def probes(self, stage: str, task_ids: Collection[str]) -> dict[str, Probe]:
        """The probes of those tasks that were probed in a stage, by task id."""
        found = {}
        for task_id in task_ids:
            rows = self._rows("SELECT wave, previews FROM probes WHERE stage = ? AND task_id = ?", stage, task_id)
            for wave, previews in rows:
                found[task_id] = Probe(
                    task_id=task_id,
                    wave=wave,
                    previews=tuple(Preview.model_validate(p) for p in json.loads(previews)),
                    served=self._served(stage, task_id),
                )
        return found

    def _served(self, stage: str, task_id: str) -> dict[str, Served]:
        rows = self._rows(
            "SELECT provider, retrieval, origins FROM retrievals WHERE stage = ? AND task_id = ? ORDER BY provider",
            stage,
            task_id,
        )
        return {
            provider: Served(
                retrieval=Retrieval.model_validate_json(zlib.decompress(blob)),
                origins=tuple((str(task), float(share)) for task, share in json.loads(origins)),
            )
            for provider, blob, origins in rows
        }

    def probed(self, stage: str) -> list[str]:
        """Ids of all tasks that were probed in a stage."""
        return [row[0] for row in self._rows("SELECT task_id FROM probes WHERE stage = ? ORDER BY task_id", stage)]

    def add_episode(self, episode: Episode) -> None:
        """Append an episode; the latest attempt of a key is the one that counts."""
        key, correct = episode.key, episode.outcome.correct
        self._write(
            "INSERT OR REPLACE INTO episodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                key.stage,
                key.task_id,
                key.content_key,
                key.in_mode,
                key.repeat,
                episode.attempt,
                episode.status,
                None if correct is None else int(correct),
                episode.model_dump_json(exclude={"trajectory", "in_records"}),
                _pack(_Body(trajectory=episode.trajectory, in_records=episode.in_records)),
            ),
        )

    def episodes(
        self, stage: str, task_ids: Collection[str] | None = None, *, bodies: bool = True
    ) -> dict[EpisodeKey, Episode]:
        """The latest attempt of every episode of a stage (of some tasks, where given).

        Without `bodies` the trajectories and In records stay on disk: enough for tables and counts.
        """
        found: dict[EpisodeKey, Episode] = {}
        columns = "head, body" if bodies else "head, NULL"
        order = "ORDER BY task_id, content_key, in_mode, repeat, attempt"
        if task_ids is None:
            rows = self._rows(f"SELECT {columns} FROM episodes WHERE stage = ? {order}", stage)
        else:
            one = f"SELECT {columns} FROM episodes WHERE stage = ? AND task_id = ? {order}"
            rows = [row for task_id in task_ids for row in self._rows(one, stage, task_id)]
        for head, body in rows:
            episode = _episode(head, body)
            found[episode.key] = episode
        return found

    def episode(self, key: EpisodeKey) -> Episode | None:
        """The latest attempt of one episode, with its trajectory."""
        rows = self._rows(
            "SELECT head, body FROM episodes WHERE stage = ? AND task_id = ? AND content_key = ? AND in_mode = ?"
            " AND repeat = ? ORDER BY attempt DESC LIMIT 1",
            key.stage,
            key.task_id,
            key.content_key,
            key.in_mode,
            key.repeat,
        )
        return _episode(*rows[0]) if rows else None

    def spent(self, stage: str) -> Spent:
        """What the episodes of a stage took so far."""
        return _spent(self._rows(f"{_SPENT} WHERE stage = ?", stage)[0])

    def add_ending(self, stage: str, task_id: str, ending: EndingFact) -> None:
        self._write(
            "INSERT OR IGNORE INTO endings VALUES (?, ?, ?, ?)",
            (stage, task_id, ending.provider, ending.context.model_dump_json()),
        )

    def endings(self, stage: str) -> dict[str, EndingFact]:
        """The representative and End context of every task of a stage by task id."""
        rows = self._rows("SELECT task_id, provider, context FROM endings WHERE stage = ? ORDER BY task_id", stage)
        return {t: EndingFact(provider=p, context=EndContext.model_validate_json(c)) for t, p, c in rows}

    def add_offer(self, stage: str, offer: OfferFact) -> None:
        self._write(
            "INSERT OR IGNORE INTO offers VALUES (?, ?, ?, ?, ?, ?)",
            (stage, offer.task_id, offer.provider, offer.status, offer.reason, json.dumps(offer.record_ids)),
        )

    def offers(self, stage: str) -> list[OfferFact]:
        rows = self._rows(
            "SELECT task_id, provider, status, reason, record_ids FROM offers"
            " WHERE stage = ? ORDER BY task_id, provider",
            stage,
        )
        return [
            OfferFact(task_id=t, provider=p, status=s, reason=r, record_ids=tuple(json.loads(i)))
            for t, p, s, r, i in rows
        ]

    def add_rewards(self, signature: str, rewards: Iterable[RewardFact]) -> None:
        """Write the rewards computed under one signature of reward settings in place of earlier ones, all or none."""
        self.flush()
        values, notes = [], []
        for fact in rewards:
            key = (signature, fact.phase, fact.task_id, fact.provider, fact.in_mode, fact.repeat, fact.step)
            values.append((*key, fact.reward, json.dumps(fact.dimensions, sort_keys=True)))
            if fact.note:
                notes.append((*key, fact.note))
        with self._guard():
            self._db.execute("BEGIN")
            for table in ("rewards", "reward_notes"):
                self._db.execute(f"DELETE FROM {table} WHERE signature = ?", (signature,))
            self._db.executemany("INSERT INTO rewards VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._db.executemany("INSERT INTO reward_notes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", notes)
        self.flush()

    def rewards(self, signature: str) -> list[RewardFact]:
        columns = "phase, task_id, provider, in_mode, repeat, step"
        rows = self._rows(
            f"SELECT {columns}, reward, dimensions, COALESCE(note, '') FROM rewards"
            f" LEFT JOIN reward_notes USING (signature, {columns})"
            f" WHERE signature = ? ORDER BY {columns}",
            signature,
        )
        return [
            RewardFact(
                phase=row[0],
                task_id=row[1],
                provider=row[2],
                in_mode=row[3],
                repeat=row[4],
                step=row[5],
                reward=row[6],
                dimensions=json.loads(row[7]),
                note=row[8],
            )
            for row in rows
        ]

    def verdict(self, key: str) -> Verdict | Unscored | None:
        """A judge's verdict by the content that was judged, None where it was not."""
        rows = self._rows("SELECT verdict FROM verdicts WHERE key = ?", key)
        return _VERDICT.validate_json(rows[0][0]) if rows else None

    def add_verdict(self, key: str, verdict: Verdict | Unscored) -> None:
        """Keep a verdict; the first one of a content stays."""
        self._write("INSERT OR IGNORE INTO verdicts VALUES (?, ?)", (key, verdict.model_dump_json()))
