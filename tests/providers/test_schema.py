"""Older banks are brought to the present schema; damaged rows are told from good ones."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from memory_toys import ENCODER, open_bank, run_of

from providers.bank import MemoryBank
from providers.errors import BankError
from providers.schema import BANK_SCHEMA, content_sum, row_digest
from providers.types import Step, Trajectory

KEPT = Path(__file__).parent / "banks" / "schema_1.sqlite"


def schema_of(path: Path) -> set[str]:
    with sqlite3.connect(path) as connection:
        return {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def columns_of(path: Path) -> dict[str, list[str]]:
    with sqlite3.connect(path) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [c[1] for c in connection.execute(f"PRAGMA table_info({table})")] for table in sorted(tables)}


def kept_run(task_id: str) -> Trajectory:
    """The runs of the kept bank: their ids hash exactly these words."""
    question = "What is the area of Chad?"
    step = Step(index=0, tool="search", arguments={"query": question}, observation="1. [Chad](/chad)")
    return Trajectory.make(task_id=task_id, question=question, agent="toy", seed=0, steps=(step,), answer="1")


def test_a_bank_of_schema_1_keeps_all_that_it_held(tmp_path: Path) -> None:
    shutil.copy(KEPT, tmp_path / "bank.sqlite")
    for _ in range(2):
        with open_bank(tmp_path) as bank:
            local, ann = bank.space("toy"), bank.space("toy", "acme/ann")
            assert sorted(record.text for record in local.records()) == ["", "coal in Chad", "river in Mali"]
            assert sorted(record.text for record in ann.records()) == ["coal in Chad", "river in Mali"]
            assert [record.text for record in ann.records(state=("archived",))] == ["border of Peru"]
            assert local.counter("stored") == 3
            receipt = ann.receipt_of(kept_run("task-2").id)
            assert receipt is not None
            assert receipt.record_ids == (ann.records(state=("archived",))[0].id,)
            (hit, score), *_ = local.search_dense(ENCODER.encode(["coal in Chad"])[0], 1)
            assert (hit.text, round(score, 5)) == ("coal in Chad", 1.0)
            assert local.find_signature("s1") is not None


def test_a_migrated_bank_has_the_tables_of_a_new_one_and_takes_writes(tmp_path: Path) -> None:
    shutil.copy(KEPT, tmp_path / "bank.sqlite")
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        space.add([space.new_record("note", run_of("new"), 0, text="a harbour", payload={})])
        assert len(space.records()) == 4
    open_bank(tmp_path, "new.sqlite").close()
    assert columns_of(tmp_path / "bank.sqlite") == columns_of(tmp_path / "new.sqlite")
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        version = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    assert version == (str(BANK_SCHEMA),)


def test_a_migration_that_fails_leaves_the_bank_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(KEPT, tmp_path / "bank.sqlite")
    before = schema_of(tmp_path / "bank.sqlite")

    def fail(connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("providers.schema.count_spaces", fail)
        with pytest.raises(KeyboardInterrupt):
            open_bank(tmp_path)
    assert schema_of(tmp_path / "bank.sqlite") == before
    open_bank(tmp_path).close()
    assert schema_of(tmp_path / "bank.sqlite") != before


def test_digests_tell_every_value_and_the_borders_between_them() -> None:
    digests = [row_digest("ab", "c"), row_digest("a", "bc"), row_digest("abc"), row_digest("ab", "c", 0)]
    assert len(set(digests)) == 4
    assert row_digest("ab", "c") == digests[0]
    total = content_sum(digests)
    assert content_sum(reversed(digests)) == total
    assert content_sum((total, -digests[1])) == content_sum([digests[0], *digests[2:]])
    assert 0 <= total < 2**62


HARMS = {
    "a word of a text": "UPDATE records SET body = replace(body, 'coal', 'gold')",
    "a state": "UPDATE records SET state = 'archived' WHERE id = (SELECT min(id) FROM records)",
    "a vector": "UPDATE vectors SET vector = zeroblob(1024) WHERE id = (SELECT min(id) FROM vectors)",
    "a short vector": "UPDATE vectors SET vector = x'00' WHERE id = (SELECT min(id) FROM vectors)",
    "a lost record": "DELETE FROM records WHERE id = (SELECT min(id) FROM records)",
    "a lost vector": "DELETE FROM vectors WHERE id = (SELECT min(id) FROM vectors)",
    "a moved record": "UPDATE records SET namespace = 'other' WHERE id = (SELECT min(id) FROM records)",
    "a lost space": "DELETE FROM generations",
    "a renamed space": "UPDATE generations SET namespace = 'other'",
    "a count": "UPDATE generations SET records = 99",
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_row_is_never_taken_for_a_memory(tmp_path: Path, harm: str) -> None:
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        texts = ["coal in Chad", "coal in Mali", "coal in Peru"]
        space.add([space.new_record("note", run_of("t"), n, text=t, payload={}) for n, t in enumerate(texts)])
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        connection.execute(HARMS[harm])

    def ask() -> None:
        with open_bank(tmp_path) as bank:
            bank.space("toy").search_lexical("coal")

    with pytest.raises(BankError, match=r"damaged"):
        ask()


RENAMED = {"offers": "trajectory_id = 'x' || trajectory_id", "counters": "value = 4"}


@pytest.mark.parametrize("table", RENAMED)
def test_a_harmed_receipt_or_counter_is_told(tmp_path: Path, table: str) -> None:
    shutil.copy(KEPT, tmp_path / "bank.sqlite")
    open_bank(tmp_path).close()
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        connection.execute(
            "UPDATE counters SET value = 4"
            if table == "counters"
            else "UPDATE offers SET trajectory_id = 'x' || trajectory_id"
        )
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        ask = {"counters": lambda: space.counter("stored"), "offers": lambda: space.receipt_of(kept_run("task-1").id)}
        with pytest.raises(BankError, match=r"damaged: one of the receipts and counters"):
            ask[table]()


def test_a_record_that_is_harmed_after_its_space_was_indexed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 1)
    with MemoryBank.open(tmp_path / "bank.sqlite", ENCODER) as bank:
        space = bank.space("toy")
        space.add([space.new_record("note", run_of("t"), n, text=f"coal {n}", payload={}) for n in range(3)])
        assert space.search_lexical("coal")
    for harm in ("UPDATE records SET body = replace(body, 'coal', 'gold')", "DELETE FROM records"):
        with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
            connection.execute(harm)
        with MemoryBank.open(tmp_path / "bank.sqlite", ENCODER) as bank, pytest.raises(BankError, match="damaged"):
            bank.space("toy").search_lexical("coal")
