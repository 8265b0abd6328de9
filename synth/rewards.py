"""Rewards of the three decisions from the facts alone: correctness, the judge, later reuse (MemAgent 4.3).

Nothing here runs an episode; a changed setting gives new rewards from the same facts, and a judge is asked only what it
has not judged before.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Never

from tqdm import tqdm

from providers.errors import ConfigError, JudgeError
from providers.files import write_atomically
from providers.short_term import ShortTermMemory
from providers.types import Retrieval, Step, Trajectory, content_hash
from router.context import EndContext
from router.decisions import NONE
from router.session import summarise
from router.table import RoutingTable, TableRow
from synth.arms import episode_of
from synth.config import RewardConfig
from synth.facts import Episode, EpisodeKey, OfferFact, Probe, RewardFact
from synth.judge.cases import BeginCase, Case, EndCase, InCase, Judge
from synth.judge.load import load_judge
from synth.judge.scale import Unscored, Verdict, Weights, aggregate
from synth.reuse import Reuse, later_reuse
from synth.reward_summary import reward_lines, summarise_rewards
from synth.runs import Run
from synth.success import solved_pairs

STAGE = "explore"

NOTHING_RAN = Unscored(kind="nothing to read", reason="no episode ended")
NOT_DRAWN = Unscored(kind="not drawn", reason="rewards.judge_in judges fewer")
LEAST_FOR_SHARE = 20
"""Judged decisions before a share of failed ones stops the stage on its way; fewer are counted at its end."""


@dataclass(frozen=True)
class Decision:
    """A decision to be judged: the fact that its verdict completes, and what the judge reads, or why nothing."""

    fact: RewardFact
    case: Case | Unscored


async def score(run: Run) -> None:
    """Compute all rewards of the run's exploration, write them to the facts and their summary to `run.rewards`.

    Safe to kill: started again it asks the judge only for what it has not judged.

    Raises:
        ConfigError: nothing is explored yet, or the config names no model for the judge.
        JudgeError: the judge failed on more decisions than `rewards.max_failed_share` allows.
    """
    facts = run.facts
    if not facts.mark(STAGE):
        raise ConfigError("there is nothing to score yet: run `memroute explore` with this config first")
    judge = load_judge(run)
    signature = rewards_signature(run)
    if facts.mark("rewards") == signature and _finished(run):
        print("score: done already", file=sys.stderr)
        return
    table = RoutingTable.load(run.table(STAGE))
    probes = facts.probes(STAGE, [row.task_id for row in table.rows])
    reuse = reuse_of(run, table, probes)
    settings = run.config.rewards
    rewards = await judged(judge, decisions(run, table, probes), settings.weights, settings.max_failed_share)
    if settings.end != "judge":
        rewards += reuse_facts(reuse, settings)
    facts.set_mark("rewards", "")
    facts.add_rewards(signature, rewards)
    _with_judge(table, rewards).save(run.table(STAGE))
    summary = summarise_rewards(run.config, judge, table, rewards, reuse)
    write_atomically(run.rewards, json.dumps(summary, indent=2) + "\n")
    facts.set_mark("rewards", signature)
    for line in reward_lines(summary):
        print(f"score: {line}", file=sys.stderr)


def rewards_signature(run: Run) -> str:
    """What the rewards depend on beside the facts."""
    rewards = run.config.rewards
    parts = [rewards.weights, rewards.end, rewards.min_exposures, run.config.explore.positive]
    if rewards.judge_in is not None:
        parts.append(rewards.judge_in)
    return content_hash("rewards", load_judge(run).identity, *parts)


def _finished(run: Run) -> bool:
    """Whether the summary stands and no decision waits for a judge that failed."""
    if not run.rewards.exists():
        return False
    summary = json.loads(run.rewards.read_text(encoding="utf-8"))
    return not summary.get("judge", {}).get("failed")


def decisions(run: Run, table: RoutingTable, probes: Mapping[str, Probe]) -> Iterator[Decision]:
    """Every Begin arm that retrieved something, every In decision that had something to inject, and every End offer
    where the judge rewards those."""
    drawn = _drawn(run, table, probes)
    for row in table.rows:
        episodes = run.facts.episodes(STAGE, [row.task_id])
        yield from _begin_decisions(row, probes[row.task_id], episodes)
        for decision in _in_decisions(row, table.providers, probes[row.task_id], episodes):
            yield decision if drawn is None or _place(decision.fact) in drawn else replace(decision, case=NOT_DRAWN)
    if run.config.rewards.end == "judge":
        yield from end_decisions(run, table)


def _drawn(run: Run, table: RoutingTable, probes: Mapping[str, Probe]) -> set[str] | None:
    """The In decisions that are judged, `rewards.judge_in` of them drawn by the run's seed; None judges all."""
    most = run.config.rewards.judge_in
    if most is None:
        return None
    places = [
        _place(decision.fact)
        for row in table.rows
        for decision in _in_decisions(
            row, table.providers, probes[row.task_id], run.facts.episodes(STAGE, [row.task_id])
        )
    ]
    return set(sorted(places, key=lambda place: content_hash("judge_in", run.config.seed, place))[:most])


def _place(fact: RewardFact) -> str:
    return content_hash(fact.task_id, fact.provider, fact.in_mode, fact.repeat, fact.step)


async def judged(
    judge: Judge, cases: Iterable[Decision], weights: Weights | None = None, max_failed_share: float = 1.0
) -> list[RewardFact]:
    """The judge's rewards in the order of the decisions, several asked at a time.

    Raises:
        JudgeError: it failed on more than the allowed share of the decisions so far.
    """
    work = _Judging(judge, iter(enumerate(cases)), weights, max_failed_share)
    with tqdm(desc="score", unit=" decisions", disable=None, leave=False, file=sys.stderr) as bar:
        async with asyncio.TaskGroup() as group:
            for _ in range(judge.concurrency):
                group.create_task(work.run(bar))
    work.check_failures(least=1)
    if work.failure is not None:
        raise work.failure
    return [work.done[place] for place in sorted(work.done)]


@dataclass
class _Judging:
    """Decisions that are being judged by several workers at a time."""

    judge: Judge
    queue: Iterator[tuple[int, Decision]]
    weights: Weights | None
    max_failed_share: float
    done: dict[int, RewardFact] = field(default_factory=dict)
    failed: int = 0
    last: str = ""
    """Why it failed the last time."""
    failure: JudgeError | None = None

    async def run(self, bar: tqdm[Never]) -> None:
        for place, decision in self.queue:
            verdict = await self._verdict(decision.case)
            self.done[place] = _rewarded(decision.fact, verdict, self.weights)
            bar.update()
            if isinstance(verdict, Unscored) and verdict.kind == "judge failed":
                self._count_failure(verdict)
            if self.failure is not None:
                return

    async def _verdict(self, case: Case | Unscored) -> Verdict | Unscored:
        return case if isinstance(case, Unscored) else await self.judge.judge(case)

    def _count_failure(self, unscored: Unscored) -> None:
        self.failed += 1
        self.last = unscored.reason
        self.check_failures(least=LEAST_FOR_SHARE)

    def check_failures(self, least: int) -> None:
        """Note the failure where, of `least` decisions or more, too many failed."""
        ran = len(self.done)
        if ran >= least and self.failed / ran > self.max_failed_share:
            self.failure = JudgeError(
                f"the judge failed on {self.failed} of {ran} decisions, and rewards.max_failed_share ="
                f" {self.max_failed_share:g} stops there; the last: {self.last} What it judged is kept; mend the"
                " cause and start again."
            )


def _rewarded(fact: RewardFact, verdict: Verdict | Unscored, weights: Weights | None) -> RewardFact:
    if isinstance(verdict, Unscored):
        return fact.model_copy(update={"note": f"{verdict.kind}: {verdict.reason}" if verdict.reason else verdict.kind})
    reward = aggregate(verdict.phase, verdict.scores, weights)
    return fact.model_copy(update={"reward": reward, "dimensions": verdict.scores, "note": verdict.reason})


def _begin_decisions(row: TableRow, probe: Probe, episodes: Mapping[EpisodeKey, Episode]) -> Iterator[Decision]:
    similarity = _similarities(row)
    for cell in row.cells:
        arm = cell.arm
        if arm.provider == NONE or cell.empty:
            continue
        retrieval = probe.served[arm.provider].retrieval
        episode = episode_of(episodes, STAGE, row.task_id, retrieval.content_key(), arm.in_mode, arm.repeat)
        case: Case | Unscored = NOTHING_RAN
        if episode is not None and episode.trajectory is not None:
            case = BeginCase(
                task=row.question,
                memory=retrieval.text,
                actions=episode.trajectory.steps,
                answer=episode.trajectory.answer,
                skills=tuple(skill.name for skill in retrieval.skills),
                similarity=similarity[arm.provider],
            )
        fact = RewardFact(
            phase="begin",
            task_id=row.task_id,
            provider=arm.provider,
            in_mode=arm.in_mode,
            repeat=arm.repeat,
            reward=None,
        )
        yield Decision(fact, case)


def _in_decisions(
    row: TableRow, providers: Sequence[str], probe: Probe, episodes: Mapping[EpisodeKey, Episode]
) -> Iterator[Decision]:
    names = episode_names(providers, probe)
    for key, episode in episodes.items():
        if key.content_key not in names:
            continue
        for step, case in in_cases(episode):
            fact = RewardFact(
                phase="in",
                task_id=row.task_id,
                provider=names[key.content_key],
                in_mode=key.in_mode,
                repeat=key.repeat,
                step=step,
                reward=None,
            )
            yield Decision(fact, case)


def episode_names(providers: Sequence[str], probe: Probe) -> dict[str, str]:
    """The name of a task's episodes by what they inject: the first arm, none included, that injects it."""
    names = {Retrieval(provider=NONE).content_key(): NONE}
    for provider in providers:
        names.setdefault(probe.served[provider].retrieval.content_key(), provider)
    return names


def in_cases(episode: Episode) -> Iterator[tuple[int, InCase]]:
    """What a judge reads of every In decision, by its step."""
    trajectory = episode.trajectory
    if trajectory is None:
        return
    memory = {injection.step: injection.text for injection in trajectory.injections if injection.phase == "in"}
    if episode.key.in_mode == "no_op":
        memory = _held_back(trajectory)
    for record in episode.in_records:
        step = record.context.step
        yield (
            step,
            InCase(
                task=trajectory.question,
                memory=memory[step],
                before=trajectory.steps[:step],
                after=trajectory.steps[step] if step < len(trajectory.steps) else None,
                answer=trajectory.answer,
                injected=record.decision.action == "query",
            ),
        )


def _held_back(trajectory: Trajectory) -> dict[int | None, str]:
    """The working memory before every step, rebuilt from the steps."""
    memory = ShortTermMemory(trajectory.question)
    texts: dict[int | None, str] = {0: memory.render()}
    for step in trajectory.steps:
        memory.observe(step)
        texts[len(texts)] = memory.render()
    return texts


def end_decisions(run: Run, table: RoutingTable) -> Iterator[Decision]:
    """Every offer in task order, with the questions of those that the provider had before."""
    endings = run.facts.endings(STAGE)
    offers: dict[str, list[OfferFact]] = defaultdict(list)
    for offer in run.facts.offers(STAGE):
        offers[offer.task_id].append(offer)
    earlier: dict[str, list[str]] = defaultdict(list)
    for row in table.rows:
        if row.task_id not in endings:
            continue
        context = endings[row.task_id].context
        steps = _representative_steps(run, context)
        for offer in offers[row.task_id]:
            case = EndCase(
                task=row.question,
                summary=context.summary,
                actions=steps,
                provider=offer.provider,
                stores=next(card.stores for card in context.cards if card.name == offer.provider),
                records=len(offer.record_ids),
                earlier=tuple(earlier[offer.provider]),
            )
            yield Decision(RewardFact(phase="end", task_id=row.task_id, provider=offer.provider, reward=None), case)
            earlier[offer.provider].append(row.question)


def _representative_steps(run: Run, context: EndContext) -> tuple[Step, ...]:
    """The steps of the run that represents a task: the finished one that its End context summarises."""
    for episode in run.facts.episodes(STAGE, [context.task_id]).values():
        if episode.trajectory is not None and summarise(episode.trajectory) == context.summary:
            return episode.trajectory.steps
    return ()


def reuse_of(run: Run, table: RoutingTable, probes: Mapping[str, Probe]) -> dict[tuple[str, str], Reuse]:
    """The later reuse of every (task, provider) that was offered the task's trajectory."""
    offered = [(offer.task_id, offer.provider) for offer in run.facts.offers(STAGE)]
    return later_reuse(offered, probes, solved_pairs(table, run.config.explore.positive))


def reuse_facts(reuse: Mapping[tuple[str, str], Reuse], settings: RewardConfig) -> list[RewardFact]:
    """The End rewards by later reuse."""
    facts = []
    for (task_id, provider), found in reuse.items():
        reward = None if settings.end == "judge" else found.reward(settings.end, settings.min_exposures)
        note = f"{found.exposures} later tasks, shown to {found.used:g}, {found.won:g} of them solved"
        facts.append(RewardFact(phase="end", task_id=task_id, provider=provider, reward=reward, note=note))
    return facts


def _similarities(row: TableRow) -> dict[str, float]:
    """Cosine of the question and each provider's preview."""
    return {
        preview.provider: math.fsum(a * b for a, b in zip(row.embedding, vector, strict=False))
        for preview, vector in zip(row.previews, row.preview_embeddings, strict=True)
    }


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
