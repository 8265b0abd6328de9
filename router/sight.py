"""What a language-model router is shown of a context, in training and when asked: parts of descriptors, and what the
heads expect of every provider."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from providers.errors import EngineError
from router.context import BeginContext, EndContext
from router.features import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.adapter import AdapterRecord
    from router.policies.heads import Heads, HeadsModel
    from router.table import RoutingTable

CHANCES = ("slim", "low", "fair", "good", "high")
"""What the heads expect, from the least to the most: words, so that no model learns a number's digits."""
EDGES = (0.2, 0.35, 0.5, 0.65)
"""Predicted correctness from which on the next word holds."""


def in_words(chances: Iterable[float]) -> tuple[str, ...]:
    """Predicted correctness, 0 to 1, as one of `CHANCES` each."""
    return tuple(CHANCES[bisect_right(EDGES, chance)] for chance in chances)


def forecasts(heads: HeadsModel, table: RoutingTable) -> dict[str, tuple[str, ...]]:
    """By task: a word for every provider of the table, empty for one that the heads do not know."""
    if not table.rows:
        return {}
    known = table.only(heads.providers)
    predicted = heads.predict([Evidence.of_row(row) for row in known.rows])
    found = {}
    for row, values in zip(known.rows, predicted.tolist(), strict=True):
        by_name = dict(zip(known.providers, in_words(values), strict=True))
        found[row.task_id] = tuple(by_name.get(provider, "") for provider in table.providers)
    return found


@dataclass(frozen=True)
class Sight:
    """How much of a context a language model sees."""

    descriptors: Sequence[str] | None = None
    """Parts of descriptors; None shows them all."""
    heads: Heads | None = None
    """Whose forecasts stand beside the previews; None shows none but those that a context brings."""

    @classmethod
    def of_record(cls, record: AdapterRecord, heads: Callable[[], Heads] | None) -> Self:
        """As an adapter was trained; `heads` loads those of its run and is called only where it was shown forecasts.

        Raises `EngineError` where the heads are not those of its training, or there is no way to load them.
        """
        if not record.heads:
            return cls(record.descriptors)
        if heads is None:
            raise EngineError("The adapter was shown forecasts of heads, which are not at hand here.")
        loaded = heads()
        if loaded.model.identity != record.heads:
            raise EngineError(
                "The adapter was shown the forecasts of other heads than there are now; train again "
                "(`memroute train CONFIG`)."
            )
        return cls(record.descriptors, loaded)

    def begin(self, contexts: Sequence[BeginContext]) -> list[BeginContext]:
        """The contexts as the model sees them; forecasts that a context brings stay."""
        told = [context.told(self.descriptors) for context in contexts]
        if self.heads is None:
            return told
        heads = self.heads
        return [c if c.chances else c.forecast(in_words(heads.score([c])[0].tolist())) for c in told]

    def end(self, context: EndContext) -> EndContext:
        return context.told(self.descriptors)
