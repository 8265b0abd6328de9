"""Trainings compared on the same exploration: with other settings, and with a provider left out.

Each variant has a folder of its own within the run, is finished once and then kept, and continues where it stopped.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from evaluation.replay import contexts_of
from evaluation.statistics import Bootstrap, Values
from providers.base import ProviderCard
from providers.errors import ConfigError, EngineError
from providers.files import write_atomically
from providers.registry import provider_cards
from providers.types import content_hash
from router.adapter import load_merged, read_record
from router.codec import JsonCodec, MarksCodec
from router.context import BeginContext
from router.decisions import BeginDecision, ScoringPolicy
from router.policies.learned import Generating, Learned
from router.table import RoutingTable
from synth.config import TrainConfig
from synth.load_config import load_config
from synth.rows import Row
from synth.runs import Run
from synth.selection import Scored, select
from train.job import Job
from train.progress import say
from train.sft import train_job


class Variant(BaseModel, frozen=True):
    """One training and what it is worth on the split."""

    name: str
    value: float
    """Mean correctness of the chosen provider (routing value)."""
    low: float
    high: float
    gain: float
    """Against the first variant, paired by task, with its interval."""
    gain_low: float
    gain_high: float
    top_share: float
    """Share of the provider that is chosen most."""
    legal: float
    """Share of decisions that needed no fallback."""


class Comparison(BaseModel, frozen=True):
    """Variants of a training on one split."""

    split: str
    tasks: int
    variants: tuple[Variant, ...]

    def lines(self) -> list[str]:
        """For a terminal, in percent."""
        head = f"{self.tasks} {self.split} tasks, routing value in percent (95% intervals)"
        width = max(len(v.name) for v in self.variants)
        return [head] + [
            f"  {v.name:{width}}  {_range(v.value, v.low, v.high)}  "
            f"against the first {_range(v.gain, v.gain_low, v.gain_high)}  "
            f"top provider {100 * v.top_share:.0f}  legal {100 * v.legal:.1f}"
            for v in self.variants
        ]


class LeftOut(BaseModel, frozen=True):
    """A provider that a router was not trained with, added for the test."""

    provider: str
    trained_with: float
    """Routing value of a router that was trained with all providers."""
    hidden: float
    """Of the router trained without it, which is not shown it either."""
    added: float
    """Of the same router, shown its card and previews."""
    chosen: float
    """Share of tasks on which the added provider is chosen."""
    chosen_when_trained: float
    """The same for the router that was trained with it."""
    correct_where_chosen: float | None
    """Its correctness on the tasks for which it is chosen once added."""


class LeftOutTable(BaseModel, frozen=True):
    """How routers treat providers that they never saw. Trained on Begin rows alone."""

    split: str
    tasks: int
    providers: tuple[LeftOut, ...]

    def lines(self) -> list[str]:
        """For a terminal, in percent."""
        width = max(len(p.provider) for p in self.providers)
        return [
            f"{self.tasks} {self.split} tasks, in percent: routing value trained with it / without it and hidden / "
            "added; how often it is chosen"
        ] + [
            f"  {p.provider:{width}}  {100 * p.trained_with:5.1f} {100 * p.hidden:5.1f} {100 * p.added:5.1f}   "
            f"chosen {100 * p.chosen:.0f} (trained with it {100 * p.chosen_when_trained:.0f})"
            + (f", solving {100 * p.correct_where_chosen:.0f}" if p.correct_where_chosen is not None else "")
            for p in self.providers
        ]


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A router's choices on a split."""

    arms: tuple[str, ...]
    values: Values
    """Correctness of the chosen provider per task, NaN where unscored."""
    legal: float


def compare_variants(run: Run, settings: Sequence[str]) -> Comparison:
    """Train the config as it is and once for each of `settings` (`key=value` pairs of `train`, separated by `;`).

    Compared on dev by replay; written to `run.evaluation/variants.json`. Raises `ConfigError` for keys outside of
    `train`, or without a dev table.
    """
    configs = {"as configured": run.config.train} | {setting: _varied(run, setting) for setting in settings}
    table, cards = _dev_table(run), provider_cards(run.config.providers)
    asked = {name: _trained_and_asked(_variant_job(run, config), table, cards) for name, config in configs.items()}
    comparison = _compared(run, table, asked)
    write_atomically(run.evaluation / "variants.json", comparison.model_dump_json(indent=2) + "\n")
    return comparison


def leave_out(run: Run, names: str) -> LeftOutTable:
    """For each provider in `names` (with commas, or `all`): train without it, add it for the test, compare on dev.

    Written to `run.evaluation/left_out.json`. Raises `ConfigError` for an unknown name, or without a dev table.
    """
    table, cards = _dev_table(run), provider_cards(run.config.providers)
    known = [card.name for card in cards]
    chosen = known if names == "all" else [name.strip() for name in names.split(",")]
    unknown = [name for name in chosen if name not in known]
    if unknown or len(known) < 3:
        raise ConfigError(
            f"{', '.join(unknown)} is no provider of this config; there are {', '.join(known)}."
            if unknown
            else "To leave a provider out takes a config with at least three."
        )
    rows = _begin_rows(run, cards)
    full = _trained_and_asked(_begin_job(run, "all", cards, rows), table, cards)
    found = []
    for name in chosen:
        kept = tuple(card for card in cards if card.name != name)
        job = _begin_job(run, name, kept, [row for r in rows if (row := r.without(name)) is not None])
        hidden = _trained_and_asked(job, table, kept)
        added = _asked_router(job, table, cards)
        where = [v for arm, v in zip(added.arms, added.values, strict=True) if arm == name and not np.isnan(v)]
        found.append(
            LeftOut(
                provider=name,
                trained_with=_mean(full.values),
                hidden=_mean(hidden.values),
                added=_mean(added.values),
                chosen=added.arms.count(name) / len(added.arms),
                chosen_when_trained=full.arms.count(name) / len(full.arms),
                correct_where_chosen=float(np.mean(where)) if where else None,
            )
        )
    result = LeftOutTable(split=table.split, tasks=len(table.rows), providers=tuple(found))
    write_atomically(run.evaluation / "left_out.json", result.model_dump_json(indent=2) + "\n")
    return result


@dataclasses.dataclass(frozen=True)
class _BeginRow:
    """A Begin row with what it was rendered from, so that it can be rendered for fewer providers."""

    row: Row
    context: BeginContext

    def without(self, name: str) -> Row | None:
        """The row as it were had the provider never existed; None where no label is left."""
        context = self.context.model_copy(
            update={
                "previews": tuple(preview for preview in self.context.previews if preview.provider != name),
                "cards": tuple(card for card in self.context.cards if card.name != name),
            }
        )
        if not self.row.segments:
            named = JsonCodec().completion(BeginDecision(providers=(name,)))
            prompt = JsonCodec().begin(context).text
            return None if self.row.completion == named else self.row.model_copy(update={"prompt": prompt})
        marked = MarksCodec().begin(context)
        labels = dict(zip(self.row.candidates, self.row.targets, strict=True))
        targets = tuple(labels[candidate] for candidate in marked.candidates)
        if all(target is None for target in targets):
            return None
        shown = {"segments": marked.segments, "candidates": marked.candidates, "targets": targets}
        return self.row.model_copy(update=shown)


def _begin_rows(run: Run, cards: tuple[ProviderCard, ...]) -> list[_BeginRow]:
    """The dataset's Begin rows with their contexts; both parts, each row knows its own."""
    job = Job.of_run(run)
    table = RoutingTable.load(run.table("explore"))
    contexts = {context.task_id: context for context in contexts_of(table, cards)}
    marks, json = MarksCodec(), JsonCodec()
    found = []
    for row in [*job.rows, *job.validation]:
        if row.phase != "begin" or row.task_id not in contexts:
            continue
        context = contexts[row.task_id]
        rendered = marks.begin(context).segments if row.segments else (json.begin(context).text,)
        if rendered != (row.segments or (row.prompt,)):
            raise EngineError(
                f"The Begin row of task {row.task_id} is not made of this run's exploration; build again."
            )
        found.append(_BeginRow(row, context))
    return found


def _begin_job(run: Run, name: str, cards: tuple[ProviderCard, ...], rows: Sequence[Row | _BeginRow]) -> Job:
    plain = [row.row if isinstance(row, _BeginRow) else row for row in rows]
    root = run.root / "variants" / f"begin-{'without-' if name != 'all' else ''}{name}"
    root.mkdir(parents=True, exist_ok=True)
    return Job(
        config=run.config.train,
        seed=run.config.seed,
        cards=cards,
        rows=[row for row in plain if row.split == "train"],
        validation=[row for row in plain if row.split == "validation"],
        root=root,
        metrics=root / "metrics.jsonl",
    )


def _varied(run: Run, setting: str) -> TrainConfig:
    pairs = [pair.strip() for pair in setting.split(";")]
    wrong = [pair for pair in pairs if not pair.startswith("train.")]
    if wrong:
        raise ConfigError(f"{wrong[0]}: only keys of train can vary within one run; give another run another --name.")
    return load_config(run.root / "config.yaml", pairs).train


def _variant_job(run: Run, config: TrainConfig) -> Job:
    """The run's training with other settings; its rows are written anew where the codec is another."""
    job = Job.of_run(run)
    if config.codec != run.config.train.codec:
        scored = Scored.of_run(run, job.cards)
        rows = select(dataclasses.replace(scored, config=run.config.model_copy(update={"train": config}))).rows
        job = dataclasses.replace(
            job,
            rows=[row for row in rows if row.split == "train"],
            validation=[row for row in rows if row.split == "validation"],
        )
    root = run.root / "variants" / content_hash(config.model_dump(mode="json"))[:12]
    root.mkdir(parents=True, exist_ok=True)
    return dataclasses.replace(job, config=config, root=root, metrics=root / "metrics.jsonl")


def _trained_and_asked(job: Job, table: RoutingTable, cards: tuple[ProviderCard, ...]) -> _Asked:
    say(f"variant in {job.root}")
    train_job(job)
    return _asked_router(job, table, cards)


def _asked_router(job: Job, table: RoutingTable, cards: tuple[ProviderCard, ...]) -> _Asked:
    """The job's router asked about these providers, whichever it was trained with."""
    import torch

    model, tokenizer = load_merged(job.config.base, job.adapter)
    model = model.to(getattr(torch, job.config.dtype))
    policy: Learned | Generating
    if job.config.codec == "json":
        policy = Generating(model, tokenizer, name="variant", seed=job.seed)
    else:
        policy = Learned(model, tokenizer, name="variant", offsets=read_record(job.adapter).offsets)
    decisions = _decisions(policy, _restricted(contexts_of(table, cards), cards))
    arms = tuple(decision.arm for decision in decisions)
    values = [row.correctness(arm) for row, arm in zip(table.rows, arms, strict=True)]
    return _Asked(
        arms=arms,
        values=np.asarray([np.nan if value is None else value for value in values]),
        legal=sum(not decision.fallback for decision in decisions) / len(decisions),
    )


def _decisions(policy: Any, contexts: Sequence[BeginContext]) -> list[BeginDecision]:
    if isinstance(policy, ScoringPolicy):
        scores = policy.score(contexts).tolist()
        return [policy.choose(context, row) for context, row in zip(contexts, scores, strict=True)]

    async def ask() -> list[BeginDecision]:
        return [await policy.begin(context) for context in contexts]

    return asyncio.run(ask())


def _restricted(contexts: Sequence[BeginContext], cards: tuple[ProviderCard, ...]) -> list[BeginContext]:
    names = {card.name for card in cards}
    return [
        context.model_copy(update={"previews": tuple(p for p in context.previews if p.provider in names)})
        for context in contexts
    ]


def _compared(run: Run, table: RoutingTable, asked: dict[str, _Asked]) -> Comparison:
    bootstrap = Bootstrap(len(table.rows), run.config.evaluate.bootstrap, run.config.seed)
    first = next(iter(asked.values()))
    variants = []
    for name, one in asked.items():
        value, gain = bootstrap.estimate(one.values), bootstrap.estimate(one.values - first.values)
        if value is None or gain is None:
            raise EngineError("No dev task is scored, so there is nothing to compare on.")
        variants.append(
            Variant(
                name=name,
                value=value.mean,
                low=value.low,
                high=value.high,
                gain=gain.mean,
                gain_low=gain.low,
                gain_high=gain.high,
                top_share=max(one.arms.count(arm) for arm in set(one.arms)) / len(one.arms),
                legal=one.legal,
            )
        )
    return Comparison(split=table.split, tasks=len(table.rows), variants=tuple(variants))


def _dev_table(run: Run) -> RoutingTable:
    path: Path = run.table("dev")
    if not path.exists():
        raise ConfigError(f"{path} does not exist: run `memroute evaluate` with this config first")
    return RoutingTable.load(path)


def _mean(values: Values) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def _range(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:5.1f} ({100 * low:.1f} to {100 * high:.1f})"
