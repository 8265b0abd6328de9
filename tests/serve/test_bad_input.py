"""What is no proper request gets its status and one sentence, and leaves everything as it was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from served_toys import Odd, calling, run_task, served

from router.policies.fixed import Single
from serve.app import make_app
from serve.auth import Keys


def says(answer: httpx.Response, status: int, words: str) -> None:
    """One sentence, without a trace of code."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error"}
    assert words in body["error"]
    assert "\n" not in body["error"]
    assert "Traceback" not in answer.text


async def begun(client: httpx.AsyncClient) -> str:
    return str((await client.post("/v1/sessions", json={"question": "What is it?"})).json()["session_id"])


async def test_step_before_begin(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        says(await client.post("/v1/sessions/none/step", json={}), 404, "begin one")
        says(await client.post("/v1/sessions/none/end", json={"answer": "1"}), 404, "begin one")
        assert await sessions.count_open() == 0


async def test_end_twice(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        path = f"/v1/sessions/{await begun(client)}"
        assert (await client.post(f"{path}/end", json={"answer": "1"})).status_code == 200
        says(await client.post(f"{path}/end", json={"answer": "2"}), 409, "has ended already")
        says(await client.post(f"{path}/step", json={}), 409, "has ended already")
        assert [r.payload["text"] for r in sessions.memories.bank.space("notes").records()] == ["What is it? 1"]


async def test_an_outcome_before_the_end(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        path = f"/v1/sessions/{await begun(client)}"
        says(await client.post(f"{path}/outcome", json={"correct": True}), 409, "has not ended")


async def test_an_expired_session(tmp_path: Path) -> None:
    async with served(tmp_path, session_seconds=0.1) as sessions, calling(sessions) as client:
        path = f"/v1/sessions/{await begun(client)}"
        await asyncio.sleep(0.15)
        says(await client.post(f"{path}/step", json={}), 410, "has expired")
        await sessions.sweep()
        says(await client.post(f"{path}/end", json={"answer": "1"}), 410, "has expired")
        assert sessions.memories.bank.space("notes").records() == []


async def test_steps_that_do_not_follow_on(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        path = f"/v1/sessions/{await begun(client)}/step"
        says(await client.post(path, json={"known": 3, "steps": [{"tool": "open"}]}), 409, "knows of 0 steps")
        assert (await client.post(path, json={"known": 0})).json()["steps"] == 0


async def test_an_unknown_provider_in_the_routers_output(tmp_path: Path) -> None:
    async with served(tmp_path, Odd("invalid")) as sessions, calling(sessions) as client:
        await run_task(client, "What is the area of Chile?", "1")
        body = (await client.post("/v1/sessions", json={"question": "What is the area of Chile?"})).json()
        assert body["decision"]["fallback"] is True
        assert body["decision"]["providers"] == ["notes"]
        assert body["troubles"] == [{"stage": "begin", "name": "odd", "reason": "invalid"}]


@pytest.mark.parametrize(
    "content",
    [
        b'{"question": "What',
        b"",
        b"\xff\xfe{}",
        b'{"question": "\xe9"}',
        b"[" * 100_000,
        b'{"question": ' + b"9" * 5000,
    ],
    ids=["cut off", "empty", "not UTF-8", "latin-1", "deep", "long number"],
)
async def test_a_body_that_is_no_json(tmp_path: Path, content: bytes) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        answer = await client.post("/v1/sessions", content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422)
        says(answer, answer.status_code, "")
        assert await sessions.count_open() == 0


async def test_a_lone_surrogate(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        content = b'{"question": "What is \\ud800?"}'
        answer = await client.post("/v1/sessions", content=content, headers={"content-type": "application/json"})
        says(answer, 422, "question")
        content = b'{"question": "What?", "\\udfff": 1}'
        answer = await client.post("/v1/sessions", content=content, headers={"content-type": "application/json"})
        says(answer, 422, "unicode")


async def test_a_task_of_a_megabyte(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        says(await client.post("/v1/sessions", json={"question": "a" * 10**6}), 413, "20,000")
        says(await client.post("/v1/sessions", json={"question": "a" * 3 * 10**6}), 413, "2,097,152 bytes")
        path = f"/v1/sessions/{await begun(client)}/step"
        long = {"steps": [{"tool": "open", "observation": "a" * 300_000}]}
        says(await client.post(path, json=long), 413, "200,000")
        assert (await client.post(path, json={})).json()["steps"] == 0


async def test_a_body_that_does_not_say_how_long_it_is(tmp_path: Path) -> None:
    async def endless() -> Any:
        for _ in range(1000):
            yield b"a" * 10_000

    async with served(tmp_path) as sessions, calling(sessions) as client:
        says(await client.post("/v1/sessions", content=endless()), 413, "larger than")


@pytest.mark.parametrize("namespace", ["../x", "a/../b", "", "/", "a//b", "a\\b", "a/b/c/d", ".", " a", "a\x00b"])
async def test_namespaces_that_are_none(tmp_path: Path, namespace: str) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        says(
            await client.post("/v1/sessions", json={"question": "What?", "namespace": namespace}), 422, "namespace"
        )  # fmt: skip
        assert await sessions.count_open() == 0


async def test_a_misspelt_field_and_a_path_that_is_not_there(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        says(await client.post("/v1/sessions", json={"question": "What?", "namspace": "a"}), 422, "namspace")
        says(await client.get("/v1/nothing"), 404, "no such path")
        says(await client.put("/v1/sessions", json={}), 405, "does not take that method")
        says(
            await client.post("/v1/sessions", json={"question": "W?"}, headers={"idempotency-key": "a b"}),
            422,
            "idempotency-key",
        )


async def test_a_client_that_hangs_up_midway_has_changed_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        app = make_app(sessions, Keys([]))
        part = json.dumps({"question": "What?"}).encode()[:-1]
        messages = iter([{"type": "http.request", "body": part, "more_body": True}, {"type": "http.disconnect"}])
        sent: list[Any] = []

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/sessions",
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        await app(scope, receive, send)
        assert sent == []
        assert await sessions.count_open() == 0


async def test_more_open_sessions_than_a_key_may_have(tmp_path: Path) -> None:
    async with served(tmp_path, max_sessions=2) as sessions, calling(sessions) as client:
        first = await begun(client)
        await begun(client)
        says(await client.post("/v1/sessions", json={"question": "What?"}), 429, "2 open sessions")
        await client.post(f"/v1/sessions/{first}/end", json={"answer": "1"})
        await begun(client)


async def test_more_requests_than_a_key_may_send(tmp_path: Path) -> None:
    async with served(tmp_path, rate=1.0) as sessions, calling(sessions) as client:
        answers = [await client.get("/v1/providers") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[2].headers["retry-after"]) >= 1


async def test_more_requests_than_the_server_takes_at_once(tmp_path: Path) -> None:
    async with served(tmp_path, Odd("late"), concurrency=1, max_queue=1, router_seconds=0.3) as sessions:
        async with calling(sessions) as client:
            body = {"question": "What?"}
            answers = await asyncio.gather(*(client.post("/v1/sessions", json=body) for _ in range(4)))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == [201, 201, 503, 503]


async def test_a_skill_that_needs_tools_is_not_run_here(tmp_path: Path) -> None:
    async with served(tmp_path, Single("notes")) as sessions, calling(sessions) as client:
        await run_task(client, "What is it?", "1")
        session_id = await begun(client)
        call = {"session_id": session_id, "arguments": {"word": "hello"}}
        answer = (await client.post("/v1/skills/shout-1/call", json=call)).json()
        assert answer == {"observation": "HELLO", "error": None}
        says(await client.post("/v1/skills/look-1/call", json=call), 409, "MemoryClient")
        says(await client.post("/v1/skills/other/call", json=call), 404, "no such skill")
        wrong = {"session_id": session_id, "arguments": {"wrod": "hello"}}
        assert "no argument 'wrod'" in (await client.post("/v1/skills/shout-1/call", json=wrong)).json()["error"]


async def test_nothing_begins_once_the_server_is_ending(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        session_id = await begun(client)
        sessions.draining = True
        says(await client.post("/v1/sessions", json={"question": "What?"}), 503, "is ending")
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post(f"/v1/sessions/{session_id}/end", json={"answer": "1"})).status_code == 200


async def test_a_session_whose_steps_hold_more_than_it_may(tmp_path: Path) -> None:
    async with served(tmp_path, max_session=1000) as sessions, calling(sessions) as client:
        path = f"/v1/sessions/{await begun(client)}"
        step = {"tool": "open", "observation": "a" * 600}
        assert (await client.post(f"{path}/step", json={"steps": [step]})).status_code == 200
        says(await client.post(f"{path}/step", json={"steps": [step]}), 413, "at most 1,000 characters")
        says(await client.post(f"{path}/end", json={"answer": "1", "steps": [step]}), 413, "at most 1,000 characters")
        assert (await client.post(f"{path}/end", json={"answer": "1"})).status_code == 200
