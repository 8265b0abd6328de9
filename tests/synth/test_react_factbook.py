"""The ReAct agent on the factbook suite, with a scripted endpoint in the place of its model, from warm-up to data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import Endpoint, Play, said

from providers.types import Split
from router.table import RoutingTable
from synth.config import (
    AgentConfig,
    DatasetConfig,
    EncoderConfig,
    EndpointConfig,
    ExploreConfig,
    ModelsConfig,
    RunConfig,
    SuiteConfig,
    WarmupConfig,
)
from synth.dataset import build
from synth.explore import explore
from synth.rewards import score
from synth.runs import Run
from synth.warmup import warm_up

_LINK = re.compile(r"\]\((/[^)]+)\)")


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.stop()


def searcher(request: dict[str, Any]) -> Play:
    """Searches for the question, opens the first page found, and answers with the line most like the question."""
    if "tools" in request:
        return said("Lemons are yellow.")  # tool_choice is ignored, so that actions are written
    turns = request["messages"]
    question = turns[1]["content"].splitlines()[0].removeprefix("Task: ")
    seen = turns[-1]["content"]
    if len(turns) == 2:
        action: dict[str, Any] = {"tool": "search", "query": question, "page": 1}
    elif len(turns) == 4 and (link := _LINK.search(seen)):
        action = {"tool": "open", "page": link[1]}
    else:
        words = set(question.lower().split())
        facts = [line.split(": ", 1) for line in seen.splitlines() if ": " in line]
        best = max(facts, key=lambda fact: len(words & set(fact[0].lower().split())), default=["", "nothing"])
        action = {"tool": "answer", "text": best[1]}
    return said(json.dumps({"thought": "I go on.", "action": action}))


def config(runs_dir: Path, url: str) -> RunConfig:
    return RunConfig(
        name="llm",
        runs_dir=runs_dir,
        suite=SuiteConfig(warmup=14, explore=8, dev=4, test=4),
        agent=AgentConfig(name="react", max_steps=6, warmup_max_steps=6, options={"page_chars": 1000}),
        models=ModelsConfig(
            agent=EndpointConfig(base_url=url, model="scripted", prompt_price=1.0, completion_price=2.0)
        ),
        providers=("expel", "voyager"),
        encoder=EncoderConfig(name="hashing"),
        warmup=WarmupConfig(tries=1, passes=1),
        explore=ExploreConfig(waves=2),
        dataset=DatasetConfig(validation_share=0.25),
    )


def misbehaving(request: dict[str, Any]) -> Play:
    """By the question: repeats itself, makes two calls, invents tools, writes prose, is cut off, or says nothing."""
    if "tools" in request:
        return said("Lemons are yellow.")
    question = request["messages"][1]["content"].splitlines()[0]
    searching = json.dumps({"thought": "", "action": {"tool": "search", "query": "Chad", "page": 1}})
    ways = [
        said(searching),
        said(f"{searching}\n{searching}"),
        said('{"thought": "", "action": {"tool": "teleport", "to": "Chad"}}'),
        said("The answer is most likely 41."),
        said('{"thought": "I will loo', finish="length"),
        said(None),
    ]
    return ways[len(question) % len(ways)]


async def test_a_model_that_does_nothing_right_ends_its_episodes_and_the_run_goes_on(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.answer = misbehaving
    with Run.open(config(tmp_path, endpoint.url)) as run:
        await warm_up(run)
        await explore(run)
        table = RoutingTable.load(run.table("explore"))
        episodes = run.facts.episodes("explore").values()
    assert {episode.status for episode in episodes} == {"done"}
    runs = [episode.trajectory for episode in episodes if episode.trajectory is not None]
    assert runs
    assert all(run.answer is None and run.status[-1] == "step limit reached" for run in runs)
    assert {cell.correct for row in table.rows for cell in row.cells} == {0.0}
    said_why = {step.error.partition(" ")[0] for one in runs for step in one.steps if step.error}
    assert {"repeated", "There", "That"} <= said_why


async def test_warm_up_explore_score_and_build_with_a_model_as_agent(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answer = searcher
    with Run.open(config(tmp_path, endpoint.url)) as run:
        await warm_up(run)
        await explore(run)
        await score(run)
        build(run)
        table = RoutingTable.load(run.table("explore"))
        episodes = run.facts.episodes("explore")
        tasks = {task.id: task for task in run.suite.tasks(Split.EXPLORE, 8)}
        spent = run.models.ledger.by_purpose["agent"]
    assert len(table.rows) == 8
    assert {episode.status for episode in episodes.values()} == {"done"}
    assert all(episode.outcome.correct is not None for episode in episodes.values())
    trajectories = [episode.trajectory for episode in episodes.values() if episode.trajectory]
    assert all(trajectory.settings["model"] == "scripted" for trajectory in trajectories)
    assert all(step.lineage for trajectory in trajectories for step in trajectory.steps if step.tool == "open")
    asked = [turn["content"] for request in endpoint.requests for turn in request["messages"]]
    assert any("From earlier tasks" in text for text in asked)
    secret = [json.dumps(task.gold) for task in tasks.values()]
    assert not any(gold in text for gold in secret for text in asked)
    assert spent.cost == pytest.approx((10 * spent.calls + 2 * 5 * spent.calls) / 1e6)
    calls = len(endpoint.requests)
    with Run.open(config(tmp_path, endpoint.url)) as run:
        await explore(run)
    assert len(endpoint.requests) == calls
