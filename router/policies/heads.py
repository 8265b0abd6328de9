"""Heads: small regularised models that predict, per provider, whether its memory would lead to a correct answer.

Two families, averaged where cross-validation finds both worth having: logistic regressions on a few features, and the
outcomes of exploration tasks near the question (kernel ridge regression).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError

from providers.embedder import Encoder
from providers.errors import EngineError
from providers.types import SCHEMA_VERSION, Flow, content_hash
from router.codec import decide_begin, empty_previews
from router.context import BeginContext
from router.decisions import BeginDecision
from router.features import Evidence, FeatureMap
from router.policies.fixed import BeginOnly


class Logistic(Flow):
    """One logistic regression per provider over one `FeatureMap`."""

    features: FeatureMap
    coefficients: tuple[tuple[float, ...], ...]
    """One row per provider."""
    intercepts: tuple[float, ...]

    def predict(self, tasks: Sequence[Evidence]) -> np.ndarray:
        return chances(self.features(tasks), np.asarray(self.coefficients), np.asarray(self.intercepts))


class Nearness(Flow):
    """Kernel ridge regression on question embeddings: how providers did on tasks like this one."""

    points: tuple[tuple[float, ...], ...]
    """Embeddings of the exploration questions."""
    weights: tuple[tuple[float, ...], ...]
    """One row per point, one column per provider."""
    means: tuple[float, ...]
    """What each provider gets far from all points."""
    gamma: float
    """The kernel is exp(-gamma * squared distance)."""

    def predict(self, tasks: Sequence[Evidence]) -> np.ndarray:
        kernel = rbf(np.stack([task.embedding for task in tasks]), np.asarray(self.points), self.gamma)
        return np.asarray(np.clip(kernel @ np.asarray(self.weights) + np.asarray(self.means), 0.0, 1.0))


def chances(matrix: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
    """Logistic predictions of shape (tasks, providers) for features of shape (tasks, features)."""
    return np.asarray(1.0 / (1.0 + np.exp(-(matrix @ coefficients.T + intercepts))))


def rbf(left: np.ndarray, right: np.ndarray, gamma: float) -> np.ndarray:
    """exp(-gamma * squared distance) of every pair; shape (left, right)."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    return np.asarray(np.exp(-gamma * np.maximum(squares, 0.0)))


class HeadsModel(Flow):
    """The fitted families as plain numbers; at least one of them stands."""

    providers: tuple[str, ...]
    logistic: Logistic | None = None
    nearness: Nearness | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    """What cross-validation chose, and the routing value that it saw."""
    encoder: str = ""
    """Identity of the encoder whose embeddings the features were fitted on."""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `train.heads` wrote; `EngineError` where it is missing or unreadable."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise EngineError(f"{path} is missing; train the heads first (`memroute train CONFIG`).") from error
        except ValidationError as error:
            raise EngineError(f"{path} is damaged or of another version; train the heads again.") from error

    @property
    def identity(self) -> str:
        """Equal for heads that expect the same of every task."""
        return content_hash("heads", self.model_dump(mode="json", exclude={"settings"}))

    def predict(self, tasks: Sequence[Evidence]) -> np.ndarray:
        """Predicted correctness, shape (tasks, providers), 0 to 1."""
        families = [family for family in (self.logistic, self.nearness) if family is not None]
        return np.asarray(np.mean([family.predict(tasks) for family in families], axis=0))


class Heads(BeginOnly):
    """Begin takes the provider with the largest predicted correctness among those that show something."""

    name = "heads"

    def __init__(self, model: HeadsModel, encoder: Encoder) -> None:
        self.model = model
        self._encoder = encoder

    @classmethod
    def load(cls, path: Path, encoder: Encoder) -> Self:
        """As `HeadsModel.load`; `EngineError` also where they are of another encoder."""
        model = HeadsModel.load(path)
        if model.encoder and model.encoder != encoder.identity:
            raise EngineError(
                f"{path} was trained with the encoder {model.encoder!r}, not {encoder.identity!r}; "
                "train the heads again or set encoder.name back."
            )
        return cls(model, encoder)

    def score(self, contexts: Sequence[BeginContext]) -> np.ndarray:
        """Predicted correctness of every context's providers, shape (contexts, providers)."""
        for context in contexts:
            shown = tuple(preview.provider for preview in context.previews)
            if shown != self.model.providers:
                raise EngineError(
                    f"The heads were trained for {list(self.model.providers)}, not {list(shown)}; train them again."
                )
        return self.model.predict([Evidence.of_context(context, self._encoder) for context in contexts])

    def choose(self, context: BeginContext, scores: Sequence[float]) -> BeginDecision:
        """The decision that goes with one row of `score`."""
        return decide_begin(scores, self.model.providers, empty_previews(context))

    async def begin(self, context: BeginContext) -> BeginDecision:
        scores = await asyncio.to_thread(self.score, [context])
        return self.choose(context, scores[0].tolist())
