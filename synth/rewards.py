"""Rewards of the three decisions from the facts alone: correctness, the judge, later reuse (MemAgent 4.3).

Nothing here runs an episode; a changed setting gives new rewards from the same facts.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from providers.errors import ConfigError
from providers.files import write_atomically
from providers.short_term import ShortTermMemory
from providers.types import Retrieval, Trajectory, content_hash
from router.decisions import NONE, InMode
from router.table import RoutingTable, TableRow
from synth.arms import episode_of
from synth.facts import Episode, EpisodeKey, Probe, RewardFact
from synth.judge import BeginCase, InCase, Judge, RuleJudge, Verdict
from synth.runs import Run

STAGE = "explore"
Positive = Literal["any", "mean", "all"]

BINS = 10
"""Bars of the reward histograms."""


@dataclass(frozen=True)
class SuccessSet:
    """P and P+ of one task: providers that retrieved something and were scored, and those of them that succeeded."""

    providers: tuple[str, ...]
    succeeding: tuple[str, ...]

    @property
    def kind(self) -> Literal["proper", "all", "none"]:
        if not self.succeeding:
            return "none"
        return "all" if len(self.succeeding) == len(self.providers) else "proper"

    @property
    def discriminability(self) -> float:
        """1 - |P+| / |P| for a proper non-empty subset, else 0."""
        return 1 - len(self.succeeding) / len(self.providers) if self.kind == "proper" else 0.0


@dataclass(frozen=True)
class Reuse:
    """How later tasks used what a provider kept of one task. `reward` None: too few later tasks to say."""

    exposures: int
    used: float
    """Later tasks that were shown an item of it, each counted by its credit share."""
    solved: float
    reward: float | None


def score(run: Run) -> None:
    """Compute all rewards of the run's exploration, write them to the facts and their summary to `run.rewards`."""
    facts = run.facts
    if not facts.mark(STAGE):
        raise ConfigError("there is nothing to score yet: run `memroute explore` with this config first")
    signature = rewards_signature(run)
    if facts.mark("rewards") == signature and run.rewards.exists():
        print("score: done already", file=sys.stderr)
        return
    table = RoutingTable.load(run.table(STAGE))
    probes = facts.probes(STAGE, [row.task_id for row in table.rows])
    rewards = [*judged(run, table, probes), *reuse_facts(run, table, probes)]
    facts.add_rewards(signature, rewards)
    _with_judge(table, rewards).save(run.table(STAGE))
    summary = summarise_rewards(run, table, probes, rewards)
    write_atomically(run.rewards, json.dumps(summary, indent=2) + "\n")
    facts.set_mark("rewards", signature)
    for line in _lines(summary):
        print(f"score: {line}", file=sys.stderr)


def rewards_signature(run: Run) -> str:
    """What the rewards depend on beside the facts."""
    config = run.config
    return content_hash("rewards", config.rewards.judge, config.rewards.min_exposures, config.explore.positive)


def success_set(row: TableRow, providers: Sequence[str], positive: Positive) -> SuccessSet:
    """P and P+ of a task; a provider that retrieved nothing, or was not scored, is in neither."""
    tried, succeeding = [], []
    for provider in providers:
        solved = solves(row, provider, positive)
        if solved is not None and not is_empty(row, provider):
            tried.append(provider)
            if solved:
                succeeding.append(provider)
    return SuccessSet(tuple(tried), tuple(succeeding))


def solves(row: TableRow, provider: str, positive: Positive) -> bool | None:
    """Whether a provider's arms solved the task: in any of them, by their mean (from 0.5 up), or in all."""
    values = [cell.correct for cell in row.cells if cell.arm.provider == provider and cell.correct is not None]
    if not values:
        return None
    if positive == "mean":
        return math.fsum(values) / len(values) >= 0.5
    return max(values) >= 0.5 if positive == "any" else min(values) >= 0.5


def is_empty(row: TableRow, provider: str) -> bool:
    """Whether a provider retrieved nothing for the task."""
    return all(cell.empty for cell in row.cells if cell.arm.provider == provider)


def judged(
    run: Run, table: RoutingTable, probes: Mapping[str, Probe], judge: Judge | None = None
) -> Iterator[RewardFact]:
    """Judge every Begin arm that retrieved something and every In decision that had something to inject."""
    judge = judge or RuleJudge()
    for row in table.rows:
        episodes = run.facts.episodes(STAGE, [row.task_id])
        yield from _judge_begin(judge, row, probes[row.task_id], episodes)
        yield from _judge_in(judge, row, table.providers, probes[row.task_id], episodes)


def _judge_begin(
    judge: Judge, row: TableRow, probe: Probe, episodes: Mapping[EpisodeKey, Episode]
) -> Iterator[RewardFact]:
    similarity = _similarities(row)
    for cell in row.cells:
        arm = cell.arm
        if arm.provider == NONE or cell.empty:
            continue
        retrieval = probe.served[arm.provider].retrieval
        episode = episode_of(episodes, STAGE, row.task_id, retrieval.content_key(), arm.in_mode, arm.repeat)
        verdict = None
        if episode is not None and episode.trajectory is not None:
            verdict = judge.begin(
                BeginCase(
                    task=row.question,
                    memory=retrieval.text,
                    actions=episode.trajectory.steps,
                    answer=episode.trajectory.answer,
                    skills=tuple(skill.name for skill in retrieval.skills),
                    similarity=similarity[arm.provider],
                )
            )
        yield _reward("begin", row.task_id, arm.provider, arm.in_mode, arm.repeat, -1, verdict)


def _judge_in(
    judge: Judge,
    row: TableRow,
    providers: Sequence[str],
    probe: Probe,
    episodes: Mapping[EpisodeKey, Episode],
) -> Iterator[RewardFact]:
    names = episode_names(providers, probe)
    for key, episode in episodes.items():
        if key.content_key not in names:
            continue
        for step, action, case in in_cases(episode):
            verdict = judge.query(case) if action == "query" else judge.no_op(case)
            yield _reward("in", row.task_id, names[key.content_key], key.in_mode, key.repeat, step, verdict)


def episode_names(providers: Sequence[str], probe: Probe) -> dict[str, str]:
    """The name of a task's episodes by what they inject: the first arm, none included, that injects it."""
    names = {Retrieval(provider=NONE).content_key(): NONE}
    for provider in providers:
        names.setdefault(probe.served[provider].retrieval.content_key(), provider)
    return names


def in_cases(episode: Episode) -> Iterator[tuple[int, InMode, InCase]]:
    """What a judge reads of every In decision: its step, its action, and the case."""
    trajectory = episode.trajectory
    if trajectory is None:
        return
    memory = {injection.step: injection.text for injection in trajectory.injections if injection.phase == "in"}
    if episode.key.in_mode == "no_op":
        memory = _held_back(trajectory)
    for record in episode.in_records:
        step = record.context.step
        case = InCase(
            task=trajectory.question,
            memory=memory[step],
            before=trajectory.steps[:step],
            after=trajectory.steps[step] if step < len(trajectory.steps) else None,
            answer=trajectory.answer,
        )
        yield step, record.decision.action, case


def _held_back(trajectory: Trajectory) -> dict[int | None, str]:
    """The working memory before every step, rebuilt from the steps."""
    memory = ShortTermMemory(trajectory.question)
    texts: dict[int | None, str] = {0: memory.render()}
    for step in trajectory.steps:
        memory.observe(step)
        texts[len(texts)] = memory.render()
    return texts


def reuse_facts(run: Run, table: RoutingTable, probes: Mapping[str, Probe]) -> list[RewardFact]:
    """The End reward of every (task, provider) that was offered the task's trajectory."""
    positive = run.config.explore.positive
    solved = {(row.task_id, name): solves(row, name, positive) for row in table.rows for name in table.providers}
    offered = [(offer.task_id, offer.provider) for offer in run.facts.offers(STAGE)]
    found = reuse_rewards(offered, probes, solved, run.config.rewards.min_exposures)
    return [
        RewardFact(phase="end", task_id=task_id, provider=provider, reward=reuse.reward)
        for (task_id, provider), reuse in found.items()
    ]


def reuse_rewards(
    offered: Iterable[tuple[str, str]],
    probes: Mapping[str, Probe],
    solved: Mapping[tuple[str, str], bool | None],
    min_exposures: int,
) -> dict[tuple[str, str], Reuse]:
    """r_end = (s + 1) / (n + 2) over the n later tasks that were shown an item of the origin, s of them solved.

    Later is a later wave, in which the provider's own arm was scored. An item merged from m origins counts 1/m for
    each. Without a reuse the reward is 0, or None where fewer than `min_exposures` later tasks could have had one.
    """
    shown: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    scored_in_wave: Counter[tuple[str, int]] = Counter()
    for task_id in sorted(probes):
        for provider, served in probes[task_id].served.items():
            if solved.get((task_id, provider)) is None:
                continue
            scored_in_wave[provider, probes[task_id].wave] += 1
            for origin, share in served.origins:
                if origin in probes and probes[origin].wave < probes[task_id].wave:
                    shown[origin, provider].append((task_id, share))
    last = max((probe.wave for probe in probes.values()), default=0)
    found = {}
    for origin, provider in sorted(offered):
        later = range(probes[origin].wave + 1, last + 1)
        exposures = sum(scored_in_wave[provider, wave] for wave in later)
        events = shown.get((origin, provider), [])
        used = math.fsum(share for _, share in events)
        wins = math.fsum(share for task_id, share in events if solved[task_id, provider])
        reward = None if exposures < min_exposures else (wins + 1) / (used + 2) if events else 0.0
        found[origin, provider] = Reuse(exposures, used, wins, reward)
    return found


def _similarities(row: TableRow) -> dict[str, float]:
    """Cosine of the question and each provider's preview."""
    return {
        preview.provider: math.fsum(a * b for a, b in zip(row.embedding, vector, strict=False))
        for preview, vector in zip(row.previews, row.preview_embeddings, strict=True)
    }


def _reward(
    phase: Literal["begin", "in"],
    task_id: str,
    provider: str,
    in_mode: str,
    repeat: int,
    step: int,
    verdict: Verdict | None,
) -> RewardFact:
    return RewardFact(
        phase=phase,
        task_id=task_id,
        provider=provider,
        in_mode=in_mode,
        repeat=repeat,
        step=step,
        reward=None if verdict is None else verdict.reward,
        dimensions={} if verdict is None else verdict.scores,
    )


def _with_judge(table: RoutingTable, rewards: Sequence[RewardFact]) -> RoutingTable:
    """The table with the judge's reward of every Begin arm."""
    by_arm = {(r.task_id, r.provider, r.in_mode, r.repeat): r.reward for r in rewards if r.phase == "begin"}
    rows = []
    for row in table.rows:
        cells = [
            cell.model_copy(
                update={"judge": by_arm.get((row.task_id, cell.arm.provider, cell.arm.in_mode, cell.arm.repeat))}
            )
            for cell in row.cells
        ]
        rows.append(row.model_copy(update={"cells": tuple(cells)}))
    return table.model_copy(update={"rows": tuple(rows)})


def summarise_rewards(
    run: Run, table: RoutingTable, probes: Mapping[str, Probe], rewards: Sequence[RewardFact]
) -> dict[str, Any]:
    """What the report shows of the rewards: counts, shares, histograms; plain JSON."""
    positive = run.config.explore.positive
    sets = [success_set(row, table.providers, positive) for row in table.rows]
    by_phase = {phase: [fact for fact in rewards if fact.phase == phase] for phase in ("begin", "in", "end")}
    return {
        "tasks": len(table.rows),
        "positive": positive,
        "correct_by_provider": {name: _mean(row.correctness(name) for row in table.rows) for name in _arms(table)},
        "empty_by_provider": {
            name: _mean(float(is_empty(row, name)) for row in table.rows) for name in table.providers
        },
        "success_sets": dict(Counter(one.kind for one in sets)),
        "discriminability": _mean(one.discriminability for one in sets if one.kind == "proper"),
        "begin": _distribution(by_phase["begin"]),
        "in_query": _distribution([fact for fact in by_phase["in"] if fact.in_mode == "query"]),
        "in_no_op": _distribution([fact for fact in by_phase["in"] if fact.in_mode == "no_op"]),
        "end": _distribution(by_phase["end"]),
        "reuse": _reuse_summary(run, table, probes),
    }


def _arms(table: RoutingTable) -> tuple[str, ...]:
    return (NONE, *table.providers)


def _distribution(facts: Sequence[RewardFact]) -> dict[str, Any]:
    """Counts of rewards in ten equal bins of [0, 1], of unscored ones, and of each dimension's scores 0 to 5."""
    scored = [fact.reward for fact in facts if fact.reward is not None]
    bins = [0] * BINS
    for reward in scored:
        bins[min(BINS - 1, int(reward * BINS))] += 1
    dimensions: dict[str, list[int]] = {}
    for fact in facts:
        for name, value in fact.dimensions.items():
            dimensions.setdefault(name, [0] * 6)[value] += 1
    return {
        "decisions": len(facts),
        "unscored": len(facts) - len(scored),
        "zero": sum(reward == 0 for reward in scored),
        "mean": _mean(scored),
        "bins": bins,
        "dimensions": dimensions,
    }


def _reuse_summary(run: Run, table: RoutingTable, probes: Mapping[str, Probe]) -> dict[str, Any]:
    """How many later tasks were shown something of each origin, by provider: counts of 0, 1, 2, 3, 4, and 5 or more."""
    positive = run.config.explore.positive
    solved = {(row.task_id, name): solves(row, name, positive) for row in table.rows for name in table.providers}
    offered = [(offer.task_id, offer.provider) for offer in run.facts.offers(STAGE)]
    found = reuse_rewards(offered, probes, solved, run.config.rewards.min_exposures)
    histogram = {name: [0] * 6 for name in table.providers}
    for (_, provider), reuse in found.items():
        if reuse.reward is not None:
            histogram[provider][min(5, math.ceil(reuse.used))] += 1
    return {
        "counts": "later tasks shown an item of the origin: 0, 1, 2, 3, 4, 5 or more",
        "by_provider": histogram,
        "unscored": sum(reuse.reward is None for reuse in found.values()),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(math.fsum(known) / len(known), 4) if known else None


def _lines(summary: dict[str, Any]) -> list[str]:
    sets = summary["success_sets"]
    lines = [
        f"{summary['tasks']} tasks: {sets.get('proper', 0)} told apart by some providers only, "
        f"{sets.get('all', 0)} solved by all, {sets.get('none', 0)} by none"
    ]
    for phase in ("begin", "in_query", "in_no_op", "end"):
        part = summary[phase]
        mean = "-" if part["mean"] is None else f"{part['mean']:.2f}"
        lines.append(
            f"{phase}: {part['decisions']} decisions, {part['unscored']} unscored, {part['zero']} zero, mean {mean}"
        )
    reuse = {name: f"{sum(counts[1:])} of {sum(counts)}" for name, counts in summary["reuse"]["by_provider"].items()}
    lines.append("reused later: " + ", ".join(f"{name} {text}" for name, text in reuse.items()))
    return lines
