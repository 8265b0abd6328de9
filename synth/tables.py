"""Routing tables from the facts of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from router.decisions import NONE, Arm
from router.table import Cell, RoutingTable, TableRow
from synth.arms import episode_of
from synth.episode import Prepared
from synth.facts import Episode, EpisodeKey
from synth.workbench import Workbench


def build_table(
    bench: Workbench,
    stage: str,
    prepared: Sequence[Prepared],
    episodes: Mapping[EpisodeKey, Episode],
    arms: Sequence[Arm],
) -> RoutingTable:
    """Tasks x arms of one stage; embeddings of questions and previews are rounded to 5 decimals."""
    vectors = _preview_vectors(bench, prepared)
    rows = []
    for one in prepared:
        previews = one.probe.previews
        rows.append(
            TableRow(
                task_id=one.task.id,
                question=one.task.question,
                family=one.task.family,
                sealed=bool(one.task.meta.get("sealed", False)),
                previews=previews,
                embedding=_rounded(one.query.embedding),
                preview_embeddings=tuple(vectors[preview.text] for preview in previews),
                cells=tuple(_cell(stage, one, arm, episodes) for arm in arms),
            )
        )
    return RoutingTable(
        suite=bench.suite.name,
        split=prepared[0].task.split.value if prepared else stage,
        providers=tuple(bench.providers),
        rows=tuple(rows),
    )


def similarities(bench: Workbench, prepared: Sequence[Prepared]) -> dict[tuple[str, str], float]:
    """Cosine of a task's question and each provider's preview, by task and provider."""
    vectors = _preview_vectors(bench, prepared)
    return {
        (one.task.id, preview.provider): float(np.dot(one.query.embedding, vectors[preview.text]))
        for one in prepared
        for preview in one.probe.previews
    }


def changed_by_in_mode(table: RoutingTable) -> tuple[int, int]:
    """Task-provider pairs (none included) whose outcome differs with and without working memory, and all pairs."""
    changed = pairs = 0
    for row in table.rows:
        for provider in (NONE, *table.providers):
            by_mode: dict[str, list[float]] = {"query": [], "no_op": []}
            for cell in row.cells:
                if cell.arm.provider == provider and cell.correct is not None:
                    by_mode[cell.arm.in_mode].append(cell.correct)
            if by_mode["query"] and by_mode["no_op"]:
                pairs += 1
                changed += sorted(by_mode["query"]) != sorted(by_mode["no_op"])
    return changed, pairs


def _cell(stage: str, one: Prepared, arm: Arm, episodes: Mapping[EpisodeKey, Episode]) -> Cell:
    empty = one.retrieval(arm.provider).empty
    key = one.content_key(arm.provider)
    episode = episode_of(episodes, stage, one.task.id, key, arm.in_mode, arm.repeat)
    if episode is None or episode.status != "done":
        return Cell(arm=arm, correct=None, empty=empty)
    correct = episode.outcome.correct
    return Cell(
        arm=arm,
        correct=None if correct is None else float(correct),
        steps=episode.steps,
        injected=episode.injected,
        begin_chars=episode.begin_chars,
        empty=empty,
        seconds=round(episode.seconds, 3),
    )


def _preview_vectors(bench: Workbench, prepared: Sequence[Prepared]) -> dict[str, tuple[float, ...]]:
    """The encoding of every preview text; zeros for the empty one."""
    texts = sorted({preview.text for one in prepared for preview in one.probe.previews} - {""})
    vectors = {"": _rounded(np.zeros(bench.encoder.dimension))}
    if texts:
        vectors.update({text: _rounded(row) for text, row in zip(texts, bench.encoder.encode(texts), strict=True)})
    return vectors


def _rounded(vector: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 5) for value in vector)
