"""The report's section on routers that were trained again: one thing changed, without a provider, on fewer tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.report.behaviour import Curve, Curves
from evaluation.report.charts import nice_scale, polyline
from evaluation.retrained import ROUTER_WORDS, Ablations, CurvePoint, LearningCurve, LeftOutTable

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class RetrainedView:
    """What one split has of it; None where it was not made."""

    split: str
    ablations: Ablations | None
    left_out: LeftOutTable | None
    curve: LearningCurve | None
    chart: Curves | None


def retrained_views(folder: Path) -> tuple[RetrainedView, ...]:
    """Of every split that has anything, from a run's folder of evaluations."""
    found = []
    for split in SPLITS:
        ablations, left_out = Ablations.load(folder, split), LeftOutTable.load(folder, split)
        curve = LearningCurve.load(folder, split)
        if ablations or left_out or curve:
            found.append(RetrainedView(split, ablations, left_out, curve, curve_chart(curve) if curve else None))
    return tuple(found)


def curve_chart(curve: LearningCurve) -> Curves | None:
    """Accuracy in percent against exploration tasks, one line per router, and the best single provider's level."""
    by_router: dict[str, list[CurvePoint]] = {}
    for point in curve.points:
        by_router.setdefault(ROUTER_WORDS[point.router], []).append(point)
    if not by_router:
        return None
    level = 100 * curve.best_single_accuracy
    first, last = (pick(point.trained_on for point in curve.points) for pick in (min, max))
    drawn: dict[str, Sequence[tuple[float, float]]] = {
        name: [(float(point.trained_on), 100 * point.accuracy) for point in points]
        for name, points in by_router.items()
    }
    drawn |= {"Best single provider": [(float(first), level), (float(last), level)]}
    across = nice_scale([x for points in drawn.values() for x, _ in points], around=0.0)
    up = nice_scale([y for points in drawn.values() for _, y in points])
    lines = tuple(
        Curve(name, series, polyline(points, across, up), (across.at(points[-1][0]), 100 - up.at(points[-1][1])))
        for series, (name, points) in enumerate(drawn.items(), start=1)
    )
    return Curves(across, up, lines, "Percent of tasks solved by exploration tasks that routers were trained on")
