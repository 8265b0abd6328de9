"""Trained routers asked about the tasks of a split, with whatever they are shown of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evaluation.replay import contexts_of
from evaluation.retrained import Answers, answers_of
from providers.errors import ConfigError
from router.adapter import load_merged, read_record
from router.codec import decide_begin
from router.context import BeginContext
from router.decisions import BeginDecision, ScoringPolicy
from router.features import Evidence
from router.policies.heads import HeadsModel
from router.policies.learned import Generating, Learned
from router.sight import Sight, forecasts
from router.table import RoutingTable
from train.progress import say
from train.sft import train_job

if TYPE_CHECKING:
    import numpy as np

    from providers.base import ProviderCard
    from synth.runs import Run
    from train.job import Job


def load_table(run: Run, name: str) -> RoutingTable:
    """A routing table of the run; `ConfigError` with the verb that makes it where it is missing."""
    path = run.table(name)
    if not path.exists():
        verb = "explore" if name == "explore" else f"evaluate --split {name}"
        raise ConfigError(f"{path} does not exist: run `memroute {verb}` with this config first")
    return RoutingTable.load(path)


def ask_heads(model: HeadsModel, shown: RoutingTable, outcomes: RoutingTable) -> Answers:
    """What the heads choose where they see `shown`; both tables have the same tasks in the same order."""
    return chosen_by(model.predict([Evidence.of_row(row) for row in shown.rows]), shown, outcomes)


def chosen_by(scores: np.ndarray, shown: RoutingTable, outcomes: RoutingTable) -> Answers:
    """The best scored provider of every task among those that show something; `scores` is (tasks, providers)."""
    arms = [
        decide_begin(values, shown.providers, {p.provider for p in row.previews if not p.text.strip()}).arm
        for row, values in zip(shown.rows, scores.tolist(), strict=True)
    ]
    return answers_of(outcomes, arms)


def train_and_ask(job: Job, shown: RoutingTable, outcomes: RoutingTable, cards: tuple[ProviderCard, ...]) -> Answers:
    """Train the job unless it is finished, then ask its router."""
    say(f"training in {job.root}")
    train_job(job)
    return ask_language_model(job, shown, outcomes, cards)


def ask_language_model(
    job: Job, shown: RoutingTable, outcomes: RoutingTable, cards: tuple[ProviderCard, ...]
) -> Answers:
    """What the job's router chooses among these providers, whichever it was trained with."""
    seen = shown.only([card.name for card in cards])
    contexts = contexts_of(seen, cards)
    if job.forecast is not None:
        chances = forecasts(job.forecast.heads, seen)
        contexts = [context.forecast(chances[context.task_id]) for context in contexts]
    decisions = _decisions(load_trained(job), contexts)
    legal = sum(not decision.fallback for decision in decisions) / len(decisions)
    return answers_of(outcomes, [decision.arm for decision in decisions], legal)


def load_trained(job: Job) -> Learned | Generating:
    """The job's finished router, without the check that it was trained for the providers it is asked about.

    Forecasts of heads it sees only where its contexts bring them.
    """
    import torch

    model, tokenizer = load_merged(job.config.base, job.adapter)
    model = model.to(getattr(torch, job.config.dtype))
    sight = Sight(job.config.descriptors)
    if job.config.codec == "json":
        return Generating(model, tokenizer, name="trained", seed=job.seed, sight=sight)
    return Learned(model, tokenizer, name="trained", offsets=read_record(job.adapter).offsets, sight=sight)


def _decisions(policy: Any, contexts: Sequence[BeginContext]) -> list[BeginDecision]:
    if isinstance(policy, ScoringPolicy):
        scores = policy.score(contexts).tolist()
        return [policy.choose(context, row) for context, row in zip(contexts, scores, strict=True)]

    async def ask() -> list[BeginDecision]:
        return [await policy.begin(context) for context in contexts]

    return asyncio.run(ask())
