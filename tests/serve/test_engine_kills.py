"""An engine that is killed again and again under load costs no acknowledged run and no request."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from made_engine import TinyVllm, endpoint_of, fake_environment, pids, served_run, until
from served_toys import calling, served

from router.policies.changed import Phases
from router.policies.fixed import Concat
from router.policies.none import NoMemory
from serve import engine as engine_module
from serve.engine import Engine

KILLS = 20


@pytest.mark.slow
async def test_twenty_kills_of_the_engine_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(engine_module, "FIRST_WAIT", 0.05)
    run, cards = served_run(tmp_path / "run", kind="vllm", device="cpu")
    endpoint = endpoint_of(TinyVllm(run.merged))
    environment = fake_environment(tmp_path, endpoint, monkeypatch)
    engine_settings = run.config.serve.engine.model_copy(update={"environment": environment})
    run.config = run.config.model_copy(
        update={"serve": run.config.serve.model_copy(update={"engine": engine_settings})}
    )
    engine = Engine(run, cards)
    acknowledged: list[str] = []
    fallbacks: list[bool] = []
    stop = asyncio.Event()

    async def load(client: Any, worker: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            question = f"question {worker} {number}"
            begun = await client.post("/v1/sessions", json={"question": question})
            assert begun.status_code == 201, begun.text
            fallbacks.append(begun.json()["decision"]["fallback"])
            path = f"/v1/sessions/{begun.json()['session_id']}/end"
            ended = await client.post(path, json={"answer": "so", "outcome": {"correct": True, "source": "user"}})
            assert ended.status_code == 200, ended.text
            if any(r["provider"] == "notes" and r["status"] == "stored" for r in ended.json()["receipts"]):
                acknowledged.append(question)

    try:
        await engine.start()
        await asyncio.wait_for(engine.wait(), 300)
        router = Phases("served", begin=engine.policy, step=NoMemory(), end=Concat())
        (tmp_path / "served").mkdir()
        async with served(tmp_path / "served", router, rest_seconds=0.1) as sessions, calling(sessions) as client:
            workers = [asyncio.create_task(load(client, worker)) for worker in range(4)]
            for kill in range(KILLS):
                await until(lambda: engine.ready, 300)
                await asyncio.sleep(0.1)
                assert engine.process is not None
                os.kill(engine.process.pid, signal.SIGKILL)
                await until(lambda kill=kill: len(pids(tmp_path)) == kill + 2, 300)  # type: ignore[misc]
            await until(lambda: engine.ready, 300)
            answered = len(fallbacks)
            await until(lambda: len(fallbacks) > answered + 20, 300)
            stop.set()
            await asyncio.gather(*workers)
            space = sessions.memories.bank.space("notes", "default")
            stored = [record.text for record in space.records()]
    finally:
        await engine.close()
        endpoint.stop()
        run.close()
    assert any(fallbacks)
    assert not all(fallbacks[-10:])
    assert sorted(text for text in stored if text in set(acknowledged)) == sorted(acknowledged)
    assert len(set(acknowledged)) == len(acknowledged) > KILLS
