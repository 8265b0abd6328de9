"""Spaces: records and indexes that follow the rows, in and out of transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_toys import ENCODER, FixedEncoder, open_bank, run_of

from providers.bank import MemoryBank
from providers.errors import BankError
from providers.forgetting import Selection
from providers.space import Space
from providers.types import Record, StoreReceipt


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with open_bank(tmp_path) as bank:
        yield bank.space("toy")


def note(space: Space, text: str, position: int = 0, kind: str = "note", **fields: Any) -> Record:
    record = space.new_record(kind, run_of("t1"), position, text=text, payload={"n": position})
    return record.model_copy(update=fields)


def test_a_record_comes_back_as_it_was(space: Space) -> None:
    record = note(space, "area of Chad")
    space.add([record])
    found = space.get(record.id)
    assert found is not None
    assert found.created > 0
    assert found.model_copy(update={"created": 0.0}) == record
    assert np.array_equal(space.vectors([record.id])[0], ENCODER.encode(["area of Chad"])[0])


def test_ids_come_from_origin_and_not_from_clocks_or_other_records(space: Space) -> None:
    assert note(space, "one", 0).id == note(space, "another text", 0).id
    assert note(space, "one", 0).id != note(space, "one", 1).id
    assert note(space, "one", 0).id != note(space, "one", 0, kind="tip").id


def test_adding_an_id_again_changes_nothing(space: Space) -> None:
    record = note(space, "first")
    space.add([record])
    generation = space.generation
    space.add([record.model_copy(update={"text": "second"})])
    assert space.generation == generation
    assert [found.text for found in space.records()] == ["first"]


def test_near_gives_all_above_a_cosine_by_kind_and_state_with_its_own_writes(tmp_path: Path) -> None:
    encoder = FixedEncoder({"at": [1, 0], "by": [4, 3], "off": [3, 4], "away": [-1, 0]})
    (at,) = encoder.encode(["at"])
    with MemoryBank.open(tmp_path / "near.sqlite", encoder) as bank:
        space = bank.space("toy")
        records = [note(space, text, n) for n, text in enumerate(["at", "by", "off", "away"])]
        records += [note(space, "at", 4, kind="tip"), note(space, "at", 5, state="candidate"), note(space, "", 6)]
        space.add(records)

        def near(least: float, **chosen: Any) -> dict[int, float]:
            (found,) = space.near(at[np.newaxis], least, **chosen)
            assert [record.id for record, _ in found] == sorted(record.id for record, _ in found)
            return {record.payload["n"]: round(cosine, 5) for record, cosine in found}

        assert near(0.5) == {0: 1.0, 1: 0.8, 2: 0.6, 4: 1.0}
        assert near(0.7, kind="note") == {0: 1.0, 1: 0.8}
        assert near(0.7, kind="note", state=("active", "candidate")) == {0: 1.0, 1: 0.8, 5: 1.0}
        with space.transaction():
            space.archive(records[0].id, "useless")
            space.update(records[3].model_copy(update={"text": "by"}))
            assert near(0.7, kind="note") == {1: 0.8, 3: 0.8}
        assert near(0.7, kind="note") == {1: 0.8, 3: 0.8}
        assert near(0.7, kind="note", state=("archived",)) == {0: 1.0}


def test_count_is_the_number_of_records_also_of_what_is_being_written(space: Space) -> None:
    def counted() -> list[int]:
        asked = [(None, ("active",)), ("note", ("active", "archived")), ("tip", ("archived",))]
        counts = [space.count(kind, state) for kind, state in asked]
        assert counts == [len(space.records(kind, state)) for kind, state in asked]
        return counts

    records = [note(space, f"text {n}", n, kind="tip" if n % 2 else "note") for n in range(5)]
    space.add(records[:4])
    assert counted() == [4, 2, 0]
    with space.transaction():
        space.archive(records[1].id, "useless")
        space.add(records[4:])
        assert counted() == [4, 3, 1]
    assert counted() == [4, 3, 1]


def test_dense_search_orders_equal_scores_by_id_also_at_the_cut(tmp_path: Path) -> None:
    encoder = FixedEncoder({"same": [1, 0], "other": [0, 1]})
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        space = bank.space("toy")
        records = [note(space, "same", position) for position in range(20)]
        space.add([*records[10:], note(space, "other", 99), *records[:10]])
        hits = space.search_dense(encoder.encode(["same"])[0], 5)
        assert [record.id for record, _ in hits] == sorted(record.id for record in records)[:5]
        assert [score for _, score in hits] == pytest.approx([1.0] * 5)


def test_searches_keep_to_kind_and_to_live_states(space: Space) -> None:
    live = ["active", "guard", "provisional"]
    hidden = ["candidate", "archived", "rejected"]
    for position, state in enumerate([*live, *hidden]):
        space.add([note(space, "coal in Chad", position, state=state)])
    space.add([note(space, "coal in Chad", 50, kind="tip")])
    query = ENCODER.encode(["coal in Chad"])[0]
    assert sorted(record.state for record, _ in space.search_dense(query, 99, kind="note")) == sorted(live)
    assert sorted(record.state for record, _ in space.search_lexical("coal", kind="note")) == sorted(live)
    assert len(space.search_dense(query, 99)) == 4
    assert [record.kind for record, _ in space.search_tfidf("coal", kind="tip")] == ["tip"]
    assert sorted(r.state for r in space.records("note", ("archived", "rejected"))) == ["archived", "rejected"]


def test_an_updated_text_is_found_under_its_new_words_and_vector(space: Space) -> None:
    record = note(space, "coal")
    space.add([record])
    assert space.search_lexical("coal")
    space.update(record.model_copy(update={"text": "railway"}))
    assert not space.search_lexical("coal")
    (found, score), *_ = space.search_dense(ENCODER.encode(["railway"])[0], 1)
    assert (found.text, round(score, 5)) == ("railway", 1.0)
    assert found.text_hash != record.text_hash


def test_an_archived_record_stays_readable_and_is_never_found(space: Space) -> None:
    record = note(space, "coal")
    space.add([record])
    space.search_lexical("coal")
    space.archive(record.id, "useless")
    assert space.search_dense(ENCODER.encode(["coal"])[0], 3) == []
    assert space.search_lexical("coal") == []
    kept = space.get(record.id)
    assert kept is not None
    assert kept.state == "archived"


def test_a_transaction_sees_its_own_writes_and_nobody_else_does_before_it_ends(space: Space) -> None:
    record = note(space, "coal", signature="s")
    seen: list[Any] = []

    def look() -> None:
        seen.append((space.get(record.id), space.find_signature("s"), space.search_lexical("coal")))

    with space.transaction():
        space.add([record])
        space.set_counter("n", 3)
        assert space.get(record.id) is not None
        assert space.records("note")
        assert space.find_signature("s") is not None
        assert space.counter("n") == 3
        assert space.vectors([record.id]).any()
        reader = threading.Thread(target=look)
        reader.start()
        reader.join()
    assert seen == [(None, None, [])]
    look()
    assert all(seen[1])


def test_what_a_transaction_writes_again_and_again_becomes_a_row_once(space: Space) -> None:
    written: list[str] = []
    record = note(space, "coal output")
    space.add([record])
    space.bank._writer.set_trace_callback(written.append)
    with space.transaction():
        for n in range(3):
            space.update(record.model_copy(update={"payload": {"n": n}}), f"change {n}")
        space.archive(record.id, "useless")
        other = note(space, "river depth", 1)
        space.add([other])
        space.update(other.model_copy(update={"text": "river length"}))
    space.bank._writer.set_trace_callback(None)
    rows = [statement for statement in written if "INTO records" in statement]
    assert len(rows) == 2
    vectors = [statement for statement in written if "INTO vectors" in statement]
    assert len(vectors) == 1, "a vector that did not change was written again"
    events = [statement for statement in written if "INTO events" in statement]
    assert len(events) == 6
    with MemoryBank.open(space.bank.path, ENCODER) as bank:
        fresh = bank.space("toy")
        assert [r.payload["n"] for r in fresh.records(state=("archived",))] == [2]
        assert [r.text for r in fresh.records()] == ["river length"]
        assert np.array_equal(fresh.vectors([other.id])[0], ENCODER.encode(["river length"])[0])
        assert bank.verify().ok


def test_a_record_that_loses_its_text_loses_its_vector(space: Space) -> None:
    record = note(space, "coal output")
    space.add([record])
    space.update(record.model_copy(update={"text": ""}))
    assert not space.vectors([record.id]).any()
    assert space.search_dense(ENCODER.encode(["coal output"])[0], 1) == []
    assert space.bank.verify().ok


def test_forgetting_inside_a_transaction_is_refused(space: Space) -> None:
    with space.transaction():
        space.add([note(space, "coal output")])
        with pytest.raises(BankError, match="begin it outside"):
            space.bank.forget(Selection(text="coal"))
    assert len(space.records()) == 1


def test_an_error_inside_a_transaction_undoes_all_of_it(space: Space) -> None:
    record = note(space, "coal")

    def fail() -> None:
        with space.transaction():
            space.add([record])
            space.set_counter("n", 1)
            space.note_offer("t", StoreReceipt(provider="toy", status="stored"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert space.get(record.id) is None
    assert space.records() == []
    assert space.counter("n") == 0
    assert space.receipt_of("t") is None
    space.add([record])
    assert len(space.records()) == 1


def test_the_first_receipt_of_a_trajectory_stands(space: Space) -> None:
    first = StoreReceipt(provider="toy", status="stored", record_ids=("r1",))
    space.note_offer("t", first)
    space.note_offer("t", StoreReceipt(provider="toy", status="skipped"))
    assert space.receipt_of("t") == first


def test_namespaces_and_providers_do_not_see_each_other(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        mine, other, theirs = bank.space("toy"), bank.space("toy", "team"), bank.space("else")
        mine.add([note(mine, "coal", signature="s")])
        mine.set_counter("n", 1)
        for space in (other, theirs):
            assert space.records() == []
            assert space.find_signature("s") is None
            assert space.counter("n") == 0
        with pytest.raises(BankError, match="was written to the space"):
            theirs.add([note(mine, "coal")])


def test_a_query_of_another_dimension_is_refused(space: Space) -> None:
    with pytest.raises(BankError, match="256 dimensions"):
        space.search_dense(np.ones(3, dtype=np.float32), 1)


def test_beginning_a_transaction_inside_a_snapshot_is_refused(space: Space) -> None:
    with space.snapshot(), pytest.raises(BankError, match="inside a snapshot"), space.transaction():
        pass


def test_an_unknown_record_cannot_be_archived(space: Space) -> None:
    with pytest.raises(BankError, match="no record 'nope'"):
        space.archive("nope", "why")


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "update", "archive"]),
        st.integers(0, 5),
        st.sampled_from(["coal river", "river border", "railway coal coal", ""]),
    ),
    max_size=15,
)


@settings(deadline=None, max_examples=25)
@given(CHANGES)
def test_followed_indexes_equal_those_of_a_fresh_look(changes: list[tuple[str, int, str]]) -> None:
    with TemporaryDirectory() as folder, open_bank(Path(folder)) as bank:
        space = bank.space("toy")
        query = ENCODER.encode(["coal river"])[0]

        def view(looked: Space) -> Any:
            return (
                [(r.id, round(s, 5)) for r, s in looked.search_dense(query, 4)],
                [(r.id, round(s, 9)) for r, s in looked.search_lexical("coal river")],
                [(r.id, round(s, 9)) for r, s in looked.search_tfidf("coal river", kind="note")],
                looked.records(),
            )

        for action, position, text in changes:
            record = note(space, text, position)
            known = space.get(record.id)
            if action == "add":
                space.add([record])
            elif known is not None and action == "update":
                space.update(known.model_copy(update={"text": text}))
            elif known is not None:
                space.archive(record.id, "test")
            view(space)
        with open_bank(Path(folder)) as again:
            assert view(again.space("toy")) == view(space)
