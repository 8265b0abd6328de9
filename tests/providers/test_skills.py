"""Skills: what is refused, and what running one can and cannot do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from providers.errors import ProviderError, SuiteError
from providers.skills import SkillResult, SkillRunner, check_code
from providers.tools import ToolResult
from providers.types import Parameter, SkillSpec

COUNT = """
def count_above(tools, region: str, field: str, least: float) -> str:
    found = 0
    for name, url in links(tools.open(region)):
        value = number(fields(tools.open(page=url)).get(field, ""))
        if value is not None and value > least:
            found += 1
    return str(found)
"""

PAGES = {
    "Asia": "# Asia\n- [Iran](/iran)\n- [Iraq](/iraq)\n- [Oman](/oman)",
    "/iran": "# Iran\nArea: 1.648 million sq km",
    "/iraq": "# Iraq\nArea: 438,317 sq km",
    "/oman": "# Oman\nCoastline: 2,092 km",
}


class Open:
    """A tool over a dictionary of pages."""

    name = "open"
    doc = "Open a page."
    parameters = (Parameter(name="page"),)

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def call(self, **arguments: Any) -> ToolResult:
        self.asked.append(arguments)
        await asyncio.sleep(0)
        if arguments["page"] == "down":
            raise SuiteError("The page server is down.")
        if arguments["page"] == "slow":
            await asyncio.sleep(60)
        text = PAGES.get(arguments["page"])
        return ToolResult(observation=text) if text else ToolResult(observation="No page.", error="No page.")


def skill(name: str, code: str) -> SkillSpec:
    return SkillSpec(name=name, code=code, code_id=name)


def body(*lines: str) -> SkillSpec:
    return skill("act", "def act(tools, x: str = '') -> str:\n" + "".join(f"    {line}\n" for line in lines))


@pytest.fixture(scope="module")
def runner() -> Iterator[SkillRunner]:
    runner = SkillRunner(max_calls=5, wall_seconds=5.0, cpu_seconds=1, memory_bytes=128 * 2**20)
    yield runner
    runner.close()


async def outcome(runner: SkillRunner, *lines: str, x: str = "") -> SkillResult:
    return await runner.run(body(*lines), {"x": x} if x else {}, (Open(),))


async def test_a_skill_loops_over_pages_inside_and_reports_its_calls(runner: SkillRunner) -> None:
    arguments = {"region": "Asia", "field": "Area", "least": 500_000}
    result = await runner.run(skill("count_above", COUNT), arguments, (Open(),))
    assert result.result.observation == "1"
    assert result.result.error is None
    assert result.calls == 4


async def test_tool_errors_are_text_to_the_skill_and_outages_pass_through(runner: SkillRunner) -> None:
    assert (await outcome(runner, "return tools.open('nowhere')")).result == ToolResult(
        observation="No page.", lineage=(await outcome(runner, "return x", x="y")).result.lineage
    )
    with pytest.raises(SuiteError, match="down"):
        await outcome(runner, "return tools.open('down')")


async def test_lists_numbers_and_unicode_come_back_as_text(runner: SkillRunner) -> None:
    assert (await outcome(runner, "return sorted(x.split(','))", x="Öland,Åland")).result.observation == "Åland; Öland"
    assert (await outcome(runner, "return max(3, 2.5) * 2")).result.observation == "6"
    assert (await outcome(runner, "return names('A; B')[1] + title('# C')")).result.observation == "BC"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["raise ValueError('no such field')"], "ValueError: no such field"),
        (["return {}['gone']"], "KeyError"),
        (["x = 'y'"], "returned nothing"),
        (["return 'a' * 100000"], "longer than 65536 bytes"),
        (["tools.open('a' * 100000)", "return x"], "longer than 65536 bytes"),
        (["return 'a' * 10**9"], "MemoryError"),
        (["return act(tools)"], "RecursionError"),
        (["return tools.find('x')"], "find"),
        (["return tools.open(url='x')"], "open takes page"),
        (["while True:", "    tools.open('Asia')"], "more than 5 tool calls"),
    ],
)
async def test_what_a_skill_does_wrong_is_an_error_in_its_result(
    runner: SkillRunner, lines: list[str], reason: str
) -> None:
    result = await outcome(runner, *lines)
    assert result.result.error is not None
    assert reason in result.result.error
    assert result.result.observation == result.result.error
    assert result.calls <= 5


async def test_wrong_arguments_are_an_error_in_the_result(runner: SkillRunner) -> None:
    for arguments in ({"y": "1"}, {"x": object()}, {"tools": "mine"}):
        assert (await runner.run(body("return x"), arguments, (Open(),))).result.error


async def test_an_endless_loop_is_ended_by_the_kernel_and_the_sandbox_lives_on(runner: SkillRunner) -> None:
    started = time.monotonic()
    result = await outcome(runner, "while True:", "    x = x + ''")
    assert "without a result" in (result.result.error or "")
    assert time.monotonic() - started < 4
    assert (await outcome(runner, "return x", x="alive")).result.observation == "alive"


async def test_waiting_too_long_for_a_tool_ends_the_call() -> None:
    runner = SkillRunner(wall_seconds=0.5)
    result = await outcome(runner, "return tools.open('slow')")
    assert "longer than 0.5 s" in (result.result.error or "")
    assert result.calls == 1
    runner.close()


async def test_calls_run_side_by_side_without_mixing(runner: SkillRunner) -> None:
    results = await asyncio.gather(*(outcome(runner, "return tools.open('/iran') + x", x=str(i)) for i in range(20)))
    assert [r.result.observation for r in results] == [PAGES["/iran"] + str(i) for i in range(20)]


async def test_a_sandbox_that_died_is_started_again(runner: SkillRunner) -> None:
    await outcome(runner, "return x", x="first")
    assert runner._server is not None
    runner._server.stop()
    assert (await outcome(runner, "return x", x="second")).result.observation == "second"


async def test_a_warm_call_costs_milliseconds(runner: SkillRunner) -> None:
    await outcome(runner, "return x", x="warm")
    started = time.perf_counter()
    for _ in range(20):
        await outcome(runner, "return x", x="again")
    assert (time.perf_counter() - started) / 20 < 0.1


async def test_code_that_slips_past_the_check_still_opens_nothing(
    runner: SkillRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.skills.check_code", lambda name, code: None)
    escape = "w = links.__globals__['__builtins__']"
    assert "not defined" in ((await outcome(runner, "return open('/etc/passwd')")).result.error or "")
    reached = await outcome(runner, escape, "return sorted(w['__import__']('os').environ)")
    assert "PATH" not in reached.result.observation
    for attempt in (
        "return w['open']('/etc/hostname').read()",
        "return w['__import__']('socket').socket()",
        "return w['__import__']('subprocess').run(['/bin/true'])",
    ):
        result = await outcome(runner, escape, attempt)
        assert result.result.error is not None, attempt


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def act(tools):\n  return (", "not valid Python"),
        ("x = 1", "exactly one function called act"),
        ("def act(tools): return 'a'\nact(1)", "exactly one function"),
        ("def other(tools): return 'a'", "called act"),
        ("async def act(tools): return 'a'", "exactly one function"),
        ("def act(country: str): return country", "`tools` first"),
        ("def act(tools, *rest): return 'a'", "`tools` first"),
        ("def act(tools, a): return a", "annotate argument a"),
        ("def act(tools, a: object): return a", "annotate argument a"),
        ("def act(tools, *, a: bytes): return a", "annotate argument a"),
        ("@staticmethod\ndef act(tools): return 'a'", "decorator"),
        ("def act(tools):\n  import os\n  return 'a'", "Import"),
        ("def act(tools): return exec('1')", "name exec"),
        ("def act(tools): return eval('1')", "name eval"),
        ("def act(tools): return getattr(tools, 'x')", "name getattr"),
        ("def act(tools): return print('x')", "name print"),
        ("def act(tools): return __builtins__", "name __builtins__"),
        ("def act(tools): return tools.__class__", ".__class__"),
        ("def act(tools): return f'{tools.open.__globals__}'", ".__globals__"),
        ("def act(tools): return '{0.x}'.format(tools)", ".format"),
        ("def act(tools): return (i for i in [1]).gi_frame", ".gi_frame"),
        ("def act(tools):\n  for tools in [(i for i in [1])]:\n    return tools.gi_frame", "another value"),
        ("def act(tools): return (lambda tools: tools.gi_frame)((i for i in [1]))", "which is taken"),
        ("def act(tools):\n  tools.open = 1\n  return 'a'", ".open"),
        ("def act(tools):\n  def inner(): return 'a'\n  return inner()", "second function"),
        ("def act(tools):\n  class A: pass\n  return 'a'", "ClassDef"),
        ("def act(tools):\n  global x\n  return 'a'", "Global"),
        ("def act(tools):\n  yield 'a'", "Yield"),
        ("def act(tools):\n  try:\n    return 'a'\n  except:\n    return 'b'", "does not name the errors"),
        ("def act(tools):\n  try:\n    return 'a'\n  except Exception:\n    return 'b'", "does not name the errors"),
        ("def act(tools):\n  try:\n    return 'a'\n  finally:\n    return 'b'", "finally"),
        ("def act(tools):\n  with tools.open('x') as f:\n    return f", "With"),
    ],
)
def test_refused_code(code: str, reason: str) -> None:
    with pytest.raises(ProviderError, match="Skill act") as refusal:
        check_code("act", code)
    assert reason in str(refusal.value)


def test_accepted_code() -> None:
    check_code("count_above", COUNT)
    check_code(
        "act",
        "def act(tools, pages: list[str], top: int = 3, *, deep: bool = False) -> str:\n"
        "    '''Rank pages.'''\n"
        "    try:\n"
        "        ranked = sorted(((number(p) or 0.0, p) for p in pages), key=lambda pair: pair[0], reverse=True)\n"
        "    except (ValueError, KeyError) as error:\n"
        "        raise ValueError(f'bad pages: {error}') from error\n"
        "    while len(ranked) > top and not deep:\n"
        "        ranked.pop()\n"
        "    return ', '.join(p for _, p in ranked[:top])\n",
    )


async def test_refused_code_is_not_run(runner: SkillRunner) -> None:
    result = await runner.run(skill("act", "import os"), {}, (Open(),))
    assert "exactly one function" in (result.result.error or "")
