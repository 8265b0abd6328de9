"""A whole run on each benchmark's small sample: explore, score, build, heads, evaluate, report; all models scripted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_config import BENCHMARKS, sample_values
from scripted_endpoint import Endpoint
from scripted_models import SAMPLES, Cast

from evaluation.replay import evaluate
from evaluation.report.html import write_report
from providers.errors import ConfigError
from router.table import RoutingTable
from synth.config import RunConfig
from synth.dataset import build
from synth.explore import arms_name, explore
from synth.export import export_dataset
from synth.rewards import score
from synth.runs import Run
from synth.warmup import warm_up
from train.heads import train_heads

FORMATS = (*BENCHMARKS, "jsonl")
PUZZLE = "乍得"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    running.answer = Cast()
    yield running
    running.stop()


def config(runs_dir: Path, url: str, name: str) -> RunConfig:
    """A benchmark's config on its sample with two memories and rules in place of all models but agent and scorer."""
    values = sample_values("taskcraft" if name == "jsonl" else name, url)
    if name == "jsonl":
        values["suite"]["options"]["test"] = [{"format": "jsonl", "data": str(SAMPLES / "jsonl")}]
    small = {
        "runs_dir": str(runs_dir),
        "providers": ["expel", "voyager"],
        "encoder": {"name": "hashing"},
        "distiller": "rules",
        "rewards": {"judge": "rules"},
    }
    values["models"]["router"] = None
    values["explore"] |= {"waves": 2, "concurrency": 2}
    values["evaluate"] |= {"bootstrap": 100, "policies": ["none", "random", "expel", "voyager", "overlap", "heads"]}
    return RunConfig.model_validate(values | small)


@pytest.mark.parametrize("name", FORMATS)
async def test_a_benchmark_runs_from_exploration_to_the_report(endpoint: Endpoint, tmp_path: Path, name: str) -> None:
    with Run.open(config(tmp_path, endpoint.url, name)) as run:
        await warm_up(run)
        await explore(run)
        await score(run)
        build(run)
        train_heads(run)
        result = await evaluate(run, "test")
        report = write_report(run)
        explored, tested = (RoutingTable.load(run.table(split)) for split in ("explore", arms_name(run.config, "test")))
        episodes = run.facts.episodes("explore")
    assert (len(explored.rows), len(tested.rows)) == (10, 3)
    assert {row.family.split()[0] for row in explored.rows} == {"gaia", "taskcraft"}
    assert {row.family.split()[0] for row in tested.rows} == {name}
    assert all(cell.correct is not None for table in (explored, tested) for row in table.rows for cell in row.cells)
    first_wave = [cell.correct for row in explored.rows[:5] for cell in row.cells if cell.arm.provider == "none"]
    assert set(first_wave) <= {0.0, 1.0}
    assert any(cell.correct == 1.0 for row in tested.rows for cell in row.cells if cell.arm.provider == "voyager")
    assert {"none", "voyager", "heads"} <= result.policies.keys()
    assert result.oracle is not None
    assert report.exists()
    steps = [step for one in episodes.values() if one.trajectory for step in one.trajectory.steps]
    assert {"search", "open", "read_file", "answer"} <= {step.tool for step in steps}
    assert all(step.lineage is not None for step in steps if step.tool != "answer")
    assert not any(step.error for step in steps)


async def test_the_shipped_settings_run_with_thirteen_memories_and_a_model_for_everything(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.answer = Cast(native=True)
    values = sample_values("gaia", endpoint.url) | {"runs_dir": str(tmp_path), "encoder": {"name": "hashing"}}
    values["suite"] |= {"explore": 6, "dev": 0, "test": 0}
    values["suite"]["options"]["explore"][1]["sample"] = 3
    values["explore"]["waves"] = 2
    with Run.open(RunConfig.model_validate(values)) as run:
        await warm_up(run)
        await explore(run)
        await score(run)
        build(run)
        rows = (run.dataset / "train.jsonl").read_text(encoding="utf-8").splitlines()
        table = RoutingTable.load(run.table("explore"))
        episodes = run.facts.episodes("explore")
    assert len(run.config.providers) == 13
    assert (run.config.distiller, run.config.rewards.judge) == ("lm", "lm")
    asked = {shape_of(request) for request in endpoint.requests}
    assert {"WorkflowAnswer", "NarrativeAnswer", "BeginVerdict", "Equivalence"} <= asked
    assert {one.trajectory.settings["actions"] for one in episodes.values() if one.trajectory} == {"tools"}
    remembered = {cell.arm.provider for row in table.rows for cell in row.cells if not cell.empty}
    assert len(remembered - {"none"}) >= 8
    assert rows


def shape_of(request: dict[str, Any]) -> str:
    """The name of the form that an answer is asked in."""
    return str(request.get("response_format", {}).get("json_schema", {}).get("name"))


async def test_sealed_questions_stay_in_the_runs_folder(endpoint: Endpoint, tmp_path: Path) -> None:
    sealed = config(tmp_path, endpoint.url, "xbench_ds")
    swapped = sealed.model_dump()
    options = swapped["suite"]["options"]
    options["explore"], options["test"] = options["test"], []
    swapped["suite"] |= {"explore": 3, "dev": 0, "test": 0}
    with Run.open(RunConfig.model_validate(swapped)) as run:
        await warm_up(run)
        await explore(run)
        await score(run)
        build(run)
        table = RoutingTable.load(run.table("explore"))
        page = write_report(run).read_text(encoding="utf-8")
        with pytest.raises(ConfigError, match="may not be published"):
            export_dataset(run, tmp_path / "shared", "jsonl")
        assert (run.root / ".gitignore").read_text(encoding="utf-8") == "*\n"
    assert any(PUZZLE in row.question for row in table.rows)
    assert PUZZLE not in page
    assert not (tmp_path / "shared").exists()


async def test_the_scorer_is_independent_unless_it_is_told_otherwise(endpoint: Endpoint, tmp_path: Path) -> None:
    same = config(tmp_path, endpoint.url, "jsonl").model_dump()
    same["models"]["scorer"]["model"] = same["models"]["agent"]["model"]
    with Run.open(RunConfig.model_validate(same)) as run, pytest.raises(ConfigError, match="score its own work"):
        await warm_up(run)
