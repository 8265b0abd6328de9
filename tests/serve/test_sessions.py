"""A task through the service: what is injected, what is stored where; a restart and a retry change nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from served_toys import Notes, calling, run_task, served

from providers.errors import BankError
from router.policies.fixed import Concat
from router.policies.none import NoMemory

STEPS = [
    {
        "tool": "open",
        "arguments": {"page": f"p{n}"},
        "observation": f"URL: /p{n}\nArea: {n}00 sq km\nPeople: {n} million",
    }
    for n in range(3)
]


async def begin(client: Any, question: str = "What is the area of Chile?", **more: Any) -> Any:
    answer = await client.post("/v1/sessions", json={"question": question, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_what_one_task_leaves_is_quoted_with_its_origin_in_the_next(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        empty = await begin(client, task_id="first")
        assert (empty["memory"], empty["injections"]) == ("", [])
        path = f"/v1/sessions/{empty['session_id']}/end"
        ended = (await client.post(path, json={"answer": "756,102", "outcome": {"correct": True}})).json()
        assert [(r["provider"], r["status"]) for r in ended["receipts"]] == [("notes", "stored"), ("lessons", "stored")]
        begun = await begin(client)
        assert begun["decision"]["providers"] == ["notes"]
        assert "> What is the area of Chile? 756,102" in begun["memory"]
        assert "learned in first" in begun["memory"]
        [injection] = begun["injections"]
        assert injection["items"][0]["tasks"] == ["first"]
        assert begun["skills"][0]["input_schema"]["type"] == "object"


async def test_working_memory_is_shown_once_there_is_enough_of_it(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        begun = await begin(client)
        path = f"/v1/sessions/{begun['session_id']}/step"
        first = (await client.post(path, json={})).json()
        assert (first["memory"], first["decision"]["forced"]) == ("", True)
        later = (await client.post(path, json={"steps": STEPS, "known": 0})).json()
        assert later["steps"] == 3
        assert "> - Area: 200 sq km" in later["memory"]
        assert later["injection"]["provider"] == "short_term_memory"
        view = (await client.get(f"/v1/sessions/{begun['session_id']}")).json()
        assert [decision["action"] for decision in view["decisions"]] == [None, "no_op", "query"]


async def test_a_session_goes_on_after_a_restart_as_if_nothing_had_been(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        await run_task(client, "What is the area of Chile?", "756,102")
        begun = await begin(client)
        await client.post(f"/v1/sessions/{begun['session_id']}/step", json={"steps": STEPS[:1]})
    async with served(tmp_path) as sessions, calling(sessions) as client:
        path = f"/v1/sessions/{begun['session_id']}"
        stepped = (await client.post(f"{path}/step", json={"steps": STEPS[1:], "known": 1})).json()
        assert stepped["steps"] == 3
        assert "Area: 200 sq km" in stepped["memory"]
        ended = (await client.post(f"{path}/end", json={"answer": "1", "outcome": {"correct": True}})).json()
        assert {receipt["status"] for receipt in ended["receipts"]} == {"stored"}
        assert (await client.get(path)).json()["injections"][0] == begun["injections"][0]


async def test_a_retry_gets_the_first_answer_and_changes_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        named = {"idempotency-key": "k1"}
        body = {"question": "What is the area of Chile?"}
        first = await client.post("/v1/sessions", json=body, headers=named)
        again = await client.post("/v1/sessions", json=body, headers=named)
        assert first.json() == again.json()
        path = f"/v1/sessions/{first.json()['session_id']}"
        for _ in range(2):
            step = await client.post(f"{path}/step", json={"steps": STEPS[:1]}, headers={"idempotency-key": "k2"})
            assert step.json()["steps"] == 1
        ends = [
            await client.post(f"{path}/end", json={"answer": "1"}, headers={"idempotency-key": "k3"}) for _ in range(2)
        ]
        assert ends[0].json() == ends[1].json()
        other = await client.post("/v1/sessions", json={"question": "Another?"}, headers=named)
        assert other.status_code == 409
        assert len(sessions.memories.bank.space("notes").records()) == 1


async def test_an_unknown_outcome_leaves_the_success_gate_closed_until_it_is_known(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        await run_task(client, "What is the area of Chile?", "756,102")
        begun = await begin(client)
        path = f"/v1/sessions/{begun['session_id']}"
        ended = (await client.post(f"{path}/end", json={"answer": "1"})).json()
        assert [r["provider"] for r in ended["receipts"]] == ["notes"]
        assert ended["outcome"] == {"correct": None, "score": None, "reason": "", "source": "unknown"}
        assert uses(sessions) == [0, 0]
        late = (await client.post(f"{path}/outcome", json={"correct": True, "source": "user"})).json()
        assert {r["provider"]: r["status"] for r in late["receipts"]} == {"notes": "stored", "lessons": "stored"}
        assert sorted(uses(sessions)) == [0, 1]
        again = (await client.post(f"{path}/outcome", json={"correct": True, "source": "user"})).json()
        assert again["receipts"] == late["receipts"]
        assert sorted(uses(sessions)) == [0, 1]
        assert (await client.post(f"{path}/outcome", json={"correct": False, "source": "user"})).status_code == 409


def uses(sessions: Any) -> list[int]:
    return [record.payload["uses"] for record in sessions.memories.bank.space("notes").records()]


async def test_an_end_that_waits_for_its_outcome_stores_nothing_before(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        begun = await begin(client)
        path = f"/v1/sessions/{begun['session_id']}"
        waiting = (await client.post(f"{path}/end", json={"answer": "1", "outcome_later": True})).json()
        assert (waiting["status"], waiting["receipts"], waiting["decision"]) == ("waiting", [], None)
        assert sessions.memories.bank.space("notes").records() == []
        settled = (await client.post(f"{path}/outcome", json={"correct": False, "source": "verifier"})).json()
        assert [(r["provider"], r["status"]) for r in settled["receipts"]] == [("notes", "stored")]
        assert settled["outcome"]["source"] == "verifier"


async def test_what_nobody_judges_is_ended_as_unknown_when_it_expires(tmp_path: Path) -> None:
    async with served(tmp_path, session_seconds=0.2) as sessions, calling(sessions) as client:
        begun = await begin(client)
        path = f"/v1/sessions/{begun['session_id']}"
        await client.post(f"{path}/end", json={"answer": "1", "outcome_later": True})
        await asyncio.sleep(0.25)
        await sessions.sweep()
        assert len(sessions.memories.bank.space("notes").records()) == 1
        assert sessions.memories.bank.space("lessons").records() == []
        assert (await client.get(path)).status_code == 410


async def test_stores_that_a_crash_interrupted_are_made_once_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, Concat()) as sessions, calling(sessions) as client:
        await run_task(client, "What is the area of Chile?", "756,102")
        begun = await begin(client)
        path = f"/v1/sessions/{begun['session_id']}"
        monkeypatch.setattr(Notes, "broken", "disk")
        body = {"answer": "1", "outcome": {"correct": True, "source": "user"}}
        full = await client.post(f"{path}/end", json=body, headers={"idempotency-key": "e"})
        assert full.status_code == 507
        assert "No space" not in full.text
        assert (await client.get(path)).json()["status"] == "ending"
        monkeypatch.setattr(Notes, "broken", "")
    async with served(tmp_path, Concat()) as sessions, calling(sessions) as client:
        view = (await client.get(path)).json()
        assert view["status"] == "ended"
        assert {r["status"] for r in view["receipts"]} == {"stored"}
        retried = (await client.post(f"{path}/end", json=body, headers={"idempotency-key": "e"})).json()
        assert retried["receipts"] == view["receipts"]
        assert sorted(uses(sessions)) == [0, 1]


async def test_a_policy_of_no_memory_injects_and_keeps_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, NoMemory()) as sessions, calling(sessions) as client:
        ended = await run_task(client, "What is the area of Chile?", "1")
        assert (ended["decision"]["providers"], ended["receipts"]) == ([], [])
        assert sessions.memories.bank.space("notes").records() == []


async def test_disk_full_while_beginning_is_507_and_leaves_no_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:

        async def full(*args: Any, **more: Any) -> None:
            raise BankError("full") from OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(sessions._database, "save", full)
            refused = await client.post("/v1/sessions", json={"question": "What?"})
        assert refused.status_code == 507
        assert refused.headers["retry-after"]
        assert await sessions.count_open() == 0
        assert (await client.post("/v1/sessions", json={"question": "What?"})).status_code == 201


async def test_what_callers_send_is_for_the_servers_own_user_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        await begin(client)
        assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("serve.sqlite*")} == {0}
