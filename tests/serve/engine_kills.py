"""A service under load whose engine is killed again and again, and what must be true afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from made_engine import until
from served_toys import calling, served

from router.policies.changed import Phases
from router.policies.fixed import Concat
from router.policies.none import NoMemory
from serve.engine import Engine
from serve.sessions import Sessions

WORKERS = 4
UNHURRIED = 1e6
"""Calls a second that a key may make: the check asks for thousands of sessions in one go."""


@dataclass
class Ledger:
    """What the service acknowledged."""

    fallbacks: list[bool] = field(default_factory=list)
    """Of every Begin, whether the fallback decided it."""
    begun: list[str] = field(default_factory=list)
    """Ids of sessions."""
    open: dict[str, str] = field(default_factory=dict)
    """The questions of those that were not ended, by id."""
    stored: list[str] = field(default_factory=list)
    """Questions whose run `notes` stored."""

    async def next(self, fallback: bool, patience: float) -> None:
        """Wait for a Begin from now on that the fallback decided, or the engine."""
        now = len(self.fallbacks)
        await until(lambda: fallback in self.fallbacks[now:], patience)


async def kill_under_load(
    engine: Engine,
    folder: Path,
    kills: int,
    *,
    victim: Callable[[int], int],
    pause: float = 0.0,
    patience: float = 300.0,
    **settings: Any,
) -> None:
    """Serve with a started engine, kill the process `victim(kill)` so often, and assert that it costs nothing.

    Every kill comes while the engine decides, and the next only after it decides again. Workers wait `pause` seconds
    between tasks.
    """
    ledger, stop = Ledger(), asyncio.Event()
    await asyncio.wait_for(engine.wait(), patience)
    router = Phases("served", begin=engine.policy, step=NoMemory(), end=Concat())
    settings = {"rest_seconds": 0.1, "rate": UNHURRIED, **settings}
    async with served(folder, router, **settings) as sessions, calling(sessions) as client:
        workers = [asyncio.create_task(_work(client, ledger, stop, number, pause)) for number in range(WORKERS)]
        for kill in range(kills):
            await until(lambda: engine.ready, patience)
            await ledger.next(False, patience)
            os.kill(victim(kill), signal.SIGKILL)
            await until(lambda: not engine.ready, patience)
            await ledger.next(True, patience)
        await until(lambda: engine.ready, patience)
        await ledger.next(False, patience)
        stop.set()
        await asyncio.gather(*workers)
        assert engine.state.restarts >= kills
        await _check(sessions, client, ledger)
    assert len(ledger.stored) > kills


async def _work(client: httpx.AsyncClient, ledger: Ledger, stop: asyncio.Event, worker: int, pause: float) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        question = f"question {worker} {number}"
        begun = await client.post("/v1/sessions", json={"question": question})
        assert begun.status_code == 201, begun.text
        session_id = begun.json()["session_id"]
        ledger.fallbacks.append(begun.json()["decision"]["fallback"])
        ledger.begun.append(session_id)
        if number % 5:
            await _end(client, ledger, session_id, question)
        else:
            ledger.open[session_id] = question
        await asyncio.sleep(pause)


async def _end(client: httpx.AsyncClient, ledger: Ledger, session_id: str, question: str) -> None:
    body = {"answer": "so", "outcome": {"correct": True, "source": "user"}}
    ended = await client.post(f"/v1/sessions/{session_id}/end", json=body)
    assert ended.status_code == 200, ended.text
    if any(r["provider"] == "notes" and r["status"] == "stored" for r in ended.json()["receipts"]):
        ledger.stored.append(question)


async def _check(sessions: Sessions, client: httpx.AsyncClient, ledger: Ledger) -> None:
    """Every acknowledged session is there, every acknowledged store once, and every fallback was counted."""
    for session_id in ledger.begun:
        view = await client.get(f"/v1/sessions/{session_id}")
        assert view.status_code == 200, view.text
        assert view.json()["status"] == ("open" if session_id in ledger.open else "ended")
    for session_id, question in ledger.open.items():
        await _end(client, ledger, session_id, question)
    kept = [record.text for record in sessions.memories.bank.space("notes", "default").records()]
    assert len(set(ledger.stored)) == len(ledger.stored)
    assert sorted(text for text in kept if text in set(ledger.stored)) == sorted(ledger.stored)
    reasons = ("late", "failed", "resting", "invalid")
    counted = [
        sessions.metrics.registry.get_sample_value("memroute_fallbacks_total", {"phase": "begin", "reason": reason})
        for reason in reasons
    ]
    assert sum(each or 0 for each in counted) == sum(ledger.fallbacks) > 0
