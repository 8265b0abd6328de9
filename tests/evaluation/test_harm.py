"""False memories harm, safe ones help, and the write gate keeps back what copies alone support."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "synth"))
sys.path.insert(0, str(Path(__file__).parents[1] / "providers"))
from memory_toys import open_bank
from test_drift import Lessons
from toy_world import LABELS, ToyAgent, toy_config

from evaluation.drift.sources import Source
from evaluation.harm import bench as bench_module
from evaluation.harm.bench import (
    FALSE,
    FALSE_GATED,
    NONE,
    SAFE,
    SAFE_GATED,
    ArmRun,
    HarmSettings,
    bench_harm,
    copy_of,
    fill,
)
from evaluation.harm.tables import tables_of
from evaluation.text_tables import markdown
from providers.errors import ConfigError
from providers.long_term.memguard import MemGuard
from providers.types import Lineage, Step, Trajectory
from synth.config import AgentConfig, RunConfig

SETTINGS = HarmSettings(sources=40, tasks=30, copies=3, resamples=200)


class Believer(ToyAgent):
    """Reads the label that its memory names first for the question's word."""

    @staticmethod
    def _label(memory: str, word: str) -> str:
        found = re.search(rf'Read "([^"]+)" when asked: {word} of', memory)
        return found[1] if found else ""


def config(folder: Path) -> RunConfig:
    agent = AgentConfig(name="test_harm:Believer", max_steps=4, warmup_max_steps=4)
    return toy_config(folder, "harm", providers=("memguard",), distiller="test_drift:Lessons", agent=agent)


def told(thing: str, label: str, page: str = "") -> Trajectory:
    source = page or f"/{thing}"
    text = f"# {thing}\n" + "\n".join(f"{name}: 1" for name in LABELS.values())
    steps = (
        Step(index=0, tool="open", observation=text, lineage=Lineage(source=source)),
        Step(index=1, tool="read", arguments={"label": label}, observation=f"read {label}"),
    )
    question = f"What is the height of {thing}?"
    return Trajectory.make(task_id=thing, question=question, agent="toy", seed=0, steps=steps, answer="1")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[MemGuard]:
    with open_bank(tmp_path) as bank:
        yield MemGuard(bank.space("memguard"), Lessons())


async def test_copies_of_one_wrong_run_wait_behind_the_gate_and_are_shown_without_it(tmp_path: Path) -> None:
    sources = [Source(trajectory=told("a", "Total weight"), correct=False)]
    for arm, shown, waiting in ((FALSE, 1, 0), (FALSE_GATED, 0, 1), (NONE, 0, 0), (SAFE, 0, 0)):
        with open_bank(tmp_path, f"{arm}.sqlite") as bank:
            kept = await fill(MemGuard(bank.space("memguard"), Lessons()), arm, sources, 7)
        assert (kept.shown, kept.waiting) == (shown, waiting), arm
        assert kept.offers == (7 if arm.startswith("false") else 0)


async def test_two_right_runs_that_read_other_pages_pass_the_gate(provider: MemGuard) -> None:
    sources = [Source(trajectory=told(thing, "Vertical extent"), correct=True) for thing in ("a", "b")]
    assert (await fill(provider, SAFE_GATED, sources, 2)).shown == 1


def test_a_copy_is_another_run_of_the_same_pages() -> None:
    run = told("a", "Total weight")
    copies = {copy_of(run, number).id for number in range(3)}
    assert len(copies | {run.id}) == 4
    assert copy_of(run, 1).steps == run.steps


async def test_the_arms_differ_as_their_memories_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await bench_harm(SETTINGS, config(tmp_path))
    arms = found.arms
    assert found.right_sources + found.wrong_sources == 40
    assert arms[SAFE].solved.mean > arms[NONE].solved.mean > arms[FALSE].solved.mean
    assert arms[FALSE_GATED].kept.shown < arms[FALSE].kept.shown
    assert found.false_gated_minus_false.mean >= 0
    assert arms[NONE].shown == 0.0
    assert arms[SAFE].shown > 0.5
    for arm in (FALSE, SAFE):
        gain = arms[arm].solved_minus_none
        assert gain is not None
        assert round(gain.mean * gain.n) == arms[arm].helped - arms[arm].harmed
    assert "| false_gated |" in markdown(tables_of(found))

    async def forbidden(*_: object) -> ArmRun:
        raise AssertionError("run again")

    monkeypatch.setattr(bench_module, "fill", forbidden)
    assert await bench_harm(SETTINGS, config(tmp_path)) == found


async def test_sources_that_all_ended_alike_make_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give more --sources"):
        await bench_harm(SETTINGS.model_copy(update={"sources": 1}), config(tmp_path))
