"""The simplest content-aware choices: the preview that looks most like the question, by words or by embedding."""

from __future__ import annotations

import asyncio

from providers.embedder import Encoder
from router.codec import decide_begin, empty_previews
from router.context import BeginContext
from router.decisions import BeginDecision
from router.features import Evidence, word_overlap
from router.policies.fixed import BeginOnly


class Overlap(BeginOnly):
    """The preview that holds the largest share of the question's words, stop words apart; the first of equals."""

    name = "overlap"

    async def begin(self, context: BeginContext) -> BeginDecision:
        scores = [word_overlap(context.question, preview.text) for preview in context.previews]
        return decide_begin(scores, [preview.provider for preview in context.previews], empty_previews(context))


class Cosine(BeginOnly):
    """The preview whose embedding is nearest to the question's; the first of equals."""

    name = "cosine"

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    async def begin(self, context: BeginContext) -> BeginDecision:
        evidence = await asyncio.to_thread(Evidence.of_context, context, self._encoder)
        scores = (evidence.preview_embeddings @ evidence.embedding).tolist()
        return decide_begin(scores, [preview.provider for preview in context.previews], empty_previews(context))
