"""Exploration on a budget: what is chosen, what is left unlabelled, and the same end wherever it was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import bank_content, toy_config

from router.table import RoutingTable
from synth.budget import ROUNDS, Chooser, Option, Result, rounds_of
from synth.budget_curve import budget_curve
from synth.config import BudgetConfig, ExploreConfig, RunConfig
from synth.explore import explore
from synth.facts import EpisodeKey
from synth.rewards import score
from synth.runner import LimitReached
from synth.runs import Run
from synth.warmup import warm_up

RIGHT, WRONG = Result(correct=True, shared=False), Result(correct=False, shared=False)


def option(task: str, provider: str, mode: str = "query") -> Option:
    key = EpisodeKey(stage="explore", task_id=task, content_key=provider, in_mode=mode, repeat=0)  # type: ignore[arg-type]
    return Option(key, (provider,), 0.0)


def grid(tasks: Sequence[str], providers: Sequence[str]) -> list[Option]:
    return [option(task, name, mode) for task in tasks for name in providers for mode in ("query", "no_op")]


def budgeted(tmp_path: Path, name: str = "toy", share: float = 0.5, **changes: object) -> RunConfig:
    explored = ExploreConfig(waves=3, budget=BudgetConfig(share=share), **changes)  # type: ignore[arg-type]
    return toy_config(tmp_path, name, explore=explored)


def table_of(run: Run) -> list[list[float | None]]:
    return [[cell.correct for cell in row.cells] for row in RoutingTable.load(run.table("explore")).rows]


def test_a_no_op_arm_is_offered_once_its_query_arm_injected_something() -> None:
    chooser = Chooser("random", "mean", 0)
    options = grid(["t"], ["a", "b"])
    assert {o.key.in_mode for o in chooser.choose(options, [], {}, 9)} == {"query"}
    shared = Result(correct=True, shared=True)
    known = {option("t", "a").key: RIGHT, option("t", "b").key: shared}
    assert chooser.choose(options, [], known, 9) == [option("t", "a", "no_op")]


@pytest.mark.parametrize(
    ("positive", "result", "settled"),
    [("mean", RIGHT, True), ("mean", WRONG, False), ("any", RIGHT, True), ("all", WRONG, True), ("all", RIGHT, False)],
)
def test_a_settled_label_gets_no_further_episode_while_others_are_open(
    positive: str, result: Result, settled: bool
) -> None:
    """Of two In modes: one success makes a mean of at least 0.5, one failure settles `all`."""
    options = grid(["t"], ["a", "b"])
    known = {option("t", "a").key: result, option("t", "b").key: RIGHT if positive == "all" else WRONG}
    [first] = Chooser("undecided", positive, 0).choose(options, [], known, 1)  # type: ignore[arg-type]
    again = {Chooser("undecided", positive, seed).choose(options, [], known, 1)[0].name for seed in range(20)}  # type: ignore[arg-type]
    assert first.key.in_mode == "no_op"
    assert again == ({"b"} if settled else {"a", "b"})


def test_episodes_go_where_earlier_outcomes_say_that_they_pay() -> None:
    """Provider `good` solved every earlier task and `bad` none: the next episodes are `good`'s."""
    earlier = grid([f"e{n}" for n in range(40)], ["good", "bad"])
    known = {o.key: RIGHT if o.name == "good" else WRONG for o in earlier}
    options = grid([f"t{n}" for n in range(10)], ["good", "bad"])
    chosen = Chooser("undecided", "mean", 0).choose(options, earlier, known, 10)
    assert [o.name for o in chosen] == ["good"] * 10
    random = Chooser("random", "mean", 0).choose(options, earlier, known, 10)
    assert {o.name for o in random} == {"good", "bad"}


@given(st.integers(1, 10_000), st.floats(0.01, 1.0))
def test_rounds_make_up_the_quota(options: int, share: float) -> None:
    rounds = rounds_of(options, share)
    assert sum(rounds) == max(1, round(options * share))
    assert len(rounds) <= ROUNDS
    assert max(rounds) - min(rounds) <= 1


async def test_a_budget_runs_its_share_and_leaves_the_rest_unlabelled(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path, "full")) as run:
        await warm_up(run)
        await explore(run)
        full, episodes = table_of(run), run.facts.spent("explore").episodes
    with Run.open(budgeted(tmp_path)) as run:
        await warm_up(run)
        await explore(run)
        part, ran = table_of(run), run.facts.spent("explore").episodes
    assert 0.3 * episodes < ran <= 0.6 * episodes
    cells = [(a, b) for left, right in zip(part, full, strict=True) for a, b in zip(left, right, strict=True)]
    assert {a is None for a, _ in cells} == {True, False}


async def test_a_budgeted_run_ends_the_same_wherever_it_was_stopped(tmp_path: Path) -> None:
    with Run.open(budgeted(tmp_path)) as run:
        await warm_up(run)
        await explore(run)
        expected, bank = table_of(run), bank_content(run)
    for limit in (5, 17, 40):
        with Run.open(budgeted(tmp_path, "stopped", max_episodes=limit, concurrency=2)) as run:
            await warm_up(run)
            with pytest.raises(LimitReached):
                await explore(run)
    with Run.open(budgeted(tmp_path, "stopped", concurrency=5)) as run:
        await explore(run)
        assert (table_of(run), bank_content(run)) == (expected, bank)


async def test_the_curve_reaches_one_at_the_full_grid_and_names_what_was_saved(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run:
        await warm_up(run)
        await explore(run)
        await score(run)
        points = await budget_curve(run, shares=(0.4, 1.0), draws=2)
    by = {(point.by, point.share): point for point in points}
    assert by["undecided", 1.0].f1 == 1.0
    assert by["undecided", 1.0].saved == 0.0
    for name in ("undecided", "random"):
        small = by[name, 0.4]  # type: ignore[index]
        assert 0 < small.f1 < 1
        assert 0.5 < small.saved < 0.7
        assert small.episodes < by[name, 1.0].episodes  # type: ignore[index]
