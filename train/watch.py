"""What the router would achieve on the held-out tasks, read from the exploration table while it trains."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from router.codec import decide_begin
from router.context import BeginContext
from router.decisions import Policy
from router.features import Evidence, word_overlap
from router.table import RoutingTable, TableRow
from synth.rows import Row

if TYPE_CHECKING:
    from providers.base import ProviderCard
    from train.forecast import Forecast

COLLAPSED = 0.95
"""Share of one provider among the choices from which the router is said to have collapsed."""

BINS = 10
"""Of predicted chances, for the calibration error."""


@dataclass(frozen=True)
class HeldOut:
    """Tasks of the exploration table that are not trained on, and the simple choices that a router has to beat."""

    rows: tuple[TableRow, ...]
    providers: tuple[str, ...]
    best_single: str
    """Chosen on the tasks that are trained on."""
    forecast: Forecast | None = None
    """What the router is shown beside previews."""

    @classmethod
    def of_table(cls, table: RoutingTable, task_ids: Collection[str], forecast: Forecast | None = None) -> Self | None:
        """None where no task of the table is held out, or none is left."""
        held = tuple(row for row in table.rows if row.task_id in task_ids)
        others = [row for row in table.rows if row.task_id not in task_ids]
        if not held or not others:
            return None
        means = {provider: _mean([row.correctness(provider) for row in others]) for provider in table.providers}
        return cls(held, table.providers, max(means, key=lambda name: means[name]), forecast)

    def contexts(self, cards: tuple[ProviderCard, ...]) -> list[BeginContext]:
        chances = self.forecast.chances if self.forecast else {}
        return [
            BeginContext(
                task_id=row.task_id,
                question=row.question,
                previews=row.previews,
                cards=cards,
                chances=chances.get(row.task_id, ()),
            )
            for row in self.rows
        ]


def routing_measures(
    held: HeldOut, choices: Mapping[str, str], chances: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, float]:
    """Routing value and what to hold it against, over the held-out tasks in `choices` (task -> provider).

    `routing_value` is the mean correctness of the chosen provider, `regret` what the best provider of each task has
    over it; `best_single_value`, `overlap_value`, `cosine_value` are those of simple choices; `routing_agreement` is
    the share of tasks on which a best provider is chosen; `choice_entropy` (0 to 1) and `top_two_share` say how the
    choices spread; `calibration_error` compares `chances` with outcomes (expected calibration error, ten bins). What
    cannot be said, since nothing was scored, is left out.
    """
    rows = [row for row in held.rows if row.task_id in choices]
    if not rows:
        return {}
    chosen = [choices[row.task_id] for row in rows]
    value = _mean([row.correctness(name) for row, name in zip(rows, chosen, strict=True)])
    best = [max((v for p in held.providers if (v := row.correctness(p)) is not None), default=None) for row in rows]
    counts = Counter(chosen)
    found = {
        "routing_value": value,
        "regret": _mean(best) - value,
        "best_single_value": _mean([row.correctness(held.best_single) for row in rows]),
        "overlap_value": _mean([row.correctness(_by_overlap(row)) for row in rows]),
        "routing_agreement": _mean(
            [
                None if most is None else float(row.correctness(name) == most)
                for row, name, most in zip(rows, chosen, best, strict=True)
            ]
        ),
        "choice_entropy": _entropy(counts, len(held.providers)),
        "top_share": counts.most_common(1)[0][1] / len(rows),
        "top_two_share": sum(count for _, count in counts.most_common(2)) / len(rows),
    }
    if all(row.embedding and row.preview_embeddings for row in rows):
        found["cosine_value"] = _mean([row.correctness(_by_cosine(row)) for row in rows])
    if chances is not None:
        found["calibration_error"] = _calibration_error(rows, chances)
    return {name: figure for name, figure in found.items() if not math.isnan(figure)}


def complaints(measures: Mapping[str, float]) -> list[str]:
    """One sentence for each way in which the router is worth nothing on the held-out tasks."""
    if "routing_value" not in measures:
        return []
    value = measures["routing_value"]
    said = []
    if measures["top_share"] >= COLLAPSED:
        said.append(f"the router has collapsed: one provider gets {measures['top_share']:.0%} of the held-out tasks")
    for name, rival in (
        ("best_single_value", "the best single provider"),
        ("overlap_value", "the preview with most shared words"),
        ("cosine_value", "the nearest preview"),
    ):
        if measures.get(name, -1.0) > value:
            said.append(f"{rival} is worth more on the held-out tasks: {measures[name]:.3f} against {value:.3f}")
    return said


def marks_measures(held: HeldOut, rows: Sequence[Row], scores: Sequence[Sequence[float]]) -> dict[str, float]:
    """`routing_measures` of the log-odds that Begin rows were given."""
    by_task = {row.task_id: row for row in held.rows}
    choices: dict[str, str] = {}
    chances: dict[str, dict[str, float]] = {}
    for row, values in zip(rows, scores, strict=True):
        shown = by_task.get(row.task_id)
        if row.phase != "begin" or shown is None:
            continue
        empty = {preview.provider for preview in shown.previews if not preview.text.strip()}
        choices[row.task_id] = decide_begin(values, row.candidates, empty).arm
        odds = zip(row.candidates, values, strict=True)
        chances[row.task_id] = {name: (1 + math.tanh(score / 2)) / 2 for name, score in odds}
    return routing_measures(held, choices, chances)


def policy_measures(held: HeldOut, cards: tuple[ProviderCard, ...], policy: Policy) -> dict[str, float]:
    """`routing_measures` of a policy's own decisions, and `legal_share`: how many needed no fallback."""

    async def ask() -> list[Any]:
        return [await policy.begin(context) for context in held.contexts(cards)]

    decisions = asyncio.run(ask())
    choices = {row.task_id: decision.arm for row, decision in zip(held.rows, decisions, strict=True)}
    legal = sum(not decision.fallback for decision in decisions) / len(decisions)
    return {**routing_measures(held, choices), "legal_share": legal}


def _by_overlap(row: TableRow) -> str:
    scores = [word_overlap(row.question, preview.text) for preview in row.previews]
    return _best(row, scores)


def _by_cosine(row: TableRow) -> str:
    evidence = Evidence.of_row(row)
    return _best(row, (evidence.preview_embeddings @ evidence.embedding).tolist())


def _best(row: TableRow, scores: Sequence[float]) -> str:
    names = [preview.provider for preview in row.previews]
    empty = {preview.provider for preview in row.previews if not preview.text.strip()}
    return decide_begin(scores, names, empty).arm


def _entropy(counts: Counter[str], providers: int) -> float:
    """Of the choices, over that of equal shares: 0 for one provider, 1 for all alike."""
    if providers < 2:
        return 0.0
    shares = [count / counts.total() for count in counts.values()]
    return abs(sum(share * math.log(share) for share in shares)) / math.log(providers)


def _calibration_error(rows: Sequence[TableRow], chances: Mapping[str, Mapping[str, float]]) -> float:
    pairs = [
        (chance, outcome)
        for row in rows
        for provider, chance in chances[row.task_id].items()
        if (outcome := row.correctness(provider)) is not None
    ]
    if not pairs:
        return math.nan
    predicted, happened = np.asarray(pairs).T
    places = np.minimum((predicted * BINS).astype(int), BINS - 1)
    gaps = [
        abs(predicted[places == place].mean() - happened[places == place].mean()) * (places == place).sum()
        for place in range(BINS)
        if (places == place).any()
    ]
    return float(sum(gaps) / len(pairs))


def _mean(values: Sequence[float | None]) -> float:
    scored = [value for value in values if value is not None]
    return math.fsum(scored) / len(scored) if scored else math.nan
