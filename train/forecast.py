"""What the heads expect of every provider, for a language model to be shown: of explored tasks by heads that have not
seen them, as it will be of new ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from router.features import Evidence
from router.policies.heads import HeadsModel
from router.sight import in_words
from router.table import RoutingTable
from train.heads import encoder_identity, fit_heads_and_forecast, training_table

if TYPE_CHECKING:
    from synth.runs import Run


@dataclass(frozen=True)
class Forecast:
    """Heads, and what they expect of the tasks of an exploration."""

    heads: HeadsModel
    """Fitted on all tasks: those that forecast when the router is asked."""
    chances: Mapping[str, tuple[str, ...]]
    """By task, in words, one per provider: from heads that were not fitted on it."""
    predicted: Mapping[str, Mapping[str, float]]
    """The same by task and provider, as correctness from 0 to 1."""

    @classmethod
    def of_run(cls, run: Run, tasks: Collection[str] | None = None) -> Self:
        """Of the run's exploration, fitted on these tasks alone (None: all)."""
        return cls.of_table(training_table(run), seed=run.config.seed, encoder=encoder_identity(run), tasks=tasks)

    @classmethod
    def of_table(
        cls, table: RoutingTable, *, seed: int = 0, encoder: str = "", tasks: Collection[str] | None = None
    ) -> Self:
        """Of a table whose `correct` is the label; tasks outside of `tasks` are forecast by the heads of all others."""
        known = [row for row in table.rows if tasks is None or row.task_id in tasks]
        fitted = table.model_copy(update={"rows": tuple(known)})
        heads, predicted = fit_heads_and_forecast(fitted, seed=seed, encoder=encoder)
        found = _predictions(heads, table) if len(known) < len(table.rows) else {}
        found |= {row.task_id: values for row, values in zip(known, predicted.tolist(), strict=True)}
        return cls(
            heads=heads,
            chances={task: in_words(values) for task, values in found.items()},
            predicted={task: dict(zip(table.providers, values, strict=True)) for task, values in found.items()},
        )


def _predictions(heads: HeadsModel, table: RoutingTable) -> dict[str, list[float]]:
    values = heads.predict([Evidence.of_row(row) for row in table.rows])
    return {row.task_id: of_row for row, of_row in zip(table.rows, values.tolist(), strict=True)}
