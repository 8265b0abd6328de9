"""The chat-model client against a scripted endpoint on loopback."""

from __future__ import annotations

import asyncio
import logging
import math
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from scripted_endpoint import Endpoint, Play, said

import lm.client
from lm.cache import ResponseCache
from lm.client import ChatModel
from lm.cost import Ledger, Price
from lm.errors import AnswerError, MemrouteError, ModelError
from lm.types import Message, ToolCall, ToolSpec

ASK = [Message(role="user", content="Which provider?")]
SECRET = "sk-very-secret-key"


class Choice(BaseModel):
    provider: str
    reason: str = Field(default="", max_length=80)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("ROUTE_KEY", SECRET)
    monkeypatch.setattr(lm.client, "FIRST_BACKOFF", 0.01)
    endpoint = Endpoint()
    yield endpoint
    endpoint.stop()


def model(endpoint: Endpoint, **options: Any) -> ChatModel:
    return ChatModel(endpoint.url, "m", "ROUTE_KEY", **{"retries": 1, **options})


async def test_a_completion_with_its_usage_and_cost_by_purpose(endpoint: Endpoint) -> None:
    endpoint.script = [said("expel")]
    chat = model(endpoint, price=Price(prompt=1.0, completion=2.0))
    answer = await chat.complete(ASK, purpose="router", max_tokens=7)
    assert (answer.text, answer.finish_reason, answer.logprobs) == ("expel", "stop", None)
    assert endpoint.requests[0]["messages"] == [{"role": "user", "content": "Which provider?"}]
    assert endpoint.requests[0]["max_tokens"] == 7
    assert endpoint.requests[0]["temperature"] == 0.0
    assert "seed" not in endpoint.requests[0]
    assert endpoint.keys == [f"Bearer {SECRET}"]
    assert chat.ledger.by_purpose["router"].cost == pytest.approx(20e-6)


async def test_unknown_price_or_usage_costs_none_and_not_nothing(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    chat = model(endpoint)
    await chat.complete(ASK, purpose="judge")
    assert chat.ledger.by_purpose["judge"].cost is None
    endpoint.script = [said("a"), said("a", usage=False)]
    priced = model(endpoint, price=Price(1.0, 1.0))
    await priced.complete(ASK, purpose="router")
    await priced.complete(ASK, purpose="judge")
    assert priced.ledger.by_purpose["router"].cost == pytest.approx(15e-6)
    assert priced.ledger.total().cost is None
    assert priced.ledger.total().calls == 2
    assert priced.ledger.total().prompt_tokens == 10


async def test_the_cache_answers_what_was_asked_and_nothing_else(endpoint: Endpoint, tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    endpoint.script = [said(str(number)) for number in range(10)]
    chat = model(endpoint, cache=cache)
    first = await chat.complete(ASK, purpose="router")
    assert await model(endpoint, cache=ResponseCache(tmp_path / "cache.sqlite")).complete(ASK, purpose="judge") == first
    assert len(endpoint.requests) == 1
    changed = [
        await chat.complete([Message(role="user", content="Other?")], purpose="router"),
        await chat.complete(ASK, purpose="router", temperature=0.5),
        await chat.complete(ASK, purpose="router", max_tokens=5),
        await chat.complete(ASK, purpose="router", sample=1),
        await chat.complete(ASK, purpose="router", top_logprobs=3),
        await chat.complete(ASK, purpose="router", response_format={"type": "json_object"}),
        await chat.complete(ASK, purpose="router", tools=[ToolSpec(name="t", description="", parameters={})]),
        await ChatModel(endpoint.url, "n", "ROUTE_KEY", cache=cache, ledger=chat.ledger).complete(
            ASK, purpose="router"
        ),
    ]
    assert len({answer.text for answer in changed}) == len(changed)
    assert len(endpoint.requests) == 9
    assert chat.ledger.by_purpose["router"].misses == {
        "new prompt": 2,
        "other seed and temperature": 1,
        "other max_tokens": 1,
        "other sample": 1,
        "other logprobs and top_logprobs": 1,
        "other response_format": 1,
        "other parallel_tool_calls and tools": 1,
        "other model": 1,
    }
    assert await chat.complete(ASK, purpose="router") == first
    assert chat.ledger.by_purpose["router"].cached == 1
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


async def test_samples_are_told_apart_by_their_seed(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    await model(endpoint, temperature=0.7).complete(ASK, purpose="router", sample=3)
    assert endpoint.requests[0]["seed"] == 3


async def test_a_model_of_one_temperature_is_never_sent_another(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    for asked in (None, 0.0, 0.5):
        await model(endpoint, temperature=None).complete(ASK, purpose="router", temperature=asked, sample=3)
    assert not any("temperature" in request for request in endpoint.requests)
    assert [request["seed"] for request in endpoint.requests] == [3, 3, 3]


async def test_thoughts_that_count_against_the_limit_are_added_to_it(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    await model(endpoint, thinking_tokens=4000).complete(ASK, purpose="router", max_tokens=64)
    assert endpoint.requests[0]["max_tokens"] == 4064


async def test_structured_asks_for_a_strict_schema_and_reads_through_prose_and_fences(endpoint: Endpoint) -> None:
    endpoint.script = [said('<think>{"no": 1}</think>Sure:\n```json\n{"provider": "awm", "reason": "fits"}\n```')]
    assert (await model(endpoint).structured(ASK, Choice, purpose="router")) == Choice(provider="awm", reason="fits")
    asked = endpoint.requests[0]["response_format"]["json_schema"]
    assert asked["strict"] is True
    assert asked["schema"]["required"] == ["provider", "reason"]
    assert asked["schema"]["additionalProperties"] is False
    assert "default" not in asked["schema"]["properties"]["reason"]


async def test_prose_instead_of_json_is_repaired_once(endpoint: Endpoint) -> None:
    endpoint.script = [said("I would take expel."), said('{"provider": "expel", "reason": ""}')]
    assert (await model(endpoint).structured(ASK, Choice, purpose="router")).provider == "expel"
    turns = endpoint.requests[1]["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[1]["content"] == "I would take expel."
    assert "no JSON object" in turns[2]["content"]


async def test_a_wrong_field_is_named_and_a_second_failure_is_an_error(endpoint: Endpoint) -> None:
    endpoint.script = [said('{"provider": 3}'), said('{"provider": ', finish="length")]
    with pytest.raises(ModelError, match=r"no readable Choice in two answers.*cut off") as failure:
        await model(endpoint).structured(ASK, Choice, purpose="router")
    assert not failure.value.retryable
    assert "provider: " in endpoint.requests[1]["messages"][2]["content"]
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "0.3"}, {"retry-after-ms": "300"}], ids=["seconds", "milliseconds"]
)
async def test_429_is_asked_again_after_the_time_that_the_endpoint_names(
    endpoint: Endpoint, headers: dict[str, str]
) -> None:
    endpoint.script = [Play(429, {"error": {"message": "slow down"}}, headers), said("expel")]
    chat = model(endpoint)
    assert (await chat.complete(ASK, purpose="router")).text == "expel"
    assert endpoint.times[1] - endpoint.times[0] >= 0.3
    assert chat.ledger.by_purpose["router"].retries == 1


async def test_429_without_a_time_is_asked_again_and_then_a_rate_limited_error(endpoint: Endpoint) -> None:
    endpoint.script = [Play(429, {"error": {"message": "slow down"}})]
    chat = model(endpoint, retries=2)
    with pytest.raises(ModelError, match=r"429: slow down\): wait, or lower the concurrency") as failure:
        await chat.complete(ASK, purpose="judge")
    assert (failure.value.retryable, failure.value.rate_limited) == (True, True)
    assert len(endpoint.requests) == 3
    assert (chat.ledger.by_purpose["judge"].failed, chat.ledger.by_purpose["judge"].calls) == (1, 0)


async def test_an_endpoint_that_asks_to_wait_for_long_is_not_waited_for(endpoint: Endpoint) -> None:
    endpoint.script = [Play(429, {"error": {"message": "tomorrow"}}, {"Retry-After": "86400"})]
    with pytest.raises(ModelError, match="tomorrow") as failure:
        await model(endpoint).complete(ASK, purpose="router")
    assert failure.value.retry_after == 86400
    assert len(endpoint.requests) == 1


async def test_an_empty_account_is_not_asked_again(endpoint: Endpoint) -> None:
    endpoint.script = [Play(429, {"error": {"message": "no quota", "code": "insufficient_quota"}})]
    with pytest.raises(ModelError, match="top up the account") as failure:
        await model(endpoint).complete(ASK, purpose="router")
    assert not failure.value.retryable
    assert len(endpoint.requests) == 1


async def test_calls_that_wait_for_a_rate_limit_are_counted_while_they_wait(endpoint: Endpoint) -> None:
    endpoint.script = [Play(429, {"error": "slow"}, {"Retry-After": "0.2"}), said("a")]
    ledger = Ledger()
    asked = asyncio.create_task(model(endpoint, ledger=ledger).complete(ASK, purpose="agent"))
    while not ledger.waiting:
        await asyncio.sleep(0.005)
    assert not asked.done()
    await asked
    assert ledger.waiting == 0


async def test_429_shrinks_how_many_calls_go_at_once_and_500_does_not(endpoint: Endpoint) -> None:
    endpoint.answer = lambda request: said("a")
    chat = model(endpoint, concurrency=8, retries=3)

    async def ask(number: int) -> None:
        await chat.complete([Message(role="user", content=f"{number}")], purpose="router")

    await ask(0)
    assert chat._gate.limit == 8
    endpoint.answer, endpoint.script = None, [Play(500, {"error": "down"}), said("a")]
    await ask(1)
    assert chat._gate.limit == 8
    endpoint.script = [Play(429, {"error": "slow"}, {"Retry-After": "0.01"}), said("a")]
    await ask(2)
    assert chat._gate.limit == 4


async def test_500_is_retried_and_then_a_retryable_error(endpoint: Endpoint) -> None:
    endpoint.script = [Play(500, {"error": {"message": "out of memory"}})]
    with pytest.raises(ModelError, match=r"500: .*out of memory.*check that the endpoint runs") as failure:
        await model(endpoint).complete(ASK, purpose="router")
    assert failure.value.retryable
    assert not failure.value.rate_limited
    assert len(endpoint.requests) == 2


async def test_a_dropped_answer_is_asked_again(endpoint: Endpoint) -> None:
    dropped = said("expel")
    dropped.drop = 20
    endpoint.script = [dropped, said("expel")]
    assert (await model(endpoint).complete(ASK, purpose="router")).text == "expel"
    endpoint.script = [dropped]
    with pytest.raises(ModelError, match="no connection") as failure:
        await model(endpoint).complete(ASK, purpose="router")
    assert failure.value.retryable


async def test_an_endpoint_that_hangs_is_given_up_at_the_deadline(endpoint: Endpoint) -> None:
    endpoint.script = [Play(200, {}, hang=30.0)]
    with pytest.raises(ModelError, match=r"no answer within 0\.1 s\): check that the endpoint runs") as failure:
        await model(endpoint, timeout=0.1).complete(ASK, purpose="router")
    assert failure.value.retryable
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("text", [None, "", " \n"])
async def test_null_content_is_an_empty_answer_that_is_paid_for_and_not_kept(
    endpoint: Endpoint, tmp_path: Path, text: str | None
) -> None:
    endpoint.script = [said(text), said("fine")]
    chat = model(endpoint, cache=ResponseCache(tmp_path / "cache.sqlite"), price=Price(1.0, 1.0))
    answer = await chat.complete(ASK, purpose="judge")
    assert answer.empty
    assert chat.ledger.by_purpose["judge"].cost == pytest.approx(15e-6)
    assert (await chat.complete(ASK, purpose="judge")).text == "fine"


async def test_null_content_and_a_refusal_are_unreadable_where_a_shape_is_wanted(endpoint: Endpoint) -> None:
    endpoint.script = [said(None), said(None, refusal="I cannot help."), said('{"provider": "awm"}')]
    with pytest.raises(AnswerError, match="no readable Choice in two answers"):
        await model(endpoint).structured(ASK, Choice, purpose="judge")
    assert (await model(endpoint).structured(ASK, Choice, purpose="judge")).provider == "awm"


async def test_tool_calls_come_back_as_written_and_go_out_with_their_answers(endpoint: Endpoint) -> None:
    tool = ToolSpec(name="open", description="Open a page.", parameters={"type": "object", "properties": {}})
    endpoint.script = [
        said(None, calls=[("open", '{"page": "Chad"}'), ("open", {"page": "Mali"})], finish="tool_calls")
    ]
    answer = await model(endpoint).complete(ASK, purpose="agent", tools=[tool], tool_choice="required")
    assert endpoint.requests[0]["tools"][0]["function"]["name"] == "open"
    assert endpoint.requests[0]["tool_choice"] == "required"
    assert answer.tool_calls == (
        ToolCall(id="call_0", name="open", arguments='{"page": "Chad"}'),
        ToolCall(id="call_1", name="open", arguments='{"page": "Mali"}'),
    )
    turns = [
        *ASK,
        Message(role="assistant", tool_calls=answer.tool_calls[:1]),
        Message(role="tool", content="# Chad", tool_call_id="call_0"),
    ]
    await model(endpoint).complete(turns, purpose="agent", tools=[tool])
    sent = endpoint.requests[1]["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "open", "arguments": '{"page": "Chad"}'}
    assert (sent[2]["role"], sent[2]["tool_call_id"]) == ("tool", "call_0")


async def test_half_a_surrogate_pair_does_not_stop_a_call(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.script = [said("a")]
    chat = model(endpoint, cache=ResponseCache(tmp_path / "cache.sqlite"))
    await chat.complete([Message(role="user", content="page \ud800 end")], purpose="agent")
    assert endpoint.requests[0]["messages"][0]["content"] == "page ? end"


async def test_options_of_the_endpoint_go_with_every_request(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    await model(endpoint, options={"top_p": 0.9, "guide": {"deep": True}}).complete(ASK, purpose="router")
    assert endpoint.requests[0]["top_p"] == 0.9
    assert endpoint.requests[0]["guide"] == {"deep": True}


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_what_cannot_get_better_is_not_retried(endpoint: Endpoint, status: int) -> None:
    endpoint.script = [Play(status, {"error": {"message": "no"}})]
    with pytest.raises(ModelError, match=f"{status}: ") as failure:
        await model(endpoint).complete(ASK, purpose="router")
    assert not failure.value.retryable
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("body", "reason", "retryable"),
    [
        ({"error": {"message": "upstream overloaded", "code": 503}}, "upstream overloaded", True),
        ({"error": "no credit"}, "no credit", False),
        ({"object": "chat.completion", "choices": []}, "no choices", False),
        ({"choices": [{"message": None}]}, r"no choices that can be read \(choices", False),
        ({"choices": "none"}, "no choices", False),
        ([1, 2], "no choices", False),
        ("<html>gateway</html>", "no JSON", False),
        ('{"choices": [{"message": {"content": "cut o', "no JSON", False),
        ("null", "no choices", False),
    ],
)
async def test_status_200_with_an_error_inside_is_an_error(
    endpoint: Endpoint, tmp_path: Path, body: Any, reason: str, retryable: bool
) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    endpoint.script = [Play(200, body, {} if isinstance(body, dict) else {"Content-Type": "text/html"}), said("fine")]
    with pytest.raises(ModelError, match=reason) as failure:
        await model(endpoint, cache=cache, retries=0).complete(ASK, purpose="router")
    assert failure.value.retryable is retryable
    assert (await model(endpoint, cache=cache).complete(ASK, purpose="router")).text == "fine"


async def test_nobody_listening_is_a_retryable_error_that_names_the_endpoint(endpoint: Endpoint) -> None:
    endpoint.stop()
    with pytest.raises(ModelError, match=rf"{endpoint.url} failed \(no connection") as failure:
        await model(endpoint, retries=0).complete(ASK, purpose="router")
    assert failure.value.retryable


async def test_the_key_is_read_at_call_time_and_never_shown(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint.script = [Play(401, {"error": {"message": f"bad key {SECRET}, see {SECRET}"}}), said("ok")]
    chat = model(endpoint)
    with pytest.raises(ModelError, match=r"set ROUTE_KEY to a valid key") as failure:
        await chat.complete(ASK, purpose="router")
    assert SECRET not in "".join(traceback.format_exception(failure.value))
    assert failure.value.__context__ is None
    assert SECRET not in caplog.text
    assert SECRET not in repr(vars(chat))
    monkeypatch.setenv("ROUTE_KEY", "second")
    await chat.complete(ASK, purpose="router")
    monkeypatch.delenv("ROUTE_KEY")
    await chat.complete(ASK, purpose="router")
    assert endpoint.keys[1:] == ["Bearer second", "Bearer none"]


def one_token(**probabilities: float) -> dict[str, Any]:
    tops = [{"token": token, "logprob": math.log(share), "bytes": None} for token, share in probabilities.items()]
    return {"content": [{**tops[0], "top_logprobs": tops}], "refusal": None}


async def test_label_logprobs_add_up_the_spellings_of_a_label(endpoint: Endpoint) -> None:
    endpoint.script = [said("A", logprobs=one_token(**{"A": 0.5, " A": 0.2, "B": 0.1, "\n": 0.2}))]
    scores = await model(endpoint).label_logprobs(ASK, ["A", "B", "C"], purpose="router")
    assert scores == {"A": pytest.approx(math.log(0.7)), "B": pytest.approx(math.log(0.1)), "C": -math.inf}
    assert endpoint.requests[0]["top_logprobs"] == 20
    assert "response_format" not in endpoint.requests[0]


async def test_labels_that_start_alike_and_missing_logprobs_are_errors(endpoint: Endpoint) -> None:
    endpoint.script = [said("in", logprobs=one_token(**{"in": 1.0}))]
    with pytest.raises(ModelError, match="start with the same token"):
        await model(endpoint).label_logprobs(ASK, ["insight", "input"], purpose="router")
    endpoint.script = [said("A")]
    with pytest.raises(ModelError, match="gives no log-probabilities"):
        await model(endpoint).label_logprobs(ASK, ["A", "B"], purpose="router")


def test_one_model_serves_several_event_loops(endpoint: Endpoint) -> None:
    endpoint.script = [said("a")]
    chat = model(endpoint)
    for _ in range(2):
        assert asyncio.run(chat.complete(ASK, purpose="router")).text == "a"


def test_a_damaged_cache_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(MemrouteError, match=r"cache\.sqlite cannot be used"):
        ResponseCache(tmp_path / "cache.sqlite")


def test_importing_the_client_loads_no_openai() -> None:
    import subprocess
    import sys

    code = "import sys, lm.client; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
