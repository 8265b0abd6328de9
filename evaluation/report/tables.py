"""Every table of an evaluation as plain rows, for CSV files and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaluation.behaviour import PARTS
from evaluation.result import Evaluation
from providers.files import write_atomically


def tables(evaluation: Evaluation) -> dict[str, list[dict[str, Any]]]:
    """Rows by table; shares are fractions of 1, and what is not known is None."""
    found: dict[str, list[dict[str, Any]]] = {
        "policies": [
            _flat(name, result.model_dump(), ("shares", "shares_by_family", "by_family", "failures"))
            for name, result in evaluation.policies.items()
        ],
        "policies_by_family": [
            {"policy": name, "family": family, "accuracy": accuracy}
            for name, result in evaluation.policies.items()
            for family, accuracy in result.by_family.items()
        ],
        "shares": [
            {"policy": name, "family": family, "arm": arm, "share": share}
            for name, result in evaluation.policies.items()
            for family, part in ({"": result.shares} | result.shares_by_family).items()
            for arm, share in part.items()
        ],
        "families": [
            {"arm": arm, "family": family, **cell.model_dump()}
            for arm, cells in evaluation.provider_by_family.items()
            for family, cell in cells.items()
        ],
        "failures": [
            {"policy": name, **result.failures.model_dump()}
            for name, result in evaluation.policies.items()
            if result.failures is not None
        ],
        "comparisons": [one.model_dump() for one in (*evaluation.comparisons, *evaluation.online_comparisons)],
        "arms": [{"arm": arm, **cost.model_dump()} for arm, cost in evaluation.arms.items()],
        "shuffled": [{"arm": arm, **part.model_dump()} for arm, part in evaluation.shuffled.items()],
        "oracle_of_k": [
            {
                "k": len(pool.providers),
                "providers": " ".join(pool.providers),
                "plain": pool.plain,
                "crossfit": pool.crossfit,
            }
            for pool in evaluation.oracle_of_k
        ],
        "coverage": [{"arms": arms, "tasks": tasks} for arms, tasks in enumerate(evaluation.coverage)],
        "unique_solves": [{"arm": arm, "tasks": tasks} for arm, tasks in evaluation.unique_solves.items()],
        "online": [
            _flat(name, one.model_dump(), ("behaviour", "by_family")) for name, one in evaluation.online.items()
        ],
        **{name: list(rows) for name, rows in _behaviour(evaluation)},
        "missing": [{"policy": name, "reason": reason} for name, reason in evaluation.missing.items()],
    }
    return {name: rows for name, rows in found.items() if rows}


def _flat(policy: str, values: Mapping[str, Any], nested: tuple[str, ...]) -> dict[str, Any]:
    plain = {key: value for key, value in values.items() if key not in nested}
    return {"policy": policy} | {
        key: " ".join(map(str, value)) if isinstance(value, tuple | list) else value for key, value in plain.items()
    }


def _behaviour(evaluation: Evaluation) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    online = {name: one.behaviour for name, one in evaluation.online.items()}
    yield (
        "in_rate_by_step",
        [
            {"policy": name, "step": step, "rate": rate, "decisions": decisions}
            for name, one in online.items()
            for step, (rate, decisions) in enumerate(zip(one.in_rate_by_step, one.in_decisions_by_step, strict=True))
        ],
    )
    yield (
        "end_sizes",
        [
            {"policy": name, "outcome": outcome, "providers": size, "tasks": tasks}
            for name, one in online.items()
            for outcome, sizes in one.end_sizes.items()
            for size, tasks in sizes.items()
        ],
    )
    yield (
        "stream",
        [
            {"policy": name, "share_of_stream": part, "accuracy": accuracy}
            for name, one in online.items()
            for part, accuracy in zip(PARTS, one.stream, strict=True)
        ],
    )


def write_csv(evaluation: Evaluation, folder: Path) -> list[Path]:
    """One CSV file per table in `folder`, each whole or not at all."""
    written = []
    for name, rows in tables(evaluation).items():
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path = folder / f"{name}.csv"
        write_atomically(path, text.getvalue())
        written.append(path)
    return written
