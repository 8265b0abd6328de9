"""The trained language model and the heads together: their log-odds averaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from router.codec import decide_begin, empty_previews
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, ScoringPolicy


def averaged(log_odds: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Mean log-odds of the language model's scores and the heads' predicted correctness, both (tasks, providers)."""
    clipped = np.clip(chances, 1e-6, 1 - 1e-6)
    return np.asarray((log_odds + np.log(clipped / (1 - clipped))) / 2)


class Average:
    """Begin by the mean log-odds of both routers; In and End are the language model's."""

    name = "average"

    def __init__(self, language_model: ScoringPolicy, heads: ScoringPolicy) -> None:
        self._language_model, self._heads = language_model, heads

    def score(self, contexts: Sequence[BeginContext]) -> np.ndarray:
        """Mean log-odds, shape (contexts, providers)."""
        return averaged(self._language_model.score(contexts), self._heads.score(contexts))

    def choose(self, context: BeginContext, scores: Sequence[float]) -> BeginDecision:
        """The decision that goes with one row of `score`."""
        return decide_begin(scores, [preview.provider for preview in context.previews], empty_previews(context))

    async def begin(self, context: BeginContext) -> BeginDecision:
        scores = await asyncio.to_thread(self.score, [context])
        return self.choose(context, scores[0].tolist())

    async def step(self, context: InContext) -> InDecision:
        return await self._language_model.step(context)

    async def end(self, context: EndContext) -> EndDecision:
        return await self._language_model.end(context)
