"""Routers that were trained again with something changed, held against those that were not: results and statistics.

Training is a floor above; what it finds is written here, so that the report can read it.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from evaluation.result import Way
from evaluation.statistics import Bootstrap, Estimate, SignFlip, Values, entropy_bits, holm
from evaluation.words import PolicyWords, interval, percent, points
from providers.errors import ConfigError
from providers.files import write_atomically
from providers.governance.words import BINS, FIELDS, places
from providers.types import SCHEMA_VERSION, Flow
from router.table import RoutingTable, TableRow

RouterKind = Literal["heads", "lm"]
ROUTER_WORDS: dict[RouterKind, str] = {"heads": "Heads", "lm": "LM"}
HEADS: tuple[RouterKind, ...] = ("heads",)
BOTH: tuple[RouterKind, ...] = ("heads", "lm")
UNCHANGED = "unchanged"
Table = TypeVar("Table", bound=Flow)

CHANGES: dict[str, PolicyWords] = {
    UNCHANGED: PolicyWords("Unchanged", "trained as the config says"),
    "no_probe": PolicyWords("No previews", "knows the providers, not what they hold"),
    "scores_shown": PolicyWords("Scores shown", "each preview with a score on its provider's own scale"),
    "five": PolicyWords("Five providers", "the paper's five alone"),
    "begin_by_judge": PolicyWords("Begin without correctness filter", "labelled by the judge's reward"),
    "descriptors_hidden": PolicyWords("Descriptors hidden", "nothing is said of how far memories are to be trusted"),
    "descriptors_shuffled": PolicyWords("Descriptors shuffled", "each task's descriptors dealt to other providers"),
    **{f"without_{field}": PolicyWords(f"Descriptors without {field}", f"all parts but {field}") for field in FIELDS},
    "in_no_threshold": PolicyWords("In without threshold", "every judged decision is an example"),
    "in_no_correctness": PolicyWords("In without correctness filter", "decisions of unsolved runs too"),
    "end_by_judge": PolicyWords("End without downstream reward", "labelled by the judge's reward"),
}
"""What can be changed about a training, as people read it."""


@dataclass(frozen=True)
class Answers:
    """What one router chose on the tasks of a split, in the order of its table, and what that achieved."""

    arms: tuple[str, ...]
    values: Values
    """Correctness of the chosen arm, NaN where unscored."""
    weak: Values
    """1 where the chosen memory's descriptor says failed, low or stale, NaN where there is none."""
    legal: float = 1.0
    """Share of decisions that needed no fallback."""


Key = tuple[RouterKind, str, Way]
"""Which router, what was changed, and how it was evaluated."""


def answers_of(table: RoutingTable, arms: Sequence[str], legal: float = 1.0) -> Answers:
    """Choices looked up in the table that outcomes and descriptors stand in, whatever the router was shown."""
    values = [row.correctness(arm) for row, arm in zip(table.rows, arms, strict=True)]
    weak = [
        _is_weak(next((p.descriptor for p in row.previews if p.provider == arm), ""))
        for row, arm in zip(table.rows, arms, strict=True)
    ]
    return Answers(tuple(arms), _with_gaps(values), _with_gaps(weak), legal)


def _is_weak(descriptor: str) -> float | None:
    said = places(descriptor)
    if not said:
        return None
    failing = said.get("trust", len(BINS["trust"])) < BINS["trust"].index("medium")
    return float(failing or said.get("age") == BINS["age"].index("stale"))


def _with_gaps(values: Sequence[float | None]) -> Values:
    return np.asarray([np.nan if value is None else value for value in values], dtype=np.float64)


class Ablated(Flow):
    """One router with one thing changed; differences are paired by task, against the unchanged router of its kind."""

    change: str
    router: RouterKind
    way: Way
    """`replay`: Begin alone; `online`: fresh runs, for changes of In and End."""
    runs: int
    accuracy: float
    ci_low: float
    ci_high: float
    n: int
    delta: float
    delta_ci_low: float
    delta_ci_high: float
    p: float | None = None
    """Two-sided sign-flip p of the difference; `p_holm` is adjusted for all changes in the table."""
    p_holm: float | None = None
    top_two_share: float
    """Of the decisions, on the two most used providers."""
    entropy: float
    """Of the choices, in bits."""
    weak_share: float | None = None
    """Of the decisions, on memories whose descriptor says failed, low or stale; None without descriptors."""
    legal: float = 1.0


class LabelCount(Flow):
    """What a change makes of the training rows of one phase."""

    change: str
    phase: Literal["begin", "in", "end"]
    rows: int
    labels: int
    """Marks with a label, or (json) decisions."""
    positive_share: float | None
    """Of the labels, mean; None where the codec writes right answers alone."""


class Ablations(Flow):
    """All changes compared on one split of one run or more."""

    schema_version: int = SCHEMA_VERSION
    runs: tuple[str, ...]
    split: str
    tasks: int
    """Over all runs."""
    rows: tuple[Ablated, ...]
    labels: tuple[LabelCount, ...] = ()
    missing: dict[str, str] = Field(default_factory=dict)
    """Changes that could not be made, and what makes them possible."""

    def save(self, folder: Path) -> Path:
        """Write `ablations-<split>.json` into the folder, and its rows as CSV in `csv/<split>/`; over several runs
        `ablations-all-<split>.json`."""
        name = "ablations" if len(self.runs) == 1 else "ablations-all"
        rows: dict[str, Sequence[Flow]] = {name: self.rows, f"{name}-labels": self.labels}
        return _save(self, folder, self.split, name, rows)

    @classmethod
    def load(cls, folder: Path, split: str) -> Ablations | None:
        """None where there are none of this split yet."""
        return _load(cls, folder / f"ablations-{split}.json")

    def lines(self) -> list[str]:
        """For a terminal."""
        found = [f"{self.tasks} {self.split} tasks of {', '.join(self.runs)}; 95% intervals, paired by task"]
        width = max((len(CHANGES[row.change].name) for row in self.rows), default=0)
        for row in self.rows:
            against = ""
            if row.change != UNCHANGED:
                spread = interval(row.delta_ci_low, row.delta_ci_high, signed=True)
                against = f"{points(row.delta):>6} ({spread})"
            weak = "" if row.weak_share is None else f"  weak memories {percent(row.weak_share, 0)}"
            found.append(
                f"  {ROUTER_WORDS[row.router]:5} {CHANGES[row.change].name:{width}}  {percent(row.accuracy):>6} "
                f"({interval(row.ci_low, row.ci_high)})  {against:24}  two most used {percent(row.top_two_share, 0)}"
                f"{weak}  {row.way}"
            )
        for one in self.labels:
            share = "" if one.positive_share is None else f", {percent(one.positive_share, 0)} positive"
            found.append(f"  rows, {CHANGES[one.change].name}: {one.phase} {one.rows} ({one.labels} labels{share})")
        return found + [f"  missing, {names}: {reason}" for reason, names in self.missing_by_reason.items()]

    @property
    def missing_by_reason(self) -> dict[str, str]:
        """What could not be made, as one list of names for every reason."""
        found: dict[str, list[str]] = {}
        for name, reason in self.missing.items():
            found.setdefault(reason, []).append(CHANGES[name].name)
        return {reason: ", ".join(names) for reason, names in found.items()}


class LeftOut(Flow):
    """A provider that a router was not trained with, added for the test."""

    provider: str
    router: RouterKind
    trained_with: float
    """Accuracy of a router that was trained with all providers."""
    hidden: float
    """Of the router trained without it, which is not shown it either."""
    added: float
    """Of the same router, shown its card (the language model) and previews."""
    gain: float
    """`added` minus `hidden`, paired by task, with its interval."""
    gain_ci_low: float
    gain_ci_high: float
    n: int
    chosen: float
    """Share of tasks on which the added provider is chosen."""
    chosen_when_trained: float
    """The same for the router that was trained with it."""
    correct_where_chosen: float | None
    """Its correctness on the tasks for which it is chosen once added; None where it never is."""
    best_share: float
    """Share of tasks that it solves more often than every other provider does."""


class LeftOutTable(Flow):
    """How routers treat providers that they never saw. Trained on Begin decisions alone."""

    schema_version: int = SCHEMA_VERSION
    run: str
    split: str
    tasks: int
    rows: tuple[LeftOut, ...]

    def save(self, folder: Path) -> Path:
        """Write `left_out-<split>.json` into the folder, and its rows as CSV in `csv/<split>/`."""
        return _save(self, folder, self.split, "left_out", {"left_out": self.rows})

    @classmethod
    def load(cls, folder: Path, split: str) -> LeftOutTable | None:
        """None where there is none of this split yet."""
        return _load(cls, folder / f"left_out-{split}.json")

    def lines(self) -> list[str]:
        """For a terminal."""
        width = max((len(row.provider) for row in self.rows), default=0)
        found = [
            f"{self.tasks} {self.split} tasks: solved with the provider from the start, without it, with it added "
            "for the test; how often it is chosen"
        ]
        for row in self.rows:
            where = "" if row.correct_where_chosen is None else f", solving {percent(row.correct_where_chosen, 0)}"
            found.append(
                f"  {ROUTER_WORDS[row.router]:5} {row.provider:{width}}  {percent(row.trained_with)} "
                f"{percent(row.hidden)} {percent(row.added)}  added against hidden {points(row.gain)} "
                f"({interval(row.gain_ci_low, row.gain_ci_high, signed=True)})  chosen {percent(row.chosen, 0)} "
                f"(trained with it {percent(row.chosen_when_trained, 0)}){where}"
            )
        return found


def left_out(
    provider: str, router: RouterKind, table: RoutingTable, answers: Sequence[Answers], resamples: int, seed: int
) -> LeftOut:
    """One row; `answers` are of the router trained with the provider, without it and hidden, and with it added.

    Raises `ConfigError` where no task is scored.
    """
    full, hidden, added = answers
    estimates = Bootstrap(len(table.rows), resamples, seed).estimates(
        [full.values, hidden.values, added.values, added.values - hidden.values]
    )
    if any(estimate is None for estimate in estimates):
        raise ConfigError(f"no task of {table.split} is scored, so there is nothing to compare on")
    with_it, without, shown, gain = [estimate for estimate in estimates if estimate is not None]
    taken = np.asarray([arm == provider for arm in added.arms]) & ~np.isnan(added.values)
    return LeftOut(
        provider=provider,
        router=router,
        trained_with=with_it.mean,
        hidden=without.mean,
        added=shown.mean,
        gain=gain.mean,
        gain_ci_low=gain.low,
        gain_ci_high=gain.high,
        n=gain.n,
        chosen=added.arms.count(provider) / len(added.arms),
        chosen_when_trained=full.arms.count(provider) / len(full.arms),
        correct_where_chosen=float(added.values[taken].mean()) if taken.any() else None,
        best_share=float(np.mean([_is_best(row, provider, table.providers) for row in table.rows])),
    )


def _is_best(row: TableRow, provider: str, providers: Sequence[str]) -> bool:
    own = row.correctness(provider)
    others = [value for name in providers if name != provider and (value := row.correctness(name)) is not None]
    return own is not None and own > max(others, default=0.0)


class CurvePoint(Flow):
    """One router trained on a share of the exploration's tasks."""

    router: RouterKind
    share: float
    trained_on: int
    """Tasks; they are among those of every larger share."""
    rows: int
    """Training rows of the language model, tasks of the heads."""
    accuracy: float
    ci_low: float
    ci_high: float
    n: int
    delta_vs_best: float
    """Against the best single provider, paired by task, with its interval."""
    delta_ci_low: float
    delta_ci_high: float


class LearningCurve(Flow):
    """What routers gain from more exploration tasks of the same bank."""

    schema_version: int = SCHEMA_VERSION
    run: str
    split: str
    tasks: int
    best_single: str
    """Chosen on the whole exploration."""
    best_single_accuracy: float
    oracle_crossfit: float | None
    points: tuple[CurvePoint, ...]

    def save(self, folder: Path) -> Path:
        """Write `curve-<split>.json` into the folder, and its points as CSV in `csv/<split>/`."""
        return _save(self, folder, self.split, "curve", {"curve": self.points})

    @classmethod
    def load(cls, folder: Path, split: str) -> LearningCurve | None:
        """None where there is none of this split yet."""
        return _load(cls, folder / f"curve-{split}.json")

    def lines(self) -> list[str]:
        """For a terminal."""
        oracle = "" if self.oracle_crossfit is None else f", cross-fitted oracle {percent(self.oracle_crossfit)}"
        found = [
            f"{self.tasks} {self.split} tasks; {self.best_single} alone {percent(self.best_single_accuracy)}{oracle}"
        ]
        return found + [
            f"  {ROUTER_WORDS[one.router]:5} trained on {one.trained_on:5} tasks ({percent(one.share, 0)}, "
            f"{one.rows} rows)  {percent(one.accuracy)} ({interval(one.ci_low, one.ci_high)})  against "
            f"{self.best_single} {points(one.delta_vs_best)} "
            f"({interval(one.delta_ci_low, one.delta_ci_high, signed=True)})"
            for one in self.points
        ]


def compared(found: Sequence[Mapping[Key, Answers]], resamples: int, seed: int) -> tuple[Ablated, ...]:
    """Every changed router against the unchanged one of its kind and way; `found` has one mapping per run.

    A change is compared over the runs that have it, their tasks side by side. Holm's adjustment is over all changes.
    """
    keys = dict.fromkeys(key for answers in found for key in answers)
    rows = [row for key in keys if (row := _compared(found, key, resamples, seed)) is not None]
    tested = [(place, row.p) for place, row in enumerate(rows) if row.p is not None]
    adjusted = dict(zip((place for place, _ in tested), holm([p for _, p in tested]), strict=True))
    return tuple(row.model_copy(update={"p_holm": adjusted.get(place)}) for place, row in enumerate(rows))


def _compared(found: Sequence[Mapping[Key, Answers]], key: Key, resamples: int, seed: int) -> Ablated | None:
    """None where no run has both the changed and the unchanged router, or none of their tasks is scored."""
    router, change, way = key
    base = (router, UNCHANGED, way)
    having = [answers for answers in found if key in answers and base in answers]
    if not having:
        return None
    own = np.concatenate([answers[key].values for answers in having])
    difference = own - np.concatenate([answers[base].values for answers in having])
    level, delta = Bootstrap(len(own), resamples, seed).estimates([own, difference])
    if level is None or delta is None:
        return None
    arms = Counter(arm for answers in having for arm in answers[key].arms)
    weak = np.concatenate([answers[key].weak for answers in having])
    return Ablated(
        change=change,
        router=router,
        way=way,
        runs=len(having),
        **_spread(level, delta),
        p=None if change == UNCHANGED else SignFlip(len(own), resamples, seed).p_values([difference])[0],
        top_two_share=sum(count for _, count in arms.most_common(2)) / arms.total(),
        entropy=entropy_bits([count / arms.total() for count in arms.values()]),
        weak_share=None if np.isnan(weak).all() else float(np.nanmean(weak)),
        legal=float(np.mean([answers[key].legal for answers in having])),
    )


def _spread(level: Estimate, delta: Estimate) -> dict[str, Any]:
    return {
        "accuracy": level.mean,
        "ci_low": level.low,
        "ci_high": level.high,
        "n": level.n,
        "delta": delta.mean,
        "delta_ci_low": delta.low,
        "delta_ci_high": delta.high,
    }


def _save(table: Flow, folder: Path, split: str, name: str, rows: Mapping[str, Sequence[Flow]]) -> Path:
    path = folder / f"{name}-{split}.json"
    write_atomically(path, table.model_dump_json(indent=1) + "\n")
    for title, part in rows.items():
        if part:
            text = io.StringIO()
            writer = csv.DictWriter(text, fieldnames=list(type(part[0]).model_fields), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row.model_dump() for row in part)
            write_atomically(folder / "csv" / split / f"{title}.csv", text.getvalue())
    return path


def _load(kind: type[Table], path: Path) -> Table | None:
    if not path.exists():
        return None
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise ConfigError(
            f"{path} is damaged or of another version of memroute ({error.error_count()} fields do not fit): "
            "remove it, or make it again with `memroute bench`"
        ) from error
