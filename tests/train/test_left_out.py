"""A provider that routers never saw, and how each kind of router treats it once it is added."""

import json

import numpy as np
import pytest
from made_explored import NAMES, explored_run, named_table, tabled_config

import memroute
from evaluation.retrained import LeftOutTable
from providers.errors import ConfigError, EngineError
from router.adapter import read_record
from train.left_out import leave_out, newcomer

pytestmark = pytest.mark.usefixtures("quick_heads")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with explored_run(tmp_path_factory.mktemp("left-out")) as opened:
        yield opened


def test_the_heads_use_a_provider_that_they_never_saw_where_its_preview_fits(tmp_path, capsys):
    dev = named_table(150, seed=2, split="dev")
    tabled_config(tmp_path, explore=named_table(150, seed=1), dev=dev)
    assert memroute.main(["bench", "left-out", str(tmp_path / "made"), "--json"]) == 0
    table = LeftOutTable.model_validate(json.loads(capsys.readouterr().out))
    assert [(row.provider, row.router) for row in table.rows] == [(name, "heads") for name in NAMES]
    for row in table.rows:
        assert row.trained_with > row.hidden + 0.05
        assert row.added > row.hidden
        assert row.gain == pytest.approx(row.added - row.hidden)
        assert 0 < row.chosen < 0.7
        overall = np.mean([task.correctness(row.provider) for task in dev.rows])
        assert row.correct_where_chosen is not None
        assert row.correct_where_chosen > overall
        assert row.best_share > 0.1
    assert len({row.trained_with for row in table.rows}) == 1
    assert LeftOutTable.load(tmp_path / "made" / "evaluation", "dev") == table
    assert (tmp_path / "made" / "evaluation" / "csv" / "dev" / "left_out.csv").exists()


def test_a_newcomer_is_scored_by_its_own_preview_alone():
    known, shown = named_table(150, seed=1).only(NAMES[:2]), named_table(40, seed=2, split="dev")
    chances = newcomer(known, shown, 2)
    assert chances.shape == (40,)
    fits = np.asarray([row.previews[2].text.split()[:1] == row.question.split()[:1] for row in shown.rows])
    filled = np.asarray([bool(row.previews[2].text) for row in shown.rows])
    assert chances[fits].mean() > chances[filled & ~fits].mean() + 0.1


def test_the_language_model_gets_the_card_and_previews_of_a_provider_added_for_the_test(run):
    table = leave_out(run, "awm", routers=("heads", "lm"))
    assert [(row.provider, row.router) for row in table.rows] == [("awm", "heads"), ("awm", "lm")]
    assert table.tasks == 6
    trained = read_record(run.root / "variants" / "begin-without-awm" / "adapter")
    assert trained.providers == ("expel", "voyager")
    assert set(trained.offsets["begin"]) == {"expel", "voyager"}
    assert len(table.lines()) == 3


def test_what_cannot_be_left_out_is_refused(run):
    with pytest.raises(ConfigError, match="no provider of this config"):
        leave_out(run, "nobody")
    with pytest.raises(ConfigError, match="memroute evaluate --split test"):
        leave_out(run, "all", "test")


def test_rows_that_are_not_of_this_exploration_are_refused(run):
    path = run.dataset / "train.jsonl"
    text = path.read_text()
    path.write_text(text.replace("Task:", "task:"))
    try:
        with pytest.raises(EngineError, match="not made of this run's exploration"):
            leave_out(run, "awm", routers=("lm",))
    finally:
        path.write_text(text)
