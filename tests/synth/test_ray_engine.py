"""Exploration on a local Ray cluster of two worker processes: the same facts as in one process, whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from toy_world import bank_content, toy_config

from providers.errors import ConfigError
from router.table import RoutingTable
from synth.config import ExploreConfig, RunConfig
from synth.explore import explore
from synth.ray_engine import RayEngine
from synth.runs import Run
from synth.warmup import warm_up


def on_ray(tmp_path: Path, name: str = "ray", **changes: object) -> RunConfig:
    return toy_config(tmp_path, name, explore=ExploreConfig(engine="ray", ray_workers=2, **changes))  # type: ignore[arg-type]


async def left(run: Run) -> tuple[list[list[float | None]], list[str], list[tuple[object, ...]]]:
    """Outcomes, bank, and every episode's row."""
    table = RoutingTable.load(run.table("explore"))
    rows = run.facts._rows(
        "SELECT task_id, content_key, in_mode, repeat, attempt, status FROM episodes WHERE stage = 'explore'"
        " ORDER BY task_id, content_key, in_mode, repeat, attempt"
    )
    return [[cell.correct for cell in row.cells] for row in table.rows], bank_content(run), rows


async def undisturbed(tmp_path: Path) -> tuple[object, ...]:
    with Run.open(toy_config(tmp_path, "local")) as run:
        await warm_up(run)
        await explore(run)
        return await left(run)


@pytest.mark.slow
async def test_two_workers_leave_what_one_process_leaves_even_where_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    killed: list[int] = []
    ran: set[int] = set()
    plain = RayEngine.execute

    async def watched(self: RayEngine, *arguments: object) -> object:
        """Kills one worker in the middle of the second wave."""
        if self._wave == 2 and not killed and sum(self._busy) > 2:
            ran.update(await asyncio.to_thread(self.worker_processes))
            killed.append(sorted(ran)[0])
            os.kill(killed[0], signal.SIGKILL)
        return await plain(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RayEngine, "execute", watched)
    with Run.open(on_ray(tmp_path)) as run:
        await warm_up(run)
        await explore(run)
        found = await left(run)
    assert killed
    assert len(ran) == 2
    assert os.getpid() not in ran
    assert found == await undisturbed(tmp_path)


async def test_ray_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with Run.open(on_ray(tmp_path)) as run:
        await warm_up(run)
        with pytest.raises(ConfigError, match=r"pip install 'memroute\[ray\]'"):
            await explore(run)
