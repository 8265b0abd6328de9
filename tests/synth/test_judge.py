"""The judge: exact aggregation, its gate, and what the rules read off a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import JudgeError
from providers.types import Lineage, Step
from synth.judge import DIMENSIONS, BeginCase, InCase, JudgedPhase, RuleJudge, aggregate

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


def test_following_the_memory_scores_above_ignoring_it() -> None:
    followed = JUDGE.begin(BeginCase(TASK, MEMORY, [step(0, "Agriculture"), step(1, "Livestock units")], "12"))
    ignored = JUDGE.begin(BeginCase(TASK, MEMORY, [step(0, "Weather"), step(1, "Roads")], "12"))
    assert followed is not None
    assert ignored is not None
    assert followed.scores["utilization"] > ignored.scores["utilization"] == 0
    assert followed.scores["relevance"] == ignored.scores["relevance"] > 0
    assert followed.reward > ignored.reward


def test_a_memory_about_something_else_has_no_relevance_unless_its_encoding_is_near() -> None:
    case = BeginCase(TASK, "Bake bread slowly.", [step(0, "Weather")], "12")
    far, near = JUDGE.begin(case), JUDGE.begin(BeginCase(case.task, case.memory, case.actions, "12", similarity=0.6))
    assert far is not None
    assert near is not None
    assert far.reward == 0 < near.reward


def test_being_led_to_missing_pages_is_noise_and_an_answer_is_progress() -> None:
    misled = [step(0, "Agriculture", error="No page"), step(1, "Agriculture", error="No page")]
    bad = JUDGE.begin(BeginCase(TASK, MEMORY, misled, None))
    good = JUDGE.begin(BeginCase(TASK, MEMORY, [step(0, "Agriculture")], "12"))
    assert bad is not None
    assert good is not None
    assert bad.scores["noise"] >= 3 > good.scores["noise"] == 0
    assert bad.scores["progress"] == 0 < good.scores["progress"]


def test_calling_an_injected_skill_is_full_utilization() -> None:
    call = Step(index=0, tool="count_herds", observation="12")
    verdict = JUDGE.begin(BeginCase(TASK, "count_herds(region): counts", [call], "12", skills=("count_herds",)))
    assert verdict is not None
    assert verdict.scores["utilization"] == 5


def test_holding_back_what_would_have_spared_a_repeated_step_is_a_missed_opportunity() -> None:
    before = [step(0, "Chad"), step(1, "Roads")]
    again = JUDGE.no_op(InCase(TASK, "Pages Visited:\n- Chad", before, step(2, "Chad"), None))
    onward = JUDGE.no_op(InCase(TASK, "Pages Visited:\n- Chad", before, step(2, "Herds"), None))
    assert again is not None
    assert onward is not None
    assert again.scores["missed_opportunity"] == 4 > onward.scores["missed_opportunity"]
    assert again.scores["progress"] == 0 < onward.scores["progress"]
    assert onward.reward > again.reward


def test_memory_that_repeats_what_is_in_view_is_noise() -> None:
    before = [step(0, "Chad", "Livestock units: 12")]
    fresh = JUDGE.query(InCase(TASK, "Cattle herd: 12 at Agriculture", before, step(1, "Agriculture"), None))
    stale = JUDGE.query(InCase(TASK, "Livestock units: 12", before, step(1, "Agriculture"), None))
    assert fresh is not None
    assert stale is not None
    assert stale.scores["noise"] == 5 > fresh.scores["noise"]
    assert fresh.scores["utilization"] > stale.scores["utilization"] == 0


def test_a_run_without_a_next_action_stays_unscored() -> None:
    assert JUDGE.begin(BeginCase(TASK, MEMORY, [], None)) is None
    assert JUDGE.query(InCase(TASK, MEMORY, [step(0, "Chad")], None, None)) is None
    assert JUDGE.no_op(InCase(TASK, MEMORY, [step(0, "Chad")], None, None)) is None
    assert JUDGE.no_op(InCase(TASK, MEMORY, [step(0, "Chad")], None, "12")) is not None
