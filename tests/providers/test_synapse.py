"""Synapse: solved runs, whole, as exemplars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.long_term.synapse import EXEMPLAR_LIMIT, STEP_LIMIT, Synapse, exemplar_of
from providers.types import Outcome, Step, Trajectory


@pytest.fixture
def synapse(tmp_path: Path) -> Iterator[Synapse]:
    with open_bank(tmp_path) as bank:
        yield Synapse(bank.space("synapse"), ScriptedDistiller())


def made_run(*steps: Step, question: str = "q", answer: str | None = "42") -> Trajectory:
    return Trajectory.make(task_id="t", question=question, agent="toy", seed=0, steps=steps, answer=answer)


async def test_the_whole_run_is_kept_without_asking_a_model(synapse: Synapse) -> None:
    synapse.distiller.broken = True  # type: ignore[attr-defined]
    steps = (
        Step(
            index=0, thought="Look it up.", tool="search", arguments={"query": "Chad"}, observation="1. [Chad]\n(/chad)"
        ),
        Step(index=1, tool="open", arguments={"page": "/chad", "part": 2}, error="no such page"),
    )
    await synapse.store(made_run(*steps, question="area of Chad"), CORRECT)
    assert (await synapse.retrieve(query_of("area of Chad"))).text == (
        "A similar task, solved:\nTask: area of Chad\n"
        "1. Look it up. search(query=Chad) -> 1. [Chad] (/chad)\n"
        "2. open(page=/chad, part=2) -> failed: no such page\n"
        "Answer: 42"
    )
    assert synapse.distiller.calls == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("outcome", [WRONG, UNKNOWN])
async def test_only_correct_runs_are_kept(synapse: Synapse, outcome: Outcome) -> None:
    assert (await synapse.store(run_of("t"), outcome)).status == "skipped"
    assert (await synapse.store(run_of("t"), CORRECT)).status == "stored"


async def test_three_exemplars_the_nearest_question_first(synapse: Synapse) -> None:
    for number, question in enumerate(("coal in Peru", "area of Chad", "area of Niger", "area of Mali in km")):
        await synapse.store(run_of(f"t{number}", question), CORRECT)
    retrieval = await synapse.retrieve(query_of("area of Niger"))
    assert len(retrieval.item_ids) == 3
    assert "coal" not in retrieval.text
    assert retrieval.text.startswith("A similar task, solved:\nTask: area of Niger\n")
    assert synapse.probe(query_of("area of Niger")).text.startswith("Task: area of Niger\n")


async def test_the_same_run_of_another_seed_is_shown_once(synapse: Synapse) -> None:
    await synapse.store(run_of("t", seed=0), CORRECT)
    await synapse.store(run_of("t", seed=1), CORRECT)
    (record,) = synapse.space.records()
    assert [origin.share for origin in record.origins] == [0.5, 0.5]


async def test_a_run_without_steps_teaches_nothing(synapse: Synapse) -> None:
    assert (await synapse.store(made_run(), CORRECT)).reason == "nothing to learn from it"


@given(st.lists(st.text(max_size=2 * STEP_LIMIT), min_size=1, max_size=60), st.text(max_size=2 * STEP_LIMIT))
def test_an_exemplar_is_bounded_whatever_the_run_and_keeps_its_last_step(seen: list[str], question: str) -> None:
    steps = [Step(index=n, tool=f"tool{n}", observation=text) for n, text in enumerate(seen)]
    lines = exemplar_of(made_run(*steps, question=question)).splitlines()
    assert sum(map(len, lines)) <= EXEMPLAR_LIMIT + STEP_LIMIT
    assert lines[-1] == "Answer: 42"
    assert lines[-2].startswith(f"{len(seen)}. tool{len(seen) - 1}() -> ")
    left_out = len(seen) - (len(lines) - 2)
    assert left_out == 0 or any(line.endswith(" steps left out)") for line in lines)
