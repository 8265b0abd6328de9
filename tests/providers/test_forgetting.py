"""What is forgotten is gone: rows, vectors, receipts, derived records, encodings, index files, and bytes on disk."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_toys import CORRECT, ENCODER, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Insight
from providers.embedder import CachedEncoder, Hashing
from providers.errors import BankError, ConfigError
from providers.forgetting import Forgotten, Selection
from providers.index_file import index_folder
from providers.long_term.insight_graph import InsightGraph
from providers.space import Space
from providers.types import Lineage, Record, Step, StoreReceipt, Trajectory
from providers.verification import verify

SECRET = "Zanzibarquokka"


def run_over(task_id: str, source: str) -> Trajectory:
    step = Step(index=0, tool="open", arguments={}, observation="page", lineage=Lineage(source=source))
    return Trajectory.make(task_id=task_id, question="?", agent="toy", seed=0, steps=(step,), answer="1")


def note(space: Space, task: str, text: str, source: str = "/page", **fields: Any) -> Record:
    run = run_over(task, source)
    record = space.new_record("note", run, 0, text=text, payload={"line": text}).model_copy(update=fields)
    space.add([record])
    space.note_offer(run.id, StoreReceipt(provider="toy", status="stored", record_ids=(record.id,)))
    return record


def texts_of(bank: MemoryBank, namespace: str = "default") -> list[str]:
    return sorted(record.text for record in bank.space("toy", namespace).records())


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBank]:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 1)
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        note(space, "t1", f"coal of {SECRET}", "/a", created=time.time() - 100)
        note(space, "t2", "a river", "/b")
        note(space, "t3", "a border", "/a")
        note(bank.space("toy", "acme/ann"), "t1", "coal for ann")
        note(bank.space("toy", "acme/bob"), "t1", "coal for bob")
        yield bank


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"task": "t1", "namespace": "default"}, ["a border", "a river"]),
        ({"source": "/a"}, ["a river"]),
        ({"text": SECRET.upper()}, ["a border", "a river"]),
        ({"older_than": 50}, ["a border", "a river"]),
        ({"source": "/a", "text": "border"}, ["a river", f"coal of {SECRET}"]),
        ({"namespace": "default"}, []),
        ({"namespace": "acme"}, ["a border", "a river", f"coal of {SECRET}"]),
        ({"task": "t9"}, ["a border", "a river", f"coal of {SECRET}"]),
    ],
    ids=str,
)
def test_what_is_selected_goes_and_the_rest_stays(bank: MemoryBank, given: dict[str, Any], left: list[str]) -> None:
    bank.forget(Selection(**given))
    assert texts_of(bank) == sorted(left)
    assert (texts_of(bank, "acme/ann") == []) == (given.get("namespace") == "acme")
    with open_bank(bank.path.parent) as again:
        assert texts_of(again) == sorted(left)
    assert verify(bank.path).ok


def test_it_says_what_it_removed(bank: MemoryBank) -> None:
    done = bank.forget(Selection(task="t1"))
    assert [(space.provider, space.namespace, space.records) for space in done.spaces] == [
        ("toy", "acme/ann", 1),
        ("toy", "acme/bob", 1),
        ("toy", "default", 1),
    ]
    first = done.spaces[0]
    assert (first.vectors, first.receipts, first.events, first.derived) == (1, 1, 1, 0)
    assert bank.forget(Selection(task="t1")) == Forgotten(spaces=(), cached_texts=0)


def test_searches_and_receipts_know_nothing_of_it_afterwards(bank: MemoryBank) -> None:
    space = bank.space("toy")
    run = run_over("t1", "/a")
    assert space.search_lexical(SECRET)
    bank.forget(Selection(text=SECRET))
    assert space.search_lexical(SECRET) == []
    assert all(SECRET not in record.text for record, _ in space.search_dense(ENCODER.encode([SECRET])[0], 9))
    assert space.receipt_of(run.id) is None
    note(space, "t1", "stored again", "/a")
    assert "stored again" in texts_of(bank)


def files_with(folder: Path, text: str) -> list[str]:
    needles = [text.encode(), text.casefold().encode(), text.encode("utf-16-le")]
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(needle in path.read_bytes() for needle in needles)
    ]


def test_its_bytes_are_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 1)
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        long = note(space, "t1", f"{SECRET} " * 800)
        note(space, "t2", "a river")
        space.update(long.model_copy(update={"text": f"rewritten {SECRET}", "payload": {"n": SECRET}}))
        space.search_lexical("river")
    with open_bank(tmp_path) as bank:
        assert "bank.sqlite" in files_with(tmp_path, SECRET)
        assert any(name.startswith("bank.sqlite.indexes") for name in files_with(tmp_path, SECRET))
        bank.space("toy").search_lexical("river")
        bank.forget(Selection(text=SECRET))
        assert files_with(tmp_path, SECRET) == []
    assert files_with(tmp_path, SECRET) == []


def test_records_that_link_to_it_go_with_it(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        first = note(space, "t1", "coal")
        second = note(space, "t2", "coal again", links=(first.id,))
        note(space, "t3", "coal thrice", links=(second.id,))
        note(space, "t4", "a river")
        done = bank.forget(Selection(task="t1"))
        assert (done.records, done.spaces[0].derived) == (3, 2)
        assert texts_of(bank) == ["a river"]


async def test_a_provider_goes_on_after_its_items_were_forgotten(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        distiller = ScriptedDistiller()
        provider = InsightGraph(bank.space("insight_graph"), distiller)
        for task, line in {"t1": "Search coal first.", "t2": "Search coal twice.", "t3": "Open the river."}.items():
            distiller.insight_lines = (Insight(text=line, kind="success"),)
            await provider.store(run_of(task), CORRECT)
        used = await provider.retrieve(query_of("coal"))
        provider.apply(used.effects, CORRECT)
        bank.forget(Selection(task="t1"))
        found = await provider.retrieve(query_of("Search coal first."))
        assert "first" not in found.text
        provider.apply(used.effects, CORRECT)
        distiller.insight_lines = (Insight(text="Search coal first.", kind="success"),)
        assert (await provider.store(run_of("t1"), CORRECT)).status == "stored"
        assert "first" in (await provider.retrieve(query_of("Search coal first."))).text


def test_encodings_of_forgotten_texts_leave_the_encoders_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    encoder = CachedEncoder(Hashing(), cache)
    with MemoryBank.open(tmp_path / "bank.sqlite", encoder) as bank:
        note(bank.space("toy"), "t1", "coal")
        note(bank.space("toy"), "t2", "a river")
        assert bank.forget(Selection(task="t1")).cached_texts == 1
    encoder.close()
    with sqlite3.connect(cache) as connection:
        (vector,) = connection.execute("SELECT vector FROM embeddings").fetchone()
    assert np.array_equal(np.frombuffer(vector, dtype=np.float32), ENCODER.encode(["a river"])[0])


@pytest.mark.parametrize(
    "given",
    [{}, {"provider": "toy"}, {"namespace": "../x"}, {"text": " "}, {"task": ""}, {"older_than": -1}],
    ids=str,
)
def test_a_selection_that_names_nothing_or_everything_is_refused(bank: MemoryBank, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        bank.forget(Selection(**given))
    assert len(texts_of(bank)) == 3


def test_a_whole_namespace_that_comes_back_is_not_taken_for_the_old_one(bank: MemoryBank) -> None:
    with open_bank(bank.path.parent) as other:
        assert len(texts_of(other)) == 3
        bank.forget(Selection(namespace="default"))
        for position in range(3):
            note(bank.space("toy"), f"n{position}", f"new {position}")
        assert texts_of(other) == ["new 0", "new 1", "new 2"]
        assert other.space("toy").search_lexical(SECRET) == []


def test_another_open_bank_forgets_too(bank: MemoryBank) -> None:
    with open_bank(bank.path.parent) as other:
        assert other.space("toy").search_lexical(SECRET)
        bank.forget(Selection(text=SECRET))
        assert other.space("toy").search_lexical(SECRET) == []


def test_bytes_that_a_reader_holds_go_when_the_bank_is_next_opened(
    bank: MemoryBank, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = sqlite3.connect(bank.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM records").fetchone()
    bank._writer.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(BankError, match=r"rows are removed.*another process is reading"):
        bank.forget(Selection(text=SECRET))
    assert SECRET not in " ".join(texts_of(bank))
    reader.close()
    bank.close()
    with open_bank(bank.path.parent):
        assert files_with(bank.path.parent, SECRET) == []


def test_index_files_of_other_spaces_stay(bank: MemoryBank) -> None:
    bank.close()
    with open_bank(bank.path.parent) as again:
        for namespace in ("default", "acme/ann", "acme/bob"):
            texts_of(again, namespace)
    before = {path.name for path in index_folder(bank.path).iterdir()}
    with open_bank(bank.path.parent) as again:
        again.forget(Selection(namespace="acme/ann"))
        assert len(before - {path.name for path in index_folder(bank.path).iterdir()}) == 1
