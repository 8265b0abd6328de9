"""ExpeL: counted lessons of both kinds, and condensed runs of solved tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Insight, Vote
from providers.long_term.expel import Expel
from providers.types import Outcome, StoreReceipt


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[MemoryBank]:
    with open_bank(tmp_path) as opened:
        yield opened


@pytest.fixture
def expel(bank: MemoryBank) -> Expel:
    return Expel(bank.space("expel"), ScriptedDistiller())


async def learn(
    expel: Expel,
    task: str,
    *lessons: str,
    outcome: Outcome = CORRECT,
    run: str | None = None,
    question: str = "What is the area of Chad?",
) -> StoreReceipt:
    kind = "failure" if outcome.correct is False else "success"
    distiller = expel.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.insight_lines = tuple(Insight.model_validate({"text": text, "kind": kind}) for text in lessons)
    distiller.condensed = run
    return await expel.store(run_of(task, question), outcome)


def counts(expel: Expel) -> dict[str, int]:
    return {record.text: record.payload["count"] for record in expel.space.records("insight")}


async def test_failures_and_unknown_outcomes_teach_lessons_but_no_run(expel: Expel) -> None:
    await learn(expel, "t1", "Avoid the old site.", outcome=WRONG, run="Case: bad")
    await learn(expel, "t2", "Try the new site.", outcome=UNKNOWN, run="Case: who knows")
    assert len(expel.space.records("insight")) == 2
    assert expel.space.records("run") == []
    await learn(expel, "t3", run="Case: good")
    assert [record.payload["text"] for record in expel.space.records("run")] == ["Case: good"]


async def test_nothing_distilled_is_skipped(expel: Expel) -> None:
    assert (await learn(expel, "t")).status == "skipped"


async def test_lessons_are_grouped_by_kind_before_the_runs(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.", run="Case: coal?\nopen Energy; read Coal")
    await learn(expel, "t2", "Coal is not a mineral here.", outcome=WRONG)
    retrieval = await expel.retrieve(query_of("How much coal?"))
    assert retrieval.text == (
        "Lessons from solved tasks:\n- Coal stands under Energy.\n\n"
        "Lessons from failed tasks:\n- Coal is not a mineral here.\n\n"
        "A similar task that was solved:\nCase: coal?\nopen Energy; read Coal"
    )
    assert expel.probe(query_of("How much coal?")).text == "Coal stands under Energy."
    assert len(retrieval.item_ids) == 3


async def test_a_lesson_needs_a_shared_word_and_a_run_does_not(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.", run="Case: coal", question="How much coal?")
    retrieval = await expel.retrieve(query_of("length of railways"))
    assert retrieval.text == "A similar task that was solved:\nCase: coal"
    assert expel.probe(query_of("length of railways")).text == "Case: coal"


async def test_at_most_three_lessons_and_three_runs_best_first(expel: Expel) -> None:
    for number in range(5):
        text = f"Coal of kind {number} " + "and coal " * number
        await learn(expel, f"t{number}", text, run=f"Case {number}", question=f"coal {'railway ' * number}")
    retrieval = await expel.retrieve(query_of("coal"))
    assert retrieval.text.count("- Coal") == 3
    assert retrieval.text.count("A similar task") == 3
    assert retrieval.text.index("kind 4") < retrieval.text.index("kind 3")
    assert "Case 0" in retrieval.text
    assert "Case 4" not in retrieval.text


async def test_runs_are_ranked_by_words_and_meaning_of_the_question(bank: MemoryBank, expel: Expel) -> None:
    for task, question in (("t1", "coal in Chad"), ("t2", "coal of Mali"), ("t3", "area of Peru")):
        await learn(expel, task, run=f"Case {task}", question=question)
    query = query_of("coal in Mali")
    space = expel.space
    words = {record.id: score for record, score in space.search_tfidf(query.text, kind="run")}
    expected = {
        record.payload["text"]: 0.3 * words.get(record.id, 0.0) + 0.7 * cosine
        for record, cosine in space.search_dense(query.embedding, 9, kind="run")
    }
    text = (await expel.retrieve(query)).text
    shown = [line for line in text.splitlines() if line.startswith("Case")]
    assert shown == sorted(expected, key=lambda case: -expected[case])


async def test_a_lesson_starts_at_two_and_a_repeated_one_is_agreed_with(expel: Expel) -> None:
    first = await learn(expel, "t1", "Coal stands under Energy.")
    assert counts(expel) == {"Coal stands under Energy.": 2}
    second = await learn(expel, "t2", "coal stands  under ENERGY!")
    assert second.record_ids == first.record_ids
    assert counts(expel) == {"Coal stands under Energy.": 3}
    (record,) = expel.space.records("insight")
    assert {origin.task_id: origin.share for origin in record.origins} == {"t1": 0.5, "t2": 0.5}


async def test_a_lesson_that_contains_a_known_one_agrees_with_it(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.")
    await learn(expel, "t2", "Remember that coal stands under Energy always.")
    assert counts(expel) == {"Coal stands under Energy.": 3}


async def test_lessons_that_differ_in_one_name_are_two_lessons(expel: Expel) -> None:
    await learn(expel, "t1", "Asked about life expectancy of men: read the line male under People and Society.")
    await learn(expel, "t2", "Asked about life expectancy of men: read the line female under People and Society.")
    assert len(counts(expel)) == 2


async def test_the_same_words_as_a_success_and_as_a_failure_are_two_lessons(expel: Expel) -> None:
    await learn(expel, "t1", "Use the old site.")
    await learn(expel, "t2", "Use the old site.", outcome=WRONG)
    assert len(expel.space.records("insight")) == 2


async def test_a_contradicted_lesson_loses_one_and_goes_at_zero(expel: Expel) -> None:
    await learn(expel, "t1", 'Asked about coal output: read "Coal" there.', "Railways stand under Transport.")
    await learn(expel, "t2", 'Asked about coal output: "Coal" was not meant.', outcome=WRONG)
    await learn(expel, "t3", 'Asked about coal output: "Peat" was not meant.', outcome=WRONG)
    assert counts(expel)['Asked about coal output: read "Coal" there.'] == 1
    assert counts(expel)["Railways stand under Transport."] == 2
    await learn(expel, "t4", 'Asked on coal output: "Coal" was not meant, was it.', outcome=WRONG)
    assert 'Asked about coal output: read "Coal" there.' not in counts(expel)


async def vote(expel: Expel, task: str, *votes: Vote, question: str = "How much coal?") -> StoreReceipt:
    distiller = expel.distiller
    assert isinstance(distiller, ScriptedDistiller)
    distiller.next_votes = votes
    receipt = await expel.store(run_of(task, question), CORRECT)
    distiller.next_votes = None
    return receipt


async def test_an_edit_rewords_the_lesson_in_place_and_counts_for_it(expel: Expel) -> None:
    first = await learn(expel, "t1", "Coal stands under Energy.")
    edit = Vote(operation="EDIT", lesson=0, text="Peat and lignite stand under Energy.")
    receipt = await vote(expel, "t2", edit)
    assert expel.distiller.known_lessons == ["Coal stands under Energy."]  # type: ignore[attr-defined]
    assert receipt.record_ids == first.record_ids
    assert counts(expel) == {"Peat and lignite stand under Energy.": 3}
    (record,) = expel.space.records("insight")
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]
    assert "lignite" in (await expel.retrieve(query_of("lignite"))).text
    assert (await expel.retrieve(query_of("coal"))).empty
    again = await learn(expel, "t3", "Peat and lignite stand under Energy.")
    assert again.record_ids == first.record_ids


async def test_an_edit_that_says_another_lesson_agrees_with_that_one(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.", "Railways carry coal.")
    known = sorted(counts(expel))
    query = "coal energy under stands"
    edit = Vote(operation="EDIT", lesson=0, text="Know that railways carry coal everywhere.")
    await vote(expel, "t2", edit, question=query)
    assert expel.distiller.known_lessons[0] == "Coal stands under Energy."  # type: ignore[attr-defined]
    assert sorted(counts(expel)) == known
    assert counts(expel) == {"Coal stands under Energy.": 2, "Railways carry coal.": 3}


async def test_an_edit_may_extend_its_own_lesson(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.")
    await vote(expel, "t2", Vote(operation="EDIT", lesson=0, text="Coal stands under Energy, not under Economy."))
    assert counts(expel) == {"Coal stands under Energy, not under Economy.": 3}


async def test_agree_and_remove_change_the_count_and_nothing_else(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.")
    await vote(expel, "t2", Vote(operation="AGREE", lesson=0))
    assert counts(expel) == {"Coal stands under Energy.": 3}
    for task, left in (("t3", 2), ("t4", 1)):
        await vote(expel, task, Vote(operation="REMOVE", lesson=0))
        assert counts(expel) == {"Coal stands under Energy.": left}
    await vote(expel, "t5", Vote(operation="REMOVE", lesson=0))
    assert counts(expel) == {}


async def test_remove_takes_three_where_the_list_is_full(bank: MemoryBank) -> None:
    expel = Expel(bank.space("expel"), ScriptedDistiller(), max_insights=1)
    await learn(expel, "t1", "Coal stands under Energy.")
    await vote(expel, "t2", Vote(operation="AGREE", lesson=0))
    await vote(expel, "t3", Vote(operation="REMOVE", lesson=0))
    assert counts(expel) == {}


async def test_one_vote_per_lesson_four_in_all_and_none_on_an_unknown_one(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.")
    agree, lost = Vote(operation="AGREE", lesson=0), Vote(operation="AGREE", lesson=7)
    adds = [Vote(operation="ADD", text=f"Fact about {word}.") for word in ("rail", "river", "coast", "tax")]
    await vote(expel, "t2", lost, agree, agree, *adds)
    assert counts(expel)["Coal stands under Energy."] == 3
    assert sorted(counts(expel)) == [
        "Coal stands under Energy.",
        "Fact about coast.",
        "Fact about rail.",
        "Fact about river.",
    ]


async def test_a_vote_on_a_lesson_that_went_meanwhile_does_nothing(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.")
    run = run_of("t2", "How much coal?")
    expel.distiller.next_votes = (Vote(operation="EDIT", lesson=0, text="Other words."),)  # type: ignore[attr-defined]
    ballot = await expel.distil(run, CORRECT)
    assert ballot is not None
    (lesson,) = expel.space.records("insight")
    expel.space.archive(lesson.id, "meanwhile")
    drafts = expel.draft(run, ballot)
    with expel.space.transaction():
        assert expel.keep(drafts, expel.space.encoder.encode([draft.text for draft in drafts])) == ()
    assert counts(expel) == {}


async def test_use_raises_and_repeated_uselessness_lowers_the_count(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.")
    effects = (await expel.retrieve(query_of("coal"))).effects
    before = expel.space.generation
    expel.apply(effects, UNKNOWN)
    assert expel.space.generation == before
    expel.apply(effects, CORRECT)
    assert counts(expel) == {"Coal stands under Energy.": 3}
    expel.apply(effects, WRONG)
    expel.apply(effects, WRONG)
    assert counts(expel) == {"Coal stands under Energy.": 3}
    expel.apply(effects, WRONG)
    assert counts(expel) == {"Coal stands under Energy.": 2}
    for _ in range(6):
        expel.apply(effects, WRONG)
    assert counts(expel) == {}
    assert (await expel.retrieve(query_of("coal"))).empty
    expel.apply(effects, CORRECT)
    assert counts(expel) == {}


async def test_over_the_cap_the_least_counted_and_oldest_go(bank: MemoryBank) -> None:
    expel = Expel(bank.space("expel"), ScriptedDistiller(), max_insights=2)
    await learn(expel, "t1", "Coal stands under Energy.")
    await learn(expel, "t2", "Coal stands under Energy.")
    await learn(expel, "t3", "Railways stand under Transport.")
    await learn(expel, "t4", "Rivers stand under Geography.")
    assert counts(expel) == {"Coal stands under Energy.": 3, "Rivers stand under Geography.": 2}


async def test_no_number_of_a_score_or_count_is_shown(expel: Expel) -> None:
    await learn(expel, "t1", "Coal stands under Energy.", run="Case: coal")
    text = (await expel.retrieve(query_of("coal"))).text + expel.probe(query_of("coal")).text
    assert not any(character.isdigit() for character in text)
