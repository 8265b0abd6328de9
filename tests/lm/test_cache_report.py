"""What a cache file holds, what it cost, and pruning it."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from lm.cache import Question, ResponseCache
from lm.cache_report import cache_stats, prune_cache, stats_lines
from lm.errors import MemrouteError
from lm.types import Completion, Purpose

ANSWER = Completion(text="yes", finish_reason="stop")


def ask(
    cache: ResponseCache, text: str, purpose: Purpose = "agent", model: str = "m", cost: float | None = 0.5
) -> None:
    question = Question("http://h/v1", model, [{"role": "user", "content": text}], {"temperature": 0.0})
    known, miss = cache.get(question)
    if known is None:
        cache.spend(purpose, model, 10, 5, cost)
        cache.put(question, ANSWER, purpose, miss)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cache.sqlite"
    cache = ResponseCache(path)
    for text in ("a", "b", "a", "a"):
        ask(cache, text)
    ask(cache, "a", model="n")
    ask(cache, "c", purpose="judge", model="n", cost=None)
    ask(cache, "d", purpose="judge", model="n")
    cache.close()
    return path


def test_stats_count_answers_hits_tokens_money_and_reasons(path: Path) -> None:
    stats = cache_stats(path)
    assert [(kept.purpose, kept.model, kept.answers, kept.hits) for kept in stats.kept] == [
        ("agent", "m", 2, 2),
        ("agent", "n", 1, 0),
        ("judge", "n", 2, 0),
    ]
    assert [(spent.calls, spent.prompt_tokens, spent.completion_tokens) for spent in stats.spent] == [
        (2, 20, 10),
        (1, 10, 5),
        (2, 20, 10),
    ]
    assert [spent.cost_dollars for spent in stats.spent] == [1.0, 0.5, None]
    assert stats.spent[2].unpriced_calls == 1
    assert [(missed.purpose, missed.reason, missed.count) for missed in stats.missed] == [
        ("agent", "new prompt", 2),
        ("agent", "other model", 1),
        ("judge", "new prompt", 2),
    ]
    lines = "\n".join(stats_lines(stats))
    assert "$1.0000" in lines
    assert "cost unknown (no price for 1 calls)" in lines


def test_pruning_takes_what_all_conditions_name_and_leaves_what_was_spent(path: Path) -> None:
    spent = cache_stats(path).spent
    assert prune_cache(path, model="n", purpose="agent") == 1
    assert prune_cache(path, never_hit=True, purpose="agent") == 1
    assert [(kept.purpose, kept.answers) for kept in cache_stats(path).kept] == [("agent", 1), ("judge", 2)]
    assert prune_cache(path) == 3
    assert cache_stats(path).kept == ()
    assert cache_stats(path).spent == spent


def test_pruning_by_age_goes_by_the_last_use(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10 * 86400)
    cache = ResponseCache(path)
    ask(cache, "b")
    cache.close()
    assert prune_cache(path, unused_days=11) == 0
    assert prune_cache(path, unused_days=9) == 4
    assert [kept.answers for kept in cache_stats(path).kept] == [1]


def test_a_file_that_is_not_there_is_empty_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    (line,) = stats_lines(cache_stats(path))
    assert line.startswith(f"{path}: no chat model was asked yet (there is no such file")
    assert prune_cache(path) == 0
    assert not path.exists()


def test_a_damaged_answer_is_asked_for_again(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE completions SET answer = replace(answer, 'yes', 'no') WHERE purpose = 'judge'")
    cache = ResponseCache(path)
    for text in ("c", "d", "c", "d"):
        ask(cache, text, purpose="judge", model="n")
    cache.close()
    missed = {missed.reason: missed.count for missed in cache_stats(path).missed if missed.purpose == "judge"}
    assert missed == {"new prompt": 2, "damaged answer": 2}
    assert [(kept.answers, kept.hits) for kept in cache_stats(path).kept if kept.purpose == "judge"] == [(2, 2)]


def test_answers_from_before_they_had_digests_are_taken_over(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE completions DROP COLUMN digest")
    cache = ResponseCache(path)
    ask(cache, "a")
    cache.close()
    assert [kept.hits for kept in cache_stats(path).kept] == [3, 0, 0]


def test_a_damaged_file_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(MemrouteError, match=r"cache\.sqlite cannot be used"):
        cache_stats(path)
