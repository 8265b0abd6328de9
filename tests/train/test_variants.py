import json

import pytest
from made_heads import made_table
from made_model import made_base, write_rows

from evaluation.replay import contexts_of
from providers.errors import ConfigError, EngineError
from providers.registry import provider_cards
from router.adapter import read_record
from router.codec import MarksCodec
from router.table import RoutingTable
from synth.config import RunConfig, TrainConfig
from synth.rows import Row
from synth.runs import Run
from train.variants import compare_variants, leave_out

NAMES = ("expel", "awm", "voyager")


def named(table):
    """The made table with real providers' names."""
    text = table.model_dump_json()
    for made, real in zip(table.providers, NAMES, strict=True):
        text = text.replace(f'"{made}"', f'"{real}"')
    return RoutingTable.model_validate_json(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variants")
    settings = TrainConfig(
        base=str(made_base(folder / "base")),
        dtype="float32",
        epochs=1,
        max_tokens=4000,
        max_minutes=None,
        batch_size=4,
        accumulation=1,
    )
    config = RunConfig(name="made", runs_dir=folder, providers=NAMES, train=settings)
    with Run.open(config) as opened:
        explore = named(made_table(12, seed=1))
        explore.save(opened.table("explore"))
        named(made_table(6, seed=2)).save(opened.table("dev"))
        rows = []
        for row, context in zip(explore.rows, contexts_of(explore, provider_cards(NAMES)), strict=True):
            prompt = MarksCodec().begin(context)
            targets = tuple(row.correctness(name) for name in prompt.candidates)
            shown = {"segments": prompt.segments, "candidates": prompt.candidates, "targets": targets}
            rows.append(Row(phase="begin", task_id=row.task_id, split="train", **shown))
        write_rows(opened, rows, [])
        yield opened


def test_variants_are_trained_once_each_and_compared_by_task(run, capsys):
    comparison = compare_variants(run, ["train.labels=hard;train.epochs=2"])
    assert [variant.name for variant in comparison.variants] == ["as configured", "train.labels=hard;train.epochs=2"]
    first, second = comparison.variants
    assert (first.gain, comparison.tasks, first.legal) == (0.0, 6, 1.0)
    assert second.gain == pytest.approx(second.value - first.value)
    steps = sorted(read_record(path).steps for path in run.root.glob("variants/*/adapter"))
    assert steps == [3, 6]
    assert not run.adapter.exists()
    assert len(comparison.lines()) == 3
    capsys.readouterr()
    assert compare_variants(run, ["train.labels=hard;train.epochs=2"]) == comparison
    assert capsys.readouterr().err.count("done already") == 2


def test_a_provider_left_out_is_added_for_the_test(run):
    table = leave_out(run, "awm")
    [row] = table.providers
    assert (row.provider, table.tasks) == ("awm", 6)
    assert 0 <= row.chosen <= 1
    trained = read_record(run.root / "variants" / "begin-without-awm" / "adapter")
    assert trained.providers == ("expel", "voyager")
    assert set(trained.offsets["begin"]) == {"expel", "voyager"}
    assert json.loads((run.evaluation / "left_out.json").read_text())["providers"][0]["provider"] == "awm"


def test_what_cannot_be_compared_is_refused(run):
    with pytest.raises(ConfigError, match="only keys of train"):
        compare_variants(run, ["suite.explore=3"])
    with pytest.raises(ConfigError, match="no provider of this config"):
        leave_out(run, "nobody")
    dev = run.table("dev")
    text = dev.read_text()
    dev.unlink()
    with pytest.raises(ConfigError, match="memroute evaluate"):
        leave_out(run, "all")
    dev.write_text(text)


def test_rows_that_are_not_of_this_exploration_are_refused(run):
    path = run.dataset / "train.jsonl"
    text = path.read_text()
    path.write_text(text.replace("Task:", "task:"))
    try:
        with pytest.raises(EngineError, match="not made of this run's exploration"):
            leave_out(run, "awm")
    finally:
        path.write_text(text)
