"""OpenHands' event logs: a list of events, rows with their `history`, or the newer event objects with a `kind`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from providers.types import Step
from synth.importers.finished import MESSAGE, Finished, lineage_of, outcome_of, text_of, trajectory_of

FORM = "openhands"

_NO_ACTION = frozenset({"system", "recall", "null", "change_agent_state", "condensation", "loop_recovery", "pause"})
"""Events that the platform makes for itself."""
_NO_ARGUMENTS = frozenset({"thought", "kind", "hidden", "blocking", "confirmation_state", "security_risk", "is_input"})

Event = Mapping[str, Any]


def finished(row: Mapping[str, Any], task_id: str) -> Finished:
    """One run: `{"history": events, "instance_id": ...}`. Raises ValueError or KeyError for what is none."""
    events = list(_flat(row["history"]))
    agent = str(row.get("agent") or _metadata(row, "agent_class") or FORM)
    kinds = any("kind" in event for event in events)
    read = _Newer(events, agent) if kinds else _Older(events, agent)
    steps = list(read.steps())
    return Finished(
        trajectory=trajectory_of(
            form=FORM,
            task_id=str(row.get("instance_id") or task_id),
            question=read.question(),
            agent=agent,
            steps=steps,
            answer=read.answer(),
            status=(str(row.get("error") or ""),),
        ),
        outcome=outcome_of(_resolved(row)),
        provider=None if row.get("provider") is None else str(row["provider"]),
    )


class _Older:
    """Events with `action` or `observation`; an observation names its action by `cause`."""

    def __init__(self, events: Sequence[Event], agent: str) -> None:
        self._events, self._agent = events, agent
        self._observed = {event["cause"]: event for event in events if "observation" in event and "cause" in event}

    def question(self) -> str:
        said = (event for event in self._events if event.get("action") == MESSAGE and event.get("source") == "user")
        first = next(said, None)
        return "" if first is None else _argument(first, "content")

    def steps(self) -> Iterator[Step]:
        for place, event in enumerate(self._events):
            name = str(event.get("action") or "")
            if not name or name in _NO_ACTION or name == "finish" or event.get("source") == "user":
                continue
            if name == MESSAGE:
                if place < len(self._events) - 1:
                    reply = self._events[place + 1]
                    heard = _argument(reply, "content") if reply.get("source") == "user" else ""
                    yield Step(index=0, thought=_argument(event, "content"), tool=MESSAGE, observation=heard)
                continue
            yield self._step(event, name)

    def _step(self, event: Event, name: str) -> Step:
        arguments = {key: value for key, value in (event.get("args") or {}).items() if _shown(key, value)}
        seen = self._observed.get(event.get("id"), {})
        content = str(seen.get("content") or seen.get("message") or "")
        code = ((seen.get("extras") or {}).get("metadata") or {}).get("exit_code")
        failed = seen.get("observation") == "error" or (isinstance(code, int) and code > 0)
        return Step(
            index=0,
            thought=_argument(event, "thought"),
            tool=name,
            arguments=arguments,
            observation=content,
            error=_failure(content, code) if failed else None,
            lineage=lineage_of(name, arguments, self._agent, FORM),
        )

    def answer(self) -> str | None:
        for event in reversed(self._events):
            if event.get("action") == "finish":
                outputs = (event.get("args") or {}).get("outputs") or {}
                said = _argument(event, "final_thought") or str(outputs.get("content") or "")
                return said or _argument(event, "thought") or None
            if event.get("action") == MESSAGE and event.get("source") == "agent":
                return _argument(event, "content") or None
        return None


class _Newer:
    """Event objects of the agent SDK: ActionEvent, ObservationEvent, AgentErrorEvent, MessageEvent."""

    def __init__(self, events: Sequence[Event], agent: str) -> None:
        self._events, self._agent = events, agent
        self._observed = {
            event["tool_call_id"]: event
            for event in events
            if event.get("kind") in ("ObservationEvent", "AgentErrorEvent") and "tool_call_id" in event
        }

    def question(self) -> str:
        return next((_words(event) for event in self._messages("user")), "")

    def steps(self) -> Iterator[Step]:
        for event in self._events:
            if event.get("kind") != "ActionEvent" or _finishes(event):
                continue
            tool = str(event.get("tool_name") or "unknown")
            arguments = {key: value for key, value in (event.get("action") or {}).items() if _shown(key, value)}
            seen = self._observed.get(event.get("tool_call_id"), {})
            error = str(seen.get("error") or "") or None
            observation = seen.get("observation") or {}
            content = text_of(observation.get("content")) or str(observation.get("output") or "") or (error or "")
            code = observation.get("exit_code")
            if error is None and ((isinstance(code, int) and code > 0) or observation.get("is_error")):
                error = _failure(content, code)
            yield Step(
                index=0,
                thought=text_of(event.get("thought")),
                tool=tool,
                arguments=arguments,
                observation=content,
                error=error,
                lineage=lineage_of(tool, arguments, self._agent, FORM),
            )

    def answer(self) -> str | None:
        for event in reversed(self._events):
            if event.get("kind") == "ActionEvent" and _finishes(event):
                return str((event.get("action") or {}).get("message") or "") or None
        spoken = list(self._messages("agent"))
        return (_words(spoken[-1]) or None) if spoken else None

    def _messages(self, source: str) -> Iterable[Event]:
        spoken = (event for event in self._events if event.get("kind") == "MessageEvent")
        return (event for event in spoken if event.get("source") == source)


def _flat(history: Iterable[Any]) -> Iterator[Event]:
    """Events one by one; older logs pair each action with its observation."""
    for entry in history:
        if isinstance(entry, Mapping):
            yield entry
        elif isinstance(entry, Sequence) and not isinstance(entry, str):
            pair = [event for event in entry if isinstance(event, Mapping)]
            for event in pair:
                missing = "observation" in event and "cause" not in event
                yield {**event, "cause": pair[0].get("id")} if missing else event


def _finishes(event: Event) -> bool:
    return event.get("tool_name") == "finish" or (event.get("action") or {}).get("kind") == "FinishAction"


def _words(event: Event) -> str:
    return text_of((event.get("llm_message") or {}).get("content"))


def _argument(event: Event, name: str) -> str:
    return str((event.get("args") or {}).get(name) or "").strip()


def _shown(key: str, value: Any) -> bool:
    """Whether an argument says what was done: not what the platform adds, and not what was left empty."""
    return key not in _NO_ARGUMENTS and isinstance(value, str | int | float | bool | list) and value not in ("", None)


def _failure(content: str, code: Any) -> str:
    lines = content.strip().splitlines()
    said = lines[-1][:200] if lines else "it failed"
    return f"exit code {code}: {said}" if isinstance(code, int) else said


def _metadata(row: Mapping[str, Any], key: str) -> Any:
    metadata = row.get("metadata")
    return metadata.get(key) if isinstance(metadata, Mapping) else None


def _resolved(row: Mapping[str, Any]) -> Any:
    """`resolved`, where the evaluation has put it: in the row, or in its report."""
    for place in (row, row.get("report"), (row.get("test_result") or {}).get("report")):
        if isinstance(place, Mapping) and place.get("resolved") is not None:
            return place["resolved"]
    return row.get("correct")
