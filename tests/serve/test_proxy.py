"""Any client of a chat endpoint gets memory through the proxy, and its answers unchanged."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from scripted_endpoint import Endpoint, Play, said
from served_toys import Notes, keys_of, run_task, served

from router.policies.fixed import Concat
from serve.app import make_app
from serve.auth import Keys
from serve.chat import add_chat
from serve.proxy import Proxy
from serve.sessions import Sessions
from synth.config import ProxyConfig

QUESTION = "What is the area of Chile?"
SYSTEM = {"role": "system", "content": "You answer."}
ASKED = {"role": "user", "content": QUESTION}
FACTS = "URL: /p\nArea: 300 sq km\nPeople: 3 million"


def events(*deltas: dict[str, Any]) -> str:
    """A streamed answer, event by event."""
    lines = [
        "data: "
        + json.dumps(
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 0,
                "model": "m",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
            }
        )
        for delta in deltas
    ]
    return "\n\n".join([*lines, "data: [DONE]", ""])


def streamed(*deltas: dict[str, Any]) -> Play:
    return Play(body=events(*deltas), headers={"Content-Type": "text/event-stream"})


def calls(identity: str, name: str = "open", arguments: str = '{"page": "chile"}') -> dict[str, Any]:
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def seen(identity: str, text: str = FACTS) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": text}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    made.script = [said("756,102 sq km")]
    yield made
    made.stop()


@asynccontextmanager
async def proxied(
    root: Path,
    endpoint: Endpoint | str,
    keys: Keys | None = None,
    *,
    idle: float = 600.0,
    router: Any = None,
    **serve: Any,
) -> AsyncIterator[tuple[Sessions, Proxy, httpx.AsyncClient]]:
    """The app in this process, before an endpoint."""
    url = endpoint if isinstance(endpoint, str) else endpoint.url
    async with served(root, router, **serve) as sessions:
        config = ProxyConfig(base_url=url, key_env="TEST_UPSTREAM_KEY", idle_seconds=idle)
        proxy = Proxy(sessions, config, own_keys=keys is not None)
        app = make_app(sessions, keys or Keys([]))
        add_chat(app, proxy)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            try:
                yield sessions, proxy, client
            finally:
                await proxy.close()


CALLED = said(None, calls=[("open", '{"page": "chile"}')], finish="tool_calls")
"""What `calls("call_0")` was the answer of."""


async def ask(client: httpx.AsyncClient, *messages: dict[str, Any], headers: Any = None, **more: Any) -> httpx.Response:
    body = {"model": "m", "messages": list(messages), **more}
    return await client.post("/v1/chat/completions", json=body, headers=headers)


async def test_a_task_gets_what_an_earlier_one_left_and_leaves_its_own(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        first = await ask(client, SYSTEM, ASKED, headers={"x-memroute-end": "correct", "x-memroute-task": "first"})
        assert first.json()["choices"][0]["message"]["content"] == "756,102 sq km"
        assert first.headers["x-memroute-injected"] == "none"
        assert endpoint.requests[0]["messages"] == [SYSTEM, ASKED]
        second = await ask(client, SYSTEM, ASKED)
        assert second.headers["x-memroute-injected"] == "notes"
        assert int(second.headers["x-memroute-chars"]) > 0
        system = endpoint.requests[1]["messages"][0]["content"]
        assert system.startswith("You answer.\n\nFrom earlier tasks.")
        assert f"> {QUESTION} 756,102 sq km" in system
        assert "learned in first" in system
        off = await ask(client, SYSTEM, ASKED, headers={"x-memroute-memory": "off"})
        assert off.headers["x-memroute-injected"] == "none"
        assert "x-memroute-session" not in off.headers
        assert endpoint.requests[2]["messages"] == [SYSTEM, ASKED]


async def test_skills_are_shown_as_text(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        await run_task(client, QUESTION, "756,102")
        await ask(client, SYSTEM, ASKED)
    system = endpoint.requests[0]["messages"][0]["content"]
    assert "cannot be called here" in system
    assert "shout(): Says it loudly." in system
    assert "> def shout(tools, word: str) -> str:" in system


async def test_working_memory_comes_at_steps_where_the_router_says_so(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint, router=Concat()) as (_, _, client):
        chat = [SYSTEM, ASKED]
        endpoint.script = [CALLED]
        first = await ask(client, *chat)
        for number in range(3):
            chat += [
                calls(f"call_{number}"),
                seen(f"call_{number}", f"URL: /p{number}\nArea: {number}00 sq km\nPeople: {number}"),
            ]
        later = await ask(client, *chat)
        assert later.headers["x-memroute-session"] == first.headers["x-memroute-session"]
        assert "short_term_memory" in later.headers["x-memroute-injected"]
        sent = endpoint.requests[1]["messages"]
        assert sent[1 : len(chat)] == chat[1:]
        assert sent[-1]["role"] == "user"
        assert "> - Area: 200 sq km" in sent[-1]["content"]
        again = await ask(client, *chat)
        assert endpoint.requests[2] == endpoint.requests[1]
        assert again.headers == later.headers
        view = (await client.get(f"/v1/sessions/{first.headers['x-memroute-session']}")).json()
        assert view["steps"] == 3


async def test_what_the_agent_did_is_stored_as_its_steps(tmp_path: Path, endpoint: Endpoint) -> None:
    kept: list[Any] = []
    distil = Notes.distil

    async def keep(self: Notes, trajectory: Any, outcome: Any) -> Any:
        kept.append(trajectory)
        return await distil(self, trajectory, outcome)

    Notes.distil = keep  # type: ignore[method-assign]
    try:
        async with proxied(tmp_path, endpoint) as (_, _, client):
            endpoint.script = [CALLED, said("756,102 sq km")]
            await ask(client, SYSTEM, ASKED)
            headers = {"x-memroute-end": "correct"}
            await ask(client, SYSTEM, ASKED, calls("call_0"), seen("call_0"), headers=headers)
    finally:
        Notes.distil = distil  # type: ignore[method-assign]
    trajectory = kept[0]
    assert [(step.tool, step.arguments, step.observation) for step in trajectory.steps] == [
        ("open", {"page": "chile"}, FACTS)
    ]
    assert (trajectory.question, trajectory.answer, trajectory.agent) == (QUESTION, "756,102 sq km", "chat")


async def test_two_tasks_that_start_alike_part_where_their_answers_do(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        names = []
        for name in ("a", "b"):
            headers = {"x-memroute-task": name}
            names.append((await ask(client, ASKED, headers=headers)).headers["x-memroute-session"])
        assert len(set(names)) == 2
        endpoint.script = [said("one"), said("two"), said("more")]
        plain = (await ask(client, ASKED)).headers["x-memroute-session"]
        went_on = await ask(
            client, ASKED, {"role": "assistant", "content": "one"}, {"role": "user", "content": "Go on."}
        )
        assert went_on.headers["x-memroute-session"] == plain
        other = await ask(client, ASKED, {"role": "assistant", "content": "else"}, {"role": "user", "content": "So?"})
        assert other.headers["x-memroute-session"] != plain
        fresh = await ask(client, ASKED)
        assert fresh.headers["x-memroute-session"] not in (plain, other.headers["x-memroute-session"])


async def test_a_task_goes_on_over_a_restart(tmp_path: Path, endpoint: Endpoint) -> None:
    chat = [SYSTEM, ASKED]
    longer = [*chat, calls("call_0"), seen("call_0")]
    endpoint.script = [CALLED]
    async with proxied(tmp_path, endpoint) as (_, _, client):
        begun = (await ask(client, *chat)).headers["x-memroute-session"]
        await ask(client, *longer)
    async with proxied(tmp_path, endpoint) as (_, _, client):
        on = await ask(client, *longer, calls("2"), seen("2"))
        assert on.headers["x-memroute-session"] == begun
        assert (await client.get(f"/v1/sessions/{begun}")).json()["steps"] == 2
        fresh = await ask(client, *chat)
        assert fresh.headers["x-memroute-session"] != begun


async def test_a_task_that_is_left_over_a_restart_is_kept_when_its_session_expires(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        endpoint.script = [CALLED, said("756,102 sq km")]
        await ask(client, SYSTEM, ASKED)
        left = await ask(client, SYSTEM, ASKED, calls("call_0"), seen("call_0"))
    later = time.time() + 7200.0
    monkeypatch.setattr("serve.sessions.time.time", lambda: later)
    async with proxied(tmp_path, endpoint) as (sessions, _, client):
        kept = [record.payload["text"] for record in sessions.memories.bank.space("notes").records()]
        assert kept == [f"{QUESTION} 756,102 sq km"]
        assert (await client.get(f"/v1/sessions/{left.headers['x-memroute-session']}")).status_code == 410


async def test_a_shortened_history_is_the_same_task(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        endpoint.script = [CALLED]
        one, two, three = (calls(f"call_{number}") for number in range(3))
        await ask(client, SYSTEM, ASKED)
        second = await ask(client, SYSTEM, ASKED, one, seen("call_0"))
        third = await ask(client, SYSTEM, ASKED, one, seen("call_0"), two, seen("call_1", "Two"))
        shortened = [one, seen("call_0", "..."), two, seen("call_1", "Two")]
        fourth = await ask(client, SYSTEM, ASKED, *shortened, three, seen("call_2"))
        sessions = {response.headers["x-memroute-session"] for response in (second, third, fourth)}
        assert len(sessions) == 1
        assert (await client.get(f"/v1/sessions/{sessions.pop()}")).json()["steps"] == 3


async def test_a_task_that_nobody_calls_for_ends_with_an_unknown_outcome(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint, idle=0.05) as (_, proxy, client):
        session = (await ask(client, ASKED)).headers["x-memroute-session"]
        await asyncio.sleep(0.06)
        await proxy.sweep()
        view = (await client.get(f"/v1/sessions/{session}")).json()
        assert (view["status"], view["outcome"]["correct"]) == ("ended", None)
        assert [receipt["provider"] for receipt in view["receipts"]] == ["notes"]


async def test_an_outcome_may_end_a_task_and_may_come_after_it(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint, router=Concat()) as (_, _proxy, client):
        session = (await ask(client, ASKED)).headers["x-memroute-session"]
        ended = await client.post(f"/v1/chat/{session}/end", json={"correct": True, "source": "user"})
        assert {receipt["provider"] for receipt in ended.json()["receipts"]} == {"notes", "lessons"}
        assert (await client.post(f"/v1/chat/{session}/end", json={})).status_code == 404
        other = (await ask(client, ASKED)).headers["x-memroute-session"]
        await client.post(f"/v1/chat/{other}/end", json={})
        late = await client.post(f"/v1/sessions/{other}/outcome", json={"correct": True, "source": "user"})
        assert late.json()["outcome"]["correct"] is True


async def test_a_stream_goes_through_byte_for_byte_and_is_read_on_the_way(tmp_path: Path, endpoint: Endpoint) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "open", "arguments": "{}"}}
    endpoint.script = [streamed({"role": "assistant", "content": "756,"}, {"content": "102"}, {"tool_calls": [call]})]
    async with proxied(tmp_path, endpoint) as (_, _, client):
        got = await ask(client, ASKED, stream=True, headers={"x-memroute-end": "correct"})
        assert got.text == endpoint.script[0].body
        assert got.headers["content-type"] == "text/event-stream"
        second = await ask(client, ASKED)
        assert second.headers["x-memroute-injected"] == "notes"
    assert f"> {QUESTION} 756,102" in endpoint.requests[1]["messages"][0]["content"]


@pytest.mark.parametrize("what", ["probe", "retrieve"])
async def test_a_call_is_answered_where_memory_fails(tmp_path: Path, endpoint: Endpoint, what: str) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        await run_task(client, QUESTION, "756,102")
        Notes.broken = what
        try:
            got = await ask(client, ASKED)
        finally:
            Notes.broken = ""
        assert got.status_code == 200
        assert what in got.headers["x-memroute-trouble"]
        assert 'memroute_chats_total{memory="failed"} 1.0' in (await client.get("/metrics")).text


async def test_a_call_is_answered_where_no_session_can_be_had(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint, max_sessions=1) as (_, _, client):
        await ask(client, ASKED, headers={"x-memroute-task": "one"})
        got = await ask(client, ASKED, headers={"x-memroute-task": "two"})
        assert got.status_code == 200
        assert "open sessions" in got.headers["x-memroute-trouble"]
        assert endpoint.requests[1]["messages"] == [ASKED]


async def test_an_ended_session_leaves_the_chat_alone(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.script = [CALLED]
    async with proxied(tmp_path, endpoint) as (_, _, client):
        session = (await ask(client, ASKED)).headers["x-memroute-session"]
        await client.post(f"/v1/sessions/{session}/end", json={"answer": "elsewhere"})
        got = await ask(client, ASKED, calls("call_0"), seen("call_0"))
        assert got.status_code == 200
        assert "ended already" in got.headers["x-memroute-trouble"]


async def test_the_endpoints_errors_go_through_and_count_as_no_answer(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.script = [Play(status=429, body={"error": {"message": "slow down"}}, headers={"Retry-After": "7"})]
    async with proxied(tmp_path, endpoint) as (_, _, client):
        for stream in (False, True):
            got = await ask(client, ASKED, stream=stream, headers={"x-memroute-end": "correct"})
            assert (got.status_code, got.headers["retry-after"]) == (429, "7")
            assert got.json()["error"]["message"] == "slow down"
        session = got.headers["x-memroute-session"]
        assert (await client.get(f"/v1/sessions/{session}")).json()["status"] == "open"
        endpoint.script = [said("so")]
        assert (await ask(client, ASKED)).headers["x-memroute-session"] == session
    async with proxied(tmp_path, "http://127.0.0.1:9/v1") as (_, _, client):
        gone = await ask(client, ASKED)
        assert gone.status_code == 502
        assert "cannot be reached" in gone.json()["error"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"\xff", 400),
        (b"{", 400),
        (b"[]", 422),
        (b'{"messages": "x"}', 422),
        (b'{"messages": [1]}', 422),
        (b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 200),
        (b'{"messages": []}', 200),
    ],
)
async def test_bad_bodies_get_their_status(tmp_path: Path, endpoint: Endpoint, content: bytes, status: int) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        got = await client.post("/v1/chat/completions", content=content)
        assert got.status_code == status, got.text
        for headers in (
            {"x-memroute-end": "maybe"},
            {"x-memroute-memory": "perhaps"},
            {"x-memroute-namespace": "../x"},
        ):
            assert (await ask(client, ASKED, headers=headers)).status_code == 422


async def test_keys_hold_for_chats_and_ours_never_reach_the_endpoint(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = keys_of(("ann", "ann", ("read", "write")), ("bob", "bob", ("read", "write")), ("none", "none", ()))
    async with proxied(tmp_path, endpoint, keys) as (_, _, client):
        assert (await ask(client, ASKED)).status_code == 401
        ann, bob = ({"authorization": f"Bearer secret-of-{name}"} for name in ("ann", "bob"))
        first = await ask(client, ASKED, headers={**ann, "x-memroute-end": "correct"})
        assert (await ask(client, ASKED, headers=ann)).headers["x-memroute-injected"] == "notes"
        assert (await ask(client, ASKED, headers=bob)).headers["x-memroute-injected"] == "none"
        assert (await ask(client, ASKED, headers={"authorization": "Bearer secret-of-none"})).status_code == 403
        assert (await ask(client, ASKED, headers={**bob, "x-memroute-namespace": "ann"})).status_code == 403
        stolen = (await ask(client, ASKED, headers=ann)).headers["x-memroute-session"]
        assert (await client.post(f"/v1/chat/{stolen}/end", json={}, headers=bob)).status_code == 404
        assert first.status_code == 200
        monkeypatch.setenv("TEST_UPSTREAM_KEY", "upstream-key")
        await ask(client, ASKED, headers=ann)
    assert not any("secret" in (key or "") for key in endpoint.keys)
    assert endpoint.keys[-1] == "Bearer upstream-key"


async def test_without_keys_of_ours_the_clients_own_goes_through(tmp_path: Path, endpoint: Endpoint) -> None:
    async with proxied(tmp_path, endpoint) as (_, _, client):
        await ask(client, ASKED, headers={"authorization": "Bearer theirs"})
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "m"
    assert endpoint.keys == ["Bearer theirs"]


@contextmanager
def listening(root: Path, endpoint: Endpoint) -> Iterator[str]:
    """The proxy on a socket of its own, in a thread of its own; its address."""
    started, stop, address = threading.Event(), threading.Event(), []

    async def run() -> None:
        async with served(root) as sessions:
            proxy = Proxy(sessions, ProxyConfig(base_url=endpoint.url), own_keys=False)
            app = make_app(sessions, Keys([]))
            add_chat(app, proxy)
            server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
            serving = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            address.append(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
            started.set()
            while not stop.is_set():
                await asyncio.sleep(0.02)
            server.should_exit = True
            await serving
            await proxy.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert started.wait(30)
    yield address[0]
    stop.set()
    thread.join(30)


def test_the_openai_sdk_works_through_it_streams_and_tool_calls_included(tmp_path: Path, endpoint: Endpoint) -> None:
    import openai

    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "open", "arguments": '{"page": "chile"}'}}
    tool: Any = {"type": "function", "function": {"name": "open", "parameters": {"type": "object", "properties": {}}}}
    endpoint.script = [
        said(None, calls=[("open", '{"page": "chile"}')], finish="tool_calls"),
        streamed({"role": "assistant", "content": "756,102"}),
        streamed({"role": "assistant", "tool_calls": [call]}),
    ]
    with listening(tmp_path, endpoint) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="mine", max_retries=0)
        chat: list[Any] = [SYSTEM, ASKED]
        answer = client.chat.completions.create(model="m", messages=chat, tools=[tool])
        asked = answer.choices[0].message.tool_calls
        assert asked is not None
        assert asked[0].id == "call_0"
        chat += [answer.choices[0].message.model_dump(exclude_none=True), seen("call_0")]
        chunks = client.chat.completions.create(
            model="m", messages=chat, tools=[tool], stream=True, extra_headers={"x-memroute-end": "correct"}
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == "756,102"
        raw = client.chat.completions.with_raw_response.create(model="m", messages=[SYSTEM, ASKED], stream=True)
        assert raw.headers["x-memroute-injected"] == "notes"
        [chunk] = list(raw.parse())
        assert chunk.choices[0].delta.tool_calls[0].function.arguments == '{"page": "chile"}'
        assert client.models.list().data[0].id == "m"
    assert endpoint.requests[1]["tools"] == [tool]
    assert endpoint.keys[0] == "Bearer mine"
    assert "756,102" in endpoint.requests[2]["messages"][0]["content"]


def test_smolagents_works_through_it(tmp_path: Path, endpoint: Endpoint) -> None:
    smolagents = pytest.importorskip("smolagents")

    class Open(smolagents.Tool):  # type: ignore[misc, name-defined]
        name, description, output_type = "open", "Opens a page.", "string"
        inputs = {"page": {"type": "string", "description": "its name"}}  # noqa: RUF012

        def forward(self, page: str) -> str:
            return FACTS

    answers = [
        said(None, calls=[("open", '{"page": "chile"}')], finish="tool_calls"),
        said(None, calls=[("final_answer", '{"answer": "300 sq km"}')], finish="tool_calls"),
    ]
    endpoint.script = [*answers, *answers]
    with listening(tmp_path, endpoint) as address:
        results, sessions = [], set()
        for _ in range(2):
            model = smolagents.OpenAIModel("m", api_base=f"{address}/v1", api_key="mine")
            agent = smolagents.ToolCallingAgent([Open()], model, max_steps=3, verbosity_level=0)
            results.append(agent.run(QUESTION))
            found = httpx.get(f"{address}/v1/audit").json()["entries"]
            sessions = {entry["session_id"] for entry in found if entry["action"] == "begin"}
            httpx.post(f"{address}/v1/chat/{found[0]['session_id']}/end", json={"correct": True, "source": "user"})
        assert results == ["300 sq km", "300 sq km"]
        assert len(sessions) == 2
    first, _, second, _ = ("\n".join(map(str, request["messages"])) for request in endpoint.requests)
    assert "From earlier tasks" not in first
    assert "From earlier tasks" in second


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_plain_curl_works_through_it(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.script = [said("756,102 sq km"), streamed({"content": "so"})]
    body = json.dumps({"model": "m", "messages": [ASKED]})
    with listening(tmp_path, endpoint) as address:

        def curl(*arguments: str, data: str = body) -> str:
            command = ["curl", "-sS", "-N", *arguments, f"{address}/v1/chat/completions", "-d", data]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

        assert "756,102 sq km" in curl("-H", "x-memroute-end: correct")
        shown = curl("-i", data=json.dumps({"messages": [ASKED], "stream": True}))
    assert "x-memroute-injected: notes" in shown
    assert shown.endswith("data: [DONE]\n\n") or shown.endswith("data: [DONE]\n")
