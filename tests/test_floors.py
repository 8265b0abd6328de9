"""The rooms keep their floors, import lightly, and every module can be imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOOR = {"lm": 0, "providers": 0, "router": 1, "synth": 2, "evaluation": 3, "train": 4, "serve": 4, "memroute": 5}
ROOMS = tuple(room for room in FLOOR if room != "memroute")
HEAVY = (
    "torch",
    "faiss",
    "transformers",
    "sklearn",
    "scipy",
    "sentence_transformers",
    "openai",
    "trl",
    "peft",
    "datasets",
)


def modules_of(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imported_rooms(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every room that an import statement names, at any depth, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            room = name.split(".")[0]
            if room in FLOOR:
                yield node.lineno, room


def climbs(room: str, other: str) -> bool:
    """Whether an import from `room` into `other` breaks the floors; only providers may look across, into lm."""
    return other != room and FLOOR[other] >= FLOOR[room] and (room, other) != ("providers", "lm")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_floors_below(room: str) -> None:
    modules = modules_of(room)
    assert modules, f"{room} has no modules"
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {other}"
        for path in modules
        for line, other in imported_rooms(ast.parse(path.read_text(encoding="utf-8")))
        if climbs(room, other)
    ]
    assert wrong == []


def test_the_rule_sees_imports_in_functions_and_upward() -> None:
    tree = ast.parse("def f():\n    from train.sft import train\n    import lm.errors\n    from . import base\n")
    assert list(imported_rooms(tree)) == [(2, "train"), (3, "lm")]
    assert climbs("synth", "train")
    assert climbs("lm", "providers")
    assert not climbs("providers", "lm")
    assert not climbs("synth", "router")
    assert climbs("router", "memroute")


def test_every_module_imports_and_none_brings_anything_heavy() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in ROOMS
        for path in modules_of(room)
    ]
    script = (
        "import importlib, json, sys\n"
        f"for name in {['memroute', *names]!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_no_two_test_files_have_one_name() -> None:
    # pytest imports them by name alone: of two with one name, the second is an error, in a run of all tests only.
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
