"""Warm-up: banks grow from dealt streams, the same whatever the concurrency or interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_world import ToyAgent, bank_content, toy_config

from providers.errors import AgentError
from synth.config import AgentConfig, ExploreConfig, WarmupConfig
from synth.explore import explore
from synth.runs import Run
from synth.warmup import BATCH, deal, warm_up


async def test_it_fills_the_banks_and_solves_more_with_what_was_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        printed = capsys.readouterr().err
        first = list(run.facts.episodes("warmup/0/0", bodies=False).values())
        second = list(run.facts.episodes("warmup/1/0", bodies=False).values())
        stored = run.facts.offers("warmup/0")
    assert len(first) == 60
    solved = [episode for episode in first if episode.outcome.correct]
    assert len(second) == 60 - len(solved)
    share = sum(bool(e.outcome.correct) for e in second) / len(second)
    assert share > len(solved) / len(first)
    assert "pass 1 of 2" in printed
    assert "pass 2 of 2" in printed
    assert sum(offer.provider == "notes" for offer in stored) == 60
    assert sum(offer.provider == "lessons" for offer in stored) == len(solved)


async def test_tries_use_other_seeds_until_one_is_correct(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path, warmup=WarmupConfig(tries=3, passes=1))) as run:
        await warm_up(run)
        tries = [run.facts.episodes(f"warmup/0/{number}") for number in range(3)]
        offers = run.facts.offers("warmup/0")
    counts = [len(found) for found in tries]
    assert counts[0] == 60 > counts[1] > counts[2] > 0
    seeds = {e.trajectory.seed for found in tries for e in found.values() if e.trajectory is not None}
    assert len(seeds) == sum(counts)
    solved = {e.key.task_id for found in tries for e in found.values() if e.outcome.correct}
    assert {offer.task_id for offer in offers if offer.provider == "lessons"} == solved
    assert len([offer for offer in offers if offer.provider == "notes"]) == 60


async def test_tasks_are_dealt_evenly_to_none_and_every_provider(tmp_path: Path) -> None:
    arms = deal(0, 0, ["none", "notes", "lessons"])
    assert sorted(arms) == ["lessons", "none", "notes"]
    assert {tuple(deal(seed, 0, ["a", "b", "c"])) for seed in range(9)} != {tuple(arms)}
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        shown = [
            tuple(i.provider for i in e.trajectory.injections if i.phase == "begin")
            for e in run.facts.episodes("warmup/0/0").values()
            if e.trajectory is not None
        ]
    assert shown.count(("notes",)) == pytest.approx((60 - BATCH) / 3, abs=2)


async def test_concurrency_changes_nothing(tmp_path: Path) -> None:
    contents = []
    for name, concurrency in (("one", 1), ("many", 16)):
        with Run.open(toy_config(tmp_path, name, explore=ExploreConfig(concurrency=concurrency))) as run:
            await warm_up(run)
            contents.append(bank_content(run))
    assert contents[0] == contents[1]
    assert len(contents[0]) > 60


async def test_a_second_start_does_nothing_and_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        first = await warm_up(run)
        before = bank_content(run)
        assert f"pass 2 of 2: {first.solved} of {first.tasks} tasks solved" in capsys.readouterr().err
        assert await warm_up(run) == first
        assert "warm-up: done already" in capsys.readouterr().err
        assert bank_content(run) == before


async def test_a_lost_bank_is_rebuilt_from_the_facts_without_an_episode(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = toy_config(tmp_path, agent=AgentConfig(name="toy_world:ToyAgent", options={"log": str(log)}))
    with Run.open(config) as run:
        await warm_up(run)
        await explore(run)
        before, calls = bank_content(run), len(log.read_text().splitlines())
        run.bank.unlink()
        await warm_up(run)
        await explore(run)
        assert bank_content(run) == before
        assert len(log.read_text().splitlines()) == calls


async def test_too_many_failures_stop_it_and_a_mended_start_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> object:
        raise AgentError("the engine is down")

    with Run.open(toy_config(tmp_path, explore=ExploreConfig(fail_on_error=3, concurrency=2))) as run:
        with monkeypatch.context() as broken:
            broken.setattr(ToyAgent, "run", fail)
            with pytest.raises(AgentError, match=r"\d of \d+ episodes failed.*fail_on_error = 3.*the engine is down"):
                await warm_up(run)
        await warm_up(run)
        mended = bank_content(run)
    with Run.open(toy_config(tmp_path, "undisturbed")) as run:
        await warm_up(run)
        assert bank_content(run) == mended
