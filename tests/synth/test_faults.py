"""Agents whose model's endpoint fails in every way: each episode ends as data, the others go on, money is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import Endpoint, Play, said
from toy_world import ToyAgent, toy_config

from lm.client import ChatModel
from lm.cost import Price
from lm.types import Message, Usage
from providers.errors import ConfigError
from providers.tools import Tool
from providers.types import Task, Trajectory
from router.table import RoutingTable
from synth.agents.base import AgentSession
from synth.config import AgentConfig, ExploreConfig, ModelsConfig, RunConfig, SuiteConfig
from synth.explore import explore
from synth.runner import LimitReached
from synth.runs import Run
from synth.warmup import warm_up
from synth.workbench import Workbench


class Asking(ToyAgent):
    """Asks its model once, then works as the toy agent does."""

    def __init__(self, model: ChatModel) -> None:
        super().__init__()
        self._model = model

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        question = f"{task.question} Known: {session.memory}"
        await self._model.complete([Message(role="user", content=question)], purpose="agent", sample=seed)
        return await super().run(task, tools, session, seed=seed, max_steps=max_steps)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    made.script = [said("ok")]
    yield made
    made.stop()


def config_of(
    runs_dir: Path, endpoint: Endpoint, price: float | None = None, timeout: float = 30.0, **changes: Any
) -> RunConfig:
    model = {"base_url": endpoint.url, "model": "m", "retries": 0, "timeout": timeout}
    if price is not None:
        model |= {"prompt_price": price, "completion_price": price}
    explored: dict[str, Any] = {
        "waves": 2,
        "in_modes": ["query"],
        "attempts": 2,
        "backoff_seconds": 0.001,
        "fail_on_error": False,
        **changes,
    }
    return toy_config(
        runs_dir,
        suite=SuiteConfig(name="toy_world:ToySuite", warmup=6, explore=12, dev=6),
        agent=AgentConfig(name="test_faults:Asking", max_steps=4),
        models=ModelsConfig.model_validate({"agent": model}),
        explore=ExploreConfig(**explored),
    )


@pytest.mark.parametrize(
    ("fault", "tries"),
    [
        (Play(status=429, body={"error": {"message": "slow down"}}), 2),
        (Play(status=429, body={"error": {"message": "slow down"}}, headers={"Retry-After": "0.01"}), 2),
        (Play(status=500, body={"error": {"message": "oops"}}), 2),
        (Play(body=said("ok").body, drop=20), 2),
        (Play(body=said("ok").body, hang=60.0), 2),
        (Play(body={"error": {"message": "no capacity", "code": 503}}), 2),
        (Play(status=401, body={"error": {"message": "who are you"}}), 1),
    ],
    ids=["429", "429 with Retry-After", "500", "dropped", "hangs", "error inside 200", "401"],
)
async def test_an_endpoint_that_fails_costs_its_episodes_and_no_other(
    tmp_path: Path, endpoint: Endpoint, fault: Play, tries: int
) -> None:
    with Run.open(config_of(tmp_path, endpoint, timeout=2.0 if fault.hang else 30.0)) as run:
        await warm_up(run)
        endpoint.answer = lambda request: (
            fault if "the height of" in request["messages"][0]["content"].split("Known:")[0] else said("ok")
        )
        await explore(run)
        table = RoutingTable.load(run.table("explore"))
        episodes = list(run.facts.episodes("explore").values())
        spent = run.facts.spent("explore")
    bad = [episode for episode in episodes if episode.status != "done"]
    hit = {row.task_id for row in table.rows if "the height of" in row.question}
    assert {episode.key.task_id for episode in bad} == hit != set()
    assert all(episode.status == "failed" and "ModelError" in episode.error for episode in bad)
    assert {episode.attempt for episode in bad} == {tries - 1}
    assert spent.episodes == len(episodes) + len(bad) * (tries - 1)
    assert all((cell.correct is None) == (row.task_id in hit) for row in table.rows for cell in row.cells)


async def test_an_endpoint_that_recovers_leaves_what_an_undisturbed_one_leaves(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    tables = []
    for name in ("calm", "busy"):
        asked: set[str] = set()

        def busy_once(request: dict[str, Any], asked: set[str] = asked) -> Play:
            text = request["messages"][0]["content"]
            if text in asked:
                return said("ok")
            asked.add(text)
            return Play(status=429, body={"error": {"message": "busy"}}, headers={"Retry-After": "0.01"})

        config = config_of(tmp_path / name, endpoint, attempts=3)
        with Run.open(config) as run:
            await warm_up(run)
            endpoint.answer = busy_once if name == "busy" else None
            await explore(run)
            tables.append(RoutingTable.load(run.table("explore")))
        endpoint.answer = None
    calm, busy = ([[cell.correct for cell in row.cells] for row in table.rows] for table in tables)
    assert calm == busy


async def test_tokens_and_money_are_counted_over_all_starts_and_stop_at_the_limit(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    """15 tokens a call at 1,000 dollars per million: 1.5 cents an episode."""
    with Run.open(config_of(tmp_path, endpoint, price=1000.0, max_cost=0.1, concurrency=1)) as run:
        await warm_up(run)
        for _ in range(2):
            with pytest.raises(LimitReached, match=r"stopped at \$0\.1\d of model calls \(explore\.max_cost\)"):
                await explore(run)
        spent = run.facts.spent("explore")
    assert spent.cost == pytest.approx(0.015 * 7)
    assert spent.tokens == 15 * 7
    with Run.open(config_of(tmp_path, endpoint, price=1000.0)) as run:
        await explore(run)
        episodes = run.facts.episodes("explore", bodies=False)
        assert run.facts.spent("explore").tokens == 15 * len(episodes)


async def test_what_stores_ask_of_models_is_counted_with_the_next_wave(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Workbench.take_in

    async def asking(self: Workbench, label: str, change: Any) -> None:
        await plain(self, label, change)
        self.run.models.ledger.call("distiller", Usage(prompt_tokens=100_000, completion_tokens=0), Price(1.0, 1.0))

    with Run.open(config_of(tmp_path, endpoint, price=1000.0)) as run:
        await warm_up(run)
        monkeypatch.setattr(Workbench, "take_in", asking)
        await explore(run)
        episodes = run.facts.episodes("explore", bodies=False)
        spent = run.facts.spent("explore")
    assert spent.tokens == 15 * len(episodes) + 100_000
    assert spent.cost == pytest.approx(0.015 * len(episodes) + 0.1)


async def test_a_cost_limit_is_refused_where_the_price_is_unknown(tmp_path: Path, endpoint: Endpoint) -> None:
    with Run.open(config_of(tmp_path, endpoint, max_cost=5.0, concurrency=1)) as run:
        await warm_up(run)
        with pytest.raises(ConfigError, match="the price of a model is unknown: set prompt_price"):
            await explore(run)
        assert run.facts.spent("explore").cost is None
