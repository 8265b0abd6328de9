"""Generative: three by recency, relevance and importance, of which the best rated is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, FixedEncoder, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.errors import ModelError
from providers.long_term.generative import Generative
from providers.types import Outcome

NEAR = {"asked": (1.0, 0.0), "same": (1.0, 0.0), "close": (0.9, 0.436), "far": (0.5, 0.866), "off": (0.0, 1.0)}


async def filled(bank: MemoryBank, *stored: tuple[str, int], ratings: dict[str, int] | None = None) -> Generative:
    distiller = ScriptedDistiller(ratings=ratings or {})
    generative = Generative(bank.space("generative"), distiller)
    for question, importance in stored:
        distiller.next_digest, distiller.next_importance = f"steps for {question}", importance
        await generative.store(run_of(question, question), UNKNOWN)
    distiller.calls = 0
    return generative


def order(generative: Generative, encoder: FixedEncoder) -> list[str]:
    found = generative.find(encoder.query("asked")).item_ids
    return [generative.space.existing(item).text for item in found]


async def test_relevance_outweighs_recency(tmp_path: Path) -> None:
    encoder = FixedEncoder(NEAR)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        generative = await filled(bank, ("same", 1), ("far", 1), ("off", 1))
        assert order(generative, encoder) == ["same", "far", "off"]


async def test_importance_can_outweigh_relevance(tmp_path: Path) -> None:
    """close: 3 * 0.9 + 2 * 1 > same: 3 * 1 + 2 * 0; far: 3 * 0.5 + 2 * 0 stays last."""
    encoder = FixedEncoder(NEAR)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        generative = await filled(bank, ("off", 1), ("far", 1), ("same", 1), ("close", 10))
        assert order(generative, encoder) == ["close", "same", "far"]


async def test_the_newest_of_equals_is_first_until_an_older_one_is_used(tmp_path: Path) -> None:
    """The original's released code favours the oldest: its exponent counts from the wrong end."""
    vectors = {"asked": (1.0, 0.0), "old": (0.8, 0.6), "mid": (0.8, 0.6), "new": (0.8, 0.6)}
    encoder = FixedEncoder(vectors)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        generative = await filled(bank, ("old", 5), ("mid", 5), ("new", 5), ratings={"steps for old": 9})
        assert order(generative, encoder) == ["new", "mid", "old"]
        retrieval = await generative.retrieve(encoder.query("asked"))
        assert order(generative, encoder) == ["new", "mid", "old"]
        generative.apply(retrieval.effects, WRONG)
        assert order(generative, encoder) == ["old", "new", "mid"]


async def test_the_best_rated_of_three_is_shown_and_alone_marked_as_used(tmp_path: Path) -> None:
    encoder = FixedEncoder(NEAR)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        ratings = {"steps for close": 8, "steps for same": 3, "steps for off": 10}
        generative = await filled(bank, ("off", 1), ("far", 1), ("close", 1), ("same", 1), ratings=ratings)
        retrieval = await generative.retrieve(encoder.query("asked"))
        assert retrieval.text == "From memory, a similar task:\nsteps for close"
        (item,) = retrieval.item_ids
        assert [effect.record_id for effect in retrieval.effects] == [item]
        assert generative.distiller.calls == 1  # type: ignore[attr-defined]


async def test_equal_ratings_leave_the_first_and_one_candidate_needs_no_rating(tmp_path: Path) -> None:
    encoder = FixedEncoder(NEAR)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        generative = await filled(bank, ("close", 1))
        assert (await generative.retrieve(encoder.query("asked"))).text.endswith("steps for close")
        assert generative.distiller.calls == 0  # type: ignore[attr-defined]
        generative = await filled(bank, ("far", 1), ("same", 1))
        assert (await generative.retrieve(encoder.query("asked"))).text.endswith("steps for same")


async def test_a_preview_shows_the_first_and_asks_nobody(tmp_path: Path) -> None:
    encoder = FixedEncoder(NEAR)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        generative = await filled(bank, ("far", 1), ("same", 1), ratings={"steps for far": 9})
        generation = generative.space.generation
        generative.distiller.broken = True  # type: ignore[attr-defined]
        assert generative.probe(encoder.query("asked")).text == "steps for same"
        assert generative.distiller.calls == 0  # type: ignore[attr-defined]
        assert generative.space.generation == generation


async def test_a_failed_rating_is_an_error_and_not_nothing_found(tmp_path: Path) -> None:
    encoder = FixedEncoder(NEAR)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        generative = await filled(bank, ("far", 1), ("same", 1))
        generative.distiller.broken = True  # type: ignore[attr-defined]
        with pytest.raises(ModelError):
            await generative.retrieve(encoder.query("asked"))


@pytest.mark.parametrize(
    ("outcome", "ending"), [(CORRECT, "Result: correct."), (WRONG, "Result: wrong."), (UNKNOWN, "d")]
)
async def test_every_outcome_is_kept(tmp_path: Path, outcome: Outcome, ending: str) -> None:
    with open_bank(tmp_path) as bank:
        generative = Generative(bank.space("generative"), ScriptedDistiller(digest="d"))
        assert (await generative.store(run_of("t", "area"), outcome)).status == "stored"
        assert (await generative.retrieve(query_of("area"))).text.endswith(ending)
