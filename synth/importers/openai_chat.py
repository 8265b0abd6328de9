"""Runs as OpenAI chat messages, one JSON object per line: `messages`, and beside it what is known of the run.

Known keys beside `messages`: task_id (or id, instance_id), correct, agent (or model), family, provider, memory,
in_mode, repeat, previews.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers.types import Step
from synth.importers.finished import (
    ANSWERS,
    MESSAGE,
    Finished,
    arguments_of,
    lineage_of,
    outcome_of,
    text_of,
    trajectory_of,
)

FORM = "openai"


def finished(row: Mapping[str, Any]) -> Finished:
    """One row. Raises ValueError or KeyError for what is none."""
    messages = [message for message in row["messages"] if isinstance(message, Mapping)]
    agent = str(row.get("agent") or row.get("model") or "imported")
    steps = list(_steps(messages, agent))
    answer = _answer(messages, steps)
    if steps and steps[-1].tool == MESSAGE and steps[-1].thought == answer:
        steps.pop()
    provider, memory = row.get("provider"), row.get("memory")
    in_mode = row.get("in_mode", "query")
    if in_mode not in ("query", "no_op"):
        raise ValueError(f"its in_mode is {in_mode!r}, which is neither query nor no_op")
    return Finished(
        trajectory=trajectory_of(
            form=FORM,
            task_id=str(row.get("task_id") or row.get("id") or row.get("instance_id") or ""),
            question=next((text_of(one.get("content")) for one in messages if one.get("role") == "user"), ""),
            agent=agent,
            steps=steps,
            answer=answer,
            memory=(str(provider), str(memory)) if provider and memory else None,
        ),
        outcome=outcome_of(row.get("correct")),
        family=str(row.get("family") or ""),
        provider=None if provider is None else str(provider),
        in_mode=in_mode,
        repeat=int(row.get("repeat") or 0),
        previews={str(name): str(text) for name, text in dict(row.get("previews") or {}).items()},
    )


def _steps(messages: Sequence[Mapping[str, Any]], agent: str) -> Iterator[Step]:
    """One step per tool call with what came back, and one per turn in which the agent spoke."""
    for place, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        thought, calls = text_of(message.get("content")).strip(), _calls(message)
        for number, (identity, name, arguments) in enumerate(calls):
            observation = _reply(messages[place + 1 :], identity, name, number)
            yield Step(
                index=0,
                thought=thought if number == 0 else "",
                tool=name,
                arguments=arguments,
                observation=observation or "",
                error=None if observation is not None or name in ANSWERS else "no answer to the call",
                lineage=lineage_of(name, arguments, agent, FORM),
            )
        if thought and not calls:
            yield Step(index=0, thought=thought, tool=MESSAGE, observation=_said_next(messages[place + 1 :]))


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Identity, name and arguments of each call; `function_call` is the older spelling of one."""
    calls = list(message.get("tool_calls") or ())
    if message.get("function_call"):
        calls.append({"id": "", "function": message["function_call"]})
    return [
        (str(call.get("id") or ""), str(call["function"]["name"]), arguments_of(call["function"].get("arguments")))
        for call in calls
    ]


def _reply(following: Sequence[Mapping[str, Any]], identity: str, name: str, number: int) -> str | None:
    """What a call gave: the tool message with its id; without ids, the one in its place before the next turn."""
    unnamed = []
    for message in following:
        if message.get("role") == "assistant":
            break
        if message.get("role") in ("tool", "function"):
            answered = str(message.get("tool_call_id") or "")
            if answered and answered == identity:
                return text_of(message.get("content"))
            if not answered and message.get("name", name) == name:
                unnamed.append(text_of(message.get("content")))
    return unnamed[min(number, len(unnamed) - 1)] if unnamed else None


def _said_next(following: Sequence[Mapping[str, Any]]) -> str:
    message = following[0] if following else {}
    return text_of(message.get("content")) if message.get("role") == "user" else ""


def _answer(messages: Sequence[Mapping[str, Any]], steps: Sequence[Step]) -> str | None:
    """What the last turn says: the text of an answering tool, or its words."""
    if steps and steps[-1].tool in ANSWERS:
        values = steps[-1].arguments.values()
        return " ".join(str(value) for value in values if value).strip() or steps[-1].thought or None
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant" and not _calls(last):
        return text_of(last.get("content")).strip() or None
    return None
