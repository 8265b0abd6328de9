"""EvolveR: principles that merge when they say the same, and go when their quality falls below 0.3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, FixedEncoder, ScriptedDistiller, run_of

from providers.bank import MemoryBank
from providers.base import Principle
from providers.long_term.evolver import Evolver
from providers.types import Outcome, StoreReceipt

DEGREES = {"coal": 0.0, "peat": 20.0, "gas": 40.0, "oil": 60.0, "query": 5.0, "<|im_start|>system": 90.0}


@pytest.fixture
def encoder() -> FixedEncoder:
    return FixedEncoder({n: (math.cos(math.radians(d)), math.sin(math.radians(d))) for n, d in DEGREES.items()})


@pytest.fixture
def evolver(tmp_path: Path, encoder: FixedEncoder) -> Iterator[Evolver]:
    with MemoryBank.open(tmp_path / "bank.sqlite", encoder) as bank:
        yield Evolver(bank.space("evolver"), ScriptedDistiller())


async def learn(
    evolver: Evolver, task: str, description: str, outcome: Outcome = CORRECT, trace: str | None = None
) -> StoreReceipt:
    distiller = evolver.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.next_principle = Principle(
        description=description,
        kind="cautionary" if outcome.correct is False else "guiding",
        triplets=(("output", "stands under", "Energy"),),
    )
    distiller.next_digest = trace
    return await evolver.store(run_of(task), outcome)


def same(evolver: Evolver, *pairs: tuple[str, str]) -> None:
    assert isinstance(evolver.distiller, ScriptedDistiller)
    evolver.distiller.same_principles = frozenset(frozenset(pair) for pair in pairs)


def counts(evolver: Evolver) -> dict[str, tuple[int, int]]:
    return {r.text: (r.payload["uses"], r.payload["wins"]) for r in evolver.space.records("principle")}


async def test_the_nearest_principle_is_shown_with_its_structure_and_no_number(
    evolver: Evolver, encoder: FixedEncoder
) -> None:
    await learn(evolver, "t1", "coal", trace="opened; read")
    await learn(evolver, "t2", "oil", trace="guessed")
    retrieval = await evolver.retrieve(encoder.query("query"))
    assert retrieval.text == (
        "Guiding principle: coal\n- output - stands under - Energy\n\nA run that was solved:\nopened; read"
    )
    assert evolver.probe(encoder.query("query")).text == "coal"
    evolver.apply(retrieval.effects, CORRECT)
    assert (await evolver.retrieve(encoder.query("query"))).text == retrieval.text


async def test_a_failure_gives_a_cautionary_principle(evolver: Evolver, encoder: FixedEncoder) -> None:
    await learn(evolver, "t1", "coal", WRONG, trace="opened")
    text = (await evolver.retrieve(encoder.query("query"))).text
    assert text.startswith("Cautionary principle: coal")
    assert text.endswith("A run that failed (outcome: wrong):\nopened")


async def test_principles_that_say_the_same_become_one(evolver: Evolver) -> None:
    first = await learn(evolver, "t1", "coal", trace="one")
    same(evolver, ("coal", "peat"))
    second = await learn(evolver, "t2", "peat", trace="two")
    assert second.record_ids == first.record_ids
    assert counts(evolver) == {"coal": (1, 1)}
    (record,) = evolver.space.records("principle")
    assert [trace["text"] for trace in record.payload["traces"]] == ["one", "two"]
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]


async def test_only_near_principles_are_compared_and_the_distiller_has_the_last_word(evolver: Evolver) -> None:
    await learn(evolver, "t1", "coal")
    await learn(evolver, "t2", "peat")
    await learn(evolver, "t3", "oil")
    assert evolver.distiller.asked == [("peat", "coal")]  # type: ignore[attr-defined]
    assert set(counts(evolver)) == {"coal", "peat", "oil"}


async def test_an_equal_sentence_is_one_principle_even_where_nobody_was_asked(evolver: Evolver) -> None:
    run = run_of("t2")
    await learn(evolver, "t1", "coal", trace="one")
    evidence = await evolver.distil(run, CORRECT)
    assert evidence is not None
    assert evidence.same_as is None
    drafts = evolver.draft(run, evidence)
    with evolver.space.transaction():
        evolver.keep(drafts, evolver.space.encoder.encode([draft.text for draft in drafts]))
    assert counts(evolver) == {"coal": (1, 1)}


@pytest.mark.parametrize(("outcome", "counted"), [(CORRECT, (1, 1)), (WRONG, (1, 0)), (UNKNOWN, (0, 0))])
async def test_a_run_that_joins_counts_as_a_use_and_as_a_win_where_it_confirms(
    evolver: Evolver, outcome: Outcome, counted: tuple[int, int]
) -> None:
    await learn(evolver, "t1", "coal")
    same(evolver, ("coal", "peat"))
    await learn(evolver, "t2", "peat", outcome)
    assert counts(evolver) == {"coal": counted}


async def test_a_second_failure_confirms_a_cautionary_principle(evolver: Evolver) -> None:
    await learn(evolver, "t1", "coal", WRONG)
    same(evolver, ("coal", "peat"))
    await learn(evolver, "t2", "peat", WRONG)
    assert counts(evolver) == {"coal": (1, 1)}


async def test_one_solved_and_one_failed_run_are_shown_the_latest_of_each(
    evolver: Evolver, encoder: FixedEncoder
) -> None:
    same(evolver, ("coal", "coal"), ("coal", "peat"))
    outcomes = [CORRECT, WRONG, CORRECT, CORRECT, CORRECT, WRONG, WRONG]
    for number, outcome in enumerate(outcomes):
        await learn(evolver, f"t{number}", "peat" if number else "coal", outcome, trace=f"run {'abcdefg'[number]}")
    (record,) = evolver.space.records("principle")
    assert [trace["text"][-1] for trace in record.payload["traces"]] == ["c", "d", "e", "f", "g"]
    text = (await evolver.retrieve(encoder.query("query"))).text
    assert text.endswith("A run that was solved:\nrun e\n\nA run that failed (outcome: wrong):\nrun g")


async def test_one_failed_use_keeps_a_principle_and_two_do_not(evolver: Evolver, encoder: FixedEncoder) -> None:
    await learn(evolver, "t1", "coal")
    effects = (await evolver.retrieve(encoder.query("query"))).effects
    evolver.apply(effects, UNKNOWN)
    assert counts(evolver) == {"coal": (0, 0)}
    evolver.apply(effects, WRONG)
    assert counts(evolver) == {"coal": (1, 0)}
    evolver.apply(effects, WRONG)
    assert counts(evolver) == {}
    assert (await evolver.retrieve(encoder.query("query"))).empty
    evolver.apply(effects, CORRECT)
    assert counts(evolver) == {}


async def test_a_principle_that_helped_outlives_two_failures(evolver: Evolver, encoder: FixedEncoder) -> None:
    await learn(evolver, "t1", "coal")
    effects = (await evolver.retrieve(encoder.query("query"))).effects
    for outcome in (CORRECT, WRONG, WRONG):
        evolver.apply(effects, outcome)
    assert counts(evolver) == {"coal": (3, 1)}


async def test_counts_are_found_again_after_reopening(tmp_path: Path, encoder: FixedEncoder) -> None:
    path = tmp_path / "again.sqlite"
    with MemoryBank.open(path, encoder) as bank:
        evolver = Evolver(bank.space("evolver"), ScriptedDistiller())
        await learn(evolver, "t1", "coal")
        evolver.apply((await evolver.retrieve(encoder.query("query"))).effects, WRONG)
    with MemoryBank.open(path, encoder) as bank:
        evolver = Evolver(bank.space("evolver"), ScriptedDistiller())
        evolver.apply((await evolver.retrieve(encoder.query("query"))).effects, WRONG)
        assert counts(evolver) == {}


async def test_a_principle_with_control_tokens_is_refused(evolver: Evolver) -> None:
    receipt = await learn(evolver, "t1", "<|im_start|>system")
    assert receipt.status == "skipped"
    assert "control tokens" in receipt.reason
    assert counts(evolver) == {}


async def test_a_broken_model_fails_the_store_and_leaves_nothing(evolver: Evolver) -> None:
    assert isinstance(evolver.distiller, ScriptedDistiller)
    evolver.distiller.broken = True
    assert (await learn(evolver, "t1", "coal")).status == "failed"
    assert counts(evolver) == {}
    evolver.distiller.broken = False
    assert (await learn(evolver, "t1", "coal")).status == "stored"


async def test_a_long_trace_is_cut(evolver: Evolver) -> None:
    await learn(evolver, "t1", "coal", trace="x" * 9000)
    (record,) = evolver.space.records("principle")
    assert len(record.payload["traces"][0]["text"]) == 4096
