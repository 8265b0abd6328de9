"""Memp: a success adds, a failure revises what it was shown, and what mostly fails goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Script
from providers.long_term.memp import Memp
from providers.types import Injection, Outcome, Trajectory

FIRST = Script(script="open the page; read the field", steps="opened Chad; read Area")
SECOND = Script(script="open the page; read the total", steps="opened Chad; read Total area")


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with open_bank(tmp_path) as opened:
        yield opened


@pytest.fixture
def memp(bank: MemoryBank) -> Memp:
    return Memp(bank.space("memp"), ScriptedDistiller(script=FIRST, revision=SECOND))


def shown_to(item_ids: tuple[str, ...], task_id: str = "later", provider: str = "memp") -> Trajectory:
    injection = Injection(phase="begin", provider=provider, text="a script", item_ids=item_ids)
    return Trajectory.make(
        task_id=task_id,
        question="Decorated: what is the area of Niger? Reply in km.",
        agent="toy",
        seed=0,
        injections=(injection,),
        answer="1",
    )


async def use(memp: Memp, *outcomes: Outcome) -> None:
    for outcome in outcomes:
        memp.apply((await memp.retrieve(query_of("area of Chad"))).effects, outcome)


async def test_a_success_adds_script_and_steps_under_its_question(memp: Memp) -> None:
    receipt = await memp.store(run_of("t", "area of Chad"), CORRECT)
    retrieval = await memp.retrieve(query_of("area of Niger"))
    assert retrieval.text == ("Script:\nopen the page; read the field\n\nAs it was done:\nopened Chad; read Area")
    assert retrieval.item_ids == receipt.record_ids
    assert memp.probe(query_of("area of Niger")).text == "open the page; read the field"


async def test_the_same_question_is_kept_once(memp: Memp) -> None:
    first = await memp.store(run_of("t1", "area of Chad"), CORRECT)
    memp.distiller.next_script = SECOND  # type: ignore[attr-defined]
    assert (await memp.store(run_of("t2", "Area of  Chad"), CORRECT)).record_ids == first.record_ids
    (record,) = memp.space.records()
    assert record.payload["script"] == FIRST.script
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]


async def test_a_failure_revises_what_it_was_shown_and_adds_nothing(memp: Memp) -> None:
    """The question at the end differs from the stored one: what was served is known by its id, not by equal text."""
    stored = await memp.store(run_of("t", "area of Chad"), CORRECT)
    revised = await memp.store(shown_to(stored.record_ids), WRONG)
    assert (revised.status, revised.record_ids) == ("stored", stored.record_ids)
    (record,) = memp.space.records()
    assert (record.payload["script"], record.payload["steps"]) == (SECOND.script, SECOND.steps)
    assert record.payload["revisions"] == 1
    assert record.text == "area of Chad"
    assert [origin.task_id for origin in record.origins] == ["t", "later"]


async def test_a_failure_that_was_shown_nothing_of_it_changes_nothing(memp: Memp) -> None:
    stored = await memp.store(run_of("t", "area of Chad"), CORRECT)
    before = memp.space.records()
    receipt = await memp.store(shown_to(stored.record_ids, provider="voyager"), WRONG)
    assert receipt.status == "skipped"
    assert "was shown none" in receipt.reason
    assert (await memp.store(run_of("t2", "area of Chad"), WRONG)).status == "skipped"
    assert memp.space.records() == before


async def test_a_revision_that_says_nothing_new_is_nothing_to_learn(memp: Memp) -> None:
    stored = await memp.store(run_of("t", "area of Chad"), CORRECT)
    memp.distiller.next_revision = FIRST  # type: ignore[attr-defined]
    assert (await memp.store(shown_to(stored.record_ids), WRONG)).reason == "nothing to learn from it"
    assert memp.space.records()[0].payload["revisions"] == 0


async def test_an_unknown_outcome_is_no_success_and_may_be_offered_again(memp: Memp) -> None:
    receipt = await memp.store(run_of("t", "area of Chad"), UNKNOWN)
    assert receipt.status == "skipped"
    assert receipt.reason.endswith("the outcome is unknown")
    assert memp.space.records() == []
    assert (await memp.store(run_of("t", "area of Chad"), CORRECT)).status == "stored"


@pytest.mark.parametrize(
    ("outcomes", "stays"),
    [
        ((WRONG, WRONG), True),
        ((WRONG, WRONG, CORRECT), False),
        ((CORRECT, WRONG, CORRECT), True),
        ((CORRECT, WRONG, CORRECT, WRONG), True),
        ((CORRECT, WRONG, CORRECT, WRONG, WRONG), False),
        ((WRONG, UNKNOWN, WRONG, UNKNOWN), True),
    ],
)
async def test_a_script_goes_from_three_hits_below_half_successes(
    memp: Memp, outcomes: tuple[Outcome, ...], stays: bool
) -> None:
    await memp.store(run_of("t", "area of Chad"), CORRECT)
    await use(memp, *outcomes)
    assert (await memp.retrieve(query_of("area of Chad"))).empty is not stays
    assert (memp.probe(query_of("area of Chad")).text != "") is stays


async def test_counts_live_in_the_record_and_survive_a_new_instance(memp: Memp, bank: MemoryBank) -> None:
    await memp.store(run_of("t", "area of Chad"), CORRECT)
    await use(memp, CORRECT, WRONG)
    other = Memp(bank.space("memp"), ScriptedDistiller(script=FIRST, revision=SECOND))
    (record,) = other.space.records()
    assert (record.payload["hits"], record.payload["successes"]) == (2, 1)
    stored = await other.store(shown_to((record.id,)), WRONG)
    assert stored.status == "stored"
    assert (other.space.records()[0].payload["hits"], other.space.records()[0].payload["successes"]) == (2, 1)


async def test_a_revision_builds_on_one_that_was_written_meanwhile(memp: Memp, bank: MemoryBank) -> None:
    class Interrupted(ScriptedDistiller):
        async def revised_script(self, script: Script, trajectory: Trajectory) -> Script | None:
            self._called()
            if self.calls == 1:
                assert (await memp.store(shown_to(stored.record_ids, "between"), WRONG)).status == "stored"
            return Script(script=f"{script.script}; check it", steps=script.steps)

    stored = await memp.store(run_of("t", "area of Chad"), CORRECT)
    distiller = Interrupted()
    await Memp(bank.space("memp"), distiller).store(shown_to(stored.record_ids), WRONG)
    (record,) = memp.space.records()
    assert record.payload["script"] == f"{SECOND.script}; check it"
    assert record.payload["revisions"] == 2
    assert distiller.calls == 2
    assert {origin.task_id for origin in record.origins} == {"t", "between", "later"}


async def test_a_failed_revision_is_failed_and_may_be_repeated(memp: Memp) -> None:
    stored = await memp.store(run_of("t", "area of Chad"), CORRECT)
    memp.distiller.broken = True  # type: ignore[attr-defined]
    assert (await memp.store(shown_to(stored.record_ids), WRONG)).status == "failed"
    assert memp.space.records()[0].payload["script"] == FIRST.script
    memp.distiller.broken = False  # type: ignore[attr-defined]
    assert (await memp.store(shown_to(stored.record_ids), WRONG)).status == "stored"
