"""SWE-agent's `.traj` files: one JSON object with `trajectory`, `history` and `info`, named after its task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers.types import Step
from synth.importers.finished import Finished, lineage_of, outcome_of, text_of, trajectory_of

FORM = "swe-agent"


def finished(run: Mapping[str, Any], task_id: str) -> Finished:
    """One file. The answer is the patch that was submitted; whether that is correct the file does not say.

    Raises ValueError or KeyError for what is no such file.
    """
    info = run.get("info") or {}
    agent = str(run.get("environment") or FORM)
    exit_status = str(info.get("exit_status") or "")
    return Finished(
        trajectory=trajectory_of(
            form=FORM,
            task_id=task_id,
            question=_question(run.get("history") or ()),
            agent=agent,
            steps=_steps(run["trajectory"], agent),
            answer=str(info.get("submission") or "").strip() or None,
            status=(f"ended: {exit_status}" if exit_status else "",),
        ),
        outcome=outcome_of(run.get("resolved")),
    )


def _question(history: Sequence[Mapping[str, Any]]) -> str:
    """The first message to the agent that is no demonstration."""
    for message in history:
        if message.get("role") == "user" and not message.get("is_demo"):
            return text_of(message.get("content"))
    return ""


def _steps(taken: Sequence[Mapping[str, Any]], agent: str) -> Iterator[Step]:
    for one in taken:
        action = str(one.get("action") or "").strip()
        thought = str(one.get("thought") or one.get("response") or "").strip()
        if not action and not thought:
            continue
        tool = action.split()[0] if action else "thought"
        arguments = {"command": action} if action else {}
        yield Step(
            index=0,
            thought=thought,
            tool=tool,
            arguments=arguments,
            observation=str(one.get("observation") or ""),
            seconds=float(one.get("execution_time") or 0.0),
            lineage=lineage_of(tool, arguments, agent, FORM),
        )
