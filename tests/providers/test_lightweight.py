"""LightWeight: a capped list that the distiller reads whole, with counts that stay with their sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Advice, Strategies
from providers.errors import ModelError
from providers.long_term.lightweight import LightWeight
from providers.types import Outcome, StoreReceipt


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with open_bank(tmp_path) as opened:
        yield opened


@pytest.fixture
def distiller() -> ScriptedDistiller:
    return ScriptedDistiller()


@pytest.fixture
def light(bank: MemoryBank, distiller: ScriptedDistiller) -> LightWeight:
    return LightWeight(bank.space("lightweight"), distiller)


async def learn(light: LightWeight, task: str, *lines: str, outcome: Outcome = CORRECT) -> StoreReceipt:
    distiller = light.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.next_strategies = Strategies(strategic=lines)
    return await light.store(run_of(task), outcome)


def counts(light: LightWeight) -> dict[str, tuple[int, int]]:
    return {r.text: (r.payload["uses"], r.payload["wins"]) for r in light.space.records("strategic")}


async def test_two_sentences_of_each_kind_of_twenty_characters_from_correct_runs(
    light: LightWeight, distiller: ScriptedDistiller
) -> None:
    lines = tuple(f"Open the page about {word} first." for word in ("coal", "rail", "tax"))
    distiller.next_strategies = Strategies(strategic=("Too short.", *lines), operational=lines)
    assert (await light.store(run_of("t1"), WRONG)).status == "skipped"
    assert (await light.store(run_of("t2"), UNKNOWN)).status == "skipped"
    assert (await light.store(run_of("t3"), CORRECT)).status == "stored"
    for kind in ("strategic", "operational"):
        assert {record.text for record in light.space.records(kind)} == set(lines[:2])


async def test_the_distiller_reads_the_whole_list_nearest_first(
    light: LightWeight, distiller: ScriptedDistiller
) -> None:
    await learn(light, "t1", "Coal output stands under Energy.", "Railways stand under Transport.")
    await learn(light, "t2", "Borders stand under Geography.")
    assert (await light.retrieve(query_of("railways transport"))).empty
    assert distiller.asked[-1][0] == "Railways stand under Transport."
    assert len(distiller.asked[-1]) == 3


async def test_what_is_picked_is_injected_merged_and_counted_once(
    light: LightWeight, distiller: ScriptedDistiller
) -> None:
    await learn(light, "t1", "Coal output stands under Energy.", "Railways stand under Transport.")
    distiller.next_advice = Advice(picked=(1, 1, 9, 0), text="Look under Energy and Transport.")
    retrieval = await light.retrieve(query_of("coal"))
    assert retrieval.text == "Advice that may help here:\nLook under Energy and Transport."
    assert len(retrieval.item_ids) == len(retrieval.effects) == 2
    before = light.space.generation
    light.apply(retrieval.effects, UNKNOWN)
    assert light.space.generation == before
    light.apply(retrieval.effects, CORRECT)
    light.apply(retrieval.effects, WRONG)
    assert set(counts(light).values()) == {(2, 1)}
    assert not any(character.isdigit() for character in (await light.retrieve(query_of("coal"))).text)


async def test_a_failed_model_call_at_retrieval_is_an_error_and_not_an_empty_memory(
    light: LightWeight, distiller: ScriptedDistiller
) -> None:
    await learn(light, "t1", "Coal output stands under Energy.")
    distiller.broken = True
    with pytest.raises(ModelError):
        await light.retrieve(query_of("coal"))
    assert light.probe(query_of("coal")).text == "Coal output stands under Energy."


async def test_beyond_the_buffer_the_list_is_pruned_to_the_most_worth(bank: MemoryBank) -> None:
    light = LightWeight(bank.space("lightweight"), ScriptedDistiller(), capacity=2, buffer=1)
    assert isinstance(light.distiller, ScriptedDistiller)
    await learn(light, "t1", "Sentence about coal output.", "Sentence about railways.")
    light.distiller.next_advice = Advice(picked=(0,), text="Advice.")
    used = (await light.retrieve(query_of("sentence about coal output"))).effects
    light.apply(used, WRONG)
    await learn(light, "t2", "Sentence about borders.")
    assert len(counts(light)) == 3
    await learn(light, "t3", "Sentence about income.")
    assert counts(light) == {"Sentence about coal output.": (1, 0), "Sentence about income.": (0, 0)}


async def test_wins_weigh_twice_as_much_as_uses(bank: MemoryBank) -> None:
    light = LightWeight(bank.space("lightweight"), ScriptedDistiller(), capacity=1, buffer=1)
    assert isinstance(light.distiller, ScriptedDistiller)
    await learn(light, "t1", "Sentence about coal output.", "Sentence about railways.")
    light.distiller.next_advice = Advice(picked=(0,), text="Advice.")
    for text, outcomes in (("coal output", [CORRECT]), ("railways", [WRONG, WRONG])):
        effects = (await light.retrieve(query_of(f"sentence about {text}"))).effects
        for outcome in outcomes:
            light.apply(effects, outcome)
    await learn(light, "t2", "Sentence about borders.")
    assert set(counts(light)) == {"Sentence about coal output."}


async def test_counts_stay_with_their_sentence_when_others_are_pruned(bank: MemoryBank) -> None:
    """Where ids are places in a list, what was retrieved before a pruning is counted for another sentence after it."""
    light = LightWeight(bank.space("lightweight"), ScriptedDistiller(), capacity=2, buffer=0)
    assert isinstance(light.distiller, ScriptedDistiller)
    await learn(light, "t1", "Sentence about coal output.", "Sentence about railways.")
    light.distiller.next_advice = Advice(picked=(0,), text="Advice.")
    effects = (await light.retrieve(query_of("sentence about railways"))).effects
    light.apply(effects, CORRECT)
    await learn(light, "t2", "Sentence about borders.")
    light.apply(effects, CORRECT)
    assert counts(light) == {"Sentence about railways.": (2, 2), "Sentence about borders.": (0, 0)}


async def test_a_sentence_that_went_is_counted_for_nobody(bank: MemoryBank) -> None:
    light = LightWeight(bank.space("lightweight"), ScriptedDistiller())
    assert isinstance(light.distiller, ScriptedDistiller)
    await learn(light, "t1", "Sentence about coal output.")
    light.distiller.next_advice = Advice(picked=(0,), text="Advice.")
    effects = (await light.retrieve(query_of("coal"))).effects
    light.space.archive(effects[0].record_id, "pruned")
    light.apply(effects, CORRECT)
    assert light.space.existing(effects[0].record_id).payload["uses"] == 0


async def test_an_equal_sentence_is_kept_once_with_both_origins(light: LightWeight) -> None:
    await learn(light, "t1", "Coal output stands under Energy.")
    await learn(light, "t2", "coal output  stands under energy.")
    (record,) = light.space.records("strategic")
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]


async def test_the_same_counts_after_reopening(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        light = LightWeight(bank.space("lightweight"), ScriptedDistiller())
        assert isinstance(light.distiller, ScriptedDistiller)
        await learn(light, "t1", "Coal output stands under Energy.")
        light.distiller.next_advice = Advice(picked=(0,), text="Advice.")
        light.apply((await light.retrieve(query_of("coal"))).effects, CORRECT)
    with open_bank(tmp_path) as bank:
        light = LightWeight(bank.space("lightweight"), ScriptedDistiller())
        assert counts(light) == {"Coal output stands under Energy.": (1, 1)}
