"""What the heads expect of every provider, for a language model to be shown: of explored tasks by heads that have not
seen them, as it will be of new ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from router.policies.heads import HeadsModel
from router.sight import forecasts, in_words
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
        unseen = forecasts(heads, table) if len(known) < len(table.rows) else {}
        seen = {row.task_id: in_words(values) for row, values in zip(known, predicted.tolist(), strict=True)}
        return cls(heads, unseen | seen)
