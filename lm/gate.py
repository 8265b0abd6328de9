"""How many calls an endpoint gets at a time: fewer when it says too many, more again while it answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

COOL_SECONDS = 10.0
"""After a failure of the endpoint itself the bound does not grow for so long."""


class Gate:
    """An adaptive bound on calls in flight (additive increase, multiplicative decrease), for one event loop.

    It starts at `most`. A rate limit halves it, once for all calls that were on their way together, and holds every
    call back as long as the endpoint says; a full round of answers raises it by one.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._limit = float(most)
        self._in_flight = 0
        self._freed = asyncio.Condition()
        self._shrinks = 0
        self._open_at = 0.0
        self._grow_at = 0.0

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return int(self._limit)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold one call's place; gives the mark that `rate_limited` wants."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._in_flight < self.limit)
            self._in_flight += 1
        try:
            while (pause := self._open_at - self._clock()) > 0:
                await asyncio.sleep(pause)
            yield self._shrinks
        finally:
            self._in_flight -= 1
            async with self._freed:
                self._freed.notify(max(1, self.limit - self._in_flight))

    def answered(self) -> None:
        """A call was answered: the bound may grow."""
        if self._clock() >= self._grow_at:
            self._limit = min(float(self._most), self._limit + 1 / self._limit)

    def rate_limited(self, mark: int, wait: float) -> None:
        """A call that started at `mark` was refused; nobody calls again for `wait` seconds."""
        self._open_at = max(self._open_at, self._clock() + wait)
        if mark == self._shrinks:
            self._shrinks += 1
            self._limit = max(1.0, self._limit / 2)

    def troubled(self) -> None:
        """A call failed at the endpoint's end, by no fault of the load: the bound stays as it is for a while."""
        self._grow_at = self._clock() + COOL_SECONDS
