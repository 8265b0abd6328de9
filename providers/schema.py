"""The tables of a bank file, the digests that tell damaged rows, and the steps from older schema versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from providers.errors import BankError

APPLICATION_ID = 0x6D656D72
BANK_SCHEMA = 2
"""Version of the tables, not of what flows between rooms."""

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
    provider TEXT NOT NULL, namespace TEXT NOT NULL, id TEXT NOT NULL,
    kind TEXT NOT NULL, state TEXT NOT NULL, signature TEXT NOT NULL,
    body TEXT NOT NULL, generation INTEGER NOT NULL, digest INTEGER NOT NULL,
    PRIMARY KEY (provider, namespace, id)
) WITHOUT ROWID;
CREATE INDEX records_by_generation ON records (provider, namespace, generation);
CREATE TABLE vectors (
    provider TEXT NOT NULL, namespace TEXT NOT NULL, id TEXT NOT NULL, vector BLOB NOT NULL, digest INTEGER NOT NULL,
    PRIMARY KEY (provider, namespace, id)
);
CREATE TABLE generations (
    provider TEXT NOT NULL, namespace TEXT NOT NULL, generation INTEGER NOT NULL,
    records INTEGER NOT NULL, content INTEGER NOT NULL, facts INTEGER NOT NULL, digest INTEGER NOT NULL,
    PRIMARY KEY (provider, namespace)
) WITHOUT ROWID;
CREATE TABLE offers (
    provider TEXT NOT NULL, namespace TEXT NOT NULL, trajectory_id TEXT NOT NULL, receipt TEXT NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (provider, namespace, trajectory_id)
) WITHOUT ROWID;
CREATE TABLE counters (
    provider TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    PRIMARY KEY (provider, namespace, name)
) WITHOUT ROWID;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, provider TEXT NOT NULL, namespace TEXT NOT NULL, record_id TEXT NOT NULL,
    event TEXT NOT NULL, detail TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX events_by_record ON events (provider, namespace, record_id);
"""

DIGEST_BITS = 62
"""Two digests add up within SQLite's 64 bits."""


class Held(NamedTuple):
    """What a space is said to hold."""

    generation: int = 0
    records: int = 0
    content: int = 0
    """Sum of the digests of its records and vectors."""
    facts: int = 0
    """Sum of the digests of its receipts and counters."""


NOTHING = Held()


def row_digest(*values: str | int | bytes) -> int:
    """What a row's `digest` column must hold, over its other columns in order. Finds damage, not forgery."""
    parts = [value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass") for value in values]
    digest = blake2b(b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=8).digest()
    return int.from_bytes(digest) & ((1 << DIGEST_BITS) - 1)


def content_sum(digests: Iterable[int]) -> int:
    """The digest of a set of rows; rows can be added to it and taken from it in any order."""
    return sum(digests) & ((1 << DIGEST_BITS) - 1)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring the tables from `version` to BANK_SCHEMA, inside the caller's transaction.

    Raises BankError for a version that this memroute does not know.
    """
    while version != BANK_SCHEMA:
        step = _STEPS.get(version)
        if step is None:
            raise BankError(f"there is no step from schema version {version} to {BANK_SCHEMA}")
        step(connection)
        version += 1
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(version),))


def _from_1_to_2(connection: sqlite3.Connection) -> None:
    """Rows get digests, and spaces the number and digest of what they hold."""
    for table in ("records", "vectors", "offers", "counters"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN digest INTEGER NOT NULL DEFAULT 0")
    for column in ("records", "content", "facts", "digest"):
        connection.execute(f"ALTER TABLE generations ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    connection.execute("DROP INDEX records_by_signature")
    connection.execute("CREATE INDEX events_by_record ON events (provider, namespace, record_id)")
    connection.create_function("row_digest", -1, row_digest, deterministic=True)
    for table, columns in COLUMNS.items():
        connection.execute(f"UPDATE {table} SET digest = row_digest({columns})")
    generations = {
        (p, n): g for p, n, g in connection.execute("SELECT provider, namespace, generation FROM generations")
    }
    for key in connection.execute(
        "SELECT provider, namespace FROM offers UNION SELECT provider, namespace FROM counters"
    ):
        generations.setdefault(key, 0)
    for key, generation in generations.items():
        (records,) = connection.execute(
            "SELECT count(*) FROM records WHERE provider = ? AND namespace = ?", key
        ).fetchone()
        content, facts = (
            content_sum(digest for (digest,) in connection.execute(query, key * 2))
            for query in (CONTENT_DIGESTS, FACT_DIGESTS)
        )
        write_space(connection, key, Held(generation, records, content, facts))
    count_spaces(connection)


COLUMNS = {
    "records": "provider, namespace, id, kind, state, signature, body, generation",
    "vectors": "provider, namespace, id, vector",
    "offers": "provider, namespace, trajectory_id, receipt",
    "counters": "provider, namespace, name, value",
    "generations": "provider, namespace, generation, records, content, facts",
}
"""The columns of each table that its `digest` is made of."""

CONTENT_DIGESTS = (
    "SELECT digest FROM records WHERE provider = ? AND namespace = ?"
    " UNION ALL SELECT digest FROM vectors WHERE provider = ? AND namespace = ?"
)

FACT_DIGESTS = (
    "SELECT digest FROM offers WHERE provider = ? AND namespace = ?"
    " UNION ALL SELECT digest FROM counters WHERE provider = ? AND namespace = ?"
)

_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _from_1_to_2}


def write_space(connection: sqlite3.Connection, key: tuple[str, str], held: Held) -> None:
    """Put down what a space holds."""
    values = (*key, *held)
    connection.execute(
        "INSERT OR REPLACE INTO generations VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, row_digest(*values))
    )


def made_with(encoder: str, dimension: int) -> list[tuple[str, str]]:
    """Rows of `meta` that say which encoder a bank is filled through, with a digest of their own."""
    return [
        ("encoder", encoder),
        ("dimension", str(dimension)),
        ("made_with", str(row_digest(encoder, str(dimension)))),
    ]


def encoder_of(meta: Mapping[str, str]) -> tuple[str, int] | None:
    """The encoder that a bank was filled through, and its dimension; None where they are not what was written.

    Banks that were made without the digest are taken at their word.
    """
    encoder, dimension = str(meta.get("encoder", "")), str(meta.get("dimension", ""))
    if not encoder or not (dimension.isascii() and dimension.isdigit()):
        return None
    if "made_with" in meta and meta["made_with"] != str(row_digest(encoder, dimension)):
        return None
    return encoder, int(dimension)


def count_spaces(connection: sqlite3.Connection) -> None:
    """Put down how many spaces there are, so that a lost one is missed."""
    (spaces,) = connection.execute("SELECT count(*) FROM generations").fetchone()
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('spaces', ?)", (str(spaces),))
