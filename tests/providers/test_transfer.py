"""Banks go out and come in as JSON Lines, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from memory_toys import ENCODER, open_bank, run_of
from test_bank import RECORDS, savable

from providers.bank import MemoryBank
from providers.embedder import Hashing
from providers.errors import BankError
from providers.transfer import Transferred, header_of
from providers.types import Record, StoreReceipt


class Reversed(Hashing):
    """Another encoder of the same dimension."""

    identity = "reversed-256"

    def encode(self, texts: Any) -> np.ndarray:
        return np.ascontiguousarray(super().encode(texts)[:, ::-1])


def fill(bank: MemoryBank) -> None:
    for namespace in ("default", "acme/ann"):
        space = bank.space("toy", namespace)
        for position, text in enumerate(["coal 🚂 in Chad", "", "人口密度"]):
            run = run_of(f"t{position}")
            record = space.new_record(
                "note", run, position, text=text, payload={"n": position}, signature=f"s{position}"
            )
            space.add([record])
            space.note_offer(run.id, StoreReceipt(provider="toy", status="stored", record_ids=(record.id,)))
        space.archive(record.id, "useless")
        space.set_counter("stored", 3)


def exported(folder: Path, name: str = "bank.sqlite") -> Path:
    with open_bank(folder, name) as bank:
        fill(bank)
        bank.export(folder / "bank.jsonl")
    return folder / "bank.jsonl"


def test_a_bank_comes_back_byte_for_byte(tmp_path: Path) -> None:
    first = exported(tmp_path)
    with open_bank(tmp_path, "copy.sqlite") as copy, open_bank(tmp_path) as bank:
        done = copy.import_(first)
        assert (done.records, done.receipts, done.counters, done.events) == (6, 6, 2, 8)
        copy.export(tmp_path / "again.jsonl")
        assert (tmp_path / "again.jsonl").read_bytes() == first.read_bytes()
        for namespace in ("default", "acme/ann"):
            one, two = bank.space("toy", namespace), copy.space("toy", namespace)
            assert one.search_dense(ENCODER.encode(["coal"])[0], 3) == two.search_dense(ENCODER.encode(["coal"])[0], 3)
            assert one.search_lexical("人口") == two.search_lexical("人口")


@settings(deadline=None, max_examples=20)
@given(RECORDS)
def test_any_records_survive_the_round_trip(records: list[Record]) -> None:
    records = [record for record in records if savable(record)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        with open_bank(folder) as bank, open_bank(folder, "copy.sqlite") as copy:
            bank.space("toy").add(records)
            bank.export(folder / "x.jsonl")
            copy.import_(folder / "x.jsonl")
            everything = ("active", "guard", "archived")
            assert copy.space("toy").records(state=everything) == bank.space("toy").records(state=everything)


def test_importing_twice_changes_nothing(tmp_path: Path) -> None:
    path = exported(tmp_path)
    with open_bank(tmp_path) as bank:
        generation = bank.space("toy").generation
        done = bank.import_(path)
        assert done == Transferred(known=6)
        assert bank.space("toy").generation == generation


def test_a_namespace_goes_out_with_what_lies_below_it(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        fill(bank)
        bank.export(tmp_path / "acme.jsonl", namespace="acme")
    lines = [json.loads(line) for line in (tmp_path / "acme.jsonl").read_text().splitlines()]
    assert {line.get("namespace") or line["record"]["namespace"] for line in lines[1:]} == {"acme/ann"}


def test_vectors_of_another_encoder_are_made_anew(tmp_path: Path) -> None:
    path = exported(tmp_path)
    assert header_of(path).encoder == "hashing-256"
    with MemoryBank.open(tmp_path / "other.sqlite", Reversed()) as bank:
        assert bank.import_(path).encoded == 4
        space = bank.space("toy")
        (record, score) = space.search_dense(Reversed().encode(["coal 🚂 in Chad"])[0], 1)[0]
        assert (record.text, round(score, 5)) == ("coal 🚂 in Chad", 1.0)


HARMS: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "no header": (lambda lines: lines[1:], "line 1: a header"),
    "empty": (lambda lines: [], "line 1: a header"),
    "half a line": (lambda lines: [*lines[:3], lines[3][: len(lines[3]) // 2]], "line 4: this is no line"),
    "prose": (lambda lines: [*lines[:2], "Here is your export:", *lines[2:]], "line 3: this is no line"),
    "two headers": (lambda lines: [*lines, lines[0]], "second header"),
    "a vector cut": (lambda lines: [lines[0], lines[1].replace('"vector":"', '"vector":"AAAA')], "vector of record"),
    "a namespace": (lambda lines: [line.replace("acme/ann", "../x") for line in lines], "not a namespace"),
    "a changed record": (lambda lines: [*lines, lines[1].replace("Chad", "Mali")], "differs from the bank's own"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_bad_line_is_named_and_nothing_is_taken(tmp_path: Path, harm: str) -> None:
    path = exported(tmp_path)
    change, message = HARMS[harm]
    path.write_text("\n".join(change(path.read_text(encoding="utf-8").splitlines())), encoding="utf-8")
    with open_bank(tmp_path, "copy.sqlite") as copy:
        if harm == "a changed record":
            fill(copy)
        before = copy.space("toy").records(), copy.space("toy", "acme/ann").records()
        with pytest.raises(BankError, match=message):
            copy.import_(path)
        assert (copy.space("toy").records(), copy.space("toy", "acme/ann").records()) == before


def test_an_export_replaces_no_file_and_leaves_none_behind_on_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported(tmp_path)
    with open_bank(tmp_path) as bank:
        with pytest.raises(BankError, match="already a file"):
            bank.export(path)

        def full(handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(BankError, match="No space left"):
            bank.export(tmp_path / "other.jsonl")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bank.jsonl", "bank.sqlite"]
