"""Policies without a choice: one provider, a forced arm, all providers, one phase alone."""

from __future__ import annotations

from router.context import BeginContext, EndContext, InContext
from router.decisions import NONE, Arm, BeginDecision, EndDecision, InDecision


class BeginOnly:
    """Base of policies that choose at Begin alone: In shows working memory, End keeps wherever the gate is open."""

    name: str

    async def step(self, context: InContext) -> InDecision:
        return InDecision(action="query" if context.summary else "no_op")

    async def end(self, context: EndContext) -> EndDecision:
        return EndDecision(providers=tuple(card.name for card in context.cards if card.accepts(context.outcome)))


class Single(BeginOnly):
    """One provider for every task."""

    def __init__(self, provider: str) -> None:
        self.name = provider

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision(providers=(self.name,))


class Concat(BeginOnly):
    """All providers at once, one after the other (All-Concat, MemAgent 5.1)."""

    name = "concat"

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision(providers=tuple(card.name for card in context.cards), combine="concat")


class Forced:
    """One arm of forced exploration (MemAgent 4.3); who stores is the explorer's business, so End keeps nothing."""

    def __init__(self, arm: Arm) -> None:
        self.name = f"forced {arm.provider} {arm.in_mode}"
        self._arm = arm

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision(providers=() if self._arm.provider == NONE else (self._arm.provider,))

    async def step(self, context: InContext) -> InDecision:
        return InDecision(action=self._arm.in_mode)

    async def end(self, context: EndContext) -> EndDecision:
        return EndDecision()


class InOnly:
    """Working memory alone: no long-term memory is retrieved or stored (MemAgent 5.3)."""

    name = "in_only"

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision()

    async def step(self, context: InContext) -> InDecision:
        return InDecision(action="query" if context.summary else "no_op")

    async def end(self, context: EndContext) -> EndDecision:
        return EndDecision()
