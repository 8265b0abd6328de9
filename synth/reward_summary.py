"""What the rewards of a run came to: counts, distributions, agreement with correctness; for the report and terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from router.decisions import NONE
from router.table import RoutingTable
from synth.config import RunConfig
from synth.facts import RewardFact
from synth.judge.cases import Judge
from synth.judge.scale import DIMENSIONS, TOP, JudgedPhase
from synth.reuse import Reuse
from synth.success import is_empty, success_set

BINS = 10
"""Bars of the reward histograms."""

LEAST_TO_COMPARE = 10
"""Decisions before a dimension that never changes is called constant."""

_PARTS: Mapping[str, JudgedPhase] = {"begin": "begin", "in_query": "query", "in_no_op": "no_op", "end": "end"}


def summarise_rewards(
    config: RunConfig,
    judge: Judge,
    table: RoutingTable,
    rewards: Sequence[RewardFact],
    reuse: Mapping[tuple[str, str], Reuse],
) -> dict[str, Any]:
    """Counts, shares, histograms and agreement as plain JSON."""
    positive = config.explore.positive
    sets = [success_set(row, table.providers, positive) for row in table.rows]
    correct = _correctness(table)
    parts = {part: _distribution(phase, _of_part(part, rewards), correct) for part, phase in _PARTS.items()}
    return {
        "tasks": len(table.rows),
        "positive": positive,
        "judge": _judge_summary(judge, rewards),
        "end_by": config.rewards.end,
        "correct_by_provider": {
            name: _mean(row.correctness(name) for row in table.rows) for name in (NONE, *table.providers)
        },
        "empty_by_provider": {
            name: _mean(float(is_empty(row, name)) for row in table.rows) for name in table.providers
        },
        "success_sets": dict(Counter(one.kind for one in sets)),
        "discriminability": _mean(one.discriminability for one in sets if one.kind == "proper"),
        **parts,
        "reuse": _reuse_summary(table.providers, reuse, config.rewards.min_exposures),
    }


def _of_part(part: str, rewards: Sequence[RewardFact]) -> list[RewardFact]:
    phase, _, mode = part.partition("_")
    return [fact for fact in rewards if fact.phase == phase and (not mode or fact.in_mode == mode)]


Arm = tuple[str, str, str, int]


def _correctness(table: RoutingTable) -> dict[Arm, bool]:
    """Whether each scored arm was correct, by task, provider, In mode and repeat."""
    return {
        (row.task_id, cell.arm.provider, cell.arm.in_mode, cell.arm.repeat): cell.correct >= 0.5
        for row in table.rows
        for cell in row.cells
        if cell.correct is not None
    }


def _judge_summary(judge: Judge, rewards: Sequence[RewardFact]) -> dict[str, Any]:
    """Who judged, and why decisions are unscored."""
    judged = [fact for fact in rewards if fact.phase != "end" or fact.dimensions]
    unscored = Counter(fact.note.partition(":")[0] for fact in judged if fact.reward is None)
    return {
        "name": judge.name,
        "says": judge.says,
        "decisions": len(judged),
        "unscored": dict(sorted(unscored.items())),
        "failed": unscored["judge failed"],
    }


def _distribution(phase: JudgedPhase, facts: Sequence[RewardFact], correct: Mapping[Arm, bool]) -> dict[str, Any]:
    """Counts of rewards in ten equal bins of [0, 1] and of each dimension's scores 0 to 5, what is constant, and how
    well rewards and dimensions agree with correctness."""
    scored = [fact.reward for fact in facts if fact.reward is not None]
    bins = [0] * BINS
    for reward in scored:
        bins[min(BINS - 1, int(reward * BINS))] += 1
    dimensions: dict[str, list[int]] = {}
    for fact in facts:
        for name, value in fact.dimensions.items():
            dimensions.setdefault(name, [0] * (TOP + 1))[value] += 1
    return {
        "decisions": len(facts),
        "unscored": len(facts) - len(scored),
        "zero": sum(reward == 0 for reward in scored),
        "mean": _mean(scored),
        "bins": bins,
        "dimensions": dimensions,
        "constant": [
            name
            for name, counts in dimensions.items()
            if sum(counts) >= LEAST_TO_COMPARE and max(counts) == sum(counts)
        ],
        "agreement": _agreement(phase, facts, correct),
    }


def _agreement(phase: JudgedPhase, facts: Sequence[RewardFact], correct: Mapping[Arm, bool]) -> dict[str, float | None]:
    """Per dimension and for the reward: how often a decision of a correct run is scored above one of a wrong run, ties
    counting half (the area under the ROC curve; 0.5 is chance). Inverted dimensions are turned round. None where all
    runs, or none, are correct.
    """
    pairs = [
        (fact, right)
        for fact in facts
        if fact.dimensions
        and fact.reward is not None
        and (right := correct.get((fact.task_id, fact.provider, fact.in_mode, fact.repeat))) is not None
    ]
    rights = [right for _, right in pairs]
    if not pairs:
        return {}
    found = {"reward": _area(rights, [fact.reward or 0.0 for fact, _ in pairs])}
    for dimension in DIMENSIONS[phase]:
        sign = -1 if dimension.inverted else 1
        found[dimension.name] = _area(rights, [sign * fact.dimensions[dimension.name] for fact, _ in pairs])
    return found


def _area(rights: Sequence[bool], scores: Sequence[float]) -> float | None:
    if len(set(rights)) < 2:
        return None
    from sklearn.metrics import roc_auc_score

    return round(float(roc_auc_score(rights, scores)), 4)


def _reuse_summary(
    providers: Sequence[str], reuse: Mapping[tuple[str, str], Reuse], min_exposures: int
) -> dict[str, Any]:
    """How many later tasks were shown something of each origin, by provider: counts of 0, 1, 2, 3, 4, and 5 or more."""
    histogram = {name: [0] * 6 for name in providers}
    won: Counter[str] = Counter()
    censored = 0
    for (_, provider), found in reuse.items():
        if found.exposures < min_exposures:
            censored += 1
            continue
        histogram[provider][min(5, math.ceil(found.used))] += 1
        won[provider] += sum(event.solved for event in found.events)
    return {
        "counts": "later tasks shown an item of the origin: 0, 1, 2, 3, 4, 5 or more",
        "by_provider": histogram,
        "solved_by_provider": {name: won[name] for name in providers},
        "unscored": censored,
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(math.fsum(known) / len(known), 4) if known else None


def reward_lines(summary: Mapping[str, Any]) -> list[str]:
    """The summary for the terminal, warnings last."""
    sets = summary["success_sets"]
    lines = [
        f"{summary['tasks']} tasks: {sets.get('proper', 0)} told apart by some providers only, "
        f"{sets.get('all', 0)} solved by all, {sets.get('none', 0)} by none",
        f"judge: {summary['judge']['says']}",
    ]
    for part in _PARTS:
        lines += _part_lines(part, summary[part])
    reuse = summary["reuse"]
    counts = {name: f"{sum(found[1:])} of {sum(found)}" for name, found in reuse["by_provider"].items()}
    lines.append("reused later: " + ", ".join(f"{name} {text}" for name, text in counts.items()))
    columns = [sum(column) for column in zip(*reuse["by_provider"].values(), strict=True)]
    histogram = ", ".join(
        f"{name}: {count}" for name, count in zip(("0", "1", "2", "3", "4", "5+"), columns, strict=False)
    )
    lines.append(
        f"stored runs by later tasks that were shown something of them: {histogram}; {reuse['unscored']} censored"
    )
    return lines + _warnings(summary)


def _part_lines(part: str, found: Mapping[str, Any]) -> list[str]:
    mean = "-" if found["mean"] is None else f"{found['mean']:.2f}"
    line = f"{part}: {found['decisions']} decisions, {found['unscored']} unscored, {found['zero']} zero, mean {mean}"
    agreement = found["agreement"]
    lines = [line + _agreeing(agreement.get("reward"))]
    for name, counts in found["dimensions"].items():
        shares = "  ".join(f"{score}:{count / sum(counts):4.0%}" for score, count in enumerate(counts))
        lines.append(f"  {name:<18} {shares}{_agreeing(agreement.get(name))}")
    return lines


def _agreeing(area: float | None) -> str:
    return "" if area is None else f"; agrees with correctness {area:.2f} (chance 0.50)"


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for part in _PARTS:
        for name in summary[part]["constant"]:
            counts = summary[part]["dimensions"][name]
            lines.append(
                f"warning: {part} {name} is {counts.index(max(counts))} in all {sum(counts)} decisions: "
                "it tells nothing apart"
            )
    for kind, count in summary["judge"]["unscored"].items():
        lines.append(f"unscored by the judge: {count} of {summary['judge']['decisions']}: {kind}")
    if summary["judge"]["failed"]:
        lines.append("warning: the judge failed on some decisions; the same command asks for those again")
    return lines
