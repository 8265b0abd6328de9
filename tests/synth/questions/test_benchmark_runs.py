"""A whole run on each benchmark's small sample: explore, score, build, heads, evaluate, report; all models scripted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import Endpoint, Play, said

from evaluation.replay import evaluate
from evaluation.report.html import write_report
from providers.errors import ConfigError
from router.table import RoutingTable
from synth.config import RunConfig
from synth.dataset import build
from synth.explore import arms_name, explore
from synth.export import export_dataset
from synth.load_config import load_config
from synth.rewards import score
from synth.runs import Run
from synth.tasks.questions.sources import Source, load
from synth.warmup import warm_up
from train.heads import train_heads

SAMPLES = Path(__file__).parent.parent / "samples"
FORMATS = ("gaia", "webwalkerqa", "xbench_ds", "taskcraft", "jsonl")
KNOWN = {
    question.question: str(question.gold)
    for name in FORMATS
    for question in load(Source.model_validate({"format": name, "data": str(SAMPLES / name)}))[1]
}
CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SIZES = {"explore": 10, "dev": 1, "test": 3}
PUZZLE = "乍得"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    running.answer = played
    yield running
    running.stop()


def played(request: dict[str, Any]) -> Play:
    """The agent's model, and the scorer's."""
    if request["model"] == "scorer":
        lines = re.findall(r"^\| (.*)$", request["messages"][1]["content"], re.MULTILINE)
        gold, answer = lines[-2:]
        return said(json.dumps({"reason": "compared", "correct": answer == f"It is {gold}"}))
    if "tools" in request:
        return said("Lemons are yellow.")  # tool_choice is ignored, so that actions are written
    return said(json.dumps({"thought": "I go on.", "action": action(request["messages"])}))


def action(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Searches or reads the file, then answers: rightly with a memory, and without one every other question."""
    opening = turns[1]["content"]
    question = opening.splitlines()[0].removeprefix("Task: ")
    files = re.search(r"^Files: (.+\.csv)$", opening, re.MULTILINE)
    if len(turns) == 2:
        return {"tool": "read_file", "file": files[1]} if files else {"tool": "search", "query": question}
    right = "From earlier tasks" in opening or len(question) % 2 == 0
    return {"tool": "answer", "text": f"It is {KNOWN[question]}" if right else "Nothing of the kind"}


def config(runs_dir: Path, url: str, name: str) -> RunConfig:
    """The shipped config of a benchmark on the samples, small, with scripted models and the factbook as its web."""
    values = load_config(CONFIGS / f"{name if name != 'jsonl' else 'taskcraft'}.yaml").model_dump(mode="json")
    options = values["suite"]["options"]
    if name == "jsonl":
        options["test"] = [{"format": "jsonl"}]
    for split, size in SIZES.items():
        values["suite"][split] = size
        for source in options[split]:
            source["data"] = str(SAMPLES / source["format"])
            if "sample" in source:
                source["sample"] = size - 3 * (split == "explore")  # three tasks are GAIA's
    options["tools"] = {"search": "factbook"}
    for purpose, model in (("default", "agent"), ("agent", "agent"), ("scorer", "scorer")):
        values["models"][purpose] |= {"base_url": url, "model": model}
    small = {
        "runs_dir": str(runs_dir),
        "providers": ["expel", "voyager"],
        "encoder": {"name": "hashing"},
        "distiller": "rules",
        "rewards": {"judge": "rules"},
    }
    values["models"]["router"] = None
    values["explore"] |= {"waves": 2, "concurrency": 2}
    values["dataset"]["validation_share"] = 0.25
    values["evaluate"] |= {"bootstrap": 100, "policies": ["none", "random", "expel", "voyager", "overlap", "heads"]}
    values["train"]["base"] = "smollm2-135m"  # its tokenizer is not on the hub
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
    assert {"search", "read_file", "answer"} <= {step.tool for step in steps}
    assert all(step.lineage is not None for step in steps if step.tool in ("search", "read_file"))


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
    same["models"]["scorer"]["model"] = "agent"
    with Run.open(RunConfig.model_validate(same)) as run, pytest.raises(ConfigError, match="score its own work"):
        await warm_up(run)
