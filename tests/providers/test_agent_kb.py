"""Agent-KB: four fields per solved task, found by words and meaning, merged by student and teacher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, ENCODER, UNKNOWN, WRONG, FixedEncoder, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import Experience
from providers.errors import ModelError
from providers.long_term.agent_kb import AgentKb
from providers.types import Outcome


def experience(name: str) -> Experience:
    return Experience(plan=f"plan {name}", search_plan=f"way {name}", lessons=f"learned {name}", search_lessons="look")


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[AgentKb]:
    with open_bank(tmp_path) as bank:
        yield AgentKb(bank.space("agent_kb"), ScriptedDistiller())


async def keep(kb: AgentKb, question: str, name: str, outcome: Outcome = CORRECT) -> str:
    kb.distiller.next_experience = experience(name)  # type: ignore[attr-defined]
    receipt = await kb.store(run_of(name, question), outcome)
    return receipt.status


async def test_student_and_teacher_merge_three_similar_tasks(kb: AgentKb) -> None:
    for name, question in {"A": "area of Chad", "B": "area of Mali", "C": "area of Niger", "D": "coal"}.items():
        await keep(kb, question, name)
    kb.distiller.calls = 0  # type: ignore[attr-defined]
    retrieval = await kb.retrieve(query_of("area of Chad and Mali and Niger"))
    assert kb.distiller.calls == 3  # type: ignore[attr-defined]
    suggested = retrieval.text.splitlines()[1]
    assert sorted(suggested.removeprefix("Suggested: ").split("; ")) == ["plan A", "plan B", "plan C"]
    assert f"Mind what similar tasks taught:\nRefined {suggested!r} with learned" in retrieval.text
    assert len(retrieval.item_ids) == 3
    assert retrieval.effects == ()


async def test_words_and_meaning_count_half_each(tmp_path: Path) -> None:
    """`alpha beta` shares all its words with the query and is orthogonal to it; `gamma` is the other way round."""
    vectors = {"alpha beta": (0.0, 1.0), "gamma": (1.0, 0.0), "alpha delta": (0.9, 0.4359), "asked": (1.0, 0.0)}
    encoder = FixedEncoder(vectors)
    with MemoryBank.open(tmp_path / "b.sqlite", encoder) as bank:
        kb = AgentKb(bank.space("agent_kb"), ScriptedDistiller())
        for name in ("alpha beta", "gamma", "alpha delta"):
            await keep(kb, name, name)
        query = encoder.query("asked").model_copy(update={"text": "alpha beta"})
        order = [kb.space.existing(item).text for item in (await kb.retrieve(query)).item_ids]
        assert order[0] == "alpha delta"
        assert set(order[1:]) == {"alpha beta", "gamma"}


async def test_the_query_is_reworded_before_the_search_and_the_question_kept_for_advice(tmp_path: Path) -> None:
    class Rewording(ScriptedDistiller):
        async def search_text(self, question: str) -> str:
            return "coal"

        async def suggestions(self, question: str, experiences: object) -> str:
            return f"asked: {question}"

    with open_bank(tmp_path) as bank:
        kb = AgentKb(bank.space("agent_kb"), Rewording())
        await keep(kb, "coal", "K")
        await keep(kb, "area of Chad", "A")
        retrieval = await kb.retrieve(query_of("area of Chad"))
        assert kb.space.existing(retrieval.item_ids[0]).text == "coal"
        assert "asked: area of Chad" in retrieval.text


async def test_a_query_that_is_not_reworded_is_not_encoded_again(kb: AgentKb, monkeypatch: pytest.MonkeyPatch) -> None:
    await keep(kb, "coal", "K")
    query = query_of("coal")
    monkeypatch.setattr(type(ENCODER), "encode", lambda self, texts: pytest.fail("encoded again"))
    assert not (await kb.retrieve(query)).empty


@pytest.mark.parametrize("outcome", [WRONG, UNKNOWN])
async def test_only_correct_runs_are_kept(kb: AgentKb, outcome: Outcome) -> None:
    assert await keep(kb, "coal", "K", outcome) == "skipped"
    assert await keep(kb, "coal", "K") == "stored"


@pytest.mark.parametrize("field", ["plan", "search_plan", "lessons", "search_lessons"])
async def test_an_experience_without_one_of_its_fields_is_refused(kb: AgentKb, field: str) -> None:
    kb.distiller.next_experience = experience("K").model_copy(update={field: " "})  # type: ignore[attr-defined]
    receipt = await kb.store(run_of("t", "coal"), CORRECT)
    assert (receipt.status, receipt.reason) == ("skipped", "one of the four fields of the experience is empty")


async def test_a_preview_shows_question_and_plan_and_asks_nobody(kb: AgentKb) -> None:
    await keep(kb, "coal", "K")
    kb.distiller.broken = True  # type: ignore[attr-defined]
    generation = kb.space.generation
    assert kb.probe(query_of("coal")).text == "coal\nplan K"
    assert kb.space.generation == generation


async def test_an_empty_base_asks_nobody_and_a_failed_ask_is_an_error(kb: AgentKb) -> None:
    kb.distiller.broken = True  # type: ignore[attr-defined]
    assert (await kb.retrieve(query_of("coal"))).empty
    kb.distiller.broken = False  # type: ignore[attr-defined]
    await keep(kb, "coal", "K")
    kb.distiller.broken = True  # type: ignore[attr-defined]
    with pytest.raises(ModelError):
        await kb.retrieve(query_of("coal"))


async def test_storing_encodes_only_what_is_new(kb: AgentKb, monkeypatch: pytest.MonkeyPatch) -> None:
    """The well-known port embeds its whole base again at every store."""
    for number in range(5):
        await keep(kb, f"coal {number}", f"K{number}")
    encoded: list[str] = []
    encode = type(ENCODER).encode
    monkeypatch.setattr(type(ENCODER), "encode", lambda self, texts: encoded.extend(texts) or encode(self, texts))
    await keep(kb, "area", "A")
    assert encoded == ["area"]
