"""Rows of a benchmark's file, whatever it is written in, and their columns, whatever they are called."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from providers.errors import SuiteError

Row = Mapping[str, Any]

MISSING = object()


def read_rows(path: Path) -> list[Row]:
    """All rows of a .jsonl, .json, .csv or .parquet file. Raises SuiteError that names the place of what is wrong."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise SuiteError(f"{path} is none of {', '.join(_READERS)}: convert it, or name another file.")
    try:
        rows = list(reader(path))
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path} is not UTF-8 text: convert it.") from error
    except OSError as error:
        raise SuiteError(f"{path} cannot be read ({error}): mend its permissions, or copy it.") from error
    if not rows:
        raise SuiteError(f"{path} holds no row: fetch it again.")
    return rows


def column(row: Row, where: str, *names: str) -> Any:
    """The first of `names` that the row has, upper and lower case alike. Raises SuiteError where it has none."""
    value = optional(row, *names, default=MISSING)
    if value is MISSING:
        wanted = " or ".join(f'"{name}"' for name in names)
        raise SuiteError(f"{where} has no column {wanted} (it has: {', '.join(map(str, row))}): mend the file.")
    return value


def optional(row: Row, *names: str, default: Any = None) -> Any:
    """As `column`, with a default in place of the error."""
    by_key = {str(key).casefold().replace(" ", "_"): value for key, value in row.items()}
    for name in names:
        if (key := name.casefold().replace(" ", "_")) in by_key:
            return by_key[key]
    return default


def text(value: Any, where: str) -> str:
    """A column that has to hold text. Raises SuiteError where it is empty or something else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise SuiteError(f"{where} holds {value!r} where text is needed: mend the file.")
    return str(value).strip()


def _jsonl(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _object(_parsed(line, f"{path}, line {number}"), f"{path}, line {number}")


def _json(path: Path) -> Iterator[Row]:
    whole = _parsed(path.read_text(encoding="utf-8-sig"), str(path))
    rows = whole if isinstance(whole, list) else [whole]
    for number, row in enumerate(rows, 1):
        yield _object(row, f"{path}, row {number}")


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(10_000_000)
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            for row in csv.DictReader(file, strict=True):
                yield {key: value for key, value in row.items() if key is not None}
        except csv.Error as error:
            raise SuiteError(f"{path} is no readable CSV ({error}): fetch it again.") from error


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        yield from pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise SuiteError(f"{path} is no readable Parquet file ({error}): fetch it again.") from error


def _parsed(raw: str, where: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{where} is no JSON ({error}): mend the file.") from error


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise SuiteError(f"{where} is no JSON object: mend the file.")
    return value


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
