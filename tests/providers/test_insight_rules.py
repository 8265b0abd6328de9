"""The rule distiller's artefacts for memories of many small items."""

from __future__ import annotations

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG

from providers.base import AdviceItem, Insight, PastRun, Principle, SheetItem
from providers.distill.rules import RuleDistiller
from providers.types import Outcome, Step, Trajectory

RULES = RuleDistiller()


def looked_up(label: str = "Area", question: str = "What is the area of Chad?", detours: int = 0) -> Trajectory:
    page = f"# Chad: Geography\nSite: atlas\nLast updated: 2024\n\n{label}: 10\n"
    steps = [
        Step(index=n, tool="open", arguments={"page": "Mali"}, observation=f"# Mali {n}\n\nNothing.\n")
        for n in range(detours)
    ]
    steps.append(Step(index=detours, tool="open", arguments={"page": "Chad: Geography"}, observation=page))
    thought = f'Read "{label}" on "Chad: Geography". Answer with the value.'
    steps.append(Step(index=detours + 1, tool="answer", thought=thought, arguments={"text": "10"}))
    return Trajectory.make(task_id="t", question=question, agent="toy", seed=0, steps=tuple(steps), answer="10")


def guessed() -> Trajectory:
    step = Step(index=0, tool="answer", thought="I do not know.", arguments={"text": "1"})
    return Trajectory.make(task_id="t", question="What?", agent="toy", seed=0, steps=(step,), answer="1")


async def test_a_guess_teaches_no_item_of_any_kind() -> None:
    run = guessed()
    for outcome in (CORRECT, WRONG, UNKNOWN):
        assert await RULES.votes(run, outcome, ()) == ()
        assert await RULES.tips(run, outcome) == ()
        assert await RULES.reasoning(run, outcome) == ()
        assert await RULES.principle(run, outcome) is None
        assert await RULES.strategies(run, outcome) is None
        assert await RULES.shortcut(run, outcome) is None


async def test_votes_add_the_insights_and_never_edit() -> None:
    known = (Insight(text="Area stands under Geography.", kind="success"),)
    for outcome in (CORRECT, WRONG):
        votes = await RULES.votes(looked_up(), outcome, known)
        assert [(vote.text, vote.kind) for vote in votes] == [
            (insight.text, insight.kind) for insight in await RULES.insights(looked_up(), outcome)
        ]
        assert {vote.operation for vote in votes} == {"ADD"}


async def test_a_shortcut_has_blanks_for_the_names_and_keeps_the_label() -> None:
    shortcut = await RULES.shortcut(looked_up(), CORRECT)
    assert shortcut is not None
    assert shortcut.steps == ('open "{subject}: Geography"', 'read "Area"', "answer with the value")
    assert "Area" in shortcut.precondition
    assert shortcut.name.isidentifier()


async def test_a_principle_guides_from_success_and_cautions_from_failure() -> None:
    good, bad = await RULES.principle(looked_up(), CORRECT), await RULES.principle(looked_up(), WRONG)
    assert good is not None
    assert bad is not None
    assert (good.kind, bad.kind) == ("guiding", "cautionary")
    assert ("Area", "stands under", "Geography") in good.triplets
    assert await RULES.same_principle(good, good)
    assert not await RULES.same_principle(good, bad)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('Read "Area" under "Geography" when asked: how big is it.', True),
        ('Read "Area" under "Geography" when someone asked: how big is it.', True),
        ('Read "Coast" under "Geography" when asked: how big is it.', False),
        ("Search for the thing named.", False),
    ],
)
async def test_principles_that_name_other_things_are_not_the_same(text: str, same: bool) -> None:
    first = Principle(description='Read "Area" under "Geography" when asked: how big is it.', kind="guiding")
    assert await RULES.same_principle(first, Principle(description=text, kind="guiding")) is same


@pytest.mark.parametrize(("outcome", "ended"), [(CORRECT, "correct"), (WRONG, "wrong"), (UNKNOWN, "unknown")])
async def test_a_summary_says_how_the_run_ended_and_stays_short(outcome: Outcome, ended: str) -> None:
    summary = await RULES.run_summary(looked_up(detours=900), outcome)
    assert summary is not None
    assert summary.endswith(f"Outcome: {ended}")
    assert len(summary.split()) < 400
    guess = await RULES.run_summary(guessed(), outcome)
    assert guess is not None
    assert "guess" in guess


async def test_advice_prefers_shared_words_then_success_then_nearness() -> None:
    items = [
        AdviceItem(text="Rivers stand under Geography."),
        AdviceItem(text="Coal stands under Energy.", uses=4, wins=0),
        AdviceItem(text="Coal is counted in tons.", uses=4, wins=4),
        AdviceItem(text="Coal output of a country: look at Energy."),
    ]
    advice = await RULES.advise("coal output", items, 2)
    assert advice is not None
    assert advice.picked == (3, 2)
    assert advice.text == "- Coal output of a country: look at Energy.\n- Coal is counted in tons."
    assert await RULES.advise("xyzzy", items, 2) is None


async def test_a_sheet_is_rewritten_with_the_new_first_and_the_least_used_lost() -> None:
    sheet = [
        SheetItem(description="area of Peru", example="open it", uses=1),
        SheetItem(description="tax of Mali", example="open it", uses=0),
        SheetItem(description="coal of Mali", example="open it", uses=5),
    ]
    run = PastRun(question="area of Chad", summary="Steps: open; read.\nOutcome: correct")
    entries = await RULES.curate("area of Togo", sheet, [run], max_words=100)
    assert [entry.continues for entry in entries] == [None, 0, 2, 1]
    assert [entry.source for entry in entries] == [0, None, None, None]
    assert [entry.used for entry in entries] == [False, True, False, False]
    assert entries[0].example == "Steps: open; read.\nOutcome: correct"
    short = await RULES.curate("area of Togo", sheet, [run], max_words=18)
    assert [entry.continues for entry in short] == [None, 0, 2]
    long = PastRun(question="area of Chad", summary="Steps: " + "open it; " * 400)
    assert len((await RULES.curate("area", [], [long], max_words=50))[0].example.split()) == 25
    known = [SheetItem(description="area of Chad"), *sheet]
    assert all(entry.continues is not None for entry in await RULES.curate("area", known, [run], max_words=100))


async def test_reasoning_items_say_what_kind_of_lesson_they_are() -> None:
    (good,) = await RULES.reasoning(looked_up(), CORRECT)
    (bad,) = await RULES.reasoning(looked_up(), WRONG)
    assert good.title == "Where it stands"
    assert bad.title == "What to avoid"
    assert "Area" in good.content
    assert "area" in good.description
