"""Agents of one's own: a function, and a command that reads a task and writes a transcript."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_world import Open, toy_config, value_of

from providers.errors import AgentError, ConfigError
from providers.types import Injection, SkillSpec, Split, Step, Task, Trajectory
from synth.agents.own import LAST_CALL, CommandAgent, FunctionAgent
from synth.config import AgentConfig
from synth.explore import explore
from synth.runs import Run
from synth.warmup import warm_up

HERE = __name__
TASK = Task(id="t", question="What is the mass of x?", suite="toy", split=Split.TEST)


class Session:
    """A session with a memory, whose working memory counts the steps."""

    memory = "For mass read Total weight"
    skills: tuple[SkillSpec, ...] = ()
    injections = (Injection(phase="begin", provider="p", text=memory),)

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def step(self, steps: tuple[Step, ...]) -> str:
        self.asked.append(len(steps))
        return f"{len(steps)} seen" if steps else ""

    async def call_skill(self, *_: Any) -> Any:
        raise AssertionError


async def run(agent: FunctionAgent | CommandAgent, session: Session | None = None, max_steps: int = 3) -> Trajectory:
    return await agent.run(TASK, (Open(),), session or Session(), seed=7, max_steps=max_steps)


def reads(question: str, memory: str, tools: dict[str, Callable[..., str]]) -> str:
    label, thing = memory.removeprefix("For mass read ") or "Head count", question.split()[-1].rstrip("?")
    lines = dict(line.split(": ", 1) for line in tools["open"](page=thing).splitlines() if ": " in line)
    return lines.get(label, "")


async def reads_twice(question: str, memory: str, tools: dict[str, Any]) -> str:
    one, other = await asyncio.gather(tools["open"](page="x"), tools["open"](page="y"))
    return f"{one}\n{other}"


def never_ends(question: str, memory: str, tools: dict[str, Callable[..., str]]) -> str:
    for _ in range(50):
        if (text := tools["open"](page="x")) == LAST_CALL:
            return text
    raise AssertionError


def silent(question: str, memory: str, tools: dict[str, Callable[..., str]]) -> None:
    return None


def odd(question: str, memory: str, tools: dict[str, Callable[..., str]]) -> int:
    return 1


async def test_a_functions_tool_calls_are_its_steps() -> None:
    session = Session()
    made = await run(FunctionAgent(f"{HERE}:reads"), session)
    assert made.answer == value_of("x", "Total weight")
    assert [(step.index, step.tool, step.arguments) for step in made.steps] == [(0, "open", {"page": "x"})]
    assert made.steps[0].lineage is not None
    assert made.injections == Session.injections
    assert session.asked == [0, 1]


async def test_a_coroutines_calls_are_taken_one_after_the_other_with_working_memory_between() -> None:
    session = Session()
    made = await run(FunctionAgent(f"{HERE}:reads_twice"), session)
    assert made.answer is not None
    assert "Notes from your steps so far:\n1 seen\n# y" in made.answer
    assert [step.arguments["page"] for step in made.steps] == ["x", "y"]
    assert session.asked == [0, 1, 2]


async def test_a_function_is_told_of_the_step_limit() -> None:
    made = await run(FunctionAgent(f"{HERE}:never_ends"), max_steps=2)
    assert (len(made.steps), made.answer) == (2, LAST_CALL)


async def test_what_a_function_may_return() -> None:
    assert (await run(FunctionAgent(f"{HERE}:silent"))).answer is None
    with pytest.raises(AgentError, match="returned int"):
        await run(FunctionAgent(f"{HERE}:odd"))
    for wrong, said in (("reads", "module:name"), ("nowhere:f", "cannot be imported"), (f"{HERE}:gone", "no gone")):
        with pytest.raises(ConfigError, match=said):
            FunctionAgent(wrong)


ECHO = """
import json, sys
task = json.load(sys.stdin)
call = {"id": "1", "function": {"name": "grep", "arguments": json.dumps({"query": task["question"]})}}
print(json.dumps({"messages": [
    {"role": "system", "content": task["memory"]},
    {"role": "user", "content": "whatever was asked"},
    {"role": "assistant", "content": "I look.", "tool_calls": [call]},
    {"role": "tool", "tool_call_id": "1", "content": "found"},
    {"role": "assistant", "content": f"{task['memory']} {task['seed']} {task['max_steps']}"}]}))
"""


def python(script: str) -> CommandAgent:
    return CommandAgent([sys.executable, "-c", script])


async def test_a_command_reads_a_task_and_writes_a_transcript() -> None:
    made = await run(python(ECHO))
    assert made.answer == "For mass read Total weight 7 3"
    assert (made.task_id, made.question, made.agent, made.seed) == ("t", TASK.question, "command", 7)
    (step,) = made.steps
    assert (step.tool, step.arguments, step.observation) == ("grep", {"query": TASK.question}, "found")
    assert step.lineage is not None
    assert step.lineage.source == TASK.question
    alone = await run(python('print(\'{"answer": "4"}\')'))
    assert (alone.answer, alone.steps) == ("4", ())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('no key')", "ended with 1: no key"),
        ("print('thinking')", "wrote no JSON"),
        ("print('[]')", "no transcript"),
        ("print('{\"answer\": 4}')", "no transcript"),
        ("print('{\"messages\": [3]}')", "cannot be read"),
        ("print('{\"messages\": []}')", "cannot be read"),
    ],
)
async def test_a_command_that_fails_or_writes_something_else(script: str, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        await run(python(script))


async def test_a_command_that_is_missing_or_hangs(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="cannot be started"):
        await run(CommandAgent(["/does/not/exist"]))
    with pytest.raises(ConfigError, match="a list"):
        CommandAgent("python agent.py")
    mark = tmp_path / "mark"
    hanging = python(f"import time; time.sleep(3); open({str(mark)!r}, 'w')")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await run(hanging)
    await asyncio.sleep(0.1)
    assert not mark.exists()


async def test_exploration_with_a_function_of_ones_own(tmp_path: Path) -> None:
    agent = AgentConfig(name="function", options={"function": f"{HERE}:reads"})
    with Run.open(toy_config(tmp_path, agent=agent, providers=("expel", "voyager"))) as opened:
        await warm_up(opened)
        await explore(opened)
        episodes = opened.facts.episodes("explore")
    assert {one.status for one in episodes.values()} == {"done"}
    assert any(one.outcome.correct for one in episodes.values())
