"""Training rows: the filter of the paper on hand-made facts, the split, the caps and the card."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_world import toy_config

import memroute
from providers.errors import ConfigError
from providers.types import Outcome, Preview, Retrieval, Step, Trajectory
from router.context import EndContext, InContext
from router.decisions import Arm, InDecision, InMode
from router.table import Cell, RoutingTable, TableRow
from synth.config import DatasetConfig, RewardConfig, RunConfig, TrainConfig
from synth.dataset import build, load_card
from synth.explain import explain, explanation_lines
from synth.explore import explore
from synth.export import export_dataset
from synth.facts import EndingFact, Episode, EpisodeKey, InRecord, Probe, RewardFact, Served
from synth.rewards import rewards_signature, score
from synth.rows import PARTS, Row, dataset_hash, load_rows
from synth.runs import Run, dump_config
from synth.warmup import warm_up

NAMES = ("notes", "lessons")


class Facts:
    """Hand-made facts of an exploration, from which a dataset is built."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.rows: list[TableRow] = []
        self.rewards: list[RewardFact] = []
        self.episodes: list[Episode] = []
        self.endings: dict[str, EndingFact] = {}

    def task(self, task_id: str, **arms: tuple[float | None, float | None]) -> None:
        """A task whose providers gave (correct, judge); a provider that is not named retrieved nothing."""
        cells = [Cell(arm=Arm(provider="none"), correct=0.0)]
        for name in NAMES:
            correct, judge = arms.get(name, (0.0, None))
            cells.append(Cell(arm=Arm(provider=name), correct=correct, empty=name not in arms))
            if name in arms:
                self.rewards.append(
                    RewardFact(phase="begin", task_id=task_id, provider=name, in_mode="query", repeat=0, reward=judge)
                )
        previews = tuple(Preview(provider=name, text=f"{name} {task_id}" if name in arms else "") for name in NAMES)
        self.rows.append(
            TableRow(task_id=task_id, question=f"Question {task_id}?", family="", previews=previews, cells=tuple(cells))
        )

    def taken(
        self, task_id: str, action: InMode, *, correct: bool | None, reward: float | None, summary: str = "s"
    ) -> None:
        """An In decision of the arm without memory, in a context that `summary` names."""
        repeat = len(self.episodes)
        key = EpisodeKey(
            stage="explore",
            task_id=task_id,
            content_key=Retrieval(provider="none").content_key(),
            in_mode=action,
            repeat=repeat,
        )
        context = InContext(
            task_id=task_id, question="Q?", step=1, summary=summary, recent=(Step(index=0, tool="open"),)
        )
        self.episodes.append(
            Episode(
                key=key,
                status="done",
                outcome=Outcome(correct=correct),
                trajectory=Trajectory.make(task_id=task_id, question="Q?", agent="toy", seed=repeat),
                in_records=(InRecord(context=context, decision=InDecision(action=action)),),
            )
        )
        self.rewards.append(
            RewardFact(
                phase="in", task_id=task_id, provider="none", in_mode=action, repeat=repeat, step=1, reward=reward
            )
        )

    def ended(self, task_id: str, *, correct: bool | None, **rewards: float | None) -> None:
        """The task's representative and its End rewards."""
        from toy_world import Lessons, Notes

        context = EndContext(
            task_id=task_id,
            question="Q?",
            summary="done",
            outcome=Outcome(correct=correct),
            cards=(Notes.CARD, Lessons.CARD),
        )
        self.endings[task_id] = EndingFact(provider="none", context=context)
        self.rewards += [RewardFact(phase="end", task_id=task_id, provider=p, reward=r) for p, r in rewards.items()]

    def rows_of(self, phase: str) -> list[Row]:
        """Write the facts, build, and give the rows of a phase."""
        with Run.open(self.config) as run:
            table = RoutingTable(suite="toy", split="explore", providers=NAMES, rows=tuple(self.rows))
            table.save(run.table("explore"))
            for row in self.rows:
                served = {
                    p.provider: Served(retrieval=Retrieval(provider=p.provider, text=p.text)) for p in row.previews
                }
                probe = Probe(task_id=row.task_id, wave=0, previews=row.previews, served=served)
                run.facts.add_probe("explore", probe)
            for episode in self.episodes:
                run.facts.add_episode(episode)
            for task_id, ending in self.endings.items():
                run.facts.add_ending("explore", task_id, ending)
            run.facts.add_rewards(rewards_signature(run), self.rewards)
            run.facts.set_mark("rewards", rewards_signature(run))
            build(run)
            self.card = json.loads((run.dataset / "card.json").read_text())
            self.folder = run.dataset
            self.all_rows = rows = [*load_rows(run, "train"), *load_rows(run, "validation")]
        return [row for row in rows if row.phase == phase]


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return Facts(toy_config(tmp_path))


@pytest.fixture
def json_facts(tmp_path: Path) -> Facts:
    return Facts(toy_config(tmp_path, train=TrainConfig(codec="json"), rewards=RewardConfig(top_k=1)))


def targets(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    return {row.task_id: dict(zip(row.candidates, row.targets, strict=True)) for row in rows}


def test_begin_marks_are_the_arms_outcomes_and_empty_retrievals_have_none(facts: Facts) -> None:
    facts.task("told", notes=(0.0, 0.4), lessons=(1.0, 0.8))
    facts.task("alone", lessons=(1.0, 0.8))
    facts.task("failed", notes=(0.0, 0.4), lessons=(0.0, 0.4))
    facts.task("nothing")
    rows = facts.rows_of("begin")
    assert targets(rows) == {"told": {"notes": 0.0, "lessons": 1.0}, "alone": {"notes": None, "lessons": 1.0}}
    assert all(len(row.segments) == 2 and not row.prompt for row in rows)
    assert "lessons told" in next(row for row in rows if row.task_id == "told").segments[1]
    assert facts.card["dropped"]["begin: no provider succeeded"] == 1
    assert facts.card["dropped"]["begin: nothing was retrieved"] == 1


def test_a_success_by_irrelevant_memory_is_no_positive_label(facts: Facts) -> None:
    facts.task("luck", notes=(1.0, 0.0), lessons=(0.0, 0.5))
    facts.task("half", notes=(1.0, 0.0), lessons=(1.0, 0.5))
    assert targets(facts.rows_of("begin")) == {"half": {"notes": None, "lessons": 1.0}}
    assert facts.card["dropped"]["begin: decision with judge reward 0"] == 2
    assert facts.card["dropped"]["begin: no decision left"] == 1


def test_json_keeps_every_success_of_a_proper_subset_and_the_best_judged_where_all_succeed(json_facts: Facts) -> None:
    json_facts.task("told", notes=(0.0, 0.9), lessons=(1.0, 0.1))
    json_facts.task("all", notes=(1.0, 0.9), lessons=(1.0, 0.1))
    rows = json_facts.rows_of("begin")
    assert {row.task_id: json.loads(row.completion) for row in rows} == {
        "told": {"action": "query", "provider": "lessons"},
        "all": {"action": "query", "provider": "notes"},
    }
    assert all("lessons" in row.prompt and not row.segments for row in rows)
    assert json_facts.card["dropped"]["begin: decision outside the top k"] == 1


@pytest.mark.parametrize("codec", ["marks", "json"])
def test_without_the_correctness_filter_the_judge_labels_whatever_came_of_it(tmp_path: Path, codec: Any) -> None:
    rewards = RewardConfig(top_k=1, begin_requires_correct=False)
    facts = Facts(toy_config(tmp_path, train=TrainConfig(codec=codec), rewards=rewards))
    facts.task("failed", notes=(0.0, 0.9), lessons=(0.0, 0.4))
    facts.task("told", notes=(0.0, 0.9), lessons=(1.0, 0.0))
    facts.task("odd", notes=(1.0, None), lessons=(1.0, 0.0))
    rows = facts.rows_of("begin")
    if codec == "json":
        assert {row.task_id: json.loads(row.completion)["provider"] for row in rows} == {
            "failed": "notes",
            "told": "notes",
        }
    else:
        assert targets(rows) == {"failed": {"notes": 0.9, "lessons": 0.4}, "told": {"notes": 0.9, "lessons": 0.0}}
    assert facts.card["dropped"]["begin: no decision that the judge rates"] == 1
    assert facts.card["decisions"]["begin"]["notes"] == {"kept": 2, "unscored": 1}


def test_rows_show_the_parts_of_descriptors_that_the_training_asks_for(tmp_path: Path) -> None:
    texts = {}
    for fields in (None, ("age",), ()):
        facts = Facts(toy_config(tmp_path, f"fields-{fields}", train=TrainConfig(descriptors=fields)))
        facts.task("told", notes=(0.0, 0.4), lessons=(1.0, 0.8))
        said = (p.model_copy(update={"descriptor": "trust high; age old"}) for p in facts.rows[0].previews)
        facts.rows[0] = facts.rows[0].model_copy(update={"previews": tuple(said)})
        facts.ended("told", correct=True, notes=0.7)
        ending = facts.endings["told"]
        context = ending.context.model_copy(update={"descriptor": "trust high"})
        facts.endings["told"] = ending.model_copy(update={"context": context})
        facts.rows_of("begin")
        texts[fields] = {row.phase: row.text for row in facts.all_rows}
    assert "(trust high; age old)" in texts[None]["begin"]
    assert "(verified: trust high)" in texts[None]["end"]
    assert "(age old)" in texts["age",]["begin"]
    assert "trust" not in "".join((*texts["age",].values(), *texts[()].values()))
    assert "age" not in texts[()]["begin"]


def test_in_prefers_the_action_that_was_correct_then_the_better_judged_then_no_op(facts: Facts) -> None:
    for name in ("right", "judged", "tied"):
        facts.task(name)
    facts.taken("right", "query", correct=True, reward=0.7)
    facts.taken("right", "no_op", correct=False, reward=0.9)
    facts.taken("judged", "query", correct=True, reward=0.9)
    facts.taken("judged", "no_op", correct=True, reward=0.7)
    facts.taken("tied", "query", correct=True, reward=0.8)
    facts.taken("tied", "no_op", correct=True, reward=0.8)
    found = {task_id: list(target.values()) for task_id, target in targets(facts.rows_of("in")).items()}
    assert found == {"right": [1.0], "judged": [1.0], "tied": [0.0]}


def test_an_unscored_outcome_does_not_count_against_an_action(facts: Facts) -> None:
    facts.task("t")
    facts.taken("t", "query", correct=True, reward=0.9)
    facts.taken("t", "query", correct=None, reward=0.9)
    facts.taken("t", "no_op", correct=True, reward=0.7)
    assert [row.targets for row in facts.rows_of("in")] == [(1.0,)]


def test_in_drops_what_is_below_the_threshold_wrong_or_unscored(facts: Facts) -> None:
    facts.task("t")
    facts.taken("t", "query", correct=True, reward=0.59, summary="low")
    facts.taken("t", "query", correct=False, reward=0.9, summary="wrong")
    facts.taken("t", "query", correct=True, reward=None, summary="unscored")
    facts.taken("t", "no_op", correct=True, reward=0.6, summary="kept")
    rows = facts.rows_of("in")
    assert [row.targets for row in rows] == [(0.0,)]
    assert "kept" in "".join(rows[0].segments)
    assert facts.card["dropped"] == {
        "begin: nothing was retrieved": 1,
        "end: no arm finished": 1,
        "in: below eps_in, or not correct": 2,
        "in: unscored": 1,
    }


def test_wrong_runs_give_in_rows_where_the_config_says_so(tmp_path: Path) -> None:
    facts = Facts(toy_config(tmp_path, rewards=RewardConfig(in_requires_correct=False)))
    facts.task("t")
    facts.taken("t", "query", correct=False, reward=0.9)
    assert [row.targets for row in facts.rows_of("in")] == [(1.0,)]


def test_end_labels_open_gates_by_later_reuse_and_leaves_unscored_ones_out(facts: Facts) -> None:
    for name in ("won", "lost", "half", "unscored"):
        facts.task(name)
    facts.ended("won", correct=True, notes=0.5, lessons=0.49)
    facts.ended("lost", correct=False, notes=0.7)
    facts.ended("half", correct=True, notes=None, lessons=0.0)
    facts.ended("unscored", correct=True, notes=None, lessons=None)
    assert targets(facts.rows_of("end")) == {
        "won": {"notes": 1.0, "lessons": 0.0},
        "lost": {"notes": 1.0},
        "half": {"notes": None, "lessons": 0.0},
    }
    assert facts.card["dropped"]["end: unscored: too few later tasks, or no open gate"] == 1


def test_json_end_answers_are_sets_and_the_empty_one_is_legal(json_facts: Facts) -> None:
    for name in ("won", "none"):
        json_facts.task(name)
    json_facts.ended("won", correct=True, notes=0.5, lessons=0.9)
    json_facts.ended("none", correct=True, notes=0.1, lessons=0.0)
    found = {row.task_id: json.loads(row.completion)["selected_providers"] for row in json_facts.rows_of("end")}
    assert found == {"won": ["notes", "lessons"], "none": []}


def test_equal_rows_are_one_row(facts: Facts) -> None:
    facts.task("t")
    facts.taken("t", "query", correct=True, reward=0.7)
    facts.taken("t", "query", correct=True, reward=0.9)
    assert len(facts.rows_of("in")) == 1


def test_caps_draw_by_seed_and_say_how_many_they_left_out(tmp_path: Path) -> None:
    kept = []
    for seed in (0, 0, 1):
        facts = Facts(toy_config(tmp_path, f"seed{seed}", seed=seed, dataset=DatasetConfig(max_begin=5)))
        for number in range(30):
            facts.task(str(number), notes=(1.0, 0.5), lessons=(0.0, 0.5))
        kept.append({row.task_id for row in facts.rows_of("begin")})
        assert facts.card["dropped"]["begin: above the cap"] == 25
    assert kept[0] == kept[1] != kept[2]
    assert len(kept[0]) == 5


def test_training_may_see_candidates_in_an_order_drawn_by_task_and_validation_never_does(tmp_path: Path) -> None:
    rows = {}
    for order in ("config", "shuffled"):
        facts = Facts(
            toy_config(
                tmp_path,
                order,
                train=TrainConfig(candidate_order=order),
                dataset=DatasetConfig(validation_share=0.3),
            )
        )
        for number in range(40):
            facts.task(str(number), notes=(1.0, 0.5), lessons=(0.0, 0.5))
        rows[order] = facts.rows_of("begin")
    assert targets(rows["shuffled"]) == targets(rows["config"])
    seen = {part: Counter(row.candidates for row in rows["shuffled"] if row.split == part) for part in PARTS}
    assert set(seen["validation"]) == {NAMES}
    assert 5 < seen["train"][NAMES] < seen["train"].total() - 5
    for row in rows["shuffled"]:
        assert all(
            f"{name} | {name} {row.task_id} " in segment
            for name, segment in zip(row.candidates, row.segments, strict=True)
        )


def test_the_rows_of_a_task_stay_on_one_side_of_the_split(tmp_path: Path) -> None:
    facts = Facts(toy_config(tmp_path, dataset=DatasetConfig(max_end=None, validation_share=0.2)))
    for number in range(80):
        facts.task(str(number), notes=(1.0, 0.5), lessons=(0.0, 0.5))
        facts.ended(str(number), correct=True, notes=0.9, lessons=0.1)
    begin, end = facts.rows_of("begin"), facts.rows_of("end")
    assert {row.task_id: row.split for row in begin} == {row.task_id: row.split for row in end}
    assert 8 <= sum(row.split == "validation" for row in begin) <= 32
    assert facts.card["rows"]["train"]["begin"] + facts.card["rows"]["validation"]["begin"] == 80


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    run = Run.open(toy_config(tmp_path))
    await warm_up(run)
    await explore(run)
    await score(run)
    return run


async def test_the_whole_chain_gives_rows_of_all_phases_without_gold(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    build(run)
    rows = [*load_rows(run, "train"), *load_rows(run, "validation")]
    card = json.loads((run.dataset / "card.json").read_text())
    assert {row.phase for row in rows} == {"begin", "in", "end"}
    assert card["hash"] == dataset_hash(rows) == dataset_hash(rows[::-1])
    assert all(len(row.targets) == len(row.candidates) == len(row.segments) for row in rows)
    assert all(any(target is not None for target in row.targets) for row in rows)
    assert "gold" not in "".join(segment for row in rows for segment in row.segments)
    assert "build: rows: train" in capsys.readouterr().err
    build(run)
    assert "build: done already" in capsys.readouterr().err


async def test_a_damaged_or_outdated_dataset_is_built_again(run: Run) -> None:
    build(run)
    path = run.dataset / "train.jsonl"
    whole = path.read_text()
    path.write_text(whole.splitlines()[0] + "\n")
    build(run)
    assert path.read_text() == whole


async def test_building_before_scoring_is_refused(run: Run) -> None:
    config = run.config
    run.close()
    changed = config.model_copy(update={"rewards": RewardConfig(min_exposures=5)})
    with Run.open(changed) as other, pytest.raises(ConfigError, match="memroute score"):
        build(other)
    with Run.open(config) as again, pytest.raises(ConfigError, match="memroute build"):
        load_rows(again, "train")


def test_a_begin_row_weighs_more_the_fewer_providers_solve_its_task_where_the_config_says_so(tmp_path: Path) -> None:
    weights = {}
    for weighting in ("none", "discriminability"):
        facts = Facts(toy_config(tmp_path, weighting, rewards=RewardConfig(weighting=weighting)))
        facts.task("told", notes=(1.0, 0.5), lessons=(0.0, 0.5))
        facts.task("all", notes=(1.0, 0.5), lessons=(1.0, 0.5))
        facts.ended("told", correct=True, notes=0.9, lessons=0.1)
        weights[weighting] = {row.task_id: row.weight for row in facts.rows_of("begin")}
        assert [row.weight for row in facts.rows_of("end")] == [1.0]
    assert weights == {"none": {"told": 1.0, "all": 1.0}, "discriminability": {"told": 1.5, "all": 1.0}}


def test_the_card_counts_every_decision_by_provider_and_fate(facts: Facts) -> None:
    facts.task("told", notes=(0.0, 0.4), lessons=(1.0, 0.8))
    facts.task("luck", notes=(1.0, 0.0), lessons=(1.0, 0.5))
    facts.task("failed", notes=(0.0, 0.4))
    facts.task("odd", notes=(None, None), lessons=(1.0, 0.5))
    facts.taken("told", "query", correct=True, reward=0.9)
    facts.taken("told", "no_op", correct=False, reward=0.9)
    facts.ended("told", correct=False, notes=0.7)
    facts.rows_of("begin")
    assert facts.card["decisions"]["begin"] == {
        "lessons": {"kept": 3, "retrieved nothing": 1},
        "notes": {"did not solve the task": 1, "judge reward 0": 1, "kept as a negative": 1, "outcome unscored": 1},
    }
    assert facts.card["decisions"]["in"] == {"none": {"kept": 1, "the other action did better here": 1}}
    assert facts.card["decisions"]["end"] == {"lessons": {"gate closed": 1}, "notes": {"kept": 1}}
    assert facts.card["tasks"] == {
        part: len({row.task_id for row in facts.all_rows if row.split == part}) for part in ("train", "validation")
    }


def test_rows_that_are_left_out_take_the_fate_of_their_decisions_with_them(tmp_path: Path) -> None:
    facts = Facts(toy_config(tmp_path, dataset=DatasetConfig(max_begin=5)))
    for number in range(30):
        facts.task(str(number), notes=(1.0, 0.5), lessons=(0.0, 0.5))
    facts.rows_of("begin")
    assert facts.card["decisions"]["begin"] == {
        "lessons": {"above the cap": 25, "kept as a negative": 5},
        "notes": {"above the cap": 25, "kept": 5},
    }


def test_the_card_measures_lengths_cuts_and_how_evenly_labels_spread(facts: Facts) -> None:
    for number in range(4):
        facts.task(str(number), notes=(float(number % 2), 0.5), lessons=(float(1 - number % 2), 0.5))
    facts.task("long " * 80, notes=(1.0, 0.5), lessons=(0.0, 0.5))
    rows = facts.rows_of("begin")
    lengths = sorted(len("".join(row.segments)) for row in rows)
    card = facts.card
    assert card["length_chars"]["begin"]["max"] == lengths[-1] == card["length_chars"]["begin"]["p95"]
    assert (card["length_chars"]["begin"]["min"], card["length_chars"]["begin"]["p50"]) == (lengths[0], lengths[2])
    assert card["truncated_share"] == {"begin": 0.2}
    assert card["label_entropy"]["begin"] == {"bits": pytest.approx(0.971, abs=1e-4), "most": 1.0}


@pytest.mark.parametrize("codec", ["marks", "json"])
async def test_the_folder_loads_as_a_hugging_face_dataset_with_both_parts(tmp_path: Path, codec: Any) -> None:
    from datasets import load_dataset

    with Run.open(toy_config(tmp_path, train=TrainConfig(codec=codec))) as run:
        await warm_up(run)
        await explore(run)
        await score(run)
        build(run)
        written = {part: load_rows(run, part) for part in ("train", "validation")}
        folders = [run.dataset, tmp_path / "lines", tmp_path / "parquet"]
        export_dataset(run, folders[1], "jsonl")
        export_dataset(run, folders[2], "parquet")
        export_dataset(run, folders[2], "jsonl")
        export_dataset(run, folders[2], "parquet")
    for folder in folders:
        found = load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
        assert {part: [Row.model_validate(row) for row in found[part]] for part in found} == written
    assert {path.name for path in folders[2].iterdir()} == {
        "train.parquet",
        "validation.parquet",
        "card.json",
        "README.md",
    }


async def test_an_export_replaces_no_stranger_files(run: Run, tmp_path: Path) -> None:
    build(run)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="something else"):
        export_dataset(run, tmp_path / "mine", "jsonl")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


async def test_an_export_never_touches_the_runs_own_folder(run: Run) -> None:
    build(run)
    before = {path.name: path.read_bytes() for path in run.dataset.iterdir()}
    for folder in (run.dataset, run.root / "shared", run.dataset / ".." / "dataset"):
        with pytest.raises(ConfigError, match="the run's own folder"):
            export_dataset(run, folder, "jsonl")
    assert {path.name: path.read_bytes() for path in run.dataset.iterdir()} == before


async def test_an_export_to_what_is_no_folder_says_so(run: Run, tmp_path: Path) -> None:
    build(run)
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError, match="cannot be written"):
            export_dataset(run, folder, "jsonl")


def test_a_part_without_rows_is_not_promised(facts: Facts) -> None:
    facts.config = facts.config.model_copy(update={"dataset": DatasetConfig(validation_share=0.0)})
    facts.task("told", notes=(0.0, 0.4), lessons=(1.0, 0.8))
    facts.rows_of("begin")
    readme = (facts.folder / "README.md").read_text()
    assert "split: train" in readme
    assert "split: validation" not in readme


async def test_explaining_a_task_shows_arms_rewards_reuse_and_fates(run: Run) -> None:
    build(run)
    rows = load_rows(run, "train")
    task_id = next(row.task_id for row in rows if row.phase == "begin")
    shown = explain(run, task_id[:12])
    table = RoutingTable.load(run.table("explore"))
    of_task = next(row for row in table.rows if row.task_id == task_id)
    assert shown.question == of_task.question
    assert [(arm.provider, arm.correct, arm.judge) for arm in shown.arms] == [
        (cell.arm.provider, cell.correct, cell.judge) for cell in of_task.cells
    ]
    assert set(shown.begin) == {"notes", "lessons"}
    assert "kept" in shown.begin.values()
    assert len(shown.rows) == sum(row.task_id == task_id for part in PARTS for row in load_rows(run, part))
    text = "\n".join(explanation_lines(shown))
    assert of_task.question in text
    assert "gold" not in text


async def test_explanations_name_the_later_tasks_that_were_shown_something(run: Run) -> None:
    build(run)
    table = RoutingTable.load(run.table("explore"))
    shown = [explain(run, row.task_id) for row in table.rows]
    events = [(one.task_id, end.provider, event) for one in shown for end in one.end for event in end.reused_by]
    assert events
    probes = run.facts.probes("explore", [row.task_id for row in table.rows])
    for origin, provider, event in events:
        assert (origin, event.share) in probes[event.task_id].served[provider].origins
        assert probes[event.task_id].wave > probes[origin].wave
    fates = Counter(fate for one in shown for fate in one.begin.values())
    card = load_card(run)
    counted: Counter[str] = Counter()
    for of_provider in card["decisions"]["begin"].values():
        counted.update(of_provider)
    assert fates == counted


async def test_a_task_that_is_unknown_or_ambiguous_is_refused_with_the_nearest(run: Run) -> None:
    build(run)
    with pytest.raises(ConfigError, match="no exploration task"):
        explain(run, "zzz")
    with pytest.raises(ConfigError, match="give more"):
        explain(run, "")


async def test_the_command_explains_a_task_in_words_and_as_one_object(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = run.facts.probed("explore")[0]
    config = tmp_path / "toy.yaml"
    config.write_text(dump_config(run.config))
    run.close()
    command = ["build", str(config), "--explain", task_id]
    assert await asyncio.to_thread(memroute.main, command) == 0
    words = capsys.readouterr().out
    assert words.startswith(f"{task_id}: What is the")
    assert "Rows in the dataset" in words
    assert await asyncio.to_thread(memroute.main, [*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["build"]
    assert {arm["provider"] for arm in shown["arms"]} == {"none", "notes", "lessons"}
    assert await asyncio.to_thread(memroute.main, ["build", str(config), "--explain", "zzz"]) == 2
    assert "no exploration task" in capsys.readouterr().err


ARM = st.one_of(st.none(), st.tuples(st.sampled_from([0.0, 1.0, None]), st.sampled_from([None, 0.0, 0.3, 0.9])))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(ARM, ARM), min_size=1, max_size=12),
    st.sampled_from([None, 1, 3]),
    st.sampled_from(["marks", "json"]),
)
def test_every_begin_decision_has_one_fate_and_the_kept_ones_are_the_positive_labels(
    tasks: list[tuple[Any, Any]], most: int | None, codec: Any
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = toy_config(Path(folder), dataset=DatasetConfig(max_begin=most), train=TrainConfig(codec=codec))
        facts = Facts(config)
        for number, (notes, lessons) in enumerate(tasks):
            arms = {"notes": notes, "lessons": lessons}
            facts.task(str(number), **{name: arm for name, arm in arms.items() if arm is not None})
        rows = facts.rows_of("begin")
        fates = facts.card["decisions"]["begin"]
    assert {name: sum(of.values()) for name, of in fates.items()} == dict.fromkeys(NAMES, len(tasks))
    kept = {name: of.get("kept", 0) for name, of in fates.items()}
    labels = Counter(name for row in rows for name, target in zip(row.candidates, row.targets, strict=True) if target)
    labels.update(json.loads(row.completion)["provider"] for row in rows if row.completion)
    assert kept == {name: labels[name] for name in NAMES}
    assert most is None or len(rows) <= most
    for row in rows:
        assert any(arm is not None and arm[0] == 1.0 and arm[1] != 0.0 for arm in tasks[int(row.task_id)])
