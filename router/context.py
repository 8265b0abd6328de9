"""What a policy sees at each of the three decisions. No gold, no family, no retrieval score."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import numpy as np
from pydantic import Field

from providers.base import ProviderCard
from providers.governance.words import only
from providers.types import Flow, Outcome, Preview, Step


class BeginContext(Flow):
    """Before the task starts: the question and what every provider would show for it."""

    task_id: str
    question: str
    query: str = ""
    """What the memories are asked; empty where that is the question itself."""
    embedding: np.ndarray | None = Field(default=None, repr=False)
    """The query's encoding, shape (dimension,), for policies that use it; never shown to a model."""
    previews: tuple[Preview, ...]
    """One per provider, in the order of the config."""
    cards: tuple[ProviderCard, ...]
    chances: tuple[str, ...] = ()
    """What the heads expect of each preview's provider, in words; empty where nobody forecasts."""

    def forecast(self, chances: Sequence[str]) -> BeginContext:
        """The context with these forecasts, one for every preview."""
        return self.model_copy(update={"chances": tuple(chances)})

    def shuffled(self, draw: random.Random) -> BeginContext:
        """The context with its previews, and what is expected of them, in an order that is drawn."""
        order = draw.sample(range(len(self.previews)), len(self.previews))
        previews = tuple(self.previews[place] for place in order)
        chances = tuple(self.chances[place] for place in order) if self.chances else ()
        return self.model_copy(update={"previews": previews, "chances": chances})

    def told(self, fields: Collection[str] | None) -> BeginContext:
        """The context with these parts of descriptors alone; None leaves them all."""
        if fields is None:
            return self
        previews = (p.model_copy(update={"descriptor": only(p.descriptor, fields)}) for p in self.previews)
        return self.model_copy(update={"previews": tuple(previews)})


class InContext(Flow):
    """Before step `step`: the working memory's summary (empty: nothing to inject) and the latest steps."""

    task_id: str
    question: str
    step: int
    summary: str
    recent: tuple[Step, ...]


class EndContext(Flow):
    """After the task: what was done, how it ended, and who could keep it."""

    task_id: str
    question: str
    summary: str
    outcome: Outcome
    cards: tuple[ProviderCard, ...]
    descriptor: str = ""
    """What a verifier says of the run, in coarse words; empty where none was asked."""

    def told(self, fields: Collection[str] | None) -> EndContext:
        """The context with these parts of the descriptor alone; None leaves them all."""
        return self if fields is None else self.model_copy(update={"descriptor": only(self.descriptor, fields)})
