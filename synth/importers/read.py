"""Finished runs out of files and folders, whichever of the known formats they are in."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from synth.importers import openai_chat, openhands, swe_agent
from synth.importers.finished import Finished, UnreadableRun, outcome_of, read_json

Form = Literal["auto", "openai", "swe-agent", "openhands"]
FORMS: tuple[Form, ...] = ("auto", "openai", "swe-agent", "openhands")


class UnknownForm(UnreadableRun):
    """A file whose values are runs in none of the known formats."""


def read_runs(paths: Sequence[Path], form: Form = "auto", outcomes: Path | None = None) -> list[Finished]:
    """All runs of some files; a folder stands for the runs in it. `outcomes` is a file that says which were correct.

    Files in a folder that are in no known format, such as an evaluation's results, are passed over with a word on
    standard error. Raises UnreadableRun that names the file, and the row, of what is no run.
    """
    found = [one for path in paths for one in _of_path(path, form)]
    if not found:
        raise UnreadableRun(f"{', '.join(map(str, paths))} hold no finished run")
    if outcomes is None:
        return found
    known = _outcomes(outcomes)
    return [replace(one, outcome=outcome_of(known.get(one.trajectory.task_id, one.outcome.correct))) for one in found]


def _of_path(path: Path, form: Form) -> Iterator[Finished]:
    if not path.is_dir():
        yield from _of_values(path, read_json(path), form)
        return
    events = sorted((path / "events").glob("event-*.json")) or sorted(path.glob("event-*.json"))
    if events:
        history = [value for event in events for value in read_json(event)]
        yield _one(path, 1, {"history": history}, "openhands")
        return
    for inner in sorted(path.iterdir()):
        if inner.is_dir():
            yield from _of_path(inner, form)
        elif inner.suffix in (".traj", ".jsonl", ".json"):
            try:
                yield from _of_path(inner, form)
            except UnknownForm as error:
                print(f"import: passed over: {error}", file=sys.stderr)


def _of_values(path: Path, values: list[Any], form: Form) -> Iterator[Finished]:
    """The runs of a file: one per value; a list of events, or events line by line, are one run."""
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if values and all(isinstance(value, Mapping) and _is_event(value) for value in values):
        values = [{"history": values}]
    for number, value in enumerate(values, 1):
        if not isinstance(value, Mapping):
            raise UnreadableRun(f"{path}, run {number} is no JSON object")
        yield _one(path, number, value, _form_of(value, form, path))


def _one(path: Path, number: int, value: Mapping[str, Any], form: Form) -> Finished:
    name = path.stem if number == 1 else f"{path.stem}-{number}"
    try:
        if form == "openai":
            return openai_chat.finished(value)
        if form == "swe-agent":
            return swe_agent.finished(value, name)
        return openhands.finished(value, name)
    except KeyError as error:
        raise UnreadableRun(f"{path}, run {number} is no {form} run: it has no {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UnreadableRun(f"{path}, run {number} is no {form} run: {error}") from error


def _form_of(value: Mapping[str, Any], form: Form, path: Path) -> Form:
    if form != "auto":
        return form
    for key, found in (("trajectory", "swe-agent"), ("messages", "openai"), ("history", "openhands")):
        if isinstance(value.get(key), list):
            return found  # type: ignore[return-value]
    raise UnknownForm(f"{path} holds no run in a known format: name it with --format ({', '.join(FORMS[1:])})")


def _is_event(value: Mapping[str, Any]) -> bool:
    return "source" in value and ("action" in value or "observation" in value or "kind" in value)


def _outcomes(path: Path) -> dict[str, Any]:
    """Task id -> correct: `{"id": true, ...}`, or SWE-bench's report with `resolved_ids` and `unresolved_ids`."""
    values = read_json(path)
    if len(values) != 1 or not isinstance(values[0], Mapping):
        raise UnreadableRun(f"{path} is no JSON object of task ids and true or false")
    given = values[0]
    if "resolved_ids" in given:
        lists = (("resolved_ids", True), ("resolved", True), ("unresolved_ids", False), ("unresolved", False))
        return {str(one): verdict for key, verdict in lists for one in given.get(key) or () if isinstance(one, str)}
    return dict(given)
