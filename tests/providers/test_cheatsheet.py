"""Dynamic Cheatsheet: the sheet is rewritten through effects, never by retrieving or previewing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import SheetEntry
from providers.errors import ModelError, ProviderError
from providers.long_term.cheatsheet import Cheatsheet
from providers.types import Effect, Outcome, Retrieval


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with open_bank(tmp_path) as opened:
        yield opened


@pytest.fixture
def cheatsheet(bank: MemoryBank) -> Cheatsheet:
    return Cheatsheet(bank.space("cheatsheet"), ScriptedDistiller())


async def learn(sheet: Cheatsheet, task: str, question: str, outcome: Outcome = CORRECT) -> str:
    assert isinstance(sheet.distiller, ScriptedDistiller)
    sheet.distiller.next_summary = f"Steps for {question}"
    return (await sheet.store(run_of(task, question), outcome)).status


async def written(sheet: Cheatsheet, *entries: SheetEntry, query: str = "coal output") -> Retrieval:
    assert isinstance(sheet.distiller, ScriptedDistiller)
    sheet.distiller.next_sheet = entries
    return await sheet.retrieve(query_of(query))


def new(description: str, example: str = "") -> SheetEntry:
    return SheetEntry(description=description, example=example)


def kept(position: int, description: str, used: bool = False) -> SheetEntry:
    return SheetEntry(description=description, continues=position, used=used)


def items(sheet: Cheatsheet) -> dict[str, int]:
    return {record.text: record.payload["uses"] for record in sheet.space.records("item")}


@pytest.mark.parametrize("outcome", [CORRECT, WRONG, UNKNOWN])
async def test_a_summary_of_every_run_is_kept_under_its_question(cheatsheet: Cheatsheet, outcome: Outcome) -> None:
    assert await learn(cheatsheet, "t", "coal output", outcome) == "stored"
    (run,) = cheatsheet.space.records("run")
    assert (run.text, run.payload["example"]) == ("coal output", "Steps for coal output")


async def test_the_curator_is_given_the_task_the_sheet_and_the_nearest_run(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    await learn(cheatsheet, "t2", "length of railways")
    cheatsheet.apply((await written(cheatsheet, new("one", "first"))).effects, CORRECT)
    await written(cheatsheet, kept(0, "one"), query="railways")
    sheet, runs = cheatsheet.distiller.asked[-1]  # type: ignore[attr-defined]
    assert [(item.description, item.example, item.uses) for item in sheet] == [("one", "first", 0)]
    assert [run.question for run in runs] == ["length of railways"]


async def test_retrieving_and_previewing_leave_the_sheet_as_it_is(bank: MemoryBank, cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("old item"))).effects, CORRECT)
    before, calls = list(bank.committed.iterdump()), cheatsheet.distiller.calls  # type: ignore[attr-defined]
    assert cheatsheet.probe(query_of("coal")).text == "old item"
    assert cheatsheet.distiller.calls == calls  # type: ignore[attr-defined]
    retrieval = await written(cheatsheet, new("new item", "an example"))
    assert retrieval.text == "Cheatsheet:\n\nnew item\nan example"
    assert list(bank.committed.iterdump()) == before
    assert cheatsheet.probe(query_of("coal")).text == "old item"
    cheatsheet.apply(retrieval.effects, CORRECT)
    assert items(cheatsheet) == {"new item": 0}


async def test_what_is_not_written_forward_is_lost_and_what_is_used_is_counted(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("one"), new("two"), new("three"))).effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, kept(2, "three", used=True), kept(0, "one"))).effects, WRONG)
    assert items(cheatsheet) == {"one": 0, "three": 1}


async def test_an_item_that_is_reworded_keeps_its_count_and_origins(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    first = await written(cheatsheet, new("one"))
    cheatsheet.apply(first.effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, kept(0, "one", used=True))).effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, kept(0, "one, said better"))).effects, CORRECT)
    (item,) = cheatsheet.space.records("item")
    assert (item.text, item.payload["uses"], item.id) == ("one, said better", 1, first.effects[0].record_id)
    assert [origin.task_id for origin in item.origins] == ["t1"]


async def test_of_two_sheets_written_at_once_none_wipes_out_the_other(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("base"))).effects, CORRECT)
    first = await written(cheatsheet, kept(0, "base", used=True), new("from one"))
    second = await written(cheatsheet, kept(0, "base", used=True), new("from two"))
    cheatsheet.apply(first.effects, CORRECT)
    cheatsheet.apply(second.effects, CORRECT)
    assert items(cheatsheet) == {"base": 2, "from one": 0, "from two": 0}


async def test_the_same_rewriting_adds_an_item_once(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    effects = (await written(cheatsheet, new("one"))).effects
    cheatsheet.apply(effects, CORRECT)
    cheatsheet.apply(effects, CORRECT)
    assert items(cheatsheet) == {"one": 0}


async def test_the_sheet_is_rewritten_after_a_failed_task_too_and_not_after_an_unscored_one(
    cheatsheet: Cheatsheet,
) -> None:
    await learn(cheatsheet, "t1", "coal output")
    effects = (await written(cheatsheet, new("one"))).effects
    cheatsheet.apply(effects, UNKNOWN)
    assert items(cheatsheet) == {}
    cheatsheet.apply(effects, WRONG)
    assert items(cheatsheet) == {"one": 0}


async def test_what_is_lost_makes_room_before_the_new_comes(bank: MemoryBank) -> None:
    cheatsheet = Cheatsheet(bank.space("cheatsheet"), ScriptedDistiller(), max_words=4)
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("a b"), new("c d"))).effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, new("e f"), kept(0, "a b"))).effects, CORRECT)
    assert items(cheatsheet) == {"a b": 0, "e f": 0}


async def test_a_lost_item_may_return(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("one"))).effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, new("two"))).effects, CORRECT)
    assert items(cheatsheet) == {"two": 0}
    cheatsheet.apply((await written(cheatsheet, kept(0, "two"), new("one"))).effects, CORRECT)
    assert items(cheatsheet) == {"one": 0, "two": 0}


async def test_beyond_its_words_the_least_used_and_oldest_items_go(bank: MemoryBank) -> None:
    cheatsheet = Cheatsheet(bank.space("cheatsheet"), ScriptedDistiller(), max_words=4)
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("a b"), new("c d"))).effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, kept(0, "a b", used=True), kept(1, "c d"))).effects, CORRECT)
    cheatsheet.apply((await written(cheatsheet, kept(0, "a b"), kept(1, "c d"), new("e f"))).effects, CORRECT)
    assert items(cheatsheet) == {"a b": 1, "e f": 0}


async def test_items_rest_on_the_run_that_they_came_from(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    (run,) = cheatsheet.space.records("run")
    first = await written(cheatsheet, new("one"))
    assert first.item_ids == (run.id,)
    cheatsheet.apply(first.effects, CORRECT)
    second = await written(cheatsheet, kept(0, "one"))
    (item,) = cheatsheet.space.records("item")
    assert second.item_ids == (item.id,)
    assert item.origins == run.origins


async def test_without_a_sheet_the_preview_is_the_nearest_run(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    await learn(cheatsheet, "t2", "length of railways")
    assert cheatsheet.probe(query_of("railways")).text == "length of railways\nSteps for length of railways"


async def test_the_preview_is_the_item_with_most_words_and_has_no_count(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.apply((await written(cheatsheet, new("about coal"), new("about railways"))).effects, CORRECT)
    for _ in range(3):
        rewritten = await written(cheatsheet, kept(0, "about coal", used=True), kept(1, "about railways", used=True))
        cheatsheet.apply(rewritten.effects, CORRECT)
    assert cheatsheet.probe(query_of("railways of Chad")).text == "about railways"
    assert not any(character.isdigit() for character in rewritten.text)


async def test_an_empty_memory_and_an_empty_sheet_ask_and_change_nothing(cheatsheet: Cheatsheet) -> None:
    assert (await cheatsheet.retrieve(query_of("coal"))).empty
    assert cheatsheet.distiller.calls == 0  # type: ignore[attr-defined]
    await learn(cheatsheet, "t1", "coal output")
    retrieval = await written(cheatsheet)
    assert retrieval.empty
    assert retrieval.effects == ()


async def test_a_broken_curator_is_an_error_and_no_empty_memory(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    cheatsheet.distiller.broken = True  # type: ignore[attr-defined]
    with pytest.raises(ModelError):
        await cheatsheet.retrieve(query_of("coal"))


async def test_an_unknown_effect_is_refused(cheatsheet: Cheatsheet) -> None:
    await learn(cheatsheet, "t1", "coal output")
    (run,) = cheatsheet.space.records("run")
    for effect in (
        Effect(provider="cheatsheet", kind="burn", record_id=run.id),
        Effect(provider="expel", kind="use", record_id=run.id),
    ):
        with pytest.raises(ProviderError, match=r"effect"):
            cheatsheet.apply((effect,), CORRECT)
