"""The case-based agent on a toy site: what it does alone, what memory changes, and what leads it astray."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from providers.base import Parameter
from providers.distill.rules import RuleDistiller
from providers.distill.shape import read_shape
from providers.tools import ToolResult
from providers.types import Injection, Outcome, SkillSpec, Split, Step, Task, Trajectory
from synth.agents.case_based import CaseBased

PEOPLE = {"Arda": 16.5, "Bree": 33.0, "Coral": 21.0, "Dale": 48.5}
CAPITALS = {"Arda": "Moss", "Bree": "Fenn", "Coral": "Loam", "Dale": "Vell"}
BORDERS = {"Arda": ["Bree", "Coral", "Dale"]}
SECTIONS = ("Economy", "Geography", "People", "Energy", "Military")


def page(name: str, section: str = "") -> str:
    url = f"/{name.lower()}" + (f"/{section.lower()}" if section else "")
    lines = [f"# {name}: {section}" if section else f"# {name}", f"URL: {url}", "Site: Atlas", ""]
    if section == "People":
        lines += [f"Median age: {PEOPLE[name]} years", f"Birth rate: {60 - PEOPLE[name]} births", "Religions: many"]
    if section == "Energy":
        lines += [f"Capital: {CAPITALS[name]}"]
    if section == "Geography":
        near = "; ".join(f"[{other}](/{other.lower()}) 100 km" for other in BORDERS.get(name, ["Bree", "Dale"]))
        lines += [f"Border countries: {near}", "Climate: mild"]
    if section == "Economy":
        lines += ["Exports: 5 million", "Industries: wool"]
    lines += ["", "Links:"]
    lines += [f"- [{name}: {other}](/{name.lower()}/{other.lower()})" for other in SECTIONS if other != section]
    return "\n".join(lines)


class Search:
    name = "search"
    doc = "Search the atlas."
    parameters = (Parameter(name="query"),)

    async def call(self, **arguments: Any) -> ToolResult:
        hits = [name for name in PEOPLE if name.lower() in str(arguments["query"]).lower()]
        stated = [name for name, capital in CAPITALS.items() if capital in str(arguments["query"])]
        if stated:
            hit = f"1. [{stated[0]}: Energy](/{stated[0].lower()}/energy) - Atlas - Capital: {CAPITALS[stated[0]]}"
            return ToolResult(observation=f'Search results for "{arguments["query"]}" (page 1 of 1)\n{hit}')
        if not hits:
            return ToolResult(observation=f'No results for "{arguments["query"]}".')
        lines = [f"{n}. [{name}](/{name.lower()}) - Atlas - a land" for n, name in enumerate(hits, 1)]
        return ToolResult(observation=f'Search results for "{arguments["query"]}" (page 1 of 1)\n' + "\n".join(lines))


class Open:
    name = "open"
    doc = "Open a page by address or title."
    parameters = (Parameter(name="page"),)

    async def call(self, **arguments: Any) -> ToolResult:
        wanted = str(arguments["page"]).lower().replace(": ", "/").lstrip("/")
        for name, section in itertools.product(PEOPLE, ("", *SECTIONS)):
            if wanted == f"{name}/{section}".lower().rstrip("/"):
                return ToolResult(observation=page(name, section))
        return ToolResult(observation="No such page.", error=f"no page {arguments['page']}")


class Session:
    """What an agent sees of memory: fixed text and skills, no working memory."""

    def __init__(self, memory: str = "", skills: tuple[SkillSpec, ...] = (), value: str = "") -> None:
        self.memory = memory
        self.skills = skills
        self.value = value
        self.injections: tuple[Injection, ...] = ()
        self.called: list[dict[str, object]] = []

    async def step(self, steps: tuple[Step, ...]) -> str:
        return ""

    async def call_skill(self, skill: SkillSpec, arguments: dict[str, object], tools: Any) -> ToolResult:
        self.called.append(arguments)
        return ToolResult(observation=self.value)


async def solve(question: str, session: Session | None = None, max_steps: int = 12, seed: int = 1) -> Trajectory:
    task = Task(id="t", question=question, suite="toy", split=Split.DEV)
    return await CaseBased().run(task, (Search(), Open()), session or Session(), seed=seed, max_steps=max_steps)


PARAPHRASE = "What is the age that splits the people of Arda into two equal halves?"
LESSON = 'Asked about the age that splits people into halves: read "Median age" under "People".'
EXTREME = "Which of the lands around Arda has the {} median age?"
WORKFLOW = (
    "Workflow: which of the lands around {subject} has the {superlative} birth rate\n"
    '1. open "{subject}: Geography"\n2. read "Border countries"\n'
    '3. for each name there, open "{name}: People" and read "Birth rate"\n4. answer with the name of the {superlative}'
)


async def test_a_plainly_named_field_needs_no_memory() -> None:
    assert (await solve("What is the median age of Bree?")).answer == "33.0 years"


async def test_a_lesson_answers_a_paraphrase_in_fewer_steps() -> None:
    alone, told = await solve(PARAPHRASE), await solve(PARAPHRASE, Session(LESSON))
    assert told.answer == "16.5 years"
    assert len(told.steps) < len(alone.steps)


async def test_a_warning_keeps_the_agent_off_a_label() -> None:
    told = await solve("What is the median age of Bree?", Session('"Median age" was not what was meant.'))
    assert not any('"Median age"' in step.thought for step in told.steps[:-1])


async def test_a_workflow_reaches_an_extreme_that_steps_alone_do_not() -> None:
    question = EXTREME.format("highest")
    assert (await solve(question, max_steps=7)).answer != "Dale"
    assert (await solve(question, Session(WORKFLOW), max_steps=7)).answer == "Dale"


async def test_a_workflow_takes_the_questions_superlative_but_a_literal_one_misleads() -> None:
    question = EXTREME.format("lowest")
    assert (await solve(question, Session(WORKFLOW))).answer == "Coral"
    literal = WORKFLOW.replace("name of the {superlative}", "name of the highest")
    assert (await solve(question, Session(literal))).answer == "Dale"


async def test_a_blank_label_in_a_workflow_is_filled_from_the_question() -> None:
    blank = WORKFLOW.replace('read "Birth rate"', 'read "{field}"')
    assert (await solve(EXTREME.format("lowest"), Session(blank), max_steps=7)).answer == "Coral"


async def test_a_case_judged_wrong_is_no_procedure_to_follow() -> None:
    case = 'Task: What is the median age of Dale?\nSteps: open "Dale: Economy"; read "Exports"; answer with the value.'
    question = "What is the median age of Bree?"
    assert (await solve(question, Session(case))).answer == "5 million"
    assert (await solve(question, Session(f"{case}\nResult: wrong."))).answer == "33.0 years"


async def test_a_case_about_another_thing_is_a_hint_not_a_way_to_follow() -> None:
    case = (
        "Case: What is the age that halves the people of the land whose capital is Vell?\n"
        'search for "Vell"; open "Dale: Energy"; read "Capital"; open "Dale: People"; read "Median age"; '
        "answer with the value."
    )
    question = "What is the age that halves the people of the land whose capital is Fenn?"
    told = await solve(question, Session(case))
    assert told.answer == "33.0 years"
    assert not any("Dale" in str(step.arguments) for step in told.steps)


async def test_a_thing_leads_to_whose_page_states_it() -> None:
    run = await solve("What is the birth rate of the land whose capital is Vell?")
    assert run.answer == "11.5 births"
    workflow = await RuleDistiller().workflow(run, Outcome(correct=True))
    assert workflow is not None
    assert "Dale" not in workflow.text
    assert "{found}: People" in workflow.text


async def test_an_unrelated_text_changes_nothing_that_is_answered() -> None:
    noise = 'Workflow: bake bread\n1. open "{subject}: Oven"\n2. read "Heat"\n3. answer with the number of names'
    assert (await solve("What is the median age of Bree?", Session(noise))).answer == "33.0 years"


async def test_a_short_cut_is_tried_where_the_text_has_to_do_with_the_question() -> None:
    question = "What is the capital of Bree?"
    kin = 'Asked about the capital: open "{name}: Energy" and read "Capital".'
    other = 'Asked about exports: open "{name}: Energy" and read "Output".'
    near, far = await solve(question, Session(kin)), await solve(question, Session(other))
    assert near.steps[0].arguments == {"page": "Bree: Energy"}
    assert far.steps[0].tool == "search"


async def test_a_fitting_skill_is_called_once_with_bound_arguments() -> None:
    skill = SkillSpec(name="median_age", parameters=(Parameter(name="subject"),), code_id="c")
    session = Session(skills=(skill,), value="33.0 years")
    run = await solve("What is the median age of Bree?", session)
    assert session.called == [{"subject": "Bree"}]
    assert run.answer == "33.0 years"
    assert len(run.steps) == 2


async def test_same_seed_same_run_and_the_step_limit_holds() -> None:
    first, second = await solve(PARAPHRASE, seed=3, max_steps=5), await solve(PARAPHRASE, seed=3, max_steps=5)
    assert first.id == second.id
    assert len(first.steps) <= 5
    assert first.steps[-1].tool == "answer"


@pytest.fixture
async def extreme_run() -> Trajectory:
    return await solve(EXTREME.format("highest"), Session(WORKFLOW))


async def test_shape_of_a_run_names_its_list_its_label_and_its_inputs(extreme_run: Trajectory) -> None:
    shape = read_shape(extreme_run)
    assert shape.kind == "extreme"
    assert (shape.listing, shape.label, shape.section) == ("Border countries", "Median age", "People")
    assert shape.names == ["Arda"]


async def test_what_stands_in_the_question_becomes_a_blank_in_a_workflow(extreme_run: Trajectory) -> None:
    workflow = await RuleDistiller().workflow(extreme_run, Outcome(correct=True))
    assert workflow is not None
    assert 'read "{field}"' in workflow.text
    assert "Arda" not in workflow.text + workflow.query
    assert "{superlative}" in workflow.query
    assert workflow.text.endswith('answer with the name of the {superlative} among the names under "Border countries"')


async def test_a_distilled_workflow_solves_the_next_task_of_its_kind(extreme_run: Trajectory) -> None:
    workflow = await RuleDistiller().workflow(extreme_run, Outcome(correct=True))
    assert workflow is not None
    told = await solve(EXTREME.format("lowest"), Session(f"{workflow.query}\n{workflow.text}"))
    assert told.answer == "Coral"


async def test_a_digest_keeps_the_literal_superlative_and_names(extreme_run: Trajectory) -> None:
    narrative = await RuleDistiller().narrative(extreme_run, Outcome(correct=None))
    assert narrative is not None
    assert "highest" in narrative.digest
    assert 'open "Dale: People"' in narrative.digest


def visit(index: int, tool: str, observation: str, thought: str = "", **arguments: str) -> Step:
    return Step(index=index, tool=tool, arguments=arguments, observation=observation, thought=thought)


@pytest.mark.parametrize("sites", [("Atlas", "Old Atlas"), ("Atlas", "Atlas")])
async def test_a_case_names_the_site_where_a_search_offered_two(sites: tuple[str, str]) -> None:
    hits = "\n".join(f"{n}. [Bree](/{n}/bree) - {site} - a land" for n, site in enumerate(sites, 1))
    read = 'Read "Median age" on "Bree: People". Answer with the value.'
    steps = (
        visit(0, "search", f'Search results for "Bree" (page 1 of 1)\n{hits}', query="Bree"),
        visit(1, "open", page("Bree", "People"), page="/1/bree/people"),
        visit(2, "answer", "Answer noted.", read, text="33.0 years"),
    )
    run = Trajectory.make(
        task_id="t", question="What is the median age of Bree?", agent="a", seed=0, steps=steps, answer="33.0 years"
    )
    case = await RuleDistiller().condensed_run(run, Outcome(correct=True))
    narrative = await RuleDistiller().narrative(run, Outcome(correct=True))
    assert case is not None
    assert narrative is not None
    opening = 'open "Bree: People" on "Atlas"; read' if sites[0] != sites[1] else 'open "Bree: People"; read'
    assert opening in case
    assert opening in narrative.digest


async def test_a_skill_over_a_list_is_named_by_what_it_compares_and_whom(extreme_run: Trajectory) -> None:
    skill = await RuleDistiller().skill(extreme_run, Outcome(correct=True))
    assert skill is not None
    assert skill.name == "compare_median_age_border_countries"


async def test_success_teaches_where_to_read_and_failure_what_not() -> None:
    run = await solve(PARAPHRASE, Session(LESSON))
    good = await RuleDistiller().insights(run, Outcome(correct=True))
    bad = await RuleDistiller().insights(run, Outcome(correct=False))
    assert any('Read "Median age" under "People"' in insight.text for insight in good)
    assert all(insight.kind == "failure" and "not" in insight.text.lower() for insight in bad)
    assert all(len(insight.text.split()) <= 30 for insight in (*good, *bad))


async def test_a_run_without_a_reading_teaches_no_procedure() -> None:
    run = await solve("What is the colour of Nowhere?", max_steps=3)
    distiller = RuleDistiller()
    assert await distiller.workflow(run, Outcome(correct=True)) is None
    assert await distiller.skill(run, Outcome(correct=True)) is None
