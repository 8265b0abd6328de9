"""A chat as its client sends it, read as a task: its question, its steps so far, and where memory goes into it.

Messages are the plain objects of the chat interface. Nothing in them is changed but what memory is added to, so that
whatever a client and its endpoint understand between themselves goes through.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.types import content_hash, well_formed
from serve.messages import SentStep

Chat = Sequence[Mapping[str, Any]]

SAID = "message"
"""The tool's name of a step in which the agent wrote text and got text back, as code agents do."""
UNNAMED = "unnamed"
SYSTEM = ("system", "developer")


@dataclass(frozen=True)
class Reply:
    """What the model answered, as far as it came."""

    text: str
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it asks for."""
    finish: str = ""


def text_of(content: Any) -> str:
    """The text of a message's content, which is a string, parts, or nothing."""
    if isinstance(content, str):
        return well_formed(content)
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return well_formed("\n".join(part for part in parts if isinstance(part, str)))
    return ""


def question_of(chat: Chat) -> str:
    """The first message of the user; empty where there is none, and so no task."""
    place = _first_user(chat)
    return "" if place is None else text_of(chat[place].get("content")).strip()


def opening_of(chat: Chat) -> str:
    """The identity of what a task starts with: all messages up to the user's first."""
    return content_hash("opening", list(chat[: (_first_user(chat) or 0) + 1]))


def extends(chat: Chat, length: int, seen: str) -> bool:
    """Whether `chat` goes on from one of `length` messages with the identity `seen`."""
    return len(chat) >= length and identity_of(chat[:length]) == seen


def identity_of(chat: Chat) -> str:
    return content_hash("chat", list(chat))


def said_first(chat: Chat) -> str:
    """The identity of the first thing that the model said; empty where it has said nothing yet."""
    first = next((message for message in chat if message.get("role") == "assistant"), None)
    return "" if first is None else content_hash("said", dict(first))


def steps_of(chat: Chat) -> list[SentStep]:
    """What the agent did and saw after the user's first message, in order; a call without its result is left out."""
    first = _first_user(chat)
    if first is None:
        return []
    rest = chat[first + 1 :]
    results = {
        str(message.get("tool_call_id")): text_of(message.get("content"))
        for message in rest
        if message.get("role") == "tool"
    }
    return [step for place in range(len(rest)) for step in _steps_at(rest, place, results)]


def with_memory(chat: Chat, memory: str, working: str) -> list[Mapping[str, Any]]:
    """The chat with long-term memory in its system prompt, and working memory after what was said last.

    The system prompt is the same at every step of a task, so that an endpoint's prefix cache holds it.
    """
    messages = list(chat)
    if memory:
        place = next((i for i, message in enumerate(messages) if message.get("role") in SYSTEM), None)
        if place is None:
            messages.insert(0, {"role": "system", "content": memory})
        else:
            messages[place] = _with_text(messages[place], memory)
    if working:
        if messages and messages[-1].get("role") == "user":
            messages[-1] = _with_text(messages[-1], working)
        else:
            messages.append({"role": "user", "content": working})
    return messages


def reply_of(body: bytes) -> Reply | None:
    """The first choice of a whole answer; None where there is none to read."""
    try:
        choice = json.loads(body)["choices"][0]
        message = choice["message"]
        calls = [str(call.get("id") or "") for call in _calls(message)]
        return Reply(text_of(message.get("content")), tuple(calls), str(choice.get("finish_reason") or ""))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def streamed_reply(events: bytes) -> Reply | None:
    """The first choice of an answer that came as server-sent events; None where there is none to read."""
    text, calls, finish, found = "", dict[int, str](), "", False
    for delta, ended in _deltas(events):
        found = True
        text += text_of(delta.get("content"))
        for call in _calls(delta):
            place = call.get("index") if isinstance(call.get("index"), int) else len(calls)
            calls[int(place or 0)] = calls.get(int(place or 0), "") or str(call.get("id") or "")
        finish = ended or finish
    return Reply(text, tuple(calls.values()), finish) if found else None


def _deltas(events: bytes) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The first choice's delta of every event that has one, with its finish reason."""
    for line in events.decode("utf-8", "replace").splitlines():
        field, _, value = line.partition(":")
        if field != "data":
            continue
        try:
            choices = json.loads(value)["choices"]
        except (ValueError, KeyError, TypeError):
            continue
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping) and not choice.get("index") and isinstance(choice.get("delta"), Mapping):
                yield choice["delta"], str(choice.get("finish_reason") or "")


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tool calls of a message, those that are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def _first_user(chat: Chat) -> int | None:
    return next((place for place, message in enumerate(chat) if message.get("role") == "user"), None)


def _steps_at(chat: Chat, place: int, results: Mapping[str, str]) -> list[SentStep]:
    message = chat[place]
    if message.get("role") != "assistant":
        return []
    said, calls = text_of(message.get("content")), _calls(message)
    if not calls:
        answered = chat[place + 1] if place + 1 < len(chat) else {}
        if answered.get("role") != "user":
            return []
        return [SentStep(tool=SAID, thought=said, observation=text_of(answered.get("content")))]
    steps = []
    for call in calls:
        seen = results.get(str(call.get("id")))
        if seen is not None:
            function = call.get("function") if isinstance(call.get("function"), Mapping) else {}
            name, given = well_formed(str((function or {}).get("name") or UNNAMED)), (function or {}).get("arguments")
            steps.append(SentStep(tool=name[:200], arguments=_arguments(given), observation=seen, thought=said))
    return steps


def _arguments(given: Any) -> dict[str, Any]:
    """A call's arguments as an object; what is none is kept as it was written."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        value = given
    return dict(value) if isinstance(value, Mapping) else {} if value is None else {"arguments": value}


def _with_text(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": text}]}
    return {**message, "content": f"{content}\n\n{text}" if content else text}
