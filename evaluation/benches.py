"""What `memroute bench ACTION` does, from the command's arguments to a result and its tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from evaluation.text_tables import Rows
from providers.errors import ConfigError
from providers.types import Split


@dataclass(frozen=True)
class Done:
    """The result for programs, the tables for people."""

    result: BaseModel
    tables: Sequence[Rows]


async def bench_of(action: str, given: Mapping[str, Any]) -> Done:
    """Run one benchmark with the command's arguments by name."""
    return await _BENCHES[action](given)


async def _govmem(given: Mapping[str, Any]) -> Done:
    from evaluation.govmem.bench import bench_govmem
    from evaluation.govmem.tables import tables_of

    bench = await bench_govmem(seeds=given["seeds"], sweep=given["sweep"], judge=given["judge"])
    return Done(bench, tables_of(bench))


async def _drift(given: Mapping[str, Any]) -> Done:
    from evaluation.drift.bench import DriftSettings, bench_drift, run_config
    from evaluation.drift.tables import tables_of
    from evaluation.drift.variants import named

    noise = tuple(given["noise"] or DriftSettings().noise)
    if not all(0.0 <= share <= 1.0 for share in noise):
        raise ConfigError("--noise: give shares from 0 to 1, as 0.3.")
    settings = DriftSettings(
        noise=noise,
        wrong=given["wrong"],
        variants=named(given["variants"] or ["main"]),
        switches=named(given["switches"] or []),
        fill=given["fill"],
        tasks=given["tasks"],
        split=Split(given["split"]),
        seeds=given["seeds"],
    )
    bench = await bench_drift(settings, run_config(given["runs_dir"]))
    return Done(bench, tables_of(bench))


async def _harm(given: Mapping[str, Any]) -> Done:
    from evaluation.drift.bench import run_config
    from evaluation.harm.bench import HarmSettings, bench_harm
    from evaluation.harm.tables import tables_of

    settings = HarmSettings(
        sources=given["sources"], tasks=given["tasks"], copies=given["copies"], split=Split(given["split"])
    )
    bench = await bench_harm(settings, run_config(given["runs_dir"], "bench-harm"))
    return Done(bench, tables_of(bench))


_BENCHES: dict[str, Callable[[Mapping[str, Any]], Awaitable[Done]]] = {
    "govmem": _govmem,
    "drift": _drift,
    "harm": _harm,
}
