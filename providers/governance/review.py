"""What people see and decide of governed records: a record's life, what waits, and their word on it."""

from __future__ import annotations

from typing import Literal

from providers.bank import MemoryBank
from providers.errors import BankError
from providers.governance.admission import warns
from providers.governance.gate import Audit
from providers.governance.lifecycle import REVIEWS
from providers.governance.writing import audited
from providers.space import Space
from providers.types import Descriptor, Flow, Record

Key = tuple[str, str]
DECIDING = ("candidate", "confirmed", "misled")
"""Events whose reason says why a record waits."""


class Event(Flow):
    """One change of a record; `at` in seconds since 1970."""

    event: str
    reason: str
    at: float


class Life(Flow):
    """A record as it is, and all that became of it, oldest first."""

    record: Record
    events: tuple[Event, ...]


class Waiting(Flow):
    """A record that waits for a decision, with what speaks for it and why it waits."""

    record: Record
    evidence: str
    """Words of its run that support it; empty where none are kept."""
    tasks: tuple[str, ...]
    sources: tuple[str, ...]
    reason: str
    audit: Audit | None = None
    """What independent runs say for and against it, where a write gate counts them."""


class Waitlist(Flow):
    """Some of what waits; `found` counts those that were left out, too."""

    found: int
    waiting: tuple[Waiting, ...]


def lives(bank: MemoryBank, keys: list[Key], record_id: str) -> list[Life]:
    """The record of that id in every space that has one. Raises BankError where none has."""
    found = []
    for key in keys:
        record = bank.space(*key).get(record_id)
        if record is not None:
            found.append(Life(record=record, events=_events(bank, key, record_id)))
    if not found:
        raise BankError(f"The bank has no record {record_id!r} there.")
    return found


def waitlist(bank: MemoryBank, keys: list[Key], limit: int) -> Waitlist:
    """The candidates, those with most support first."""
    found = []
    for key in keys:
        space = bank.space(*key)
        for record in space.records(state=("candidate",)):
            events = _events(bank, key, record.id)
            found.append(
                Waiting(
                    record=record,
                    evidence=str(record.payload.get("evidence_span", "")),
                    tasks=tuple(dict.fromkeys(origin.task_id for origin in record.origins)),
                    sources=tuple(dict.fromkeys(source for origin in record.origins for source in origin.sources)),
                    reason=_why(events),
                    audit=audited(space, record) if _known(record).observations else None,
                )
            )
    found.sort(key=lambda each: (-_known(each.record).support, each.record.id))
    return Waitlist(found=len(found), waiting=tuple(found[:limit]))


def decide(
    space: Space, record_id: str, decision: Literal["accepted", "rejected"], note: str, text: str | None = None
) -> Record:
    """Accept or reject a record, with `text` as its content where it was edited; the decision holds for all later
    records of the same signature or content. Raises BankError."""
    with space.transaction():
        record = space.existing(record_id)
        if text is not None:
            record = _edited(record, text)
        accepted = "guard" if warns(record) else "active"
        reason = f"{'edited and ' if text is not None else ''}{decision} in review" + (f": {note}" if note else "")
        changes = {
            "state": accepted if decision == "accepted" else "rejected",
            "descriptor": _known(record).model_copy(update={"review": decision}),
        }
        space.update(record.model_copy(update=changes), "reviewed", reason)
        space.set_counter(REVIEWS, space.counter(REVIEWS) + 1)
        return space.existing(record_id)


def _edited(record: Record, text: str) -> Record:
    before = record.payload.get("content")
    if not isinstance(before, str) or not text.strip():
        raise BankError(
            f"The record {record.id!r} of {record.provider!r} cannot be edited: only records with a text "
            "`content` can, and not to nothing; accept or reject it."
        )
    payload = record.payload | {"content": text, "edited_from": before}
    return record.model_copy(update={"payload": payload, "text": record.text.replace(before, text)})


def _why(events: tuple[Event, ...]) -> str:
    """Why a record waits: what was last decided on it, which uses and repetitions since have not changed."""
    decided = [each for each in events if each.event in DECIDING]
    return (decided or events)[-1].reason if events else ""


def _events(bank: MemoryBank, key: Key, record_id: str) -> tuple[Event, ...]:
    with bank.reporting():
        rows = bank.committed.execute(
            "SELECT event, detail, at FROM events WHERE provider = ? AND namespace = ? AND record_id = ? ORDER BY seq",
            (*key, record_id),
        ).fetchall()
    return tuple(Event(event=event, reason=detail, at=at) for event, detail, at in rows)


def _known(record: Record) -> Descriptor:
    return record.descriptor or Descriptor()
