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
from router.table import RoutingTable


class NearestTasks(BeginOnly):
    """The provider with the best mean correctness on the `k` nearest exploration tasks, by question embedding.

    A task is never its own neighbour. Where no neighbour was scored under a provider, its mean over all tasks stands.
    """

    name = "knn"

    def __init__(self, table: RoutingTable, encoder: Encoder, k: int = 20) -> None:
        if not table.rows:
            raise ConfigError("knn needs exploration tasks, and the exploration table has none.")
        self._task_ids = np.array([row.task_id for row in table.rows])
        self._encoder = encoder
        self._k = k
        self._embeddings = np.asarray([row.embedding for row in table.rows])
        self._correct = {name: _correctness(table, name) for name in table.providers}

    async def begin(self, context: BeginContext) -> BeginDecision:
        embedding = context.embedding
        if embedding is None:
            embedding = (await asyncio.to_thread(self._encoder.encode, [context.question]))[0]
        neighbours = self._neighbours(context.task_id, embedding)
        names = [preview.provider for preview in context.previews]
        return decide_begin([self._score(name, neighbours) for name in names], names, empty_previews(context))

    def _neighbours(self, task_id: str, embedding: np.ndarray) -> np.ndarray:
        """Places of the nearest tasks, nearest first; equally near ones in the order of the table."""
        order = np.argsort(-(self._embeddings @ embedding), kind="stable")
        return np.asarray(order[self._task_ids[order] != task_id][: self._k])

    def _score(self, provider: str, neighbours: np.ndarray) -> float:
        correct = self._correct.get(provider)
        if correct is None:
            return 0.0
        return _mean(correct[neighbours], otherwise=_mean(correct, otherwise=0.0))


def _correctness(table: RoutingTable, provider: str) -> np.ndarray:
    """A provider's mean correctness on every task; NaN where nothing was scored."""
    values = [row.correctness(provider) for row in table.rows]
    return np.array([math.nan if value is None else value for value in values])


def _mean(values: np.ndarray, otherwise: float) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else otherwise
