"""Usage and cost by purpose. What has no known price costs None, never 0."""

from __future__ import annotations

from dataclasses import dataclass, field

from lm.types import Usage


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    completion: float

    def of(self, usage: Usage) -> float:
        """Dollars of one call."""
        return (self.prompt * usage.prompt_tokens + self.completion * usage.completion_tokens) / 1e6


@dataclass
class Spend:
    """What one purpose used. `cost` (US dollars) is None once any of its calls had no known usage or price."""

    calls: int = 0
    cached: int = 0
    """Answers taken from the cache: no call, no tokens, no cost."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0


@dataclass
class Ledger:
    """Spending of all models that share it, by purpose (agent, judge, distil, route ...)."""

    by_purpose: dict[str, Spend] = field(default_factory=dict)

    def call(self, purpose: str, usage: Usage | None, price: Price | None) -> None:
        """Count a call that was answered by the endpoint."""
        spend = self.by_purpose.setdefault(purpose, Spend())
        spend.calls += 1
        if usage is not None:
            spend.prompt_tokens += usage.prompt_tokens
            spend.completion_tokens += usage.completion_tokens
        if usage is None or price is None or spend.cost is None:
            spend.cost = None
        else:
            spend.cost += price.of(usage)

    def cache_hit(self, purpose: str) -> None:
        """Count an answer that the cache gave."""
        self.by_purpose.setdefault(purpose, Spend()).cached += 1

    def total(self) -> Spend:
        """All purposes together."""
        total = Spend()
        for spend in self.by_purpose.values():
            total.calls += spend.calls
            total.cached += spend.cached
            total.prompt_tokens += spend.prompt_tokens
            total.completion_tokens += spend.completion_tokens
            total.cost = None if total.cost is None or spend.cost is None else total.cost + spend.cost
        return total
