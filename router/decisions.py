"""The three decisions, their arms, and the interface of whatever takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from providers.types import Flow
from router.context import BeginContext, EndContext, InContext

NONE = "none"
"""The name of the arm that injects nothing."""

SHORT_TERM = "short_term_memory"
"""The name of the working memory in injections, prompts and In answers."""

InMode = Literal["query", "no_op"]


class BeginDecision(Flow):
    """Which providers to retrieve from (empty: none), and how several are combined."""

    providers: tuple[str, ...] = ()
    combine: Literal["single", "concat", "fuse"] = "single"
    fallback: bool = False
    """True where a model's answer was illegal and a counted rule decided instead."""
    constrained: bool = False
    """True where a model's own answer was illegal and it was asked again among legal ones alone."""

    @property
    def arm(self) -> str:
        return self.providers[0] if self.providers else NONE


class InDecision(Flow):
    """Inject the working memory before this step, or not."""

    action: InMode
    fallback: bool = False
    constrained: bool = False


class EndDecision(Flow):
    """Which providers keep the finished trajectory; empty is legal."""

    providers: tuple[str, ...] = ()
    fallback: bool = False
    constrained: bool = False


class Arm(Flow):
    """One forced way to run a task."""

    provider: str
    """A provider's name or `none`."""
    in_mode: InMode = "query"
    repeat: int = 0


class Policy(Protocol):
    """Takes the three decisions. Everything compared in evaluation is one."""

    @property
    def name(self) -> str: ...

    async def begin(self, context: BeginContext) -> BeginDecision: ...

    async def step(self, context: InContext) -> InDecision: ...

    async def end(self, context: EndContext) -> EndDecision: ...


@runtime_checkable
class ScoringPolicy(Policy, Protocol):
    """A policy that can score all candidates of many tasks at once."""

    def score(self, contexts: Sequence[BeginContext]) -> np.ndarray:
        """Shape (tasks, providers); higher is better."""
        ...

    def choose(self, context: BeginContext, scores: Sequence[float]) -> BeginDecision:
        """The decision that goes with one row of `score`."""
        ...
