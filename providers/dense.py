"""Nearest vectors by inner product (FAISS): exact, and by cells where there are very many."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

CELLS_FROM = 32_768
"""Vectors from which on the search is by cells."""
CELLS = 256
PROBED = 16
"""Cells that are looked into: on sentence encodings the nearest vector is in one of them (bench_providers measures)."""
TRAINING_ROWS = 64 * CELLS
TRAINING_ROUNDS = 8
GROWTH = 4
"""Cells are laid out anew when the index has grown this many times since."""
KEPT_REMOVED = 64
"""Removed vectors that may wait in the index: taking vectors out moves all that come after them."""


class DenseIndex:
    """Inner products over unit vectors by name.

    Up to CELLS_FROM vectors the search is exact (IndexFlatIP). Beyond, vectors are kept in cells around k-means centres
    and the nearest cells are searched exactly (IndexIVFFlat): a few in a thousand nearest vectors may be missed.
    """

    def __init__(self, dimension: int, names: Sequence[str] = (), vectors: np.ndarray | None = None) -> None:
        """An index of these names and their vectors, shape (names, dimension)."""
        import faiss

        self._faiss: Any = faiss
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._removed: set[int] = set()
        """Numbers of removed vectors that are still in the index."""
        self._laid_out_for = 0
        """How many vectors the cells were made for; 0 while the search is exact."""
        self._index: Any = faiss.IndexIDMap(faiss.IndexFlatIP(dimension))
        if vectors is not None and len(names) >= CELLS_FROM:
            self._lay_out(dimension, vectors)
        if vectors is not None:
            self.add(names, vectors)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def exact(self) -> bool:
        return self._laid_out_for == 0

    @property
    def outgrown(self) -> bool:
        """Whether an index made anew over the same vectors would be quicker."""
        return len(self) >= max(CELLS_FROM, GROWTH * self._laid_out_for)

    def add(self, names: Sequence[str], vectors: np.ndarray) -> None:
        """Index vectors, shape (names, dimension), under new names."""
        if not names:
            return
        first = len(self._names)
        numbers = np.arange(first, first + len(names), dtype=np.int64)
        self._numbers.update(zip(names, numbers.tolist(), strict=True))
        self._names.extend(names)
        self._index.add_with_ids(np.ascontiguousarray(vectors, dtype=np.float32), numbers)

    def remove(self, *names: str) -> None:
        """Forget the names; nothing happens for one that is unknown."""
        numbers = (self._numbers.pop(name, None) for name in names)
        self._removed.update(number for number in numbers if number is not None)
        if len(self._removed) > KEPT_REMOVED:
            self._sweep()

    def search(self, embedding: np.ndarray, k: int) -> list[tuple[str, float]]:
        """The k nearest names with their cosine; equal scores are ordered by name, also at the cut."""
        query = np.ascontiguousarray(embedding, dtype=np.float32).reshape(1, -1)
        wanted, held = min(k, len(self)), len(self) + len(self._removed)
        reach = min(wanted + 1 + len(self._removed), held)
        while wanted > 0:
            with _one_thread(self._faiss):
                scores, numbers = self._index.search(query, reach)
            hits = self._named(scores[0], numbers[0])
            all_seen = reach == held or numbers[0, -1] < 0
            if all_seen or (len(hits) >= wanted and float(scores[0, -1]) < hits[wanted - 1][1]):
                return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:wanted]
            reach = min(2 * reach, held)
        return []

    def above(self, embeddings: np.ndarray, least: float) -> list[list[tuple[str, float]]]:
        """For each embedding all names whose cosine is above `least`, in no order; of an index by cells, every cell is
        looked into."""
        queries = np.ascontiguousarray(embeddings, dtype=np.float32)
        looking = {} if self.exact else {"params": self._faiss.SearchParametersIVF(nprobe=CELLS)}
        with _one_thread(self._faiss):
            ends, scores, numbers = self._index.range_search(queries, least, **looking)
        return [self._named(scores[slice(*part)], numbers[slice(*part)]) for part in pairwise(ends.tolist())]

    def dump(self) -> tuple[list[str], np.ndarray]:
        """Names by number and the cells as bytes, for `load`; an exact index is quicker made anew."""
        self._sweep()
        return self._names, self._faiss.serialize_index(self._index)

    @classmethod
    def load(cls, dimension: int, names: Sequence[str], live: Container[str], cells: np.ndarray) -> DenseIndex:
        """The index that gave `dump`; `live` has the names that were not removed."""
        index = cls(dimension)
        index._index = index._faiss.deserialize_index(np.array(cells))
        index._index.nprobe = PROBED
        index._names = list(names)
        index._numbers = {name: number for number, name in enumerate(index._names) if name in live}
        index._laid_out_for = len(index)
        return index

    def _named(self, scores: np.ndarray, numbers: np.ndarray) -> list[tuple[str, float]]:
        """What was found, in its order, without what was removed and without the places that were not filled."""
        found = zip(scores.tolist(), numbers.tolist(), strict=True)
        return [(self._names[n], s) for s, n in found if n >= 0 and n not in self._removed]

    def _sweep(self) -> None:
        """Take the removed vectors out of the index."""
        if self._removed:
            numbers = np.array(sorted(self._removed), dtype=np.int64)
            self._index.remove_ids(self._faiss.IDSelectorBatch(numbers))
            self._removed.clear()

    def _lay_out(self, dimension: int, vectors: np.ndarray) -> None:
        """Make empty cells around the centres of `vectors`."""
        faiss = self._faiss
        cells = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, CELLS, faiss.METRIC_INNER_PRODUCT)
        cells.cp.niter = TRAINING_ROUNDS
        cells.cp.max_points_per_centroid = TRAINING_ROWS // CELLS
        cells.train(np.ascontiguousarray(vectors, dtype=np.float32))
        cells.nprobe = PROBED
        self._index, self._laid_out_for = cells, len(vectors)


def cosines_to(table: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The cosine of every row, shape (rows, dimension), with `vector`, all of them unit vectors; on the calling thread.

    `table @ vector` would wake the threads of the BLAS and wait for them, which a busy machine turns into tenths of a
    second; and a row's last digit would depend on where in the table it stands.
    """
    found: np.ndarray = np.einsum("ij,j->i", table, vector)
    return found


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """FAISS on the calling thread alone: to wake its others and wait for them takes longer than a few queries do, and
    far longer where the machine is busy. They are per calling thread, so nobody else is slowed."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
