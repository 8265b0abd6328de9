"""The conformance kit: every installed provider passes it, and it catches what it is there to catch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from providers.conformance import PROPERTIES, Check, NotConforming, check_providers, require
from providers.errors import BankError, ConfigError, MemrouteError
from providers.registry import provider_paths

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faulty_memories.py")
PACKAGE = ROOT / "tests" / "packages" / "notebook_memory"
QUICK = [name for name in PROPERTIES if name != "crash_between_writes"]
IN_EVERY_RUN = ("expel", "insight_graph")
"""They write most: votes, effects, counters, a graph. The other providers' rows are marked slow, none is left out."""
MATRIX = [
    pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.slow) for name in sorted(provider_paths())
]


@pytest.mark.parametrize("name", MATRIX)
@pytest.mark.parametrize("property_name", QUICK)
def test_every_provider_has_every_property(name: str, property_name: str, tmp_path: Path) -> None:
    require(name, property_name, tmp_path)


def test_a_provider_survives_a_crash_at_every_write(tmp_path: Path) -> None:
    assert "crashes in stores" in require("insight_graph", "crash_between_writes", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(provider_paths()))
def test_every_provider_survives_a_crash_at_every_write(name: str, tmp_path: Path) -> None:
    require(name, "crash_between_writes", tmp_path)


@pytest.mark.parametrize(
    ("fault", "property_name", "reason"),
    [
        ("NeverAppends", "store_then_retrieve", "gives nothing"),
        ("ForgetsOnReopening", "store_then_retrieve", "something else|gives nothing"),
        ("TalksWhenEmpty", "empty_store", "empty store"),
        ("StoresTwice", "same_run_twice", "receipt|records"),
        ("IgnoresNamespaces", "two_namespaces", "another namespace"),
        ("SharesOneList", "sixteen_threads", "gone|failed"),
        ("SharesOneList", "four_processes", "gone|failed|again"),
        ("AsciiOnly", "unicode_corpus", "gives nothing"),
        ("InjectsEverything", "huge_and_empty_texts", "characters"),
        ("WritesInHalves", "crash_between_writes", "records differ"),
        ("ShowsScores", "pure_preview", "as a score would"),
        ("AsksToPreview", "pure_preview", "model"),
        ("CountsWhenPreviewing", "pure_preview", "wrote"),
        ("CountsWhenRetrieving", "pure_retrieval", "wrote"),
        ("TakesUnscoredForCorrect", "three_valued_gate", "correct=None passed"),
        ("HidesFailures", "failed_model_call", "'skipped'"),
        ("HidesOutages", "failed_model_call", "as if nothing were found"),
        ("LosesCounts", "effects_once", "otherwise than one by one"),
        ("CountsUnknown", "effects_once", "unknown outcome"),
        ("GrowsWithUse", "bounded_growth", "added"),
        ("CopiesWithoutOrigin", "forgetting", "copy record still speaks"),
        ("TripsOverForgotten", "forgetting", "no record"),
    ],
)
def test_the_kit_catches(
    fault: str, property_name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FAULTS.parent)
    with pytest.raises((NotConforming, BankError), match=reason):
        require(f"faulty_memories:{fault}", property_name, tmp_path)


def test_whatever_a_provider_raises_is_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FAULTS.parent)
    (row,) = check_providers(["faulty_memories:Raises"], ["empty_store"])
    assert isinstance(row, Check)
    assert not row.passed
    assert "ZeroDivisionError" in row.detail


def test_names_that_are_none_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'expel'"):
        next(check_providers(["awm", "expl"]))
    with pytest.raises(ConfigError, match="empty_store"):
        require("awm", "no_such", tmp_path)
    assert issubclass(NotConforming, MemrouteError)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the package under tests/packages, without a network."""
    target, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / PACKAGE.name
    shutil.copytree(PACKAGE, source)
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


def memroute(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(site)}
    command = [sys.executable, str(ROOT / "memroute.py"), "providers", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=site, check=False)


def test_a_provider_of_another_package_is_found_and_passes_the_whole_kit(site: Path) -> None:
    listed = json.loads(memroute(site, "list", "--json").stdout)["providers"]
    assert {"notebook", "voyager"} <= {card["name"] for card in listed}
    done = memroute(site, "check", "notebook", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["passed"] is True
    assert [row["property"] for row in result["checks"]] == list(PROPERTIES)
    assert {row["provider"] for row in result["checks"]} == {"notebook"}


def test_one_failed_check_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from memroute import main

    monkeypatch.syspath_prepend(FAULTS.parent)
    assert main(["providers", "check", "faulty_memories:NeverAppends", "--property", "store_then_retrieve"]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert main(["providers", "check", "voyager", "--property", "empty_store"]) == 0
    assert main(["providers", "check"]) == 2
