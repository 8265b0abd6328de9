"""The client: an agent's session over HTTP, skills run on this side, and calls that are sent again count once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from served_toys import listening, served

from providers.tools import ToolResult
from providers.types import Outcome, Parameter, Step
from serve.app import make_app
from serve.auth import Keys
from serve.client import MemoryClient, ServerRefused, SyncMemoryClient
from serve.sessions import Sessions

ROOT = Path(__file__).resolve().parents[2]
STEPS = tuple(
    Step(index=n, tool="open", arguments={"page": f"p{n}"}, observation=f"URL: /p{n}\nArea: {n}00 sq km\nPop: {n} m")
    for n in range(3)
)


class Open:
    name = "open"
    doc = "Opens a page."
    parameters = (Parameter(name="page"),)

    async def call(self, **arguments: Any) -> ToolResult:
        return ToolResult(observation=f"page of {arguments['page']}")


class Flaky(httpx.AsyncBaseTransport):
    """Loses the answer to every second request, after the server has worked on it."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner, self.calls = inner, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        self.calls += 1
        if self.calls % 2:
            raise httpx.ReadError("gone")
        return answer


@asynccontextmanager
async def client_of(sessions: Sessions, flaky: bool = False) -> AsyncIterator[MemoryClient]:
    transport: httpx.AsyncBaseTransport = httpx.ASGITransport(app=make_app(sessions, Keys([])))
    async with MemoryClient("http://127.0.0.1", transport=Flaky(transport) if flaky else transport) as client:
        yield client


async def test_an_agents_session_over_http(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, client_of(sessions) as client:
        first = await client.begin("What is it?", task_id="t1")
        assert (first.memory, first.skills, first.injections) == ("", (), ())
        ended = await first.end("42", steps=STEPS, outcome=Outcome(correct=True, source="verifier"))
        assert {receipt.status for receipt in ended.receipts} == {"stored"}
        session = await client.begin("What is it?")
        assert "> What is it? 42" in session.memory
        assert await session.step(()) == ""
        assert "Area: 200 sq km" in await session.step(STEPS)
        assert [injection.phase for injection in session.injections] == ["begin", "in"]
        late = await session.end("43", steps=STEPS)
        assert [receipt.provider for receipt in late.receipts] == ["notes"]
        assert {r.provider for r in (await session.outcome(True)).receipts} == {"notes", "lessons"}
        assert (await client.view(session.id)).steps == 3


async def test_skills_run_on_this_side_with_the_callers_tools(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, client_of(sessions) as client:
        await (await client.begin("What is it?")).end("42")
        session = await client.begin("What is it?")
        skills = {skill.name: skill for skill in session.skills}
        result = await session.call_skill(skills["look"], {"word": "home"}, (Open(),))
        assert (result.observation, result.error) == ("page of home", None)


async def test_calls_whose_answers_were_lost_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.client.WAIT_SECONDS", 0.001)
    async with served(tmp_path) as sessions, client_of(sessions, flaky=True) as client:
        session = await client.begin("What is it?")
        assert (await session.stepped(STEPS[:2])).steps == 2
        await session.end("42", steps=STEPS, outcome=Outcome(correct=True, source="user"))
        view = await client.view(session.id)
        assert (view.steps, len(view.receipts), len(view.decisions)) == (3, 2, 3)
        assert await sessions.count_open() == 0


async def test_a_refusal_is_one_sentence_with_its_status(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, client_of(sessions) as client:
        with pytest.raises(ServerRefused, match="no such session") as caught:
            await client.view("none")
        assert caught.value.status == 404


async def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.client.WAIT_SECONDS", 0.001)
    async with MemoryClient("http://127.0.0.1:9", timeout=1.0) as client:
        with pytest.raises(ServerRefused, match="cannot be reached") as caught:
            await client.begin("What?")
        assert caught.value.status == 0


def test_the_plain_client_and_the_example_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from docs.examples import served_agent

    with listening(tmp_path) as url:
        served_agent.main("What is it?", url)
        with SyncMemoryClient(url) as client:
            session = client.begin("What is it?")
            assert "42" in session.memory
            assert "Area: 200 sq km" in session.step(STEPS)
            shout = next(skill for skill in session.skills if skill.name == "shout")
            assert session.call_skill(shout, {"word": "hi"}, ()).observation == "HI"
            assert session.end("42", outcome_later=True).status == "waiting"
            assert client.outcome(session.id, True).status == "ended"
            assert client.view(session.id).status == "ended"
    printed = capsys.readouterr().out
    assert "notes chose" in printed
    assert "notes: stored" in printed


def test_an_agent_in_another_process_takes_its_memory_over_http(tmp_path: Path) -> None:
    agent = [sys.executable, "docs/examples/served_agent.py", "What is it?"]
    with listening(tmp_path) as url:
        ran = subprocess.run([*agent, url], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
        assert ran.returncode == 0, ran.stderr.decode()
        with SyncMemoryClient(url) as client:
            assert "> What is it? 42" in client.begin("What is it?").memory
    assert ran.stdout.decode().splitlines()[0] == "notes chose notes; the answer is 42"
