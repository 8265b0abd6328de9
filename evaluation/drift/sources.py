"""Runs without long-term memory that banks are filled with: made once, the same for every bank."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter
from tqdm import tqdm

from evaluation.online import Left, Ran, Streaming
from evaluation.stream import StreamTask
from providers.bank import MemoryBank
from providers.long_term.memguard import MemGuard
from providers.types import Flow, Outcome, Split, Task, Trajectory, content_hash
from router.decisions import EndDecision
from router.policies.fixed import InOnly
from router.session import Ending
from synth.workbench import Workbench, remove_database

VERSION = 1


class Source(Flow):
    """A run of a warm-up task, and whether its answer was right."""

    trajectory: Trajectory
    correct: bool

    def outcome(self) -> Outcome:
        return Outcome(correct=self.correct, source="gold")

    def left(self, seen: Trajectory, told: Outcome) -> Ran:
        """The run as if a stream had just left it, with what the bank was told of it."""
        run = self.trajectory
        result = StreamTask(task_id=run.task_id, family="", status="done", correct=self.correct, steps=len(run.steps))
        nothing = Ending(decision=EndDecision(), stores=(), effects=())
        return Ran(result, Left(seen, told, self.outcome(), nothing))


async def source_runs(bench: Workbench, count: int, seed: int, batch: int) -> list[Source]:
    """Run the first warm-up tasks under the wide step limit, or read them where they stand; in the suite's order.

    Runs that failed or were not scored are left out.
    """
    tasks = bench.suite.tasks(Split.WARMUP, count)[:count]
    path = bench.run.root / "sources" / f"{content_hash(*_identity(bench, tasks, seed, batch))[:8]}.json"
    kind = TypeAdapter(list[Source])
    if path.exists():
        return kind.validate_json(path.read_bytes())
    print(f"source runs: {len(tasks)} tasks without long-term memory, seed {seed}", file=sys.stderr)
    found = await _run(bench, tasks, seed, batch)
    _write(path, kind.dump_json(found).decode())
    return found


async def _run(bench: Workbench, tasks: Sequence[Task], seed: int, batch: int) -> list[Source]:
    found = []
    path = bench.run.root / "bank.sources.sqlite"
    remove_database(path)
    with (
        MemoryBank.open(path, bench.encoder) as bank,
        tqdm(total=len(tasks), desc="source runs", unit="task", disable=None, leave=False, file=sys.stderr) as bar,
    ):
        name = MemGuard.CARD.name
        providers = {name: MemGuard(bank.space(name), bench.distiller)}
        limit = bench.config.agent.warmup_max_steps
        streaming = Streaming(bench, InOnly(), providers, seed, max_steps=limit)
        for start in range(0, len(tasks), batch):
            for ran in await streaming.batch(tasks[start : start + batch]):
                if ran.left is not None and ran.left.outcome.correct is not None:
                    found.append(Source(trajectory=ran.left.trajectory, correct=ran.left.outcome.correct))
                bar.update()
    remove_database(path)
    return found


def _identity(bench: Workbench, tasks: Sequence[Task], seed: int, batch: int) -> list[object]:
    config = bench.config
    what = [[task.id, task.question] for task in tasks]
    return [VERSION, what, seed, batch, config.seed, config.agent.model_dump(), config.encoder.model_dump()]


def _write(path: Path, text: str) -> None:
    from providers.files import write_atomically

    write_atomically(path, text)
