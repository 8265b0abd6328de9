"""SIGKILL at random moments over exploration, scoring and building: nothing lost, nothing doubled, the same dataset."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from toy_world import bank_content, toy_config

from providers.types import content_hash
from synth.rewards import rewards_signature
from synth.runs import Run

KILLS = 50
STAGES = ("explore", "score", "build")

CHAIN = """
import asyncio, sys
sys.path[:0] = {paths!r}
from pathlib import Path
from toy_world import toy_config
from synth.dataset import build
from synth.explore import explore
from synth.rewards import score
from synth.runs import Run
from synth.warmup import warm_up

def stage(name):
    print(name, flush=True)

with Run.open(toy_config(Path({runs!r}), {name!r})) as run:
    stage("warmup")
    asyncio.run(warm_up(run))
    stage("explore")
    asyncio.run(explore(run))
    stage("score")
    asyncio.run(score(run))
    stage("build")
    build(run)
    stage("end")
"""


def start(runs: Path, name: str) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    code = CHAIN.format(paths=paths, runs=str(runs), name=name)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=(runs / "log").open("a"), text=True
    )


def durations(runs: Path, name: str) -> dict[str, float]:
    """How long each stage takes undisturbed."""
    child, begun = start(runs, name), {}
    assert child.stdout is not None
    for line in child.stdout:
        begun[line.strip()] = time.monotonic()
    assert child.wait() == 0, (runs / "log").read_text()
    return {stage: begun[after] - begun[stage] for stage, after in pairwise(begun)}


def killed(runs: Path, name: str, target: str, delay: float) -> bool:
    """Run the chain and kill it `delay` seconds into a stage; False where it ended before."""
    child = start(runs, name)
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == target:
            break
    time.sleep(delay)
    child.kill()
    code = child.wait()
    child.stdout.close()
    assert code in (0, -signal.SIGKILL), (runs / "log").read_text()
    return code == -signal.SIGKILL


def left(runs: Path, name: str) -> dict[str, object]:
    """All that a chain leaves, without clocks."""
    with Run.open(toy_config(runs, name)) as run:
        rows = run.facts._rows(
            "SELECT task_id, content_key, in_mode, repeat, attempt, status FROM episodes WHERE stage = 'explore'"
            " ORDER BY task_id, content_key, in_mode, repeat, attempt"
        )
        return {
            "rows": rows,
            "trajectories": {
                content_hash(key.model_dump()): episode.trajectory.id if episode.trajectory else None
                for key, episode in run.facts.episodes("explore").items()
            },
            "rewards": [reward.model_dump() for reward in run.facts.rewards(rewards_signature(run))],
            "bank": bank_content(run),
            "dataset": json.loads((run.dataset / "card.json").read_text())["hash"],
        }


@pytest.mark.slow
def test_killed_at_fifty_random_moments_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    draw = random.Random(20)
    lasting = durations(tmp_path, "undisturbed")
    expected = left(tmp_path, "undisturbed")
    targets, kills, chains = cycle(STAGES), dict.fromkeys(STAGES, 0), 0
    while sum(kills.values()) < KILLS:
        name, ended, chains = f"killed{chains}", False, chains + 1
        for target in targets:
            if killed(tmp_path, name, target, draw.uniform(0, lasting[target])):
                kills[target] += 1
            ended = (tmp_path / name / "dataset" / "card.json").exists()
            if ended or sum(kills.values()) == KILLS:
                break
        child = start(tmp_path, name)
        child.communicate()
        assert child.returncode == 0, (tmp_path / "log").read_text()
        found = left(tmp_path, name)
        for what, value in expected.items():
            assert found[what] == value, f"{what} differs after kills in {name}"
    assert min(kills.values()) >= KILLS // (2 * len(STAGES)), kills
