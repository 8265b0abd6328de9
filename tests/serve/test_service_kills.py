"""SIGKILL under load, twenty times: what was acknowledged is there after each restart, and nothing is there twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from providers.bank import MemoryBank
from providers.embedder import Hashing

ROOT = Path(__file__).resolve().parents[2]
KILLS = 20
WORKERS = 6


class Server:
    """`memroute serve` as its own process over one folder, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run = folder / "toy"
        run.mkdir()
        MemoryBank.open(run / "bank.sqlite", Hashing()).close()
        config = {
            "name": "toy",
            "runs_dir": str(folder),
            "providers": ["served_toys:Notes", "served_toys:Lessons"],
            "encoder": {"name": "hashing"},
            "serve": {
                "router": "notes",
                "probe_seconds": 20.0,
                "router_seconds": 20.0,
                "retrieve_seconds": 20.0,
                "rate": 1e6,
            },
        }
        (folder / "toy.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        log = self.folder / "serve.log"
        command = [sys.executable, "-m", "memroute", "serve", str(self.folder / "toy.yaml"), "--port", "0"]
        path = os.pathsep.join((str(ROOT), str(Path(__file__).parent)))
        with log.open("wb") as written:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stderr=written, env=os.environ | {"PYTHONPATH": path}
            )
        for _ in range(600):
            found = re.search(r"memroute serves notes on (http://\S+)", log.read_text(encoding="utf-8"))
            if found:
                self.url = found[1]
                return
            assert self.process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        raise AssertionError(log.read_text(encoding="utf-8"))

    def stop(self, sign: int) -> None:
        assert self.process is not None
        self.process.send_signal(sign)
        self.process.wait(60)


class Ledger:
    """What the server acknowledged, as its callers know it."""

    def __init__(self) -> None:
        self.begun: dict[str, dict[str, Any]] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.unanswered: dict[str, tuple[str, dict[str, Any], str]] = {}
        """Calls whose answer was lost, by idempotency key: path, body, session."""
        self.numbers = itertools.count()


async def post(client: httpx.AsyncClient, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    answer = await client.post(path, json=body, headers={"idempotency-key": key})
    assert answer.is_success, answer.text
    return dict(answer.json())


async def work(client: httpx.AsyncClient, ledger: Ledger, draw: random.Random) -> None:
    """Tasks one after another until the server is gone."""
    while True:
        number = next(ledger.numbers)
        key, body = f"b{number}", {"question": f"What is the word of number {number}?"}
        ledger.unanswered[key] = ("/v1/sessions", body, "")
        begun = await post(client, "/v1/sessions", body, key)
        del ledger.unanswered[key]
        session_id = begun["session_id"]
        ledger.begun[session_id] = begun
        if draw.random() < 0.3:
            continue  # left open
        await client.post(f"/v1/sessions/{session_id}/step", json={"steps": [{"tool": "open", "observation": "x: 1"}]})
        await end(client, ledger, session_id, f"e{number}", {"answer": str(number), "outcome": {"correct": True}})


async def end(client: httpx.AsyncClient, ledger: Ledger, session_id: str, key: str, body: dict[str, Any]) -> None:
    path = f"/v1/sessions/{session_id}/end"
    ledger.unanswered[key] = (path, body, session_id)
    ledger.ended[session_id] = await post(client, path, body, key)
    del ledger.unanswered[key]


async def load(server: Server, ledger: Ledger, seconds: float, seed: int) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        workers = [asyncio.create_task(work(client, ledger, random.Random(f"{seed} {n}"))) for n in range(WORKERS)]
        await asyncio.sleep(seconds)
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            assert isinstance(outcome, httpx.TransportError), outcome


async def check(server: Server, ledger: Ledger, since: int = 0) -> None:
    """Every session acknowledged since then is as it was answered; lost calls are sent again and count once."""
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        for session_id, begun in list(ledger.begun.items())[since:]:
            answer = await client.get(f"/v1/sessions/{session_id}")
            assert answer.is_success, answer.text
            view = answer.json()
            assert view["injections"][: len(begun["injections"])] == begun["injections"]
            if session_id in ledger.ended:
                assert view["receipts"] == ledger.ended[session_id]["receipts"]
        for key, (path, body, session_id) in list(ledger.unanswered.items()):
            answer = await post(client, path, body, key)
            if session_id:
                ledger.ended[session_id] = answer
            else:
                ledger.begun[answer["session_id"]] = answer
            del ledger.unanswered[key]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that runs, and does not outlive its test."""
    made = Server(tmp_path)
    made.start()
    yield made
    assert made.process is not None
    if made.process.poll() is None:
        made.stop(signal.SIGKILL)


@pytest.mark.slow
async def test_a_server_that_is_killed_twenty_times_loses_nothing_and_stores_nothing_twice(server: Server) -> None:
    ledger, draw = Ledger(), random.Random(3)
    for kill in range(KILLS):
        known = len(ledger.begun)
        await load(server, ledger, draw.uniform(0.2, 1.2), kill)
        server.start()
        await check(server, ledger, since=known)
    await check(server, ledger)
    server.stop(signal.SIGTERM)
    assert server.process is not None
    assert server.process.returncode == 0
    assert len(ledger.ended) > KILLS
    with MemoryBank.open(server.folder / "toy" / "serve.bank.sqlite", Hashing()) as bank:
        for name in ("notes", "lessons"):
            stored = Counter(record.text for record in bank.space(name).records())
            asked = {view["session_id"]: None for view in ledger.ended.values()}
            assert len(stored) == len(asked), f"{name}: stored runs are those that were ended"
            assert set(stored.values()) == {1}
        shown = [bool(ledger.begun[session_id]["injections"]) for session_id in ledger.ended]
        used = sum(record.payload["uses"] for record in bank.space("notes").records())
        assert used == sum(shown), "every retrieval counts once"
    print(json.dumps({"kills": KILLS, "sessions": len(ledger.begun), "ended": len(ledger.ended)}))
