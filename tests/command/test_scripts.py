"""The scripts: seeds puts figures side by side, set-up refuses a CUDA build, and each says how it is used."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
BENCHES = [path for path in sorted(SCRIPTS.glob("bench_*")) if not path.suffix] + [SCRIPTS / "sample"]


@pytest.fixture
def seeds() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("seeds_script", str(SCRIPTS / "seeds"))
    spec = importlib.util.spec_from_loader("seeds_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def evaluation(trained: float | None, oracle: float) -> dict[str, Any]:
    return {
        "policies": {"none": {"accuracy": 0.1}, "trained": {"accuracy": trained}},
        "best_single_accuracy": 0.5,
        "oracle": oracle,
        "oracle_crossfit": 0.7,
        "best_of_k_none": None,
        "shuffled_loss_share": 0.9,
        "headroom_captured": {"trained": 0.5},
        "headroom_captured_plain": {"trained": 0.4},
        "headroom_over_best": {},
    }


def test_figures_are_collected_by_seed_and_gaps_stay_gaps(seeds: ModuleType) -> None:
    figures = seeds.collect({0: evaluation(0.4, 0.8), 1: evaluation(None, 0.9), 2: evaluation(0.6, 1.0)})
    assert figures["accuracy.trained"] == {0: 0.4, 1: None, 2: 0.6}
    summary = seeds.summary(figures["accuracy.trained"])
    assert summary["mean"] == pytest.approx(0.5)
    assert summary["standard_deviation"] == pytest.approx(0.1 * 2**0.5)
    assert seeds.summary(figures["oracle"])["mean"] == pytest.approx(0.9)
    assert seeds.summary(figures["best_of_k_none"])["mean"] is None


def test_seeds_runs_each_seed_under_its_own_name(
    seeds: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[str, ...]] = []

    def fake(*arguments: str) -> dict[str, Any]:
        calls.append(arguments)
        if arguments[0] == "config":
            return {"name": "toy", "runs_dir": str(tmp_path)}
        return evaluation(0.4, 0.8)

    monkeypatch.setattr(seeds, "memroute", fake)
    monkeypatch.setattr(seeds.subprocess, "run", lambda *arguments, **options: None)
    monkeypatch.setattr(sys, "argv", ["seeds", "toy.yaml", "3", "5", "--split", "test", "--", "--set", "suite.dev=4"])
    assert seeds.main() == 0
    runs = [call for call in calls if call[0] == "run"]
    assert [call[call.index("--name") + 1] for call in runs] == ["toy-seed3", "toy-seed5"]
    assert all("suite.dev=4" in call for call in calls)
    assert sum(call[0] == "evaluate" and call[-3:] == ("--split", "test", "--json") for call in calls) == 2
    written = json.loads((tmp_path / "toy-seeds-test.json").read_text(encoding="utf-8"))
    assert written["seeds"] == [3, 5]
    assert written["figures"]["accuracy.trained"]["by_seed"] == {"3": 0.4, "5": 0.4}
    assert "accuracy.trained" in capsys.readouterr().out


def fake_program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(("brings", "code"), [("nvidia-cublas", 1), ("sympy", 0)])
def test_setup_downloads_no_cuda_build_by_accident(brings: str, code: int, tmp_path: Path) -> None:
    """A Python that only pretends: its pip tells what a dry run would install and notes what is installed."""
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    (project / "pyproject.toml").write_text("", encoding="utf-8")
    (project / "scripts" / "setup").write_bytes((SCRIPTS / "setup").read_bytes())
    programs = tmp_path / "programs"
    programs.mkdir()
    report = json.dumps({"install": [{"metadata": {"name": "torch"}}, {"metadata": {"name": brings}}]})
    pretending = f"""
case "$*" in
  *"-m venv"*) mkdir -p "${{@: -1}}/bin" && cp "$0" "${{@: -1}}/bin/python" ;;
  *dry-run*) echo '{report}' ;;
  *"pip install"*) echo "$*" >>"{tmp_path}/installed" ;;
  *"import sys, torch"*) grep -qs "install torch" "{tmp_path}/installed" ;;
  *"import json"* | *hashlib*) exec "{sys.executable}" "$@" ;;
esac
"""
    for name in ("python3.11", "python3"):
        fake_program(programs, name, pretending)
    fake_program(programs, "nvidia-smi", "exit 9")
    done = subprocess.run(
        ["bash", str(project / "scripts" / "setup")],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    installed = (tmp_path / "installed").read_text(encoding="utf-8")
    assert done.returncode == code, done.stderr
    assert ("torch==" in installed) == (code == 0)
    assert (project / ".venv" / ".memroute-setup").exists() == (code == 0)
    if code:
        assert "MEMROUTE_TORCH_INDEX" in done.stderr
        assert "nothing was downloaded" in done.stderr


@pytest.mark.parametrize("name", ["run", "setup", "test", "../.ci/run"])
def test_shell_scripts_are_sound_and_executable(name: str) -> None:
    script = SCRIPTS / name
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", BENCHES, ids=lambda script: script.name)
def test_a_bench_needs_nothing_before_it_has_the_projects_python(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert text.startswith("#!/usr/bin/env python3\n")
    body = ast.parse(text).body
    switch = next(place for place, statement in enumerate(body) if "use_own_python()" in ast.unparse(statement))
    before = [
        (statement.module or "") if isinstance(statement, ast.ImportFrom) else statement.names[0].name
        for statement in body[:switch]
        if isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    assert {name.split(".")[0] for name in before} <= {*sys.stdlib_module_names, "own_python"}


def test_a_script_goes_on_in_the_projects_python(tmp_path: Path) -> None:
    """A Python without memroute hands over to the one that set-up makes; one that has it stays."""
    scripts, setups = tmp_path / "project" / "scripts", tmp_path / "setups"
    scripts.mkdir(parents=True)
    (scripts / "own_python.py").write_bytes((SCRIPTS / "own_python.py").read_bytes())
    made = scripts.parent / ".venv" / "bin"
    fake_program(tmp_path, "python", f'exec "{sys.executable}" "$@"')
    fake_program(scripts, "setup", f'mkdir -p "{made}" && cp "{tmp_path}/python" "{made}" && echo >>"{setups}"')
    (scripts / "bench").write_text(
        "import importlib.metadata, json, sys\nfrom own_python import use_own_python\nroot = use_own_python()\n"
        "importlib.metadata.version('memroute')\nprint(json.dumps([str(root), str(root) in sys.path, sys.argv[1:]]))\n"
    )
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    for python, expected in (("bare/bin/python", 1), ("python", 1), ("bare/bin/python", 2)):
        command = [str(tmp_path / python), str(scripts / "bench"), "--only", "a b"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert json.loads(done.stdout) == [str(scripts.parent), True, ["--only", "a b"]]
        assert len(setups.read_text().splitlines()) == expected


def test_a_benchmark_is_tried_on_its_sample_without_key_or_network(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "sample"), "taskcraft", "explore", "--dry-run", "--port", "0"]
    done = subprocess.run([*command, "--runs-dir", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "10 tasks under 28 arms in 4 waves" in done.stdout
    assert "Prices are the config's own" in done.stdout
    assert "Not counted: what the models of distiller, scorer are asked." in done.stdout
    assert "Before that" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["taskcraft-sample.yaml"]


def test_bench_explore_measures_the_episodes_that_it_ran() -> None:
    command = [sys.executable, str(SCRIPTS / "bench_explore"), "--only", "cost", "--episodes", "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["episodes"] == 50
    assert figures["framework_cpu_ms_per_episode"] > 0
    assert {"rss_growth_mb", "encoder_cpu_ms_per_episode"} <= figures.keys()
