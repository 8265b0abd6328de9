"""Nearest vectors: exact below the limit, by cells above it, and the same after removal and reloading."""

from __future__ import annotations

import numpy as np
import pytest

from providers.dense import DenseIndex


def made_vectors(count: int, dimension: int = 16, seed: int = 0) -> np.ndarray:
    """Unit vectors in loose clusters, as sentence encodings are."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((count // 8 + 1, dimension))
    rows = centres[random.integers(0, len(centres), count)] + 0.3 * random.standard_normal((count, dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)


def names_of(count: int) -> list[str]:
    return [f"n{number:05d}" for number in range(count)]


def test_exact_search_agrees_with_all_inner_products() -> None:
    vectors = made_vectors(300)
    index = DenseIndex(16, names_of(300), vectors)
    for query in made_vectors(20, seed=1):
        order = np.lexsort((np.arange(300), -(vectors @ query)))[:5]
        assert [name for name, _ in index.search(query, 5)] == [f"n{row:05d}" for row in order]
    assert index.exact


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.dense.CELLS_FROM", 500)
    monkeypatch.setattr("providers.dense.CELLS", 8)
    monkeypatch.setattr("providers.dense.PROBED", 4)
    monkeypatch.setattr("providers.dense.TRAINING_ROWS", 400)


@pytest.mark.usefixtures("small_limits")
def test_search_by_cells_finds_nearly_every_nearest_vector() -> None:
    vectors = made_vectors(1000)
    index = DenseIndex(16, names_of(1000), vectors)
    assert not index.exact
    queries = made_vectors(1000)[:200]
    hits = [index.search(query, 1)[0] for query in queries]
    right = sum(
        name == f"n{int(np.argmax(vectors @ query)):05d}" for (name, _), query in zip(hits, queries, strict=True)
    )
    assert right >= 198
    assert index.search(queries[0], 3)[0] == ("n00000", pytest.approx(1.0, abs=1e-5))


@pytest.mark.usefixtures("small_limits")
def test_a_loaded_index_of_cells_grows_and_forgets_like_the_one_that_was_dumped() -> None:
    vectors = made_vectors(600)
    index = DenseIndex(16, names_of(600), vectors)
    index.remove("n00003")
    index.add(["late"], vectors[3:4])
    loaded = DenseIndex.load(16, index.dump()[0], {*names_of(600), "late"} - {"n00003"}, index.dump()[1])
    for found in (index, loaded):
        assert len(found) == 600
        assert found.search(vectors[3], 1)[0][0] == "late"
        found.remove("late")
        assert found.search(vectors[3], 1)[0][0] not in {"late", "n00003"}


@pytest.mark.usefixtures("small_limits")
def test_an_index_says_when_it_is_outgrown() -> None:
    index = DenseIndex(16)
    index.add(names_of(499), made_vectors(499))
    assert not index.outgrown
    index.add(["one more"], made_vectors(1))
    assert index.outgrown
    made = DenseIndex(16, names_of(500), made_vectors(500))
    assert not made.outgrown
    made.add([f"m{number}" for number in range(1500)], made_vectors(1500))
    assert made.outgrown


@pytest.mark.parametrize("cells", [False, True])
def test_removed_vectors_are_never_found_whether_they_were_taken_out_yet_or_not(
    cells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.dense.KEPT_REMOVED", 5)
    monkeypatch.setattr("providers.dense.CELLS_FROM", 200 if cells else 10**6)
    monkeypatch.setattr("providers.dense.CELLS", 4)
    monkeypatch.setattr("providers.dense.PROBED", 4)
    monkeypatch.setattr("providers.dense.TRAINING_ROWS", 160)
    vectors, names = made_vectors(300), names_of(300)
    index = DenseIndex(16, names, vectors)
    assert index.exact is not cells
    for gone in range(0, 26, 2):
        index.remove(names[gone])
        index.remove(names[gone])
        kept = [row for row in range(300) if row > gone or row % 2]
        assert len(index) == len(kept)
        cosines = vectors @ vectors[gone]
        best = sorted(kept, key=lambda row: (-float(cosines[row]), row))
        assert [name for name, _ in index.search(vectors[gone], 3)] == [names[row] for row in best[:3]]
        assert len(index.search(vectors[gone], 400)) == len(kept)
        queries = vectors[[gone, 0, 299]]
        for query, found in zip(queries, index.above(queries, 0.5), strict=True):
            assert {name for name, _ in found} == {names[row] for row in kept if vectors[row] @ query > 0.5}


def test_equal_vectors_come_in_order_of_their_names_also_at_the_cut() -> None:
    index = DenseIndex(2)
    index.add([f"n{number}" for number in (3, 1, 2, 0)], np.array([[1, 0]] * 4, dtype=np.float32))
    assert [name for name, _ in index.search(np.array([1, 0], dtype=np.float32), 2)] == ["n0", "n1"]


def test_a_search_leaves_the_number_of_threads_as_it_was() -> None:
    import faiss

    faiss.omp_set_num_threads(2)
    index = DenseIndex(2, ["a"], np.eye(2, dtype=np.float32)[:1])
    index.search(np.array([1, 0]), 1)
    index.above(np.eye(2), 0.5)
    assert faiss.omp_get_max_threads() == 2
