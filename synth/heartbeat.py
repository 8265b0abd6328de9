"""The pulse of an event loop that runs agents: how late it is, and an alarm that breaks into one that never waits."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from types import CodeType, FrameType, TracebackType
from typing import Self

BEAT_SECONDS = 0.05
LATE_SHARE = 1 / 60
"""A loop that is late by this share of an episode's limit has more work than it can do: starting another episode would
only slow down those that run."""


class StuckError(TimeoutError):
    """An agent kept the event loop to itself for the whole time limit."""


class Heartbeat:
    """An async context manager around running agents.

    Agents share one loop, and their wall-clock limits run while others compute. So `ready` holds back new episodes as
    long as the loop is late, and an agent that computes without ever waiting is interrupted by SIGALRM after `limit`
    seconds with `StuckError` (in the main thread of a process whose SIGALRM nobody else uses; code that is not Python
    is interrupted when it returns).
    """

    def __init__(self, limit: float, agents: CodeType) -> None:
        """`agents` is the code of the function that calls agents: nothing outside of it is ever interrupted."""
        self._limit = limit
        self._agents = agents
        self.running = 0
        """Episodes that run now; whoever starts one counts it here."""
        self._late = 0.0
        self._beats: asyncio.Task[None] | None = None
        self._armed = False

    async def __aenter__(self) -> Self:
        self._armed = (
            threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        )
        if self._armed:
            signal.signal(signal.SIGALRM, self._interrupt)
        self._beats = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._beats is not None:
            self._beats.cancel()
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    async def ready(self) -> None:
        """Let others run, and return as soon as the loop keeps up, or nothing runs that could delay it."""
        await asyncio.sleep(0)
        while self.running and self._late > self._limit * LATE_SHARE:
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        while True:
            if self._armed:
                signal.setitimer(signal.ITIMER_REAL, self._limit)
            began = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)
            self._late = time.monotonic() - began - BEAT_SECONDS

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._limit)
        while frame is not None:
            if frame.f_code is self._agents:
                raise StuckError(f"the agent computed for {self._limit:g} s without waiting")
            frame = frame.f_back
