"""Fitting the heads on the exploration table: seconds, deterministic, every choice by cross-validated routing value."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from providers.errors import ConfigError, EngineError
from providers.files import write_atomically
from providers.types import content_hash
from router.features import Evidence, FeatureMap, nonempty
from router.policies.heads import HeadsModel, Logistic, Nearness, chances, rbf
from router.table import RoutingTable

if TYPE_CHECKING:
    from synth.runs import Run

FOLDS = 5
REPEATS = 3


@dataclass(frozen=True)
class Labelled:
    """Tasks with every provider's mean correctness; NaN where nothing was scored."""

    providers: tuple[str, ...]
    tasks: tuple[Evidence, ...]
    correctness: np.ndarray
    """Shape (tasks, providers), 0 to 1 or NaN."""

    @classmethod
    def of_table(cls, table: RoutingTable) -> Labelled:
        values = [[row.correctness(provider) for provider in table.providers] for row in table.rows]
        return cls(
            providers=table.providers,
            tasks=tuple(Evidence.of_row(row) for row in table.rows),
            correctness=np.asarray([[math.nan if v is None else v for v in row] for row in values]).reshape(
                len(table.rows), len(table.providers)
            ),
        )

    def part(self, places: Sequence[int]) -> Labelled:
        return Labelled(self.providers, tuple(self.tasks[i] for i in places), self.correctness[list(places)])


@dataclass(frozen=True)
class LogisticSettings:
    strength: float
    """scikit-learn's C."""
    dimensions: int
    """Principal components of the question embedding."""


@dataclass(frozen=True)
class NearnessSettings:
    penalty: float
    """Of the ridge."""
    gamma: float
    """Of the kernel."""


LOGISTIC_OPTIONS = tuple(
    LogisticSettings(strength, dimensions) for strength in (0.003, 0.01, 0.03, 0.1, 0.3) for dimensions in (4, 12, 24)
)
NEARNESS_OPTIONS = tuple(NearnessSettings(penalty, gamma) for penalty in (3.0, 1.0, 0.3) for gamma in (1.0, 2.0, 4.0))
"""The most regularised first."""

FAMILIES: tuple[tuple[str, ...], ...] = (("logistic", "nearness"), ("logistic",), ("nearness",))
"""Families to average, the preferred first."""


@dataclass(frozen=True)
class Choice:
    """What cross-validation found."""

    logistic: LogisticSettings
    nearness: NearnessSettings
    families: tuple[str, ...]
    value: float
    """Held-out routing value of the chosen families."""


Split = tuple[Labelled, Labelled]
Option = TypeVar("Option", LogisticSettings, NearnessSettings, tuple[str, ...])


def train_heads(run: Run) -> Path:
    """Fit the heads on the run's exploration table and write them to `run.heads`."""
    table = training_table(run)
    model = fit_heads(table, seed=run.config.seed, encoder=encoder_identity(run))
    write_atomically(run.heads, model.model_dump_json())
    found = model.settings
    print(
        f"heads: {len(table.rows)} tasks, {' and '.join(found['families'])}; "
        f"cross-validated {found['value']:.3f} against {found['best_single']:.3f} of the best single provider",
        file=sys.stderr,
        flush=True,
    )
    return run.heads


def training_table(run: Run) -> RoutingTable:
    """The run's exploration as its heads are fitted on it: what they see of tasks, and `correct` as the label.

    Raises `ConfigError` without an exploration, `EngineError` without the judge's rewards that the labels take.
    """
    source = run.table("explore")
    if not source.is_file():
        raise ConfigError(f"{source} is missing: run `memroute explore` with this config first")
    shown = RoutingTable.load(source).told(run.config.train.descriptors)
    return labels_of(shown, run.config.rewards.begin_requires_correct)


def labels_of(table: RoutingTable, by_correctness: bool) -> RoutingTable:
    """The table whose `correct` is what heads are fitted on: correctness, or else the judge's rewards.

    Raises `EngineError` where the judge's rewards are asked for and there is none.
    """
    if by_correctness:
        return table
    if all(cell.judge is None for row in table.rows for cell in row.cells):
        raise EngineError("The exploration table has no judge's reward yet; run `memroute score` with this config.")
    return table.judged()


def fit_heads(table: RoutingTable, *, seed: int = 0, encoder: str = "") -> HeadsModel:
    """Choose settings and families by cross-validation, then fit on all tasks."""
    data = _checked(table)
    with one_thread():
        return _on_all(data, choose(data, seed), encoder)


def fit_heads_and_forecast(table: RoutingTable, *, seed: int = 0, encoder: str = "") -> tuple[HeadsModel, np.ndarray]:
    """As `fit_heads`, and what heads with the same settings predict for each task that they were not fitted on.

    Predictions have shape (tasks, providers), 0 to 1, in the order of the table.
    """
    data = _checked(table)
    with one_thread():
        choice = choose(data, seed)
        predicted = np.empty(data.correctness.shape)
        for held_in, held_out in folds(len(data.tasks), seed):
            predicted[held_out] = fit(data.part(held_in), choice).predict(data.part(held_out).tasks)
        return _on_all(data, choice, encoder), predicted


def one_thread() -> AbstractContextManager[object]:
    """Hundreds of small matrices are fitted faster by one thread: others spend their time waiting for each other, most
    of it on a machine that is busy or has many cores."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def _on_all(data: Labelled, choice: Choice, encoder: str) -> HeadsModel:
    best_single = float(np.nanmax(np.nanmean(data.correctness, axis=0)))
    settings = dataclasses.asdict(choice) | {"best_single": best_single}
    return fit(data, choice).model_copy(update={"encoder": encoder, "settings": settings})


def fit(data: Labelled, choice: Choice) -> HeadsModel:
    """The chosen families on these tasks."""
    return HeadsModel(
        providers=data.providers,
        logistic=fit_logistic(data, choice.logistic) if "logistic" in choice.families else None,
        nearness=fit_nearness(data, choice.nearness) if "nearness" in choice.families else None,
    )


def choose(data: Labelled, seed: int) -> Choice:
    """Settings of each family, then the families to average."""
    splits = [
        (data.part(held_in), data.part(held_out))
        for repeat in range(REPEATS)
        for held_in, held_out in folds(len(data.tasks), seed, repeat)
    ]
    by_logistic, by_nearness = _held_out_logistic(splits), _held_out_nearness(splits)
    logistic, nearness = _simplest(by_logistic, splits), _simplest(by_nearness, splits)
    predicted = {"logistic": by_logistic[logistic], "nearness": by_nearness[nearness]}
    averaged = {
        families: [np.mean(parts, axis=0) for parts in zip(*(predicted[name] for name in families), strict=True)]
        for families in FAMILIES
    }
    families = _simplest(averaged, splits)
    return Choice(logistic, nearness, families, float(np.nanmean(_all_achieved(averaged[families], splits))))


def folds(tasks: int, seed: int, repeat: int = 0) -> Iterator[tuple[list[int], list[int]]]:
    """Seeded folds over tasks: everything of one task lies on the same side."""
    order = list(range(tasks))
    random.Random(content_hash("heads folds", seed, repeat)).shuffle(order)
    for fold in range(FOLDS):
        held_out = sorted(order[fold::FOLDS])
        yield sorted(set(order) - set(held_out)), held_out


def fit_logistic(data: Labelled, settings: LogisticSettings) -> Logistic:
    """One regression per provider over the tasks for which it shows something."""
    features = FeatureMap.fit(data.providers, data.tasks, settings.dimensions)
    coefficients, intercepts = _fit_heads(features(data.tasks), data, settings.strength)
    return Logistic(
        features=features,
        coefficients=tuple(map(tuple, coefficients.tolist())),
        intercepts=tuple(intercepts.tolist()),
    )


def fit_nearness(data: Labelled, settings: NearnessSettings) -> Nearness:
    """Kernel ridge regression of every provider's correctness around its mean; what is unscored counts as the mean."""
    points = np.stack([task.embedding for task in data.tasks])
    means = np.asarray([np.nanmean(column) if np.isfinite(column).any() else 0.0 for column in data.correctness.T])
    kernel = rbf(points, points, settings.gamma) + settings.penalty * np.eye(len(points))
    weights = np.linalg.solve(kernel, np.nan_to_num(data.correctness - means))
    return Nearness(
        points=tuple(map(tuple, points.tolist())),
        weights=tuple(map(tuple, weights.tolist())),
        means=tuple(means.tolist()),
        gamma=settings.gamma,
    )


def _held_out_logistic(splits: Sequence[Split]) -> dict[LogisticSettings, list[np.ndarray]]:
    """Predictions for the held-out tasks of every split."""
    predicted: dict[LogisticSettings, list[np.ndarray]] = {settings: [] for settings in LOGISTIC_OPTIONS}
    for held_in, held_out in splits:
        matrices = {}
        for dimensions in sorted({settings.dimensions for settings in LOGISTIC_OPTIONS}):
            features = FeatureMap.fit(held_in.providers, held_in.tasks, dimensions)
            matrices[dimensions] = features(held_in.tasks), features(held_out.tasks)
        for settings in LOGISTIC_OPTIONS:
            known, unseen = matrices[settings.dimensions]
            predicted[settings].append(chances(unseen, *_fit_heads(known, held_in, settings.strength)))
    return predicted


def _held_out_nearness(splits: Sequence[Split]) -> dict[NearnessSettings, list[np.ndarray]]:
    return {
        settings: [fit_nearness(held_in, settings).predict(held_out.tasks) for held_in, held_out in splits]
        for settings in NEARNESS_OPTIONS
    }


def _simplest(predicted: Mapping[Option, list[np.ndarray]], splits: Sequence[Split]) -> Option:
    """The first option that is not worse than the best one by more than a standard error of their difference.

    The one-standard-error rule (Breiman et al. 1984), paired by task.
    """
    achieved = {option: _all_achieved(parts, splits) for option, parts in predicted.items()}
    best = max(achieved, key=lambda option: round(float(np.nanmean(achieved[option])), 9))
    for option, values in achieved.items():
        losses = achieved[best] - values
        losses = losses[~np.isnan(losses)]
        if losses.mean() <= losses.std() / math.sqrt(len(losses) / REPEATS):
            return option
    return best


def _all_achieved(predicted: Sequence[np.ndarray], splits: Sequence[Split]) -> np.ndarray:
    """Correctness of the providers chosen for all held-out tasks, every task once per repeat."""
    return np.concatenate([_achieved(part, held_out) for part, (_, held_out) in zip(predicted, splits, strict=True)])


def _achieved(predicted: np.ndarray, data: Labelled) -> np.ndarray:
    """Correctness of the provider chosen for every task; shape (tasks,)."""
    shown = nonempty(data.tasks)
    allowed = np.where(shown.any(axis=1, keepdims=True), shown, True)
    chosen = np.where(allowed, predicted, -np.inf).argmax(axis=1)
    return np.asarray(data.correctness[np.arange(len(chosen)), chosen])


def _fit_heads(matrix: np.ndarray, data: Labelled, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of shape (providers, features) and intercepts of shape (providers,)."""
    shown = nonempty(data.tasks)
    heads = [
        fit_head(matrix[shown[:, place]], data.correctness[shown[:, place], place], strength)
        for place in range(len(data.providers))
    ]
    return np.stack([weights for weights, _ in heads]), np.asarray([intercept for _, intercept in heads])


def fit_head(matrix: np.ndarray, target: np.ndarray, strength: float) -> tuple[np.ndarray, float]:
    """Weights and intercept; soft targets count as a share of a success and a share of a failure.

    A provider that never or always succeeded, or was never seen, gets its smoothed rate alone.
    """
    from sklearn.linear_model import LogisticRegression

    known = ~np.isnan(target)
    matrix, target = matrix[known], target[known]
    wins = float(target.sum())
    if wins in (0.0, float(len(target))):
        rate = (wins + 1) / (len(target) + 2)
        return np.zeros(matrix.shape[1]), math.log(rate / (1 - rate))
    model = LogisticRegression(C=strength, solver="newton-cholesky")
    model.fit(
        np.vstack([matrix, matrix]),
        np.repeat([1, 0], len(target)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    return np.asarray(model.coef_[0]), float(model.intercept_[0])


def _checked(table: RoutingTable) -> Labelled:
    if len(table.rows) < FOLDS * 2:
        raise EngineError(
            f"The exploration table has {len(table.rows)} tasks; the heads need {FOLDS * 2}. Raise suite.explore."
        )
    data = Labelled.of_table(table)
    if np.isnan(data.correctness).all():
        raise EngineError("No task of the exploration table was scored; look at its episodes' errors.")
    return data


def encoder_identity(run: Run) -> str:
    """Of the run's encoder, which what the heads see comes from."""
    from providers.embedder import load_encoder

    return load_encoder(run.config.encoder.name, run.config.encoder.options, None).identity
