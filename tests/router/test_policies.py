"""The simple policies: what each chooses, and that it never chooses an empty preview over a full one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_toys import card, toy_trajectory

from providers.embedder import Encoder, load_encoder
from providers.errors import ConfigError
from providers.types import Outcome, Preview
from router.context import BeginContext, EndContext, InContext
from router.decisions import NONE, Arm, BeginDecision, EndDecision
from router.policies.fixed import Concat, Forced, InOnly, Single, StoreAll
from router.policies.knn import NearestTasks
from router.policies.none import NoMemory
from router.policies.oracle import Oracle
from router.policies.overlap import Cosine, Overlap
from router.policies.random import RandomPolicy
from router.session import summarise
from router.table import Cell, RoutingTable, TableRow

CARDS = (card("a"), card("b", "success"), card("c"))
ENCODER: Encoder = load_encoder("hashing", {}, None)


def begin(
    texts: tuple[str, ...], question: str = "Which country grows the most coffee?", task: str = "t"
) -> BeginContext:
    previews = tuple(Preview(provider=c.name, text=text) for c, text in zip(CARDS, texts, strict=True))
    embedding = ENCODER.encode([question])[0]
    return BeginContext(task_id=task, question=question, embedding=embedding, previews=previews, cards=CARDS)


def inside(summary: str = "2 facts", step: int = 3) -> InContext:
    return InContext(task_id="t", question="q", step=step, summary=summary, recent=())


def ended(correct: bool | None) -> EndContext:
    summary = summarise(toy_trajectory())
    return EndContext(task_id="t", question="q", summary=summary, outcome=Outcome(correct=correct), cards=CARDS)


def table(*tasks: tuple[str, str, dict[str, tuple[float | None, ...]]]) -> RoutingTable:
    rows = tuple(
        TableRow(
            task_id=task_id,
            question=question,
            family="f",
            previews=(),
            embedding=tuple(ENCODER.encode([question])[0].tolist()),
            cells=tuple(
                Cell(arm=Arm(provider=name, repeat=repeat), correct=value)
                for name, values in results.items()
                for repeat, value in enumerate(values)
            ),
        )
        for task_id, question, results in tasks
    )
    return RoutingTable(suite="toy", split="explore", providers=("a", "b", "c"), rows=rows)


async def test_none_uses_no_memory_anywhere() -> None:
    assert await NoMemory().begin(begin(("x", "y", "z"))) == BeginDecision()
    assert (await NoMemory().step(inside())).action == "no_op"
    assert await NoMemory().end(ended(True)) == EndDecision()


async def test_single_keeps_to_its_provider_and_stores_behind_open_gates() -> None:
    policy = Single("b")
    assert (await policy.begin(begin(("x", "", "z")))).providers == ("b",)
    assert (await policy.step(inside())).action == "query"
    assert (await policy.step(inside(summary=""))).action == "no_op"
    assert (await policy.end(ended(True))).providers == ("a", "b", "c")
    assert (await policy.end(ended(False))).providers == ("a", "c")
    assert (await policy.end(ended(None))).providers == ("a", "c")


@pytest.mark.parametrize("mode", ["query", "no_op"])
async def test_forced_arms_do_as_told(mode: str) -> None:
    arm = Arm.model_validate({"provider": "c", "in_mode": mode})
    assert (await Forced(arm).begin(begin(("x", "y", "")))).providers == ("c",)
    assert (await Forced(arm).step(inside())).action == mode
    assert await Forced(arm).end(ended(True)) == EndDecision()
    assert (await Forced(Arm(provider=NONE)).begin(begin(("x", "y", "z")))).providers == ()


async def test_variants_of_the_ablations() -> None:
    assert await Concat().begin(begin(("x", "", "z"))) == BeginDecision(providers=("a", "b", "c"), combine="concat")
    assert await InOnly().begin(begin(("x", "y", "z"))) == BeginDecision()
    assert (await InOnly().step(inside())).action == "query"
    assert await InOnly().end(ended(True)) == EndDecision()
    kept = StoreAll(NoMemory())
    assert await kept.begin(begin(("x", "y", "z"))) == BeginDecision()
    assert (await kept.step(inside())).action == "no_op"
    assert (await kept.end(ended(False))).providers == ("a", "c")


async def test_random_draws_by_task_and_seed_over_full_previews() -> None:
    contexts = [begin(("x", "", "z"), task=f"t{i}") for i in range(300)]
    arms = [(await RandomPolicy(1).begin(context)).arm for context in contexts]
    assert arms == [(await RandomPolicy(1).begin(context)).arm for context in contexts]
    assert arms != [(await RandomPolicy(2).begin(context)).arm for context in contexts]
    assert set(arms) == {"a", "c"}
    assert 100 < Counter(arms)["a"] < 200
    assert (await RandomPolicy(1).begin(begin(("", "", "")))).arm in {"a", "b", "c"}


async def test_random_in_and_end_are_coin_flips_behind_gates() -> None:
    flips = Counter([(await RandomPolicy().step(inside(step=step))).action for step in range(200)])
    assert 60 < flips["query"] < 140
    kept = Counter[str]()
    for seed in range(200):
        kept.update((await RandomPolicy(seed).end(ended(False))).providers)
    assert set(kept) == {"a", "c"}
    assert all(60 < count < 140 for count in kept.values())


async def test_overlap_counts_words_not_stop_words() -> None:
    texts = ("Which is the one that is in it, and why?", "coffee exports by country", "coffee")
    assert (await Overlap().begin(begin(texts))).arm == "b"
    assert (await Overlap().begin(begin(("nothing", "alike", "here")))).arm == "a"
    assert (await Overlap().begin(begin(("", "alike", "here")))).arm == "b"


async def test_cosine_takes_the_nearest_preview() -> None:
    texts = ("rail network length", "which country grows the most coffee", "")
    assert (await Cosine(ENCODER).begin(begin(texts))).arm == "b"
    without = begin(texts).model_copy(update={"embedding": None})
    assert (await Cosine(ENCODER).begin(without)).arm == "b"


COFFEE = "Which country grows the most coffee?"
RAIL = "How long is the rail network of Chile in kilometres?"


async def test_knn_follows_the_neighbours_and_never_the_task_itself() -> None:
    known = table(
        ("t", COFFEE, {"a": (1.0,), "b": (0.0,), "c": (0.0,)}),
        ("n1", COFFEE.replace("most", "least"), {"a": (0.0,), "b": (1.0,), "c": (0.0,)}),
        ("n2", RAIL, {"a": (0.0,), "b": (0.0,), "c": (1.0,)}),
    )
    policy = NearestTasks(known, ENCODER, k=1)
    assert (await policy.begin(begin(("x", "y", "z")))).arm == "b"
    assert (await policy.begin(begin(("x", "y", "z"), task="new"))).arm == "a"
    assert (await policy.begin(begin(("x", "y", "z"), question=RAIL, task="new"))).arm == "c"
    assert (await policy.begin(begin(("x", "y", ""), question=RAIL, task="new"))).arm == "a"
    with pytest.raises(ConfigError, match="exploration"):
        NearestTasks(table(), ENCODER)


async def test_knn_reads_an_unscored_neighbour_as_unknown() -> None:
    known = table(
        ("n1", COFFEE, {"a": (0.4,), "b": (None,), "c": (0.0,)}),
        ("n2", RAIL, {"a": (0.0,), "b": (1.0,), "c": (0.0,)}),
    )
    assert (await NearestTasks(known, ENCODER, k=1).begin(begin(("x", "y", "z"), task="new"))).arm == "b"


async def test_the_oracle_chooses_on_the_repeats_that_it_is_given() -> None:
    known = table(("t", COFFEE, {"a": (0.0, 1.0), "b": (1.0, 0.0), NONE: (0.0, 0.0)}))
    assert (await Oracle(known, repeats=(0,)).begin(begin(("x", "y", "z")))).arm == "b"
    assert (await Oracle(known, repeats=(1,)).begin(begin(("x", "y", "z")))).arm == "a"
    assert (await Oracle(known).begin(begin(("x", "y", "z")))).arm == "a"
    assert (await Oracle(known).begin(begin(("x", "y", "z"), task="unknown"))).arm == NONE
    worse = table(("t", COFFEE, {"a": (0.0,), "b": (None,), NONE: (1.0,)}))
    assert (await Oracle(worse).begin(begin(("x", "y", "z")))).arm == NONE


results = st.dictionaries(
    st.sampled_from(["a", "b", "c", NONE]), st.tuples(st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
)


@given(results)
async def test_no_arm_beats_the_oracle(cells: dict[str, tuple[float | None, ...]]) -> None:
    known = table(("t", COFFEE, cells))
    arm = (await Oracle(known).begin(begin(("x", "y", "z")))).arm
    values = [value for name in (*known.providers, NONE) if (value := known.rows[0].correctness(name)) is not None]
    assert not values or known.rows[0].correctness(arm) == max(values)


@given(st.lists(st.booleans(), min_size=3, max_size=3).filter(any), st.text(max_size=40))
async def test_nobody_prefers_an_empty_preview(full: list[bool], question: str) -> None:
    context = begin(tuple(f"text {i}" if there else "" for i, there in enumerate(full)), question=question)
    known = table(("n", COFFEE, {"a": (1.0,), "b": (0.5,), "c": (0.2,)}))
    for policy in (RandomPolicy(), Overlap(), Cosine(ENCODER), NearestTasks(known, ENCODER)):
        arm = (await policy.begin(context)).arm
        assert full["abc".index(arm)]
