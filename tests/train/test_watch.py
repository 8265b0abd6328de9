import dataclasses

import pytest
from made_heads import PROVIDERS, made_table
from made_model import made_rows

from train.watch import HeldOut, complaints, marks_measures, routing_measures


@pytest.fixture(scope="module")
def held():
    table = made_table(60, seed=3)
    found = HeldOut.of_table(table, {row.task_id for row in table.rows[:20]})
    assert found is not None
    return found


def test_routing_value_is_what_the_table_says_of_the_choices(held):
    best = {row.task_id: max(PROVIDERS, key=lambda name, row=row: row.correctness(name)) for row in held.rows}
    worst = {row.task_id: min(PROVIDERS, key=lambda name, row=row: row.correctness(name)) for row in held.rows}
    good, bad = routing_measures(held, best), routing_measures(held, worst)
    assert good["regret"] == 0
    assert good["routing_agreement"] == 1
    assert bad["regret"] == pytest.approx(good["routing_value"] - bad["routing_value"]) != 0
    single = routing_measures(held, dict.fromkeys(best, held.best_single))
    assert single["routing_value"] == single["best_single_value"]
    assert (single["choice_entropy"], single["top_two_share"]) == (0, 1)
    assert 0 < good["choice_entropy"] <= 1
    assert complaints(good) == []


def test_a_collapsed_or_beaten_router_is_complained_about(held):
    best, *_, worst = sorted(PROVIDERS, key=lambda name: -sum(row.correctness(name) for row in held.rows))
    beside = dataclasses.replace(held, best_single=best)
    said = " ".join(complaints(routing_measures(beside, {row.task_id: worst for row in held.rows})))
    assert "collapsed" in said
    assert "best single provider" in said
    assert complaints({}) == []


def test_calibration_compares_chances_with_outcomes(held):
    choices = {row.task_id: PROVIDERS[0] for row in held.rows}
    sure = {row.task_id: {name: row.correctness(name) for name in PROVIDERS} for row in held.rows}
    wrong = {task: {name: 1 - chance for name, chance in chances.items()} for task, chances in sure.items()}
    assert routing_measures(held, choices, sure)["calibration_error"] == 0
    assert routing_measures(held, choices, wrong)["calibration_error"] == 1


def test_scores_of_rows_become_choices_that_leave_empty_previews_alone(held):
    template = made_rows(1)[0]
    rows = [template.model_copy(update={"task_id": row.task_id, "candidates": PROVIDERS}) for row in held.rows]
    found = marks_measures(held, [*rows, template], [[0.0, 5.0, 1.0] for _ in [*rows, template]])
    chosen = [row.correctness(_first(row, (1, 2, 0))) for row in held.rows]
    assert found["routing_value"] == pytest.approx(sum(chosen) / len(chosen))


def _first(row, order):
    shown = [place for place in order if row.previews[place].text]
    return PROVIDERS[(shown or list(order))[0]]


def test_a_table_without_held_out_tasks_is_not_watched():
    table = made_table(5)
    assert HeldOut.of_table(table, set()) is None
    assert HeldOut.of_table(table, {row.task_id for row in table.rows}) is None
