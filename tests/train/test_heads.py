import dataclasses
import math

import numpy as np
import pytest
from made_heads import PROVIDERS, made_table

from providers.embedder import Hashing
from providers.errors import EngineError
from router.context import BeginContext
from router.features import Evidence, nonempty
from router.policies.heads import Heads, HeadsModel
from router.table import RoutingTable
from train.heads import (
    FAMILIES,
    Choice,
    Labelled,
    LogisticSettings,
    NearnessSettings,
    fit,
    fit_heads,
    fit_logistic,
    fit_nearness,
    folds,
    labels_of,
)


@pytest.fixture(scope="module")
def explore():
    return made_table(150, seed=1)


@pytest.fixture(scope="module")
def model(explore):
    return fit_heads(explore, encoder=Hashing.identity)


def test_heads_beat_the_best_single_provider_on_unseen_tasks(model):
    unseen = Labelled.of_table(made_table(400, seed=2))
    allowed = np.where(nonempty(unseen.tasks), model.predict(unseen.tasks), -1.0)
    achieved = unseen.correctness[np.arange(len(unseen.tasks)), allowed.argmax(axis=1)]
    assert achieved.mean() > unseen.correctness.mean(axis=0).max() + 0.1


def test_the_cross_validated_value_shows_structure_and_sees_none_where_there_is_none(model):
    assert model.settings["value"] > model.settings["best_single"] + 0.1
    assert abs(fit_heads(made_table(120, structure=False)).settings["value"] - 0.5) < 0.12


def test_fitting_is_deterministic(explore, model):
    assert fit_heads(explore, encoder=Hashing.identity).model_dump_json() == model.model_dump_json()


def test_folds_hold_every_task_out_once():
    parts = list(folds(23, seed=3))
    assert sorted(place for _, held_out in parts for place in held_out) == list(range(23))
    assert all(not set(held_in) & set(held_out) for held_in, held_out in parts)


def test_unscored_cells_are_left_out_and_not_counted_as_failures(explore):
    rows = []
    for number, row in enumerate(explore.rows):
        cells = tuple(
            cell.model_copy(update={"correct": None if number % 2 else 1.0})
            if cell.arm.provider == PROVIDERS[0]
            else cell
            for cell in row.cells
        )
        rows.append(row.model_copy(update={"cells": cells}))
    predicted = fit_heads(explore.model_copy(update={"rows": tuple(rows)})).predict([Evidence.of_row(rows[0])])
    assert predicted[0, 0] > 0.95


def test_a_small_or_unscored_table_is_refused(explore):
    with pytest.raises(EngineError, match=r"suite\.explore"):
        fit_heads(explore.model_copy(update={"rows": explore.rows[:5]}))
    unscored = tuple(
        row.model_copy(update={"cells": tuple(c.model_copy(update={"correct": None}) for c in row.cells)})
        for row in explore.rows
    )
    with pytest.raises(EngineError, match="scored"):
        fit_heads(explore.model_copy(update={"rows": unscored}))


def test_the_judge_labels_where_the_correctness_filter_is_off(explore):
    with pytest.raises(EngineError, match="memroute score"):
        labels_of(explore, by_correctness=False)
    rated = tuple(
        row.model_copy(update={"cells": tuple(c.model_copy(update={"judge": 0.25}) for c in row.cells)})
        for row in explore.rows
    )
    table = explore.model_copy(update={"rows": rated})
    assert labels_of(table, by_correctness=True) == table
    assert np.allclose(Labelled.of_table(labels_of(table, by_correctness=False)).correctness, 0.25)


async def test_the_policy_decides_as_the_table_predicts_and_leaves_empty_previews_alone(model, tmp_path):
    path = tmp_path / "heads.json"
    path.write_text(model.model_dump_json())
    policy = Heads.load(path, Hashing())
    table = made_table(60, seed=5)
    predicted = model.predict([Evidence.of_row(row) for row in table.rows])
    chosen = set()
    for row, scores in zip(table.rows, predicted, strict=True):
        context = _context(row)
        decision = await policy.begin(context)
        shown = [place for place, preview in enumerate(row.previews) if preview.text]
        if shown:
            assert decision.arm == PROVIDERS[max(shown, key=lambda place: scores[place])]
            chosen.add(decision.arm)
        else:
            assert decision.arm == PROVIDERS[int(np.argmax(scores))]
    assert chosen == set(PROVIDERS)


async def test_a_policy_for_other_providers_or_another_encoder_is_refused(model, tmp_path):
    path = tmp_path / "heads.json"
    with pytest.raises(EngineError, match="missing"):
        Heads.load(path, Hashing())
    path.write_text("{}")
    with pytest.raises(EngineError, match="damaged"):
        Heads.load(path, Hashing())
    path.write_text(model.model_copy(update={"encoder": "another"}).model_dump_json())
    with pytest.raises(EngineError, match="another"):
        Heads.load(path, Hashing())
    context = _context(made_table(1).rows[0])
    with pytest.raises(EngineError, match="train them again"):
        await Heads(model, Hashing()).begin(context.model_copy(update={"previews": context.previews[::-1]}))


def test_a_head_without_both_outcomes_gives_its_smoothed_rate(explore):
    rows = tuple(
        row.model_copy(update={"cells": tuple(c.model_copy(update={"correct": 0.0}) for c in row.cells)})
        for row in explore.rows[:20]
    )
    model = fit_heads(RoutingTable(suite="made", split="explore", providers=PROVIDERS, rows=rows))
    predicted = model.predict([Evidence.of_row(row) for row in rows])
    assert ((predicted > 0) & (predicted < 0.1)).all()
    assert not any(math.isnan(value) for value in predicted.ravel())


def _context(row):
    return BeginContext(task_id=row.task_id, question=row.question, previews=row.previews, cards=())


def test_nearness_follows_the_outcomes_of_like_questions_and_falls_back_to_the_mean(explore):
    data = Labelled.of_table(explore)
    model = fit_nearness(data, NearnessSettings(penalty=0.3, gamma=2.0))
    far = dataclasses.replace(data.tasks[0], embedding=-1e3 * data.tasks[0].embedding)
    assert np.allclose(model.predict([far])[0], data.correctness.mean(axis=0))
    same = [place for place, row in enumerate(explore.rows) if row.question == explore.rows[0].question]
    seen = data.correctness[same].mean(axis=0)
    overall = data.correctness.mean(axis=0)
    assert abs(model.predict([data.tasks[0]])[0] - seen).sum() < abs(overall - seen).sum()


@pytest.mark.parametrize("families", FAMILIES)
def test_the_chosen_families_are_averaged_and_survive_the_file(explore, families):
    data = Labelled.of_table(explore)
    choice = Choice(LogisticSettings(0.03, 12), NearnessSettings(1.0, 2.0), families, value=0.0)
    parts = [
        {"logistic": fit_logistic(data, choice.logistic), "nearness": fit_nearness(data, choice.nearness)}[name]
        for name in families
    ]
    model = HeadsModel.model_validate_json(fit(data, choice).model_dump_json())
    expected = np.mean([part.predict(data.tasks) for part in parts], axis=0)
    assert np.array_equal(model.predict(data.tasks), expected)
