"""A finished run as a model is shown it: quoted as JSON, a bounded number of characters, nothing that could be obeyed.

What pages, tools and agents wrote is data from outside. As JSON strings without angle brackets it can neither end its
quotation nor close the block that it stands in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from providers.governance.descriptor import CRITERIA
from providers.types import Outcome, Step, Trajectory

if TYPE_CHECKING:
    from providers.governance.verifier import Verdict

RUN_CHARACTERS = 12_000
"""Of a whole run, about 3,000 tokens."""
MOST_STEPS = 24
STEP_CHARACTERS = (240, 2_000)
"""Least and most of one step."""
TEXT_CHARACTERS = 1_500
"""Of a question, an answer or a note."""
SHORT = 200
"""Of a reason or a sign."""

_JUDGED = {True: "correct", False: "wrong", None: "not judged"}


def quoted(value: Any) -> str:
    """`value` as JSON on one line, with angle brackets and ampersands escaped."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def shortened(text: str, most: int) -> str:
    """`text` in at most `most` characters: its beginning and its end, what is cut out between them marked."""
    if len(text) <= most:
        return text
    head = (most - 5) * 2 // 3
    return f"{text[:head]} [..] {text[len(text) - (most - 6 - head) :]}"


def run_lines(trajectory: Trajectory, outcome: Outcome | None) -> list[str]:
    """One JSON object per line: the question, each step, the answer; `outcome` None leaves out how it was judged."""
    steps = trajectory.steps
    shown = [*steps[: MOST_STEPS // 2], *steps[-MOST_STEPS // 2 :]] if len(steps) > MOST_STEPS else list(steps)
    least, most = STEP_CHARACTERS
    room = max(least, min(most, RUN_CHARACTERS // max(1, len(shown))))
    lines = [{"question": shortened(trajectory.question, TEXT_CHARACTERS)}, *(_step(step, room) for step in shown)]
    if len(shown) < len(steps):
        lines.insert(1 + MOST_STEPS // 2, {"left out": f"{len(steps) - len(shown)} steps"})
    end: dict[str, Any] = {"answer": shortened(trajectory.answer or "", TEXT_CHARACTERS)}
    if trajectory.status:
        end["seen"] = [shortened(sign, SHORT) for sign in trajectory.status[:5]]
    if outcome is not None:
        end["judged"] = _JUDGED[outcome.correct]
    return [quoted(line) for line in (*lines, end)]


def verdict_lines(verdict: Verdict) -> list[str]:
    """One JSON object per line: what came out, then what each view of the run scored and why."""
    outcome = {
        "label": verdict.label,
        "reward": round(verdict.reward, 2),
        "confidence": round(verdict.confidence, 2),
        "runtime_status": verdict.source_status,
        "failure_guard": shortened(verdict.failure_guard, SHORT),
    }
    views = [
        {"view": look.view}
        | {
            name: {
                "score": each.score,
                "rationale": shortened(each.rationale, SHORT),
                "evidence": shortened(each.evidence, SHORT),
            }
            for name, each in zip(CRITERIA, look.criteria, strict=True)
        }
        for look in verdict.looks
    ]
    return [quoted(line) for line in (outcome, *views)]


def tools_of(trajectory: Trajectory) -> list[str]:
    """The tools that a run called, as `name(argument, argument)`, each once."""
    calls: dict[str, Sequence[str]] = {}
    for step in trajectory.steps:
        if step.tool != "answer":
            calls.setdefault(step.tool, tuple(step.arguments))
    return [f"{name}({', '.join(arguments)})" for name, arguments in calls.items()]


def _step(step: Step, room: int) -> dict[str, Any]:
    shown: dict[str, Any] = {"step": step.index}
    if step.thought:
        shown["thought"] = shortened(step.thought, room // 3)
    shown["tool"] = step.tool
    arguments = json.dumps(step.arguments, ensure_ascii=False, default=str)
    shown["arguments"] = step.arguments if len(arguments) <= room // 5 else shortened(arguments, room // 5)
    if step.error is not None:
        shown["error"] = shortened(step.error, room // 3)
    elif step.observation:
        shown["observation"] = shortened(step.observation, room // 2)
    return shown
