"""InsightGraph: nodes, edges, spreading, edge weights and consolidation, as MemAgent B.3 has them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_toys import CORRECT, UNKNOWN, WRONG, FixedEncoder, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Insight
from providers.long_term.graph import Edge, Graph
from providers.long_term.insight_graph import InsightGraph
from providers.types import Effect, Outcome, Record, StoreReceipt


def graph_over(bank: MemoryBank) -> InsightGraph:
    return InsightGraph(bank.space("insight_graph"), ScriptedDistiller())


async def learn(provider: InsightGraph, task: str, insights: Sequence[str], outcome: Outcome = CORRECT) -> StoreReceipt:
    distiller = provider.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.insight_lines = tuple(Insight(text=text, kind="success") for text in insights)
    return await provider.store(run_of(task), outcome)


def nodes(provider: InsightGraph) -> list[str]:
    return sorted(record.text for record in provider.space.records("node"))


def edge_of(provider: InsightGraph, type_: str, first: str, second: str) -> Edge | None:
    ids = {record.text: record.id for record in provider.space.records("node")}
    return Graph.of(provider.space).edge_between(type_, ids[first], ids[second])  # type: ignore[arg-type]


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[InsightGraph]:
    with open_bank(tmp_path) as bank:
        yield graph_over(bank)


def plane(**degrees: float) -> FixedEncoder:
    """Texts as directions in a plane, by their angle; cosines are cosines of angle differences."""
    return FixedEncoder(
        {name: (math.cos(math.radians(angle)), math.sin(math.radians(angle))) for name, angle in degrees.items()}
    )


# Storing


@pytest.mark.parametrize("outcome", [WRONG, UNKNOWN])
async def test_correct_runs_alone_are_kept(provider: InsightGraph, outcome: Outcome) -> None:
    assert (await learn(provider, "t1", ["Read Area."], outcome)).status == "skipped"
    assert (await learn(provider, "t2", [])).status == "skipped"
    assert nodes(provider) == []


async def test_at_most_four_insights_become_nodes(provider: InsightGraph) -> None:
    await learn(provider, "t", [f"Insight {word}" for word in ("coal", "area", "rail", "tax", "life")])
    assert len(nodes(provider)) == 4


async def test_one_text_is_one_node_with_every_source(provider: InsightGraph) -> None:
    first = await learn(provider, "t1", ["Read  Area.", "Search first."])
    second = await learn(provider, "t2", ["read area.", "Open the map."])
    assert first.record_ids[0] == second.record_ids[0]
    node = provider.space.existing(first.record_ids[0])
    assert [(origin.task_id, origin.share) for origin in node.origins] == [("t1", 0.5), ("t2", 0.5)]
    assert edge_of(provider, "same_task", "Read  Area.", "Open the map.") is not None
    assert edge_of(provider, "same_task", "Search first.", "Open the map.") is None


async def test_edges_link_a_run_and_similar_insights(tmp_path: Path) -> None:
    encoder = plane(a=0, b=80, near=50, far=60)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t1", ["a", "b"])
        await learn(provider, "t2", ["near"])
        await learn(provider, "t3", ["far"])
        together = edge_of(provider, "same_task", "a", "b")
        assert together is not None
        assert together.initial == together.weight == 1.0
        assert edge_of(provider, "similar", "a", "b") is None
        similar = edge_of(provider, "similar", "a", "near")
        assert similar is not None
        assert similar.weight == similar.initial == pytest.approx(math.cos(math.radians(50)), abs=1e-6)
        assert edge_of(provider, "similar", "near", "a") == similar
        assert edge_of(provider, "similar", "a", "far") is None
        assert edge_of(provider, "same_task", "a", "near") is None


# Retrieving


async def test_nothing_is_injected_below_the_least_score(provider: InsightGraph) -> None:
    await learn(provider, "t", ["Coal stands under Energy."])
    retrieval = await provider.retrieve(query_of("xyzzy"))
    assert retrieval.empty
    assert provider.probe(query_of("xyzzy")).text == ""


async def test_words_alone_do_not_reach_the_least_score_and_meaning_does(tmp_path: Path) -> None:
    degrees = {"coal energy": 0.0, "query": 75.0, "coal": 90.0}
    with MemoryBank.open(tmp_path / "b.sqlite", FixedEncoder(plane(**degrees).vectors)) as bank:  # type: ignore[arg-type]
        provider = graph_over(bank)
        await learn(provider, "t", ["coal energy"])
        encoder = bank.encoder
        assert isinstance(encoder, FixedEncoder)
        assert (await provider.retrieve(encoder.query("coal"))).empty
        assert (await provider.retrieve(encoder.query("query"))).empty
        encoder.vectors["query"] = np.array([math.cos(math.radians(73)), math.sin(math.radians(73))])
        assert not (await provider.retrieve(encoder.query("query"))).empty


async def test_linked_insights_come_along_and_strangers_do_not(tmp_path: Path) -> None:
    encoder = plane(seed=0, sibling=100, stranger=240, query=10)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t1", ["seed", "sibling"])
        await learn(provider, "t2", ["stranger"])
        retrieval = await provider.retrieve(encoder.query("query"))
        assert retrieval.text == "Insights from solved tasks:\n- seed\n- sibling"
        (effect,) = retrieval.effects
        assert {provider.space.existing(effect.payload[end]).text for end in "ab"} == {"seed", "sibling"}
        assert effect.payload["type"] == "same_task"
        assert provider.probe(encoder.query("query")).text == "seed"
        assert provider.probe(encoder.query("query")).item_id == retrieval.item_ids[0]


async def test_two_hops_are_walked_and_not_three(tmp_path: Path) -> None:
    degrees = {"query": 0.0, "n0": 0.0}
    degrees |= {"f1": 0.0, "f2": 0.0}
    degrees |= {"n1": 120.0, "n2": 170.0, "n3": 220.0}
    encoder = plane(**degrees)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t0", ["n0", "n1"])
        await learn(provider, "t1", ["n1", "n2"])
        await learn(provider, "t2", ["n2", "n3"])
        graph = Graph.of(provider.space)
        hits = {
            provider.space.existing(hit.node).text: (hit.score, len(hit.path))
            for hit in graph.spread({}, encoder.query("query").embedding)
        }
        assert hits["n0"] == (pytest.approx(0.8), 0)
        assert hits["n1"] == (pytest.approx(0.8 * 0.7), 1)
        assert hits["n2"] == (pytest.approx(0.8 * 0.7 * 0.7), 2)
        assert hits.get("n3", (0.0, 0)) == (0.0, 0)


async def test_three_insights_at_most_and_no_score_in_the_text(tmp_path: Path) -> None:
    encoder = plane(a=0, b=1, c=2, d=3, query=0)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t1", ["a", "b", "c", "d"])
        assert (await provider.retrieve(encoder.query("query"))).text == "Insights from solved tasks:\n- a\n- b\n- c"


async def test_equal_scores_are_ordered_by_id_whatever_the_order_of_storing(tmp_path: Path) -> None:
    encoder = plane(a=0, b=0, c=0, d=0, query=30)
    texts = []
    for name, order in (("one.sqlite", "abcd"), ("two.sqlite", "dcba")):
        with MemoryBank.open(tmp_path / name, encoder) as bank:
            provider = graph_over(bank)
            for text in order:
                await learn(provider, f"t-{text}", [text])
            texts.append((await provider.retrieve(encoder.query("query"))).text)
    assert texts[0] == texts[1]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 360), min_size=1, max_size=7), st.lists(st.integers(0, 3), min_size=7, max_size=7))
def test_spreading_equals_the_definition_over_all_paths(angles: list[float], runs: list[int]) -> None:
    vectors = np.array([(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in angles], dtype=np.float32)
    graph = Graph(
        nodes=[f"n{row}" for row in range(len(angles))],
        vectors=vectors,
        orders=list(range(1, len(angles) + 1)),
        runs=[{f"r{run}"} for run in runs[: len(angles)]],
    )
    query = np.array([1.0, 0.0], dtype=np.float32)
    scores = [0.8 * max(0.0, float(vector @ query)) for vector in vectors]
    seeds = sorted(range(len(angles)), key=lambda row: (-round(scores[row], 6), row))[:3]
    expected = {row: scores[row] for row in seeds}
    for seed in seeds:
        for first, edge in graph.neighbours(seed):
            one = scores[seed] * edge.weight * 0.7
            expected[first] = max(expected.get(first, 0.0), one)
            for second, further in graph.neighbours(first):
                expected[second] = max(expected.get(second, 0.0), one * further.weight * 0.7)
    found = {hit.node: hit.score for hit in graph.spread({}, query)}
    for row, score in expected.items():
        if score > 1e-6:
            assert found[f"n{row}"] == pytest.approx(score, abs=1e-5)
    assert all(len(graph.neighbours(row)) <= 3 for row in range(len(angles)))


# Edge weights


@pytest.mark.parametrize(("successes", "uses", "weight"), [(0, 0, 0.6), (3, 3, 0.78), (0, 3, 0.42), (1, 5, 0.471)])
def test_the_weight_of_a_used_edge(successes: int, uses: int, weight: float) -> None:
    edge = Edge("similar", "a", "b", initial=0.6, uses=uses, successes=successes)
    assert edge.weight == pytest.approx(weight, abs=5e-4)


@given(st.floats(0.55, 1.0), st.lists(st.booleans(), max_size=30))
def test_weights_stay_in_bounds_and_do_not_depend_on_order(initial: float, results: list[bool]) -> None:
    edges = [Edge("similar", "a", "b", initial), Edge("similar", "a", "b", initial)]
    for forward, backward in zip(results, reversed(results), strict=True):
        edges = [edges[0].used(forward), edges[1].used(backward)]
    assert edges[0].weight == edges[1].weight
    assert 0.05 <= edges[0].weight <= 1.0


async def test_use_is_counted_once_the_outcome_is_known(tmp_path: Path) -> None:
    encoder = plane(seed=0, sibling=100, query=10)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t1", ["seed", "sibling"])
        effects = (await provider.retrieve(encoder.query("query"))).effects
        for outcome in (UNKNOWN, CORRECT, WRONG, WRONG):
            provider.apply(effects, outcome)
        edge = edge_of(provider, "same_task", "seed", "sibling")
        assert edge is not None
        assert (edge.uses, edge.successes) == (3, 1)
        assert edge.weight == pytest.approx(0.5 + 2 / 5)
        assert len(effects) == 1


# Consolidation


async def fill(provider: InsightGraph, runs: int) -> None:
    """`runs` more stored runs that bring no new node."""
    for number in range(runs):
        await learn(provider, f"filler-{provider.space.counter('stored_tasks')}-{number}", ["filler"])


async def test_near_duplicates_are_merged_after_fifty_stored_runs_whoever_counts(tmp_path: Path) -> None:
    encoder = plane(old=0, new=20, apart=45, filler=180)
    path = tmp_path / "b.sqlite"
    with MemoryBank.open(path, encoder) as bank:
        await learn(graph_over(bank), "t1", ["old", "apart"])
        await learn(graph_over(bank), "t2", ["new"])
        for _ in range(4):
            await fill(graph_over(bank), 12)
            if bank.space("insight_graph").counter("stored_tasks") < 50:
                assert "new" in nodes(graph_over(bank))
    with MemoryBank.open(path, encoder) as bank:
        provider = graph_over(bank)
        assert provider.space.counter("stored_tasks") == 50
        assert nodes(provider) == ["apart", "filler", "old"]
        old = next(record for record in provider.space.records("node") if record.text == "old")
        assert {origin.task_id for origin in old.origins} == {"t1", "t2"}
        again = await learn(provider, "t3", ["new"])
        assert again.record_ids == (old.id,)
        edge = edge_of(provider, "similar", "old", "apart")
        assert edge is not None
        assert edge.initial == pytest.approx(math.cos(math.radians(25)), abs=1e-6)


async def test_poor_similar_edges_are_pruned_and_same_task_edges_never(tmp_path: Path) -> None:
    encoder = plane(a=0, poor=50, fair=-50, mate=130, filler=180)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t1", ["a", "mate"])
        await learn(provider, "t2", ["poor"])
        await learn(provider, "t3", ["fair"])
        for type_, other, successes in (("similar", "poor", 0), ("similar", "fair", 1), ("same_task", "mate", 0)):
            edge = edge_of(provider, type_, "a", other)
            assert edge is not None
            for use in range(5):
                with provider.space.transaction():
                    provider._write((edge_of(provider, type_, "a", other) or edge).used(use < successes), "used")
        await fill(provider, 47)
        assert provider.space.counter("stored_tasks") == 50
        assert edge_of(provider, "similar", "a", "poor") is None
        fair, mate = edge_of(provider, "similar", "a", "fair"), edge_of(provider, "same_task", "a", "mate")
        assert fair is not None
        assert (fair.uses, fair.successes) == (5, 1)
        assert mate is not None
        assert mate.uses == 5


async def test_merging_redirects_edges_and_sums_their_counts(tmp_path: Path) -> None:
    encoder = plane(kept=0, merged=20, third=48, filler=180)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        for task, text in (("t1", "kept"), ("t2", "merged"), ("t3", "third")):
            await learn(provider, task, [text])
        before = {name: edge_of(provider, "similar", name, "third") for name in ("kept", "merged")}
        for edge, results in ((before["kept"], [True, False]), (before["merged"], [True])):
            assert edge is not None
            with provider.space.transaction():
                for result in results:
                    edge = edge.used(result)
                provider._write(edge, "used")
        await fill(provider, 47)
        assert nodes(provider) == ["filler", "kept", "third"]
        joined = edge_of(provider, "similar", "kept", "third")
        assert joined is not None
        assert (joined.uses, joined.successes) == (3, 2)
        assert joined.initial == pytest.approx(math.cos(math.radians(28)), abs=1e-6)
        live = [record for record in provider.space.records("edge") if record.payload["type"] == "similar"]
        assert [record.id for record in live] == [joined.id]
        merged = before["merged"]
        assert merged is not None
        effect_before_the_merge = provider.space.existing(merged.id)
        assert effect_before_the_merge.state == "archived"


async def test_use_of_an_edge_that_was_merged_meanwhile_is_counted_on_the_joined_one(tmp_path: Path) -> None:
    encoder = plane(kept=0, merged=25, far=75, filler=180)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        await learn(provider, "t1", ["kept"])
        await learn(provider, "t2", ["merged"])
        await learn(provider, "t3", ["far"])
        edge, inner = edge_of(provider, "similar", "merged", "far"), edge_of(provider, "similar", "kept", "merged")
        assert edge is not None
        assert inner is not None
        await fill(provider, 47)
        assert nodes(provider) == ["far", "filler", "kept"]
        provider.apply(
            tuple(
                Effect(provider="insight_graph", kind="path", record_id=walked.id, payload=walked.payload())
                for walked in (edge, inner)
            ),
            CORRECT,
        )
        joined = edge_of(provider, "similar", "kept", "far")
        assert joined is not None
        assert (joined.uses, joined.successes) == (1, 1)
        assert joined.initial == pytest.approx(math.cos(math.radians(50)), abs=1e-6)
        assert [record.id for record in provider.space.records("edge")] == [joined.id]


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_merging_keeps_every_edge_of_the_group_at_its_largest(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 6))
    angles = [data.draw(st.floats(0, 180)) for _ in range(count)]
    vectors = np.array([(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in angles], dtype=np.float32)
    graph = Graph(
        nodes=[f"n{row}" for row in range(count)],
        vectors=vectors,
        orders=list(range(1, count + 1)),
        runs=[{f"r{row}"} for row in range(count)],
    )
    for low, high in itertools.combinations(range(count), 2):
        edge = graph.edge("similar", low, high)
        if edge is not None and data.draw(st.booleans()):
            results = data.draw(st.lists(st.booleans(), min_size=1, max_size=4))
            for result in results:
                edge = edge.used(result)
            graph._put("similar", low, high, edge)
    before = {
        other: [edge for end in (0, 1) if (edge := graph.edge("similar", end, other)) is not None]
        for other in range(2, count)
    }
    graph.merge(0, 1)
    for other, edges in before.items():
        joined = graph.edge("similar", 0, other)
        if not edges:
            assert joined is None
            continue
        assert joined is not None
        assert joined.initial == max(edge.initial for edge in edges)
        assert joined.uses == sum(edge.uses for edge in edges)
        assert joined.successes == sum(edge.successes for edge in edges)
        assert graph.neighbours(other)
    assert all(1 not in key[1:] for key in graph.stored)


def test_a_record_of_an_edge_is_not_retrieved_as_an_insight(provider: InsightGraph) -> None:
    edge = Edge("similar", "a", "b", 0.6)
    with provider.space.transaction():
        provider._write(edge, "used")
    assert provider.space.search_lexical("similar") == []
    assert isinstance(provider.space.get(edge.id), Record)
    assert Graph.of(provider.space).nodes == []


def toy_graph(degrees: Sequence[float], orders: Sequence[int]) -> Graph:
    radians = np.radians(np.asarray(degrees, dtype=np.float64))
    vectors = np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)
    names = [f"n{row:03d}" for row in range(len(degrees))]
    return Graph(nodes=names, vectors=vectors, orders=list(orders), runs=[{name} for name in names])


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_duplicates_are_those_of_the_plain_loop_over_pairs(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    degrees = data.draw(st.lists(st.integers(0, 90), min_size=count, max_size=count))
    orders = data.draw(st.permutations(range(1, count + 1)))
    among = data.draw(st.sets(st.integers(0, count - 1)))
    graph = toy_graph(degrees, orders)
    cosines = np.round((graph.vectors @ graph.vectors.T).astype(np.float64), 6)
    pairs = [pair for pair in itertools.combinations(range(count), 2) if among & set(pair) and cosines[pair] >= 0.85]
    gone: set[int] = set()
    expected = []
    for pair in sorted(pairs, key=lambda pair: (-cosines[pair], pair)):
        if not gone & set(pair):
            kept, dropped = sorted(pair, key=lambda row: orders[row])
            gone.add(dropped)
            expected.append((kept, dropped))
    assert graph.duplicates([graph.nodes[row] for row in among], 0.85) == expected


def test_duplicates_over_several_blocks_and_chunks_leave_one_node_per_group() -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((6, 32))
    vectors = np.repeat(centres, 110, axis=0) + 0.05 * rng.standard_normal((660, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    names = [f"n{row:03d}" for row in range(660)]
    graph = Graph(nodes=names, vectors=vectors, orders=list(range(660, 0, -1)), runs=[{name} for name in names])
    merges = graph.duplicates(names, 0.85)
    assert len(merges) == 654
    left = set(range(660)) - {dropped for _, dropped in merges}
    assert sorted(row // 110 for row in left) == [0, 1, 2, 3, 4, 5]
    assert all(kept > dropped for kept, dropped in merges)
    assert all(kept // 110 == dropped // 110 for kept, dropped in merges)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 180), min_size=4, max_size=8))
def test_the_similarity_of_two_nodes_is_theirs_among_all(degrees: list[int]) -> None:
    graph = toy_graph(degrees, range(1, len(degrees) + 1))
    graph.merge(0, 1)
    for row, other in itertools.permutations(range(2, len(degrees)), 2):
        assert graph._similarity(row, other) == pytest.approx(graph._similarities(row)[other], abs=2e-6)
    for other in range(2, len(degrees)):
        assert graph._similarity(0, other) == pytest.approx(graph._similarities(0)[other], abs=2e-6)
        assert graph._similarity(other, 0) == pytest.approx(graph._similarities(other)[0], abs=2e-6)


async def test_the_count_to_fifty_goes_on_after_reopening(tmp_path: Path) -> None:
    encoder = plane(old=0, new=20, filler=180)
    path = tmp_path / "b.sqlite"
    for opened in range(10):
        with MemoryBank.open(path, encoder) as bank:
            provider = graph_over(bank)
            if not opened:
                await learn(provider, "t1", ["old"])
                await learn(provider, "t2", ["new"])
            await fill(provider, 3 if not opened else 5)
            assert ("new" in nodes(provider)) is (opened < 9)


async def test_a_large_group_is_merged_with_at_most_two_writes_per_node(tmp_path: Path) -> None:
    encoder = plane(filler=180, **{f"near{n}": n / 10 for n in range(49)})
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        provider = graph_over(bank)
        for number in range(49):
            await learn(provider, f"t{number}", [f"near{number}"])
        with bank.reporting():
            (before,) = bank.committed.execute("SELECT COUNT(*) FROM events").fetchone()
        await fill(provider, 1)
        with bank.reporting():
            (after,) = bank.committed.execute("SELECT COUNT(*) FROM events").fetchone()
        assert nodes(provider) == ["filler", "near0"]
        (node,) = [record for record in provider.space.records("node") if record.text == "near0"]
        assert {origin.task_id for origin in node.origins} == {f"t{number}" for number in range(49)}
        assert after - before <= 1 + 2 * 48 + 1


def test_a_preview_shows_the_node_that_the_graph_puts_first(tmp_path: Path) -> None:
    """The short way to the best node and the walk over the graph agree, also where words decide."""
    random = np.random.default_rng(0)
    words = "coal river border railway income population desert harbour glacier orchid".split()
    with open_bank(tmp_path) as bank:
        provider = InsightGraph(bank.space("insight_graph"), ScriptedDistiller())
        space = provider.space
        records = [
            space.new_record(
                "node",
                run_of(f"t{n}"),
                0,
                text=" ".join(random.choice(words, 6)) + f" place {n}",
                payload={"insight": f"lesson {n}", "order": n + 1},
            )
            for n in range(300)
        ]
        space.add(records)
        for _ in range(40):
            query = query_of(" ".join(random.choice([*words, "place", "7", "nothing"], 4)))
            hits = provider._hits(query)
            assert provider.probe(query).item_id == (hits[0].node if hits else None)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 120), min_size=1, max_size=12), st.integers(0, 120), st.integers(1, 4))
def test_the_first_hits_are_the_same_however_far_the_graph_is_walked(
    degrees: list[int], asked: int, enough: int
) -> None:
    graph = toy_graph(degrees, range(1, len(degrees) + 1))
    query = toy_graph([asked], [1]).vectors[0]
    words = {node: row / 20 for row, node in enumerate(graph.nodes)}
    assert graph.spread(words, query, enough)[:enough] == graph.spread(words, query)[:enough]
