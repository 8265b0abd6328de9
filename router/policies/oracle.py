"""Hindsight: the arm that turned out best. An upper bound, not a policy one could run (MemAgent 3)."""

from __future__ import annotations

from router.context import BeginContext
from router.decisions import NONE, BeginDecision
from router.policies.fixed import BeginOnly
from router.table import RoutingTable


class Oracle(BeginOnly):
    """The arm, `none` included, with the best mean correctness on the task over `repeats` (None: all of them).

    Providers come before `none` and go by the table's order among equals. For a cross-fitted figure choose on some
    repeats and score on the others. A task that is unknown or unscored gets no memory.
    """

    name = "oracle"

    def __init__(self, table: RoutingTable, repeats: tuple[int, ...] | None = None) -> None:
        self._best = {}
        for row in table.rows:
            scored = [(name, row.correctness(name, repeats)) for name in (*table.providers, NONE)]
            known = [(name, value) for name, value in scored if value is not None]
            self._best[row.task_id] = max(known, key=lambda arm: arm[1])[0] if known else NONE

    async def begin(self, context: BeginContext) -> BeginDecision:
        arm = self._best.get(context.task_id, NONE)
        return BeginDecision(providers=() if arm == NONE else (arm,))
