"""The figures of an evaluation, on tables whose answers are known."""

from __future__ import annotations

import functools

import pytest
from made_tables import PROVIDERS, made_alone, made_table

from evaluation.comparison import Material, compare
from evaluation.result import Decisions, Evaluation
from evaluation.statistics import benjamini_hochberg, holm
from evaluation.words import findings
from providers.base import ProviderCard
from router.decisions import Arm
from router.table import Cell, RoutingTable


def cards(names: tuple[str, ...] = PROVIDERS) -> tuple[ProviderCard, ...]:
    return tuple(
        ProviderCard(name=name, title=name.title(), family="insight", stores="", retrieves="", gate="all", top_k=1)
        for name in names
    )


def always(table: RoutingTable, arm: str) -> Decisions:
    return Decisions(key="", arms=((arm,) * len(table.rows),))


def best_of(table: RoutingTable) -> Decisions:
    """A policy that looks at the outcomes: what no real one may."""
    arms = ("none", *table.providers)
    picks = tuple(max(arms, key=lambda arm: row.correctness(arm) or 0.0) for row in table.rows)
    return Decisions(key="", arms=(picks,))


@functools.cache
def exploration() -> RoutingTable:
    """An exploration on which ExpeL was best."""
    return with_cells(made_table(140, "explore", repeats=1), {"expel": 1.0})


def evaluated(table: RoutingTable, policies: dict[str, Decisions], **more: object) -> Evaluation:
    fields = {
        "run": "made",
        "seed": 0,
        "table": table,
        "explore": exploration(),
        "cards": cards(table.providers),
        "decisions": policies,
        "resamples": 500,
        "repeats": 2,
    }
    return compare(Material(**(fields | more)))  # type: ignore[arg-type]


def with_cells(table: RoutingTable, change: dict[str, float | None]) -> RoutingTable:
    """The same table with the outcome of some arms replaced on every task."""
    rows = []
    for row in table.rows:
        cells = tuple(
            cell.model_copy(update={"correct": change[cell.arm.provider]}) if cell.arm.provider in change else cell
            for cell in row.cells
        )
        rows.append(row.model_copy(update={"cells": cells}))
    return table.model_copy(update={"rows": tuple(rows)})


def test_the_share_of_legal_answers_is_stated_for_models_that_answer_in_words_alone() -> None:
    table = made_table(70)
    asked = {"trained": always(table, "awm"), "overlap": always(table, "expel")}
    asked["trained"] = asked["trained"].model_copy(update={"constrained": 5, "fallbacks": 2})
    found = evaluated(table, asked, codec="json")
    assert found.policies["trained"].legal_share == pytest.approx(63 / 70)
    assert found.policies["trained"].constrained == 5
    assert found.policies["overlap"].legal_share is None
    assert "Trained LM: 90.0% of its answers are legal without constraint; the other 5" in " ".join(findings(found))
    assert evaluated(table, asked).policies["trained"].legal_share is None


def test_best_single_is_chosen_on_exploration_and_hindsight_on_the_split() -> None:
    explore = with_cells(made_table(70, "explore"), dict.fromkeys(PROVIDERS, 0.0) | {"awm": 1.0})
    table = with_cells(made_table(70), dict.fromkeys(PROVIDERS, 0.0) | {"voyager": 1.0})
    found = evaluated(table, {"none": always(table, "none")}, explore=explore)
    assert (found.best_single, found.best_single_accuracy) == ("awm", 0.0)
    assert (found.best_single_hindsight, found.best_single_hindsight_accuracy) == ("voyager", 1.0)


def test_headroom_of_floor_best_single_and_ceiling() -> None:
    table = made_table(210)
    found = evaluated(
        table, {"none": always(table, "none"), "trained": best_of(table), "heads": always(table, "expel")}
    )
    assert found.policies["none"].headroom_captured == pytest.approx(0)
    assert found.headroom_captured_plain["trained"] == pytest.approx(1)
    assert found.headroom_captured_crossfit == found.headroom_captured != found.headroom_captured_plain
    assert found.policies["trained"].regret == pytest.approx(0)
    assert found.best_single == "expel"
    assert found.headroom_over_best["heads"] == pytest.approx(0)
    crossed, best, trained = found.oracle_crossfit, found.best_single_accuracy, found.policies["trained"].accuracy
    assert crossed is not None
    assert best is not None
    assert trained is not None
    assert found.headroom_over_best["trained"] == pytest.approx((trained - best) / (crossed - best))


def test_headroom_is_none_without_any() -> None:
    table = with_cells(made_table(35), dict.fromkeys(("none", *PROVIDERS), 1.0))
    found = evaluated(table, {"trained": always(table, "awm")})
    assert found.headroom_captured == found.headroom_captured_crossfit == {"trained": None}
    assert found.headroom_over_best == {"trained": None}


def test_unscored_runs_count_as_neither_right_nor_wrong() -> None:
    table = with_cells(made_table(70), {"awm": None})
    found = evaluated(table, {"awm": always(table, "awm"), "none": always(table, "none")})
    result = found.policies["awm"]
    assert (result.accuracy, result.n, result.unscored) == (None, 0, 70)
    assert result.delta_vs_best_single is None
    assert found.provider_by_family["awm"]["lookup"].accuracy is None
    assert any("70 of 420 task-arm pairs are unscored" in warning for warning in found.warnings)


def test_recommended_is_the_better_router_on_dev_and_is_carried_to_test() -> None:
    table = made_table(140)
    routers = {"trained": always(table, "none"), "heads": best_of(table)}
    assert evaluated(table, routers).recommended == "heads"
    test = table.model_copy(update={"split": "test"})
    assert evaluated(test, routers, recommended_on_dev="trained").recommended == "trained"
    without = evaluated(test, routers)
    assert without.recommended is None
    assert any("run `memroute evaluate` on dev first" in note for note in without.notes)


def test_shares_by_family_and_collapse() -> None:
    table = made_table(70)
    families = {row.task_id: row.family for row in table.rows}
    picks = tuple("awm" if families[row.task_id] == "count" else "expel" for row in table.rows)
    found = evaluated(table, {"knn": Decisions(key="", arms=(picks,)), "trained": always(table, "voyager")})
    assert found.policies["knn"].shares_by_family["count"]["awm"] == 1.0
    assert found.policies["knn"].shares["awm"] == pytest.approx(1 / 7)
    assert found.policies["trained"].entropy == 0
    assert any("sends 100% of the tasks to Voyager" in warning for warning in found.warnings)
    assert not any(warning.startswith("Nearest tasks sends") for warning in found.warnings)


def test_random_is_averaged_over_its_seeds() -> None:
    table = made_table(70)
    found = evaluated(table, {"random": Decisions(key="", arms=(("awm",) * 70, ("expel",) * 70))})
    single = evaluated(table, {"awm": always(table, "awm"), "expel": always(table, "expel")})
    accuracies = [single.policies[name].accuracy or 0.0 for name in ("awm", "expel")]
    assert found.policies["random"].seeds == 2
    assert found.policies["random"].accuracy == pytest.approx(sum(accuracies) / 2)
    assert found.policies["random"].shares["awm"] == 0.5


def test_shuffled_loss_share() -> None:
    table = with_cells(made_table(70), {"none": 0.0, "expel": 1.0})
    half = with_cells(made_table(70, shuffled=True), {"none": 0.0, "expel": 0.25})
    found = evaluated(table, {"none": always(table, "none")}, shuffled=half)
    assert found.shuffled_loss_share == pytest.approx(0.75)
    assert found.shuffled["expel"].gain_shuffled == pytest.approx(0.25)
    assert evaluated(table, {}).shuffled_loss_share is None


def test_shuffled_loss_share_against_working_memory() -> None:
    """Working memory alone solves all that shuffled text does: the content's whole gain is lost."""
    table = with_cells(made_table(70), {"none": 0.0, "expel": 1.0})
    quarter = with_cells(made_table(70, shuffled=True), {"none": 0.0, "expel": 0.25})
    alone = made_alone(table, working=1.0)
    rows = tuple(
        row.model_copy(update={"cells": tuple(c.model_copy(update={"correct": 0.25}) for c in row.cells)})
        for row in alone.rows
    )
    found = evaluated(
        table, {"none": always(table, "none")}, shuffled=quarter, alone=alone.model_copy(update={"rows": rows})
    )
    assert found.shuffled_loss_share == pytest.approx(0.75)
    assert found.shuffled_loss_share_working == pytest.approx(1.0)
    assert list(found.policies)[:2] == ["none", "in_only"]
    assert found.policies["in_only"].accuracy == pytest.approx(0.25)
    assert found.policies["in_only"].regret is None


def test_luck_is_stated_at_the_number_of_arms_where_it_was_run() -> None:
    table = made_table(140)
    alone = made_alone(table)
    found = evaluated(table, {"none": always(table, "none")}, alone=alone)
    solved = [any(c.correct == 1 for c in row.cells if c.arm.in_mode == "no_op") for row in alone.rows]
    assert found.best_of_k == 6
    assert found.best_of_k_none == pytest.approx(sum(solved) / 140)
    assert evaluated(table, {}).best_of_k == 2


def test_oracles_of_nested_pools_rise_to_the_plain_oracle() -> None:
    found = evaluated(made_table(140), {})
    ceilings = [pool.plain or 0.0 for pool in found.oracle_of_k]
    assert [len(pool.providers) for pool in found.oracle_of_k] == [1, 2, 3, 4, 5]
    assert ceilings == sorted(ceilings)
    assert ceilings[-1] == found.oracle


def test_every_denominator_says_what_is_unscored() -> None:
    table = with_cells(made_table(70), {"awm": None})
    found = evaluated(table, {"awm": always(table, "awm"), "expel": always(table, "expel")})
    assert found.policies["awm"].unscored_share == 1.0
    assert found.policies["expel"].unscored_share == 0.0
    repeats = found.policies["expel"].accuracy_by_repeat
    assert len(repeats) == 2
    assert found.policies["expel"].accuracy == pytest.approx(sum(value or 0.0 for value in repeats) / 2)


def test_regretted_decisions_are_those_where_another_arm_did_better() -> None:
    table = made_table(140)
    found = evaluated(table, {"trained": best_of(table), "awm": always(table, "awm")})
    better = sum(
        max(row.correctness(arm) or 0.0 for arm in ("none", *PROVIDERS)) > (row.correctness("awm") or 0.0)
        for row in table.rows
    )
    assert found.policies["trained"].regretted == 0.0
    assert found.policies["awm"].regretted == pytest.approx(better / 140)


def test_context_and_time_of_each_arm() -> None:
    table = with_cells(made_table(70, empty=0.0), {"awm": 0.0})
    found = evaluated(table, {"none": always(table, "none")}, chars_per_token=4.0).arms
    assert found["none"].begin_chars == 0
    assert found["expel"].begin_chars == 200
    assert found["expel"].begin_tokens == 50
    assert found["awm"].seconds_per_solved is None
    assert evaluated(table, {}).arms["expel"].begin_tokens is None


def test_comparisons_are_corrected_as_one_family() -> None:
    table = made_table(140)
    policies = {"none": always(table, "none"), "knn": always(table, "voyager"), "heads": best_of(table)}
    found = evaluated(table, policies | {"trained": always(table, "awm")}).comparisons
    raw = [one.p or 0.0 for one in found]
    assert [one.p_holm for one in found] == pytest.approx(holm(raw))
    assert [one.q for one in found] == pytest.approx(benjamini_hochberg(raw))


def test_shuffled_tasks_are_matched_by_id() -> None:
    table = made_table(70)
    backwards = table.model_copy(update={"rows": table.rows[::-1]})
    found = evaluated(table, {}, shuffled=backwards)
    assert found.shuffled_loss_share == pytest.approx(0)


def test_one_repeat_has_no_cross_fitted_oracle_and_says_so() -> None:
    table = made_table(35, repeats=1)
    found = evaluated(table, {"trained": always(table, "expel")}, repeats=1)
    assert found.oracle_crossfit is None
    assert found.best_of_k_none is None
    assert found.headroom_over_best == {"trained": None}
    assert any("cross-fitted" in note for note in found.notes)


def test_routers_are_compared_with_every_simpler_policy() -> None:
    table = made_table(140)
    found = evaluated(
        table,
        {"none": always(table, "none"), "random": always(table, "awm"), "knn": always(table, "voyager")}
        | {"expel": always(table, "expel"), "heads": best_of(table)},
    )
    assert [(one.policy, one.against) for one in found.comparisons] == [
        ("heads", "expel"),
        ("heads", "none"),
        ("heads", "random"),
        ("heads", "knn"),
    ]
    assert all(one.ci_low > 0 for one in found.comparisons)
    assert found.policies["heads"].p_holm is not None
    assert found.policies["heads"].p_holm < 0.05
    assert found.policies["expel"].p_holm is None


def test_margin_warning_names_the_rival() -> None:
    table = made_table(70)
    found = evaluated(table, {"knn": always(table, "expel"), "heads": always(table, "expel")})
    assert any(warning.startswith("Heads has no margin over Nearest tasks") for warning in found.warnings)


def test_best_in_family_holds_all_that_tie() -> None:
    table = with_cells(made_table(35), dict.fromkeys(PROVIDERS, 0.0) | {"awm": 1.0, "voyager": 1.0})
    found = evaluated(table, {})
    assert found.best_in_family["trap"] == ("awm", "voyager")


def test_no_policy_beats_the_plain_oracle() -> None:
    table = made_table(140, unscored=0.2)
    found = evaluated(table, {name: always(table, name) for name in ("none", *PROVIDERS)})
    assert all(result.regret is not None and result.regret >= 0 for result in found.policies.values())


def test_same_material_same_evaluation_and_it_survives_json() -> None:
    table = made_table(70)
    first, again = (evaluated(table, {"knn": always(table, "awm")}) for _ in range(2))
    assert first == again
    assert Evaluation.model_validate_json(first.model_dump_json()) == first


def test_a_cell_of_an_unknown_arm_is_named() -> None:
    table = made_table(7)
    odd = table.rows[0].model_copy(
        update={"cells": (*table.rows[0].cells, Cell(arm=Arm(provider="ghost"), correct=1.0))}
    )
    with pytest.raises(Exception, match="ghost"):
        evaluated(table.model_copy(update={"rows": (odd, *table.rows[1:])}), {})
