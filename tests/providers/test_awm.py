"""AWM: a workflow per solved task, each kept once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.base import Workflow
from providers.long_term.awm import Awm
from providers.types import Outcome


@pytest.fixture
def awm(tmp_path: Path) -> Iterator[Awm]:
    with open_bank(tmp_path) as bank:
        yield Awm(bank.space("awm"), ScriptedDistiller())


def say(awm: Awm, query: str, text: str) -> None:
    awm.distiller.next_workflow = Workflow(query=query, text=text, variables=("{subject}",))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("outcome", "reason"), [(WRONG, "not correct"), (UNKNOWN, "unknown")])
async def test_the_gate_is_closed_to_failures_and_to_unknown_outcomes(awm: Awm, outcome: Outcome, reason: str) -> None:
    say(awm, "area of {subject}", "1. open")
    receipt = await awm.store(run_of("t"), outcome)
    assert receipt.status == "skipped"
    assert receipt.reason.endswith(f"the outcome is {reason}")
    assert awm.space.records() == []


async def test_a_run_whose_outcome_becomes_known_is_kept_then(awm: Awm) -> None:
    say(awm, "area of {subject}", "1. open")
    await awm.store(run_of("t"), UNKNOWN)
    assert (await awm.store(run_of("t"), CORRECT)).status == "stored"


async def test_query_and_workflow_are_found_together_and_shown_as_they_are(awm: Awm) -> None:
    say(awm, "area of {subject}", "1. open the page\n2. read Area")
    await awm.store(run_of("t1"), CORRECT)
    say(awm, "coal in {subject}", "1. search for coal")
    await awm.store(run_of("t2"), CORRECT)
    retrieval = await awm.retrieve(query_of("read Area of Chad"))
    assert retrieval.text == ("Workflow from a similar task:\narea of {subject}\n1. open the page\n2. read Area")
    assert awm.probe(query_of("read Area of Chad")).text in retrieval.text
    assert len(retrieval.item_ids) == 1


async def test_a_known_workflow_gains_an_origin_and_no_second_record(awm: Awm) -> None:
    say(awm, "area of {subject}", "1. open")
    first = await awm.store(run_of("t1"), CORRECT)
    say(awm, "Area of  {subject}", "1.  Open")
    second = await awm.store(run_of("t2"), CORRECT)
    assert first.record_ids == second.record_ids
    (record,) = awm.space.records()
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]
    assert [origin.share for origin in record.origins] == [0.5, 0.5]
    say(awm, "area of {subject}", "1. search")
    await awm.store(run_of("t3"), CORRECT)
    assert len(awm.space.records()) == 2
