"""A disk that fills during a write: a typed error, nothing lost that was acknowledged, nothing wrong afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from providers.bank import MemoryBank
from providers.conformance.bench import Bench
from providers.conformance.corpus import CORRECT, TOPICS, made_run
from providers.errors import BankError
from providers.forgetting import Selection
from providers.index_file import index_folder
from providers.types import Outcome, Record, Trajectory

DISK_BYTES = 8 * 2**20
PAGE = 4096
MOST_PAGES = 400
"""Free pages with which everything below has room."""

RUNS = [(made_run(*TOPICS[n % 12], seed=n, task=f"t{n}"), CORRECT) for n in range(6)]
slow = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("a small disk cannot be mounted here: there is no `mount`")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled_but_for(disk: Path, pages: int) -> Iterator[None]:
    """The disk has only so many pages left inside."""
    filler = disk / "filler"
    state = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - pages * PAGE)
    try:
        yield
    finally:
        filler.unlink()


def growing_rooms(disk: Path) -> Iterator[tuple[int, Path]]:
    """Free pages, first none and then more and more, each with an empty folder on the disk."""
    pages = 0
    while pages <= MOST_PAGES:
        folder = disk / f"with-{pages}"
        folder.mkdir()
        yield pages, folder
        shutil.rmtree(folder)
        pages += 1 + pages // 8


async def filled(bench: Bench, runs: list[tuple[Trajectory, Outcome]]) -> None:
    with bench.bank() as bank:
        await bench.filled(bank, runs)


async def stores(bench: Bench, bank: MemoryBank, runs: list[tuple[Trajectory, Outcome]]) -> int:
    """How many runs were stored, in order, before the disk was full."""
    provider = bench.provider(bank)
    for done, (run, outcome) in enumerate(runs):
        with refusals() as said:
            await provider.store(run, outcome)
        if said:
            assert "disk is full" in said[0]
            return done
    return len(runs)


@contextmanager
def refusals() -> Iterator[list[str]]:
    """What the BankError says that ends the block, if one does."""
    said: list[str] = []
    try:
        yield said
    except BankError as error:
        said.append(str(error))


@pytest.mark.parametrize(
    "name", ["awm", *(pytest.param(name, marks=slow) for name in ("expel", "evolver", "cheatsheet", "memguard"))]
)
@pytest.mark.parametrize("together", [False, True])
async def test_a_store_is_there_whole_or_not_at_all(name: str, together: bool, disk: Path, tmp_path: Path) -> None:
    """Offered in one batch or alone: what got a receipt is there, and the rest is stored once there is room."""
    reference = Bench(name, tmp_path)
    states: list[list[Record]] = []
    with reference.bank() as bank:
        states.append(reference.records(bank))
        for run in RUNS:
            await reference.filled(bank, [run])
            states.append(reference.records(bank))
    seen = set()
    for pages, folder in growing_rooms(disk):
        bench = Bench(name, folder)
        with bench.bank() as bank:
            bench.records(bank)  # its log and its shared memory are made
            with filled_but_for(disk, pages):
                with refusals() as said, bank.batch() if together else nullcontext():
                    done = await stores(bench, bank, RUNS)
                assert not said or (together and "disk is full" in said[0])  # the batch's end has no room
            assert bench.records(bank) == states[done]
        with bench.bank() as bank:
            assert bank.verify().ok
            assert bench.records(bank) == states[done]
            await bench.filled(bank, RUNS)
            assert bench.records(bank) == states[-1]
        seen.add(done)
        if done == len(RUNS):
            break
    assert {0, len(RUNS)} < seen, "no store of the middle met the full disk"


async def test_a_consolidation_is_there_whole_or_not_at_all(disk: Path, tmp_path: Path) -> None:
    runs = [(made_run(*TOPICS[n % 12], seed=n, task=f"t{n}"), CORRECT) for n in range(50)]
    before = Bench("insight_graph", tmp_path)
    await filled(before, runs[:49])
    shutil.copyfile(tmp_path / "bank.sqlite", tmp_path / "after.sqlite")
    with before.bank("after.sqlite") as bank:
        await before.filled(bank, runs)
        states = [before.records(bank)]
        assert before.space(bank).counter("consolidated_nodes") > 0
    outcomes = []
    for pages, folder in growing_rooms(disk):
        shutil.copyfile(tmp_path / "bank.sqlite", folder / "bank.sqlite")
        bench = Bench("insight_graph", folder)
        with bench.bank() as bank:
            unchanged, space = bench.records(bank), bench.space(bank)
            with filled_but_for(disk, pages):
                done = await stores(bench, bank, runs[49:])
            assert bench.records(bank) == (states[0] if done else unchanged)
            assert (space.counter("consolidated_nodes") > 0) == bool(done)
        with bench.bank() as bank:
            assert bank.verify().ok
            await bench.filled(bank, runs)
            assert bench.records(bank) == states[0]
        outcomes.append(done)
        if done:
            break
    assert (outcomes[0], outcomes[-1]) == (0, 1)


def without_export(bench: Bench, bank: MemoryBank) -> None:
    bank.export(bench.folder / "bank.jsonl")


def without_fork(bench: Bench, bank: MemoryBank) -> None:
    bank.fork(bench.folder / "copy.sqlite").close()


def without_index(bench: Bench, bank: MemoryBank) -> None:
    bench.space(bank).save_index(1)


@pytest.mark.parametrize(
    ("work", "made"), [(without_export, "bank.jsonl"), (without_fork, "copy.sqlite"), (without_index, "")]
)
async def test_what_is_written_beside_the_bank_is_whole_or_missing(
    work: Callable[[Bench, MemoryBank], None], made: str, disk: Path, tmp_path: Path
) -> None:
    await filled(Bench("awm", tmp_path), RUNS)
    failed = 0
    for pages, folder in growing_rooms(disk):
        shutil.copyfile(tmp_path / "bank.sqlite", folder / "bank.sqlite")
        bench = Bench("awm", folder)
        with bench.bank() as bank:
            records = bench.records(bank)
            there = set(folder.rglob("*"))
            with filled_but_for(disk, pages), refusals() as said:
                work(bench, bank)
            if not said:
                break
            failed += 1
            left = {path for path in folder.rglob("*") if path.is_file()} - there
            assert not left, f"a part was left: {left}"
            assert bench.records(bank) == records
            work(bench, bank)
            assert (folder / (made or index_folder(bank.path).name)).exists()
        with bench.bank() as bank:
            assert bank.verify().ok
            assert bench.records(bank) == records
    assert failed > 1


async def test_closing_keeps_the_records_where_the_index_has_no_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 1)
    bench = Bench("awm", disk)
    bank = bench.bank()
    await bench.filled(bank, RUNS)
    records = bench.records(bank)
    with filled_but_for(disk, 1), pytest.raises(BankError, match="index is made again"):
        bank.close()
    with bench.bank() as bank:
        assert bank.verify().ok
        assert bench.records(bank) == records


async def test_forgetting_and_importing_on_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """The rows are forgotten or not, and it says when their bytes are not; an import is all or nothing."""
    source = Bench("awm", tmp_path)
    await filled(source, RUNS)
    with source.bank() as bank:
        exported = tmp_path / "bank.jsonl"
        bank.export(exported)
        whole = source.records(bank)
    forgotten = Selection(task=RUNS[0][0].task_id)
    told: list[str] = []
    for pages, folder in growing_rooms(disk):
        bench = Bench("awm", folder)
        with bench.bank() as bank:
            assert bench.records(bank) == []
            with filled_but_for(disk, pages), refusals() as said:
                bank.import_(exported)
            assert bench.records(bank) == ([] if said else whole)
            if said:
                bank.import_(exported)
            told += said
            with filled_but_for(disk, pages), refusals() as said:
                bank.forget(forgotten)
            gone = len(bench.records(bank)) < len(whole)
            assert gone == (not said or "still in the file" in said[0])
            told += said
        with bench.bank() as bank:
            assert bank.verify().ok
            bank.forget(forgotten)
            assert 0 < len(bench.records(bank)) < len(whole)
        if not said:
            break
    assert not said
    assert any("still in the file" in one for one in told)
    assert all("disk" in one for one in told)
