"""DILU: the nearest question's digest, one per question, the newest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.long_term.dilu import Dilu
from providers.types import Outcome


@pytest.fixture
def dilu(tmp_path: Path) -> Iterator[Dilu]:
    with open_bank(tmp_path) as bank:
        yield Dilu(bank.space("dilu"), ScriptedDistiller(digest="opened Chad; read Area"))


def say(dilu: Dilu, digest: str) -> None:
    dilu.distiller.next_digest = digest  # type: ignore[attr-defined]


async def test_the_question_is_indexed_and_not_the_digest(dilu: Dilu) -> None:
    await dilu.store(run_of("t1", "area of Chad"), CORRECT)
    say(dilu, "area of Chad area of Chad")
    await dilu.store(run_of("t2", "coal in Peru"), CORRECT)
    retrieval = await dilu.retrieve(query_of("area of Niger"))
    assert retrieval.text == "What was done for a similar question:\nopened Chad; read Area\nResult: correct."
    assert retrieval.effects == ()


@pytest.mark.parametrize(
    ("outcome", "ending"), [(CORRECT, "Result: correct."), (WRONG, "Result: wrong."), (UNKNOWN, "Area")]
)
async def test_every_outcome_is_kept_and_named_only_where_known(dilu: Dilu, outcome: Outcome, ending: str) -> None:
    assert (await dilu.store(run_of("t", "area of Chad"), outcome)).status == "stored"
    assert (await dilu.retrieve(query_of("area of Chad"))).text.endswith(ending)


async def test_the_same_question_is_rewritten_in_place_by_its_newest_run(dilu: Dilu) -> None:
    first = await dilu.store(run_of("t1", "Area of Chad?"), WRONG)
    say(dilu, "searched Chad; read Area")
    second = await dilu.store(run_of("t2", "area of  chad?"), CORRECT)
    assert first.record_ids == second.record_ids
    (record,) = dilu.space.records()
    assert record.payload["digest"] == "searched Chad; read Area\nResult: correct."
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]


async def test_an_item_whose_question_contains_the_new_one_is_rewritten(dilu: Dilu) -> None:
    await dilu.store(run_of("t1", "Using the book, what is the area of Chad? Answer briefly."), CORRECT)
    say(dilu, "went straight to Chad")
    await dilu.store(run_of("t2", "what is the area of Chad?"), CORRECT)
    (record,) = dilu.space.records()
    assert record.text == "Using the book, what is the area of Chad? Answer briefly."
    assert record.payload["digest"].startswith("went straight to Chad")


async def test_a_near_question_is_another_item(dilu: Dilu) -> None:
    await dilu.store(run_of("t1", "albums released between 2000 and 2009"), CORRECT)
    await dilu.store(run_of("t2", "albums released before 2000"), CORRECT)
    assert len(dilu.space.records()) == 2


async def test_previewing_and_retrieving_ask_nobody(dilu: Dilu) -> None:
    await dilu.store(run_of("t", "area of Chad"), CORRECT)
    calls = dilu.distiller.calls  # type: ignore[attr-defined]
    assert dilu.probe(query_of("area")).text == "opened Chad; read Area\nResult: correct."
    await dilu.retrieve(query_of("area"))
    assert dilu.distiller.calls == calls  # type: ignore[attr-defined]
