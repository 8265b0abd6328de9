"""Index files are caches: used where they fit the rows, made again where they do not, never believed when damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_toys import ENCODER, open_bank, run_of

from providers.bank import MemoryBank, replace_bank
from providers.embedder import Hashing
from providers.errors import BankError
from providers.index_file import IndexParts, index_folder, index_path, read_index, write_index
from providers.space import Space
from providers.verification import verify
from providers.view import View

WORDS = "coal river border railway income population desert harbour".split()


@pytest.fixture(autouse=True)
def every_space_is_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were taken from the bank, each time any were."""
    taken: list[int] = []
    follow = View.follow

    def watched(view: View, changed: Any, generation: int) -> None:
        if changed:
            taken.append(len(changed))
        follow(view, changed, generation)

    monkeypatch.setattr(View, "follow", watched)
    return taken


def text_of(position: int) -> str:
    return f"{WORDS[position % 8]} and {WORDS[position * 3 % 7]} of place {position}"


def fill(space: Space, count: int, first: int = 0) -> None:
    kinds = ("note", "tip")
    space.add(
        [
            space.new_record(kinds[n % 2], run_of(f"t{n}"), n, text=text_of(n), payload={"n": n}, signature=f"s{n}")
            for n in range(first, first + count)
        ]
    )


def answers(space: Space) -> Any:
    """What a space answers to every kind of question."""
    query = ENCODER.encode(["coal border of place 4"])[0]
    ids = [record.id for record in space.records()]
    return (
        space.records(),
        space.search_dense(query, 5),
        space.search_dense(query, 3, kind="tip"),
        space.search_lexical("coal border", 4),
        space.search_tfidf("railway", kind="note"),
        space.find_signature("s3"),
        space.vectors(ids).tolist(),
        space.generation,
    )


def closed_bank(folder: Path, count: int = 20) -> Any:
    """A bank with index files; gives what it answered."""
    with open_bank(folder) as bank:
        fill(bank.space("toy"), count)
        bank.space("toy").archive(bank.space("toy").records()[2].id, "useless")
        return answers(bank.space("toy"))


def test_a_current_index_file_is_used_instead_of_the_rows(tmp_path: Path, reads: list[int]) -> None:
    before = closed_bank(tmp_path)
    assert index_path(tmp_path / "bank.sqlite", "toy", "default").exists()
    reads.clear()
    with open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == before
    assert reads == []


def test_a_loaded_space_follows_later_changes(tmp_path: Path, reads: list[int]) -> None:
    closed_bank(tmp_path)
    reads.clear()
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        answers(space)
        fill(space, 2, first=20)
        record = space.records()[4]
        space.update(record.model_copy(update={"text": "a harbour in the desert"}))
        changed = answers(space)
        assert sum(reads) == 3
    (tmp_path / "bank.sqlite").rename(tmp_path / "moved.sqlite")
    with open_bank(tmp_path, "moved.sqlite") as bank:
        assert answers(bank.space("toy")) == changed


def test_an_index_file_of_an_earlier_state_is_not_used(tmp_path: Path) -> None:
    closed_bank(tmp_path)
    old = index_path(tmp_path / "bank.sqlite", "toy", "default").read_bytes()
    with open_bank(tmp_path) as bank:
        fill(bank.space("toy"), 1, first=20)
        expected = answers(bank.space("toy"))
    index_path(tmp_path / "bank.sqlite", "toy", "default").write_bytes(old)
    with open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == expected


def test_an_index_file_of_another_bank_at_the_same_generation_is_not_used(tmp_path: Path) -> None:
    closed_bank(tmp_path / "one")
    with open_bank(tmp_path / "two") as bank:
        fill(bank.space("toy"), 20, first=100)
        bank.space("toy").archive(bank.space("toy").records()[2].id, "useless")
        expected = answers(bank.space("toy"))
    places = [index_path(tmp_path / name / "bank.sqlite", "toy", "default") for name in ("one", "two")]
    shutil.copy(places[0], places[1])
    with open_bank(tmp_path / "two") as bank:
        assert answers(bank.space("toy")) == expected


def test_an_index_file_of_another_encoder_is_refused(tmp_path: Path) -> None:
    closed_bank(tmp_path)
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        space.records()
        identity = space._identity(space.generation, 20, space._view.content)
    path = index_path(tmp_path / "bank.sqlite", "toy", "default")
    read_index(path, identity)
    for change in ({"encoder": "other"}, {"dimension": 3}, {"generation": 9}, {"content": 1}):
        with pytest.raises(BankError, match="another state of the bank or of another encoder"):
            read_index(path, identity | change)


@pytest.mark.parametrize("harm", ["cut", "empty", "flip in the head", "flip in the middle", "text"])
def test_a_damaged_index_file_is_made_again_and_nothing_is_lost(tmp_path: Path, harm: str, reads: list[int]) -> None:
    before = closed_bank(tmp_path)
    path = index_path(tmp_path / "bank.sqlite", "toy", "default")
    content = bytearray(path.read_bytes())
    if harm.startswith("flip"):
        content[40 if "head" in harm else len(content) // 2] ^= 4
    harmed = {"cut": content[: len(content) // 2], "empty": b"", "text": b"no index"}.get(harm, content)
    path.write_bytes(bytes(harmed))
    reads.clear()
    with open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == before
    assert reads == [20]
    reads.clear()
    with open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == before
    assert reads == []


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9), st.integers(1, 255), st.booleans())
def test_no_flipped_or_cut_index_file_changes_an_answer(tmp_path: Path, position: int, mask: int, cut: bool) -> None:
    path = index_path(tmp_path / "bank.sqlite", "toy", "default")
    if not path.exists():
        closed_bank(tmp_path)
        shutil.copy(path, tmp_path / "good")
        with open_bank(tmp_path) as bank:
            (tmp_path / "answers").write_text(repr(answers(bank.space("toy"))))
    content = bytearray((tmp_path / "good").read_bytes())
    position %= len(content)
    if cut:
        del content[position:]
    else:
        content[position] ^= mask
    path.write_bytes(bytes(content))
    with open_bank(tmp_path) as bank:
        assert repr(answers(bank.space("toy"))) == (tmp_path / "answers").read_text()


def test_large_spaces_search_by_cells_also_after_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CELLS_FROM": 64, "CELLS": 4, "PROBED": 4, "TRAINING_ROWS": 200}.items():
        monkeypatch.setattr(f"providers.dense.{name}", value)
    before = closed_bank(tmp_path, 80)
    with open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == before
        assert not bank.space("toy")._view.dense(None).exact


def test_small_spaces_have_no_index_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.bank.INDEXED_FROM", 21)
    closed_bank(tmp_path, 20)
    assert not index_folder(tmp_path / "bank.sqlite").exists()


def test_a_bank_that_takes_anothers_place_leaves_no_index_file_behind(tmp_path: Path) -> None:
    closed_bank(tmp_path)
    with open_bank(tmp_path) as bank, bank.fork(tmp_path / "next.sqlite") as following:
        fill(following.space("toy"), 5, first=50)
        expected = answers(following.space("toy"))
    replace_bank(tmp_path / "next.sqlite", tmp_path / "bank.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["bank.sqlite"]
    with open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == expected


def test_an_index_that_cannot_be_written_loses_no_record(tmp_path: Path) -> None:
    index_folder(tmp_path / "bank.sqlite").write_text("in the way")
    with pytest.raises(BankError, match=r"bank\.sqlite\.indexes.*all records are stored"):
        closed_bank(tmp_path)
    index_folder(tmp_path / "bank.sqlite").unlink()
    with open_bank(tmp_path) as bank:
        assert len(bank.space("toy").records()) == 19


def test_a_folder_in_an_index_files_place_loses_no_record(tmp_path: Path) -> None:
    before = closed_bank(tmp_path)
    path = index_path(tmp_path / "bank.sqlite", "toy", "default")
    path.unlink()
    path.mkdir()
    with pytest.raises(BankError, match="all records are stored"), open_bank(tmp_path) as bank:
        assert answers(bank.space("toy")) == before
    assert verify(tmp_path / "bank.sqlite").ok


def test_parts_of_every_form_come_back(tmp_path: Path) -> None:
    parts = IndexParts(
        {"names": ["a", "é", ""], "none": []},
        {"f": np.ones((3, 4), np.float32), "i": np.arange(5), "empty": np.zeros((0, 4), np.float32)},
    )
    write_index(tmp_path / "x.index", {"generation": 3}, parts)
    read = read_index(tmp_path / "x.index", {"generation": 3})
    assert read.lists == parts.lists
    assert all((read.arrays[name] == parts.arrays[name]).all() for name in parts.arrays)
    assert {name: array.dtype for name, array in read.arrays.items()} == {
        name: array.dtype for name, array in parts.arrays.items()
    }


def test_another_encoder_of_the_same_dimension_is_refused_whatever_the_index_file_says(tmp_path: Path) -> None:
    closed_bank(tmp_path)

    class Other(Hashing):
        identity = "other-encoder"

    with pytest.raises(BankError, match="other-encoder"):
        MemoryBank.open(tmp_path / "bank.sqlite", Other())
