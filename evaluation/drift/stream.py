"""One stream into one bank: what every task did, and what became of the bank."""

from __future__ import annotations

import random
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from tqdm import tqdm

from evaluation.drift.health import FalseAccepts, Health, false_accepts, health_of, shares_of_kinds
from evaluation.drift.signals import Noise, means_of, sign_of
from evaluation.drift.sources import Source
from evaluation.drift.variants import Variant
from evaluation.online import Ran, Streaming
from providers.bank import MemoryBank
from providers.governance.descriptor import CRITERIA, REPEAT_ABOVE, View, uncertainty
from providers.governance.verifier import Looker
from providers.long_term.memguard import MemGuard
from providers.types import Flow, Outcome, Record, Task, Trajectory, content_hash
from router.decisions import Policy
from router.policies.fixed import InOnly, Single
from synth.episode import encode_queries
from synth.workbench import Workbench, remove_database

VERSION = 3
"""Of what a cell holds; cells of another version are run again."""
VIEWS: tuple[View, ...] = ("full", "evidence", "risk")
TIMED_QUERIES = 100
Stage = Literal["fill", "main"]
Thing = TypeVar("Thing")
_NAMED = re.compile(r'"([^"]{3,})"')


class DriftTask(Flow):
    """One task of a stream."""

    task_id: str
    family: str
    stage: Stage
    error: str = ""
    correct: bool | None = None
    """As it was scored."""
    told: bool | None = None
    """As the bank was told."""
    label: str = ""
    """Of the verdict on the run."""
    looks: int = 0
    """Views that the verdict took."""
    views: tuple[str, ...] = ()
    """Labels of the full, evidence and risk views, whether or not the verdict took them."""
    boundary: bool = False
    """Whether the full view alone left it uncertain."""
    steps: int = 0
    injected: int = 0
    """Characters of memory, both kinds."""
    observed: int = 0
    """Characters that the agent read from its tools."""
    seconds: float = 0.0
    retrieved: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    """Of them, those whose first quoted name stands in what the agent thought or called."""
    kept: tuple[str, ...] = ()
    """Records that hold what the run left, new or not."""


class Cell(Flow):
    """One stream under one variant, noise and seed."""

    key: str
    variant: str
    noise: float
    seed: int
    tasks: tuple[DriftTask, ...]
    health: Health
    kinds: dict[str, float]
    """Shares of what is shown at the end by kind."""
    false_accepts: FalseAccepts
    storage_mb: float
    retrieve_ms: float | None
    """Median over queries at the end, prompt included, encoding not; None without memory."""

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        from providers.files import write_atomically

        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.model_dump_json())


@dataclass(frozen=True)
class Plan:
    """A stream: runs that fill the bank, the same for every bank, then the tasks that are measured."""

    sources: tuple[Source, ...]
    tasks: tuple[Task, ...]
    seed: int
    batch: int

    def filling(self) -> list[Source]:
        """The runs in the order in which banks take them in."""
        return self._shuffled("fill", self.sources)

    def measured(self) -> list[Task]:
        """The tasks in the order of the stream."""
        return self._shuffled("main", self.tasks)

    def key(self, bench: Workbench, name: str, variant: Variant, noise: Noise) -> str:
        """Hash of all that a cell depends on."""
        config = bench.config
        runs = [source.trajectory.id for source in self.sources]
        what = [[task.id, task.question] for task in self.tasks]
        settings = (config.seed, config.agent.model_dump(), config.encoder.model_dump(), config.distiller)
        return content_hash(VERSION, name, repr(variant), repr(noise), self.seed, self.batch, runs, what, *settings)

    def _shuffled(self, stage: Stage, things: Sequence[Thing]) -> list[Thing]:
        order = list(things)
        random.Random(content_hash("drift", stage, self.seed)).shuffle(order)
        return order


async def run_cell(bench: Workbench, name: str, variant: Variant, noise: Noise, plan: Plan) -> Cell:
    """Fill an empty bank, then run the tasks over it; the bank grows on, and goes at the end."""
    with fresh_bank(bench, bench.run.root / "bank.drift.sqlite") as bank:
        provider = variant.provider(bank.space(MemGuard.CARD.name), bench.distiller, noise)
        telling = Telling(provider, noise)
        recorder = Recorder(provider, variant.looker())
        filling = plan.filling() if variant.stores else []
        done = [await _offered(provider, recorder, source, telling) for source in filling]
        policy: Policy = Single(MemGuard.CARD.name) if variant.stores else InOnly()
        streaming = Streaming(bench, policy, {MemGuard.CARD.name: provider}, plan.seed, seen=telling)
        tasks, title = plan.measured(), f"{name}, noise {noise.share:.0%}, seed {plan.seed}"
        with tqdm(total=len(tasks), desc=title, unit="task", disable=None, leave=False, file=sys.stderr) as bar:
            for start in range(0, len(tasks), plan.batch):
                ran = await streaming.batch(tasks[start : start + plan.batch])
                done += [await recorder.note("main", each) for each in ran]
                bar.update(len(ran))
        return Cell(
            key=plan.key(bench, name, variant, noise),
            variant=name,
            noise=noise.share,
            seed=plan.seed,
            tasks=tuple(done),
            health=health_of(provider.space, [(task.label, task.kept) for task in done]),
            kinds=shares_of_kinds(provider.space.records(state=("active", "guard"))),
            false_accepts=_traced(provider, variant, done),
            storage_mb=_megabytes(bank),
            retrieve_ms=await _timed(bench, provider, plan.tasks) if variant.stores else None,
        )


class Telling:
    """What a bank is told of a finished run: a sign at its end, and by the verdict, or by a wrong sign, its outcome."""

    def __init__(self, provider: MemGuard, noise: Noise) -> None:
        self._provider, self._noise = provider, noise

    async def __call__(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Trajectory, Outcome]:
        run = self._noise.signed(trajectory, outcome.correct)
        if self._noise.wrong == "signs":
            return run, outcome.model_copy(update={"correct": sign_of(run)})
        assert self._provider.governor is not None
        return run, (await self._provider.governor.verify(run)).outcome()


async def _offered(provider: MemGuard, recorder: Recorder, source: Source, telling: Telling) -> DriftTask:
    run, told = await telling(source.trajectory, source.outcome())
    receipt = await provider.store(run, told)
    return await recorder.note("fill", replace(source.left(run, told), receipts=(receipt,)))


class Recorder:
    """Notes of every task what the tables need, before later tasks change the bank."""

    def __init__(self, provider: MemGuard, looker: Looker) -> None:
        self._provider, self._looker = provider, looker

    async def note(self, stage: Stage, ran: Ran) -> DriftTask:
        result, left = ran.result, ran.left
        if left is None:
            return DriftTask(task_id=result.task_id, family=result.family, stage=stage, error=result.error)
        run = left.trajectory
        assert self._provider.governor is not None
        verdict = await self._provider.governor.verify(run)
        looks = [await self._looker.look(run, view, CRITERIA) for view in VIEWS]
        blocked = not (run.answer or "").strip()
        retrieved = tuple(item for shown in run.injections if shown.phase == "begin" for item in shown.item_ids)
        records = [self._provider.space.existing(item) for item in retrieved]
        return DriftTask(
            task_id=result.task_id,
            family=result.family,
            stage=stage,
            correct=left.outcome.correct,
            told=left.told.correct,
            label=verdict.label,
            looks=len(verdict.looks),
            views=tuple(look.label(blocked) for look in looks),
            boundary=uncertainty(means_of(looks[0])) > REPEAT_ABOVE,
            steps=result.steps,
            injected=result.injected,
            observed=sum(len(step.observation) for step in run.steps),
            seconds=result.seconds,
            retrieved=retrieved,
            followed=tuple(record.id for record in records if _followed(record, run)),
            kept=tuple(record for receipt in ran.receipts for record in receipt.record_ids),
        )


def _followed(record: Record, run: Trajectory) -> bool:
    names = _NAMED.findall(str(record.payload.get("content") or record.payload.get("summary") or ""))
    if not names:
        return False
    done = "\n".join(part for step in run.steps for part in (step.thought, *map(str, step.arguments.values())))
    return f'"{names[0]}"' in done


def _traced(provider: MemGuard, variant: Variant, done: Sequence[DriftTask]) -> FalseAccepts:
    """What the records of runs that were taken for successes, and were none, came to."""
    accepted = [task for task in done if task.label == "verified_success" and task.correct is False]
    right = {record for task in done if task.correct is True for record in task.kept}
    made = {record for task in accepted for record in task.kept} - right
    later = [(task.retrieved, task.followed, task.correct) for task in done]
    return false_accepts(provider.space, len(accepted), made, later, noted=variant.keeps == "full")


@contextmanager
def fresh_bank(bench: Workbench, path: Path) -> Iterator[MemoryBank]:
    """An empty bank at `path`, which is removed before and after."""
    remove_database(path)
    with MemoryBank.open(path, bench.encoder) as bank:
        yield bank
    remove_database(path)


def _megabytes(bank: MemoryBank) -> float:
    pages = bank.committed.execute("PRAGMA page_count").fetchone()[0]
    size = bank.committed.execute("PRAGMA page_size").fetchone()[0]
    return round(float(pages * size) / 2**20, 3)


async def _timed(bench: Workbench, provider: MemGuard, tasks: Sequence[Task]) -> float | None:
    queries = encode_queries(bench, list(tasks[:TIMED_QUERIES]))
    samples = []
    for query in queries:
        started = time.perf_counter()
        await provider.retrieve(query)
        samples.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(samples), 2) if samples else None
