"""Online runs: every policy starts from the same bank, which grows by what that policy keeps and no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "synth"))
from toy_world import bank_content, toy_config

from evaluation import online
from evaluation.behaviour import behaviour
from evaluation.online import online_names, run_online
from evaluation.online_comparison import with_online
from evaluation.replay import evaluate
from evaluation.result import Evaluation
from evaluation.stream import InStep, Stream, StreamTask
from providers.errors import EngineError
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy
from router.policies import registry
from router.policies.registry import PolicyMaterial
from synth.config import EvaluateConfig, OnlineConfig
from synth.explore import explore
from synth.runs import Run
from synth.warmup import warm_up


class Whole:
    """Stands for a trained router: notes at Begin, working memory at even steps, lessons at End."""

    name = "trained"

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision(providers=("notes",))

    async def step(self, context: InContext) -> InDecision:
        return InDecision(action="no_op" if context.step % 2 else "query")

    async def end(self, context: EndContext) -> EndDecision:
        return EndDecision(providers=("lessons",))


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setitem(registry._BUILDERS, "trained", lambda material: Whole())
    evaluate_config = EvaluateConfig(bootstrap=200, online=OnlineConfig(tasks=10, seeds=2, batch=3))
    with Run.open(toy_config(tmp_path, evaluate=evaluate_config)) as opened:
        await warm_up(opened)
        await explore(opened)
        yield opened  # type: ignore[misc]


def material(run: Run) -> PolicyMaterial:
    from providers.registry import provider_cards

    return PolicyMaterial(cards=provider_cards(run.config.providers), encoder=run.encoder)


def tasks_of(streams: tuple[Stream, ...]) -> list[list[str]]:
    return [[task.task_id for task in stream.tasks] for stream in streams]


async def test_streams_are_matched_and_leave_the_bank_as_it_is(run: Run) -> None:
    before = bank_content(run)
    ran = await run_online(run, "dev", ["none", "in_only", "notes", "concat", "fuse"], material(run), "")
    assert ran.missing == {}
    assert bank_content(run) == before
    assert not (run.root / "bank.online.sqlite").exists()
    orders = [tasks_of(streams) for streams in ran.streams.values()]
    assert all(order == orders[0] for order in orders)
    assert orders[0][0] != orders[0][1]
    assert sorted(orders[0][0]) == sorted(orders[0][1])
    assert {task.begin for task in ran.streams["concat"][0].tasks} == {("notes", "lessons")}
    assert {task.begin for task in ran.streams["none"][0].tasks} == {()}
    assert all(task.injected == 0 and not task.end for task in ran.streams["none"][0].tasks)
    assert any(one.action == "query" for task in ran.streams["in_only"][0].tasks for one in task.in_steps)


async def test_one_phase_changes_and_the_others_stay(run: Run) -> None:
    names = ["router", "in_always", "in_never", "store_all", "store_none"]
    ran = await run_online(run, "dev", names, material(run), "")
    rate = {name: behaviour(streams, ("notes", "lessons")).in_rate for name, streams in ran.streams.items()}
    assert rate["in_never"] == 0.0
    assert (rate["in_always"] or 0.0) > (rate["router"] or 0.0) > 0.0
    every = {name: [task for stream in streams for task in stream.tasks] for name, streams in ran.streams.items()}
    kept = {name: {end for task in tasks for end in task.end} for name, tasks in every.items()}
    assert kept["store_none"] == set()
    assert kept["router"] <= {"lessons"}
    assert kept["store_all"] == {"notes", "lessons"}
    assert all(task.begin == ("notes",) for tasks in every.values() for task in tasks)


async def test_the_bank_grows_as_the_stream_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a batch stored is served to later ones: the counts of records rise from batch to batch under store-all."""
    counts: list[int] = []
    plain = online.Streaming.batch

    async def counted(self: online.Streaming, tasks: list[object]) -> list[online.Ran]:
        counts.append(len(self._providers["notes"]._space.records()))  # type: ignore[attr-defined]
        return await plain(self, tasks)  # type: ignore[arg-type]

    monkeypatch.setattr(online.Streaming, "batch", counted)
    await run_online(run, "dev", ["store_all"], material(run), "")
    first, second = counts[:4], counts[4:]
    assert first == sorted(first)
    assert first[-1] == first[0] + 9
    assert second[0] == first[0]


async def test_streams_that_stand_are_not_run_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await run_online(run, "dev", ["none"], material(run), "a")

    async def forbidden(self: object, tasks: object) -> list[StreamTask]:
        raise AssertionError("run again")

    monkeypatch.setattr(online.Streaming, "batch", forbidden)
    assert (await run_online(run, "dev", ["none"], material(run), "a")).streams == first.streams
    with pytest.raises(AssertionError, match="run again"):
        await run_online(run, "dev", ["none"], material(run), "b")


async def test_a_policy_that_raises_is_a_gap_with_its_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Whole):
        name = "concat"

        async def begin(self, context: BeginContext) -> BeginDecision:
            raise ValueError("no idea")

    class Unready(Whole):
        name = "fuse"

        async def begin(self, context: BeginContext) -> BeginDecision:
            raise EngineError("The engine is out; start it.")

    broken: Policy = Broken()
    monkeypatch.setitem(registry._BUILDERS, "concat", lambda material: broken)
    monkeypatch.setitem(registry._BUILDERS, "fuse", lambda material: Unready())
    ran = await run_online(run, "dev", ["none", "concat", "fuse"], material(run), "")
    assert list(ran.streams) == ["none"]
    assert "no idea" in ran.missing["concat"]
    assert ran.missing["fuse"] == "The engine is out; start it."


async def test_evaluate_adds_online_rows_beside_replay(run: Run) -> None:
    run.config = run.config.model_copy(
        update={"evaluate": run.config.evaluate.model_copy(update={"policies": ("none", "notes", "router", "concat")})}
    )
    found = await evaluate(run)
    assert set(found.online) == {"none", "in_only", found.best_single, "router", "concat"}
    assert found.policies["concat"].way == "online"
    assert found.policies["none"].way == "replay"
    assert {(one.policy, one.way) for one in found.online_comparisons} == {("router", "online")}
    assert "concat" in {one.against for one in found.online_comparisons}
    assert Evaluation.load(run.evaluation / "dev.json") == found


async def test_routers_are_evaluated_with_an_agent_they_were_not_trained_with(run: Run) -> None:
    """The other agent fails on one word: its evaluation stands beside the first one, and the run's agent stays."""
    policies = ("none", "notes", "lessons")
    plain = run.config.evaluate.model_copy(update={"policies": policies, "shuffle": False, "alone": False})
    lenient = run.config.explore.model_copy(update={"fail_on_error": False})
    run.config = run.config.model_copy(update={"evaluate": plain, "explore": lenient})
    own = await evaluate(run)
    kept = run.config.agent
    other = kept.model_copy(update={"options": {"fail": "height"}})
    run.config = run.config.model_copy(update={"evaluate": plain.model_copy(update={"agent": other})})
    found = await evaluate(run)
    assert run.config.agent == kept
    assert own.agent == kept.name
    assert found.agent == f"{kept.name}, options {{'fail': 'height'}}"
    assert found.policies["notes"].unscored == 2
    assert own.policies["notes"].unscored == 0
    assert Evaluation.load(run.evaluation / "dev.json") == own
    [beside] = run.evaluation.glob("dev-agent-*[!s].json")
    assert Evaluation.load(beside) == found


def test_nothing_runs_online_unless_a_policy_needs_it() -> None:
    assert online_names(["none", "heads", "awm"], "awm") == []
    assert online_names(["fuse", "router"], "awm") == ["none", "in_only", "awm", "router", "fuse"]
    assert online_names(["concat"], None) == ["none", "in_only", "concat"]


def stream(*correct: bool | None, policy: str = "p", seed: int = 0) -> Stream:
    steps = (
        InStep(step=0, action="no_op", forced=True),
        InStep(step=1, action="query", forced=False),
        InStep(step=2, action="no_op", forced=False),
    )
    tasks = tuple(
        StreamTask(
            task_id=f"t{place}",
            family="f",
            status="done",
            correct=value,
            begin=("a",) if place % 2 else (),
            in_steps=steps[: 2 + place % 2],
            end=("a", "b") if value else ("a",),
            steps=4,
            seconds=2.0,
        )
        for place, value in enumerate(correct)
    )
    return Stream(key="", policy=policy, seed=seed, tasks=tasks)


def test_behaviour_by_hand() -> None:
    found = behaviour([stream(True, False, None, True, True)], ("a", "b"))
    assert found.begin_shares == {"none": 0.6, "a": 0.4, "b": 0.0}
    assert found.in_rate_by_step == (0.0, 1.0, 0.0)
    assert found.in_decisions_by_step == (5, 5, 2)
    assert found.in_rate == pytest.approx(5 / 12)
    assert found.end_sizes == {"correct": {2: 3}, "wrong": {1: 1}, "unscored": {1: 1}}
    assert found.end_shares["wrong"] == {"a": 1.0, "b": 0.0}
    assert found.stream == (1.0, 0.5, 0.5, pytest.approx(2 / 3), 0.75)


def test_failed_runs_are_unscored_and_nothing_is_divided_by_zero() -> None:
    failed = StreamTask(task_id="t0", family="f", status="failed", error="x")
    lost = Stream(key="", policy="router", seed=0, tasks=(failed, stream(False, False).tasks[1]))
    whole = stream(False, False, policy="none")
    base = Evaluation.model_construct(
        providers=("a", "b"), best_single=None, seed=0, missing={}, policies={}, schema_version=1
    )
    found = with_online(
        base, {"router": [lost], "none": [whole]}, router="heads", missing={}, resamples=100, chars_per_token=None
    )
    row = found.online["router"]
    assert (row.accuracy, row.n, row.unscored) == (0.0, 1, 1)
    assert row.seconds_per_solved is None
    assert row.injected_tokens is None
    assert found.online_comparisons[0].n == 1
