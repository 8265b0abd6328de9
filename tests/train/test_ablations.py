"""Ablations: what a change does to what routers see and learn, and how the changed ones are compared."""

import asyncio
import csv
import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from made_explored import NAMES, named_table, tabled_config
from made_model import made_base

import memroute
from evaluation.replay import contexts_of
from evaluation.retrained import UNCHANGED, Ablations, Answers, answers_of, compared
from providers.embedder import load_encoder
from providers.errors import ConfigError
from providers.registry import provider_cards
from providers.types import Retrieval
from router.adapter import read_record
from router.policies.heads import Heads, HeadsModel
from router.policies.learned import Learned
from router.sight import forecasts
from synth.config import EvaluateConfig, TrainConfig
from synth.dataset import build
from synth.explore import explore, run_arms
from synth.facts import Probe, RewardFact, Served
from synth.rewards import rewards_signature, score
from synth.runs import Run
from synth.warmup import warm_up
from train.ablations import Request, bench_ablations
from train.asked import load_table, load_trained, train_and_ask
from train.changes import HIDDEN, changes_for
from train.forecast import Forecast
from train.heads import train_heads
from train.job import Job
from train.trainers import labelled

BEGIN = ("no_probe", "scores_shown", "begin_by_judge")

pytestmark = pytest.mark.usefixtures("quick_heads")


def misleading(cell):
    """A judge that likes the first provider whatever it achieves."""
    return 0.9 if cell.arm.provider == NAMES[0] else 0.2


def decided_by_previews(table):
    """Who solves a task is whose preview is about what is asked, and nobody else."""
    rows = []
    for row in table.rows:
        fits = {p.provider: p.text.split()[:1] == row.question.split()[:1] for p in row.previews}
        cells = tuple(c.model_copy(update={"correct": float(fits[c.arm.provider])}) for c in row.cells)
        rows.append(row.model_copy(update={"cells": cells}))
    return table.model_copy(update={"rows": tuple(rows)})


def known(explore, *names):
    changes, missing = changes_for(names or None, explore, provider_cards(NAMES), 0)
    return {change.name: change for change in changes}, missing


def test_without_a_probe_previews_say_nothing_and_none_is_known_to_be_empty():
    table = named_table(20, seed=1)
    shown = known(table)[0]["no_probe"].shown(table)
    assert {p.text for row in shown.rows for p in row.previews} == {HIDDEN}
    assert not np.any([row.preview_embeddings for row in shown.rows])
    assert [row.question for row in shown.rows] == [row.question for row in table.rows]
    assert [row.cells for row in shown.rows] == [row.cells for row in table.rows]


def test_scores_are_on_each_providers_own_scale_and_nothing_is_said_of_empty_previews():
    table = named_table(20, seed=1)
    shown = known(table)[0]["scores_shown"].shown(table)
    for row in shown.rows:
        for card, preview in zip(provider_cards(NAMES), row.previews, strict=True):
            number = preview.descriptor.removeprefix("score ")
            assert bool(preview.text) == bool(preview.descriptor)
            assert not preview.text or ("." in number) == (card.family == "similarity")


def test_descriptors_are_dealt_within_a_task_and_to_providers_that_show_something():
    said = ("trust high; age new", "trust low; age old", "trust medium; age stale")
    table = named_table(40, seed=1, descriptors=said)
    changes, missing = known(table)
    shown = changes["descriptors_shuffled"].shown(table)
    moved = 0
    for before, after in zip(table.rows, shown.rows, strict=True):
        full = [place for place, preview in enumerate(before.previews) if preview.text]
        dealt = [after.previews[place].descriptor for place in full]
        assert sorted(dealt) == sorted(before.previews[place].descriptor for place in full)
        moved += dealt != [before.previews[place].descriptor for place in full]
    assert moved > 10
    hidden = changes["descriptors_hidden"].shown(table)
    assert {p.descriptor for row in hidden.rows for p in row.previews} == {""}
    without = changes["without_trust"].shown(table)
    assert {p.descriptor for row in without.rows for p in row.previews} == {"age new", "age old", "age stale"}
    assert "without_wins" in missing
    assert "descriptors_hidden" in known(named_table(5, seed=1))[1]


def test_a_change_that_nobody_knows_is_refused_and_five_need_a_sixth():
    table = named_table(5, seed=1)
    with pytest.raises(ConfigError, match="no change 'probe'"):
        known(table, "probe")
    names = ("expel", "awm", "skillweaver", "voyager", "insight_graph", "memp")
    wider = table.model_copy(update={"providers": names, "rows": ()})
    changes, _ = changes_for(("five",), wider, provider_cards(names), 0)
    assert [change.name for change in changes] == [UNCHANGED, "five"]
    assert changes[1].shown(wider).providers == names[:5]
    assert "at least one further provider" in known(table, "five")[1]["five"]


def test_heads_lose_what_an_ablation_takes_from_them(tmp_path):
    explored = decided_by_previews(named_table(150, seed=1, judge=misleading))
    dev = decided_by_previews(named_table(150, seed=2, split="dev"))
    config = tabled_config(tmp_path, explore=explored, dev=dev)
    with Run.open(config) as run:
        rewards = []
        for row in explored.rows:
            served = {name: Served(retrieval=Retrieval(provider=name)) for name in NAMES}
            run.facts.add_probe("explore", Probe(task_id=row.task_id, wave=0, previews=row.previews, served=served))
            rewards += [
                RewardFact(phase="begin", task_id=row.task_id, provider=c.arm.provider, reward=misleading(c))
                for c in row.cells
            ]
        run.facts.add_rewards(rewards_signature(run), rewards)
        run.facts.set_mark("rewards", rewards_signature(run))
    table = bench_ablations([config], Request(changes=BEGIN))
    rows = {row.change: row for row in table.rows}
    assert set(rows) == {UNCHANGED, *BEGIN}
    assert (rows[UNCHANGED].delta, rows[UNCHANGED].p) == (0.0, None)
    assert rows["no_probe"].delta_ci_high < -0.1
    assert abs(rows["scores_shown"].delta) < 0.1
    assert rows["begin_by_judge"].delta_ci_high < 0 < 0.05 > (rows["begin_by_judge"].p_holm or 1)
    assert rows["begin_by_judge"].top_two_share > rows[UNCHANGED].top_two_share
    for row in table.rows:
        assert row.delta == pytest.approx(row.accuracy - rows[UNCHANGED].accuracy)
        assert row.delta_ci_low <= row.delta <= row.delta_ci_high
    assert Ablations.load(tmp_path / "made" / "evaluation", "dev") == table
    assert [(one.change, one.labels, one.positive_share) for one in table.labels][1] == (
        "begin_by_judge",
        sum(bool(preview.text) for row in explored.rows for preview in row.previews),
        pytest.approx(np.mean([misleading(c) for row in explored.rows for c in row.cells if not c.empty])),
    )
    with (tmp_path / "made" / "evaluation" / "csv" / "dev" / "ablations.csv").open() as file:
        assert [line["change"] for line in csv.DictReader(file)] == [UNCHANGED, *BEGIN]


def test_what_a_run_cannot_change_is_named_with_its_mend(tmp_path):
    config = tabled_config(tmp_path, explore=named_table(30, seed=1), dev=named_table(20, seed=2, split="dev"))
    table = bench_ablations([config], Request())
    assert {row.change for row in table.rows} == {UNCHANGED, "no_probe", "scores_shown"}
    assert "memroute score" in table.missing["begin_by_judge"]
    assert "governance: full" in table.missing["without_trust"]
    lines = [line for line in table.lines() if "missing, " in line]
    assert any(line.startswith("  missing, Five providers: ") for line in lines)
    assert any(line.startswith("  missing, Descriptors hidden, Descriptors shuffled, ") for line in lines)
    with pytest.raises(ConfigError, match="memroute evaluate --split test"):
        bench_ablations([config], Request(split="test"))
    with pytest.raises(ConfigError, match="--lm"):
        bench_ablations([config], Request(online=True))


def test_several_runs_are_taken_together_by_task(tmp_path, capsys):
    for seed, name in ((0, "one"), (2, "two")):
        dev = named_table(30, seed=seed + 1, split="dev")
        tabled_config(tmp_path, name, explore=named_table(40, seed=seed), dev=dev)
    folders = [str(tmp_path / name) for name in ("one", "two")]
    assert memroute.main(["bench", "ablations", *folders, "--changes", "no_probe", "--json"]) == 0
    pooled = json.loads(capsys.readouterr().out)
    alone = [Ablations.load(tmp_path / name / "evaluation", "dev") for name in ("one", "two")]
    assert (pooled["runs"], pooled["tasks"]) == (["one", "two"], 60)
    for place, row in enumerate(pooled["rows"]):
        assert row["accuracy"] == pytest.approx(np.mean([table.rows[place].accuracy for table in alone]))
        assert (row["n"], row["runs"]) == (60, 2)
    assert (tmp_path / "one" / "evaluation" / "ablations-all-dev.json").exists()


def test_weak_memories_are_counted_by_what_descriptors_really_say():
    table = named_table(2, seed=1, split="dev", descriptors=("trust low; age new", "trust high; age stale", ""))
    found = answers_of(table, ["expel", "voyager"])
    assert found.weak[0] == 1.0
    assert np.isnan(found.weak[1])
    assert answers_of(table, ["awm", "awm"]).weak.tolist() == [1.0, 1.0]


def test_unscored_tasks_leave_both_sides_of_a_difference():
    base = Answers(("a", "a", "a"), np.asarray([1.0, 0.0, np.nan]), np.full(3, np.nan))
    other = Answers(("a", "b", "b"), np.asarray([0.0, np.nan, 1.0]), np.full(3, np.nan))
    rows = compared([{("heads", UNCHANGED, "replay"): base, ("heads", "no_probe", "replay"): other}], 100, 0)
    changed = rows[1]
    assert (changed.accuracy, changed.delta, changed.weak_share, changed.top_two_share) == (0.5, -1.0, None, 1.0)
    nothing = Answers(("a",) * 3, np.full(3, np.nan), np.full(3, np.nan))
    found = {("heads", UNCHANGED, "replay"): base, ("heads", "no_probe", "replay"): nothing}
    assert [row.change for row in compared([found], 100, 0)] == [UNCHANGED]


@pytest.fixture
def explored(tmp_path, monkeypatch):
    """A toy run that was explored, scored and built, with a tiny language model as its router's base."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "synth"))
    from toy_world import toy_config

    train = TrainConfig(
        base=str(made_base(tmp_path / "base")),
        dtype="float32",
        epochs=1,
        max_tokens=4000,
        max_minutes=None,
        batch_size=4,
        accumulation=1,
    )
    evaluate = EvaluateConfig(bootstrap=200, policies=("none", "notes", "lessons"), shuffle=False, alone=False)
    config = toy_config(tmp_path, train=train, evaluate=evaluate)

    async def prepare(run):
        await warm_up(run)
        await explore(run)
        await score(run)
        build(run)
        await run_arms(run, "dev")

    with Run.open(config) as run:
        asyncio.run(prepare(run))
        train_heads(run)
    yield config
    sys.modules.pop("toy_world", None)


def test_the_language_model_is_trained_again_with_rows_of_the_change(explored):
    request = Request(changes=("no_probe", "in_no_threshold", "end_by_judge"), language_model=True)
    table = bench_ablations([explored], request)
    asked = {(row.router, row.change) for row in table.rows}
    assert asked == {(router, change) for router in ("heads", "lm") for change in (UNCHANGED, "no_probe")}
    counts = {(one.change, one.phase): one for one in table.labels}
    assert counts["in_no_threshold", "in"].rows >= counts[UNCHANGED, "in"].rows
    assert set(counts) == {(UNCHANGED, "in"), ("in_no_threshold", "in"), (UNCHANGED, "end"), ("end_by_judge", "end")}
    folder = explored.runs_dir / explored.name / "variants" / "ablation-no_probe" / "adapter"
    own = explored.runs_dir / explored.name / "adapter"
    assert read_record(folder).dataset_hash != read_record(own).dataset_hash
    assert read_record(folder).rows == read_record(own).rows


def test_changes_of_in_and_end_are_compared_by_fresh_runs(explored, capsys):
    request = Request(changes=("in_no_correctness",), language_model=True, online=True)
    table = bench_ablations([explored], request)
    online = {row.change: row for row in table.rows if row.way == "online"}
    assert set(online) == {UNCHANGED, "in_no_correctness"}
    assert online["in_no_correctness"].n == 12
    assert not table.missing
    capsys.readouterr()
    assert bench_ablations([explored], request) == table
    assert capsys.readouterr().err.count("done already") >= 2


def test_labels_may_lie_halfway_to_what_heads_expect_that_have_not_seen_the_task(explored):
    distilled = explored.train.model_copy(update={"labels": "distilled"})
    with Run.open(explored) as run:
        plain, job = Job.of_run(run), Job.of_run(run, distilled)
        expected = Forecast.of_run(run).predicted
    assert job.rows == plain.rows
    assert job.forecast is None
    assert job.fingerprint not in {plain.fingerprint, dataclasses.replace(job, taught={}).fingerprint}
    for row in plain.rows:
        targets = labelled(job, row).targets
        if row.phase == "begin":
            halfway = [
                None if target is None else pytest.approx((target + expected[row.task_id][name]) / 2)
                for name, target in zip(row.candidates, row.targets, strict=True)
            ]
            assert list(targets) == halfway
        else:
            assert targets == row.targets


def test_a_language_model_may_be_shown_what_the_heads_expect(explored, tmp_path):
    with Run.open(explored) as run:
        plain, job = Job.of_run(run), Job.of_run(run, explored.train.model_copy(update={"forecast": True}))
        begin = [row for row in job.rows if row.phase == "begin"]
        assert begin
        assert all("chance " in row.text for row in begin)
        assert [row for row in job.rows if row.phase != "begin"] == [row for row in plain.rows if row.phase != "begin"]
        assert [row.targets for row in begin] == [row.targets for row in plain.rows if row.phase == "begin"]
        assert job.fingerprint != plain.fingerprint
        table = load_table(run, "dev")
        apart = dataclasses.replace(job, root=tmp_path, metrics=tmp_path / "metrics.jsonl")
        answers = train_and_ask(apart, table, table, job.cards)
        assert len(answers.arms) == len(table.rows)
        assert read_record(tmp_path / "adapter").heads == HeadsModel.load(run.heads).identity
        encoder = load_encoder(run.config.encoder.name, run.config.encoder.options)
        served = Learned.load(
            explored.train.base,
            tmp_path / "adapter",
            "marks",
            job.cards,
            dtype="float32",
            heads=lambda: Heads.load(run.heads, encoder),
        )
        assert isinstance(served, Learned)
        contexts, chances = contexts_of(table, job.cards), forecasts(HeadsModel.load(run.heads), table)
        told = load_trained(apart).score([context.forecast(chances[context.task_id]) for context in contexts])
        assert np.allclose(served.score(contexts), told, atol=1e-4)
        assert not np.allclose(load_trained(apart).score(contexts), told, atol=1e-4)
