"""Decisions by lot: what routing is worth has to show against them (Random Routing, MemAgent 5.1)."""

from __future__ import annotations

import random
from typing import Any

from providers.types import content_hash
from router.codec import empty_previews
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision


class RandomPolicy:
    """Begin draws among providers that show something, In tosses a coin, End keeps in each open gate half the time.

    Draws depend on the seed and the task alone, so the same task gets the same decisions in any order.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def begin(self, context: BeginContext) -> BeginDecision:
        names = [preview.provider for preview in context.previews]
        full = [name for name in names if name not in empty_previews(context)]
        if not names:
            return BeginDecision()
        return BeginDecision(providers=(self._draw("begin", context.task_id).choice(full or names),))

    async def step(self, context: InContext) -> InDecision:
        heads = self._draw("in", context.task_id, context.step).random() < 0.5
        return InDecision(action="query" if heads else "no_op")

    async def end(self, context: EndContext) -> EndDecision:
        draw = self._draw("end", context.task_id)
        accepting = [card.name for card in context.cards if card.accepts(context.outcome)]
        return EndDecision(providers=tuple(name for name in accepting if draw.random() < 0.5))

    def _draw(self, *parts: Any) -> random.Random:
        return random.Random(content_hash(self._seed, *parts))
