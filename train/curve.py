"""The learning curve: both routers trained on growing shares of the exploration's tasks, on one routing table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from evaluation import metrics
from evaluation.metrics import Outcomes, mean_or_none
from evaluation.retrained import HEADS, Answers, CurvePoint, LearningCurve, RouterKind
from evaluation.statistics import Bootstrap
from providers.errors import ConfigError
from providers.registry import provider_cards
from providers.types import content_hash
from router.table import RoutingTable
from train.asked import ask_heads, load_table, train_and_ask
from train.heads import FOLDS, fit_heads, training_table
from train.job import Job

if TYPE_CHECKING:
    from synth.runs import Run

SHARES = (0.125, 0.25, 0.5, 1.0)

Trained = Callable[[Collection[str]], tuple[Answers, int]]
"""Trains one kind of router on the tasks of these ids: what it chose, and the rows it was trained on."""


def learning_curve(
    run: Run,
    split: str = "dev",
    shares: Sequence[float] = SHARES,
    routers: Sequence[RouterKind] = HEADS,
) -> LearningCurve:
    """Train on the first tasks of a fixed order, so that larger shares hold the smaller ones; compare on the split.

    Each training of the language model has a folder of its own that is kept. Written to `curve-<split>.json` in
    `run.evaluation`. Raises `ConfigError` for a share outside of 0 to 1, or without the tables that it takes.
    """
    wrong = [share for share in shares if not 0 < share <= 1]
    if wrong or not shares:
        raise ConfigError(f"{wrong[0] if wrong else 'nothing'} is no share: give numbers above 0, up to 1")
    table, explore = load_table(run, split), load_table(run, "explore")
    order = [row.task_id for row in explore.rows]
    order.sort(key=lambda task_id: content_hash("curve", run.config.seed, task_id))
    drawing = _Drawing(run, table, explore)
    ways: dict[RouterKind, Trained] = {"heads": _heads(run, table), "lm": _language_model(run, table, len(order))}
    points = []
    for router in ways:
        for share in sorted(set(shares)) if router in routers else ():
            chosen = order[: round(share * len(order))]
            if len(chosen) >= FOLDS * 2:
                points.append(drawing.point(router, share, len(chosen), *ways[router](frozenset(chosen))))
    curve = drawing.curve(points)
    curve.save(run.evaluation)
    return curve


def _heads(run: Run, table: RoutingTable) -> Trained:
    labelled = training_table(run)

    def trained(task_ids: Collection[str]) -> tuple[Answers, int]:
        rows = tuple(row for row in labelled.rows if row.task_id in task_ids)
        model = fit_heads(labelled.model_copy(update={"rows": rows}), seed=run.config.seed)
        return ask_heads(model, table, table), len(rows)

    return trained


def _language_model(run: Run, table: RoutingTable, explored: int) -> Trained:
    cards = provider_cards(run.config.providers)

    def trained(task_ids: Collection[str]) -> tuple[Answers, int]:
        job = Job.of_run(run, tasks=task_ids)
        if len(task_ids) < explored:
            root = run.root / "variants" / f"curve-{len(task_ids)}"
            root.mkdir(parents=True, exist_ok=True)
            job = dataclasses.replace(job, root=root, metrics=root / "metrics.jsonl")
        return train_and_ask(job, table, table, cards), len(job.rows)

    return trained


class _Drawing:
    """Points of one split against the best single provider, with shared resamples."""

    def __init__(self, run: Run, table: RoutingTable, explore: RoutingTable) -> None:
        self._run, self._table = run, table
        self._outcomes = Outcomes.of(table)
        best = metrics.best_provider(Outcomes.of(explore))
        if best is None:
            raise ConfigError("no task of the exploration is scored; look at its episodes' errors")
        self._best = best
        self._own = self._outcomes.arm(best)
        self._bootstrap = Bootstrap(len(table.rows), run.config.evaluate.bootstrap, run.config.seed)

    def point(self, router: RouterKind, share: float, tasks: int, answers: Answers, rows: int) -> CurvePoint:
        level, delta = self._bootstrap.estimates([answers.values, answers.values - self._own])
        if level is None or delta is None:
            raise ConfigError(f"no task of {self._table.split} is scored, so there is nothing to compare on")
        return CurvePoint(
            router=router,
            share=share,
            trained_on=tasks,
            rows=rows,
            accuracy=level.mean,
            ci_low=level.low,
            ci_high=level.high,
            n=level.n,
            delta_vs_best=delta.mean,
            delta_ci_low=delta.low,
            delta_ci_high=delta.high,
        )

    def curve(self, points: Sequence[CurvePoint]) -> LearningCurve:
        crossed = metrics.cross_fit(self._outcomes)
        return LearningCurve(
            run=self._run.config.name,
            split=self._table.split,
            tasks=len(self._table.rows),
            best_single=self._best,
            best_single_accuracy=mean_or_none(self._own) or 0.0,
            oracle_crossfit=mean_or_none(crossed.values) if crossed else None,
            points=tuple(points),
        )
