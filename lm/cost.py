"""Usage and cost by purpose. What has no known price costs None, never 0."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lm.types import Purpose, Usage


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
    failed: int = 0
    """Questions that ended without an answer, after all retries."""
    retries: int = 0
    """Calls made again after a failure that may pass."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    misses: Counter[str] = field(default_factory=Counter)
    """Calls by why the cache had no answer."""

    def add(self, other: Spend) -> None:
        """Count what `other` counted."""
        for name in ("calls", "cached", "failed", "retries", "prompt_tokens", "completion_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        self.misses.update(other.misses)


@dataclass
class Ledger:
    """Spending of all models that share it, by purpose."""

    by_purpose: dict[Purpose, Spend] = field(default_factory=dict)
    waiting: int = 0
    """Calls that now wait until a rate limit has passed."""

    def of(self, purpose: Purpose) -> Spend:
        """The purpose's own account, opened where there is none."""
        return self.by_purpose.setdefault(purpose, Spend())

    def call(self, purpose: Purpose, usage: Usage | None, price: Price | None, miss: str = "") -> None:
        """Count a call that was answered by the endpoint; `miss` is why the cache did not answer it."""
        spend = self.of(purpose)
        spend.calls += 1
        if miss:
            spend.misses[miss] += 1
        if usage is not None:
            spend.prompt_tokens += usage.prompt_tokens
            spend.completion_tokens += usage.completion_tokens
        cost = None if usage is None or price is None else price.of(usage)
        spend.cost = None if cost is None or spend.cost is None else spend.cost + cost

    def total(self) -> Spend:
        """All purposes together."""
        total = Spend()
        for spend in self.by_purpose.values():
            total.add(spend)
        return total
