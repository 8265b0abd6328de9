"""What can be read of one task when it is opened: packed once, unpacked by the page only when a task is opened.

Hundreds of tasks with retrieved texts, prompts and steps are megabytes. They lie in the page as one compressed block,
so that the page paints without them.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from providers.base import ProviderCard
from providers.registry import provider_cards
from providers.types import Outcome, Retrieval
from router.codec import Codec, Prompt, codec
from router.context import BeginContext, EndContext
from router.decisions import NONE
from router.policies.heads import HeadsModel
from router.session import summarise
from router.sight import forecasts
from router.table import RoutingTable, TableRow
from synth.arms import episode_of
from synth.facts import Episode, Probe, RewardFact
from synth.rewards import rewards_signature

if TYPE_CHECKING:
    from synth.runs import Run

TEXT = 2500
"""Characters kept of a retrieved text."""
OBSERVATION, ARGUMENTS = 200, 120
"""Characters kept of what a step saw, and of what it was called with."""
MARK = "▯"
"""Stands where the model's yes / no mark is read."""

Details = dict[str, Any]


def packed(run: Run, table: RoutingTable, picks: Mapping[str, Mapping[str, str]], router: str | None = None) -> str:
    """Base64 of gzipped JSON: `tasks` by id (prompts, decisions, texts, runs) and `explored` by id (rewards by arm).

    Prompts at In and End are those of the arm that `router` picked.
    """
    found = {"tasks": _tasks(run, table, picks, router), "explored": _explored(run)}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode("ascii")


def _tasks(run: Run, table: RoutingTable, picks: Mapping[str, Mapping[str, str]], router: str | None) -> Details:
    stage = f"arms/{table.split}"
    probes = run.facts.probes(stage, [row.task_id for row in table.rows])
    episodes = run.facts.episodes(stage, bodies=False)
    cards, chosen = provider_cards(run.config.providers), codec(run.config.train.codec)
    chances = forecasts(HeadsModel.load(run.heads), table) if run.config.train.forecast and run.heads.exists() else {}
    found = {}
    for row in table.rows:
        context = BeginContext(task_id=row.task_id, question=row.question, previews=row.previews, cards=cards)
        context = context.told(run.config.train.descriptors).forecast(chances.get(row.task_id, ()))
        probe = probes.get(row.task_id)
        runs = {}
        prompts: dict[str, str] = {}
        followed = picks.get(row.task_id, {}).get(router or "")
        if probe is not None:
            for arm in (NONE, *table.providers):
                cell = next((cell.arm for cell in row.cells if cell.arm.provider == arm), None)
                key = _content_key(probe, arm)
                head = episode_of(episodes, stage, row.task_id, key, cell.in_mode, cell.repeat) if cell else None
                whole = run.facts.episode(head.key) if head else None
                if whole is not None:
                    runs[arm] = _run(whole)
                    if arm == followed:
                        prompts = _later_prompts(whole, chosen, cards)
        found[row.task_id] = {
            "prompt": _readable(chosen, chosen.begin(context)),
            "prompts": prompts,
            "decisions": picks.get(row.task_id, {}),
            "texts": _texts(probe),
            "runs": runs,
        }
    return found


def _readable(chosen: Codec, prompt: Prompt) -> str:
    """A prompt as text, with a sign where a mark is read."""
    return MARK.join(prompt.segments) + (MARK if chosen.name == "marks" else "")


def _later_prompts(episode: Episode, chosen: Codec, cards: tuple[ProviderCard, ...]) -> dict[str, str]:
    """By title: the prompt at the first step that had working memory to inject, and the prompt at End."""
    found = {}
    if episode.in_records:
        first = episode.in_records[0].context
        found[f"Decision prompt at In, before step {first.step}"] = _readable(chosen, chosen.in_(first))
    if episode.trajectory is not None:
        end = EndContext(
            task_id=episode.key.task_id,
            question=episode.trajectory.question,
            summary=summarise(episode.trajectory),
            outcome=Outcome(correct=episode.outcome.correct, source=episode.outcome.source),
            cards=cards,
        )
        found["Decision prompt at End"] = _readable(chosen, chosen.end(end))
    return found


def _content_key(probe: Probe, arm: str) -> str:
    return (Retrieval(provider=NONE) if arm == NONE else probe.served[arm].retrieval).content_key()


def _texts(probe: Probe | None) -> dict[str, str]:
    """What each provider would have injected."""
    served = probe.served.items() if probe is not None else ()
    return {name: _shown(one.retrieval) for name, one in served if not one.retrieval.empty}


def _shown(retrieval: Retrieval) -> str:
    text = retrieval.text
    cut = text if len(text) <= TEXT else f"{text[:TEXT]} … ({len(text):,} characters)"
    skills = f"Callable skills: {', '.join(skill.name for skill in retrieval.skills)}" if retrieval.skills else ""
    return "\n".join(part for part in (cut, skills) if part)


def _run(episode: Episode) -> Details:
    """An arm's first run; without steps where its trajectory was not kept."""
    steps = episode.trajectory.steps if episode.trajectory is not None else ()
    return {
        "answer": episode.answer or "",
        "status": episode.status if not episode.error else f"{episode.status}: {episode.error}",
        "steps": [
            [
                step.tool,
                ", ".join(str(value) for value in step.arguments.values())[:ARGUMENTS],
                (f"error: {step.error}" if step.error else step.observation)[:OBSERVATION],
            ]
            for step in steps
        ],
    }


def _explored(run: Run) -> Details:
    """Per exploration task: question, family, and by arm its correctness and mean reward of each phase."""
    path = run.table("explore")
    if not path.exists():
        return {}
    rewards = _rewards(run.facts.rewards(rewards_signature(run)))
    return {
        row.task_id: {"question": row.question, "family": row.family, "arms": _scored_arms(row, rewards)}
        for row in RoutingTable.load(path).publishable().rows
    }


def _rewards(facts: Sequence[RewardFact]) -> dict[tuple[str, str, str], float]:
    """Mean over the scored decisions of a task, provider and phase."""
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for fact in facts:
        if fact.reward is not None:
            values[fact.task_id, fact.provider, fact.phase].append(fact.reward)
    return {key: round(math.fsum(found) / len(found), 3) for key, found in values.items()}


def _scored_arms(row: TableRow, rewards: Mapping[tuple[str, str, str], float]) -> dict[str, list[float | None]]:
    arms = dict.fromkeys(cell.arm.provider for cell in row.cells)
    phases = ("begin", "in", "end")
    return {arm: [row.correctness(arm), *(rewards.get((row.task_id, arm, phase)) for phase in phases)] for arm in arms}
