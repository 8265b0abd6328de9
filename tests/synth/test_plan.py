"""What a run would take: unknown where nothing was measured, and measured where something stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_world import toy_config

from synth.config import ExploreConfig
from synth.facts import Episode, EpisodeKey
from synth.load_config import validate
from synth.plan import Plan, describe, plan
from synth.runs import Run

MODEL = {"models": {"agent": {"model": "m"}}}


def planned(tmp_path: Path, episodes: int, cost: float | None = 0.5, **changes: object) -> Plan:
    """The plan of warm-up and exploration after so many episodes of 8 s, 200 tokens each."""
    config = toy_config(tmp_path, **{"explore": ExploreConfig(concurrency=4), **changes})
    with Run.open(config) as run:
        for number in range(episodes):
            key = EpisodeKey(stage="explore", task_id=str(number), content_key="c", in_mode="query", repeat=0)
            run.facts.add_episode(Episode(key=key, status="done", seconds=8.0, tokens=200, cost=cost))
    return plan(config, ["warmup", "explore", "score"])


def test_an_agent_without_a_model_costs_nothing_and_its_pace_is_known(tmp_path: Path) -> None:
    made = planned(tmp_path, 0)
    assert (made.tokens, made.cost, made.episodes) == (0, 0.0, 60 * 2 + 24 * 6)
    assert made.minutes is not None
    assert "0 tokens of the agent's model (cost: $0.00)" in describe(made)
    assert (made.prices, made.uncounted) == ("", ())
    assert "rice" not in describe(made)


def test_a_model_that_was_never_asked_has_no_known_pace_or_price(tmp_path: Path) -> None:
    models = validate({"name": "x", **MODEL}, source="test").models
    made = planned(tmp_path, 3, models=models)
    assert (made.tokens, made.cost, made.minutes) == (None, None, None)
    assert "cost: unknown" in describe(made)
    assert "--max-episodes 20" in describe(made)
    assert "No price of m is known: give prompt_price and completion_price in models.agent." in describe(made)


@pytest.mark.parametrize(("cost", "expected", "words"), [(0.5, 132.0, "cost: $132.00"), (None, None, "cost: unknown")])
def test_what_ran_already_sets_the_pace(tmp_path: Path, cost: float | None, expected: float | None, words: str) -> None:
    made = planned(tmp_path, 10, cost)
    assert made.tokens == 264 * 200
    assert made.cost == expected
    assert made.minutes == pytest.approx(264 * 8 / 4 / 60 + 2 * 0.3 + 0.2, abs=0.2)
    assert words in describe(made)
    assert "from the 10 episodes in the run's folder" in describe(made)


def test_the_plan_says_whose_prices_it_has_and_what_it_does_not_count(tmp_path: Path) -> None:
    priced = {"model": "m", "prompt_price": 0.25, "completion_price": 2}
    given = {"name": "x", "models": {"default": priced}, "distiller": "lm", "rewards": {"judge": "lm"}}
    config = toy_config(tmp_path).model_copy(
        update={name: getattr(validate(given, source="test"), name) for name in ("models", "distiller", "rewards")}
    )
    made = plan(config, ["warmup", "explore", "score"])
    assert "not asked of the endpoint: m at $0.25 and $2 per million tokens" in describe(made)
    assert "Not counted: what the models of distiller, judge are asked." in describe(made)
    assert plan(config, ["build"]).uncounted == ()
    assert plan(config, ["evaluate"]).uncounted == ("distiller", "router")


def test_a_limit_on_episodes_bounds_the_plan(tmp_path: Path) -> None:
    made = planned(tmp_path, 10, explore=ExploreConfig(max_episodes=20))
    assert [stage.episodes for stage in made.stages] == [120, 20, 0]
