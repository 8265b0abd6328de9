"""The reports of several runs, and the page that shows them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.report.compare import Compared, write_comparison
from evaluation.report.html import write_report
from evaluation.report.tables import tables
from evaluation.result import Evaluation
from providers.errors import ConfigError
from providers.types import Flow
from synth.config import RunConfig
from synth.runs import Run


class Reported(Flow):
    """One run's report."""

    run: str
    report: Path
    csv: Path | None
    """Folder of CSV files; None where the run was not evaluated."""
    tables: dict[str, list[dict[str, Any]]]
    """The dev evaluation's tables."""


class Reports(Flow):
    """All that was written."""

    reports: tuple[Reported, ...]
    comparison: Path | None
    """Of two runs or more; it lies in the first run's folder."""


def report_runs(configs: Sequence[RunConfig]) -> Reports:
    """Write the report of every run and, of two or more, their comparison.

    Raises `ConfigError` where a run to compare has not been evaluated, before anything is written.
    """
    if len(configs) > 1:
        _require_evaluations(configs)
    found = []
    for config in configs:
        with Run.open(config) as run:
            report = write_report(run)
        evaluation = _evaluation(config, "dev")
        csv = run.evaluation / "csv" / "dev" if evaluation is not None else None
        rows = tables(evaluation) if evaluation is not None else {}
        found.append(Reported(run=config.name, report=report, csv=csv, tables=rows))
    first = configs[0].runs_dir / configs[0].name
    comparison = write_comparison(_splits(configs), first / "comparison.html") if len(configs) > 1 else None
    return Reports(reports=tuple(found), comparison=comparison)


def _splits(configs: Sequence[RunConfig]) -> dict[str, list[Compared]]:
    """The runs by split, for the splits on which all of them were evaluated."""
    found = {}
    for split in ("dev", "test"):
        evaluations = [_evaluation(config, split) for config in configs]
        found[split] = [
            Compared(config.name, evaluation, config.model_dump(mode="json"))
            for config, evaluation in zip(configs, evaluations, strict=True)
            if evaluation is not None
        ]
    return {split: runs for split, runs in found.items() if len(runs) == len(configs)}


def _evaluation(config: RunConfig, split: str) -> Evaluation | None:
    path = _folder(config) / f"{split}.json"
    return Evaluation.load(path) if path.exists() else None


def _folder(config: RunConfig) -> Path:
    return config.runs_dir / config.name / "evaluation"


def _require_evaluations(configs: Sequence[RunConfig]) -> None:
    for config in configs:
        if not (_folder(config) / "dev.json").exists():
            raise ConfigError(
                f"the run {config.name} has not been evaluated, so it cannot be compared: run `memroute evaluate` first"
            )
