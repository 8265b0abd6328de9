"""What became of a bank over a stream: its health (table 22), its kinds (23) and its false accepts (11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from providers.governance.lifecycle import EVERYTHING, SUMMARY
from providers.space import Space
from providers.types import Flow, Record

KINDS = {
    "procedural_hint": "procedural",
    "failure_avoidance": "failure",
    "tool_usage": "tool",
    SUMMARY: "summary",
}


class Health(Flow):
    """Table 22: what is shown at the end, and what was done to candidate memories, as shares of all that runs left.
    One candidate may count in several shares, or in none."""

    candidates: int
    """Lessons that runs left, repeated ones included."""
    active: int
    waiting: int
    rejected: float
    merged: float
    archived: float
    """Misleading, in conflict, covered by a summary, stale or over the budget."""
    uncertain: float
    """Left by runs on which the verdict is uncertain."""
    conflicts: float


class FalseAccepts(Flow):
    """Table 11, counted in records: what came of runs that were verified as successes and were none.

    Records that a solved task left, too, are not counted: such a lesson may be right."""

    runs: int
    records: int
    blocked: int
    """Never shown."""
    active: int
    retrieved: int
    followed: int
    """Shown, and the agent named what they name."""
    failures: int
    """Followed in a task that was not solved."""


def health_of(space: Space, left: Sequence[tuple[str, Sequence[str]]]) -> Health:
    """The health of a space after runs with these labels left these records."""
    made = sum(len(kept) for _, kept in left)
    events = _events(space)
    counts = Counter(event for _, event, _ in events)
    archived = sum(_archives(event, detail) for _, event, detail in events)
    states = Counter(record.state for record in space.records(state=EVERYTHING))

    def share(count: int) -> float:
        return count / made if made else 0.0

    return Health(
        candidates=made,
        active=states["active"] + states["guard"],
        waiting=states["candidate"],
        rejected=share(states["rejected"]),
        merged=share(counts["merged"] + counts["repeated"]),
        archived=share(archived),
        uncertain=share(sum(len(kept) for label, kept in left if label == "uncertain")),
        conflicts=share(counts["conflict"]),
    )


def shares_of_kinds(records: Sequence[Record]) -> dict[str, float]:
    """Shares of records by kind, in the words of table 23."""
    counts = Counter(KINDS.get(record.kind, record.kind) for record in records)
    return {kind: counts[kind] / len(records) for kind in KINDS.values()} if records else {}


def false_accepts(
    space: Space,
    runs: int,
    made: Collection[str],
    later: Sequence[tuple[Sequence[str], Sequence[str], bool | None]],
    *,
    noted: bool,
) -> FalseAccepts:
    """Trace the records `made` by falsely accepted runs through later tasks (what they retrieved, followed, whether
    they were solved). `noted`: activation is an event of its own; else what was not rejected was shown."""
    events = _events(space)
    if noted:
        shown = {record for record, event, detail in events if event in ("active", "guard") or "active: " in detail}
    else:
        shown = set(made) - {record for record, event, _ in events if event == "rejected"}
    retrieved = {record for items, _, _ in later for record in items} & set(made)
    followed = {record for _, items, _ in later for record in items} & set(made)
    failures = {record for _, items, correct in later if correct is False for record in items} & set(made)
    active = len((shown & set(made)) | retrieved)
    return FalseAccepts(
        runs=runs,
        records=len(made),
        blocked=len(made) - active,
        active=active,
        retrieved=len(retrieved),
        followed=len(followed),
        failures=len(failures),
    )


def _archives(event: str, detail: str) -> bool:
    if event == "misled":
        return detail.startswith("archived")
    return event == "summarised" or (event == "archived" and not detail.startswith("the same as"))


def _events(space: Space) -> list[tuple[str, str, str]]:
    with space.bank.reporting():
        return list(
            space.bank.committed.execute(
                "SELECT record_id, event, detail FROM events WHERE provider = ? AND namespace = ? ORDER BY seq",
                (space.provider, space.namespace),
            )
        )
