"""No memory at all: the baseline that everything is measured from."""

from __future__ import annotations

from router.context import BeginContext, EndContext, InContext
from router.decisions import NONE, BeginDecision, EndDecision, InDecision


class NoMemory:
    """Retrieves nothing, injects nothing, keeps nothing."""

    name = NONE

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision()

    async def step(self, context: InContext) -> InDecision:
        return InDecision(action="no_op")

    async def end(self, context: EndContext) -> EndDecision:
        return EndDecision()
