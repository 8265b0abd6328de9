"""Taking finished runs into a run's memories, and their arms into its routing table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from providers.base import MemoryProvider
from providers.errors import ConfigError
from providers.types import Flow, Preview, Query, content_hash
from router.decisions import NONE, Arm
from router.session import probe_all
from router.table import Cell, RoutingTable, TableRow
from synth.episode import keep
from synth.importers.finished import Finished
from synth.runs import Run
from synth.workbench import Workbench

STAGE = "import"
_STATUSES = ("stored", "skipped", "failed")


class Taken(Flow):
    """What an import came to."""

    runs: int
    correct: int
    wrong: int
    unscored: int
    stored: dict[str, int]
    """Runs that each provider keeps, by provider; those that it has already are not counted."""
    skipped: dict[str, int]
    failed: dict[str, int]
    reasons: dict[str, dict[str, int]]
    """Why runs were not kept, by provider, with how often."""
    tasks: int = 0
    """Rows of the routing table; 0 where none was written."""

    def lines(self) -> str:
        """What came of it, for people."""
        said = [f"{self.runs} runs: {self.correct} correct, {self.wrong} wrong, {self.unscored} unscored"]
        for name in sorted({*self.stored, *self.skipped, *self.failed}):
            counts = (self.stored.get(name, 0), self.skipped.get(name, 0), self.failed.get(name, 0))
            why = "; ".join(f"{count} x {reason}" for reason, count in self.reasons.get(name, {}).items())
            said.append(
                f"{name}: {counts[0]} stored, {counts[1]} skipped, {counts[2]} failed{f' ({why})' if why else ''}"
            )
        if self.tasks:
            said.append(f"routing table: {self.tasks} tasks")
        return "\n".join(said)


async def take_in(run: Run, finished: Sequence[Finished], *, table: bool) -> Taken:
    """Offer every run to every provider whose gate is open; with `table`, also write the arms as its exploration.

    Previews in the table are those that the file states, or else what the memories show before the runs are stored.

    Raises ConfigError where the run explored already, or where there is no arm for a table.
    """
    label = f"{STAGE}/{content_hash([one.trajectory.id for one in finished])}"
    again = run.facts.mark(STAGE) == label
    if not again and (run.facts.mark("explore") or run.facts.probed("explore")):
        raise ConfigError(f"{run.root} was explored already: import before exploring, or into a run of another --name")
    bench = Workbench(run)
    try:
        made = await _table(bench, finished) if table and not again else None
        if not bench.has_taken_in(label):
            await bench.take_in(label, _Stores(run, finished))
        offers = run.facts.offers(STAGE)
    finally:
        bench.close()
    run.facts.set_mark(STAGE, label)
    if made is not None:
        made.save(run.table("explore"))
        run.facts.set_mark("explore", "done")
    counted = {status: Counter(one.provider for one in offers if one.status == status) for status in _STATUSES}
    reasons: dict[str, Counter[str]] = {}
    for offer in offers:
        if offer.reason:
            reasons.setdefault(offer.provider, Counter())[offer.reason] += 1
    verdicts = Counter(one.outcome.correct for one in finished)
    return Taken(
        runs=len(finished),
        correct=verdicts[True],
        wrong=verdicts[False],
        unscored=verdicts[None],
        reasons={name: dict(found.most_common()) for name, found in sorted(reasons.items())},
        tasks=0 if made is None else len(made.rows),
        **{status: dict(sorted(counts.items())) for status, counts in counted.items()},
    )


class _Stores:
    """Every run offered, in the order of the files."""

    def __init__(self, run: Run, finished: Sequence[Finished]) -> None:
        self._run, self._finished = run, finished

    async def __call__(self, providers: Mapping[str, MemoryProvider]) -> None:
        for one in self._finished:
            await keep(providers, self._run.facts, STAGE, one.trajectory.id, one.trajectory, one.outcome)


async def _table(bench: Workbench, finished: Sequence[Finished]) -> RoutingTable:
    """Tasks x arms from the runs that say which provider they had."""
    by_task: dict[str, list[Finished]] = {}
    known = {NONE, *bench.providers}
    for one in finished:
        if one.provider in known:
            by_task.setdefault(one.trajectory.task_id, []).append(one)
    if not any(one.provider != NONE for runs in by_task.values() for one in runs):
        raise ConfigError(
            f"no run says that it had the memory of {' or '.join(bench.providers)}: give `provider` beside the messages"
        )
    questions = [runs[0].trajectory.question for runs in by_task.values()]
    embeddings = bench.encoder.encode(questions)
    rows = [
        await _row(bench, task_id, runs, embedding)
        for (task_id, runs), embedding in zip(by_task.items(), embeddings, strict=True)
    ]
    return RoutingTable(suite=STAGE, split="explore", providers=tuple(bench.providers), rows=tuple(rows))


async def _row(bench: Workbench, task_id: str, runs: Sequence[Finished], embedding: np.ndarray) -> TableRow:
    first = runs[0]
    query = Query(text=first.trajectory.question, embedding=embedding, task_id=task_id)
    previews = _stated(bench, runs) or await probe_all(query, bench.providers)
    texts = [preview.text for preview in previews]
    vectors = bench.encoder.encode(texts)
    return TableRow(
        task_id=task_id,
        question=first.trajectory.question,
        family=first.family,
        previews=previews,
        embedding=_rounded(embedding),
        preview_embeddings=tuple(
            _rounded(vector if text else np.zeros_like(vector)) for text, vector in zip(texts, vectors, strict=True)
        ),
        cells=tuple(_cell(one, previews) for one in runs),
    )


def _stated(bench: Workbench, runs: Sequence[Finished]) -> tuple[Preview, ...]:
    """The previews that the file states; empty where it states none."""
    stated = {name: text for one in runs for name, text in one.previews.items()}
    return tuple(Preview(provider=name, text=stated.get(name, "")[:200]) for name in bench.providers) if stated else ()


def _cell(one: Finished, previews: Sequence[Preview]) -> Cell:
    correct, shown = one.outcome.correct, {preview.provider: preview.text for preview in previews}
    chars = sum(len(injection.text) for injection in one.trajectory.injections)
    provider = str(one.provider)
    return Cell(
        arm=Arm(provider=provider, in_mode=one.in_mode, repeat=one.repeat),
        correct=None if correct is None else float(correct),
        steps=len(one.trajectory.steps),
        injected=chars,
        begin_chars=chars,
        empty=provider != NONE and not shown.get(provider) and not chars,
    )


def _rounded(vector: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 5) for value in vector)
