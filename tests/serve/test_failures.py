"""Where a part fails the request is still served; the failure is marked and counted, and the part comes back."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from served_toys import Lessons, Notes, Odd, calling, run_task, served

from providers.bank import MemoryBank
from providers.distill.rules import RuleDistiller
from providers.embedder import Hashing
from providers.errors import ModelError
from providers.long_term.base import SpaceProvider
from providers.types import Preview, Query
from router.policies.fixed import Concat, Single
from router.policies.fuse import Fuse
from router.policies.none import NoMemory
from serve.attended import SHARED_THREADS, Lanes, Rests, probe_in_time
from serve.attended import Notes as RequestNotes

QUESTION = {"question": "What is the area of Chile?"}


def counted(sessions: Any, counter: str, **labels: str) -> float:
    return sessions.metrics.registry.get_sample_value(f"memroute_{counter}", labels) or 0.0


@pytest.mark.parametrize("how", ["late", "failed", "invalid"])
async def test_a_router_that_does_not_work_is_replaced_by_the_fallback(tmp_path: Path, how: str) -> None:
    async with served(tmp_path, Odd(how), router_seconds=0.1) as sessions, calling(sessions) as client:
        ended = await run_task(client, QUESTION["question"], "1")
        assert ended["decision"]["fallback"] is True
        assert {r["provider"] for r in ended["receipts"]} == {"notes", "lessons"}
        begun = (await client.post("/v1/sessions", json=QUESTION)).json()
        assert (begun["decision"]["providers"], begun["decision"]["fallback"]) == (["notes"], True)
        assert begun["troubles"][0] == {"stage": "begin", "name": "odd", "reason": how}
        assert counted(sessions, "fallbacks_total", phase="begin", reason=how) == 2
        assert counted(sessions, "invalid_outputs_total", phase="begin") == 2 * (how == "invalid")


async def test_a_router_that_failed_three_times_rests_and_is_tried_again(tmp_path: Path) -> None:
    router = Odd("failed")
    async with served(tmp_path, router, rest_seconds=0.3) as sessions, calling(sessions) as client:
        answers = [(await client.post("/v1/sessions", json=QUESTION)).json() for _ in range(4)]
        assert [a["troubles"][0]["reason"] for a in answers] == ["failed", "failed", "failed", "resting"]
        assert router.asked == 3
        router.how = "well"
        time.sleep(0.3)
        recovered = (await client.post("/v1/sessions", json=QUESTION)).json()
        assert (recovered["troubles"], recovered["decision"]["fallback"]) == ([], False)


async def test_one_slow_provider_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"probe_seconds": 0.5, "retrieve_seconds": 0.5}
    async with served(tmp_path, Concat(), **slow) as sessions, calling(sessions) as client:
        await run_task(client, QUESTION["question"], "1")
        monkeypatch.setattr(Notes, "slow", 2.0)
        begun = (await client.post("/v1/sessions", json=QUESTION)).json()
        assert [bool(preview["text"]) for preview in begun["previews"]] == [False, True]
        assert [injection["provider"] for injection in begun["injections"]] == ["lessons"]
        assert [(t["stage"], t["name"], t["reason"]) for t in begun["troubles"]] == [
            ("probe", "notes", "late"),
            ("retrieve", "notes", "late"),
        ]
        assert counted(sessions, "troubles_total", stage="probe", name="notes", reason="late") == 1


@pytest.mark.parametrize("part", ["probe", "retrieve"])
async def test_a_provider_that_is_down_leaves_the_others_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    async with served(tmp_path, Concat(), rest_seconds=0.0) as sessions, calling(sessions) as client:
        await run_task(client, QUESTION["question"], "1")
        monkeypatch.setattr(Notes, "broken", part)
        answer = await client.post("/v1/sessions", json=QUESTION)
        begun = answer.json()
        assert "lessons" in [injection["provider"] for injection in begun["injections"]]
        assert {"stage": part, "name": "notes", "reason": "failed"} in begun["troubles"]
        assert "/secret/path" not in answer.text
        monkeypatch.setattr(Notes, "broken", "")
        begun = (await client.post("/v1/sessions", json=QUESTION)).json()
        assert (len(begun["injections"]), begun["troubles"]) == (2, [])


async def test_a_provider_that_cannot_store_says_so_in_its_receipt_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        monkeypatch.setattr(Notes, "broken", "store")
        ended = await run_task(client, QUESTION["question"], "1")
        assert {r["provider"]: r["status"] for r in ended["receipts"]} == {"notes": "failed", "lessons": "stored"}
        assert counted(sessions, "store_receipts_total", provider="notes", status="failed") == 1


async def test_in_shadow_mode_the_policy_acts_and_the_router_is_only_written_down(
    tmp_path: Path, json_logs: io.StringIO
) -> None:
    async with served(tmp_path, Single("lessons"), acting=NoMemory()) as sessions, calling(sessions) as client:
        ended = await run_task(client, QUESTION["question"], "1")
        assert (ended["decision"]["policy"], ended["receipts"]) == ("none", [])
    logged = json_logs.getvalue()
    assert '"router_decided": ["lessons"]' in logged
    assert '"acted": []' in logged
    assert counted(sessions, "shadow_decisions_total", phase="begin", agree="false") == 1
    assert counted(sessions, "decisions_total", phase="begin", policy="none", choice="none") == 1


async def test_a_router_that_hangs_in_shadow_mode_holds_up_nobody(tmp_path: Path) -> None:
    async with (
        served(tmp_path, Odd("late"), acting=Single("notes"), router_seconds=0.2) as sessions,
        calling(sessions) as client,
    ):
        begun = (await client.post("/v1/sessions", json=QUESTION)).json()
        assert (begun["decision"]["fallback"], begun["troubles"]) == (False, [])


async def test_metrics_are_prometheus_and_count_what_happened(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        await run_task(client, QUESTION["question"], "1")
        await client.post("/v1/sessions", json=QUESTION)
        page = (await client.get("/metrics")).text
        for line in (
            'memroute_decisions_total{choice="notes",phase="begin",policy="notes"} 2.0',
            'memroute_injections_total{phase="begin",provider="notes"} 1.0',
            'memroute_store_receipts_total{provider="lessons",status="stored"} 1.0',
            'memroute_requests_total{route="/v1/sessions",status="201"} 2.0',
            "memroute_open_sessions 1.0",
        ):
            assert line in page
        assert 'memroute_stage_seconds_count{stage="probe"} 2.0' in page


class NoNote:
    async def fuse(self, question: str, parts: Sequence[tuple[str, str]]) -> str:
        raise ModelError("no endpoint", retryable=False)


async def test_a_note_that_no_model_writes_is_written_by_rules(tmp_path: Path) -> None:
    async with served(tmp_path, Fuse()) as sessions, calling(sessions) as client:
        await run_task(client, QUESTION["question"], "1")
        sessions._fuser = NoNote()
        begun = (await client.post("/v1/sessions", json=QUESTION)).json()
        assert begun["troubles"] == [{"stage": "fuse", "name": "fuser", "reason": "failed"}]
        assert begun["injections"][0]["provider"] == "fused"
        assert "What is the area of Chile? 1" in begun["injections"][0]["text"]


async def test_a_stranger_among_the_providers_that_raises_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_(*args: object) -> None:
        raise ZeroDivisionError("/secret/path")

    async with served(tmp_path) as sessions, calling(sessions) as client:
        await run_task(client, QUESTION["question"], "1")
        monkeypatch.setattr(Notes, "take", break_)
        monkeypatch.setattr(Notes, "draft", break_)
        begun = (await client.post("/v1/sessions", json=QUESTION)).json()
        path = f"/v1/sessions/{begun['session_id']}/end"
        ended = await client.post(path, json={"answer": "2", "outcome": {"correct": True, "source": "user"}})
        assert {r["status"] for r in ended.json()["receipts"]} == {"failed"}  # both draft alike
        assert ended.json()["troubles"] == [{"stage": "store", "name": "notes", "reason": "failed"}]
        assert "/secret/path" not in ended.text


async def test_the_first_begin_of_a_namespace_waits_for_its_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = QUESTION | {"namespace": "acme/ann"}
    async with served(tmp_path) as sessions, calling(sessions) as client:
        begun = (await client.post("/v1/sessions", json=body)).json()
        path = f"/v1/sessions/{begun['session_id']}/end"
        await client.post(path, json={"answer": "756,102", "outcome": {"correct": True, "source": "user"}})
    opened = set[str]()

    def slow_once(self: Notes, query: Query) -> Preview:
        if query.namespace not in opened:
            opened.add(query.namespace)
            time.sleep(0.4)
        return SpaceProvider.probe(self, query)

    monkeypatch.setattr(Notes, "probe", slow_once)
    async with served(tmp_path, probe_seconds=0.2) as sessions, calling(sessions) as client:
        first = (await client.post("/v1/sessions", json=body)).json()
        assert "acme/ann" in opened
        assert first["troubles"] == []
        assert [bool(preview["text"]) for preview in first["previews"]] == [True, True]


class Hangs(Lessons):
    """Answers no probe until it is let go."""

    let_go = threading.Event()

    def probe(self, query: Query) -> Preview:
        self.let_go.wait(20)
        return Preview(provider="hangs")


async def test_a_provider_that_hangs_takes_no_thread_from_the_others(tmp_path: Path) -> None:
    query = Query(text="What?", embedding=Hashing().encode(["What?"])[0], namespace="default")
    with MemoryBank.open(tmp_path / "bank.sqlite", Hashing()) as bank:
        providers = {
            "hangs": Hangs(bank.space("hangs"), RuleDistiller()),
            "lessons": Lessons(bank.space("lessons"), RuleDistiller()),
        }
        lanes, rests = Lanes(), Rests(seconds=0.0)
        for _ in range(2 * SHARED_THREADS):
            notes = RequestNotes()
            await probe_in_time(query, providers, lanes, rests, 0.2, notes)
            assert [(t.name, t.reason) for t in notes.troubles] == [("hangs", "late")]
        Hangs.let_go.set()
        lanes.close()
