"""InsightGraph: short insights as the nodes of a graph, found by words and meaning and by the edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import Distiller, Insight, ProviderCard
from providers.long_term.base import SpaceProvider, with_origins
from providers.long_term.graph import Edge, Graph, Hit, best_seed
from providers.space import LIVE, Space
from providers.types import Effect, Origin, Outcome, Query, Record, Retrieval, Trajectory, content_hash

MAX_INSIGHTS = 4
LEAST_SCORE = 0.22
CONSOLIDATE_EVERY = 50
MERGE_SIMILARITY = 0.85
PRUNE_USES = 5
PRUNE_RATE = 0.2


class InsightGraph(SpaceProvider[tuple[Insight, ...]]):
    """The paper's own provider (MemAgent B.3); `providers.long_term.graph` says what its text leaves open.

    Nodes are up to four insights per correct run, one node per text. Every 50 stored runs (a persisted count) nodes of
    cosine >= 0.85 are merged and similar-concept edges that were used five times with a success rate below 0.2 go.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="insight_graph",
        title="InsightGraph",
        family="insight",
        stores="two to four short insights per solved task, linked as a graph",
        retrieves="the best matching insights and those linked to them",
        gate="success",
        top_k=3,
    )

    def __init__(self, space: Space, distiller: Distiller) -> None:
        super().__init__(space, distiller)
        self._cached: tuple[int, Graph] | None = None

    def lead(self, query: Query) -> tuple[str, str] | None:
        """The best seed: no path reaches its score, so that the graph need not be walked, or even built."""
        if self.card.relevance_floor is None:
            seed = best_seed(self.space, query)
            return (self._insight(seed.node), seed.node) if seed and seed.score >= LEAST_SCORE else None
        hits = self._hits(query)
        return (self._insight(hits[0].node), hits[0].node) if hits else None

    def find(self, query: Query) -> Retrieval:
        hits = self._hits(query)
        if not hits:
            return Retrieval(provider=self.card.name)
        edges = {edge.id: edge for hit in hits for edge in hit.path}
        return Retrieval(
            provider=self.card.name,
            text="\n".join(["Insights from solved tasks:", *(f"- {self._insight(hit.node)}" for hit in hits)]),
            item_ids=tuple(hit.node for hit in hits),
            effects=tuple(
                Effect(provider=self.card.name, kind="path", record_id=edge.id, payload=edge.payload())
                for _, edge in sorted(edges.items())
            ),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...] | None:
        insights = await self.distiller.insights(trajectory, outcome)
        return insights[:MAX_INSIGHTS] or None

    def draft(self, trajectory: Trajectory, artefact: tuple[Insight, ...]) -> list[Record]:
        return [
            self.space.new_record(
                "node",
                trajectory,
                position,
                text=insight.text,
                payload={"insight": insight.text},
                signature=content_hash(" ".join(insight.text.lower().split())),
            )
            for position, insight in enumerate(artefact)
        ]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        kept: dict[str, None] = {}
        for draft, vector in zip(drafts, vectors, strict=True):
            known = self._known(draft.signature)
            if known is None:
                order = self._count("nodes")
                known = draft.model_copy(update={"payload": draft.payload | {"order": order}})
                self.space.add([known], vector[np.newaxis])
            else:
                self.space.update(with_origins(known, draft.origins))
            kept[known.id] = None
        if self._count("stored_tasks") % CONSOLIDATE_EVERY == 0:
            self._consolidate()
        return tuple(kept)

    def take(self, effect: Effect, correct: bool) -> None:
        """Count one use of an edge on an injected path: n += 1, k += 1 where the task ended correct."""
        edge = self._standing(Edge.of(effect.payload))
        if edge is not None:
            self._write(edge.used(correct), "used")

    def _hits(self, query: Query) -> list[Hit]:
        graph = self._graph()
        words = self.space.lexical_scores(query.text, kind="node")
        hits = graph.spread(words, query.embedding, self.card.top_k)[: self.card.top_k]
        hits = [hit for hit in hits if hit.score >= LEAST_SCORE]
        fitting = {record.id for record in self.fitting(query, (self.space.existing(hit.node) for hit in hits))}
        return [hit for hit in hits if hit.node in fitting]

    def _graph(self) -> Graph:
        generation = self.space.generation
        if self._cached is None or self._cached[0] != generation:
            self._cached = (generation, Graph.of(self.space))
        return self._cached[1]

    def _insight(self, node: str) -> str:
        return str(self.space.existing(node).payload["insight"])

    def _known(self, signature: str) -> Record | None:
        """The node that holds this text now: its own, or the one that it was merged into."""
        record = self.space.find_signature(signature, "node", (*LIVE, "archived"))
        node = self._now(record.id) if record else None
        return self.space.get(node) if node else None

    def _now(self, node: str) -> str | None:
        """The live node that holds `node` now, or None."""
        record = self.space.get(node)
        while record is not None and record.state not in LIVE:
            record = self.space.get(record.links[0]) if record.links else None
        return record.id if record else None

    def _standing(self, edge: Edge) -> Edge | None:
        """What has become of an edge since it was walked; None where it was pruned or its nodes became one."""
        a, b = self._now(edge.a), self._now(edge.b)
        if a is None or b is None or a == b:
            return None
        if {a, b} != {edge.a, edge.b}:
            return Graph.of(self.space).edge_between(edge.type, a, b)
        record = self.space.get(edge.id)
        if record is None:
            return edge
        return Edge.of(record.payload) if record.state in LIVE else None

    def _count(self, name: str) -> int:
        value = self.space.counter(name) + 1
        self.space.set_counter(name, value)
        return value

    def _consolidate(self) -> None:
        """Merge near-duplicates, most similar first, the older node staying; then prune similar-concept edges."""
        graph = Graph.of(self.space)
        settled = self.space.counter("consolidated_nodes")
        fresh = [node for node, order in zip(graph.nodes, graph.orders, strict=True) if order > settled]
        self._merge(graph, graph.duplicates(fresh, MERGE_SIMILARITY))
        for edge in list(graph.stored.values()):
            tried = edge.live and edge.type == "similar" and edge.uses >= PRUNE_USES
            if tried and edge.successes / edge.uses < PRUNE_RATE:
                self.space.archive(edge.id, "pruned")
        self.space.set_counter("consolidated_nodes", self.space.counter("nodes"))

    def _merge(self, graph: Graph, merges: Sequence[tuple[int, int]]) -> None:
        """Join nodes: the dropped one points to the kept one, which takes over its origins and edges."""
        joined: dict[str, list[Origin]] = {}
        for kept, dropped in merges:
            older, newer = graph.nodes[kept], self.space.existing(graph.nodes[dropped])
            if newer.id in joined:
                newer = with_origins(newer, joined.pop(newer.id))
                self.space.update(newer)
            joined.setdefault(older, []).extend(newer.origins)
            self.space.archive(newer.id, f"merged into {older}", links=(older,))
            standing, past = graph.merge(kept, dropped)
            for edge in past:
                self.space.archive(edge.id, "redirected")
            for edge in standing:
                self._write(edge, "merged")
        for node, origins in joined.items():
            self.space.update(with_origins(self.space.existing(node), origins))

    def _write(self, edge: Edge, reason: str) -> None:
        """Store an edge's counts; one that is not live is kept as pruned."""
        record = Record(
            id=edge.id,
            provider=self.card.name,
            namespace=self.space.namespace,
            kind="edge",
            payload=edge.payload(),
            text="",
            links=(edge.a, edge.b),
        )
        known = self.space.get(edge.id)
        if known is None:
            self.space.add([record])
        else:
            self.space.update(record.model_copy(update={"created": known.created}))
        if not edge.live:
            self.space.archive(edge.id, reason)
