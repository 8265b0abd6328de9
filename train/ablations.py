"""Ablations: routers trained again with one thing changed, and compared on the same routing table.

The heads take seconds each. The language model is trained for minutes per change, in a folder of its own that is kept.
What is changed about In and End shows in fresh runs alone, so those changes need the language model.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.online import run_streams
from evaluation.result import Evaluation
from evaluation.retrained import UNCHANGED, Ablations, Answers, Key, LabelCount, compared
from evaluation.statistics import Values
from providers.base import ProviderCard
from providers.errors import ConfigError
from providers.registry import provider_cards
from providers.types import content_hash
from router.adapter import read_record
from router.decisions import Policy
from router.policies.changed import Phases
from router.policies.registry import PolicyMaterial, RouterName, build_policy
from synth.facts import EndingFact
from synth.judge.load import load_judge
from synth.rewards import end_decisions, judged, rewards_signature
from synth.rows import Row
from synth.runs import Run
from synth.selection import Scored, select
from train.asked import ask_heads, load_table, load_trained, train_and_ask
from train.changes import Change, changes_for
from train.forecast import Forecast
from train.heads import fit_heads, labels_of
from train.job import Job
from train.progress import say
from train.sft import train_job

if TYPE_CHECKING:
    from evaluation.stream import Stream
    from synth.config import RunConfig


@dataclass(frozen=True)
class Request:
    """What is to be compared."""

    changes: tuple[str, ...] | None = None
    """By name; None is all that the runs allow."""
    split: str = "dev"
    language_model: bool = False
    """Train the language model again too, minutes for each change."""
    online: bool = False
    """Also run the changes of In and End afresh; needs the language model."""


def bench_ablations(configs: Sequence[RunConfig], request: Request) -> Ablations:
    """Compare over one run or more; each run's own table is written to its folder, that over all to the first's.

    Raises `ConfigError` for a change that nobody knows, or a run without the tables that it takes.
    """
    tables, answers = [], []
    for config in configs:
        with Run.open(config) as run:
            one = _OfRun(run, request)
            answers.append(one.answers())
            tables.append(one.table(answers[-1:]))
            tables[-1].save(run.evaluation)
    if len(tables) == 1:
        return tables[0]
    settings = configs[0]
    pooled = Ablations(
        runs=tuple(config.name for config in configs),
        split=request.split,
        tasks=sum(table.tasks for table in tables),
        rows=compared(answers, settings.evaluate.bootstrap, settings.seed),
        missing={name: reason for table in tables for name, reason in table.missing.items()},
    )
    pooled.save(settings.runs_dir / settings.name / "evaluation")
    return pooled


class _OfRun:
    """The ablations of one run."""

    def __init__(self, run: Run, request: Request) -> None:
        if request.online and not request.language_model:
            raise ConfigError(
                "the heads decide at Begin alone: fresh runs of In and End need the language model (--lm)"
            )
        self.run, self.request = run, request
        self.cards = provider_cards(run.config.providers)
        told = run.config.train.descriptors
        self.explore, self.outcomes = load_table(run, "explore").told(told), load_table(run, request.split)
        self.seen = self.outcomes.told(told)
        self.changes, self.missing = changes_for(request.changes, self.explore, self.cards, run.config.seed)
        if run.facts.mark("rewards") != rewards_signature(run):
            reason = "it takes scored decisions: run `memroute score` with this config first"
            self.missing |= {change.name: reason for change in self.changes if change.relabels}
            self.changes = [change for change in self.changes if not change.relabels]

    def answers(self) -> dict[Key, Answers]:
        """What every router chose on every task of the split."""
        found: dict[Key, Answers] = {}
        for change in self.changes:
            if change.phase == "begin":
                say(f"heads: {change.name}")
                found["heads", change.name, "replay"] = self._heads(change)
        if self.request.language_model:
            for change in self.changes:
                if change.phase == "begin":
                    found["lm", change.name, "replay"] = self._language_model(change)
        if self.request.online:
            found |= self._online()
        return found

    def table(self, answers: Sequence[Mapping[Key, Answers]]) -> Ablations:
        config = self.run.config
        return Ablations(
            runs=(config.name,),
            split=self.request.split,
            tasks=len(self.outcomes.rows),
            rows=compared(answers, config.evaluate.bootstrap, config.seed),
            labels=tuple(
                dict.fromkeys(count for change in self.changes if change.relabels for count in self._counts(change))
            ),
            missing=self.missing,
        )

    def _heads(self, change: Change) -> Answers:
        by_correctness = self._rewards(change).begin_requires_correct
        table = labels_of(change.shown(self.explore), by_correctness)
        model = fit_heads(table, seed=self.run.config.seed)
        return ask_heads(model, change.shown(self.seen), self.outcomes)

    def _language_model(self, change: Change) -> Answers:
        return train_and_ask(self._job(change), change.shown(self.seen), self.outcomes, self._cards(change))

    def _job(self, change: Change) -> Job:
        """The run's own training where nothing is changed."""
        own = Job.of_run(self.run)
        if change.name == UNCHANGED:
            return own
        root = self.run.root / "variants" / f"ablation-{change.name}"
        root.mkdir(parents=True, exist_ok=True)
        forecast = self._forecast(change)
        rows = self._rows(change, forecast)
        return dataclasses.replace(
            own,
            cards=self._cards(change),
            rows=[row for row in rows if row.split == "train"],
            validation=[row for row in rows if row.split == "validation"],
            root=root,
            metrics=root / "metrics.jsonl",
            held_out=None,
            forecast=forecast,
        )

    def _cards(self, change: Change) -> tuple[ProviderCard, ...]:
        names = change.shown(self.explore.model_copy(update={"rows": ()})).providers
        return tuple(card for card in self.cards if card.name in names)

    def _rewards(self, change: Change) -> Any:
        return self.run.config.rewards.model_copy(update=dict(change.rewards))

    @cached_property
    def _scored(self) -> Scored:
        return Scored.of_run(self.run, self.cards)

    @cached_property
    def _unchanged_rows(self) -> list[Row]:
        return self._rows(self.changes[0])

    def _forecast(self, change: Change) -> Forecast | None:
        """What heads that were fitted under the change expect, where the language model is shown it."""
        if not self.run.config.train.forecast:
            return None
        labelled = labels_of(change.shown(self.explore), self._rewards(change).begin_requires_correct)
        return Forecast.of_table(labelled, seed=self.run.config.seed)

    def _rows(self, change: Change, forecast: Forecast | None = None) -> list[Row]:
        """The rows that the dataset would have."""
        cards, scored = self._cards(change), self._scored
        config = self.run.config.model_copy(update={"rewards": self._rewards(change)})
        changed = dataclasses.replace(
            scored,
            config=config,
            table=change.shown(self.explore),
            cards=cards,
            chances=forecast.chances if forecast else {},
            endings={task_id: _ending_for(ending, cards) for task_id, ending in scored.endings.items()},
        )
        if change.rewards.get("end") == "judge":
            kept = [fact for fact in scored.rewards if fact.phase != "end"]
            changed = dataclasses.replace(changed, rewards=kept + self._judged_ends())
        return select(changed).rows

    def _judged_ends(self) -> Any:
        judge = load_judge(self.run)
        return asyncio.run(judged(judge, end_decisions(self.run, self.explore), self.run.config.rewards.weights))

    def _counts(self, change: Change) -> list[LabelCount]:
        """The rows of the changed phase, without and with the change."""
        return [
            _count(name, change.phase, rows)
            for name, rows in ((UNCHANGED, self._unchanged_rows), (change.name, self._rows(change)))
        ]

    def _online(self) -> dict[Key, Answers]:
        """Fresh runs: Begin by the run's recommended router, In or End by a language model that was trained again."""
        jobs = {change.name: self._job(change) for change in self.changes if change.phase != "begin"}
        if not jobs:
            return {}
        for job in (self._job(self.changes[0]), *jobs.values()):
            train_job(job)
        material = self._material()
        builders: dict[str, Callable[[], Policy]] = {UNCHANGED: partial(_changed_policy, UNCHANGED, "", None, material)}
        phases = {change.name: change.phase for change in self.changes}
        for name, job in jobs.items():
            builders[name] = partial(_changed_policy, name, phases[name], job, material)
        stamp = content_hash(
            {name: read_record(job.adapter).fingerprint for name, job in jobs.items()},
            read_record(self.run.adapter).fingerprint,
            self.run.heads.read_text(encoding="utf-8"),
        )
        ran = asyncio.run(run_streams(self.run, self.request.split, builders, material.router, stamp))
        self.missing |= ran.missing
        return {("lm", name, "online"): stream_answers(streams) for name, streams in ran.streams.items()}

    def _material(self) -> PolicyMaterial:
        config, path = self.run.config, self.run.evaluation / "dev.json"
        router: RouterName = "heads"
        if path.exists() and (recommended := Evaluation.load(path).recommended) in ("trained", "heads", "average"):
            router = recommended  # type: ignore[assignment]
        return PolicyMaterial(
            cards=self.cards,
            seed=config.seed,
            encoder=self.run.encoder,
            explore_table=self.explore,
            heads_path=self.run.heads,
            adapter_path=self.run.adapter,
            base=config.train.base,
            codec=config.train.codec,
            router=router,
        )


def stream_answers(streams: Sequence[Stream]) -> Answers:
    """Per task, by id, the mean over the seeds of what fresh runs achieved, and the first seed's Begin choices."""
    task_ids = sorted(task.task_id for task in streams[0].tasks)
    first = {task.task_id: task for task in streams[0].tasks}
    values = [[_correct(stream, task_id) for stream in streams] for task_id in task_ids]
    means: Values = np.asarray([np.nan if np.isnan(row).all() else np.nanmean(row) for row in values])
    arms = tuple(" ".join(first[task_id].begin) or "none" for task_id in task_ids)
    return Answers(arms, means, np.full(len(task_ids), np.nan))


def _correct(stream: Stream, task_id: str) -> float:
    task = next(task for task in stream.tasks if task.task_id == task_id)
    return float("nan") if task.correct is None or task.status != "done" else float(task.correct)


def _ending_for(ending: EndingFact, cards: tuple[ProviderCard, ...]) -> EndingFact:
    """The End context as it were with these providers alone."""
    names = {card.name for card in cards}
    kept = tuple(card for card in ending.context.cards if card.name in names)
    return ending.model_copy(update={"context": ending.context.model_copy(update={"cards": kept})})


def _changed_policy(name: str, phase: str, job: Job | None, material: PolicyMaterial) -> Policy:
    """The whole router with one phase by the job's language model; without a job nothing is changed."""
    whole = build_policy("router", material)
    changed: Policy = load_trained(job) if job is not None else whole
    return Phases(
        f"ablation-{name}",
        begin=whole,
        step=changed if phase == "in" else whole,
        end=changed if phase == "end" else whole,
    )


def _count(change: str, phase: Any, rows: Sequence[Row]) -> LabelCount:
    own = [row for row in rows if row.phase == phase]
    labels = [target for row in own for target in row.targets if target is not None]
    return LabelCount(
        change=change,
        phase=phase,
        rows=len(own),
        labels=len(labels) if labels else len(own),
        positive_share=float(np.mean(labels)) if labels else None,
    )
