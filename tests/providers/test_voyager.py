"""Voyager: what is stored is found again, by its summary, and shown as a digest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Narrative
from providers.errors import ProviderError
from providers.long_term.voyager import Voyager
from providers.types import Effect, Outcome, Query


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with open_bank(tmp_path) as opened:
        yield opened


@pytest.fixture
def distiller() -> ScriptedDistiller:
    return ScriptedDistiller(narrative=Narrative(summary="area of Chad in km", digest="searched Chad; read Area"))


@pytest.fixture
def voyager(bank: MemoryBank, distiller: ScriptedDistiller) -> Voyager:
    return Voyager(bank.space("voyager"), distiller)


async def test_a_stored_run_is_retrieved(voyager: Voyager) -> None:
    assert (await voyager.retrieve(query_of("area of Chad"))).empty
    await voyager.store(run_of("t"), CORRECT)
    retrieval = await voyager.retrieve(query_of("area of Chad"))
    assert retrieval.text == "Notes from a similar task:\nsearched Chad; read Area\nResult: correct."


async def test_the_summary_is_indexed_and_not_the_digest(voyager: Voyager, distiller: ScriptedDistiller) -> None:
    await voyager.store(run_of("t1"), CORRECT)
    distiller.next_narrative = Narrative(summary="coal in Peru", digest="area of Chad area of Chad")
    await voyager.store(run_of("t2"), CORRECT)
    retrieval = await voyager.retrieve(query_of("area of Chad"))
    assert "searched Chad" in retrieval.text


@pytest.mark.parametrize(("outcome", "line"), [(CORRECT, "correct"), (WRONG, "wrong"), (UNKNOWN, None)])
async def test_every_outcome_is_kept_and_named_only_where_known(
    voyager: Voyager, outcome: Outcome, line: str | None
) -> None:
    assert (await voyager.store(run_of("t"), outcome)).status == "stored"
    text = (await voyager.retrieve(query_of("area of Chad"))).text
    assert ("Result: " in text) == (line is not None)
    assert line is None or f"Result: {line}." in text


async def test_probe_shows_the_start_of_what_is_retrieved_and_writes_nothing(
    voyager: Voyager, distiller: ScriptedDistiller
) -> None:
    assert voyager.probe(query_of("area")).text == ""
    distiller.next_narrative = Narrative(summary="area", digest="long " * 100)
    receipt = await voyager.store(run_of("t"), CORRECT)
    generation, calls = voyager.space.generation, distiller.calls
    preview = voyager.probe(query_of("area"))
    retrieval = await voyager.retrieve(query_of("area"))
    assert len(preview.text) == 200
    assert preview.text in retrieval.text
    assert preview.item_id == receipt.record_ids[0]
    assert (voyager.space.generation, distiller.calls) == (generation, calls)


async def test_the_same_trajectory_is_one_record_with_the_same_receipt(
    voyager: Voyager, distiller: ScriptedDistiller
) -> None:
    first = await voyager.store(run_of("t"), CORRECT)
    assert await voyager.store(run_of("t"), CORRECT) == first
    assert distiller.calls == 1
    assert len(voyager.space.records()) == 1


async def test_the_same_trajectory_offered_twice_at_once_is_one_record(voyager: Voyager) -> None:
    first, second = await asyncio.gather(voyager.store(run_of("t"), CORRECT), voyager.store(run_of("t"), CORRECT))
    assert first == second
    assert len(voyager.space.records()) == 1


async def test_nothing_to_learn_is_skipped_and_remembered(voyager: Voyager, distiller: ScriptedDistiller) -> None:
    distiller.next_narrative = None
    receipt = await voyager.store(run_of("t"), CORRECT)
    assert (receipt.status, receipt.reason) == ("skipped", "nothing to learn from it")
    await voyager.store(run_of("t"), CORRECT)
    assert distiller.calls == 1


async def test_a_failed_model_call_is_failed_and_may_be_repeated(
    voyager: Voyager, distiller: ScriptedDistiller
) -> None:
    distiller.broken = True
    receipt = await voyager.store(run_of("t"), CORRECT)
    assert (receipt.status, receipt.reason) == ("failed", "The model cannot be reached.")
    assert voyager.space.records() == []
    distiller.broken = False
    assert (await voyager.store(run_of("t"), CORRECT)).status == "stored"


async def test_two_instances_over_one_bank_share_what_they_keep(bank: MemoryBank, voyager: Voyager) -> None:
    other = Voyager(bank.space("voyager"), ScriptedDistiller(narrative=Narrative(summary="coal", digest="dug coal")))
    await voyager.store(run_of("t1"), CORRECT)
    await other.store(run_of("t2"), CORRECT)
    assert "dug coal" in (await voyager.retrieve(query_of("coal"))).text
    assert "searched Chad" in (await other.retrieve(query_of("area of Chad"))).text


async def test_another_namespace_and_another_providers_effects_are_refused(voyager: Voyager) -> None:
    query = query_of("area")
    elsewhere = Query(text=query.text, embedding=query.embedding, namespace="team")
    with pytest.raises(ProviderError, match="asked for 'team'"):
        voyager.probe(elsewhere)
    with pytest.raises(ProviderError, match="'expel' was given to 'voyager'"):
        voyager.apply((Effect(provider="expel", kind="use", record_id="r"),), CORRECT)
