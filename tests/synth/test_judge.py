"""The judge: exact aggregation, its gate, and what the rules read off a run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from providers.errors import JudgeError
from providers.types import Lineage, Step
from synth.config import RewardConfig
from synth.judge.cases import BeginCase, Case, EndCase, InCase
from synth.judge.rules import RuleJudge
from synth.judge.scale import DIMENSIONS, JudgedPhase, Unscored, Verdict, aggregate, weight_problems

TASK = "How large is the herd of cattle in Chad?"
MEMORY = 'For a herd of cattle open "Agriculture" and read "Livestock units".'
JUDGE = RuleJudge()


def step(index: int, page: str, observation: str = "Label: 1", error: str | None = None) -> Step:
    return Step(
        index=index,
        tool="open",
        arguments={"page": page},
        observation=observation,
        error=error,
        lineage=Lineage(source=page),
    )


def test_weights_of_each_decision_sum_to_one() -> None:
    for dimensions in DIMENSIONS.values():
        assert sum(d.weight for d in dimensions) == pytest.approx(1)


def test_aggregation_weighs_and_inverts() -> None:
    scores = {"relevance": 5, "utilization": 0, "progress": 2, "noise": 1}
    assert aggregate("begin", scores) == pytest.approx(0.30 + 0.25 * 0.4 + 0.10 * 0.8)
    assert aggregate("no_op", {"missed_opportunity": 0, "self_sufficiency": 5, "progress": 5}) == pytest.approx(1)
    assert aggregate("no_op", {"missed_opportunity": 5, "self_sufficiency": 0, "progress": 0}) == 0


def test_an_irrelevant_retrieval_earns_nothing_though_it_made_no_noise() -> None:
    assert aggregate("begin", {"relevance": 0, "utilization": 5, "progress": 5, "noise": 0}) == 0
    assert aggregate("query", {"relevance": 0, "utilization": 5, "progress": 5, "noise": 0}) == 0


@pytest.mark.parametrize(
    "scores",
    [
        {"relevance": 5, "utilization": 0, "progress": 2},
        {"relevance": 5, "utilization": 0, "progress": 2, "noise": 6},
        {"relevance": 5, "utilization": 0, "progress": 2, "noise": -1},
        {"relevance": 5, "utilization": 0, "progress": 2, "noise": 1.0},
        {"relevance": True, "utilization": 0, "progress": 2, "noise": 1},
        {"relevance": 5, "utilization": 0, "progress": 2, "noise": 1, "charm": 1},
    ],
)
def test_an_unreadable_verdict_is_an_error_and_never_filled_in(scores: dict[str, int]) -> None:
    with pytest.raises(JudgeError):
        aggregate("begin", scores)


@given(st.sampled_from(sorted(DIMENSIONS)), st.data())
def test_rewards_stay_in_range_and_each_dimension_pulls_its_way(phase: JudgedPhase, data: st.DataObject) -> None:
    dimensions = DIMENSIONS[phase]
    scores = {d.name: data.draw(st.integers(1, 4)) for d in dimensions}
    reward = aggregate(phase, scores)
    assert 0 <= reward <= 1
    for dimension in dimensions:
        more = aggregate(phase, {**scores, dimension.name: scores[dimension.name] + 1})
        assert (more < reward) == dimension.inverted


async def verdict(case: Case) -> Verdict:
    found = await JUDGE.judge(case)
    assert isinstance(found, Verdict)
    return found


def rewarded(found: Verdict) -> float:
    return aggregate(found.phase, found.scores)


async def test_following_the_memory_scores_above_ignoring_it() -> None:
    followed = await verdict(BeginCase(TASK, MEMORY, [step(0, "Agriculture"), step(1, "Livestock units")], "12"))
    ignored = await verdict(BeginCase(TASK, MEMORY, [step(0, "Weather"), step(1, "Roads")], "12"))
    assert followed.scores["utilization"] > ignored.scores["utilization"] == 0
    assert followed.scores["relevance"] == ignored.scores["relevance"] > 0
    assert rewarded(followed) > rewarded(ignored)


async def test_a_memory_about_something_else_has_no_relevance_unless_its_encoding_is_near() -> None:
    case = BeginCase(TASK, "Bake bread slowly.", [step(0, "Weather")], "12")
    far, near = (
        await verdict(case),
        await verdict(BeginCase(case.task, case.memory, case.actions, "12", similarity=0.6)),
    )
    assert rewarded(far) == 0 < rewarded(near)


async def test_being_led_to_missing_pages_is_noise_and_an_answer_is_progress() -> None:
    misled = [step(0, "Agriculture", error="No page"), step(1, "Agriculture", error="No page")]
    bad = await verdict(BeginCase(TASK, MEMORY, misled, None))
    good = await verdict(BeginCase(TASK, MEMORY, [step(0, "Agriculture")], "12"))
    assert bad.scores["noise"] >= 3 > good.scores["noise"] == 0
    assert bad.scores["progress"] == 0 < good.scores["progress"]


async def test_calling_an_injected_skill_is_full_utilization() -> None:
    call = Step(index=0, tool="count_herds", observation="12")
    found = await verdict(BeginCase(TASK, "count_herds(region): counts", [call], "12", skills=("count_herds",)))
    assert found.scores["utilization"] == 5


async def test_holding_back_what_would_have_spared_a_repeated_step_is_a_missed_opportunity() -> None:
    before = [step(0, "Chad"), step(1, "Roads")]
    again = await verdict(InCase(TASK, "Pages Visited:\n- Chad", before, step(2, "Chad"), None, injected=False))
    onward = await verdict(InCase(TASK, "Pages Visited:\n- Chad", before, step(2, "Herds"), None, injected=False))
    assert again.scores["missed_opportunity"] == 4 > onward.scores["missed_opportunity"]
    assert again.scores["progress"] == 0 < onward.scores["progress"]
    assert rewarded(onward) > rewarded(again)


async def test_memory_that_repeats_what_is_in_view_is_noise() -> None:
    before = [step(0, "Chad", "Livestock units: 12")]
    fresh = await verdict(InCase(TASK, "Cattle herd: 12 at Agriculture", before, step(1, "Agriculture"), None))
    stale = await verdict(InCase(TASK, "Livestock units: 12", before, step(1, "Agriculture"), None))
    assert stale.scores["noise"] == 5 > fresh.scores["noise"]
    assert fresh.scores["utilization"] > stale.scores["utilization"] == 0


async def test_a_run_without_a_next_action_stays_unscored() -> None:
    before = [step(0, "Chad")]
    for case in (BeginCase(TASK, MEMORY, [], None), InCase(TASK, MEMORY, before, None, None)):
        found = await JUDGE.judge(case)
        assert found == Unscored(kind="nothing to read")
    assert await verdict(InCase(TASK, MEMORY, before, None, "12", injected=False))


def end(**changes: Any) -> EndCase:
    values = {"task": TASK, "summary": "done", "actions": [step(0, "Chad")], "provider": "awm", "stores": "workflows"}
    return EndCase(**{**values, "records": 1, **changes})


async def test_an_offer_scores_by_what_it_gave_how_clean_it_was_and_what_was_known() -> None:
    stored, nothing = await verdict(end()), await verdict(end(records=0))
    known = await verdict(end(earlier=("How large is the herd of cattle in Mali?",)))
    wasteful = await verdict(end(actions=[step(0, "Chad"), *[step(n, "Chad") for n in range(1, 5)]]))
    assert stored.scores["fit"] > nothing.scores["fit"] == 0
    assert known.scores["pollution"] > stored.scores["pollution"] == 0
    assert stored.scores["reusability"] > wasteful.scores["reusability"]
    assert rewarded(stored) > max(rewarded(nothing), rewarded(known), rewarded(wasteful))


def test_the_rule_judge_says_that_it_is_rules() -> None:
    assert "rules" in JUDGE.says
    assert "no model" in JUDGE.says


def test_weights_of_the_config_replace_the_default_ones() -> None:
    scores = {"relevance": 5, "utilization": 0, "progress": 0, "noise": 5}
    weights = {"begin": {"relevance": 0.7, "utilization": 0.1, "progress": 0.1, "noise": 0.1}}
    assert aggregate("begin", scores, weights) == pytest.approx(0.7)
    assert aggregate("query", scores, weights) == aggregate("query", scores)
    assert weight_problems(weights) == []


@pytest.mark.parametrize(
    "given",
    [
        {"relevance": 1.0},
        {"relevance": 0.5, "utilization": 0.2, "progress": 0.2, "noise": 0.2},
        {"relevance": 1.2, "utilization": -0.2, "progress": 0.0, "noise": 0.0},
        {"relevance": 0.5, "utilization": 0.2, "progress": 0.2, "noise": 0.1, "charm": 0.0},
    ],
)
def test_weights_that_miss_a_dimension_or_do_not_sum_to_one_are_refused(given: dict[str, float]) -> None:
    assert len(weight_problems({"begin": given})) == 1
    with pytest.raises(ValidationError, match="begin"):
        RewardConfig(weights={"begin": given})
