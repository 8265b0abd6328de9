"""Begin, In and End from marks, whoever reads them: our own process, or an engine beside it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from router.codec import MarksCodec, Prompt, decide_begin, decide_end, decide_in, empty_previews
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision
from router.marks import with_offsets
from router.sight import Sight


class MarksPolicy(ABC):
    """Decides by the log-odds of every candidate's mark, each shifted by its offset."""

    def __init__(
        self,
        name: str,
        offsets: Mapping[str, Mapping[str, float]] | None = None,
        sight: Sight | None = None,
    ) -> None:
        """`offsets` are those of the adapter's record: by phase and candidate; `sight` is what it was trained with."""
        self.name = name
        self._offsets = offsets or {}
        self._sight = sight or Sight()
        self._codec = MarksCodec()

    @abstractmethod
    def score_prompts(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        """Every candidate's log-odds as the model gives them, prompt by prompt, however they are batched."""

    async def read(self, prompt: Prompt) -> list[float]:
        """As `score_prompts`, for one prompt, off the event loop."""
        [scores] = await asyncio.to_thread(self.score_prompts, [prompt])
        return scores

    def score(self, contexts: Sequence[BeginContext]) -> np.ndarray:
        """Log-odds of every context's providers, offsets included, in the order of its previews.

        Shape (contexts, providers).
        """
        prompts = [self._codec.begin(context) for context in self._sight.begin(contexts)]
        found = zip(prompts, self.score_prompts(prompts), strict=True)
        return np.asarray([self._shifted("begin", prompt, scores) for prompt, scores in found])

    def choose(self, context: BeginContext, scores: Sequence[float]) -> BeginDecision:
        """The decision that goes with one row of `score`: an empty preview is left alone while another has text."""
        names = [preview.provider for preview in context.previews]
        return decide_begin(scores, names, empty_previews(context))

    async def begin(self, context: BeginContext) -> BeginDecision:
        [seen] = await asyncio.to_thread(self._sight.begin, [context])
        return self.choose(context, await self._ask("begin", self._codec.begin(seen)))

    async def step(self, context: InContext) -> InDecision:
        if not context.summary:
            return InDecision(action="no_op")
        return decide_in(await self._ask("in", self._codec.in_(context)))

    async def end(self, context: EndContext) -> EndDecision:
        prompt = self._codec.end(self._sight.end(context))
        return decide_end(await self._ask("end", prompt), prompt.candidates)

    async def _ask(self, phase: str, prompt: Prompt) -> list[float]:
        return self._shifted(phase, prompt, await self.read(prompt))

    def _shifted(self, phase: str, prompt: Prompt, scores: Sequence[float]) -> list[float]:
        return with_offsets(scores, prompt.candidates, self._offsets.get(phase, {}))
