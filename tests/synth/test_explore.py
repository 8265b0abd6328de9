"""Forced exploration: frozen waves, shared episodes, and the same facts whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toy_world import ToyAgent, ToySuite, bank_content, toy_config

from providers.errors import AgentError, BankError, ConfigError
from providers.types import Split
from router.table import RoutingTable
from synth.arms import episode_of
from synth.config import AgentConfig, EvaluateConfig, ExploreConfig, SuiteConfig
from synth.dataset import build
from synth.episode import Prepared, prepare
from synth.explore import explore, run_alone, run_arms, run_arms_shuffled, shuffle, split_waves
from synth.rewards import score
from synth.runs import Run
from synth.tables import changed_by_in_mode
from synth.warmup import warm_up
from synth.workbench import Workbench


async def explored(run: Run) -> RoutingTable:
    await warm_up(run)
    await explore(run)
    return RoutingTable.load(run.table("explore"))


def content(table: RoutingTable) -> str:
    """A table without its clocks."""
    rows = [
        row.model_copy(update={"cells": tuple(c.model_copy(update={"seconds": 0.0}) for c in row.cells)})
        for row in table.rows
    ]
    return table.model_copy(update={"rows": tuple(rows)}).model_dump_json()


async def test_every_task_runs_under_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(toy_config(tmp_path, explore=ExploreConfig(waves=3, repeats=2))) as run:
        table = await explored(run)
    assert "2 repeats settle 0 of 48 task-provider labels (the 90% interval" in capsys.readouterr().err
    assert table.providers == ("notes", "lessons")
    assert [row.task_id for row in table.rows] == [task.id for task in ToySuite(0).tasks(Split.EXPLORE, 24)]
    for row in table.rows:
        arms = {(c.arm.provider, c.arm.in_mode, c.arm.repeat) for c in row.cells}
        assert len(arms) == len(row.cells) == 3 * 2 * 2
        assert all(cell.correct in (0.0, 1.0) and cell.steps > 0 for cell in row.cells)
        assert len(row.embedding) == len(row.preview_embeddings[0]) == 256
    assert sum(row.correctness("lessons") or 0 for row in table.rows) > sum(
        row.correctness("none") or 0 for row in table.rows
    )


async def test_a_bank_that_was_cut_short_stops_the_exploration_and_put_back_it_goes_on(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        whole = run.bank.read_bytes()
        for size in (len(whole) // 2, 100, 0):
            run.bank.write_bytes(whole[:size])
            with pytest.raises(BankError, match=r"bank\.sqlite"):
                await explore(run)
            assert run.bank.read_bytes() == whole[:size]
            assert not run.facts.mark("explore")
        run.bank.write_bytes(whole)
        await explore(run)
        mended = RoutingTable.load(run.table("explore"))
    with Run.open(toy_config(tmp_path, "undisturbed")) as run:
        assert content(await explored(run)) == content(mended)


async def test_a_wave_sees_the_bank_that_the_waves_before_it_left(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path, explore=ExploreConfig(waves=3))) as run:
        table = await explored(run)
        probes = run.facts.probes("explore", [row.task_id for row in table.rows])
        offers = {offer.task_id for offer in run.facts.offers("explore")}
    assert [probes[row.task_id].wave for row in table.rows] == [0] * 8 + [1] * 8 + [2] * 8
    for probe in probes.values():
        for served in probe.served.values():
            for origin, _ in served.origins:
                assert origin not in probes or probes[origin].wave < probe.wave
    assert offers == set(probes)
    late = [o for p in probes.values() for s in p.served.values() for o, _ in s.origins if o in probes]
    assert late, "later waves are shown what earlier waves left"


async def test_equal_injections_are_one_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    config = toy_config(
        tmp_path,
        agent=AgentConfig(name="toy_world:ToyAgent", max_steps=1, options={"log": str(log)}),
        suite=SuiteConfig(name="toy_world:ToySuite", warmup=0, explore=6, dev=6),
        explore=ExploreConfig(waves=1),
    )
    with Run.open(config) as run:
        table = await explored(run)
        again = await explore(run)
    printed = capsys.readouterr().err
    assert len(log.read_text().splitlines()) == 6
    assert (again.tasks, again.arms, again.episodes) == (6, 36, 6)
    assert (again.shared_saved_share, again.shared_begin_share, again.shared_in_share) == (0.8333, 0.6667, 0.1667)
    assert "36 arms, 6 episodes; 83% shared (Begin 24, In 6)" in printed
    for row in table.rows:
        assert len({cell.correct for cell in row.cells}) == 1
        assert [cell.empty for cell in row.cells] == [True] * 6


async def test_the_representative_is_a_finished_arm_and_is_offered_where_the_gate_is_open(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await explored(run)
        endings, offers = run.facts.endings("explore"), run.facts.offers("explore")
    assert {ending.provider for ending in endings.values()} == {"none", "notes", "lessons"}
    correct = {task_id for task_id, ending in endings.items() if ending.context.outcome.correct}
    assert 0 < len(correct) < len(endings)
    assert {offer.task_id for offer in offers if offer.provider == "notes"} == set(endings)
    assert {offer.task_id for offer in offers if offer.provider == "lessons"} == correct


@pytest.mark.parametrize("descriptors", [(), ("trust", "age")])
async def test_end_contexts_say_what_the_verifier_makes_of_the_run_where_descriptors_are_asked_for(
    tmp_path: Path, descriptors: tuple[Any, ...]
) -> None:
    config = toy_config(tmp_path, governance="full", descriptors=descriptors, providers=("awm", "voyager"))
    with Run.open(config) as run:
        await explored(run)
        said = {ending.context.descriptor for ending in run.facts.endings("explore").values()}
    assert said and all(words.startswith("trust ") for words in said) if descriptors else said == {""}


async def test_effects_are_applied_once_per_task_from_the_providers_own_arm(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        before = uses(run)
        await explore(run)
        after = uses(run)
        table = RoutingTable.load(run.table("explore"))
    assert after[0] - before[0] == 24
    best = sum(max(c.correct or 0 for c in row.cells if c.arm.provider == "notes") for row in table.rows)
    worst = sum(min(c.correct or 0 for c in row.cells if c.arm.provider == "notes") for row in table.rows)
    assert worst <= after[1] - before[1] <= best


def uses(run: Run) -> tuple[int, int]:
    """Uses and wins over the notes of a run's bank."""
    payloads = [json.loads(text)["payload"] for text in bank_content(run) if json.loads(text)["provider"] == "notes"]
    return sum(p["uses"] for p in payloads), sum(p["wins"] for p in payloads)


async def test_concurrency_changes_nothing(tmp_path: Path) -> None:
    found = []
    for name, concurrency in (("one", 1), ("many", 16)):
        with Run.open(toy_config(tmp_path, name, explore=ExploreConfig(concurrency=concurrency))) as run:
            found.append((content(await explored(run)), bank_content(run)))
    assert found[0] == found[1]


async def test_another_seed_draws_otherwise(tmp_path: Path) -> None:
    found = []
    for seed in (0, 1):
        with Run.open(toy_config(tmp_path, f"seed{seed}", seed=seed)) as run:
            found.append(content(await explored(run)))
    assert found[0] != found[1]


async def test_a_stop_keeps_what_is_done_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = AgentConfig(name="toy_world:ToyAgent", max_steps=4, options={"log": str(log)})
    with Run.open(toy_config(tmp_path, agent=agent)) as run:
        await warm_up(run)
        before = len(log.read_text().splitlines())
        work = asyncio.create_task(explore(run))
        while len(log.read_text().splitlines()) < before + 30:
            await asyncio.sleep(0.001)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        kept = len(run.facts.episodes("explore", bodies=False))
        assert kept >= 22
        await explore(run)
        stopped = content(RoutingTable.load(run.table("explore"))), bank_content(run)
        calls = len(log.read_text().splitlines()) - before
        assert calls == len(run.facts.episodes("explore", bodies=False))
    undisturbed = toy_config(tmp_path, "undisturbed", agent=agent)
    with Run.open(undisturbed) as run:
        assert (content(await explored(run)), bank_content(run)) == stopped


async def test_failed_arms_are_unscored_and_their_siblings_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ToyAgent.run

    async def some_fail(self: ToyAgent, task: object, *args: object, **kwargs: object) -> object:
        if "height" in task.question and kwargs["seed"] % 2:  # type: ignore[attr-defined, operator]
            raise AgentError("no engine")
        return await original(self, task, *args, **kwargs)  # type: ignore[arg-type]

    with Run.open(toy_config(tmp_path, explore=ExploreConfig(fail_on_error=False))) as run:
        await warm_up(run)
        monkeypatch.setattr(ToyAgent, "run", some_fail)
        await explore(run)
        table = RoutingTable.load(run.table("explore"))
    failed = [row for row in table.rows if row.correctness("none") is None]
    assert 0 < len(failed) < 4
    assert all("height" in row.question for row in failed)
    assert all(cell.correct is None for row in failed for cell in row.cells)


async def test_exploring_without_a_warmed_up_bank_is_refused(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        with pytest.raises(ConfigError, match="memroute warmup"):
            await explore(run)
        with pytest.raises(ConfigError, match="memroute explore"):
            await run_arms(run, "dev")


async def test_a_bank_that_was_moved_away_is_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        run.facts.set_mark("warmup", "done")
        run.facts.set_mark("explore", "done")
        with pytest.raises(ConfigError, match="memroute warmup"):
            await explore(run)
        with pytest.raises(ConfigError, match="memroute explore"):
            await run_arms(run, "dev")
        assert not run.bank.exists()


async def test_evaluation_arms_leave_the_bank_as_it_is_and_are_run_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = AgentConfig(name="toy_world:ToyAgent", max_steps=4, options={"log": str(log)})
    with Run.open(toy_config(tmp_path, agent=agent)) as run:
        await explored(run)
        before = bank_content(run)
        table = await run_arms(run, "dev")
        assert bank_content(run) == before
        calls = len(log.read_text().splitlines())
        assert await run_arms(run, "dev") == table == RoutingTable.load(run.table("dev"))
        assert len(log.read_text().splitlines()) == calls
        cells = [cell.arm for row in table.rows for cell in row.cells]
        assert {(arm.in_mode, arm.repeat) for arm in cells if arm.provider != "none"} == {("query", 0), ("query", 1)}
        assert {(arm.in_mode, arm.repeat) for arm in cells if arm.provider == "none"} == {("no_op", 0), ("no_op", 1)}
        assert all(cell.injected == 0 for row in table.rows for cell in row.cells if cell.arm.provider == "none")
    with Run.open(toy_config(tmp_path, agent=agent, evaluate=EvaluateConfig(repeats=3))) as run:
        more = await run_arms(run, "dev")
        added = len(log.read_text().splitlines()) - calls
    assert added == sum(1 + len({preview.text for preview in row.previews}) for row in more.rows)
    assert all(
        row.correctness("none", (0,)) == other.correctness("none", (0,))
        for row, other in zip(table.rows, more.rows, strict=True)
    )


async def test_runs_without_long_term_memory_continue_the_none_arm(tmp_path: Path) -> None:
    """Bare runs are as many as arms and start with the split's none arm; working memory is injected in others."""
    with Run.open(toy_config(tmp_path)) as run:
        await explored(run)
        table, alone = await run_arms(run, "dev"), await run_alone(run, "dev")
        assert await run_alone(run, "dev") == alone == RoutingTable.load(run.table("dev_alone"))
        assert RoutingTable.load(run.table("dev")) == table
    for row, bare in zip(table.rows, alone.rows, strict=True):
        draws = [cell for cell in bare.cells if cell.arm.in_mode == "no_op"]
        assert [cell.arm.repeat for cell in draws] == [0, 1, 2]
        assert [cell.correct for cell in draws[:2]] == [c.correct for c in row.cells if c.arm.provider == "none"]
        assert all(cell.injected == 0 for cell in draws)
    assert sum(cell.injected for row in alone.rows for cell in row.cells if cell.arm.in_mode == "query") > 0


async def test_shuffled_memory_comes_from_another_family_and_helps_no_more(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await explored(run)
        table, control = await run_arms(run, "dev"), await run_arms_shuffled(run, "dev")
    plain = sum(row.correctness("lessons") or 0 for row in table.rows)
    shuffled = sum(row.correctness("lessons") or 0 for row in control.rows)
    assert plain > 2 * shuffled
    given = {row.task_id: row.previews for row in control.rows}
    own = {row.task_id: (row.previews, row.family) for row in table.rows}
    for task_id, previews in given.items():
        donors = {family for shown, family in own.values() if shown == previews}
        assert donors
        assert own[task_id][1] not in donors
    assert [row.correctness("none") for row in control.rows] == [row.correctness("none") for row in table.rows]


async def test_shuffling_is_a_permutation_without_fixed_points(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        async with Workbench(run) as bench:
            prepared = await prepare(bench, "arms/dev", bench.tasks(Split.DEV))
    mixed = shuffle(prepared, 0)
    assert sorted(p.probe.previews[0].text for p in mixed) == sorted(p.probe.previews[0].text for p in prepared)
    one_family = [Prepared(p.task.model_copy(update={"family": "f"}), p.query, p.probe) for p in prepared]
    distinct = [
        Prepared(p.task, p.query, p.probe.model_copy(update={"wave": place})) for place, p in enumerate(one_family)
    ]
    assert all(p.probe.wave != place for place, p in enumerate(shuffle(distinct, 0)))
    assert [p.probe for p in shuffle(prepared, 0)] == [p.probe for p in mixed]


def test_waves_cut_the_tasks_in_order_and_evenly() -> None:
    tasks = list(range(10))
    waves = split_waves(tasks, 4)  # type: ignore[arg-type]
    assert [number for wave in waves for number in wave] == tasks  # type: ignore[comparison-overlap]
    assert {len(wave) for wave in waves} == {2, 3}


async def test_the_share_changed_by_working_memory_counts_pairs(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        table = await explored(run)
        episodes = run.facts.episodes("explore", bodies=False)
    changed, pairs = changed_by_in_mode(table)
    assert pairs == 24 * 3
    assert 0 < changed < pairs
    key = next(key for key in episodes if key.in_mode == "query")
    assert episode_of(episodes, "explore", key.task_id, key.content_key, "query", 0) == episodes[key]


CHAIN = """
import asyncio, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from toy_world import toy_config
from synth.dataset import build
from synth.explore import explore
from synth.rewards import score
from synth.runs import Run
from synth.warmup import warm_up
with Run.open(toy_config(Path({runs!r}), "killed")) as run:
    asyncio.run(warm_up(run))
    asyncio.run(explore(run))
    asyncio.run(score(run))
    build(run)
"""


def chain(runs: Path, **environment: str) -> int:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    code = CHAIN.format(paths=paths, runs=str(runs))
    child = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return child.returncode


async def whole(run: Run) -> tuple[str, str]:
    await explored(run)
    await score(run)
    build(run)
    return json.loads((run.dataset / "card.json").read_text())["hash"], content(RoutingTable.load(run.table("explore")))


@pytest.mark.parametrize(
    "kills",
    [
        [{"TOY_KILL_EPISODE": "40"}, {"TOY_KILL_STORE": "30"}, {"TOY_KILL_EPISODE": "100"}],
        pytest.param(
            [
                {"TOY_KILL_EPISODE": "1"},
                {"TOY_KILL_EPISODE": "26"},
                {"TOY_KILL_STORE": "1"},
                {"TOY_KILL_STORE": "70"},
                {"TOY_KILL_EPISODE": "30"},
                {"TOY_KILL_STORE": "5"},
                {"TOY_KILL_EPISODE": "11"},
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_killed_at_any_moment_it_ends_with_the_same_dataset(tmp_path: Path, kills: list[dict[str, str]]) -> None:
    killed = [chain(tmp_path, **kill) for kill in kills]
    assert killed.count(-signal.SIGKILL) == len(kills)
    assert chain(tmp_path) == 0
    with Run.open(toy_config(tmp_path, "killed")) as run:
        found = await whole(run), bank_content(run)
    with Run.open(toy_config(tmp_path, "undisturbed")) as run:
        assert (await whole(run), bank_content(run)) == found


async def test_shuffling_never_swaps_within_kin(tmp_path: Path) -> None:
    """A trap holds its bait's content: giving it to the bait's family would be no control."""
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        async with Workbench(run) as bench:
            prepared = await prepare(bench, "arms/dev", bench.tasks(Split.DEV))
    kin = {place: ("a", "b")[place % 2] for place in range(len(prepared))}
    marked = [
        Prepared(
            p.task.model_copy(update={"family": "trap" if place % 4 > 1 else kin[place], "meta": {"kin": kin[place]}}),
            p.query,
            p.probe.model_copy(update={"wave": place}),
        )
        for place, p in enumerate(prepared)
    ]
    assert all(kin[p.probe.wave] != kin[place] for place, p in enumerate(shuffle(marked, 0)))
