"""Candidates that are no reusable knowledge whatever stands behind them (GovMem, section VI), and hidden instructions.

The paper's reviewers rejected all eleven candidates that had passed its verification gate: banners of test runners,
listings, the agent's account of one task, edits that failed or never happened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from providers.governance.evidence import Observation

_BANNER = re.compile(
    r"={5,}|test session starts|\b\d+ (?:passed|failed|skipped|warnings?|errors?)\b.* in [\d.]+ ?s|collected \d+ items?"
    r"|\[\s*100%\s*\]|\b(?:Deprecation|User|Runtime|Future)Warning\b|ran \d+ tests? in|short test summary",
    re.IGNORECASE,
)
_LISTED = re.compile(
    r"\s*(?:[-d][rwx-]{9}\s|\d+[|\t]|\d+:(?:\S|\s{2,}\S)|(?:\./|/)?[\w.-]+(?:/[\w.-]+)+/?\s*$|[\w-]+\.\w{1,5}\s*$"
    r"|(?:def|class|func|function)\s+\w+.*[:({]|(?:import|from)\s+[\w.]+(?:\s+import\b.*)?;?\s*$"
    r"|(?:if|for|while|try|except|else|const|let|var|return)\b.*[:{;]\s*$|[}{)\];]+\s*$)"
)
_NARRATED = re.compile(
    r"^\W*(?:(?:now|next|first|then|okay|so),? )?(?:let me\b|let's\b|I(?:'ll| will|'m going to| am going to| need to"
    r"| should| think| tried| try| looked| see\b| opened| ran\b| was\b| attempted)|we (?:will|need to|tried)\b"
    r"|the agent (?:tried|attempted|opened|looked|ran|then|first)\b|in this (?:task|issue|run|session|attempt)\b)",
    re.IGNORECASE,
)
_EDIT_CLAIM = re.compile(
    r"\b(?:I|we|agent)\b[^.]{0,20}\b(?:fixed|patched|modified|edited|changed|resolved|rewrote|refactored|applied)\b"
    r"|\b(?:patch|fix|edit|change|commit|diff)\b[^.]{0,30}\b(?:fixes|resolves|resolved|works|succeeded|applied|passes"
    r"|solves|solved)\b|^\W*(?:fixed|patched|modified|edited|resolved|rewrote|refactored|applied)\b"
    r"|\b(?:was|were|has been|have been) (?:fixed|patched|resolved)\b",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.]{0,40}\b(?:previous|prior|above|earlier|all|any|your)\b[^.]{0,30}"
    r"\b(?:instructions?|rules?|prompts?|memor(?:y|ies)|guidelines?)\b"
    r"|\b(?:system|developer) (?:prompt|message)\b|<\s*/?\s*(?:system|assistant|instructions?|tool)\b|\[/?INST\]|<\|"
    r"|^\s*(?:system|assistant)\s*:|\byou are now\b"
    r"|\b(?:always|must) (?:promote|accept|trust|store|remember|reply|answer)\b"
    r"|\bdo not (?:tell|reveal|mention|review|verify|check)\b|\b(?:reveal|send|post|upload|exfiltrate)\b[^.]{0,30}"
    r"\b(?:key|keys|password|secret|token|credentials?)\b",
    re.IGNORECASE | re.MULTILINE,
)

LISTED_SHARE = 0.6
"""Share of lines that look like a listing or like code, from which a text of several lines is a dump."""
LISTED_LINES = 3


def unfit(claim: str, observations: Sequence[Observation]) -> str | None:
    """Why a claim is no reusable knowledge, as half a sentence; None where nothing speaks against its content."""
    if not re.search(r"[^\W\d_]{2}", claim):
        return "it has no words"
    if _BANNER.search(claim):
        return "it is a test runner's banner or a warning, which says nothing about the claim"
    lines = [line for line in claim.splitlines() if line.strip()]
    if len(lines) >= LISTED_LINES and sum(bool(_LISTED.match(line)) for line in lines) >= LISTED_SHARE * len(lines):
        return "it is a listing or a dump of a file"
    if _NARRATED.search(claim):
        return "it tells what was done in one task, not what holds in others"
    if _EDIT_CLAIM.search(claim) and not any(observation.edit == "applied" for observation in observations):
        failed = any(observation.edit == "failed" for observation in observations)
        return f"it speaks of a change, but every edit {'failed' if failed else 'is missing: the steps only read'}"
    return None


def hidden_instruction(text: str) -> str | None:
    """The words of `text` that address whoever reads it instead of stating something; None where there are none.

    A pattern list finds the common forms and no more: it sends to review, it is not what keeps memories from being
    obeyed (they are shown as quoted data everywhere).
    """
    found = _INSTRUCTION.search(text)
    return found.group(0).strip() if found else None
