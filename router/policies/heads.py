"""Heads: one small regularised model per provider that predicts whether its memory would lead to a correct answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import Field, ValidationError

from providers.embedder import Encoder
from providers.errors import EngineError
from providers.types import SCHEMA_VERSION, Flow
from router.codec import decide_begin, empty_previews
from router.context import BeginContext
from router.decisions import BeginDecision
from router.features import Evidence, FeatureMap
from router.policies.fixed import BeginOnly


class HeadsModel(Flow):
    """Logistic regressions over one `FeatureMap`, as plain numbers."""

    features: FeatureMap
    coefficients: tuple[tuple[float, ...], ...]
    """One row per provider."""
    intercepts: tuple[float, ...]
    settings: dict[str, float] = Field(default_factory=dict)
    """What cross-validation chose, and the routing value it saw."""
    encoder: str = ""
    """Identity of the encoder whose embeddings the features were fitted on."""
    schema_version: int = SCHEMA_VERSION

    @property
    def providers(self) -> tuple[str, ...]:
        return self.features.providers

    def predict(self, tasks: Sequence[Evidence]) -> np.ndarray:
        """Predicted correctness, shape (tasks, providers), 0 to 1."""
        logits = self.features(tasks) @ np.asarray(self.coefficients).T + np.asarray(self.intercepts)
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))


class Heads(BeginOnly):
    """Begin takes the provider with the largest predicted correctness among those that show something."""

    name = "heads"

    def __init__(self, model: HeadsModel, encoder: Encoder) -> None:
        self.model = model
        self._encoder = encoder

    @classmethod
    def load(cls, path: Path, encoder: Encoder) -> Self:
        """Read what `train.heads` wrote; `EngineError` where it is missing, unreadable or of another encoder."""
        try:
            model = HeadsModel.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise EngineError(f"{path} is missing; train the heads first (`memroute train CONFIG`).") from error
        except ValidationError as error:
            raise EngineError(f"{path} is damaged or of another version; train the heads again.") from error
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
