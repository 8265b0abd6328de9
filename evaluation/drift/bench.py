"""`memroute bench drift`: long streams with noisy outcomes into banks that differ by their governance alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from evaluation.drift.health import FalseAccepts, Health
from evaluation.drift.signals import Noise, Wrong, views_agree
from evaluation.drift.sources import source_runs
from evaluation.drift.stream import Cell, DriftTask, Plan, run_cell
from evaluation.drift.variants import GOVERNED, VARIANTS, VERIFIER_ONLY
from evaluation.statistics import Bootstrap, Estimate, Values
from providers.errors import ConfigError
from providers.types import Flow, Split
from synth.config import RunConfig
from synth.runs import Run
from synth.workbench import Workbench

Figures = TypeVar("Figures", Health, FalseAccepts)
CHARACTERS_PER_TOKEN = 4.0
"""What a token is taken for where the agent is no language model."""
WINDOWS = 5
"""Parts of the stream that the course of a variant is told in (figure 3)."""


class DriftSettings(Flow):
    """Which streams are run, and how long they are."""

    noise: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)
    """Shares of the tasks whose verdict, or sign, is wrong."""
    wrong: Wrong = "verdicts"
    """`verdicts`: labels are swapped, with reward and confidence at the thresholds (MemGuard D.5); `signs`: the
    verifier reads a sign that says the opposite, and is as sure of it."""
    variants: tuple[str, ...] = (GOVERNED, VERIFIER_ONLY)
    switches: tuple[str, ...] = ()
    """Variants that are run at the last noise alone."""
    fill: int = Field(default=200, ge=0)
    """Warm-up tasks that are run without memory, under the wide step limit, and fill every bank alike."""
    tasks: int = Field(default=300, ge=1)
    """Tasks that are measured."""
    split: Split = Split.EXPLORE
    seeds: int = Field(default=1, ge=1)
    batch: int = Field(default=4, ge=1)
    resamples: int = Field(default=10_000, ge=1)


class Interval(Flow):
    """A mean over `n` tasks with its 95% interval by paired bootstrap."""

    mean: float
    low: float
    high: float
    n: int


class Row(Flow):
    """One variant at one noise; means over its seeds. Shares from 0 to 1."""

    solved: Interval
    steps: Interval
    solved_minus_verifier_only: Interval | None = None
    steps_minus_verifier_only: Interval | None = None
    solved_minus_governed: Interval | None = None
    steps_minus_governed: Interval | None = None
    solved_by_window: tuple[float, ...]
    """Of the measured tasks in the order of the stream, fifth by fifth."""
    label_right: float | None
    """Share of verdicts of success or failure that the scoring bears out; None where there is none."""
    health: Health
    kinds: dict[str, float]
    false_accepts: FalseAccepts
    views: dict[str, float]
    """Table 16: boundary rate, and how often full and evidence, full and risk, and all three views agree."""
    agent_tokens: float
    """Per measured task: characters that were read and injected, as tokens."""
    injected_tokens: float
    looks: float
    """Views of the verifier per task; each would be a model call."""
    seconds: float
    storage_mb: float
    retrieve_ms: float | None


class DriftBench(Flow):
    """What `memroute bench drift` gives: noise (as text) -> variant -> figures."""

    settings: DriftSettings
    rows: dict[str, dict[str, Row]]
    failed_tasks: int
    """Of all streams; they count in no mean."""


def run_config(runs_dir: Path, name: str = "bench-drift") -> RunConfig:
    """The embedded suite, agent, encoder and distiller, with MemGuard alone."""
    return RunConfig(name=name, runs_dir=runs_dir, providers=("memguard",))


async def bench_drift(settings: DriftSettings, config: RunConfig) -> DriftBench:
    """Run every cell that does not stand in the run's folder yet, and compare them.

    Raises ConfigError where the split has not so many tasks.
    """
    cells: list[Cell] = []
    wanted = list(_cells(settings))
    with Run.open(config) as run:
        async with Workbench(run) as bench:
            plans = [await plan_of(bench, settings, seed) for seed in range(settings.seeds)]
            for number, (share, name, seed) in enumerate(wanted, 1):
                variant, plan, noise = VARIANTS[name], plans[seed], Noise(share, seed, settings.wrong)
                key = plan.key(bench, name, variant, noise)
                path = run.root / "cells" / f"{name}-{share:g}-{seed}-{key[:8]}.json"
                if not path.exists():
                    print(f"drift: {number} of {len(wanted)}: {name}, noise {share:g}, seed {seed}", file=sys.stderr)
                    (await run_cell(bench, name, variant, noise, plan)).save(path)
                cells.append(Cell.model_validate_json(path.read_text(encoding="utf-8")))
    return compared(settings, cells)


async def plan_of(bench: Workbench, settings: DriftSettings, seed: int) -> Plan:
    """One seed's stream. Raises ConfigError where the suite has not so many tasks."""
    for split, wanted in ((Split.WARMUP, settings.fill), (settings.split, settings.tasks)):
        found = len(bench.suite.tasks(split, wanted)) if wanted else 0
        if found < wanted:
            raise ConfigError(f"The suite has {found} tasks in {split.value} and {wanted} were asked for.")
    sources = await source_runs(bench, settings.fill, seed, settings.batch) if settings.fill else []
    tasks = bench.suite.tasks(settings.split, settings.tasks)[: settings.tasks]
    return Plan(tuple(sources), tuple(tasks), seed, settings.batch)


def compared(settings: DriftSettings, cells: Sequence[Cell]) -> DriftBench:
    """The figures of cells that stand; each task counts once, as the mean over its seeds."""
    rows: dict[str, dict[str, Row]] = {}
    for noise in settings.noise:
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.noise == noise:
                groups.setdefault(cell.variant, []).append(cell)
        if groups:
            rows[f"{noise:g}"] = _rows(settings, groups)
    failed = sum(bool(task.error) for cell in cells for task in cell.tasks)
    return DriftBench(settings=settings, rows=rows, failed_tasks=failed)


def _cells(settings: DriftSettings) -> Iterable[tuple[float, str, int]]:
    for seed in range(settings.seeds):
        for noise in settings.noise:
            last = settings.switches if noise == settings.noise[-1] else ()
            for name in dict.fromkeys((*settings.variants, *last)):
                yield noise, name, seed


def _rows(settings: DriftSettings, groups: Mapping[str, Sequence[Cell]]) -> dict[str, Row]:
    ids = sorted({task.task_id for cells in groups.values() for task in _measured(cells)})
    bootstrap = Bootstrap(len(ids), settings.resamples, 0)
    solved = {name: _per_task(ids, cells, _solved) for name, cells in groups.items()}
    steps = {name: _per_task(ids, cells, lambda task: float(task.steps)) for name, cells in groups.items()}
    rows = {}
    for name, cells in groups.items():
        against = {}
        for rival in (VERIFIER_ONLY, GOVERNED):
            if rival in groups and rival != name:
                against[f"solved_minus_{rival}"] = interval_of(bootstrap.difference(solved[name], solved[rival]))
                against[f"steps_minus_{rival}"] = interval_of(bootstrap.difference(steps[name], steps[rival]))
        estimates = [interval_of(bootstrap.estimate(values[name])) for values in (solved, steps)]
        rows[name] = _row(cells, estimates, against)
    return rows


def _row(cells: Sequence[Cell], estimates: Sequence[Interval], against: Mapping[str, Interval]) -> Row:
    measured = list(_measured(cells))
    every = [task for cell in cells for task in cell.tasks if not task.error]
    said = [task for task in every if task.label in ("verified_success", "verified_fail") and task.correct is not None]
    times = [cell.retrieve_ms for cell in cells if cell.retrieve_ms is not None]
    return Row(
        solved=estimates[0],
        steps=estimates[1],
        **against,
        solved_by_window=_windows(cells),
        label_right=_mean((task.label == "verified_success") == task.correct for task in said) if said else None,
        health=_averaged(Health, [cell.health for cell in cells]),
        kinds={kind: _mean(cell.kinds.get(kind, 0.0) for cell in cells) for kind in cells[0].kinds},
        false_accepts=_averaged(FalseAccepts, [cell.false_accepts for cell in cells]),
        views=_views(every),
        agent_tokens=_mean((task.observed + task.injected) / CHARACTERS_PER_TOKEN for task in measured),
        injected_tokens=_mean(task.injected / CHARACTERS_PER_TOKEN for task in measured),
        looks=_mean(float(task.looks) for task in every),
        seconds=_mean(task.seconds for task in measured),
        storage_mb=_mean(cell.storage_mb for cell in cells),
        retrieve_ms=_mean(times) if times else None,
    )


def _views(tasks: Sequence[DriftTask]) -> dict[str, float]:
    looked = [task for task in tasks if len(task.views) == 3]
    agree = [views_agree(task.views) for task in looked]
    return {
        "boundary": _mean(task.boundary for task in looked),
        "full_evidence": _mean(one[0] for one in agree),
        "full_risk": _mean(one[1] for one in agree),
        "all": _mean(one[2] for one in agree),
    }


def _windows(cells: Sequence[Cell]) -> tuple[float, ...]:
    parts = []
    for cell in cells:
        correct = np.array([_solved(task) for task in cell.tasks if task.stage == "main"])
        parts.append([_mean(part[~np.isnan(part)]) for part in np.array_split(correct, WINDOWS)])
    return tuple(float(value) for value in np.mean(parts, axis=0))


def _measured(cells: Sequence[Cell]) -> Iterable[DriftTask]:
    return (task for cell in cells for task in cell.tasks if task.stage == "main" and not task.error)


def _solved(task: DriftTask) -> float:
    return float("nan") if task.correct is None else float(task.correct)


def _per_task(ids: Sequence[str], cells: Sequence[Cell], value: Callable[[DriftTask], float]) -> Values:
    """One value per task, the mean over seeds; NaN where no seed has one."""
    found: dict[str, list[float]] = {task_id: [] for task_id in ids}
    for task in _measured(cells):
        if not np.isnan(measured := value(task)):
            found[task.task_id].append(measured)
    return np.array([float(np.mean(values)) if values else np.nan for values in found.values()])


def _averaged(kind: type[Figures], each: Sequence[Figures]) -> Figures:
    """Means over seeds; counts are rounded to whole ones."""
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        mean = _mean(getattr(one, name) for one in each)
        values[name] = round(mean) if field.annotation is int else mean
    return kind(**values)


def interval_of(estimate: Estimate | None) -> Interval:
    """An estimate as it is written down; NaN where no task is scored."""
    if estimate is None:
        return Interval(mean=float("nan"), low=float("nan"), high=float("nan"), n=0)
    return Interval(mean=estimate.mean, low=estimate.low, high=estimate.high, n=estimate.n)


def _mean(values: Iterable[float]) -> float:
    collected = [float(value) for value in values]
    return float(np.mean(collected)) if collected else float("nan")
