"""Attacks on the skill sandbox: each ends as an error of that one call, and the next call works as before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers import skills
from providers.errors import ProviderError
from providers.skills import SkillRunner, check_code, typed_arguments
from providers.tools import ToolResult
from providers.types import Parameter, SkillSpec

REACH = "w = links.__globals__['__builtins__']\n    os = w['__import__']('os')\n    "
"""How code that was not checked gets at the interpreter's own builtins."""


class Strict:
    """A tool that takes exactly one text and would fail on anything else."""

    name = "open"
    doc = "Open a page."
    parameters = (Parameter(name="page"), Parameter(name="part", type="int"))

    async def call(self, page: str, part: int = 0) -> ToolResult:
        return ToolResult(observation=page.upper() + str(part + 1))


@pytest.fixture(scope="module")
def runner() -> Iterator[SkillRunner]:
    runner = SkillRunner(max_calls=5, wall_seconds=6.0, cpu_seconds=1, memory_bytes=128 * 2**20)
    yield runner
    runner.close()


async def attack(runner: SkillRunner, code: str, **arguments: Any) -> str:
    """What came back from a skill with the body `code`; a further call must work after it."""
    act = SkillSpec(name="act", code=f"def act(tools, x: str = '') -> str:\n    {code}\n", code_id="a")
    result = await runner.run(act, arguments, (Strict(),))
    calm = SkillSpec(name="calm", code="def calm(tools) -> str:\n    return tools.open('alive')", code_id="c")
    assert (await runner.run(calm, {}, (Strict(),))).result.observation == "ALIVE1"
    assert len(result.result.observation) <= 64 * 2**10
    assert result.calls <= 5
    return result.result.error or f"returned: {result.result.observation}"


# Checked code that does harm by its size alone


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "without a result"),
        ("return str(sum(range(10**13)))", "without a result"),
        ("return str(len(str(7**7**9)))", "without a result"),
        ("return 'a' * 2**30", "MemoryError"),
        ("rows = []\n    while True: rows.append('a' * 10**6)", "MemoryError|without a result"),
        ("return act(tools)", "RecursionError"),
        ("raise ValueError('a' * 50_000_000)", "ValueError: a"),
        ("return ' '.join(str(i) for i in range(10**6))", "longer than"),
        ("while True: tools.open('again')", "more than 5"),
        ("x = []\n    for _ in range(900): x = [x]\n    return tools.open(x)", "called wrongly|RecursionError"),
    ],
)
async def test_too_much_of_anything_ends_that_call(runner: SkillRunner, code: str, reason: str) -> None:
    seen = await attack(runner, code)
    assert any(part in seen for part in reason.split("|")), seen


# Code that slipped past the check


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "check_code", lambda name, code: None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
@pytest.mark.parametrize(
    "deed",
    [
        "os.remove(x)",
        "os.rename(x, x + '.gone')",
        "os.truncate(x, 0)",
        "os.chmod(x, 0)",
        "os.mkdir(x + '.d')",
        "os.symlink('/', x + '.s')",
        "os.listdir('/')",
        "os.stat('/')",
        "w['open'](x).read()",
        "w['open'](x, 'w')",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.kill(os.getppid(), 0)",
        "os.pipe()",
        "os.setuid(0)",
        "w['__import__']('socket').socket()",
        "w['__import__']('socket').create_connection(('127.0.0.1', 80))",
        "w['__import__']('ctypes').CDLL(None).unlink(x.encode()) and w['open'](x)",
        "w['__import__']('mmap').mmap(0, 10)",
    ],
)
async def test_the_kernel_refuses_what_the_check_did_not(runner: SkillRunner, deed: str, tmp_path: Path) -> None:
    victim = tmp_path / "kept.txt"
    victim.write_text("kept", encoding="utf-8")
    seen = await attack(runner, f"{REACH}return str({deed})", x=str(victim))
    assert "Error" in seen, seen
    assert victim.read_text(encoding="utf-8") == "kept"
    assert os.listdir(tmp_path) == ["kept.txt"]
    assert victim.stat().st_mode & 0o777 != 0


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "line",
    [
        "b'[' * 60_000 + b'\\n'",
        "b'{' * 10**7",
        "b'\\xff\\xfe\\n'",
        'b\'{"call": "open", "arguments": {"page": [[[]]]}}\\n\'',
        'b\'{"call": "rm", "arguments": {}}\\n\'',
        "b'{\"result\": 7}\\n'",
        "b'null\\n'",
        "b'\\n'",
    ],
)
async def test_a_child_that_speaks_out_of_turn_fails_alone(runner: SkillRunner, line: str) -> None:
    code = f"{REACH}\n    for n in range(3, 64):\n        try: os.write(n, {line})\n        except OSError: pass"
    seen = await attack(runner, f"{code}\n    return tools.open('x')")
    assert "failed" in seen, seen


@pytest.mark.usefixtures("unchecked")
async def test_printing_a_gigabyte_reaches_nobody(runner: SkillRunner, capfd: pytest.CaptureFixture[str]) -> None:
    await attack(runner, f"{REACH}[w['print']('a' * 2**20) for _ in range(1024)]\n    return 'done'")
    await attack(runner, f"{REACH}[os.write(n, b'a' * 2**16) for n in (1, 2)]\n    return 'done'")
    assert capfd.readouterr() == ("", "")


# Arguments


async def test_arguments_are_typed_before_the_skill_runs(runner: SkillRunner) -> None:
    head = "def act(tools, n: int, on: bool = False, *, names: list[str], part: float = 1.5) -> str:"
    code = head + "\n    return f'{n + 1} {on} {names} {part}'"
    spec = SkillSpec(name="act", code=code, code_id="a")
    assert typed_arguments(spec, {"n": "3", "names": ["a"]}) == {"n": 3, "names": ["a"]}
    assert typed_arguments(spec, {"n": 3.0, "names": [], "on": "true", "part": 2}) == {
        "n": 3,
        "names": [],
        "on": True,
        "part": 2.0,
    }
    result = await runner.run(spec, {"n": "3", "names": ["a"]}, ())
    assert result.result.observation == "4 False ['a'] 1.5"
    for wrong, reason in (
        ({"n": "three", "names": []}, "'n' must be int"),
        ({"n": 3.5, "names": []}, "'n' must be int"),
        ({"n": 1, "names": "a, b"}, "'names' must be list"),
        ({"n": 1}, "needs the argument 'names'"),
        ({"n": 1, "names": [], "tools": "mine"}, "no argument 'tools'"),
        ({"n": 1, "names": [], "other": 1}, "no argument 'other'"),
    ):
        with pytest.raises(ProviderError, match=reason):
            typed_arguments(spec, wrong)
        refused = await runner.run(spec, wrong, ())
        assert refused.calls == 0
        assert reason in (refused.result.error or "")


async def test_a_tool_that_is_called_wrongly_is_the_skills_error_and_not_the_runs(runner: SkillRunner) -> None:
    for call, reason in (
        ("tools.open()", "missing a required argument: 'page'"),
        ("tools.open([1])", "'page' must be str"),
        ("tools.open('a', 'b')", "'part' must be int"),
    ):
        seen = await attack(runner, f"return {call}")
        assert reason in seen
    assert await attack(runner, "return tools.open(5, '2')") == "returned: 53"
    caught = "try:\n        return tools.open()\n    except TypeError as error:\n        return f'{error}'"
    assert (await attack(runner, caught)).startswith("returned: open was called wrongly")


# The check itself


@pytest.mark.parametrize(
    "code",
    [
        "-" * 7_000 + "1",
        "-" * 10**6 + "1",
        "(" * 5_000,
        "a" + ".b" * 3_000,
        "x = " + "[" * 199 + "]" * 199,
        "def act(tools): return " + "not " * 3_000 + "1",
        "def act(tools): return 1" + " + 1" * 10**6,
        "\x00",
        "\ud800",
        "def act(tools):\n\treturn 1\n        return 2",
        "def ａｃｔ(tools): return ｏｐｅｎ('x')",
        "def act(tools): return x.__ｃlass__",
    ],
)
def test_bombs_for_the_parser_are_refused(code: str) -> None:
    with pytest.raises(ProviderError, match="Skill act"):
        check_code("act", code)


@pytest.mark.parametrize("name", ["str", "fields", "len", "tools", "ValueError"])
def test_a_skill_takes_no_name_that_skills_are_given(name: str) -> None:
    with pytest.raises(ProviderError, match="call it otherwise"):
        check_code(name, f"def {name}(tools): return 'x'")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="def act(tols,x:str)\n _.=[]{}'\"1+*lambdfornifyw@", max_size=120))
def test_any_text_is_checked_without_a_crash(text: str) -> None:
    for code in (text, f"def act(tools):\n    return {text}"):
        try:
            check_code("act", code)
        except ProviderError:
            continue
