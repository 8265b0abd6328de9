"""ReasoningBank: titled items of every outcome, injected together with the run's question as their key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.base import ReasoningItem
from providers.long_term.reasoning_bank import ReasoningBank
from providers.types import Outcome


@pytest.fixture
def reasoning(tmp_path: Path) -> Iterator[ReasoningBank]:
    with open_bank(tmp_path) as bank:
        yield ReasoningBank(bank.space("reasoning_bank"), ScriptedDistiller())


async def learn(provider: ReasoningBank, task: str, question: str, *titles: str, outcome: Outcome = CORRECT) -> str:
    distiller = provider.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.next_reasoning = tuple(
        ReasoningItem(title=title, description=f"About {title}.", content=f"Do {title}.") for title in titles
    )
    return (await provider.store(run_of(task, question), outcome)).status


@pytest.mark.parametrize(
    ("outcome", "header"),
    [
        (CORRECT, "Reasoning from a similar task that was solved:"),
        (WRONG, "Reasoning from a similar task that failed:"),
        (UNKNOWN, "Reasoning from a similar task:"),
    ],
)
async def test_every_outcome_is_kept_and_said(reasoning: ReasoningBank, outcome: Outcome, header: str) -> None:
    await learn(reasoning, "t", "coal output", "checking", outcome=outcome)
    retrieval = await reasoning.retrieve(query_of("coal output"))
    assert retrieval.text == f"{header}\nchecking: About checking. Do checking."
    assert retrieval.effects == ()


async def test_at_most_three_items_are_kept_and_all_of_one_run_are_given(reasoning: ReasoningBank) -> None:
    await learn(reasoning, "t1", "coal output", "one", "two", "three", "four")
    await learn(reasoning, "t2", "length of railways", "other")
    text = (await reasoning.retrieve(query_of("output of coal"))).text
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == ["one", "two", "three"]
    assert reasoning.probe(query_of("output of coal")).text == "one: About one. Do one."


async def test_a_run_without_reasoning_is_skipped(reasoning: ReasoningBank) -> None:
    assert await learn(reasoning, "t", "coal") == "skipped"
    assert reasoning.space.records() == []


async def test_the_question_is_the_key_and_not_the_items(reasoning: ReasoningBank) -> None:
    await learn(reasoning, "t1", "length of railways", "coal output")
    await learn(reasoning, "t2", "coal output", "railways")
    assert "Do railways." in (await reasoning.retrieve(query_of("coal output"))).text
