"""The chat-model client against a scripted endpoint on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from lm.cache import ResponseCache
from lm.client import ChatModel
from lm.cost import Price
from lm.errors import MemrouteError, ModelError
from lm.types import Message

ASK = [Message(role="user", content="Which provider?")]
SECRET = "sk-very-secret-key"


class Choice(BaseModel):
    provider: str
    reason: str = Field(default="", max_length=80)


def said(
    text: str, *, usage: bool = True, logprobs: Any = None, finish: str = "stop"
) -> tuple[int, Any, dict[str, str]]:
    body: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text},
                "logprobs": logprobs,
            }
        ],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return 200, body, {}


class Endpoint:
    """Plays its script, one response per request, and keeps what was asked; the last response repeats."""

    def __init__(self) -> None:
        self.script: list[tuple[int, Any, dict[str, str]]] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.times: list[float] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append(json.loads(body))
                endpoint.keys.append(self.headers["Authorization"])
                endpoint.times.append(time.monotonic())
                status, answer, headers = endpoint.script[0] if len(endpoint.script) == 1 else endpoint.script.pop(0)
                data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("ROUTE_KEY", SECRET)
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def model(endpoint: Endpoint, **options: Any) -> ChatModel:
    return ChatModel(endpoint.url, "m", "ROUTE_KEY", **{"retries": 1, **options})


async def test_a_completion_with_its_usage_and_cost_by_purpose(endpoint: Endpoint) -> None:
    endpoint.script = [said("expel")]
    chat = model(endpoint, price=Price(prompt=1.0, completion=2.0))
    answer = await chat.complete(ASK, purpose="route", max_tokens=7)
    assert (answer.text, answer.finish_reason, answer.logprobs) == ("expel", "stop", None)
    assert endpoint.requests[0]["messages"] == [{"role": "user", "content": "Which provider?"}]
    assert endpoint.requests[0]["max_tokens"] == 7
    assert endpoint.requests[0]["temperature"] == 0.0
    assert "seed" not in endpoint.requests[0]
    assert endpoint.keys == [f"Bearer {SECRET}"]
    assert chat.ledger.by_purpose["route"].cost == pytest.approx(20e-6)


async def test_unknown_price_or_usage_costs_none_and_not_nothing(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    chat = model(endpoint)
    await chat.complete(ASK, purpose="judge")
    assert chat.ledger.by_purpose["judge"].cost is None
    endpoint.script = [said("a"), said("a", usage=False)]
    priced = model(endpoint, price=Price(1.0, 1.0))
    await priced.complete(ASK, purpose="route")
    await priced.complete(ASK, purpose="judge")
    assert priced.ledger.by_purpose["route"].cost == pytest.approx(15e-6)
    assert priced.ledger.total().cost is None
    assert priced.ledger.total().calls == 2
    assert priced.ledger.total().prompt_tokens == 10


async def test_the_cache_answers_what_was_asked_and_nothing_else(endpoint: Endpoint, tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    endpoint.script = [said(str(number)) for number in range(9)]
    chat = model(endpoint, cache=cache)
    first = await chat.complete(ASK, purpose="route")
    assert await model(endpoint, cache=ResponseCache(tmp_path / "cache.sqlite")).complete(ASK, purpose="judge") == first
    assert len(endpoint.requests) == 1
    changed = [
        await chat.complete([Message(role="user", content="Other?")], purpose="route"),
        await chat.complete(ASK, purpose="route", temperature=0.5),
        await chat.complete(ASK, purpose="route", max_tokens=5),
        await chat.complete(ASK, purpose="route", sample=1),
        await chat.complete(ASK, purpose="route", top_logprobs=3),
        await chat.complete(ASK, purpose="route", response_format={"type": "json_object"}),
        await ChatModel(endpoint.url, "n", "ROUTE_KEY", cache=cache).complete(ASK, purpose="route"),
    ]
    assert len({answer.text for answer in changed}) == len(changed)
    assert len(endpoint.requests) == 8
    assert await chat.complete(ASK, purpose="route") == first
    assert chat.ledger.by_purpose["route"].cached == 1
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


async def test_samples_are_told_apart_by_their_seed(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    await model(endpoint, temperature=0.7).complete(ASK, purpose="route", sample=3)
    assert endpoint.requests[0]["seed"] == 3


async def test_structured_asks_for_a_strict_schema_and_reads_through_prose_and_fences(endpoint: Endpoint) -> None:
    endpoint.script = [said('<think>{"no": 1}</think>Sure:\n```json\n{"provider": "awm", "reason": "fits"}\n```')]
    assert (await model(endpoint).structured(ASK, Choice, purpose="route")) == Choice(provider="awm", reason="fits")
    asked = endpoint.requests[0]["response_format"]["json_schema"]
    assert asked["strict"] is True
    assert asked["schema"]["required"] == ["provider", "reason"]
    assert asked["schema"]["additionalProperties"] is False
    assert "default" not in asked["schema"]["properties"]["reason"]


async def test_prose_instead_of_json_is_repaired_once(endpoint: Endpoint) -> None:
    endpoint.script = [said("I would take expel."), said('{"provider": "expel", "reason": ""}')]
    assert (await model(endpoint).structured(ASK, Choice, purpose="route")).provider == "expel"
    turns = endpoint.requests[1]["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == "I would take expel."
    assert "no JSON object" in turns[2]["content"]


async def test_a_wrong_field_is_named_and_a_second_failure_is_an_error(endpoint: Endpoint) -> None:
    endpoint.script = [said('{"provider": 3}'), said('{"provider": ', finish="length")]
    with pytest.raises(ModelError, match=r"no readable Choice in two answers.*cut off") as failure:
        await model(endpoint).structured(ASK, Choice, purpose="route")
    assert not failure.value.retryable
    assert "provider: " in endpoint.requests[1]["messages"][2]["content"]
    assert len(endpoint.requests) == 2


async def test_429_is_asked_again_after_the_time_that_the_endpoint_names(endpoint: Endpoint) -> None:
    endpoint.script = [(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.3"}), said("expel")]
    assert (await model(endpoint).complete(ASK, purpose="route")).text == "expel"
    assert 0.3 <= endpoint.times[1] - endpoint.times[0] < 3


async def test_500_is_retried_and_then_a_retryable_error(endpoint: Endpoint) -> None:
    endpoint.script = [(500, {"error": {"message": "out of memory"}}, {"Retry-After": "0.01"})]
    with pytest.raises(ModelError, match=r"500: .*out of memory.*check that the endpoint runs") as failure:
        await model(endpoint).complete(ASK, purpose="route")
    assert failure.value.retryable
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_what_cannot_get_better_is_not_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [(status, {"error": {"message": "no"}}, {})]
    with pytest.raises(ModelError, match=f"{status}: ") as failure:
        await model(endpoint).complete(ASK, purpose="route")
    assert not failure.value.retryable
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("body", "reason", "retryable"),
    [
        ({"error": {"message": "upstream overloaded", "code": 503}}, "upstream overloaded", True),
        ({"error": "no credit"}, "no credit", False),
        ({"object": "chat.completion", "choices": []}, "no choices", False),
        ("<html>gateway</html>", "failed", False),
    ],
)
async def test_status_200_with_an_error_inside_is_an_error(
    endpoint: Endpoint, tmp_path: Path, body: Any, reason: str, retryable: bool
) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    endpoint.script = [(200, body, {} if isinstance(body, dict) else {"Content-Type": "text/html"}), said("fine")]
    with pytest.raises(ModelError, match=reason) as failure:
        await model(endpoint, cache=cache).complete(ASK, purpose="route")
    assert failure.value.retryable is retryable
    assert (await model(endpoint, cache=cache).complete(ASK, purpose="route")).text == "fine"


async def test_nobody_listening_is_a_retryable_error_that_names_the_endpoint(endpoint: Endpoint) -> None:
    endpoint.server.shutdown()
    endpoint.server.server_close()
    with pytest.raises(ModelError, match=rf"{endpoint.url} failed \(no connection") as failure:
        await model(endpoint, retries=0).complete(ASK, purpose="route")
    assert failure.value.retryable


async def test_the_key_is_read_at_call_time_and_never_shown(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="lm")
    endpoint.script = [(401, {"error": {"message": f"bad key {SECRET}, see {SECRET}"}}, {}), said("ok")]
    chat = model(endpoint)
    with pytest.raises(ModelError, match=r"set ROUTE_KEY to a valid key") as failure:
        await chat.complete(ASK, purpose="route")
    assert SECRET not in "".join(traceback.format_exception(failure.value))
    assert SECRET not in caplog.text
    monkeypatch.setenv("ROUTE_KEY", "second")
    await chat.complete(ASK, purpose="route")
    monkeypatch.delenv("ROUTE_KEY")
    await chat.complete(ASK, purpose="route")
    assert endpoint.keys[1:] == ["Bearer second", "Bearer none"]


def one_token(**probabilities: float) -> dict[str, Any]:
    tops = [{"token": token, "logprob": math.log(share), "bytes": None} for token, share in probabilities.items()]
    return {"content": [{**tops[0], "top_logprobs": tops}], "refusal": None}


async def test_label_logprobs_add_up_the_spellings_of_a_label(endpoint: Endpoint) -> None:
    endpoint.script = [said("A", logprobs=one_token(**{"A": 0.5, " A": 0.2, "B": 0.1, "\n": 0.2}))]
    scores = await model(endpoint).label_logprobs(ASK, ["A", "B", "C"], purpose="route")
    assert scores == {"A": pytest.approx(math.log(0.7)), "B": pytest.approx(math.log(0.1)), "C": -math.inf}
    assert endpoint.requests[0]["top_logprobs"] == 20
    assert "response_format" not in endpoint.requests[0]


async def test_labels_that_start_alike_and_missing_logprobs_are_errors(endpoint: Endpoint) -> None:
    endpoint.script = [said("in", logprobs=one_token(**{"in": 1.0}))]
    with pytest.raises(ModelError, match="start with the same token"):
        await model(endpoint).label_logprobs(ASK, ["insight", "input"], purpose="route")
    endpoint.script = [said("A")]
    with pytest.raises(ModelError, match="gives no log-probabilities"):
        await model(endpoint).label_logprobs(ASK, ["A", "B"], purpose="route")


def test_one_model_serves_several_event_loops(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    chat = model(endpoint)
    for _ in range(2):
        assert asyncio.run(chat.complete(ASK, purpose="route")).text == "a"


def test_a_damaged_cache_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(MemrouteError, match=r"cache\.sqlite cannot be used"):
        ResponseCache(tmp_path / "cache.sqlite")


def test_importing_the_client_loads_no_openai() -> None:
    import subprocess
    import sys

    code = "import sys, lm.client; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
