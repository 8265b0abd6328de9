"""What a cache file holds and what its answers cost, and taking answers out of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lm.cache import ResponseCache, broken


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Kept(_Frozen):
    """Answers of one purpose, model and endpoint."""

    purpose: str
    model: str
    base_url: str
    answers: int
    hits: int
    """Times that one of them was given instead of a call."""
    oldest_days: float
    unused_days: float
    """Since one of them was last made or given."""


class Spent(_Frozen):
    """All paid calls of one purpose and model since the file was made; pruning does not change it."""

    purpose: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_dollars: float | None
    """None where a call had no known price."""
    unpriced_calls: int


class Missed(_Frozen):
    """Answers that had to be asked for, by why none was kept."""

    purpose: str
    reason: str
    count: int


class CacheStats(_Frozen):
    """A cache file in figures."""

    path: str
    megabytes: float
    kept: tuple[Kept, ...] = ()
    spent: tuple[Spent, ...] = ()
    missed: tuple[Missed, ...] = ()


def cache_stats(path: Path) -> CacheStats:
    """What stands in the file; all empty where there is none yet."""
    if not path.is_file():
        return CacheStats(path=str(path), megabytes=0.0)
    now = time.time()
    with _opened(path) as database:
        kept = database.execute(
            "SELECT purpose, model, base_url, COUNT(*), SUM(hits), MIN(created), MAX(used) FROM completions"
            " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        ).fetchall()
        spent = database.execute(
            "SELECT purpose, model, calls, prompt_tokens, completion_tokens, cost, unpriced FROM spending ORDER BY 1, 2"
        ).fetchall()
        missed = database.execute(
            "SELECT purpose, reason, count FROM misses ORDER BY purpose, count DESC, reason"
        ).fetchall()
    return CacheStats(
        path=str(path),
        megabytes=round(path.stat().st_size / 1e6, 3),
        kept=tuple(
            Kept(
                **dict(zip(("purpose", "model", "base_url", "answers", "hits"), row[:5], strict=True)),
                oldest_days=round((now - row[5]) / 86400, 2),
                unused_days=round((now - row[6]) / 86400, 2),
            )
            for row in kept
        ),
        spent=tuple(
            Spent(
                **dict(zip(("purpose", "model", "calls", "prompt_tokens", "completion_tokens"), row[:5], strict=True)),
                cost_dollars=None if row[6] else row[5],
                unpriced_calls=row[6],
            )
            for row in spent
        ),
        missed=tuple(Missed(purpose=purpose, reason=reason, count=count) for purpose, reason, count in missed),
    )


def prune_cache(
    path: Path,
    *,
    unused_days: float | None = None,
    model: str | None = None,
    purpose: str | None = None,
    never_hit: bool = False,
) -> int:
    """Delete the answers for which all that is given holds, and shrink the file; gives how many went.

    `unused_days`: neither made nor given for so long. `never_hit`: never given. With nothing given all answers go.
    """
    conditions: list[tuple[str, object]] = []
    if unused_days is not None:
        conditions.append(("used < ?", time.time() - unused_days * 86400))
    if model is not None:
        conditions.append(("model = ?", model))
    if purpose is not None:
        conditions.append(("purpose = ?", purpose))
    if never_hit:
        conditions.append(("hits = ?", 0))
    where = " AND ".join(["1", *(condition for condition, _ in conditions)])
    if not path.is_file():
        return 0
    with _opened(path) as database:
        with database:
            gone = database.execute(f"DELETE FROM completions WHERE {where}", [value for _, value in conditions])
        database.execute("VACUUM")
        return gone.rowcount


def stats_lines(stats: CacheStats) -> Iterator[str]:
    """The figures for a terminal."""
    if not stats.kept and not stats.spent:
        why = "" if Path(stats.path).is_file() else " (there is no such file: did the run begin, under this name?)"
        yield f"{stats.path}: no chat model was asked yet{why}."
        return
    yield f"{stats.path} ({stats.megabytes:g} MB, other caches of the run included)"
    for kept in stats.kept:
        yield (
            f"  kept   {kept.purpose:<9} {kept.model} at {kept.base_url}: {kept.answers:,} answers, "
            f"given again {kept.hits:,} times, last {kept.unused_days:g} days ago"
        )
    for spent in stats.spent:
        cost = (
            f"${spent.cost_dollars:.4f}"
            if spent.cost_dollars is not None
            else f"cost unknown (no price for {spent.unpriced_calls:,} calls)"
        )
        yield (
            f"  spent  {spent.purpose:<9} {spent.model}: {spent.calls:,} calls, {spent.prompt_tokens:,} prompt and "
            f"{spent.completion_tokens:,} answer tokens, {cost}"
        )
    for missed in stats.missed:
        yield f"  missed {missed.purpose:<9} {missed.count:,} times: {missed.reason}"


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    ResponseCache(path).close()  # the file may hold other caches alone: make our tables
    database = sqlite3.connect(path, timeout=10.0)
    try:
        yield database
    except sqlite3.Error as error:
        raise broken(path, error) from error
    finally:
        database.close()
