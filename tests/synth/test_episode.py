"""One episode: what the agent is given, and its one terminal status."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from toy_world import ToyAgent, toy_config

from providers.types import Retrieval, Split, Trajectory
from router.decisions import Arm
from synth.arms import episode_key
from synth.config import AgentConfig, ExploreConfig
from synth.episode import Prepared, agent_seed, prepare, run_episode
from synth.facts import Episode
from synth.runs import Run
from synth.warmup import warm_up
from synth.workbench import Workbench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Workbench]:
    """A workbench over a warmed-up bank."""
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        async with Workbench(run) as bench:
            yield bench


async def prepared(bench: Workbench, place: int = 0) -> Prepared:
    return (await prepare(bench, "explore", bench.tasks(Split.EXPLORE)[: place + 1]))[place]


async def run(bench: Workbench, one: Prepared, arm: Arm) -> Episode:
    return await run_episode(bench, one, arm, episode_key("explore", one, arm.provider, arm.in_mode, arm.repeat), 4)


async def test_the_forced_provider_is_injected_and_recorded(bench: Workbench) -> None:
    one = await prepared(bench)
    episode = await run(bench, one, Arm(provider="lessons"))
    assert episode.status == "done"
    assert episode.trajectory is not None
    assert [i.provider for i in episode.trajectory.injections if i.phase == "begin"] == ["lessons"]
    assert episode.begin_chars == len(one.retrieval("lessons").text) > 0
    assert episode.injected >= episode.begin_chars
    assert episode.outcome.source == "gold"


async def test_working_memory_is_shown_in_query_and_held_back_in_no_op(bench: Workbench) -> None:
    one = await prepared(bench)
    query = await run(bench, one, Arm(provider="none", in_mode="query"))
    held = await run(bench, one, Arm(provider="none", in_mode="no_op"))
    assert query.in_injections == len(query.in_records) > 0
    assert held.in_injections == 0 < len(held.in_records)
    assert {r.decision.action for r in query.in_records} == {"query"}
    assert {r.decision.action for r in held.in_records} == {"no_op"}
    assert query.in_records[0].context == held.in_records[0].context
    assert all(record.context.summary for record in held.in_records)


async def test_seeds_depend_on_task_and_repeat_and_never_on_the_arm(bench: Workbench) -> None:
    one = await prepared(bench)
    seeds = {
        arm: (await run(bench, one, Arm(provider=arm, repeat=repeat))).trajectory
        for repeat in (0,)
        for arm in ("none", "notes", "lessons")
    }
    assert {t.seed for t in seeds.values() if t is not None} == {agent_seed(0, one.task.id, 0)}
    assert agent_seed(0, "t", 0) not in (agent_seed(0, "t", 1), agent_seed(0, "u", 0), agent_seed(1, "t", 0))


async def test_equal_injections_have_equal_keys_and_none_is_the_empty_one(bench: Workbench) -> None:
    one = await prepared(bench)
    assert one.content_key("none") == Retrieval(provider="lessons").content_key()
    assert one.content_key("lessons") != one.content_key("none")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [({"fail": "height"}, "failed", "AgentError: no engine for height"), ({"hang": "height"}, "timeout", "0.2 s")],
)
async def test_a_bad_episode_ends_with_its_error_and_no_outcome(
    tmp_path: Path, options: dict[str, str], status: str, words: str
) -> None:
    config = toy_config(
        tmp_path,
        agent=AgentConfig(name="toy_world:ToyAgent", options=options),
        explore=ExploreConfig(episode_seconds=0.2),
    )
    with Run.open(config) as opened:
        async with Workbench(opened) as bench:
            first = await run(bench, await prepared(bench), Arm(provider="none"))
            second = await run(bench, await prepared(bench, 1), Arm(provider="none"))
    assert first.status == status
    assert words in first.error
    assert first.trajectory is None
    assert first.outcome.correct is None
    assert second.status == "done"


class Unruly(ToyAgent):
    """Does on a `height` task what no agent should."""

    def __init__(self, deed: str) -> None:
        super().__init__()
        self._deed = deed

    async def run(self, *arguments: Any, **named: Any) -> Trajectory:
        done = await super().run(*arguments, **named)
        if "height" not in done.question:
            return done
        if self._deed == "exits":
            sys.exit(3)
        if self._deed == "cancels itself":
            raise asyncio.CancelledError
        if self._deed == "another task":
            return done.model_copy(update={"task_id": "elsewhere"})
        while self._deed == "goes on":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            raise ValueError("what it says as it goes")


@pytest.mark.parametrize(
    ("deed", "status", "words"),
    [
        ("exits", "failed", "AgentError: the agent 'toy' called sys.exit(3)"),
        ("cancels itself", "failed", "AgentError: the agent cancelled itself"),
        ("another task", "failed", "ended with a trajectory of task 'elsewhere' on"),
        ("goes on", "timeout", "no answer within 0.2 s"),
        ("raises when it is cancelled", "timeout", "no answer within 0.2 s"),
    ],
)
async def test_what_no_agent_should_do_costs_its_episode_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, status: str, words: str
) -> None:
    monkeypatch.setattr("synth.episode.GRACE_SECONDS", 0.05)
    before = asyncio.all_tasks()
    config = toy_config(
        tmp_path,
        agent=AgentConfig(name="test_episode:Unruly", options={"deed": deed}),
        explore=ExploreConfig(episode_seconds=0.2),
    )
    with Run.open(config) as opened:
        async with Workbench(opened) as bench:
            first = await run(bench, await prepared(bench), Arm(provider="none"))
            second = await run(bench, await prepared(bench, 1), Arm(provider="none"))
    assert (first.status, second.status) == (status, "done")
    assert words in first.error
    assert first.outcome.correct is None
    assert asyncio.all_tasks() == before


async def test_a_stop_ends_an_agent_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.episode.GRACE_SECONDS", 0.05)
    config = toy_config(tmp_path, agent=AgentConfig(name="test_episode:Unruly", options={"deed": "goes on"}))
    with Run.open(config) as opened:
        async with Workbench(opened) as bench:
            work = asyncio.create_task(run(bench, await prepared(bench), Arm(provider="none")))
            await asyncio.sleep(0.1)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_origins_carry_the_credit_of_merged_items(bench: Workbench) -> None:
    one = await prepared(bench)
    origins = dict(one.probe.served["lessons"].origins)
    record = bench.record("lessons", one.retrieval("lessons").item_ids[0])
    assert record is not None
    tasks = {origin.task_id for origin in record.origins}
    assert set(origins) == tasks
    assert len(tasks) > 1
    assert all(share == pytest.approx(1 / len(tasks)) for share in origins.values())


async def test_what_was_probed_is_not_asked_again(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await prepared(bench)
    for provider in bench.providers.values():
        monkeypatch.setattr(provider, "retrieve", None)
    again = await prepared(bench)
    assert again.probe == one.probe
