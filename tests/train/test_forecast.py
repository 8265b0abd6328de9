"""Forecasts of the heads: of explored tasks by heads that have not seen them."""

import numpy as np
import pytest
from made_explored import NAMES, named_table

import train.heads
from router.sight import CHANCES, forecasts, in_words
from train.forecast import Forecast
from train.heads import Choice, LogisticSettings, NearnessSettings, fit_heads

pytestmark = pytest.mark.usefixtures("quick_heads")


def flipped(table, task_id):
    """The table with one task's outcomes turned round."""
    rows = []
    for row in table.rows:
        cells = row.cells
        if row.task_id == task_id:
            cells = tuple(cell.model_copy(update={"correct": 1 - cell.correct}) for cell in cells)
        rows.append(row.model_copy(update={"cells": cells}))
    return table.model_copy(update={"rows": tuple(rows)})


def test_a_tasks_forecast_does_not_depend_on_its_own_outcome(monkeypatch):
    choice = Choice(LogisticSettings(0.3, 4), NearnessSettings(0.3, 4.0), ("nearness",), 0.0)
    monkeypatch.setattr(train.heads, "choose", lambda data, seed: choice)
    table = named_table(60, seed=1)
    task = table.rows[7].task_id
    own, turned = Forecast.of_table(table), Forecast.of_table(flipped(table, task))
    assert own.chances[task] == turned.chances[task]
    assert own.chances != turned.chances
    assert forecasts(own.heads, table)[task] != forecasts(turned.heads, table)[task]


def test_forecasts_are_worth_something_and_those_of_the_final_heads_are_the_runs():
    table = named_table(150, seed=1)
    found = Forecast.of_table(table)
    assert found.heads.identity == fit_heads(table).identity
    places = np.asarray([[CHANCES.index(word) for word in found.chances[row.task_id]] for row in table.rows])
    correct = np.asarray([[row.correctness(name) for name in NAMES] for row in table.rows])
    assert correct[places >= 3].mean() > correct[places <= 1].mean() + 0.2


def test_the_words_are_those_of_the_predicted_correctness():
    table = named_table(60, seed=1)
    for found in (Forecast.of_table(table), Forecast.of_table(table, tasks={row.task_id for row in table.rows[:40]})):
        assert {task: in_words(values[name] for name in NAMES) for task, values in found.predicted.items()} == (
            found.chances
        )
        assert len({tuple(values.values()) for values in found.predicted.values()}) > 20


def test_tasks_that_are_left_out_are_forecast_by_heads_of_the_others_and_strangers_not_at_all():
    table = named_table(60, seed=1)
    some = {row.task_id for row in table.rows[:40]}
    found = Forecast.of_table(table, tasks=some)
    assert set(found.chances) == {row.task_id for row in table.rows}
    last = table.rows[-1].task_id
    assert found.chances[last] == forecasts(found.heads, table)[last]
    known = Forecast.of_table(table.only(NAMES[:2]))
    assert {words[2] for words in forecasts(known.heads, table).values()} == {""}
