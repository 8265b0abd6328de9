"""A finished run as it is imported, and what the formats share: texts, arguments, lineage, errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from providers.errors import ConfigError
from providers.types import Injection, Lineage, Outcome, Step, Trajectory, content_hash

MESSAGE = "message"
"""The tool's name of a step in which the agent spoke instead of acting."""
ANSWERS = frozenset({"answer", "final_answer", "finish", "submit", "submit_answer"})
"""Tools whose call ends a run with an answer."""

_ADDRESSES = ("url", "page", "path", "file", "file_path", "query", "command", "code")
"""Arguments that say where an observation comes from, the most telling first."""


class UnreadableRun(ConfigError):
    """A file that holds no finished run in the format that was named."""


@dataclass(frozen=True)
class Finished:
    """One finished run with its outcome and, where it is known, the arm that it ran under."""

    trajectory: Trajectory
    outcome: Outcome
    family: str = ""
    provider: str | None = None
    """The provider whose memory it was given, `none` for no memory; None where that is unknown."""
    in_mode: Literal["query", "no_op"] = "query"
    repeat: int = 0
    previews: Mapping[str, str] = field(default_factory=dict)
    """What each provider would have shown before the run."""


def outcome_of(correct: Any) -> Outcome:
    """The outcome that a file states; None where it states none."""
    if correct is not None and not isinstance(correct, bool):
        raise ValueError(f"its outcome is {correct!r}, which is none of true, false and null")
    return Outcome(correct=correct, score=None if correct is None else float(correct), source="user")


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    if isinstance(content, Iterable) and not isinstance(content, Mapping):
        parts = [part.get("text", "") if isinstance(part, Mapping) else part for part in content]
        return "\n".join(part for part in parts if isinstance(part, str) and part)
    return ""


def arguments_of(raw: Any) -> dict[str, Any]:
    """Arguments of a call, parsed; what is no JSON object is kept as it was written."""
    if isinstance(raw, Mapping):
        return dict(raw)
    try:
        parsed = json.loads(raw or "{}")
    except (ValueError, TypeError, RecursionError):
        parsed = raw
    return parsed if isinstance(parsed, dict) else {"written": str(raw)}


def lineage_of(tool: str, arguments: Mapping[str, Any], agent: str, form: str) -> Lineage:
    """Where an observation came from: the address or command in its call, else the tool."""
    named = (str(arguments[key]) for key in _ADDRESSES if arguments.get(key))
    source = " ".join(next(named, tool).split())[:300]
    return Lineage(source=source, environment=form, agent=agent, trust="tool")


def trajectory_of(
    *,
    form: str,
    task_id: str,
    question: str,
    agent: str,
    steps: Iterable[Step],
    answer: str | None,
    status: Iterable[str] = (),
    memory: tuple[str, str] | None = None,
) -> Trajectory:
    """The trajectory of an imported run. `memory` is the provider and the text that it was given at Begin.

    Raises ValueError where there is neither a question nor a step: nothing can be learned from that.
    """
    numbered = tuple(step.model_copy(update={"index": place}) for place, step in enumerate(steps))
    if not question.strip():
        raise ValueError("it has no question: no message of a user")
    if not numbered and not answer:
        raise ValueError("it has neither a step nor an answer")
    errors = tuple(f"step {step.index}: {step.error}" for step in numbered if step.error)
    return Trajectory.make(
        task_id=task_id or content_hash(question),
        question=question.strip(),
        agent=agent,
        seed=0,
        settings={"imported": form},
        steps=numbered,
        answer=answer,
        status=(*errors, *(sign for sign in status if sign)),
        injections=(Injection(phase="begin", provider=memory[0], text=memory[1]),) if memory is not None else (),
        usage={"steps": float(len(numbered))},
    )


def read_json(path: Path) -> list[Any]:
    """The JSON values of a file: one, or one per line. Raises UnreadableRun that names the line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableRun(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise UnreadableRun(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise UnreadableRun(f"{path}, line {number} is no JSON ({error})") from error
    return values
