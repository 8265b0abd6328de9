"""Damaged banks: an error that names the file, or the same answers as before; never another memory."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_toys import ENCODER, open_bank, run_of

from providers.bank import MemoryBank
from providers.embedder import CachedEncoder
from providers.errors import BankError
from providers.index_file import index_folder, index_path
from providers.types import StoreReceipt, content_hash
from providers.verification import verify

ROOT = Path(__file__).parents[2]
WORDS = "coal river border railway income population desert harbour".split()


def fill(bank: MemoryBank, count: int = 40) -> None:
    for namespace in ("default", "acme/ann"):
        space = bank.space("toy", namespace)
        for n in range(count):
            run = run_of(f"t{n}")
            text = f"{WORDS[n % 8]} and {WORDS[n * 3 % 7]} of place {n}"
            record = space.new_record("note", run, n, text=text, payload={"n": n}, signature=f"s{n}")
            space.add([record])
            space.note_offer(run.id, StoreReceipt(provider="toy", status="stored", record_ids=(record.id,)))
        space.set_counter("stored", count)


def answers(bank: MemoryBank) -> list[Any]:
    found: list[Any] = []
    for namespace in ("default", "acme/ann"):
        space = bank.space("toy", namespace)
        query = ENCODER.encode(["coal border of place 4"])[0]
        found += [
            space.search_dense(query, 5),
            space.search_lexical("coal border", 4),
            space.records(),
            space.find_signature("s3"),
            [space.receipt_of(run_of(f"t{n}").id) for n in range(40)],
            space.counter("stored"),
        ]
    return found


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A closed bank, and the hash of what it answers."""
    folder = tmp_path_factory.mktemp("good")
    with open_bank(folder) as bank:
        fill(bank)
        return folder / "bank.sqlite", content_hash(repr(answers(bank)))


def harmed(content: bytes, position: int, mask: int, cut: bool) -> bytes:
    position %= len(content)
    return (
        content[:position] if cut else content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :]
    )


def ask_harmed(folder: Path, good: tuple[Path, str], content: bytes) -> bool:
    """Whether a bank with that content answered, and then as the good one does."""
    path = folder / "bank.sqlite"
    for leftover in folder.glob("bank.sqlite*"):
        leftover.unlink(missing_ok=True)
    path.write_bytes(content)
    try:
        with open_bank(folder) as bank:
            found = content_hash(repr(answers(bank)))
    except BankError:
        return False
    assert found == good[1]
    return True


HARMS = st.tuples(st.integers(0, 10**9), st.integers(1, 255), st.booleans())
ONE_FOLDER = [HealthCheck.function_scoped_fixture]


@settings(deadline=None, max_examples=150, suppress_health_check=ONE_FOLDER)
@given(HARMS)
def test_no_flipped_or_cut_bank_gives_another_answer(
    tmp_path: Path, good: tuple[Path, str], harm: tuple[int, int, bool]
) -> None:
    ask_harmed(tmp_path, good, harmed(good[0].read_bytes(), *harm))


@pytest.mark.slow
@settings(deadline=None, max_examples=4000, suppress_health_check=ONE_FOLDER)
@given(HARMS)
def test_thousands_of_flipped_and_cut_banks_give_no_other_answer(
    tmp_path: Path, good: tuple[Path, str], harm: tuple[int, int, bool]
) -> None:
    ask_harmed(tmp_path, good, harmed(good[0].read_bytes(), *harm))


@settings(deadline=None, max_examples=60, suppress_health_check=ONE_FOLDER)
@given(HARMS)
def test_what_a_bank_refuses_verify_names(tmp_path: Path, good: tuple[Path, str], harm: tuple[int, int, bool]) -> None:
    content = harmed(good[0].read_bytes(), *harm)
    answered = ask_harmed(tmp_path, good, content)
    for leftover in tmp_path.glob("bank.sqlite*"):
        leftover.unlink(missing_ok=True)
    (tmp_path / "bank.sqlite").write_bytes(content)
    assert answered or not verify(tmp_path / "bank.sqlite").ok
    assert (tmp_path / "bank.sqlite").read_bytes() == content


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An encoder's cache of some texts."""
    path = tmp_path_factory.mktemp("encoded") / "cache.sqlite"
    encoder = CachedEncoder(ENCODER, path)
    encoder.encode(WORDS)
    encoder.close()
    return path.read_bytes()


@settings(deadline=None, max_examples=150, suppress_health_check=ONE_FOLDER)
@given(HARMS)
def test_no_flipped_or_cut_encoders_cache_gives_another_vector(
    tmp_path: Path, encoded: bytes, harm: tuple[int, int, bool]
) -> None:
    path = tmp_path / "cache.sqlite"
    for leftover in tmp_path.glob("cache.sqlite*"):
        leftover.unlink(missing_ok=True)
    path.write_bytes(harmed(encoded, *harm))
    try:
        encoder = CachedEncoder(ENCODER, path)
    except BankError:
        return
    with closing(encoder), suppress(BankError):
        assert np.array_equal(encoder.encode(WORDS), ENCODER.encode(WORDS))


def test_a_good_bank_verifies_and_says_what_was_read(good: tuple[Path, str]) -> None:
    found = verify(good[0])
    assert found.ok
    assert found.findings == ()
    assert found.rows == {"records": 80, "vectors": 80, "offers": 80, "counters": 2, "generations": 2}


@pytest.mark.parametrize(
    ("harm", "where", "what"),
    [
        ("UPDATE records SET body = 'x' WHERE id = :id", "records of 'toy'", "content cannot be read"),
        ("UPDATE records SET kind = 'tip' WHERE id = :id", "records of 'toy'", "not what was stored"),
        ("DELETE FROM records WHERE id = :id", "generations of 'toy'", "39 of 40 records"),
        ("DELETE FROM vectors WHERE id = :id", "records of 'toy'", "vector is missing"),
        ("UPDATE vectors SET vector = x'00' WHERE id = :id", "vectors of 'toy'", "dimensions"),
        ("UPDATE offers SET receipt = '{}'", "offers of 'toy'", "receipt cannot be read"),
        ("UPDATE counters SET value = 9", "counters of 'toy' in 'acme/ann', 'stored'", "not what was stored"),
        ("DELETE FROM generations WHERE namespace = 'default'", "generations", "1 of 2 spaces"),
        ("UPDATE meta SET value = '7' WHERE key = 'schema_version'", "file", "schema version 7"),
    ],
)
def test_verify_names_the_row_and_what_is_wrong(
    tmp_path: Path, good: tuple[Path, str], harm: str, where: str, what: str
) -> None:
    path = shutil.copy(good[0], tmp_path)
    with sqlite3.connect(path) as connection:
        (record_id,) = connection.execute("SELECT min(id) FROM records").fetchone()
        connection.execute(harm, {"id": record_id} if ":id" in harm else {})
    found = verify(Path(path))
    assert not found.ok
    assert any(where in finding.where and what in finding.what for finding in found.findings)


def test_verify_notes_index_files_that_will_not_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 1)
    with open_bank(tmp_path) as bank:
        fill(bank)
        answers(bank)
    path = tmp_path / "bank.sqlite"
    assert verify(path).findings == ()
    index = index_path(path, "toy", "default")
    good = index.read_bytes()
    index.write_bytes(good[:-100])
    (index_folder(path) / "other.index").write_bytes(good)
    with open_bank(tmp_path) as bank:
        bank.space("toy", "acme/ann").set_counter("x", 1)
        bank.space("toy", "acme/ann").archive(bank.space("toy", "acme/ann").records()[0].id, "useless")
        monkeypatch.setattr("providers.bank.INDEXED_FROM", 10**9)
    found = verify(path)
    assert found.ok
    assert len(found.findings) == 3
    assert {finding.level for finding in found.findings} == {"note"}


def test_verify_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(BankError, match="There is no bank"):
        verify(tmp_path / "bank.sqlite")
    (tmp_path / "text").write_text("not a bank at all " * 100)
    assert not verify(tmp_path / "text").ok


KILLED = """
import os, signal, sys
from pathlib import Path
from memory_toys import open_bank, run_of
from providers.types import StoreReceipt, content_hash

bank = open_bank(Path(sys.argv[1]))
space = bank.space("toy")
left = int(sys.argv[2])

def count(sql):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

for number in range(3):
    run = run_of(f"task {number}")
    bank._writer.set_trace_callback(count)
    with space.transaction():
        records = [space.new_record("note", run, n, text=f"coal {number} {n}", payload={}) for n in range(2)]
        space.add(records)
        space.note_offer(run.id, StoreReceipt(provider="toy", status="stored", record_ids=tuple(r.id for r in records)))
        space.set_counter("stored", number + 1)
    bank._writer.set_trace_callback(None)
    os.write(1, b"stored\\n")
"""


def killed_at(folder: Path, statement: int) -> tuple[int, int]:
    """Store three runs in a process that dies before its nth statement; its exit code and the stores it told of."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(statement)], capture_output=True, text=True, env=environment
    )
    return done.returncode, len(done.stdout.split())


@pytest.mark.slow
def test_a_kill_before_any_write_leaves_whole_stores_only(tmp_path: Path) -> None:
    statement = 0
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        statement += 1
        folder = tmp_path / str(statement)
        code, told = killed_at(folder, statement)
        assert verify(folder / "bank.sqlite").ok
        with open_bank(folder) as bank:
            space = bank.space("toy")
            stores = space.counter("stored")
            assert told <= stores <= told + 1
            assert len(space.records()) == 2 * stores
            assert len(space.search_lexical("coal")) == 2 * stores
            for number in range(3):
                receipt = space.receipt_of(run_of(f"task {number}").id)
                assert (receipt is not None) == (number < stores)
    assert code == 0
    assert statement > 30


def test_a_disk_that_fills_at_any_page_loses_nothing_stored_before(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        fill(bank, 3)
        before = repr(answers(bank))
        space = bank.space("toy")
        refused = []
        for spare in range(0, 90, 3):
            with bank.transaction() as connection:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
            bank._writer.execute(f"PRAGMA max_page_count = {pages + spare}")
            try:
                with space.transaction():
                    space.add(
                        [
                            space.new_record("note", run_of("big"), n, text="word " * 300, payload={"n": n})
                            for n in range(20)
                        ]
                    )
            except BankError as error:
                refused.append(str(error))
                assert repr(answers(bank)) == before
                assert verify(bank.path).ok
        assert 0 < len(refused) < 30
        assert all("disk is full" in message for message in refused)
        assert len(space.records()) == 23
