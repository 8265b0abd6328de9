"""A provider that routers never saw: left out of the training, and added for the test, for each provider in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.replay import contexts_of
from evaluation.retrained import HEADS, Answers, LeftOut, LeftOutTable, RouterKind, left_out
from evaluation.statistics import Values
from providers.base import ProviderCard
from providers.errors import ConfigError, EngineError
from providers.registry import provider_cards
from router.codec import JsonCodec, MarksCodec
from router.context import BeginContext
from router.decisions import BeginDecision
from router.features import Evidence, nonempty, preview_features, surface
from router.policies.heads import chances
from router.table import RoutingTable
from synth.rows import Row
from synth.runs import Run
from train.asked import ask_heads, ask_language_model, chosen_by, load_table, train_and_ask
from train.forecast import Forecast
from train.heads import Labelled, fit_head, fit_heads, training_table
from train.job import Job

NEWCOMER_STRENGTH = 0.1
"""scikit-learn's C of the regression that scores an unseen provider; not tuned."""


def leave_out(run: Run, names: str, split: str = "dev", routers: Sequence[RouterKind] = HEADS) -> LeftOutTable:
    """For each provider in `names` (with commas, or `all`): train without it, add it for the test, compare.

    Written to `left_out-<split>.json` in `run.evaluation`. Raises `ConfigError` for an unknown name, or without the
    split's table.
    """
    table, cards = load_table(run, split), provider_cards(run.config.providers)
    chosen = _chosen(names, [card.name for card in cards])
    rows: list[LeftOut] = []
    if "heads" in routers:
        rows += _heads_rows(run, table, chosen)
    if "lm" in routers:
        rows += _language_model_rows(run, table, cards, chosen)
    result = LeftOutTable(run=run.config.name, split=split, tasks=len(table.rows), rows=tuple(rows))
    result.save(run.evaluation)
    return result


def _chosen(names: str, known: Sequence[str]) -> list[str]:
    chosen = list(known) if names == "all" else [name.strip() for name in names.split(",")]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ConfigError(f"{', '.join(unknown)} is no provider of this config; there are {', '.join(known)}.")
    if len(known) < 3:
        raise ConfigError("To leave a provider out takes a config with at least three.")
    return chosen


def _heads_rows(run: Run, table: RoutingTable, chosen: Sequence[str]) -> list[LeftOut]:
    config = run.config
    explore = training_table(run)
    full = ask_heads(fit_heads(explore, seed=config.seed), table, table)
    found = []
    for name in chosen:
        others = [provider for provider in table.providers if provider != name]
        known, shown = explore.only(others), table.only(others)
        model = fit_heads(known, seed=config.seed)
        chances_of_known = model.predict([Evidence.of_row(row) for row in shown.rows])
        place = table.providers.index(name)
        scores = np.insert(chances_of_known, place, newcomer(known, table, place), axis=1)
        answers = (full, chosen_by(chances_of_known, shown, table), chosen_by(scores, table, table))
        found.append(left_out(name, "heads", table, answers, config.evaluate.bootstrap, config.seed))
    return found


def newcomer(known: RoutingTable, shown: RoutingTable, place: int) -> Values:
    """The chance that a provider without a head of its own solves each task of `shown`, where it stands at `place`.

    One regression over all (task, provider) pairs of `known`, on the question's form and what the provider's preview
    has in common with the question: what holds for memories in general. Shape (tasks,).
    """
    data = Labelled.of_table(known)
    filled = nonempty(data.tasks)
    matrix = np.concatenate([_pairs(task) for task in data.tasks])[filled.ravel()]
    center, spread = matrix.mean(axis=0), matrix.std(axis=0)
    scale = np.where(spread > 1e-9, spread, 1.0)
    weights, intercept = fit_head((matrix - center) / scale, data.correctness[filled], NEWCOMER_STRENGTH)
    asked = np.stack([_pairs(Evidence.of_row(row))[place] for row in shown.rows])
    return chances((asked - center) / scale, weights[None, :], np.asarray([intercept]))[:, 0]


def _pairs(task: Evidence) -> np.ndarray:
    """Features of every provider of a task that mean the same for all of them; shape (providers, features)."""
    own = preview_features(task)
    return np.hstack([own, np.tile(surface(task.question), (len(own), 1))])


def _language_model_rows(
    run: Run, table: RoutingTable, cards: tuple[ProviderCard, ...], chosen: Sequence[str]
) -> list[LeftOut]:
    rows = _begin_rows(run, cards)
    whole = _begin_job(run, "all", cards, [row.row for row in rows], _forecast(run, table.providers))
    full = train_and_ask(whole, table, table, cards)
    found = []
    for name in chosen:
        kept = tuple(card for card in cards if card.name != name)
        forecast = _forecast(run, [card.name for card in kept])
        chances = forecast.chances if forecast else {}
        left = [row for r in rows if (row := r.without(name, chances.get(r.row.task_id, ()))) is not None]
        job = _begin_job(run, name, kept, left, forecast)
        answers: tuple[Answers, ...] = (
            full,
            train_and_ask(job, table, table, kept),
            ask_language_model(job, table, table, cards),
        )
        found.append(left_out(name, "lm", table, answers, run.config.evaluate.bootstrap, run.config.seed))
    return found


@dataclass(frozen=True)
class _BeginRow:
    """A Begin row with what it was rendered from, so that it can be rendered for fewer providers."""

    row: Row
    context: BeginContext

    def without(self, name: str, chances: Sequence[str]) -> Row | None:
        """The row as it were had the provider never existed, the heads expecting `chances` of the others; None where no
        label is left."""
        context = self.context.model_copy(
            update={
                "previews": tuple(preview for preview in self.context.previews if preview.provider != name),
                "cards": tuple(card for card in self.context.cards if card.name != name),
                "chances": tuple(chances),
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
    told = run.config.train.descriptors
    chances = job.forecast.chances if job.forecast else {}
    contexts = {
        context.task_id: context.told(told).forecast(chances.get(context.task_id, ()))
        for context in contexts_of(table, cards)
    }
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


def _forecast(run: Run, providers: Sequence[str]) -> Forecast | None:
    """What heads for these providers expect, where the language model is shown it."""
    if not run.config.train.forecast:
        return None
    return Forecast.of_table(training_table(run).only(providers), seed=run.config.seed)


def _begin_job(
    run: Run, name: str, cards: tuple[ProviderCard, ...], rows: Sequence[Row], forecast: Forecast | None
) -> Job:
    root = run.root / "variants" / f"begin-{'without-' if name != 'all' else ''}{name}"
    root.mkdir(parents=True, exist_ok=True)
    return Job(
        config=run.config.train,
        seed=run.config.seed,
        cards=cards,
        rows=[row for row in rows if row.split == "train"],
        validation=[row for row in rows if row.split == "validation"],
        root=root,
        metrics=root / "metrics.jsonl",
        forecast=forecast,
    )
