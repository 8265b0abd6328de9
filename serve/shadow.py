"""Shadow mode: one policy acts, the router decides too, and both are written down."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy

log = structlog.get_logger("memroute.serve")


class Shadowed:
    """Acts as one policy; what the router would have decided is asked for beside the request, and never waited for."""

    def __init__(
        self,
        acting: Policy,
        router: Policy,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        seen: Callable[[str, bool], None],
    ) -> None:
        """`spawn` runs a coroutine beside the request; `seen` is told the phase and whether both decided alike."""
        self.name = acting.name
        self._acting, self._router, self._spawn, self._seen = acting, router, spawn, seen

    async def begin(self, context: BeginContext) -> BeginDecision:
        acted = await self._acting.begin(context)

        async def compare() -> None:
            wished = await self._router.begin(context)
            self._note("begin", context.task_id, list(acted.providers), list(wished.providers), wished.fallback)

        self._spawn(compare())
        return acted

    async def step(self, context: InContext) -> InDecision:
        acted = await self._acting.step(context)

        async def compare() -> None:
            wished = await self._router.step(context)
            self._note("in", context.task_id, acted.action, wished.action, wished.fallback)

        self._spawn(compare())
        return acted

    async def end(self, context: EndContext) -> EndDecision:
        acted = await self._acting.end(context)

        async def compare() -> None:
            wished = await self._router.end(context)
            self._note("end", context.task_id, sorted(acted.providers), sorted(wished.providers), wished.fallback)

        self._spawn(compare())
        return acted

    def _note(self, phase: str, task_id: str, acted: object, wished: object, fallback: bool) -> None:
        self._seen(phase, acted == wished)
        log.info(
            "shadow",
            phase=phase,
            task_id=task_id,
            policy=self.name,
            acted=acted,
            router=self._router.name,
            router_decided=wished,
            router_fallback=fallback,
            agree=acted == wished,
        )
