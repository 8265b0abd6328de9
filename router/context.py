"""What a policy sees at each of the three decisions. No gold, no family, no retrieval score."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from providers.base import ProviderCard
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
