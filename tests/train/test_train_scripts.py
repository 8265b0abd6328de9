"""The benchmark of training and the GPU check, small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_model import made_base

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(name, *arguments):
    done = subprocess.run([sys.executable, str(SCRIPTS / name), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_gpu_check_measures_both_ways_on_a_tiny_shape():
    sizes = ["--prompt", "60", "--answers", "3", "--answer", "5", "--steps", "2", "--batches", "1", "2"]
    found = run("gpu_check", "--shape", "tiny", *sizes)
    assert found["skipped"] == []
    assert found["loss_gap"] < 1e-3
    assert found["ideal_speedup"] == pytest.approx(3 * 65 / (60 + 12), abs=1e-3)
    assert found["plain"]["rows_s"] > 0
    assert set(found["decision_s"]) == {"1", "2"}
    assert run("gpu_check", "--shape", "tiny", *sizes, "--minutes", "0")["skipped"][:2] == ["plain", "shared"]


@pytest.mark.slow
def test_bench_train_compares_with_trl_at_equal_loss(tmp_path):
    base = made_base(tmp_path / "base")
    found = run("bench_train", "--made", "8", "--base", str(base), "--dtype", "float32", "--tasks", "8")
    assert found["loss_gap"] < 1e-4
    assert found["rows"] == 20
    assert 1 < found["ideal_speedup"] < 20 / 8
    assert found["shared"]["tokens"] < found["plain"]["tokens"]
