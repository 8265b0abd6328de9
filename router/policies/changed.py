"""A router with one thing changed: what it sees of the previews, which providers it may choose, who takes a phase."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from providers.base import ProviderCard
from providers.embedder import Encoder
from providers.lexical import tokenise
from providers.types import Preview
from router.codec import decide_begin, empty_previews
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy, ScoringPolicy

FIVE = ("expel", "awm", "skillweaver", "voyager", "insight_graph")
"""MemAgent's curated pool (5.1, vi)."""


class Phases:
    """Each phase by a policy of its own, so that runs differ in one phase alone (MemAgent Table 3)."""

    def __init__(self, name: str, *, begin: Policy, step: Policy, end: Policy) -> None:
        self.name = name
        self._begin, self._step, self._end = begin, step, end

    async def begin(self, context: BeginContext) -> BeginDecision:
        return await self._begin.begin(context)

    async def step(self, context: InContext) -> InDecision:
        return await self._step.step(context)

    async def end(self, context: EndContext) -> EndDecision:
        return await self._end.end(context)


class _Changed(ABC):
    """Base: a router whose Begin context is changed before it sees it; In and End are the router's own."""

    name: str

    def __init__(self, router: Policy) -> None:
        self._router = router

    @abstractmethod
    def seen(self, context: BeginContext) -> BeginContext:
        """The context as the router gets it."""

    async def begin(self, context: BeginContext) -> BeginDecision:
        return await self._router.begin(await asyncio.to_thread(self.seen, context))

    async def step(self, context: InContext) -> InDecision:
        return await self._router.step(context)

    async def end(self, context: EndContext) -> EndDecision:
        return await self._router.end(context)


class NoProbe(_Changed):
    """The router without previews: it knows what each provider is, not what it holds (MemAgent Table 2, no probe)."""

    name = "no_probe"

    def seen(self, context: BeginContext) -> BeginContext:
        blank = tuple(Preview(provider=preview.provider) for preview in context.previews)
        return context.model_copy(update={"previews": blank})


class ScoresShown(_Changed):
    """The router with a score beside every preview (`with_score`): taking the largest number is the shortcut."""

    name = "scores_shown"

    def __init__(self, router: Policy, encoder: Encoder) -> None:
        super().__init__(router)
        self._encoder = encoder

    def seen(self, context: BeginContext) -> BeginContext:
        cards = {card.name: card for card in context.cards}
        shown = tuple(
            with_score(preview, cards[preview.provider], context.question, self._cosine(context, preview))
            for preview in context.previews
        )
        return context.model_copy(update={"previews": shown})

    def _cosine(self, context: BeginContext, preview: Preview) -> float:
        if not preview.text:
            return 0.0
        question, text = self._encoder.encode([context.question, preview.text])
        return float(question @ text)


def with_score(preview: Preview, card: ProviderCard, question: str, cosine: float) -> Preview:
    """The preview with a score on its provider's own scale (MemAgent C.3.2); an empty one stays as it is.

    Similarity memories score by cosine, all others by the number of words shared with the question. The scales cannot
    be compared, which is the point.
    """
    if not preview.text:
        return preview
    shared = len(set(tokenise(question)) & set(tokenise(preview.text)))
    score = f"score {cosine:.2f}" if card.family == "similarity" else f"score {shared}"
    descriptor = f"{preview.descriptor}; {score}" if preview.descriptor else score
    return preview.model_copy(update={"descriptor": descriptor})


class Pool:
    """The router with its choice restricted to a smaller pool; it was trained on all (MemAgent 5.1, vi)."""

    def __init__(self, name: str, router: ScoringPolicy, pool: Sequence[str]) -> None:
        self.name = name
        self._router, self._pool = router, frozenset(pool)

    def score(self, contexts: Sequence[BeginContext]) -> np.ndarray:
        """The router's scores, minus infinity outside the pool; shape (contexts, providers)."""
        scores = np.array(self._router.score(contexts), dtype=np.float64)
        for row, context in zip(scores, contexts, strict=True):
            row[[preview.provider not in self._pool for preview in context.previews]] = -math.inf
        return scores

    def choose(self, context: BeginContext, scores: Sequence[float]) -> BeginDecision:
        """The decision that goes with one row of `score`; an empty preview only where the whole pool has none."""
        names = [preview.provider for preview in context.previews]
        empty = empty_previews(context)
        inside = [place for place, name in enumerate(names) if name in self._pool]
        return decide_begin([scores[place] for place in inside], [names[place] for place in inside], empty)

    async def begin(self, context: BeginContext) -> BeginDecision:
        scores = await asyncio.to_thread(self.score, [context])
        return self.choose(context, scores[0].tolist())

    async def step(self, context: InContext) -> InDecision:
        return await self._router.step(context)

    async def end(self, context: EndContext) -> EndDecision:
        decision = await self._router.end(context)
        return decision.model_copy(update={"providers": tuple(p for p in decision.providers if p in self._pool)})
