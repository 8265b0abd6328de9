"""Chats read as tasks: the question, the steps, where memory goes, and what the model answered."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.conversation import (
    SAID,
    Reply,
    extends,
    identity_of,
    opening_of,
    question_of,
    reply_of,
    steps_of,
    streamed_reply,
    text_of,
    with_memory,
)

SYSTEM = {"role": "system", "content": "You answer."}
ASKED = {"role": "user", "content": "What is the area of Chile?"}


def called(identity: str, name: str, arguments: Any, said: str | None = None) -> dict[str, Any]:
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": said, "tool_calls": [call]}


def result(identity: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": text}


def event(delta: dict[str, Any], finish: str | None = None, index: int = 0) -> str:
    return f"data: {json.dumps({'choices': [{'index': index, 'delta': delta, 'finish_reason': finish}]})}\n\n"


def test_the_question_is_what_the_user_said_first() -> None:
    assert question_of([SYSTEM, ASKED, {"role": "user", "content": "Quick."}]) == "What is the area of Chile?"
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {}},
        {"type": "text", "text": "what?"},
    ]
    assert question_of([{"role": "user", "content": parts}]) == "Look:\nwhat?"
    assert question_of([SYSTEM]) == question_of([]) == ""


def test_a_task_goes_on_from_its_own_messages_alone() -> None:
    first = [SYSTEM, ASKED]
    second = [*first, called("1", "open", "{}"), result("1", "756,102")]
    seen = identity_of(first)
    assert opening_of(first) == opening_of(second)
    assert extends(second, 2, seen)
    assert extends(first, 2, seen)
    assert not extends([SYSTEM], 2, seen)
    assert not extends([SYSTEM, {**ASKED, "content": "Other?"}, *second[2:]], 2, seen)
    assert opening_of([{**SYSTEM, "content": "Be brief."}, ASKED]) != opening_of(first)


def test_tool_calls_and_their_results_are_steps() -> None:
    chat = [
        SYSTEM,
        ASKED,
        {
            "role": "assistant",
            "content": "Two pages.",
            "tool_calls": [
                *called("1", "open", '{"page": "chile"}')["tool_calls"],
                *called("2", "open", "not json")["tool_calls"],
                *called("3", "open", "{}")["tool_calls"],
            ],
        },
        result("2", "nothing"),
        result("1", "Area: 756,102 sq km"),
    ]
    steps = steps_of(chat)
    assert [(step.tool, step.arguments, step.observation) for step in steps] == [
        ("open", {"page": "chile"}, "Area: 756,102 sq km"),
        ("open", {"arguments": "not json"}, "nothing"),
    ]
    assert steps[0].thought == "Two pages."


def test_an_agent_that_writes_code_steps_by_messages() -> None:
    chat = [ASKED, {"role": "assistant", "content": "print(1)"}, {"role": "user", "content": "Observation: 1"}]
    [step] = steps_of([*chat, {"role": "assistant", "content": "It is 1."}])
    assert (step.tool, step.thought, step.observation) == (SAID, "print(1)", "Observation: 1")


def test_memory_goes_into_the_system_prompt_and_working_memory_behind_the_last_words() -> None:
    chat = [SYSTEM, ASKED]
    shown = with_memory(chat, "From earlier tasks", "So far")
    assert shown[0]["content"] == "You answer.\n\nFrom earlier tasks"
    assert shown[1]["content"] == "What is the area of Chile?\n\nSo far"
    assert chat == [{"role": "system", "content": "You answer."}, ASKED]
    bare = with_memory([ASKED, called("1", "open", "{}"), result("1", "x")], "M", "W")
    assert [message["role"] for message in bare] == ["system", "user", "assistant", "tool", "user"]
    parts = with_memory([{"role": "developer", "content": [{"type": "text", "text": "a"}]}], "M", "")
    assert parts == [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "M"}]}]
    assert with_memory(chat, "", "") == chat


def test_a_streamed_answer_is_put_together_from_its_first_choice() -> None:
    events = [
        event({"role": "assistant", "content": "The "}),
        event({"content": "other"}, index=1),
        event({"content": "area"}),
        event({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "open", "arguments": ""}}]}),
        event({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        ": a comment\n\n",
        event({}, "tool_calls"),
        'data: {"usage": {"total_tokens": 3}}\n\n',
        "data: [DONE]\n\n",
    ]
    reply = streamed_reply("".join(events).encode())
    assert reply is not None
    assert (reply.text, reply.calls, reply.finish) == ("The area", ("c1",), "tool_calls")
    cut = streamed_reply("".join(events).encode()[:120])
    assert cut is None or cut.finish == ""


def test_a_whole_answer_is_read_and_what_is_none_is_none() -> None:
    body = {"choices": [{"message": {"content": "756,102"}, "finish_reason": "stop"}]}
    reply = reply_of(json.dumps(body).encode())
    assert reply is not None
    assert (reply.text, reply.calls, reply.finish) == ("756,102", (), "stop")
    for bad in (b"", b"<html>", b"{}", b'{"choices": []}', b'{"choices": [1]}'):
        assert reply_of(bad) is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "index", "function", "name", "arguments", "text"]), inner, max_size=4)
    ),
    max_leaves=6,
)
message = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id"]),
    st.sampled_from(["system", "user", "assistant", "tool"]) | anything,
)


@given(st.lists(message, max_size=5))
def test_no_chat_that_is_a_list_of_objects_is_a_crash(chat: list[dict[str, Any]]) -> None:
    question_of(chat)
    opening_of(chat)
    steps = steps_of(chat)
    assert all(step.tool for step in steps)
    shown = with_memory(chat, "memory", "working")
    assert "memory" in "".join(text_of(m.get("content")) for m in shown)
    assert with_memory(chat, "", "") == chat


def test_ids_and_calls_of_other_types_are_no_crash() -> None:
    odd: list[dict[str, Any]] = [{"role": "tool", "tool_call_id": [], "content": "x"}]
    odd += [{"role": "assistant", "tool_calls": calls} for calls in (5, "no", [{"id": {}}], {"id": "1"})]
    assert steps_of([ASKED, *odd]) == []
    chat = [ASKED, called("1", "open", "{}", ""), result("1", "y"), *odd]
    assert [step.observation for step in steps_of(chat)] == ["y"]
    event = "data: " + json.dumps({"choices": [{"delta": {"content": "a", "tool_calls": 5}}]})
    assert streamed_reply(event.encode()) == Reply("a")


@given(st.lists(message, max_size=3))
def test_no_delta_is_a_crash(deltas: list[dict[str, Any]]) -> None:
    events = [f"data: {json.dumps({'choices': [{'delta': delta}]})}\n" for delta in deltas]
    reply = streamed_reply("".join(events).encode())
    assert (reply is None) == (not deltas)


def test_half_a_surrogate_pair_is_mended() -> None:
    [step] = steps_of([ASKED, called("1", "open\ud800", '{"a": 1}', "\ud800"), result("1", "x\udfff")])
    assert (step.tool, step.thought, step.observation) == ("open\ufffd", "\ufffd", "x\ufffd")


@given(st.binary(max_size=200))
def test_no_stream_is_a_crash(events: bytes) -> None:
    streamed_reply(events)
    streamed_reply(b"data: " + events)
    reply_of(events)


@pytest.mark.parametrize("content", [None, 3, {"text": "x"}, [None, 3, {"text": 4}]])
def test_content_that_is_no_text_is_empty(content: Any) -> None:
    assert text_of(content) == ""
