"""MemGuard's candidates by rules: reasoning items with the line of their run that shows them (3.2, B.3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from providers.base import Candidate, ReasoningItem
from providers.lexical import tokenise
from providers.types import Trajectory

if TYPE_CHECKING:
    from providers.governance.verifier import Verdict

LEAST_EVIDENCE = 0.25
"""Share of a candidate's terms that its evidence span must have (ours)."""
SPAN = 160
"""Characters of a quotation."""


def candidates_from(items: Sequence[ReasoningItem], trajectory: Trajectory, verdict: Verdict) -> tuple[Candidate, ...]:
    """One candidate per item. What a failed run teaches is a thing to check, with the verifier's guard."""
    failed = verdict.label == "verified_fail"
    return tuple(
        Candidate(
            type="failure_avoidance"
            if failed
            else "tool_usage"
            if _names_a_tool(item, trajectory)
            else "procedural_hint",
            title=item.title,
            description=item.description,
            content=item.content,
            applicability=item.description,
            risk="high" if failed else "none",
            guard_condition=" ".join(dict.fromkeys((item.content, verdict.failure_guard))).strip() if failed else "",
            evidence_span=evidence_for(item.content, trajectory),
        )
        for item in items
    )


def evidence_for(content: str, trajectory: Trajectory) -> str:
    """The line of the run that has most of the content's terms; empty where none has a quarter of them."""
    terms = set(tokenise(content))
    found, most = "", LEAST_EVIDENCE
    for step in trajectory.steps:
        for line in (*step.observation.splitlines(), step.error or "", step.thought):
            share = len(terms & set(tokenise(line))) / len(terms) if terms else 0.0
            if share > most or (share == most and not found):
                found, most = " ".join(line.split())[:SPAN], share
    return found


def _names_a_tool(item: ReasoningItem, trajectory: Trajectory) -> bool:
    tools = {step.tool for step in trajectory.steps} - {"answer"}
    return any(re.search(rf"(?<!\w){re.escape(tool)}(?!\w)", item.content, re.IGNORECASE) for tool in tools)
