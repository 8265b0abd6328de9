"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from providers.files import write_atomically


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    write_atomically(path, "first")
    write_atomically(path, "zweité".encode())
    assert path.read_text(encoding="utf-8") == "zweité"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("", encoding="utf-8")
    write_atomically(tmp_path / "atomic", "")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
