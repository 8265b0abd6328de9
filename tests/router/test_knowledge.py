"""The decision knowledge base, the rules that it holds, and PromptRoute on top of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from lm.client import ChatModel
from lm.errors import AnswerError
from lm.types import Message
from providers.base import ProviderCard
from providers.errors import ModelError
from providers.types import Outcome, Preview, Step
from router.context import BeginContext, EndContext, InContext
from router.decisions import Arm
from router.policies.knowledge import CATEGORIES, KnowledgeBase, KnowledgeRules, categorise
from router.policies.prompt_route import CHAT, COMPACT, PromptRoute, render, render_end, render_in
from router.table import Cell, RoutingTable, TableRow

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("expel", "awm", "voyager")
CARDS = tuple(
    ProviderCard(
        name=name,
        title=name.title(),
        family="insight",
        stores=f"what {name} stores",
        retrieves=f"how {name} finds it",
        gate="success" if name == "awm" else "all",
        top_k=1,
    )
    for name in NAMES
)


def row(number: int, question: str, correct: Mapping[str, float | None], empty: Sequence[str] = ()) -> TableRow:
    return TableRow(
        task_id=str(number),
        question=question,
        family="",
        previews=(),
        cells=tuple(
            Cell(arm=Arm(provider=name, in_mode=mode), correct=value, empty=name in empty)
            for name, value in correct.items()
            for mode in ("query", "no_op")
        ),
    )


def table(*rows: TableRow) -> RoutingTable:
    return RoutingTable(suite="toy", split="explore", providers=NAMES, rows=rows)


ROWS = (
    row(0, "How many cows?", {"expel": 1.0, "awm": 0.0, "voyager": 1.0, "none": 1.0}),
    row(1, "How many pigs?", {"expel": 1.0, "awm": 0.0, "voyager": 0.0}),
    row(2, "How many hens?", {"expel": 0.0, "awm": 1.0, "voyager": 0.0}),
    row(3, "How many goats?", {"expel": 0.0, "awm": 0.0, "voyager": 1.0}, empty=["voyager"]),
    row(4, "How many ducks?", {"expel": 0.0, "awm": 0.0, "voyager": None}),
    row(5, "Name the capital.", {"expel": 0.0, "awm": 1.0, "voyager": 0.0}),
    row(6, "Name the river.", {"expel": 0.0, "awm": 1.0, "voyager": 0.0}),
    row(7, "Name the flag.", {"expel": 0.0, "awm": 1.0, "voyager": 1.0}),
)
BASE = KnowledgeBase.from_table(table(*ROWS), CARDS)


def begin(question: str, *, empty: Sequence[str] = (), names: Sequence[str] = NAMES) -> BeginContext:
    return BeginContext(
        task_id="t",
        question=question,
        previews=tuple(Preview(provider=name, text="" if name in empty else f"{name} shows this") for name in names),
        cards=tuple(card for card in CARDS if card.name in names),
    )


@pytest.mark.parametrize(
    ("question", "category"),
    [
        ("How many birds are in the photo on that website?", "image analysis"),
        ("How many articles did the blog publish?", "web search"),
        ("How much larger is A than B?", "calculation"),
        ("What does the attached spreadsheet say?", "document / file"),
        ("Who speaks in the podcast?", "audio / video"),
        ("What does this Python script print?", "code"),
        ("Name the country whose capital is Lima.", "multi-hop lookup"),
        ("What is the capital of Peru?", "general"),
        ("What is a photon?", "general"),
    ],
)
def test_the_first_category_with_a_keyword_takes_the_task(question: str, category: str) -> None:
    assert categorise(question) == category
    assert len(CATEGORIES) == 8


def test_statistics_leave_out_empty_and_unscored_arms_and_the_arm_without_memory() -> None:
    voyager = BASE.of("voyager")
    assert voyager is not None
    assert voyager.tasks == 6
    assert voyager.success_rate == pytest.approx(2 / 6)
    record = voyager.of("calculation")
    assert record is not None
    assert (record.tasks, record.wins) == (3, 1)
    assert BASE.of("none") is None


def test_rules_need_three_occurrences_and_two_wins_in_five() -> None:
    found = [(rule.category, rule.provider, rule.occurrences, rule.win_rate) for rule in BASE.begin_rules]
    assert found == [
        ("calculation", "expel", 5, 0.4),
        ("general", "awm", 3, 1.0),
    ]
    few = KnowledgeBase.from_table(table(*ROWS[5:7]), CARDS)
    assert few.begin_rules == ()


def test_affinities_and_examples_tell_a_provider_from_the_others() -> None:
    awm = BASE.of("awm")
    assert awm is not None
    assert awm.affinities == ("general",)
    record = awm.of("general")
    assert record is not None
    assert set(record.won[:2]) == {"Name the capital.", "Name the river."}
    calculation = awm.of("calculation")
    assert calculation is not None
    assert calculation.won == ("How many hens?",)
    assert calculation.lost[0] == "How many cows?"
    assert len(calculation.lost) == 3


@pytest.mark.parametrize(
    ("context", "provider"),
    [
        (begin("How many sheep?"), "expel"),
        (begin("Name the anthem."), "awm"),
        (begin("Name the anthem.", empty=["awm"]), "voyager"),
        (begin("Name the anthem.", empty=NAMES), "awm"),
        (begin("What is in the photo?"), "awm"),
        (begin("What is in the photo?", empty=["awm"]), "voyager"),
    ],
)
async def test_rules_take_the_best_of_the_category_else_the_best_overall(context: BeginContext, provider: str) -> None:
    decision = await KnowledgeRules(BASE).begin(context)
    assert decision.providers == (provider,)
    assert not decision.fallback


async def test_in_follows_the_content_and_end_the_gates() -> None:
    rules = KnowledgeRules(BASE)
    for summary, action in (("2 facts", "query"), ("", "no_op")):
        context = InContext(task_id="t", question="q", step=1, summary=summary, recent=())
        assert (await rules.step(context)).action == action
    for correct, kept in ((True, NAMES), (False, ("expel", "voyager")), (None, ("expel", "voyager"))):
        ending = EndContext(task_id="t", question="q", summary="", outcome=Outcome(correct=correct), cards=CARDS)
        assert (await rules.end(ending)).providers == kept


def test_the_prompt_holds_guide_records_rules_previews_and_only_what_fits() -> None:
    prompt = render(BASE, begin("How many sheep or hens?", empty=["voyager"]), CHAT)
    assert "- expel: what expel stores; how expel finds it" in prompt
    assert '- awm: solved 1 of 5; strong at general; solved "How many hens?"; failed "How many cows?"' in prompt
    assert "Rules of thumb for this kind: expel (40% of 5)." in prompt
    assert "- voyager: (empty)" in prompt
    assert "Name the capital." not in prompt
    assert prompt.endswith('{"provider": "<name of one provider>"}')
    assert render(BASE, begin("How many?"), COMPACT, labels=True).endswith("Best provider for this task:")


def test_a_compact_prompt_stays_short_whatever_it_is_given() -> None:
    long = "How many words " + "in a very long question " * 200
    base = KnowledgeBase.from_table(table(*(row(i, f"{long} {i}", dict.fromkeys(NAMES, 1.0)) for i in range(5))), CARDS)
    context = begin(long).model_copy(update={"previews": tuple(Preview(provider=n, text=long[:200]) for n in NAMES)})
    assert len(render(base, context, COMPACT, labels=True)) < 1600


def test_a_kind_of_task_that_exploration_never_met_leaves_its_records_out() -> None:
    prompt = render(BASE, begin("Who speaks in the podcast?"), CHAT)
    assert "earlier tasks" not in prompt
    assert "Rules of thumb" not in prompt
    assert "- expel: expel shows this" in prompt


class Scripted(ChatModel):
    """A chat model that answers from a list, through the real validation."""

    def __init__(self, *answers: str) -> None:
        super().__init__("http://127.0.0.1:9/v1", "scripted")
        self.answers = list(answers)
        self.asked: list[str] = []

    async def complete(self, messages: Sequence[Message], **_: Any) -> Any:
        from lm.types import Completion

        self.asked.append(messages[-1].content)
        return Completion(text=self.answers.pop(0), finish_reason="stop")


async def test_a_chat_model_decides_and_an_illegal_answer_is_repaired_once() -> None:
    answerer = Scripted('{"provider": "none of them"}', '{"provider": "voyager"}')
    decision = await PromptRoute(BASE, answerer).begin(begin("How many sheep?"))
    assert decision.providers == ("voyager",)
    assert not decision.fallback
    assert "'expel', 'awm' or 'voyager'" in answerer.asked[1]


def during(summary: str = "2 facts: hens lay eggs") -> InContext:
    seen = Step(index=0, tool="search", arguments={"query": "hens"}, observation="many")
    return InContext(task_id="t", question="How many sheep?", step=1, summary=summary, recent=(seen,))


def after(correct: bool | None = True) -> EndContext:
    outcome = Outcome(correct=correct)
    return EndContext(task_id="t", question="How many sheep?", summary="Steps: 3", outcome=outcome, cards=CARDS)


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("prompt_route_in", render_in(BASE, during(), CHAT)),
        ("prompt_route_end", render_end(BASE, after(), NAMES, CHAT)),
    ],
)
def test_golden_renderings_of_the_later_phases(name: str, prompt: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(prompt, encoding="utf-8")
    assert prompt == path.read_text(encoding="utf-8")


async def test_a_chat_model_decides_in_and_end_too() -> None:
    answerer = Scripted('{"action": "no_op"}', '{"providers": ["voyager", "expel"]}', '{"providers": []}')
    policy = PromptRoute(BASE, answerer)
    assert (await policy.step(during())).action == "no_op"
    assert '"query", with an empty one "no_op"' in answerer.asked[0]
    assert (await policy.end(after())).providers == ("expel", "voyager")
    assert (await policy.end(after())).providers == ()
    assert "solved 2 of 5" in answerer.asked[1]


async def test_only_providers_whose_gate_takes_the_outcome_are_offered_at_end() -> None:
    answerer = Scripted('{"providers": ["awm"]}', '{"providers": ["expel"]}')
    assert (await PromptRoute(BASE, answerer).end(after(correct=False))).providers == ("expel",)
    assert "awm" not in answerer.asked[0]


async def test_illegal_answers_at_in_and_end_leave_it_to_the_rules_and_say_so() -> None:
    decided = await PromptRoute(BASE, Scripted("show it", "yes, show it")).step(during())
    assert (decided.action, decided.fallback) == ("query", True)
    ended = await PromptRoute(BASE, Scripted("all", '{"providers": ["memp"]}')).end(after())
    assert (ended.providers, ended.fallback) == (NAMES, True)


async def test_a_local_model_leaves_in_and_end_to_the_rules() -> None:
    policy = PromptRoute(BASE, Likes([0.0, 0.0, 0.0]))
    assert (await policy.step(during(""))).action == "no_op"
    assert (await policy.end(after(correct=False))).providers == ("expel", "voyager")


async def test_two_illegal_answers_leave_it_to_the_rules_and_say_so() -> None:
    decision = await PromptRoute(BASE, Scripted("I pick expel!", json.dumps({"provider": "memp"}))).begin(
        begin("Name the anthem.")
    )
    assert decision.providers == ("awm",)
    assert decision.fallback


async def test_an_outage_is_no_illegal_answer() -> None:
    class Down(ChatModel):
        async def structured(self, *_: Any, **__: Any) -> BaseModel:  # type: ignore[override]
            raise ModelError("the endpoint is down", retryable=True)

    with pytest.raises(ModelError, match="down") as failure:
        await PromptRoute(BASE, Down("http://127.0.0.1:9/v1", "m")).begin(begin("Name the anthem."))
    assert not isinstance(failure.value, AnswerError)


class Likes:
    """Scores labels by a table, and keeps what it was asked."""

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores = list(scores)
        self.asked: tuple[str, tuple[str, ...]] = ("", ())

    async def score(self, prompt: str, labels: Sequence[str]) -> list[float]:
        self.asked = (prompt, tuple(labels))
        return self.scores


async def test_a_local_model_decides_by_the_likeliest_name() -> None:
    scorer = Likes([-2.0, -1.0, -1.0])
    decision = await PromptRoute(BASE, scorer).begin(begin("How many sheep?"))
    assert decision.providers == ("awm",)
    assert scorer.asked[1] == (" expel", " awm", " voyager")
    assert scorer.asked[0].endswith("Best provider for this task:")
    for broken in ([], [1.0, 2.0], [float("nan")] * 3):
        with pytest.raises(ModelError, match="scored 3 providers"):
            await PromptRoute(BASE, Likes(broken)).begin(begin("How many sheep?"))
