"""The rule distiller's artefacts for memories of whole runs, and its answers to what they ask."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_toys import CORRECT, UNKNOWN, WRONG

from providers.base import Experience
from providers.distill.digests import WORDS
from providers.distill.rules import RuleDistiller
from providers.distill.scripts import WARNINGS
from providers.types import Outcome, Step, Trajectory

RULES = RuleDistiller()


def opened(title: str, index: int = 0, error: str | None = None) -> Step:
    page = "" if error else f"# {title}\nSite: atlas\n\nArea: 10\n"
    return Step(index=index, tool="open", arguments={"page": title}, observation=page, error=error)


def looked_up(label: str = "Area", question: str = "What is the area of Chad?", detours: int = 0) -> Trajectory:
    steps = [opened(f"Mali {n}", n) for n in range(detours)]
    steps.append(opened("Chad: Geography", detours))
    thought = f'Read "{label}" on "Chad: Geography". Answer with the value.'
    steps.append(Step(index=detours + 1, tool="answer", thought=thought, arguments={"text": "10"}))
    return Trajectory.make(task_id="t", question=question, agent="toy", seed=0, steps=tuple(steps), answer="10")


def guessed(*steps: Step, question: str = "What?") -> Trajectory:
    last = Step(index=len(steps), tool="answer", thought="I do not know.", arguments={"text": "1"})
    return Trajectory.make(task_id="t", question=question, agent="toy", seed=0, steps=(*steps, last), answer="1")


async def test_a_digest_leaves_out_detours_and_does_not_say_how_it_ended() -> None:
    digests = {await RULES.digest(looked_up(detours=3), outcome) for outcome in (CORRECT, WRONG, UNKNOWN)}
    assert digests == {
        'Task: What is the area of Chad?\nSteps: open "Chad: Geography"; read "Area"; answer with the value.'
    }


async def test_a_guess_is_digested_with_all_its_steps_and_gives_no_script_or_experience() -> None:
    run = guessed(opened("Mali"))
    assert await RULES.digest(run, WRONG) == 'Task: What?\nSteps: open "Mali"; guess.'
    assert await RULES.script(run, CORRECT) is None
    assert await RULES.experience(run, CORRECT) is None


@given(st.lists(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1), min_size=1, max_size=120))
async def test_a_digest_has_at_most_150_words_and_keeps_its_ending(titles: list[str]) -> None:
    run = guessed(*(opened(f"page {title}", n) for n, title in enumerate(titles)))
    digest = await RULES.digest(run, UNKNOWN)
    assert digest is not None
    assert len(digest.split()) <= WORDS
    assert digest.endswith("guess.")


@pytest.mark.parametrize(
    ("run", "outcome", "importance"),
    [
        (looked_up(), CORRECT, 1),
        (looked_up(), UNKNOWN, 1),
        (looked_up(), WRONG, 3),
        (looked_up(detours=4), CORRECT, 3),
        (looked_up(detours=30), CORRECT, 4),
        (guessed(*(opened("x", n, error="no page") for n in range(4))), WRONG, 5),
    ],
)
async def test_importance_grows_with_detours_errors_and_failure(
    run: Trajectory, outcome: Outcome, importance: int
) -> None:
    assert await RULES.importance(run, outcome) == importance


async def test_ratings_follow_the_words_that_are_shared() -> None:
    ratings = await RULES.ratings("the area of Chad", ("Chad has an area", "the area", "a coal mine in the"))
    assert ratings == (10, 5 + round(0.5), 1)
    assert await RULES.ratings("of the", ("of the",)) == (1,)


@given(st.text(), st.lists(st.text(), max_size=4))
async def test_there_is_a_rating_from_1_to_10_per_note(question: str, notes: list[str]) -> None:
    ratings = await RULES.ratings(question, notes)
    assert len(ratings) == len(notes)
    assert all(1 <= rating <= 10 for rating in ratings)


async def test_a_script_has_blanks_and_its_steps_have_names() -> None:
    script = await RULES.script(looked_up(), CORRECT)
    assert script is not None
    assert "Chad" not in script.script
    assert script.script.splitlines()[1:] == [
        '1. open "{subject}: Geography"',
        '2. read "{field}"',
        "3. answer with the value",
    ]
    assert script.steps == 'open "Chad: Geography"; read "Area"; answer with the value.'


async def test_a_failed_run_warns_against_the_label_that_the_script_led_to() -> None:
    script = await RULES.script(looked_up(), CORRECT)
    assert script is not None
    revised = await RULES.revised_script(script, looked_up(question="What area of Chad is water?"))
    assert revised is not None
    assert revised.steps == script.steps
    assert revised.script == f'{script.script}\nNot "Area" when asked: What area of is water.'
    assert await RULES.revised_script(revised, looked_up(question="What area of Chad is water?")) is None
    assert await RULES.revised_script(script, looked_up(label="Population")) is None
    assert await RULES.revised_script(script, guessed()) is None


async def test_a_script_keeps_its_last_warnings_only() -> None:
    script = await RULES.script(looked_up(), CORRECT)
    for topic in ("water", "forest", "desert", "farmland"):
        assert script is not None
        script = await RULES.revised_script(script, looked_up(question=f"What area of Chad is {topic}?"))
    assert script is not None
    warnings = [line for line in script.script.splitlines() if line.startswith("Not ")]
    assert len(warnings) == WARNINGS
    assert "forest" in warnings[0]
    assert "farmland" in warnings[-1]


async def test_an_experience_has_four_fields_with_something_in_each() -> None:
    experience = await RULES.experience(looked_up(), CORRECT)
    assert experience is not None
    assert experience.plan.endswith("3. answer with the value")
    assert all(text.strip() for text in experience.model_dump().values())
    assert "Chad" not in experience.plan + experience.search_plan


def made_experience(plan: str, lessons: str) -> Experience:
    return Experience(plan=plan, search_plan="Search.", lessons=lessons, search_lessons="Look there.")


async def test_the_student_gives_each_plan_once_and_the_teacher_the_lessons_that_fit() -> None:
    question = "What is the area of Chad?"
    experiences = [
        made_experience("open A", "Coal stands under Energy."),
        made_experience("open A", "The area stands under Geography."),
        made_experience("open B", "Chad has its area on top."),
    ]
    suggestions = await RULES.suggestions(question, experiences)
    assert suggestions == "Search.\nopen A\n\nSearch.\nopen B"
    refinement = await RULES.refinement(question, experiences, suggestions)
    assert refinement.splitlines()[:2] == ["- Chad has its area on top.", "- The area stands under Geography."]
    assert len(refinement.splitlines()) == 3
    said = "Chad has its area on top."
    assert said not in await RULES.refinement(question, experiences, f"{suggestions}\n{said}")
    assert await RULES.search_text(question) == question
