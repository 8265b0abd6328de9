"""What `memroute bank ACTION` does, and how it reads on a terminal."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel

from providers.bank import MemoryBank, reporting, unusable
from providers.distill.quoting import quoted
from providers.embedder import CachedEncoder, Encoder, Recorded, load_encoder
from providers.errors import BankError, ConfigError
from providers.forgetting import Selection
from providers.governance.review import Event, Life, Waitlist, decide, lives, waitlist
from providers.index_file import index_path
from providers.namespaces import HOUSE, checked_namespace, within
from providers.schema import APPLICATION_ID, encoder_of
from providers.space import REDACTED
from providers.transfer import header_of
from providers.types import Flow, Record
from providers.verification import verify

BANK_FILE = "bank.sqlite"
CACHE_FILE = "cache.sqlite"
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
TEXT_CHARACTERS = 100
SOURCES = 3
"""Most tasks and sources of a waiting record that are listed."""


@dataclass(frozen=True)
class Done:
    """The result for programs, the lines for people, and whether all is well."""

    result: BaseModel
    lines: list[str]
    ok: bool = True


class SpaceStats(Flow):
    """What one provider has in one namespace."""

    provider: str
    namespace: str
    records: int
    states: dict[str, int]
    kinds: dict[str, int]
    receipts: int
    redacted_secrets: int
    generation: int
    indexed: bool
    """Whether there is an index file."""


class BankStats(Flow):
    """What a bank holds. Sizes in bytes."""

    bank: str
    bytes: int
    encoder: str
    dimension: int
    records: int
    spaces: tuple[SpaceStats, ...]


class Shown(Flow):
    """Some records; `found` counts those that were left out, too."""

    found: int
    records: tuple[Record, ...]


class Lives(Flow):
    """A record in every space that has it."""

    lives: tuple[Life, ...]


def act(action: str, given: Mapping[str, Any]) -> Done:
    """Do one action with the command's arguments by name."""
    return _ACTIONS[action](given)


def _stats(given: Mapping[str, Any]) -> Done:
    path = bank_file(given["bank"])
    with _opened(path) as bank:
        spaces = [_space_stats(bank, key) for key in _keys(bank, given)]
        encoder = bank.encoder
    stats = BankStats(
        bank=str(path),
        bytes=path.stat().st_size,
        encoder=encoder.identity,
        dimension=encoder.dimension,
        records=sum(space.records for space in spaces),
        spaces=tuple(spaces),
    )
    lines = [
        f"{path}: {stats.records:,} records, {stats.bytes / 2**20:.1f} MB, {encoder.identity} "
        f"({encoder.dimension} dimensions)"
    ]
    lines += [
        f"  {space.provider:<16} {space.namespace:<20} {space.records:>8,} records  "
        + ", ".join(f"{count:,} {kind}" for kind, count in space.kinds.items())
        + "".join(f", {count:,} {state}" for state, count in space.states.items() if state != "active")
        + (f", {space.redacted_secrets:,} secrets taken out" if space.redacted_secrets else "")
        for space in spaces
    ]
    return Done(stats, lines)


def _show(given: Mapping[str, Any]) -> Done:
    with _opened(bank_file(given["bank"])) as bank:
        found = [
            row.record
            for key in _keys(bank, given)
            for row in bank.space(*key).committed_rows(bank.committed)
            if given["kind"] in (None, row.record.kind)
            and given["state"] in (None, row.record.state)
            and (not given["id"] or row.record.id in given["id"])
        ]
    missing = sorted(set(given["id"]) - {record.id for record in found})
    if missing:
        raise BankError(f"The bank has no record {', '.join(missing)} there.")
    shown = Shown(found=len(found), records=tuple(found[: given["limit"]]))
    lines = []
    for record in shown.records:
        text = " ".join((record.text or str(record.payload)).split())
        lines.append(f"{record.id}  {record.provider} {record.namespace} {record.kind} {record.state}")
        lines.append(f"    {text if given['id'] else text[:TEXT_CHARACTERS]}")
        if given["id"]:
            lines.append(f"    {record.model_dump_json(indent=2, exclude={'text'})}")
    if not found:
        lines.append("No record fits what was given.")
    elif found[given["limit"] :]:
        lines.append(f"... and {len(found) - len(shown.records):,} more (--limit)")
    return Done(shown, lines)


def _verify(given: Mapping[str, Any]) -> Done:
    checked = verify(bank_file(given["bank"]))
    lines = [f"{finding.level:<8} {finding.where}: {finding.what}" for finding in checked.findings]
    rows = ", ".join(f"{count:,} {table}" for table, count in checked.rows.items()) or "no rows"
    damage = sum(finding.level == "damage" for finding in checked.findings)
    lines.append(f"{rows} read: {f'{damage:,} damaged' if damage else 'all as they were stored'}.")
    return Done(checked, lines, checked.ok)


def _export(given: Mapping[str, Any]) -> Done:
    with _opened(bank_file(given["bank"])) as bank:
        _keys(bank, given)
        done = bank.export(given["file"], given["provider"], given["namespace"])
    return Done(done, [f"{done.records:,} records and {done.receipts:,} receipts are in {given['file']}."])


def _import(given: Mapping[str, Any]) -> Done:
    path = bank_file(given["bank"], must_exist=False)
    if not given["file"].is_file():
        raise ConfigError(f"There is no file {given['file']}: name what `memroute bank export` wrote.")
    named = load_encoder(given["encoder"]) if given["encoder"] else None
    if path.exists():
        encoder = named or _recorded(path)
    else:
        header = header_of(given["file"])
        encoder = named or Recorded(header.encoder, header.dimension)
    with MemoryBank.open(path, encoder) as bank:
        done = bank.import_(given["file"])
    known = f", {done.known:,} were there already" if done.known else ""
    encoded = f", {done.encoded:,} encoded anew" if done.encoded else ""
    came = f"{done.records:,} records and {done.receipts:,} receipts came into {path}"
    return Done(done, [f"{came}{known}{encoded}."])


def _forget(given: Mapping[str, Any]) -> Done:
    path = bank_file(given["bank"])
    selection = Selection(
        task=given["task"],
        source=given["source"],
        text=given["text"],
        older_than=seconds_of(given["older_than"]) if given["older_than"] else None,
        namespace=given["namespace"],
        provider=given["provider"],
    ).checked()
    cache = given["cache"] or path.with_name(CACHE_FILE)
    if given["cache"] and not cache.exists():
        raise ConfigError(f"There is no encoder's cache {cache}.")
    encoder = CachedEncoder(_recorded(path), cache if cache.exists() else None)
    try:
        with MemoryBank.open(path, encoder) as bank:
            _keys(bank, given)
            done = bank.forget(selection)
    finally:
        encoder.close()
    lines = [
        f"  {space.provider:<16} {space.namespace:<20} {space.records:,} records ({space.derived:,} derived), "
        f"{space.vectors:,} vectors, {space.receipts:,} receipts, {space.events:,} events"
        for space in done.spaces
    ]
    total = f"{done.records:,} records are forgotten, {done.cached_texts:,} encodings with them."
    return Done(done, [*lines, total if done.spaces else "Nothing fits what was given; nothing is removed."])


def _history(given: Mapping[str, Any]) -> Done:
    with _opened(bank_file(given["bank"])) as bank:
        found = lives(bank, _keys(bank, given), given["record"])
    lines = []
    for life in found:
        record = life.record
        lines.append(f"{record.id}  {record.provider} {record.namespace} {record.kind} {record.state}")
        lines.append(f"    says  {_said(record)}")
        lines += [f"    {_moment(each.at)}  {each.event:<12} {each.reason}".rstrip() for each in in_brief(life.events)]
    return Done(Lives(lives=tuple(found)), lines)


def in_brief(events: Sequence[Event]) -> list[Event]:
    """Uses in a row as one event at the time of the last, and what providers count for themselves left out of them."""
    told: list[Event] = []
    for kind, group in groupby(events, _bookkeeping):
        found = list(group)
        uses = [each for each in found if each.event == "used"]
        if not kind or not uses:
            told += found
        elif len(uses) == 1:
            told += uses
        else:
            solved = sum(each.reason == "solved" for each in uses)
            told.append(Event(event="used", reason=f"{len(uses)} times, {solved} of them solved", at=uses[-1].at))
    return told


def _bookkeeping(event: Event) -> bool:
    return event.event == "used" or (event.event == "updated" and not event.reason)


def _review(given: Mapping[str, Any]) -> Done:
    path = bank_file(given["bank"])
    encoder = load_encoder(given["encoder"]) if given["encoder"] else _recorded(path)
    decisions: dict[Literal["accepted", "rejected"], str | None] = {
        "accepted": given["accept"],
        "rejected": given["reject"],
    }
    asked = [(decision, record_id) for decision, record_id in decisions.items() if record_id]
    if len(asked) > 1 or (given["text"] is not None and not given["accept"]):
        raise ConfigError("Decide on one record at a time: --accept ID, perhaps with --text, or --reject ID.")
    with MemoryBank.open(path, encoder) as bank:
        keys = _keys(bank, given)
        if not asked:
            listed = waitlist(bank, keys, given["limit"])
            return Done(listed, _waiting_lines(listed))
        decision, record_id = asked[0]
        record = lives(bank, keys, record_id)[0].record
        space = bank.space(record.provider, record.namespace)
        done = decide(space, record_id, decision, given["note"], given["text"])
    return Done(done, [f"{done.id} is {done.state}: {decision} in review."])


def _waiting_lines(listed: Waitlist) -> list[str]:
    lines = []
    for each in listed.waiting:
        record, known = each.record, each.record.descriptor
        lines.append(f"{record.id}  {record.provider} {record.namespace} {record.kind}: {each.reason}")
        lines.append(f"    says  {_said(record)}")
        lines.append(f"    seen  {quoted(each.evidence) if each.evidence else '(no words kept)'}")
        support = f"; support {known.support:g}, {known.wins} of {known.reuse} uses solved" if known else ""
        further = f" and {len(each.tasks) - SOURCES} more" if len(each.tasks) > SOURCES else ""
        lines.append(f"    from  task {', '.join(each.tasks[:SOURCES])}{further}{support}")
        lines += [f"          {source}" for source in each.sources[:SOURCES]]
        lines += [f"    {line}" for line in each.audit.lines()[1:]] if each.audit is not None else []
    if listed.found > len(listed.waiting):
        lines.append(f"... and {listed.found - len(listed.waiting):,} more (--limit)")
    if not lines:
        return ["Nothing waits."]
    return [
        *lines,
        "Decide with --accept ID or --reject ID, and --note why; `memroute bank history` tells a record's life.",
    ]


def _said(record: Record) -> str:
    said = record.payload.get("content") or record.text or record.payload
    return quoted(" ".join(str(said).split()))


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


_ACTIONS: dict[str, Callable[[Mapping[str, Any]], Done]] = {
    "stats": _stats,
    "show": _show,
    "history": _history,
    "review": _review,
    "verify": _verify,
    "export": _export,
    "import": _import,
    "forget": _forget,
}


def bank_file(given: Path, must_exist: bool = True) -> Path:
    """The bank at a path: a file, or `bank.sqlite` in a run's folder. Raises ConfigError where there is none."""
    path = given / BANK_FILE if given.is_dir() else given
    if must_exist and not path.is_file():
        raise ConfigError(f"There is no bank {path}: name a bank file or a run's folder.")
    return path


def seconds_of(age: str) -> float:
    """`90s`, `15m`, `12h`, `30d` or `2w` in seconds. Raises ConfigError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age.strip())
    if found is None:
        raise ConfigError(f"{age!r} is no age: give a number and a unit, e.g. 12h, 30d or 2w.")
    return float(found[1]) * UNITS[found[2]]


def _recorded(path: Path) -> Encoder:
    """The encoder that the bank was filled through, by name."""
    with (
        reporting(path),
        closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=rw", uri=True)) as connection,
    ):
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID:
            raise unusable(path, "SQLITE_NOTADB")
        meta = dict(connection.execute("SELECT key, value FROM meta"))
    recorded = encoder_of(meta)
    if recorded is None:
        raise unusable(path, "SQLITE_CORRUPT")
    return Recorded(*recorded)


def _opened(path: Path) -> MemoryBank:
    return MemoryBank.open(path, _recorded(path))


def _keys(bank: MemoryBank, given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The spaces of memories that were asked for.

    Raises ConfigError for what is no namespace, and for a provider that keeps nothing here: a misspelt name must not
    read as "nothing there" or "forgotten".
    """
    if given["namespace"] is not None:
        checked_namespace(given["namespace"])
    with bank.reporting():
        spaces = bank.committed.execute("SELECT provider, namespace FROM generations ORDER BY 1, 2").fetchall()
    keys = [key for key in spaces if not key[0].startswith(HOUSE)]
    names = sorted({provider for provider, _ in keys})
    if given["provider"] not in (None, *names):
        raise ConfigError(
            f"The bank {bank.path} keeps nothing of a provider {given['provider']!r}; "
            f"there are: {', '.join(names) or 'none'}."
        )
    return [
        (provider, namespace)
        for provider, namespace in keys
        if given["provider"] in (None, provider)
        and (given["namespace"] is None or within(namespace, given["namespace"]))
    ]


def _space_stats(bank: MemoryBank, key: tuple[str, str]) -> SpaceStats:
    def count(column: str) -> dict[str, int]:
        where = "WHERE provider = ? AND namespace = ? GROUP BY 1 ORDER BY 2 DESC, 1"
        return dict(bank.committed.execute(f"SELECT {column}, count(*) FROM records {where}", key))

    with bank.reporting():
        (receipts,) = bank.committed.execute(
            "SELECT count(*) FROM offers WHERE provider = ? AND namespace = ?", key
        ).fetchone()
        states, kinds = count("state"), count("kind")
    held = bank.held(key)
    return SpaceStats(
        provider=key[0],
        namespace=key[1],
        records=held.records,
        states=states,
        kinds=kinds,
        receipts=receipts,
        redacted_secrets=bank.space(*key).counter(REDACTED),
        generation=held.generation,
        indexed=index_path(bank.path, *key).exists(),
    )
