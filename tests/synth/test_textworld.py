"""The textworld suite and how the case-based agent acts in it: on made-up games, and once on the real ones."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from made_games import MadeMachine
from scripted_endpoint import Endpoint, said

from lm.client import ChatModel
from providers.base import Distiller
from providers.distill.rules import RuleDistiller
from providers.errors import ConfigError, SuiteError
from providers.tools import Tool, ToolResult
from providers.types import Injection, Outcome, SkillSpec, Split, Step, Task, Trajectory
from router.table import RoutingTable
from synth.agents.case_based import CaseBased
from synth.agents.choosing import likeness, read_cases
from synth.agents.react import NO_CHANGE, ReAct
from synth.config import AgentConfig, EncoderConfig, ExploreConfig, RunConfig, SuiteConfig, WarmupConfig
from synth.explore import explore
from synth.runs import Run
from synth.tasks.base import DataMissing, outcome_of
from synth.tasks.textworld import FOLDS, GAMES, SEEDS, TextWorld
from synth.tasks.textworld_games import JavaMachine
from synth.warmup import warm_up

SOLVED = 'Task: Fetch the money.\nSteps: do "look around"; do "light lamp"; do "take coin"; answer with done.'


class MadeWorld(TextWorld):
    """The suite over made-up games, as a config names it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, games=("coin", "twc"), machine=MadeMachine)


class Session:
    def __init__(self, memory: str = "") -> None:
        self.memory = memory
        self.skills: tuple[SkillSpec, ...] = ()
        self.injections: tuple[Injection, ...] = ()

    async def step(self, steps: tuple[Step, ...]) -> str:
        return ""

    async def call_skill(self, skill: SkillSpec, arguments: dict[str, object], tools: tuple[Tool, ...]) -> ToolResult:
        raise AssertionError("there is no skill")


def made(**options: Any) -> tuple[TextWorld, MadeMachine]:
    machine = MadeMachine()
    return TextWorld(machine=lambda: machine, **options), machine


def even(tasks: list[Task]) -> Task:
    """A task whose lamp hangs in the open."""
    return next(task for task in tasks if task.meta["seed"] % 2 == 0)


def did(trajectory: Trajectory) -> list[str]:
    return [str(step.arguments["action"]) for step in trajectory.steps if step.tool == "act"]


# --- the suite ---


def test_splits_share_no_seed_and_take_the_package_s_folds() -> None:
    pools = [set(seeds) for seeds in SEEDS.values()]
    assert sum(map(len, pools)) == len(set().union(*pools))
    assert FOLDS == {Split.WARMUP: "train", Split.EXPLORE: "train", Split.DEV: "dev", Split.TEST: "test"}
    suite, machine = made()
    seen = {split: suite.tasks(split, 24) for split in Split}
    assert len({task.id for tasks in seen.values() for task in tasks}) == 24 * len(Split)
    assert {(fold, name) for name, fold, _ in machine.made} == {
        (fold, name) for fold in FOLDS.values() for name in GAMES
    }
    assert machine.starts == len(Split)
    assert not machine.running


def test_tasks_keep_the_mix_of_games_at_any_number_and_follow_the_seed() -> None:
    suite, _ = made()
    tasks = suite.tasks(Split.DEV, 20)
    assert Counter(task.family for task in tasks) == Counter([*GAMES, *GAMES, *list(GAMES)[:4]])
    assert suite.tasks(Split.DEV, 9) == tasks[:9]
    assert made()[0].tasks(Split.DEV, 20) == tasks
    assert made(seed=1)[0].tasks(Split.DEV, 20) != tasks
    assert tasks[0].question == f"Fetch the money of shed {tasks[0].meta['seed']} in the dev fold."


def test_tasks_of_other_settings_have_other_ids_and_no_gold() -> None:
    small, large = (made(games={"coin": f"numLocations={n}"})[0].tasks(Split.DEV, 1)[0] for n in (2, 9))
    assert small.id != large.id
    assert small.gold is None


@pytest.mark.parametrize("games", [(), ("chess",), {"chess": ""}])
def test_unknown_games_are_refused(games: Any) -> None:
    with pytest.raises(ConfigError, match="there are cookingworld"):
        TextWorld(games=games)


def test_more_tasks_than_there_are_are_refused() -> None:
    with pytest.raises(SuiteError, match=r"has 400 warmup tasks, not 401: lower suite\.warmup"):
        made(games=("coin",))[0].tasks(Split.WARMUP, 401)


async def test_actions_change_the_game_and_say_what_can_be_done_next() -> None:
    suite, _ = made()
    async with suite:
        (act,) = suite.tools(even(suite.tasks(Split.DEV, 40)))
        first = await act.call(action="look around")
        assert (
            first.observation
            == "You stand in a shed.\n\nYou can now:\n- light lamp\n- look around\n- sing\n- take coin"
        )
        lit = await act.call(action="  light   lamp ")
        assert lit.observation.startswith(
            "You light lamp.\n\nYour score is now 0.50 of 1.\n\nYou can now:\n- look around"
        )
        wrong = await act.call(action="light lamp")
        assert wrong.error == '"light lamp" cannot be done now.'
        assert wrong.observation.endswith("- take coin")
        won = await act.call(action="take coin")
        assert won.observation == "You take it.\n\nYour score is now 1.00 of 1.\n\nYou have won. Answer with done."
        assert (await act.call(action="sing")).error == "the game is over"


async def test_the_game_says_whether_it_is_won_whatever_the_answer() -> None:
    suite, _ = made()
    async with suite:
        task = even(suite.tasks(Split.DEV, 40))
        for actions, correct, score, reason in [
            ((), False, 0.0, "nothing was done"),
            (("sing",), False, 0.0, "not finished"),
            (("light lamp",), False, 0.5, "not finished"),
            (("take coin",), False, -1.0, "lost"),
            (("light lamp", "take coin"), True, 1.0, "won"),
        ]:
            tools = suite.tools(task)
            for action in actions:
                await tools[0].call(action=action)
            outcome = await outcome_of(suite, task, "done", tools)
            assert (outcome.correct, outcome.score, outcome.reason) == (correct, score, reason)
    assert suite.score(task, "done").correct is None


async def test_runs_at_the_same_time_play_games_of_their_own() -> None:
    suite, _ = made()
    async with suite, suite:  # the same suite serves two stages of one process
        task = even(suite.tasks(Split.DEV, 40))
        one, other = suite.tools(task)[0], suite.tools(task)[0]
        await asyncio.gather(one.call(action="light lamp"), other.call(action="sing"))
        assert "Your score is now 1.00" in (await one.call(action="take coin")).observation
        assert (await other.call(action="take coin")).observation.endswith("You have lost.")
    with pytest.raises(SuiteError, match="inside `async with`"):
        suite.tools(task)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld_express.constants", None)
    monkeypatch.setitem(sys.modules, "py4j.java_gateway", None)
    with pytest.raises(DataMissing, match=r"pip install 'memroute\[textworld\]'"):
        JavaMachine().start()


# --- the case-based agent ---


def test_likeness_counts_the_verb_and_what_it_is_done_to() -> None:
    assert likeness("take coin", "take coin") == 1.0
    assert likeness("take coin", "take red apple") == 0.5
    assert likeness("take coin", "put coin in box") == pytest.approx(0.5 / 3)
    assert likeness("sing", "sing") == 1.0
    assert likeness("sing", "look around") == 0.0


def test_cases_are_read_from_any_memory_s_text() -> None:
    (digest,) = read_cases(SOLVED, "Fetch the money.")
    assert digest.actions == ("look around", "light lamp", "take coin")
    (workflow,) = read_cases(
        'Fetch {it}\n1. do "light lamp"\n2. do "take coin"\n3. answer with done', "Fetch the money."
    )
    assert workflow.actions == ("light lamp", "take coin")
    (refused,) = read_cases('- Do not do "sing" when asked: fetch the money.', "Fetch the money.")
    assert refused.weight < 0
    (lost,) = read_cases('Steps: do "sing".\nResult: wrong', "Fetch the money.")
    assert -0.4 <= lost.weight < 0
    assert read_cases('Search for "Chad"; open "Chad: Geography".', "Fetch the money.") == []


def test_a_case_goes_on_behind_what_was_done() -> None:
    (case,) = read_cases(SOLVED, "Fetch the money.")
    assert case.advice("light lamp") > case.advice("take coin") > case.advice("sing")
    case.follow("light lamp")
    assert case.advice("take coin") > case.advice("light lamp")


async def solve(memory: str, seeds: range = range(12)) -> float:
    suite, _ = made()
    solved = 0
    async with suite:
        task = even(suite.tasks(Split.DEV, 40))
        for seed in seeds:
            tools = suite.tools(task)
            await CaseBased().run(task.public(), tools, Session(memory), seed=seed, max_steps=8)
            solved += bool((await outcome_of(suite, task, None, tools)).correct)
    return solved / len(seeds)


async def test_memory_can_help_and_mislead_the_agent() -> None:
    alone = await solve("")
    assert await solve(SOLVED) == 1.0 > alone
    assert await solve('Task: Fetch the money.\nSteps: do "take coin"; answer with done.') <= alone


async def test_the_agent_ends_when_the_game_does_and_follows_its_seed() -> None:
    suite, _ = made()
    async with suite:
        task = even(suite.tasks(Split.DEV, 40))
        runs = [
            await CaseBased().run(task.public(), suite.tools(task), Session(SOLVED), seed=3, max_steps=8)
            for _ in range(2)
        ]
    assert runs[0].id == runs[1].id
    assert did(runs[0]) == ["look around", "light lamp", "take coin"]
    assert runs[0].steps[-1].thought == "Answer with done."
    assert runs[0].answer == "done"
    assert not runs[0].status


async def test_the_agent_stops_at_its_limit() -> None:
    suite, _ = made()
    async with suite:
        task = even(suite.tasks(Split.DEV, 40))
        run = await CaseBased().run(task.public(), suite.tools(task), Session(SOLVED), seed=3, max_steps=2)
    assert did(run) == ["look around", "light lamp"]
    assert run.answer is None
    assert run.status == ("step limit reached",)


# --- what memories make of it ---


async def won_run(distiller: Distiller | None = None) -> Trajectory:
    suite, _ = made()
    async with suite:
        task = even(suite.tasks(Split.DEV, 40))
        return await CaseBased().run(task.public(), suite.tools(task), Session(SOLVED), seed=3, max_steps=8)


async def test_rules_make_cases_and_workflows_of_actions_and_no_skill() -> None:
    rules, run, outcome = RuleDistiller(), await won_run(), Outcome(correct=True)
    steps = 'do "look around"; do "light lamp"; do "take coin"; answer with done.'
    assert (await rules.condensed_run(run, outcome)) == f"Case: {run.question}\n{steps}"
    workflow = await rules.workflow(run, outcome)
    assert workflow is not None
    assert workflow.text.splitlines()[1] == '2. do "light lamp"'
    narrative = await rules.narrative(run, outcome)
    assert narrative is not None
    assert narrative.digest.endswith(f"Steps: {steps}")
    (lesson,) = await rules.insights(run, outcome)
    assert lesson.text.startswith(
        'End with do "look around", do "light lamp", do "take coin" when asked: Fetch the money'
    )
    assert await rules.skill(run, outcome) is None
    assert await rules.principle(run, outcome) is None


async def test_a_lost_game_teaches_no_way() -> None:
    suite, _ = made()
    async with suite:
        task = even(suite.tasks(Split.DEV, 40))
        hasty = 'Task: Fetch the money.\nSteps: do "take coin"; answer with done.'
        run = await CaseBased().run(task.public(), suite.tools(task), Session(hasty), seed=3, max_steps=8)
    rules, outcome = RuleDistiller(), Outcome(correct=False)
    assert run.answer is None
    assert await rules.condensed_run(run, outcome) is None
    assert await rules.insights(run, outcome) == ()
    assert read_cases((await rules.narrative(run, outcome) or "").digest, run.question)  # type: ignore[union-attr]


# --- language-model agents ---


@pytest.mark.parametrize("given", ["Light lamp", "light lamp.", "- light lamp", '"LIGHT LAMP"', " light  lamp "])
async def test_an_action_may_be_written_as_models_write_it(given: str) -> None:
    suite, _ = made()
    async with suite:
        (act,) = suite.tools(even(suite.tasks(Split.DEV, 40)))
        assert (await act.call(action="Look around")).error is None
        done = await act.call(action=given)
        refused = await act.call(action="Light lantern")
    assert done.error is None
    assert done.observation.startswith("You light lamp.")
    assert refused.error == '"Light lantern" cannot be done now.'


async def test_the_worked_example_of_a_world_does_something_in_it() -> None:
    endpoint = Endpoint()
    endpoint.script = [said(json.dumps({"thought": "So.", "action": {"tool": "answer", "text": "done"}}))]
    suite, _ = made()
    try:
        async with suite:
            task = even(suite.tasks(Split.DEV, 40))
            agent = ReAct(ChatModel(endpoint.url, "m", retries=0), actions="json")
            await agent.run(task.public(), suite.tools(task), Session(), seed=7, max_steps=2)
    finally:
        endpoint.stop()
    shown = endpoint.requests[0]["messages"][0]["content"]
    assert "An example of another task, Ring the bell." in shown
    assert '"action": {"tool": "act", "action": "ring bell"}' in shown
    assert "Ilmen" not in shown


async def test_react_may_repeat_an_action_in_a_world_that_changes() -> None:
    endpoint = Endpoint()
    endpoint.script = [
        said(json.dumps({"thought": "So.", "action": {"tool": "act", "action": action}}))
        for action in ("look around", "sing", "sing", "light lamp", "look around", "take coin")
    ] + [said(json.dumps({"thought": "So.", "action": {"tool": "answer", "text": "done"}}))]
    suite, _ = made()
    try:
        async with suite:
            task = even(suite.tasks(Split.DEV, 40))
            tools = suite.tools(task)
            agent = ReAct(ChatModel(endpoint.url, "m", retries=0), actions="json")
            run = await agent.run(task.public(), tools, Session(), seed=7, max_steps=8)
            outcome = await outcome_of(suite, task, run.answer, tools)
    finally:
        endpoint.stop()
    assert [step.error for step in run.steps] == [None] * 7
    assert run.steps[1].observation.startswith("You sing.")
    assert run.steps[2].observation.startswith(f"{NO_CHANGE}\nYou sing.")  # told, and done all the same
    assert NO_CHANGE not in run.steps[4].observation  # the lamp has changed what there is to see
    assert outcome.correct


# --- a whole exploration ---


async def test_an_exploration_of_games_is_scored_by_the_games(tmp_path: Path) -> None:
    config = RunConfig(
        name="games",
        runs_dir=tmp_path,
        suite=SuiteConfig(name="test_textworld:MadeWorld", warmup=8, explore=6, dev=2, test=2),
        agent=AgentConfig(max_steps=8, warmup_max_steps=8),
        providers=("awm", "voyager"),
        encoder=EncoderConfig(name="hashing"),
        warmup=WarmupConfig(tries=3, passes=1),
        explore=ExploreConfig(waves=2, in_modes=("query",)),
    )
    with Run.open(config) as run:
        warmed = await warm_up(run)
        await explore(run)
        table = RoutingTable.load(run.table("explore"))
    assert warmed.records["awm"] == warmed.solved > 0
    outcomes = [cell.correct for row in table.rows for cell in row.cells]
    assert None not in outcomes
    assert {0.0, 1.0} <= set(outcomes)


# --- the real games ---


@pytest.mark.slow
async def test_the_real_games_are_played_by_their_seeds_and_won_by_doing_what_they_say() -> None:
    pytest.importorskip("textworld_express")
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    suite = TextWorld()
    async with suite:
        tasks = suite.tasks(Split.DEV, 16)
        assert {task.family for task in tasks} == set(GAMES)
        simon, order = (next(task for task in tasks if task.family == name) for name in ("simonsays", "peckingorder"))
        for task in (simon, order):
            tools = suite.tools(task)
            run = await CaseBased().run(task.public(), tools, Session(), seed=0, max_steps=20)
            assert (await outcome_of(suite, task, run.answer, tools)).correct, did(run)
        for task in tasks[: len(GAMES)]:
            runs = [
                await CaseBased().run(task.public(), suite.tools(task), Session(), seed=1, max_steps=8)
                for _ in range(2)
            ]
            assert runs[0].id == runs[1].id
    again = TextWorld()
    assert again.tasks(Split.DEV, 16) == tasks  # from a machine of its own
    with pytest.raises(SuiteError, match="refuses the game coin"):
        TextWorld(games={"coin": "numLocations=99"}).tasks(Split.DEV, 1)
