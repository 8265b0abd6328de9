"""What the report shows, gathered from a run's folder; what a stage has not made yet is named as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.metrics import SOLVED
from evaluation.report.charts import Mark, Scale, nice_scale
from evaluation.report.details import packed
from evaluation.report.retrained import RetrainedView, retrained_views
from evaluation.result import ROUTERS, DecisionLog, Evaluation
from evaluation.words import POLICIES, percent, policy_words
from router.decisions import NONE
from router.table import RoutingTable, TableRow

if TYPE_CHECKING:
    from synth.runs import Run


@dataclass(frozen=True)
class ArmView:
    """One arm of one task."""

    arm: str
    name: str
    preview: str
    outcome: float | None
    empty: bool
    steps: float | None
    injected: float | None
    chosen_by: tuple[str, ...]


@dataclass(frozen=True)
class TaskView:
    """One task as it can be opened in the report."""

    id: str
    family: str
    question: str
    arms: tuple[ArmView, ...]
    picked: str | None
    """The arm that the report's router picked."""
    verdict: str
    """solved, missed (another arm solves it), ceiling (none does) or unscored."""
    versus: str
    """gained or lost against the best single provider, else empty."""


@dataclass(frozen=True)
class LossPoint:
    """One logged training step."""

    step: float
    loss: float


@dataclass
class Page:
    """Everything that the template reads."""

    run: str
    config: str
    settings: Mapping[str, Any]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    test: Evaluation | None = None
    transfers: tuple[Evaluation, ...] = ()
    """Evaluations with a task agent that the routers were not trained with, by file name."""
    retrained: tuple[RetrainedView, ...] = ()
    """Routers that were trained again: ablations, a provider left out, the learning curve; by split."""
    router: str | None = None
    """The trained router that the detailed figures follow: the recommended one, else the first that was evaluated."""
    tasks: tuple[TaskView, ...] = ()
    details: str = ""
    """What is read when a task is opened; see `evaluation.report.details`."""
    rewards: Mapping[str, Any] | None = None
    card: Mapping[str, Any] | None = None
    losses: tuple[LossPoint, ...] = ()
    validation_losses: tuple[LossPoint, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    """What the adapter's record says, and the last logged value of everything else that training measures."""
    facts: tuple[tuple[str, str], ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    """(what is not there, command that makes it)"""


def gather(run: Run) -> Page:
    """Read all that stands in the run's folder."""
    evaluation = _evaluation(run, "dev")
    router = _followed(evaluation)
    losses, validation, training = _training(run.metrics)
    tasks, details = _tasks(run, evaluation, router)
    page = Page(
        run=run.config.name,
        config=_text(run.root / "config.yaml"),
        settings=run.config.model_dump(mode="json"),
        manifest=_manifest(run),
        evaluation=evaluation,
        test=_evaluation(run, "test"),
        transfers=tuple(Evaluation.load(path) for path in sorted(run.evaluation.glob("*-agent-????????.json"))),
        retrained=retrained_views(run.evaluation),
        router=router,
        tasks=tasks,
        details=details,
        rewards=_json(run.rewards),
        card=_json(run.dataset / "card.json"),
        losses=losses,
        validation_losses=validation,
        training=training | (_json(run.adapter / "record.json") or {}),
    )
    page.facts = _facts(run, page)
    page.missing = _missing(run, page)
    return page


def headroom_marks(evaluation: Evaluation) -> tuple[Scale, list[Mark]]:
    """The way from no memory to the oracles, with the trained routers on it."""
    shown: list[tuple[str, float | None, bool]] = [
        (POLICIES["none"].name, _accuracy(evaluation, NONE), False),
        (_best_name(evaluation), evaluation.best_single_accuracy, False),
        (POLICIES["oracle_crossfit"].name, evaluation.oracle_crossfit, False),
        (POLICIES["oracle"].name, evaluation.oracle, False),
    ]
    routers = [(POLICIES[name].name, _accuracy(evaluation, name), True) for name in ROUTERS]
    known = [(label, value, router) for label, value, router in shown + routers if value is not None]
    scale = nice_scale(value for _, value, _ in known)
    marks: list[Mark] = []
    for above in (True, False):
        side = sorted((entry for entry in known if entry[2] == above), key=lambda entry: entry[1])
        for lane, (label, value, _) in enumerate(side, start=1):
            emphasis = above and label == POLICIES.get(evaluation.recommended or "", POLICIES["none"]).name
            marks.append(Mark(f"{label} {percent(value)}", value, scale.at(value), lane, above, emphasis))
    return scale, marks


def _best_name(evaluation: Evaluation) -> str:
    return policy_words(evaluation.best_single, evaluation).name if evaluation.best_single else "Best single"


def _accuracy(evaluation: Evaluation, policy: str) -> float | None:
    return evaluation.policies[policy].accuracy if policy in evaluation.policies else None


def _followed(evaluation: Evaluation | None) -> str | None:
    if evaluation is None:
        return None
    there = [name for name in (evaluation.recommended, *ROUTERS) if name in evaluation.policies]
    return there[0] if there else None


def _evaluation(run: Run, split: str) -> Evaluation | None:
    path = run.evaluation / f"{split}.json"
    return Evaluation.load(path) if path.exists() else None


def _tasks(run: Run, evaluation: Evaluation | None, router: str | None) -> tuple[tuple[TaskView, ...], str]:
    table_path, log_path = run.table("dev"), run.evaluation / "dev_decisions.json"
    if evaluation is None or not table_path.exists() or not log_path.exists():
        return (), ""
    table, log = RoutingTable.load(table_path).publishable(), DecisionLog.load(log_path)
    picks: dict[str, dict[str, str]] = {task_id: {} for task_id in log.task_ids}
    for policy, made in log.policies.items():
        if policy in evaluation.policies and evaluation.policies[policy].kind in ("simple", "router", "ablation"):
            for task_id, arm in zip(log.task_ids, made.arms[0], strict=True):
                picks[task_id][policy] = arm
    views = tuple(_task(row, picks.get(row.task_id, {}), evaluation, router) for row in table.rows)
    return views, packed(run, table, picks, router)


def _task(row: TableRow, picks: Mapping[str, str], evaluation: Evaluation, router: str | None) -> TaskView:
    previews = {preview.provider: preview.text for preview in row.previews}
    outcome = {arm: row.correctness(arm) for arm in (NONE, *evaluation.providers)}
    picked = picks.get(router) if router else None
    own = outcome.get(picked) if picked else None
    best = outcome.get(evaluation.best_single or "")
    versus = ""
    if own is not None and best is not None and (own >= SOLVED) != (best >= SOLVED):
        versus = "gained" if own >= SOLVED else "lost"
    return TaskView(
        id=row.task_id,
        family=row.family,
        question=row.question,
        arms=tuple(
            ArmView(
                arm=arm,
                name=policy_words(arm, evaluation).name,
                preview=previews.get(arm, ""),
                outcome=outcome[arm],
                empty=any(cell.empty for cell in row.cells if cell.arm.provider == arm),
                steps=row.cell_mean(arm, "steps"),
                injected=row.cell_mean(arm, "injected"),
                chosen_by=tuple(
                    policy_words(policy, evaluation).name for policy, choice in picks.items() if choice == arm
                ),
            )
            for arm in outcome
        ),
        picked=picked,
        verdict=_verdict(own, [value for value in outcome.values() if value is not None]),
        versus=versus,
    )


def _verdict(own: float | None, all_arms: list[float]) -> str:
    if not any(value >= SOLVED for value in all_arms):
        return "ceiling"
    if own is None:
        return "unscored"
    return "solved" if own >= SOLVED else "missed"


def _training(path: Path) -> tuple[tuple[LossPoint, ...], tuple[LossPoint, ...], dict[str, Any]]:
    """Losses per step of the language model's last training, and the last value of all else that was logged."""
    losses: dict[float, float] = {}
    validation: dict[float, float] = {}
    last: dict[str, Any] = {}
    lines = _text(path).splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
        except ValueError:
            if number == len(lines):
                break  # a line cut off while training was killed; training writes it again
            raise
        if entry.get("stage") != "train" or entry.get("step") is None:
            continue
        if entry.get("loss") is not None:
            losses[float(entry["step"])] = float(entry["loss"])
        if entry.get("validation_loss") is not None:
            validation[float(entry["step"])] = float(entry["validation_loss"])
        last |= {key: value for key, value in entry.items() if value is not None}
    return _points(losses), _points(validation), last


def _points(values: Mapping[float, float]) -> tuple[LossPoint, ...]:
    return tuple(LossPoint(step, values[step]) for step in sorted(values))


def _facts(run: Run, page: Page) -> tuple[tuple[str, str], ...]:
    """Counts that say how large the run was, and how much of it equal injections saved."""
    config, found = run.config, []
    episodes = run.facts.episodes("explore", bodies=False)
    if episodes:
        arms = config.suite.explore * (len(config.providers) + 1)
        arms *= len(config.explore.in_modes) * config.explore.repeats
        failed = sum(episode.status != "done" for episode in episodes.values())
        found.append(("Exploration arms", f"{arms:,} ({config.suite.explore} tasks in {config.explore.waves} waves)"))
        found.append(("Exploration episodes", f"{len(episodes):,}, of which {failed} failed or timed out"))
        found.append(("Saved by sharing equal episodes", percent(max(0.0, 1 - len(episodes) / arms))))
    if page.evaluation is not None:
        changes = page.evaluation.in_mode_changes
        found.append(("Task-arm pairs that change with the In mode", percent(changes)))
        solves = page.evaluation.unique_solves
        found.append(
            (
                "Tasks that one arm alone solves",
                ", ".join(f"{policy_words(arm, page.evaluation).name} {count}" for arm, count in solves.items()),
            )
        )
    if page.card is not None:
        found.append(("Dataset hash", str(page.card["hash"])))
    return tuple(found)


def _missing(run: Run, page: Page) -> tuple[tuple[str, str], ...]:
    command = f"memroute {{}} with the config of {run.config.name}"
    stages = (
        ("exploration", "explore", run.table("explore").exists()),
        ("rewards", "score", page.rewards is not None),
        ("the dataset", "build", page.card is not None),
        ("the language model's training", "train", bool(page.losses)),
        ("the heads", "train --only heads", run.heads.exists()),
        ("the evaluation", "evaluate", page.evaluation is not None),
    )
    return tuple((name, command.format(verb)) for name, verb, there in stages if not there)


def _manifest(run: Run) -> Mapping[str, Any]:
    manifest = _json(run.root / "manifest.json")
    return manifest["opened"][-1] if manifest and manifest.get("opened") else {}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
