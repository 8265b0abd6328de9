"""The benchmark's tables in the documents are those of the kept figures."""

from __future__ import annotations

import json
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    loader = SourceFileLoader("bench_providers_script", str(ROOT / "scripts" / "bench_providers"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module


def test_the_documents_hold_the_tables_of_the_kept_figures(bench: Any, tmp_path: Path) -> None:
    figures = json.loads(bench.KEPT.read_text())
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/bank.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    bench.ROOT = tmp_path
    bench.write_tables(figures)
    for name in ("README.md", "docs/bank.md"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()
    bench.write_tables({**figures, "probe_all_large_ratio": 7.46, "index_recall_at_1": 0.994, "probe_all_p50_ms": 8.76})
    text = (tmp_path / "README.md").read_text()
    assert "| probing with ten times the records | 8 times as long | 7.5 times |" in text
    assert "8.8 ms" in text
