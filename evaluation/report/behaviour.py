"""What the report shows of online runs, failures and costs, ready for the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.behaviour import PARTS
from evaluation.report.charts import Scale, nice_scale, polyline
from evaluation.result import Comparison, Evaluation, Kind, OnlineResult
from evaluation.words import policy_words

FOLLOWED = ("router", "store_all", "concat", "none")
"""Policies whose accuracy over the stream is drawn beside the best single's; more lines could not be told apart."""
LABELLED: tuple[Kind, ...] = ("router", "baseline", "bound", "single", "simple", "ablation", "online")
"""Whose labels are placed first where there is no room for all."""
FAILURE_CLASSES = (
    ("ceiling", "No arm solves it"),
    ("interference", "Memory in the way"),
    ("routing", "Wrong provider"),
    ("quality", "Memory's content"),
)


@dataclass(frozen=True)
class Curve:
    """One line of a chart with what is said of it."""

    label: str
    series: int
    """Colour, 1 to 7."""
    points: str
    end: tuple[float, float]
    """Where the line ends, in percent from the left and the top."""


@dataclass(frozen=True)
class Curves:
    """A chart of several lines on common axes."""

    across: Scale
    up: Scale
    lines: tuple[Curve, ...]
    describe: str


@dataclass(frozen=True)
class OnlineView:
    """The online section."""

    rows: tuple[tuple[str, OnlineResult], ...]
    comparisons: tuple[Comparison, ...]
    stream: Curves | None
    in_rate: Curves | None
    sizes: tuple[tuple[str, tuple[float, ...]], ...]
    """Per outcome: share of the whole router's tasks that 0, 1, 2, ... providers keep."""


@dataclass(frozen=True)
class Dot:
    """One policy on the chart of accuracy against injected memory."""

    label: str
    kind: Kind
    x: float
    y: float
    anchor: str
    labelled: bool


@dataclass(frozen=True)
class CostView:
    """Accuracy against injected memory."""

    across: Scale
    up: Scale
    dots: tuple[Dot, ...]
    unit: str


def online_view(evaluation: Evaluation) -> OnlineView | None:
    """None where nothing ran online."""
    if not evaluation.online:
        return None
    router = evaluation.online.get("router")
    return OnlineView(
        rows=tuple(evaluation.online.items()),
        comparisons=evaluation.online_comparisons,
        stream=_stream(evaluation),
        in_rate=_in_rate(evaluation),
        sizes=_sizes(router, len(evaluation.providers)) if router else (),
    )


def _stream(evaluation: Evaluation) -> Curves | None:
    drawn = {
        name: [
            (100 * part, 100 * value)
            for part, value in zip(PARTS, one.behaviour.stream, strict=True)
            if value is not None
        ]
        for name, one in evaluation.online.items()
        if name in FOLLOWED
    }
    return _curves(evaluation, drawn, "Accuracy over the stream, in percent", around=20.0)


def _in_rate(evaluation: Evaluation) -> Curves | None:
    router = evaluation.online.get("router")
    if router is None:
        return None
    rates = router.behaviour.in_rate_by_step
    points = [(float(step), 100 * rate) for step, rate in enumerate(rates) if rate is not None]
    return _curves(evaluation, {"router": points}, "Share of steps with working memory, in percent", around=0.0)


def _curves(
    evaluation: Evaluation, drawn: dict[str, list[tuple[float, float]]], describe: str, around: float
) -> Curves | None:
    drawn = {name: points for name, points in drawn.items() if points}
    if not drawn:
        return None
    across = nice_scale([x for points in drawn.values() for x, _ in points], around=around)
    up = nice_scale([y for points in drawn.values() for _, y in points], around=0.0)
    lines = tuple(
        Curve(
            label=policy_words(name, evaluation).name,
            series=number,
            points=polyline(points, across, up),
            end=(across.at(points[-1][0]), 100 - up.at(points[-1][1])),
        )
        for number, (name, points) in enumerate(drawn.items(), start=1)
    )
    return Curves(across, up, lines, describe)


def _sizes(router: OnlineResult, providers: int) -> tuple[tuple[str, tuple[float, ...]], ...]:
    found = []
    for outcome, sizes in router.behaviour.end_sizes.items():
        total = sum(sizes.values())
        found.append((f"{outcome} ({total})", tuple(sizes.get(size, 0) / total for size in range(providers + 1))))
    return tuple(found)


def failure_rows(evaluation: Evaluation) -> list[tuple[str, int, list[tuple[str, int, float]]]]:
    """Per policy worth following: its failures, and per class their number and share of the failures."""
    rows = []
    for name in _worth_following(evaluation):
        found = evaluation.policies[name].failures
        if found is not None and found.failed:
            counts = [(label, getattr(found, key)) for key, label in FAILURE_CLASSES]
            rows.append((name, found.failed, [(label, count, count / found.failed) for label, count in counts]))
    return rows


def _worth_following(evaluation: Evaluation) -> Sequence[str]:
    names = [*(name for name, one in evaluation.policies.items() if one.kind == "router"), evaluation.best_single]
    return [name for name in names if name is not None and name in evaluation.policies]


def cost_view(evaluation: Evaluation) -> CostView | None:
    """Replayed policies by what they inject (tokens where their rate is known, else characters) and what they solve."""
    replayed = {name: one for name, one in evaluation.policies.items() if one.way == "replay"}
    counted = any(one.injected_tokens is not None for one in replayed.values())
    known = [
        (policy_words(name, evaluation).name, one.kind, x, 100 * one.accuracy)
        for name, one in replayed.items()
        if one.accuracy is not None and (x := one.injected_tokens if counted else one.injected_chars) is not None
    ]
    if not known:
        return None
    across = nice_scale([x for _, _, x, _ in known], around=0.0)
    up = nice_scale([y for _, _, _, y in known], around=0.0)
    known.sort(key=lambda one: LABELLED.index(one[1]))
    places = [(across.at(x), 100 - up.at(y)) for _, _, x, y in known]
    dots: list[Dot] = []
    for (label, kind, _, _), at in zip(known, places, strict=True):
        leftwards = at[0] > 60
        free = _free(dots, places, at, leftwards)
        dots.append(Dot(label, kind, *at, "end" if leftwards else "start", free))
    return CostView(across, up, tuple(dots), "tokens" if counted else "characters")


def _free(dots: Sequence[Dot], places: Sequence[tuple[float, float]], at: tuple[float, float], leftwards: bool) -> bool:
    """Whether a label has room there; a dot without one still says its name when pointed at."""
    span = (at[0] - 18, at[0]) if leftwards else (at[0], at[0] + 18)
    hit = any(place != at and span[0] < place[0] < span[1] and abs(place[1] - at[1]) < 3 for place in places)
    close = any(abs(dot.y - at[1]) <= 5 and abs(dot.x - at[0]) <= 22 for dot in dots if dot.labelled)
    return not hit and not close


def coverage_bands(evaluation: Evaluation) -> dict[str, tuple[int, float]]:
    """Tasks by how much routing matters: solved by nobody, by one or two arms, by some, by all (MemAgent Table 13)."""
    counts, total = evaluation.coverage, sum(evaluation.coverage)
    if not total:
        return {}
    last = len(counts) - 1
    bands = {
        "by no arm": counts[0],
        "by one or two": sum(counts[1 : min(3, last)]),
        "by more, not all": sum(counts[3:last]),
        "by every arm": counts[last],
    }
    return {name: (count, count / total) for name, count in bands.items()}
