"""Which providers solved a task: P and P+ (MemAgent 4.3, signal 1), and how much a task tells apart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from router.table import RoutingTable, TableRow

Positive = Literal["any", "mean", "all", "confident"]

CONFIDENCE = 0.9
"""Of the interval that `confident` asks to lie on one side of one half."""


@dataclass(frozen=True)
class SuccessSet:
    """P and P+ of one task: providers that retrieved something and were scored, and those of them that succeeded."""

    providers: tuple[str, ...]
    succeeding: tuple[str, ...]

    @property
    def kind(self) -> Literal["proper", "all", "none"]:
        if not self.succeeding:
            return "none"
        return "all" if len(self.succeeding) == len(self.providers) else "proper"

    @property
    def discriminability(self) -> float:
        """d = 1 - |P+| / |P| for a proper non-empty subset, else 0."""
        return 1 - len(self.succeeding) / len(self.providers) if self.kind == "proper" else 0.0


def success_set(row: TableRow, providers: Sequence[str], positive: Positive) -> SuccessSet:
    """P and P+ of a task; a provider that retrieved nothing, or was not scored, is in neither."""
    tried, succeeding = [], []
    for provider in providers:
        solved = solves(row, provider, positive)
        if solved is not None and not is_empty(row, provider):
            tried.append(provider)
            if solved:
                succeeding.append(provider)
    return SuccessSet(tuple(tried), tuple(succeeding))


def solves(row: TableRow, provider: str, positive: Positive) -> bool | None:
    """Whether a provider's arms solved the task: in any, by their mean (from 0.5 up), in all, or with confidence.

    None where nothing was scored, or where the repeats leave it open and confidence is asked for.
    """
    values = [cell.correct for cell in row.cells if cell.arm.provider == provider and cell.correct is not None]
    if not values:
        return None
    if positive == "confident":
        return settled(draws_of(row, provider))
    if positive == "mean":
        return math.fsum(values) / len(values) >= 0.5
    return max(values) >= 0.5 if positive == "any" else min(values) >= 0.5


def draws_of(row: TableRow, provider: str) -> list[float]:
    """A provider's correctness on a task by repeat: the mean over In modes, which share a repeat's seed."""
    by_repeat: dict[int, list[float]] = defaultdict(list)
    for cell in row.cells:
        if cell.arm.provider == provider and cell.correct is not None:
            by_repeat[cell.arm.repeat].append(cell.correct)
    return [math.fsum(values) / len(values) for _, values in sorted(by_repeat.items())]


def settled(draws: Sequence[float]) -> bool | None:
    """Whether a rate is above one half, or below; None where its interval holds one half."""
    low, high = rate_interval(math.fsum(draws), len(draws))
    return True if low > 0.5 else False if high < 0.5 else None


@cache
def rate_interval(wins: float, draws: int) -> tuple[float, float]:
    """Jeffreys' interval of a rate after `wins` of `draws`, at the level `CONFIDENCE`; 0 to 1 without a draw."""
    from scipy.special import betaincinv

    if draws == 0:
        return 0.0, 1.0
    tail, shape = (1 - CONFIDENCE) / 2, (wins + 0.5, draws - wins + 0.5)
    return float(betaincinv(*shape, tail)), float(betaincinv(*shape, 1 - tail))


def is_empty(row: TableRow, provider: str) -> bool:
    """Whether a provider retrieved nothing for the task."""
    return all(cell.empty for cell in row.cells if cell.arm.provider == provider)


def solved_pairs(table: RoutingTable, positive: Positive) -> dict[tuple[str, str], bool | None]:
    """`solves` of every task and provider."""
    return {(row.task_id, name): solves(row, name, positive) for row in table.rows for name in table.providers}
