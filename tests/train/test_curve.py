"""The learning curve: nested tasks, both routers, the same split."""

import json

import pytest
from made_explored import explored_run, named_table, tabled_config

import memroute
from evaluation.retrained import LearningCurve
from providers.errors import ConfigError
from router.adapter import read_record
from train.curve import learning_curve

pytestmark = pytest.mark.usefixtures("quick_heads")


def test_heads_gain_from_more_tasks_of_the_same_exploration(tmp_path, capsys):
    dev = named_table(150, seed=2, split="dev")
    tabled_config(tmp_path, explore=named_table(160, seed=1), dev=dev)
    command = ["bench", "curve", str(tmp_path / "made"), "--shares", "0.1,0.01,1", "--json"]
    assert memroute.main(command) == 0
    curve = LearningCurve.model_validate(json.loads(capsys.readouterr().out))
    few, all_of_them = curve.points
    assert [(point.trained_on, point.rows) for point in curve.points] == [(16, 16), (160, 160)]
    assert all_of_them.accuracy > few.accuracy + 0.05
    assert all_of_them.delta_vs_best == pytest.approx(all_of_them.accuracy - curve.best_single_accuracy)
    assert all_of_them.delta_ci_low > 0
    assert curve == LearningCurve.load(tmp_path / "made" / "evaluation", "dev")
    assert len(curve.lines()) == 3


def test_the_language_model_is_trained_on_the_same_tasks_and_the_whole_is_the_runs_own(tmp_path):
    with explored_run(tmp_path) as run:
        curve = learning_curve(run, shares=(0.84, 1.0), routers=("heads", "lm"))
        assert [(p.router, p.trained_on) for p in curve.points] == [
            ("heads", 10),
            ("heads", 12),
            ("lm", 10),
            ("lm", 12),
        ]
        part = read_record(run.root / "variants" / "curve-10" / "adapter")
        assert (part.rows, read_record(run.adapter).rows) == ({"begin": 10}, {"begin": 12})
        with pytest.raises(ConfigError, match="no share"):
            learning_curve(run, shares=(2.0,))
