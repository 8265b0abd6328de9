"""The bank file: what it refuses, what survives, and who may write at once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_toys import CORRECT, ENCODER, ScriptedDistiller, open_bank, run_of

from providers.bank import MemoryBank
from providers.base import Narrative
from providers.embedder import Hashing
from providers.errors import BankError
from providers.long_term.voyager import Voyager
from providers.types import Origin, Record, StoreReceipt

ROOT = Path(__file__).parents[2]


def stored_texts(bank: MemoryBank, provider: str = "toy") -> list[str]:
    return [record.text for record in bank.space(provider).records()]


def add(bank: MemoryBank, position: int, text: str = "coal") -> None:
    space = bank.space("toy")
    space.add([space.new_record("note", run_of("t"), position, text=text, payload={})])


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


# Opening


@pytest.mark.parametrize(
    "content",
    [b"", b"hello, I am a text file" * 50, b"SQLite format 3\x00 and then nothing of the kind" + b"\x00" * 3000],
    ids=["empty", "text", "broken"],
)
def test_a_file_that_is_no_bank_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bank.sqlite"
    path.write_bytes(content)
    with pytest.raises(BankError, match=r"bank\.sqlite.*move (it|this one) away"):
        open_bank(tmp_path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        connection.execute("CREATE TABLE meta (key, value)")
    with pytest.raises(BankError, match="not a memroute bank"):
        open_bank(tmp_path)


def test_a_truncated_bank_is_refused_and_not_opened_empty(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        for position in range(200):
            add(bank, position, f"coal {position}")
    path = tmp_path / "bank.sqlite"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BankError, match="damaged"):
        open_bank(tmp_path)


def test_another_encoder_is_refused_by_name(tmp_path: Path) -> None:
    open_bank(tmp_path).close()

    class Other(Hashing):
        identity = "other-encoder"

    with pytest.raises(BankError, match=r"hashing-256 with 256 dimensions, not other-encoder.*set `encoder`"):
        MemoryBank.open(tmp_path / "bank.sqlite", Other())


def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    open_bank(tmp_path).close()
    with sqlite3.connect(tmp_path / "bank.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(BankError, match="schema version 99"):
        open_bank(tmp_path)


def test_opening_leaves_nothing_beside_the_bank(tmp_path: Path) -> None:
    open_bank(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["bank.sqlite"]


def test_a_bank_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BankError, match=r"cannot be made.*writable local disk"):
        MemoryBank.open(tmp_path / "file" / "bank.sqlite", ENCODER)


def test_two_openers_of_a_new_bank_get_the_same_one(tmp_path: Path) -> None:
    openers = [python(WRITER, str(tmp_path), name, "1") for name in ("left", "right")]
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["stored\n"] * 2


# Content


RECORDS = st.lists(
    st.builds(
        Record,
        id=st.text(min_size=1, max_size=8),
        provider=st.just("toy"),
        namespace=st.just("default"),
        kind=st.sampled_from(["note", "tip"]),
        payload=st.dictionaries(st.text(max_size=5), st.one_of(st.integers(-9, 9), st.text(max_size=5)), max_size=3),
        text=st.text(max_size=20),
        origins=st.lists(st.builds(Origin, trajectory_id=st.text(max_size=4), task_id=st.text(max_size=4))).map(tuple),
        state=st.sampled_from(["active", "guard", "archived"]),
        signature=st.text(max_size=4),
        created=st.floats(1, 1e9),
    ),
    max_size=6,
    unique_by=lambda record: record.id,
)


def savable(record: Record) -> bool:
    try:
        record.model_dump_json().encode("utf-8")
    except ValueError:
        return False
    return True


@settings(deadline=None, max_examples=25)
@given(RECORDS)
def test_records_survive_closing_and_copying(records: list[Record]) -> None:
    records = [record for record in records if savable(record)]
    with TemporaryDirectory() as folder:
        with open_bank(Path(folder)) as bank:
            bank.space("toy").add(records)
            bank.space("toy").add(records)
            bank.fork(Path(folder) / "copy.sqlite").close()
        for name in ("bank.sqlite", "copy.sqlite"):
            with open_bank(Path(folder), name) as bank:
                space = bank.space("toy")
                found = space.records(state=("active", "guard", "archived"))
                assert found == sorted(records, key=lambda record: record.id)
                for record in records:
                    if record.text:
                        expected = ENCODER.encode([record.text])[0]
                        assert (space.vectors([record.id])[0] == expected).all()


def test_a_copy_goes_its_own_way_and_replaces_no_file(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        add(bank, 0, "before")
        copy = bank.fork(tmp_path / "copy.sqlite")
        add(copy, 1, "in the copy")
        add(bank, 2, "in the bank")
        assert sorted(stored_texts(copy)) == ["before", "in the copy"]
        assert sorted(stored_texts(bank)) == ["before", "in the bank"]
        with pytest.raises(BankError, match=r"already a file .*copy\.sqlite"):
            bank.fork(tmp_path / "copy.sqlite")
        copy.close()


def test_the_same_stores_give_the_same_content(tmp_path: Path) -> None:
    contents = []
    for name in ("one.sqlite", "two.sqlite"):
        with open_bank(tmp_path, name) as bank:
            for position in (2, 0, 1):
                add(bank, position, f"coal {position}")
            contents.append([record.model_copy(update={"created": 0.0}) for record in bank.space("toy").records()])
    assert contents[0] == contents[1]


# Failure


def test_a_full_disk_is_said_and_loses_nothing_stored_before(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        add(bank, 0, "before")
        with bank.transaction() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
        bank._writer.execute(f"PRAGMA max_page_count = {pages + 2}")

        def overfill() -> None:
            with bank.transaction():
                for position in range(1, 200):
                    add(bank, position, "word " * 200)

        with pytest.raises(BankError, match=r"bank\.sqlite.*disk is full.*free some space"):
            overfill()
        bank._writer.execute("PRAGMA max_page_count = 1000000")
        assert stored_texts(bank) == ["before"]
        add(bank, 1, "after")
        assert len(stored_texts(bank)) == 2


def test_a_lock_held_too_long_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.bank.BUSY_SECONDS", 0.05)
    refusal = pytest.raises(BankError, match="another process has been writing")
    with open_bank(tmp_path) as bank, open_bank(tmp_path) as other, other.transaction(), refusal:
        add(bank, 0)


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        add(bank, 0, "committed")
        inside, leave = threading.Event(), threading.Event()

        def write() -> None:
            with bank.transaction():
                add(bank, 1, "not yet")
                inside.set()
                leave.wait(10)

        writer = threading.Thread(target=write)
        writer.start()
        inside.wait(10)
        before = time.perf_counter()
        assert stored_texts(bank) == ["committed"]
        assert time.perf_counter() - before < 2
        leave.set()
        writer.join()
        assert len(stored_texts(bank)) == 2


def test_many_threads_store_and_search_at_once(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for position in range(10):
                    add(bank, 100 * number + position, f"coal {number} {position}")
                    assert bank.space("toy").search_dense(ENCODER.encode(["coal"])[0], 3)
                    assert bank.space("toy").search_lexical("coal", 3)
            except BaseException as error:
                errors.append(error)
                raise

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(stored_texts(bank)) == 60


WRITER = """
import asyncio, sys
from pathlib import Path
from memory_toys import CORRECT, ScriptedDistiller, open_bank, run_of
from providers.base import Narrative
from providers.long_term.voyager import Voyager

async def main(folder, name, count):
    bank = open_bank(Path(folder))
    provider = Voyager(bank.space("voyager"), ScriptedDistiller())
    for number in range(int(count)):
        provider.distiller.next_narrative = Narrative(summary=f"{name} {number}", digest="d")
        print((await provider.store(run_of(f"{name}-{number}"), CORRECT)).status, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_lose_no_acknowledged_store(tmp_path: Path) -> None:
    writers = [python(WRITER, str(tmp_path), name, "25") for name in ("left", "right")]
    outputs = [writer.communicate(timeout=60)[0].split() for writer in writers]
    assert outputs == [["stored"] * 25] * 2
    with open_bank(tmp_path) as bank:
        assert sorted(stored_texts(bank, "voyager")) == sorted(
            f"{name} {number}" for name in ("left", "right") for number in range(25)
        )


MID_TRANSACTION = """
import sys, time
from pathlib import Path
from memory_toys import open_bank, run_of
from providers.types import StoreReceipt

bank = open_bank(Path(sys.argv[1]))
space = bank.space("toy")
statements = int(sys.argv[2])

def stop_at(sql):
    global statements
    statements -= 1
    if statements == 0:
        print("in the middle", flush=True)
        time.sleep(60)

bank._writer.set_trace_callback(stop_at)
with space.transaction():
    space.add([space.new_record("note", run_of("killed"), n, text=f"killed {n}", payload={}) for n in range(2)])
    space.note_offer(run_of("killed").id, StoreReceipt(provider="toy", status="stored"))
print("done", flush=True)
"""


@pytest.mark.parametrize("statement", [2, 4, 9, 11])
def test_a_kill_between_statements_leaves_nothing_half_written(tmp_path: Path, statement: int) -> None:
    with open_bank(tmp_path) as bank:
        add(bank, 0, "before")
    child = python(MID_TRANSACTION, str(tmp_path), str(statement))
    assert child.stdout is not None
    assert child.stdout.readline() == "in the middle\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        assert stored_texts(bank) == ["before"]
        assert space.receipt_of(run_of("killed").id) is None
        assert space.vectors([record.id for record in space.records()]).any(axis=1).all()
        rows = space.bank.committed.execute("SELECT count(*) FROM vectors").fetchone()
        assert rows == (1,)
        add(bank, 1, "after")


@pytest.mark.slow
def test_kills_at_random_moments_keep_every_acknowledged_store_whole(tmp_path: Path) -> None:
    acknowledged = 0
    for trial in range(8):
        child = python(WRITER, str(tmp_path), f"trial{trial}", "100000")
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.01 + 0.04 * trial)
        child.send_signal(signal.SIGKILL)
        acknowledged += 1 + len(child.stdout.read().split())
        child.wait()
    with open_bank(tmp_path) as bank:
        space = bank.space("voyager")
        records = space.records()
        assert acknowledged <= len(records) <= acknowledged + 8
        assert space.vectors([record.id for record in records]).any(axis=1).all()
        for record in records:
            receipt = space.receipt_of(record.origins[0].trajectory_id)
            assert receipt is not None
            assert receipt.record_ids == (record.id,)


async def test_a_store_interrupted_before_its_end_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bank(tmp_path) as bank:
        provider = Voyager(bank.space("voyager"), ScriptedDistiller(narrative=Narrative(summary="s", digest="d")))
        with monkeypatch.context() as patch:
            patch.setattr(type(provider.space), "note_offer", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                await provider.store(run_of("t"), CORRECT)
        assert stored_texts(bank, "voyager") == []
        receipt = await provider.store(run_of("t"), CORRECT)
        assert receipt.status == "stored"


def _interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_the_event_log_tells_what_happened_in_order(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        add(bank, 0)
        space = bank.space("toy")
        (record,) = space.records()
        space.update(record.model_copy(update={"payload": {"n": 1}}))
        space.archive(record.id, "useless")
        rows = bank.committed.execute("SELECT record_id, event, detail FROM events ORDER BY seq").fetchall()
        assert rows == [(record.id, "added", "note"), (record.id, "updated", ""), (record.id, "archived", "useless")]


def test_receipts_survive_as_json(tmp_path: Path) -> None:
    receipt = StoreReceipt(provider="toy", status="stored", record_ids=("a", "b"), usage={"tokens": 3.0})
    with open_bank(tmp_path) as bank:
        bank.space("toy").note_offer("t", receipt)
    with open_bank(tmp_path) as bank:
        assert bank.space("toy").receipt_of("t") == receipt
        (row,) = bank.committed.execute("SELECT receipt FROM offers").fetchone()
        assert json.loads(row)["record_ids"] == ["a", "b"]
