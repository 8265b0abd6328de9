"""SkillWeaver: checked functions, one per name and code, found by whole words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.base import Skill
from providers.long_term.skillweaver import SkillWeaver
from providers.types import Outcome, Parameter, StoreReceipt


@pytest.fixture
def weaver(tmp_path: Path) -> Iterator[SkillWeaver]:
    with open_bank(tmp_path) as bank:
        yield SkillWeaver(bank.space("skillweaver"), ScriptedDistiller())


async def store(
    weaver: SkillWeaver, task: str, name: str, doc: str, body: str = "return subject", outcome: Outcome = CORRECT
) -> StoreReceipt:
    code = f"def {name}(tools, subject: str) -> str:\n    {body}\n"
    parameters = (Parameter(name="subject", doc="a country"),)
    weaver.distiller.next_skill = Skill(name=name, parameters=parameters, doc=doc, code=code)  # type: ignore[attr-defined]
    return await weaver.store(run_of(task), outcome)


async def served(weaver: SkillWeaver, text: str) -> list[str]:
    return [skill.name for skill in (await weaver.retrieve(query_of(text))).skills]


async def test_a_correct_run_alone_opens_the_gate(weaver: SkillWeaver) -> None:
    assert (await store(weaver, "t1", "area", "Area.", outcome=WRONG)).status == "skipped"
    assert (await store(weaver, "t2", "area", "Area.", outcome=UNKNOWN)).status == "skipped"
    assert (await store(weaver, "t3", "area", "Area.")).status == "stored"


async def test_a_skill_is_given_as_text_and_as_a_callable(weaver: SkillWeaver) -> None:
    await store(weaver, "t", "read_area", "Read the area.\nUsed for Chad.")
    retrieval = await weaver.retrieve(query_of("area"))
    assert retrieval.text == "Skills that can be called:\n\nread_area(subject: str): Read the area.\nUsed for Chad."
    (skill,) = retrieval.skills
    assert (skill.name, skill.doc) == ("read_area", "Read the area.\nUsed for Chad.")
    assert skill.parameters == (Parameter(name="subject", doc="a country"),)
    assert "return subject" in skill.code
    assert weaver.probe(query_of("area")).text in retrieval.text


async def test_name_words_count_more_than_first_line_words_and_those_more_than_the_rest(weaver: SkillWeaver) -> None:
    await store(weaver, "t1", "in_rest", "Something.\nAbout coal.")
    await store(weaver, "t2", "coal", "Something.")
    await store(weaver, "t3", "in_first", "About coal.\nSomething.")
    assert await served(weaver, "coal?") == ["coal", "in_first", "in_rest"]


async def test_words_match_whole_and_stop_words_match_nothing(weaver: SkillWeaver) -> None:
    await store(weaver, "t1", "landmass", "What is the one of it.")
    assert await served(weaver, "what is the land of it") == []
    assert weaver.probe(query_of("what is the land of it")).text == ""
    assert await served(weaver, "the landmass") == ["landmass"]


async def test_at_most_three_are_given(weaver: SkillWeaver) -> None:
    for number in range(5):
        await store(weaver, f"t{number}", f"coal_{'abcde'[number]}", "Read.")
    assert len(await served(weaver, "coal")) == 3


async def test_dangerous_code_is_refused_with_the_reason(weaver: SkillWeaver) -> None:
    receipt = await store(weaver, "t", "evil", "Evil.", body="return open('/etc/passwd').read()")
    assert receipt.status == "skipped"
    assert receipt.reason.startswith("the skill was refused: Skill evil")
    assert weaver.space.records() == []


async def test_the_same_code_again_adds_an_origin_and_its_doc_lines(weaver: SkillWeaver) -> None:
    first = await store(weaver, "t1", "area", "Read area.\nsurface of Chad")
    second = await store(weaver, "t2", "area", "Read area.\nextent of Mali")
    assert first.record_ids == second.record_ids
    (record,) = weaver.space.records()
    assert [origin.task_id for origin in record.origins] == ["t1", "t2"]
    assert record.payload["doc"] == "Read area.\nsurface of Chad\nextent of Mali"
    assert await served(weaver, "extent") == ["area"]


async def test_a_new_version_replaces_the_old_one_after_a_correct_run(weaver: SkillWeaver) -> None:
    await store(weaver, "t1", "area", "Read area.")
    await store(weaver, "t2", "area", "Read area.", body="return 'new'")
    assert sorted(record.state for record in weaver.space.records()) == ["active", "provisional"]
    retrieval = await weaver.retrieve(query_of("area"))
    assert [("new" in skill.code) for skill in retrieval.skills] == [True]
    weaver.apply(retrieval.effects, UNKNOWN)
    assert len(weaver.space.records()) == 2
    weaver.apply(retrieval.effects, CORRECT)
    (record,) = weaver.space.records()
    assert (record.state, record.payload["version"], record.payload["tests"]) == ("active", 2, 1)
    assert "new" in record.payload["code"]


async def test_a_new_version_that_never_works_is_dropped_and_the_old_one_stays(weaver: SkillWeaver) -> None:
    await store(weaver, "t1", "area", "Read area.")
    await store(weaver, "t2", "area", "Read area.", body="return 'new'")
    for _ in range(3):
        weaver.apply((await weaver.retrieve(query_of("area"))).effects, WRONG)
    (record,) = weaver.space.records()
    assert record.payload["version"] == 1
    retrieval = await weaver.retrieve(query_of("area"))
    assert ["new" in skill.code for skill in retrieval.skills] == [False]
