"""InsightGraph's graph over its records: edges, their weights, how scores spread, and how nodes are merged.

What MemAgent B.3 leaves open is ours: the blend of words and meaning, three seeds, three neighbours, two hops, the
decay per hop, and the weight of a used edge.

An edge that was never used is a function of its two nodes: same-task where they share a run, similar-concept where
their cosine is above 0.55. So it is computed, not stored; what use or pruning taught is a record of kind `edge`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from providers.dense import cosines_to
from providers.space import LIVE, Space
from providers.types import Query, Record, content_hash

EdgeType = Literal["same_task", "similar"]

SIMILAR = 0.55
WORDS_SHARE = 0.2
MEANING_SHARE = 0.8
SEEDS = 3
NEIGHBOURS = 3
HOPS = 2
DECAY = 0.7
LEAST_WEIGHT = 0.05
BLOCK_ROWS = 256
CHUNK_PAIRS = 4096
FIRST_REACH = 16
ROUNDED = 1e-5
"""More than rounding can change a score."""


@dataclass(frozen=True)
class Edge:
    """One edge in both directions, `a` < `b`, with its creation weight and its use: n uses, k of them correct."""

    type: EdgeType
    a: str
    b: str
    initial: float
    uses: int = 0
    successes: int = 0
    live: bool = True
    """False where it was pruned."""

    @property
    def id(self) -> str:
        return content_hash("edge", self.type, self.a, self.b)

    @property
    def weight(self) -> float:
        """w0 * (0.5 + (k + 1) / (n + 2)) within [0.05, 1]: w0 while unused, and in no way dependent on order."""
        adapted = self.initial * (0.5 + (self.successes + 1) / (self.uses + 2))
        return min(1.0, max(LEAST_WEIGHT, adapted))

    def used(self, correct: bool) -> Edge:
        return replace(self, uses=self.uses + 1, successes=self.successes + int(correct))

    def payload(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "a": self.a,
            "b": self.b,
            "initial": self.initial,
            "uses": self.uses,
            "successes": self.successes,
        }

    @classmethod
    def of(cls, payload: Mapping[str, Any], live: bool = True) -> Edge:
        return cls(**payload, live=live)


@dataclass(frozen=True)
class Hit:
    """A node with its score, and the edges it was reached by (none for a seed)."""

    node: str
    score: float
    path: tuple[Edge, ...] = ()


@dataclass
class Graph:
    """The live nodes in order of their ids, and everything that links them."""

    nodes: list[str]
    vectors: np.ndarray
    """Unit vectors of the nodes, shape (nodes, dimension)."""
    orders: list[int]
    """When each node was made, counted from 1."""
    runs: list[set[str]]
    """Ids of the trajectories that each node comes from."""
    absorbed: defaultdict[int, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    """Unit vectors of what was merged into a node, by the node's row."""
    stored: dict[tuple[EdgeType, int, int], Edge] = field(default_factory=dict)
    touching: defaultdict[int, set[tuple[EdgeType, int, int]]] = field(default_factory=lambda: defaultdict(set))
    _neighbours: dict[int, list[tuple[int, Edge]]] = field(default_factory=dict)
    _absorbed_table: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, space: Space) -> Graph:
        """The graph as a space holds it."""
        with space.snapshot():
            records = space.records(state=(*LIVE, "archived"))
            all_nodes = {record.id: record for record in records if record.kind == "node"}
            live = [record for record in all_nodes.values() if record.state in LIVE]
            rows = {record.id: row for row, record in enumerate(live)}
            merged = {
                record.id: rows[holder]
                for record in all_nodes.values()
                if record.id not in rows and (holder := merged_into(record.id, all_nodes)) is not None
            }
            absorbed: defaultdict[int, list[np.ndarray]] = defaultdict(list)
            for row, vector in zip(merged.values(), space.vectors(list(merged)), strict=True):
                absorbed[row].append(vector)
            graph = cls(
                nodes=[record.id for record in live],
                vectors=space.vectors(list(rows)),
                absorbed=absorbed,
                orders=[record.payload["order"] for record in live],
                runs=[{origin.trajectory_id for origin in record.origins} for record in live],
            )
        for record in records:
            if record.kind == "edge" and record.payload["a"] in rows and record.payload["b"] in rows:
                edge = Edge.of(record.payload, live=record.state in LIVE)
                graph._put(edge.type, rows[edge.a], rows[edge.b], edge)
        return graph

    def row(self, node: str) -> int | None:
        """The node's row, or None where it is not live."""
        return self._rows.get(node)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {node: row for row, node in enumerate(self.nodes)}

    @cached_property
    def _by_run(self) -> defaultdict[str, set[int]]:
        """The rows of each run; most consolidations merge nothing and never ask."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for row, runs in enumerate(self.runs):
            for run in runs:
                found[run].add(row)
        return found

    def edge_between(self, type_: EdgeType, first: str, second: str) -> Edge | None:
        """As `edge`, by the nodes' ids; None where one of them is not live."""
        rows = self.row(first), self.row(second)
        return None if rows[0] is None or rows[1] is None else self.edge(type_, rows[0], rows[1])

    def edge(self, type_: EdgeType, first: int, second: int) -> Edge | None:
        """The edge of that type between two rows, used or not; None where there is none or it was pruned."""
        low, high = sorted((first, second))
        known = self.stored.get((type_, low, high))
        if known is not None:
            return known if known.live else None
        if type_ == "same_task":
            return self._made(type_, low, high, 1.0) if self.runs[low] & self.runs[high] else None
        similarity = self._similarity(low, high)
        return self._made(type_, low, high, similarity) if similarity > SIMILAR else None

    def spread(self, words: Mapping[str, float], embedding: np.ndarray, enough: int | None = None) -> list[Hit]:
        """Seeds and what is reached from them within two hops, best first, then by id.

        Seed score: 0.2 of the lexical score `words` (node -> [0, 1)) and 0.8 of the cosine. A path has its seed's score
        times 0.7 and the edge's weight per hop; a node has the best of its paths. Where only the first `enough` hits
        are wanted, a node from which none of them can be reached any more is not left: no edge weighs more than 1.
        """
        if not self.nodes:
            return []
        cosines = np.round(cosines_to(self.vectors, embedding).astype(np.float64), 6)
        scores = MEANING_SHARE * np.maximum(cosines, 0.0)
        for node, score in words.items():
            row = self.row(node)
            if row is not None:
                scores[row] += WORDS_SHARE * score
        seeds = np.lexsort((np.arange(len(scores)), -scores))[:SEEDS]
        best: dict[int, tuple[float, tuple[Edge, ...]]] = {int(row): (float(scores[row]), ()) for row in seeds}
        frontier = dict(best)
        for _ in range(HOPS):
            reached: dict[int, tuple[float, tuple[Edge, ...]]] = {}
            for row, (score, path) in sorted(frontier.items(), key=lambda item: (-item[1][0], item[0])):
                if enough is not None and score * DECAY < _nth_score(best, enough):
                    continue
                for neighbour, edge in self.neighbours(row):
                    passed = score * edge.weight * DECAY
                    if passed > best.get(neighbour, (0.0,))[0]:
                        best[neighbour] = reached[neighbour] = (passed, (*path, edge))
            frontier = reached
        hits = [Hit(self.nodes[row], score, path) for row, (score, path) in best.items()]
        return sorted(hits, key=lambda hit: (-hit.score, hit.node))

    def neighbours(self, row: int) -> list[tuple[int, Edge]]:
        """The three nodes that the row's strongest edges lead to, of either type, strongest first, then by id."""
        known = self._neighbours.get(row)
        if known is None:
            known = self._neighbours[row] = self._strongest(row)
        return known

    def duplicates(self, among: Iterable[str], least: float) -> list[tuple[int, int]]:
        """What is to be merged, as rows (kept, dropped): pairs of at least that cosine, one of them in `among`.

        Pairs are taken most similar first, then by row; the older node stays, and a dropped one takes no further part.
        """
        among_rows = {row for node in among if (row := self.row(node)) is not None}
        low, high, cosines = self._pairs(np.array(sorted(among_rows), dtype=np.int64), least)
        order = np.lexsort((high, low, -cosines))
        gone = np.zeros(len(self.nodes), dtype=bool)
        merges: list[tuple[int, int]] = []
        for start in range(0, len(order), CHUNK_PAIRS):
            chunk = order[start : start + CHUNK_PAIRS]
            chunk = chunk[~(gone[low[chunk]] | gone[high[chunk]])]
            for one, other in zip(low[chunk].tolist(), high[chunk].tolist(), strict=True):
                if gone[one] or gone[other]:
                    continue
                kept, dropped = (one, other) if self.orders[one] < self.orders[other] else (other, one)
                gone[dropped] = True
                merges.append((kept, dropped))
        return merges

    def merge(self, kept: int, dropped: int) -> tuple[list[Edge], list[Edge]]:
        """Join `dropped` to `kept`: edges are redirected, parallel ones get the larger w0 and the sums of n and k.

        Gives the stored edges that now stand and those that no longer do.
        """
        ends = {kept, dropped}
        touched = self.touching[kept] | self.touching[dropped]
        others = sorted({(type_, other) for type_, *rows in touched for other in rows if other not in ends})
        standing = [(other, self._joined(type_, kept, dropped, other)) for type_, other in others]
        gone = [self._take(key) for key in sorted(self.touching[dropped])]
        self.absorbed[kept] += [self.vectors[dropped].copy(), *self.absorbed.pop(dropped, ())]
        self._absorbed_table = None
        self.vectors[dropped] = 0.0
        by_run = self._by_run
        self.runs[kept] |= self.runs[dropped]
        for run in self.runs[dropped]:
            by_run[run] = (by_run[run] - {dropped}) | {kept}
        self.runs[dropped] = set()
        for other, edge in standing:
            self._put(edge.type, kept, other, edge)
        self._neighbours.clear()
        return [edge for _, edge in standing], gone

    def _joined(self, type_: EdgeType, kept: int, dropped: int, other: int) -> Edge:
        edges = [edge for end in (kept, dropped) if (edge := self.edge(type_, end, other)) is not None]
        low, high = sorted((kept, other))
        return Edge(
            type_,
            self.nodes[low],
            self.nodes[high],
            initial=max((edge.initial for edge in edges), default=0.0),
            uses=sum(edge.uses for edge in edges),
            successes=sum(edge.successes for edge in edges),
            live=bool(edges),
        )

    def _strongest(self, row: int) -> list[tuple[int, Edge]]:
        similar = self._similarities(row)
        weights = np.where(similar > SIMILAR, similar, 0.0)
        for key in self.touching[row]:
            if key[0] == "similar":
                edge = self.stored[key]
                weights[key[1] + key[2] - row] = edge.weight if edge.live else 0.0
        nearest = np.lexsort((np.arange(len(weights)), -weights))[:NEIGHBOURS]
        candidates: list[tuple[EdgeType, int]] = [("similar", int(other)) for other in nearest if weights[other] > 0]
        together = {other for run in self.runs[row] for other in self._by_run[run]} - {row}
        candidates += [("same_task", other) for other in sorted(together)]
        strongest: dict[int, Edge] = {}
        for type_, other in candidates:
            found = self.edge(type_, row, other)
            if found is not None and (other not in strongest or found.weight > strongest[other].weight):
                strongest[other] = found
        return sorted(strongest.items(), key=lambda item: (-item[1].weight, item[0]))[:NEIGHBOURS]

    def _similarities(self, row: int) -> np.ndarray:
        """Cosine of a row to every row, the largest over what was merged into either, rounded; 0 to itself."""
        if self._absorbed_table is None:
            owners = [owner for owner, vectors in self.absorbed.items() for _ in vectors]
            table = [vector for vectors in self.absorbed.values() for vector in vectors]
            dimension = self.vectors.shape[1]
            self._absorbed_table = np.array(owners, dtype=np.int64), np.array(table).reshape(-1, dimension)
        owners_of, absorbed = self._absorbed_table
        best = np.full(len(self.nodes), -1.0)
        for vector in self._held(row):
            np.maximum(best, cosines_to(self.vectors, vector), out=best)
            np.maximum.at(best, owners_of, cosines_to(absorbed, vector))
        best[row] = 0.0
        return np.round(best, 6)

    def _similarity(self, row: int, other: int) -> float:
        """As `_similarities`, of two rows alone."""
        largest = np.max(np.stack(self._held(row)) @ np.stack(self._held(other)).T)
        return float(np.round(float(largest), 6))

    def _held(self, row: int) -> list[np.ndarray]:
        """The vectors that a row stands for: its own and what was merged into it."""
        return [self.vectors[row], *self.absorbed.get(row, ())]

    def _pairs(self, rows: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each pair with at least that cosine (rounded) and one end in `rows`, once: lower row, higher row, cosine."""
        rest = np.setdiff1d(np.arange(len(self.nodes)), rows)
        table, others = self.vectors[rows], self.vectors[rest]
        lows, highs, cosines = [rows[:0]], [rows[:0]], [np.zeros(0)]
        for start in range(0, len(rows), BLOCK_ROWS):
            block = table[start : start + BLOCK_ROWS]
            for columns, vectors, own in ((rest, others, False), (rows[start:], table[start:], True)):
                products = block @ vectors.T
                first, second = np.nonzero(products >= least - 1e-6)
                found = np.round(products[first, second].astype(np.float64), 6)
                counted = (found >= least) & ((second > first) | (not own))
                ends = rows[start + first[counted]], columns[second[counted]]
                lows.append(np.minimum(*ends))
                highs.append(np.maximum(*ends))
                cosines.append(found[counted])
        return np.concatenate(lows), np.concatenate(highs), np.concatenate(cosines)

    def _made(self, type_: EdgeType, low: int, high: int, initial: float) -> Edge:
        return Edge(type_, self.nodes[low], self.nodes[high], initial)

    def _put(self, type_: EdgeType, first: int, second: int, edge: Edge) -> None:
        low, high = sorted((first, second))
        self.stored[type_, low, high] = edge
        self.touching[low].add((type_, low, high))
        self.touching[high].add((type_, low, high))

    def _take(self, key: tuple[EdgeType, int, int]) -> Edge:
        for end in key[1:]:
            self.touching[end].discard(key)
        return self.stored.pop(key)


def _nth_score(best: Mapping[int, tuple[float, tuple[Edge, ...]]], n: int) -> float:
    """The nth highest score, 0 where there are fewer."""
    scores = sorted((score for score, _ in best.values()), reverse=True)
    return scores[n - 1] if len(scores) >= n else 0.0


def best_seed(space: Space, query: Query) -> Hit | None:
    """The node of highest seed score, of equals the one with the least id; None where there is none.

    Takes the best by meaning and the best by words until no node outside of both can be better (the threshold algorithm
    of Fagin, Lotem and Naor), so that not every node is scored.
    """
    reach = FIRST_REACH
    while True:
        near = space.search_dense(query.embedding, reach, kind="node")
        shared = space.search_lexical(query.text, reach, kind="node")
        ids = sorted({record.id for record, _ in (*near, *shared)})
        if not ids:
            return None
        cosines = np.round(np.einsum("ij,j->i", space.vectors(ids), query.embedding).astype(np.float64), 6)
        words = np.array(space.lexical_scores_of(query.text, ids, kind="node"))
        scores = MEANING_SHARE * np.maximum(cosines, 0.0) + WORDS_SHARE * words
        best = int(np.argmax(scores))
        farthest = max(near[-1][1], 0.0) if len(near) == reach else 0.0
        fewest = shared[-1][1] if len(shared) == reach else 0.0
        unseen = MEANING_SHARE * farthest + WORDS_SHARE * fewest
        if scores[best] > unseen + ROUNDED or (len(near) < reach and len(shared) < reach):
            return Hit(ids[best], float(scores[best]))
        reach *= 4


def merged_into(node: str, nodes: Mapping[str, Record]) -> str | None:
    """The live node that holds `node` now: itself, or the end of its merges; None where it was taken out."""
    record = nodes.get(node)
    while record is not None and record.state not in LIVE:
        record = nodes.get(record.links[0]) if record.links else None
    return record.id if record else None
