"""Mobile-E: tips and shortcuts by shared words, with preconditions and steps shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.base import Shortcut
from providers.long_term.mobile_e import MobileE
from providers.types import Outcome, StoreReceipt


@pytest.fixture
def mobile(tmp_path: Path) -> Iterator[MobileE]:
    with open_bank(tmp_path) as bank:
        yield MobileE(bank.space("mobile_e"), ScriptedDistiller())


def shortcut(name: str, description: str = "Gets a value.", precondition: str = "the page is open") -> Shortcut:
    steps = ("open it", "read it", "answer with it")
    return Shortcut(name=name, description=description, precondition=precondition, steps=steps)


async def learn(
    mobile: MobileE, task: str, *tips: str, cut: Shortcut | None = None, outcome: Outcome = CORRECT
) -> StoreReceipt:
    distiller = mobile.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.next_tips, distiller.next_shortcut = tips, cut
    return await mobile.store(run_of(task), outcome)


def tips(mobile: MobileE) -> set[str]:
    return {record.text for record in mobile.space.records("tip")}


@pytest.mark.parametrize("outcome", [CORRECT, WRONG, UNKNOWN])
async def test_tips_come_from_every_outcome_and_shortcuts_from_correct_runs(mobile: MobileE, outcome: Outcome) -> None:
    await learn(mobile, "t", "Coal stands under Energy.", cut=shortcut("read_coal"), outcome=outcome)
    assert tips(mobile) == {"Coal stands under Energy."}
    assert len(mobile.space.records("shortcut")) == (1 if outcome is CORRECT else 0)


async def test_at_most_five_tips_of_more_than_ten_characters(mobile: MobileE) -> None:
    await learn(mobile, "t", "Too short.", *(f"A tip about {word}." for word in "coal rail tax life area gas".split()))
    assert len(tips(mobile)) == 5
    assert "Too short." not in tips(mobile)
    assert (await learn(mobile, "u", "short")).status == "skipped"


async def test_a_shortcut_is_shown_with_its_precondition_and_steps(mobile: MobileE) -> None:
    await learn(mobile, "t", cut=shortcut("read_coal", "Gets the output.", "the country has a page"))
    retrieval = await mobile.retrieve(query_of("coal of Chad"))
    assert retrieval.text == (
        "Shortcuts:\n- read_coal: Gets the output.\n  Only where the country has a page.\n"
        "  Steps: open it; read it; answer with it."
    )
    assert mobile.probe(query_of("coal")).text in retrieval.text
    assert retrieval.effects == ()


async def test_function_words_and_single_letters_match_nothing(mobile: MobileE) -> None:
    await learn(mobile, "t", "What is the way to do it, and how: A, B or C's?")
    await learn(mobile, "u", "Railways stand under Transport.", cut=shortcut("a_b_c", "What is it and how is it done?"))
    retrieval = await mobile.retrieve(query_of("What is the area of Chad's A or C, and how is it measured?"))
    assert retrieval.empty
    assert mobile.probe(query_of("a is the of s")).text == ""


async def test_a_word_inside_another_word_is_no_match(mobile: MobileE) -> None:
    await learn(mobile, "t", "Charcoal stands under Energy.")
    assert (await mobile.retrieve(query_of("coal"))).empty


async def test_the_tip_with_most_words_comes_first_and_two_are_given(mobile: MobileE) -> None:
    await learn(mobile, "t1", "Coal is mined. Much is said about that and about many other things here.")
    await learn(mobile, "t2", "Coal exports stand under Economy with imports and other things.")
    await learn(mobile, "t3", "Coal exports of Chad stand under Trade with a lot of other things around them.")
    text = (await mobile.retrieve(query_of("coal exports Chad"))).text
    assert text.splitlines()[1].startswith("- Coal exports of Chad")
    assert text.splitlines()[2].startswith("- Coal exports stand")
    assert len(text.splitlines()) == 3


async def test_a_word_in_a_shortcuts_name_counts_twice(mobile: MobileE) -> None:
    await learn(mobile, "t1", cut=shortcut("get_value", "Finds coal."))
    await learn(mobile, "t2", cut=shortcut("coal_value", "Finds something else entirely that is rather long to say."))
    await learn(mobile, "t3", cut=shortcut("third", "Finds coal too, somehow, after a long way round to it."))
    text = (await mobile.retrieve(query_of("coal"))).text
    assert text.splitlines()[1].startswith("- coal_value")
    assert text.count("Only where") == 2


async def test_an_equal_tip_is_kept_once_and_a_taken_name_is_refused(mobile: MobileE) -> None:
    await learn(mobile, "t1", "Coal stands under Energy.", cut=shortcut("read_coal", "The first one."))
    await learn(mobile, "t2", "coal stands  under Energy.", cut=shortcut("Read_Coal", "The second one."))
    (tip,) = mobile.space.records("tip")
    (kept,) = mobile.space.records("shortcut")
    assert kept.payload["description"] == "The first one."
    assert [origin.task_id for origin in tip.origins] == [origin.task_id for origin in kept.origins] == ["t1", "t2"]


async def test_words_of_scripts_without_spaces_are_found(mobile: MobileE) -> None:
    await learn(mobile, "t", "煤炭产量在能源部分里。")
    assert "煤炭产量" in (await mobile.retrieve(query_of("煤炭产量是多少？"))).text
    assert (await mobile.retrieve(query_of("铁路长度"))).empty
