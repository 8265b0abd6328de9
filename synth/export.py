"""A dataset as a folder of its own, to share or to load elsewhere: JSON Lines or Parquet with its card."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from providers.errors import ConfigError
from providers.files import write_atomically
from router.table import RoutingTable
from synth.data_card import Format, render_card
from synth.dataset import load_card
from synth.judge.load import load_judge
from synth.rows import PARTS, Row, load_rows
from synth.runs import Run


def export_dataset(run: Run, folder: Path, file_format: Format) -> list[Path]:
    """Write the run's dataset to `folder` and give the files; an earlier export there is replaced.

    Raises:
        ConfigError: there is no dataset yet, or it may not be published, or the folder holds something else, lies in
            the run, or cannot be written.
    """
    card = load_card(run)
    _check_open(run)
    try:
        _check_folder(run, folder)
        return _write(run, card, folder, file_format)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise ConfigError(
            f"{folder} cannot be written ({error.strerror or error}): choose a folder that can be made"
        ) from error


def _check_open(run: Run) -> None:
    """Refuse tasks that their benchmark keeps sealed."""
    path = run.table("explore")
    if path.exists() and any(row.sealed for row in RoutingTable.load(path).rows):
        raise ConfigError(
            "the dataset holds questions of a benchmark that may not be published in plain text: explore other tasks"
        )


def _check_folder(run: Run, folder: Path) -> None:
    if folder.resolve().is_relative_to(run.root.resolve()):
        raise ConfigError(f"{folder} lies in the run's own folder: choose one outside of {run.root}")
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "card.json").exists())):
        raise ConfigError(f"{folder} holds something else: choose an empty folder, or one of an earlier export")


def _write(run: Run, card: dict[str, Any], folder: Path, file_format: Format) -> list[Path]:
    for stale in (folder / f"{part}.{ending}" for part in PARTS for ending in ("jsonl", "parquet")):
        stale.unlink(missing_ok=True)
    written = []
    for part in PARTS:
        rows = load_rows(run, part)
        if rows:
            path = folder / f"{part}.{file_format}"
            write_atomically(path, _parquet(rows) if file_format == "parquet" else _lines(rows))
            written.append(path)
    write_atomically(folder / "card.json", json.dumps(card, indent=2) + "\n")
    write_atomically(folder / "README.md", render_card(card, load_judge(run).says, file_format))
    return [*written, folder / "card.json", folder / "README.md"]


def _lines(rows: list[Row]) -> str:
    return "".join(f"{row.model_dump_json()}\n" for row in rows)


def _parquet(rows: list[Row]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    text, number = pyarrow.string(), pyarrow.float64()
    schema = pyarrow.schema(
        [
            ("phase", text),
            ("task_id", text),
            ("split", text),
            ("segments", pyarrow.list_(text)),
            ("candidates", pyarrow.list_(text)),
            ("targets", pyarrow.list_(number)),
            ("weight", number),
            ("prompt", text),
            ("completion", text),
        ]
    )
    buffer = pyarrow.BufferOutputStream()
    table = pyarrow.Table.from_pylist([row.model_dump(mode="json") for row in rows], schema=schema)
    parquet.write_table(table, buffer, compression="zstd")
    data: bytes = buffer.getvalue().to_pybytes()
    return data
