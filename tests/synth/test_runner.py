"""The engine: bad episodes end as data, errors that may pass are tried again, limits stop and lose nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from toy_world import ToyAgent, ToySuite, toy_config

from providers.errors import AgentError, ModelError, SuiteError
from providers.tools import Tool
from providers.types import Outcome, Split, Task, Trajectory
from router.table import RoutingTable
from synth.agents.base import AgentSession
from synth.config import AgentConfig, ExploreConfig, RunConfig, SuiteConfig
from synth.explore import explore
from synth.facts import Episode
from synth.runner import LimitReached
from synth.runs import Run
from synth.warmup import warm_up

CALLS: Counter[tuple[str, str]] = Counter()
RUNNING = 0
MOST = 0


class Busy(ToyAgent):
    """Meets a busy endpoint on the first `times` calls for every memory text of a `word` task."""

    def __init__(self, word: str = "", times: int = 1, kind: str = "busy", retry_after: float | None = None) -> None:
        super().__init__()
        self._word, self._times, self._kind, self._retry_after = word, times, kind, retry_after

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        if task.question.split()[3] == self._word:
            CALLS[task.id, session.memory] += 1
            if CALLS[task.id, session.memory] <= self._times:
                await self._meet()
        return await super().run(task, tools, session, seed=seed, max_steps=max_steps)

    async def _meet(self) -> None:
        if self._kind == "busy":
            error = ModelError("429", retryable=True)
            error.retry_after = self._retry_after  # type: ignore[attr-defined, unused-ignore]
            raise error
        if self._kind == "refused":
            raise ModelError("401", retryable=False)
        if self._kind == "dropped":
            raise ConnectionResetError("the peer left")
        if self._kind == "raises":
            raise ZeroDivisionError("an agent's own fault")
        if self._kind == "hangs":
            await asyncio.sleep(60)
        if self._kind == "computes":
            while True:
                pass
        if self._kind == "blocks":
            time.sleep(60)
        raise AssertionError(self._kind)


class Wordless(ToyAgent):
    """Ends with something that is no trajectory."""

    async def run(self, *arguments: Any, **named: Any) -> Any:
        return None


class Crowd(ToyAgent):
    """Computes without waiting, and counts how many of it are under way."""

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        global RUNNING, MOST
        RUNNING += 1
        MOST = max(MOST, RUNNING)
        try:
            for _ in range(4):
                end = time.process_time() + 0.04
                while time.process_time() < end:
                    pass
                await asyncio.sleep(0)
            return await super().run(task, tools, session, seed=seed, max_steps=max_steps)
        finally:
            RUNNING -= 1


class Ungraded(ToySuite):
    """Some tasks have no gold."""

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        tasks = super().tasks(split, limit)
        return [task.model_copy(update={"gold": None}) if "age" in task.question.split() else task for task in tasks]

    def score(self, task: Task, answer: str | None) -> Outcome:
        return Outcome(correct=None) if task.gold is None else super().score(task, answer)


class Twice(ToySuite):
    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        tasks = super().tasks(split, limit)
        return [*tasks[:-1], tasks[0]] if split is Split.EXPLORE else tasks


def config_of(tmp_path: Path, name: str = "toy", agent: str = "Busy", suite: str = "", **changes: Any) -> RunConfig:
    explored: dict[str, Any] = {"waves": 2, "backoff_seconds": 0.001, "fail_on_error": False, **changes}
    options = explored.pop("options", {})
    path = f"test_runner:{suite}" if suite else "toy_world:ToySuite"
    return toy_config(
        tmp_path,
        name,
        suite=SuiteConfig(name=path, warmup=6, explore=12, dev=6),
        agent=AgentConfig(name=f"test_runner:{agent}", max_steps=4, options=options),
        explore=ExploreConfig(**explored),
    )


async def explored(config: RunConfig) -> tuple[RoutingTable, list[Episode], list[tuple[str, int]]]:
    """The table, the episodes that count, and status and attempt of every row."""
    CALLS.clear()
    with Run.open(config) as run:
        await warm_up(run)
        CALLS.clear()
        await explore(run)
        rows = run.facts._rows("SELECT status, attempt FROM episodes WHERE stage = 'explore'")
        return RoutingTable.load(run.table("explore")), list(run.facts.episodes("explore").values()), rows


async def test_a_busy_endpoint_is_asked_again_and_every_try_is_kept(tmp_path: Path) -> None:
    table, episodes, rows = await explored(config_of(tmp_path, options={"word": "height"}))
    _, undisturbed, _ = await explored(config_of(tmp_path, "calm"))
    assert {episode.error for episode in episodes} == {""}
    assert {e.key: e.trajectory for e in episodes} == {e.key: e.trajectory for e in undisturbed}
    retried = [episode for episode in episodes if episode.attempt == 1]
    assert retried
    assert Counter(status for status, _ in rows) == {"failed": len(retried), "done": len(episodes)}
    assert all(cell.correct is not None for row in table.rows for cell in row.cells)


async def test_retry_after_counts_where_it_is_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    real = asyncio.wait_for

    async def noted(work: Any, seconds: float) -> Any:
        waits.append(seconds)
        return await real(work, 0.001)

    monkeypatch.setattr("synth.runner.asyncio.wait_for", noted)
    _, episodes, _ = await explored(
        config_of(tmp_path, options={"word": "height", "retry_after": 7.5}, backoff_seconds=1.0)
    )
    assert {episode.status for episode in episodes} == {"done"}
    assert waits
    assert set(waits) == {7.5}
    waits.clear()
    await explored(config_of(tmp_path, "without", options={"word": "height", "times": 2}, backoff_seconds=1.0))
    assert all(0.75 <= wait <= 2.5 for wait in waits)
    assert max(waits) > 1.5 > 1.25 >= min(waits)


@pytest.mark.parametrize(
    ("kind", "tries"), [("busy", 3), ("dropped", 3), ("refused", 1), ("raises", 1), ("hangs", 1), ("computes", 1)]
)
async def test_what_does_not_pass_ends_as_data_and_the_others_go_on(tmp_path: Path, kind: str, tries: int) -> None:
    options = {"word": "height", "times": 99, "kind": kind}
    limit = 2.0 if kind in ("hangs", "computes") else 60.0
    config = config_of(tmp_path, options={}, episode_seconds=limit, in_modes=["query"])
    with Run.open(config) as run:
        await warm_up(run)
    CALLS.clear()
    changed = config.model_copy(update={"agent": config.agent.model_copy(update={"options": options})})
    with Run.open(config) as run:
        run.config = changed
        await explore(run)
        table, episodes = RoutingTable.load(run.table("explore")), run.facts.episodes("explore").values()
    bad = [episode for episode in episodes if episode.status != "done"]
    assert {episode.status for episode in bad} == {"timeout" if limit < 60 else "failed"}
    assert all(episode.error and episode.outcome.correct is None for episode in bad)
    assert {episode.attempt for episode in bad} == {tries - 1}
    assert set(CALLS.values()) == {tries}
    hit = {row.task_id for row in table.rows if "height" in row.question}
    assert {episode.key.task_id for episode in bad} == hit
    assert all((cell.correct is None) == (row.task_id in hit) for row in table.rows for cell in row.cells)


async def test_an_agent_that_returns_no_trajectory_is_named(tmp_path: Path) -> None:
    with Run.open(config_of(tmp_path, agent="Wordless")) as run:
        await warm_up(run)
        episodes = run.facts.episodes("warmup/0/0").values()
    assert {episode.error for episode in episodes} == {
        "AgentError: the agent 'toy' ended with NoneType instead of a Trajectory: let it return Trajectory.make(...)"
    }


async def test_agents_that_only_compute_are_not_all_started_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen at once would each take sixteen times as long as alone, and run into their limits."""
    global MOST
    monkeypatch.setattr("synth.heartbeat.LATE_SHARE", 0.25 / 600)
    config = config_of(tmp_path, agent="Crowd", concurrency=16, waves=1, in_modes=["query"], episode_seconds=600.0)
    fewer = config.suite.model_copy(update={"warmup": 0, "explore": 24})
    with Run.open(config.model_copy(update={"suite": fewer})) as run:
        await warm_up(run)
        MOST = 0
        await explore(run)
        assert {episode.status for episode in run.facts.episodes("explore").values()} == {"done"}
    assert 1 < MOST < 16


async def test_a_task_without_gold_is_unscored_and_never_wrong(tmp_path: Path) -> None:
    table, episodes, _ = await explored(config_of(tmp_path, suite="Ungraded"))
    ungraded = [row for row in table.rows if "age" in row.question.split()]
    assert ungraded
    assert all(cell.correct is None for row in ungraded for cell in row.cells)
    assert {episode.status for episode in episodes} == {"done"}


async def test_a_task_id_used_twice_is_refused_by_name(tmp_path: Path) -> None:
    with Run.open(config_of(tmp_path, suite="Twice")) as run:
        await warm_up(run)
        with pytest.raises(SuiteError, match=r"the suite 'toy' uses the task id '\w+' twice in explore"):
            await explore(run)


async def test_tasks_that_changed_under_a_run_are_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with Run.open(config) as run:
        await warm_up(run)
        await explore(run)
        run.facts.set_mark("explore", "")
    changed = config.model_copy(update={"suite": config.suite.model_copy(update={"name": "test_runner:Ungraded"})})
    with Run.open(config) as run:
        run.config = changed
        with pytest.raises(SuiteError, match=r"the explore tasks of .* are not those that this run was made with"):
            await explore(run)


async def test_a_limit_on_episodes_stops_and_a_higher_one_goes_on_to_the_same_end(tmp_path: Path) -> None:
    table, _, rows = await explored(config_of(tmp_path, "whole"))
    with Run.open(config_of(tmp_path, max_episodes=7, concurrency=3)) as run:
        await warm_up(run)
        for _ in range(2):
            with pytest.raises(LimitReached, match=r"stopped after 7 episodes \(explore\.max_episodes\); what"):
                await explore(run)
        assert run.facts.spent("explore").episodes == 7
    again, _, rows_again = await explored(config_of(tmp_path))
    assert sorted(rows_again) == sorted(rows)
    assert [[c.correct for c in row.cells] for row in again.rows] == [[c.correct for c in r.cells] for r in table.rows]


@pytest.mark.parametrize(("limit", "stops"), [(True, 1), (2, 2), (0.01, 1), (False, None), (0.9, None)])
async def test_fail_on_error_is_a_switch_a_count_or_a_share(
    tmp_path: Path, limit: bool | float | int, stops: int | None
) -> None:
    config = config_of(tmp_path, fail_on_error=False, concurrency=1)
    with Run.open(config) as run:
        await warm_up(run)
    CALLS.clear()
    options = {"word": "height", "times": 99, "kind": "raises"}
    failing = config.model_copy(
        update={
            "agent": config.agent.model_copy(update={"options": options}),
            "explore": config.explore.model_copy(update={"fail_on_error": limit}),
        }
    )
    with Run.open(config) as run:
        run.config = failing
        if stops is None:
            await explore(run)
            return
        with pytest.raises(AgentError, match=r"ZeroDivisionError: an agent's own fault"):
            await explore(run)
        assert sum(e.status == "failed" for e in run.facts.episodes("explore").values()) >= stops


async def test_a_small_stage_that_fails_throughout_does_not_pass_for_a_finished_one(tmp_path: Path) -> None:
    """Six episodes are below the number from which a share stops a stage on its way: they are judged at its end."""
    config = config_of(tmp_path, fail_on_error=0.1, options={"word": "height", "times": 99, "kind": "raises"})
    with Run.open(config) as run:
        with pytest.raises(AgentError, match=r"warmup/0/0: 1 of 6 episodes failed, and explore.fail_on_error = 0.1"):
            await warm_up(run)
        assert not run.facts.offers("warmup/0"), "nothing is stored of what may be tried again"
    with Run.open(config_of(tmp_path, "lenient", fail_on_error=0.2, options=config.agent.options)) as run:
        await warm_up(run)
