"""Fitting the heads on the exploration table: seconds, deterministic, every choice by cross-validated routing value."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from providers.errors import EngineError
from providers.files import write_atomically
from providers.types import content_hash
from router.features import Evidence, FeatureMap, nonempty
from router.policies.heads import HeadsModel
from router.table import RoutingTable

if TYPE_CHECKING:
    from synth.runs import Run

STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Inverse regularisation strengths (scikit-learn's C) to choose from, the strongest regularisation first."""

DIMENSIONS = (4, 12, 24)
"""Principal components of the question embedding to choose from."""

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
class Settings:
    """One choice of hyperparameters."""

    strength: float
    dimensions: int


_OPTIONS = tuple(Settings(strength, dimensions) for dimensions in DIMENSIONS for strength in STRENGTHS)


def train_heads(run: Run) -> Path:
    """Fit the heads on the run's exploration table and write them to `run.heads`."""
    source = run.table("explore")
    if not source.is_file():
        raise EngineError(f"{source} is missing; run `memroute explore` first.")
    table = RoutingTable.load(source)
    model = fit_heads(table, seed=run.config.seed, encoder=_encoder_identity(run))
    write_atomically(run.heads, model.model_dump_json())
    found = model.settings
    print(
        f"heads: {len(table.rows)} tasks, C {found['strength']:g}, {found['dimensions']:g} components; "
        f"cross-validated {found['value']:.3f} against {found['best_single']:.3f} of the best single provider",
        file=sys.stderr,
        flush=True,
    )
    return run.heads


def fit_heads(table: RoutingTable, *, seed: int = 0, encoder: str = "") -> HeadsModel:
    """Choose settings by cross-validation, then fit on all tasks."""
    data = _checked(table)
    settings, value = choose_settings(data, seed)
    model = fit(data, settings)
    best_single = float(np.nanmax(np.nanmean(data.correctness, axis=0)))
    return model.model_copy(
        update={
            "encoder": encoder,
            "settings": {
                "strength": settings.strength,
                "dimensions": float(settings.dimensions),
                "value": value,
                "best_single": best_single,
                "tasks": float(len(data.tasks)),
            },
        }
    )


def out_of_fold(table: RoutingTable, *, seed: int = 0) -> np.ndarray:
    """Predicted correctness of every task by heads that were fitted without it (the settings alone saw all tasks).

    Shape (tasks, providers), 0 to 1: what the heads would say of unseen tasks.
    """
    data = _checked(table)
    settings, _ = choose_settings(data, seed)
    predictions = np.zeros_like(data.correctness)
    for held_in, held_out in folds(len(data.tasks), seed, REPEATS):
        predictions[held_out] = fit(data.part(held_in), settings).predict(data.part(held_out).tasks)
    return predictions


def choose_settings(data: Labelled, seed: int) -> tuple[Settings, float]:
    """The settings with the best cross-validated routing value (ties: the most regularised), and that value."""
    values = dict.fromkeys(_OPTIONS, 0.0)
    for repeat in range(REPEATS):
        for held_in, held_out in folds(len(data.tasks), seed, repeat):
            train, test = data.part(held_in), data.part(held_out)
            maps = {d: FeatureMap.fit(data.providers, train.tasks, d) for d in DIMENSIONS}
            for settings in _OPTIONS:
                predicted = fit(train, settings, maps[settings.dimensions]).predict(test.tasks)
                values[settings] += routing_value(predicted, test) * len(held_out) / len(data.tasks) / REPEATS
    best = max(_OPTIONS, key=lambda settings: round(values[settings], 9))
    return best, values[best]


def folds(tasks: int, seed: int, repeat: int = 0) -> Iterator[tuple[list[int], list[int]]]:
    """Seeded folds over tasks: everything of one task lies on the same side."""
    order = list(range(tasks))
    random.Random(content_hash("heads folds", seed, repeat)).shuffle(order)
    for fold in range(FOLDS):
        held_out = sorted(order[fold::FOLDS])
        yield sorted(set(order) - set(held_out)), held_out


def routing_value(predicted: np.ndarray, data: Labelled) -> float:
    """Mean correctness of the provider with the best prediction among those that show something."""
    shown = nonempty(data.tasks)
    allowed = np.where(shown.any(axis=1, keepdims=True), shown, True)
    chosen = np.where(allowed, predicted, -np.inf).argmax(axis=1)
    return float(np.nanmean(data.correctness[np.arange(len(chosen)), chosen]))


def fit(data: Labelled, settings: Settings, features: FeatureMap | None = None) -> HeadsModel:
    """One logistic regression per provider over the tasks for which it shows something."""
    features = features or FeatureMap.fit(data.providers, data.tasks, settings.dimensions)
    matrix, shown = features(data.tasks), nonempty(data.tasks)
    heads = [
        _fit_head(matrix[shown[:, place]], data.correctness[shown[:, place], place], settings.strength)
        for place in range(len(data.providers))
    ]
    return HeadsModel(
        features=features,
        coefficients=tuple(tuple(weights.tolist()) for weights, _ in heads),
        intercepts=tuple(intercept for _, intercept in heads),
    )


def _fit_head(matrix: np.ndarray, target: np.ndarray, strength: float) -> tuple[np.ndarray, float]:
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


def _encoder_identity(run: Run) -> str:
    from providers.embedder import load_encoder

    return load_encoder(run.config.encoder.name, run.config.encoder.options, None).identity
