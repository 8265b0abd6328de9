"""Choosing what worked for similar questions."""

from __future__ import annotations

import asyncio
import math

import numpy as np

from providers.embedder import Encoder
from providers.errors import ConfigError
from router.codec import decide_begin, empty_previews
from router.context import BeginContext
from router.decisions import BeginDecision
from router.policies.fixed import BeginOnly
from router.table import RoutingTable, TableRow


class NearestTasks(BeginOnly):
    """The provider with the best mean correctness on the `k` nearest exploration tasks, by question embedding.

    A task is never its own neighbour. Where no neighbour was scored under a provider, its mean over all tasks stands.
    """

    name = "knn"

    def __init__(self, table: RoutingTable, encoder: Encoder, k: int = 20) -> None:
        if not table.rows:
            raise ConfigError("knn needs exploration tasks, and the exploration table has none.")
        self._table = table
        self._encoder = encoder
        self._k = k
        self._embeddings = np.asarray([row.embedding for row in table.rows])

    async def begin(self, context: BeginContext) -> BeginDecision:
        embedding = context.embedding
        if embedding is None:
            embedding = (await asyncio.to_thread(self._encoder.encode, [context.question]))[0]
        neighbours = self._neighbours(context.task_id, embedding)
        names = [preview.provider for preview in context.previews]
        scores = [_mean(neighbours, name, _mean(self._table.rows, name, 0.0)) for name in names]
        return decide_begin(scores, names, empty_previews(context))

    def _neighbours(self, task_id: str, embedding: np.ndarray) -> list[TableRow]:
        """Nearest first; equally near ones in the order of the table."""
        order = np.argsort(-(self._embeddings @ embedding), kind="stable")
        rows = (self._table.rows[place] for place in order)
        return [row for row in rows if row.task_id != task_id][: self._k]


def _mean(rows: list[TableRow] | tuple[TableRow, ...], provider: str, otherwise: float) -> float:
    known = [value for row in rows if (value := row.correctness(provider)) is not None]
    return math.fsum(known) / len(known) if known else otherwise
