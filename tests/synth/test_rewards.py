"""Rewards from facts: success sets, downstream reuse by hand-made cases, and what score leaves behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import toy_config

from providers.errors import ConfigError
from providers.types import Preview, Retrieval
from router.decisions import Arm
from router.table import Cell, RoutingTable, TableRow
from synth.config import RewardConfig
from synth.explore import explore
from synth.facts import Probe, Served
from synth.reuse import Definition, Reuse, later_reuse
from synth.rewards import rewards_signature, score
from synth.runs import Run
from synth.success import Positive, SuccessSet, solves, success_set
from synth.warmup import warm_up


def row(**values: Sequence[float | None]) -> TableRow:
    """A task whose arms gave these results; a provider with the results () retrieved nothing and scored like none."""
    cells = []
    for provider, results in values.items():
        for repeat, correct in enumerate(results or (0.0,)):
            cells.append(Cell(arm=Arm(provider=provider, repeat=repeat), correct=correct, empty=not results))
    return TableRow(task_id="t", question="q", family="f", previews=(), cells=tuple(cells))


def test_only_providers_that_retrieved_and_were_scored_are_in_the_sets() -> None:
    found = success_set(row(a=[1.0], b=[0.0], c=(), d=[None]), ["a", "b", "c", "d"], "mean")
    assert found == SuccessSet(providers=("a", "b"), succeeding=("a",))
    assert found.kind == "proper"
    assert found.discriminability == 0.5


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 0.0], {"any": True, "mean": True, "all": False}),
        ([1.0, 0.0, 0.0], {"any": True, "mean": False, "all": False}),
        ([1.0, None], {"any": True, "mean": True, "all": True}),
        ([None, None], {"any": None, "mean": None, "all": None}),
    ],
)
def test_positive_says_when_a_providers_arms_solved_the_task(
    values: list[float | None], expected: dict[Positive, bool | None]
) -> None:
    assert {positive: solves(row(a=values), "a", positive) for positive in expected} == expected


def test_discriminability_is_zero_where_all_or_none_succeed() -> None:
    assert success_set(row(a=[1.0], b=[1.0]), ["a", "b"], "mean").discriminability == 0
    assert success_set(row(a=[0.0], b=[0.0]), ["a", "b"], "mean").discriminability == 0
    assert success_set(row(a=[1.0], b=[0.0], c=[0.0]), ["a", "b", "c"], "mean").discriminability == pytest.approx(2 / 3)
    assert success_set(row(a=()), ["a"], "mean").kind == "none"


def probes(shown: dict[str, tuple[int, list[tuple[str, float]]]]) -> dict[str, Probe]:
    """Probes of one provider `p`: by task its wave and the origins that it was shown."""
    return {
        task_id: Probe(
            task_id=task_id,
            wave=wave,
            previews=(Preview(provider="p"),),
            served={"p": Served(retrieval=Retrieval(provider="p", text="x"), origins=tuple(origins))},
        )
        for task_id, (wave, origins) in shown.items()
    }


def found(
    shown: dict[str, tuple[int, list[tuple[str, float]]]],
    solved: set[str],
    unscored: str = "",
    peers: dict[tuple[str, str], bool] | None = None,
) -> dict[str, Reuse]:
    """The reuse of every task's run at `p`."""
    facts = probes(shown)
    results = {(task_id, "p"): None if task_id in unscored else task_id in solved for task_id in facts}
    return {
        task_id: reuse
        for (task_id, _), reuse in later_reuse(
            [(task_id, "p") for task_id in facts], facts, {**results, **(peers or {})}
        ).items()
    }


def reuse(
    shown: dict[str, tuple[int, list[tuple[str, float]]]],
    solved: set[str],
    least: int = 1,
    unscored: str = "",
    definition: Definition = "reuse",
    peers: dict[tuple[str, str], bool] | None = None,
) -> dict[str, float | None]:
    of_task = found(shown, solved, unscored, peers)
    return {task_id: one.reward(definition, least) for task_id, one in of_task.items()}


def test_reuse_counts_later_tasks_that_were_shown_an_item_and_solved_ones() -> None:
    shown = {"a": (0, []), "b": (1, [("a", 1.0)]), "c": (1, [("a", 1.0)]), "d": (1, [])}
    assert reuse(shown, {"b"})["a"] == pytest.approx((1 + 1) / (2 + 2))
    assert reuse(shown, {"b", "c"})["a"] == pytest.approx((2 + 1) / (2 + 2))
    assert reuse(shown, set())["a"] == pytest.approx(1 / 4)


def test_one_reuse_is_two_thirds_or_one_third() -> None:
    shown = {"a": (0, []), "b": (1, [("a", 1.0)])}
    assert reuse(shown, {"b"})["a"] == pytest.approx(2 / 3)
    assert reuse(shown, set())["a"] == pytest.approx(1 / 3)


def test_never_retrieved_is_zero_and_too_few_later_tasks_is_unscored() -> None:
    shown = {"a": (0, []), "b": (1, []), "c": (1, [])}
    assert reuse(shown, {"b", "c"}, least=2) == {"a": 0.0, "b": None, "c": None}
    assert reuse(shown, {"b", "c"}, least=3)["a"] is None
    assert reuse(shown, {"b"}, least=2, unscored="c")["a"] is None


def test_the_same_wave_and_the_task_itself_are_no_reuse() -> None:
    shown = {"a": (0, [("a", 1.0)]), "b": (0, [("a", 1.0)]), "c": (1, [])}
    assert reuse(shown, {"a", "b", "c"})["a"] == 0.0


def test_an_item_of_two_origins_gives_each_half_the_credit() -> None:
    shown = {"a": (0, []), "b": (0, []), "c": (1, [("a", 0.5), ("b", 0.5)])}
    both = reuse(shown, {"c"})
    assert both["a"] == both["b"] == pytest.approx((0.5 + 1) / (0.5 + 2))


def test_reuse_knows_which_later_task_was_shown_what_and_how_it_ended() -> None:
    shown = {"a": (0, []), "b": (1, [("a", 0.5)]), "c": (2, [("a", 1.0), ("b", 1.0)])}
    of_a = found(shown, {"c"})["a"]
    assert [(event.task_id, event.share, event.solved) for event in of_a.events] == [
        ("b", 0.5, False),
        ("c", 1.0, True),
    ]
    assert (of_a.exposures, of_a.used, of_a.won) == (2, 1.5, 1.0)


def test_uplift_pays_for_what_others_did_not_solve_and_not_for_easy_tasks() -> None:
    shown = {"a": (0, []), "b": (1, [("a", 1.0)])}
    easy = {("b", name): True for name in "qrs"}
    hard = {("b", name): False for name in "qrs"}
    assert reuse(shown, {"b"}, definition="uplift", peers=easy)["a"] == pytest.approx(0.5)
    assert reuse(shown, {"b"}, definition="uplift", peers=hard)["a"] == pytest.approx(1.0)
    assert reuse(shown, set(), definition="uplift", peers=easy)["a"] == pytest.approx(0.0)
    assert reuse(shown, set(), definition="uplift", peers=hard)["a"] == pytest.approx(0.5)
    assert reuse(shown, {"b"}, definition="reuse", peers=easy) == reuse(shown, {"b"}, definition="reuse", peers=hard)


def test_uplift_is_censored_and_zero_as_reuse_is() -> None:
    shown = {"a": (0, []), "b": (1, []), "c": (1, [])}
    assert reuse(shown, {"b"}, least=2, definition="uplift") == {"a": 0.0, "b": None, "c": None}


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=12),
    st.sampled_from(["reuse", "uplift"]),
)
def test_every_definition_stays_in_range_and_a_solved_reuse_never_costs(
    events: list[tuple[bool, float, bool]], definition: Definition
) -> None:
    tasks = [f"t{number}" for number in range(len(events))]
    shown: dict[str, tuple[int, list[tuple[str, float]]]] = {"a": (0, [])}
    shown.update({task: (1, [("a", share)]) for task, (_, share, _) in zip(tasks, events, strict=True)})
    peers = {(task, "q"): other for task, (_, _, other) in zip(tasks, events, strict=True)}
    solved = {task for task, (won, _, _) in zip(tasks, events, strict=True) if won}
    before = reuse(shown, solved - {"t0"}, definition=definition, peers=peers)["a"]
    after = reuse(shown, solved | {"t0"}, definition=definition, peers=peers)["a"]
    assert before is not None
    assert after is not None
    assert 0 <= before <= after <= 1


@given(st.integers(0, 20), st.integers(0, 20))
def test_reuse_rewards_stay_between_zero_and_one_and_grow_with_success(won: int, lost: int) -> None:
    tasks = [f"t{number}" for number in range(won + lost)]
    shown: dict[str, tuple[int, list[tuple[str, float]]]] = {"a": (0, [])}
    shown.update({task: (1, [("a", 1.0)]) for task in tasks})
    reward = reuse(shown, set(tasks[:won]))["a"]
    if not tasks:
        assert reward is None
    else:
        assert reward == pytest.approx((won + 1) / (won + lost + 2))


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    run = Run.open(toy_config(tmp_path))
    await warm_up(run)
    await explore(run)
    return run


async def test_score_writes_rewards_a_summary_and_the_judge_into_the_table(run: Run) -> None:
    await score(run)
    rewards = run.facts.rewards(rewards_signature(run))
    summary = json.loads(run.rewards.read_text())
    table = RoutingTable.load(run.table("explore"))
    begin = [fact for fact in rewards if fact.phase == "begin"]
    full = [cell for row in table.rows for cell in row.cells if not cell.empty and cell.arm.provider != "none"]
    assert len(begin) == len(full) == summary["begin"]["decisions"]
    assert all(cell.judge is not None for cell in full)
    assert all(cell.judge is None for row in table.rows for cell in row.cells if cell.empty)
    assert sum(summary["begin"]["bins"]) == len(begin) - summary["begin"]["unscored"]
    assert sum(summary["success_sets"].values()) == summary["tasks"] == 24
    assert {fact.in_mode for fact in rewards if fact.phase == "in"} == {"query", "no_op"}
    ends = [fact for fact in rewards if fact.phase == "end"]
    assert len(ends) == len(run.facts.offers("explore")) == summary["end"]["decisions"]
    assert 0 < sum(fact.reward is None for fact in ends) == summary["reuse"]["unscored"] < len(ends)
    assert sum(map(sum, summary["reuse"]["by_provider"].values())) == len(ends) - summary["reuse"]["unscored"]


async def test_score_runs_no_episode_again_and_keeps_to_its_settings(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    await score(run)
    first = run.facts.rewards(rewards_signature(run))
    capsys.readouterr()
    await score(run)
    assert "score: done already" in capsys.readouterr().err
    config, root = run.config, run.config.runs_dir
    episodes = run.facts.episodes("explore", bodies=False)
    run.close()
    with Run.open(toy_config(root, rewards=RewardConfig(min_exposures=1000))) as other:
        await score(other)
        assert other.facts.episodes("explore", bodies=False) == episodes
        second = other.facts.rewards(rewards_signature(other))
    assert all(fact.reward is None or fact.reward > 0 for fact in second if fact.phase == "end")
    assert [fact for fact in first if fact.phase != "end"] == [fact for fact in second if fact.phase != "end"]
    with Run.open(config) as again:
        assert again.facts.rewards(rewards_signature(again)) == first


async def test_scoring_before_exploring_is_refused(tmp_path: Path) -> None:
    with Run.open(toy_config(tmp_path)) as run, pytest.raises(ConfigError, match="memroute explore"):
        await score(run)
