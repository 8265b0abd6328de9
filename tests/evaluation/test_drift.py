"""Streams with noisy outcomes: what banks are told, what their variants do with it, what is counted at the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "synth"))
sys.path.insert(0, str(Path(__file__).parents[1] / "providers"))
from memory_toys import open_bank, run_of
from toy_world import toy_config

import memroute
from evaluation.drift import bench as bench_module
from evaluation.drift.bench import DriftBench, DriftSettings, Row, bench_drift, compared
from evaluation.drift.health import FalseAccepts, Health, false_accepts, health_of
from evaluation.drift.signals import (
    CONFIRMED,
    LABELS,
    REFUSED,
    Noise,
    OutcomeLooker,
    Rescaled,
    SignLooker,
    label_alone,
    relabelled,
)
from evaluation.drift.stream import Cell, DriftTask, _followed
from evaluation.drift.tables import tables_of
from evaluation.drift.variants import MAIN, VARIANTS, named
from evaluation.text_tables import markdown
from providers.base import ReasoningItem
from providers.distill.rules import RuleDistiller
from providers.errors import ConfigError
from providers.governance.admission import Thresholds
from providers.governance.descriptor import CRITERIA, Label
from providers.governance.verifier import Verdict, Verifier
from providers.types import Outcome, Record, Step, Trajectory
from synth.config import RunConfig


class Lessons(RuleDistiller):
    """Every run teaches the label that it read."""

    async def reasoning(self, trajectory: Trajectory, outcome: Outcome) -> tuple[ReasoningItem, ...]:
        word, label = trajectory.question.split()[3], trajectory.steps[-1].arguments["label"]
        said = "Not" if outcome.correct is False else "Read"
        content = f'{said} "{label}" when asked: {word} of a thing.'
        return (ReasoningItem(title="Where it stands", description=f"For the {word} of a thing.", content=content),)


def config(folder: Path) -> RunConfig:
    return toy_config(folder, "drift", providers=("memguard",), distiller="test_drift:Lessons")


SETTINGS = DriftSettings(
    noise=(0.0, 0.4), wrong="signs", fill=8, tasks=12, resamples=200, variants=MAIN, switches=("gated",)
)


def test_noise_flips_a_share_of_the_tasks_and_more_noise_flips_the_same_and_others() -> None:
    ids = [f"t{number}" for number in range(2000)]
    flipped = {share: {one for one in ids if Noise(share, 3).flips(one)} for share in (0.0, 0.1, 0.3, 1.0)}
    assert flipped[0.0] == set()
    assert flipped[1.0] == set(ids)
    assert flipped[0.1] < flipped[0.3]
    assert len(flipped[0.3]) / len(ids) == pytest.approx(0.3, abs=0.03)
    assert flipped[0.3] != {one for one in ids if Noise(0.3, 4).flips(one)}


@pytest.mark.parametrize(
    ("noise", "correct", "sign"),
    [
        (Noise(0.0, 0, "signs"), True, CONFIRMED),
        (Noise(1.0, 0, "signs"), True, REFUSED),
        (Noise(1.0, 0, "signs"), False, CONFIRMED),
        (Noise(1.0, 0), True, CONFIRMED),
        (Noise(1.0, 0), False, REFUSED),
    ],
)
def test_a_verifier_sees_a_sign_that_is_wrong_only_where_signs_are(noise: Noise, correct: bool, sign: str) -> None:
    run = run_of("t")
    seen = noise.signed(run, correct)
    assert (seen.status[-1], seen.id) == (sign, run.id)
    assert noise.signed(run, None) == run


def verdict(label: Label, reward: float, confidence: float, uncertainty: float) -> Verdict:
    return Verdict(
        reward=reward,
        confidence=confidence,
        uncertainty=uncertainty,
        label=label,
        source_status="answered",
        verified_at=0.0,
    )


@pytest.mark.parametrize(
    ("own", "label", "reward", "confidence", "uncertainty"),
    [
        # (0.70 - 0.65) / 0.10 leaves half of the boundary score: 0.1 + 0.5 * 0.5
        (verdict("verified_fail", 0.20, 0.90, 0.1), "verified_success", 0.70, 0.90, 0.35),
        (verdict("uncertain", 0.60, 0.30, 0.6), "verified_success", 0.70, 0.60, 0.35),
        (verdict("verified_fail", 0.75, 0.90, 0.2), "verified_success", 0.75, 0.90, 0.2),
        (verdict("verified_success", 1.0, 1.0, 0.0), "uncertain", 0.65, 0.60, 0.5),
        (verdict("verified_success", 1.0, 1.0, 0.0), "verified_fail", 0.45, 1.0, 0.5),
        (verdict("uncertain", 0.50, 0.30, 0.7), "verified_fail", 0.45, 0.60, 0.7),
        (verdict("verified_fail", 0.20, 0.90, 0.9), "uncertain", 0.45, 0.60, 1.0),
    ],
)
def test_a_verdict_with_another_label_moves_to_the_nearest_values_of_it(
    own: Verdict, label: Label, reward: float, confidence: float, uncertainty: float
) -> None:
    moved = relabelled(own, label)
    assert moved.label == label
    assert (moved.reward, moved.confidence, moved.uncertainty) == pytest.approx((reward, confidence, uncertainty))


def test_a_wrong_verdict_has_one_of_the_other_labels_each_about_as_often() -> None:
    runs = [run_of(f"t{number}") for number in range(1000)]
    own = verdict("verified_success", 1.0, 1.0, 0.0)
    drawn = Counter(Noise(1.0, 5).mistaken(run, own).label for run in runs)
    assert set(drawn) == set(LABELS) - {"verified_success"}
    assert drawn["uncertain"] / 1000 == pytest.approx(0.5, abs=0.05)
    assert all(Noise(0.0, 5).mistaken(run, own) is own for run in runs)
    assert all(Noise(1.0, 5, "signs").mistaken(run, own) is own for run in runs)


def test_thresholds_that_are_moved_move_what_a_wrong_verdict_gets() -> None:
    moved = relabelled(verdict("verified_fail", 0.2, 0.5, 0.0), "verified_success", Thresholds(0.75, 0.65))
    assert (moved.reward, moved.confidence) == (0.75, 0.65)


def test_a_label_alone_has_the_reward_of_its_label() -> None:
    alone = label_alone(run_of("t"), verdict("verified_fail", 0.75, 0.9, 0.3))
    assert (alone.reward, alone.confidence, alone.uncertainty) == (0.0, 0.9, 0.0)
    assert [verdict(label, 0.5, 0.5, 0.5).outcome().correct for label in LABELS] == [True, False, None]


def answered(*signs: str) -> Trajectory:
    """A run whose answer stands on the page that it opened."""
    page = "# Chad: Energy\nThe coal output of Chad: 12 tons"
    step = Step(index=0, tool="open", arguments={"page": "Chad: Energy"}, observation=page)
    question = "What is the coal output of Chad?"
    return Trajectory.make(
        task_id="t", question=question, agent="a", seed=0, steps=(step,), answer="12 tons", status=signs
    )


@pytest.mark.parametrize(
    ("verifier", "sign", "label", "reward"),
    [
        (Verifier(SignLooker()), CONFIRMED, "verified_success", 1.0),
        (Verifier(SignLooker()), REFUSED, "verified_fail", 0.75),
        (Verifier(SignLooker(), masked=True), REFUSED, "verified_success", 1.0),
        (Verifier(OutcomeLooker()), CONFIRMED, "verified_success", 1.0),
        (Verifier(OutcomeLooker()), REFUSED, "verified_fail", 0.0),
        (Verifier(Rescaled(SignLooker(), 3)), REFUSED, "verified_fail", 0.75),
        (Verifier(Rescaled(SignLooker(), 10)), CONFIRMED, "verified_success", 1.0),
    ],
)
async def test_verdicts_on_a_supported_answer(verifier: Verifier, sign: str, label: str, reward: float) -> None:
    found = await verifier.verify(answered(sign))
    assert (found.label, found.reward) == (label, pytest.approx(reward))


async def test_the_evidence_view_does_not_see_the_sign_and_the_risk_view_believes_a_refusal_alone() -> None:
    views = {view: (await SignLooker().look(answered(REFUSED), view, CRITERIA)).stated for view in ("evidence", "risk")}
    assert views == {"evidence": "verified_success", "risk": "verified_fail"}


def test_variants_by_name() -> None:
    assert named(["main"]) == MAIN
    assert named(["all"]) == tuple(VARIANTS)
    assert named(["gated", "main", "gated"]) == ("gated", *MAIN)
    with pytest.raises(ConfigError, match="did you mean 'governed'"):
        named(["governd"])
    for name in ("uniform_weights", "random_weights_1"):
        weights = VARIANTS[name].weights
        assert sum(weights.positive.values()) == pytest.approx(1.0)
        assert sum(weights.risk.values()) == pytest.approx(0.65)
    assert VARIANTS["random_weights_1"].weights != VARIANTS["random_weights_2"].weights
    assert sum(VARIANTS["semantic_only"].weights.risk.values()) == 0.0


def test_health_and_false_accepts_are_read_from_the_events(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        space = bank.space("memguard")
        for place, (state, event) in enumerate(
            [("active", "active"), ("active", "active"), ("rejected", "rejected"), ("candidate", "misled")]
        ):
            record = space.new_record("procedural_hint", run_of("t"), place, text=f"note {place}", payload={})
            record = record.model_copy(update={"id": f"r{place}"})
            space.add([record])
            space.update(record.model_copy(update={"state": state}), event, "")
        space.update(space.existing("r0"), "merged", "with x")
        space.archive("r1", "in conflict with r0, which is stronger")
        health = health_of(space, [("verified_success", ("r0", "r1")), ("uncertain", ("r2", "r3"))])
        assert health == Health(
            candidates=4, active=1, waiting=1, rejected=0.25, merged=0.25, archived=0.25, uncertain=0.5, conflicts=0.0
        )
        later: list[tuple[Sequence[str], Sequence[str], bool | None]] = [
            (("r0", "r1"), ("r0",), True),
            (("r1",), ("r1",), False),
        ]
        traced = false_accepts(space, 3, {"r0", "r1", "r2"}, later, noted=True)
    assert traced == FalseAccepts(runs=3, records=3, blocked=1, active=2, retrieved=2, followed=2, failures=1)


async def test_where_verdicts_are_wrong_a_bank_hears_of_runs_by_them_alone(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"wrong": "verdicts", "noise": (0.4,), "switches": ("label_confidence",)})
    found = await bench_drift(settings, config(tmp_path))
    assert set(found.rows["0.4"]) == {*MAIN, "label_confidence"}
    said = {"verified_success": True, "verified_fail": False, "uncertain": None}
    for path in (tmp_path / "drift/cells").iterdir():
        kept = Cell.model_validate_json(path.read_text())
        noise = Noise(0.4, 0)
        assert all(task.told == said[task.label] for task in kept.tasks)
        told_right = [task for task in kept.tasks if task.told == task.correct]
        if kept.variant == "ungoverned":
            assert {t.task_id for t in kept.tasks if noise.flips(t.task_id)}.isdisjoint(t.task_id for t in told_right)


async def test_streams_are_matched_and_those_that_stand_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await bench_drift(SETTINGS, config(tmp_path))
    cells = [Cell.model_validate_json(path.read_text()) for path in sorted((tmp_path / "drift/cells").iterdir())]
    assert len(cells) == 2 * 3 + 1
    orders = {tuple(task.task_id for task in cell.tasks) for cell in cells}
    assert len(orders) == 1
    for noise in SETTINGS.noise:
        wrong = [[t.told != t.correct for t in cell.tasks] for cell in cells if cell.noise == noise]
        assert all(any(flips) == bool(noise) for flips in wrong)
        assert all(flips == wrong[0] for flips in wrong)
    ungoverned = next(cell for cell in cells if (cell.variant, cell.noise) == ("ungoverned", 0.4))
    assert all((task.label == "verified_success") == task.told for task in ungoverned.tasks)

    async def forbidden(*_: object) -> Cell:
        raise AssertionError("run again")

    monkeypatch.setattr(bench_module, "run_cell", forbidden)
    assert await bench_drift(SETTINGS, config(tmp_path)) == first
    with pytest.raises(AssertionError, match="run again"):
        await bench_drift(SETTINGS.model_copy(update={"tasks": 13}), config(tmp_path))
    with pytest.raises(ConfigError, match="has 200 tasks in explore"):
        await bench_drift(SETTINGS.model_copy(update={"tasks": 300}), config(tmp_path))


@pytest.mark.parametrize(
    ("content", "thought", "page", "follows"),
    [
        ('Read "Coal output" under "Energy".', 'Read "Coal output" on "Chad".', "Chad", True),
        ('Read "Coal output" under "Energy".', 'Read "Oil output" on "Energy".', "Chad", False),
        ('Open a list such as "Coal: by country" first.', 'Open "Coal: by country".', "", True),
        ("Search first.", "Search first.", "Search first.", False),
    ],
)
def test_a_record_is_followed_where_the_agent_names_what_it_names(
    content: str, thought: str, page: str, follows: bool
) -> None:
    record = Record(id="r", provider="p", namespace="n", kind="k", payload={"content": content}, text="")
    step = Step(index=0, thought=thought, tool="open", arguments={"page": page})
    assert _followed(record, answered().model_copy(update={"steps": (step,)})) == follows


def cell(variant: str, correct: Sequence[bool | None], steps: int = 5, seed: int = 0) -> Cell:
    health = Health(
        candidates=2, active=1, waiting=0, rejected=0.5, merged=0.0, archived=0.0, uncertain=0.0, conflicts=0.0
    )
    nothing = FalseAccepts(runs=0, records=0, blocked=0, active=0, retrieved=0, followed=0, failures=0)
    tasks = tuple(
        DriftTask(
            task_id=f"t{number}",
            family="f",
            stage="main",
            correct=one,
            label="verified_success",
            views=("uncertain", "uncertain", "verified_fail"),
            steps=steps,
            injected=40,
            observed=360,
        )
        for number, one in enumerate(correct)
    )
    failed = DriftTask(task_id="broken", family="f", stage="main", error="no engine")
    filled = DriftTask(task_id="w", family="f", stage="fill", correct=True, steps=40)
    return Cell(
        key="k",
        variant=variant,
        noise=0.3,
        seed=seed,
        tasks=(filled, *tasks, failed),
        health=health,
        kinds={"procedural": 1.0},
        false_accepts=nothing,
        storage_mb=1.0,
        retrieve_ms=2.0,
    )


def by_hand() -> DriftBench:
    settings = DriftSettings(noise=(0.3,), resamples=500)
    return compared(
        settings,
        [
            cell("governed", [True, True, False, None]),
            cell("governed", [True, False, False, None], seed=1),
            cell("verifier_only", [True, False, False, True], steps=7),
        ],
    )


def test_figures_by_hand() -> None:
    rows = by_hand().rows["0.3"]
    governed: Row = rows["governed"]
    assert (governed.solved.mean, governed.solved.n) == (pytest.approx(0.5), 3)
    assert governed.solved_minus_verifier_only is not None
    assert governed.steps_minus_verifier_only is not None
    assert governed.solved_minus_verifier_only.mean == pytest.approx(1 / 6)
    assert governed.steps_minus_verifier_only.mean == pytest.approx(-2.0)
    assert governed.solved_minus_governed is None
    assert governed.label_right == pytest.approx(3 / 6)
    assert governed.views["full_evidence"] == 1.0
    assert governed.views["all"] == 0.0
    assert governed.agent_tokens == 100.0
    assert by_hand().failed_tasks == 3


def test_the_tables_can_be_read() -> None:
    text = markdown(tables_of(by_hand()))
    assert "| 0.3 | governed | 50.0 (" in text
    assert "| 0.3 | verifier_only | 50.0 (" in text
    assert "table 22" in text


def test_the_command_refuses_what_is_no_share_and_no_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert memroute.main(["bench", "drift", "--noise", "30"]) == 2
    assert "shares from 0 to 1" in capsys.readouterr().err
    assert memroute.main(["bench", "drift", "--variants", "govern"]) == 2
    assert "There is no variant" in capsys.readouterr().err
    json.dumps(by_hand().model_dump(mode="json"))
