"""What holds for every built-in provider alike."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from memory_toys import CORRECT, UNKNOWN, WRONG, ScriptedDistiller, open_bank, query_of, run_of

from providers.bank import MemoryBank
from providers.base import (
    Advice,
    AdviceItem,
    Experience,
    Insight,
    MemoryProvider,
    Narrative,
    PastRun,
    Principle,
    ReasoningItem,
    Script,
    SheetEntry,
    SheetItem,
    Shortcut,
    Skill,
    Strategies,
    Workflow,
)
from providers.distill.rules import RuleDistiller
from providers.errors import ProviderError
from providers.long_term.voyager import Voyager
from providers.registry import BUILT_IN, load_provider
from providers.space import LIVE
from providers.types import Outcome, Parameter, Query, Trajectory

PROVIDERS = tuple(BUILT_IN)
MERGING = ("agent_kb",)
"""Providers whose injected text is written anew from what they found, so that a preview cannot quote it."""
RULES = RuleDistiller()
TOPICS = ("coal", "railway", "river", "border", "income", "coast")


class TopicDistiller(ScriptedDistiller):
    """Artefacts that follow from the question's topic, the same for the same run."""

    async def insights(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...]:
        kind = "failure" if outcome.correct is False else "success"
        lines = (f"To learn of {trajectory.question} open its page.", f"The {trajectory.question} stands in a table.")
        return tuple(Insight.model_validate({"text": line, "kind": kind}) for line in lines)

    async def condensed_run(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return f"Case: {trajectory.question}; opened; read"

    async def workflow(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        return Workflow(query=f"{trajectory.question} of {{subject}}", text="open the page; read the table")

    async def skill(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None:
        name = f"read_{trajectory.question.split()[0]}"
        code = f"def {name}(tools, subject: str) -> str:\n    return tools.open(subject)\n"
        return Skill(name=name, parameters=(Parameter(name="subject"),), doc=f"Read {trajectory.question}.", code=code)

    async def narrative(self, trajectory: Trajectory, outcome: Outcome) -> Narrative | None:
        return Narrative(summary=trajectory.question, digest=f"Asked for {trajectory.question}; opened; read")

    async def digest(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return f"Asked for {trajectory.question}; opened; read"

    async def importance(self, trajectory: Trajectory, outcome: Outcome) -> int:
        return 2 if outcome.correct is False else 1

    async def script(self, trajectory: Trajectory, outcome: Outcome) -> Script | None:
        return Script(script=f"For a {trajectory.question} open the page", steps=f"opened {trajectory.question}")

    async def experience(self, trajectory: Trajectory, outcome: Outcome) -> Experience | None:
        topic = trajectory.question
        return Experience(plan=f"plan {topic}", search_plan="search", lessons=f"learn {topic}", search_lessons="look")

    async def strategies(self, trajectory: Trajectory, outcome: Outcome) -> Strategies | None:
        lines = (f"For the {trajectory.question} open its page.", f"The {trajectory.question} stands in a table.")
        return Strategies(strategic=lines[:1], operational=lines[1:])

    async def advise(self, question: str, items: Sequence[AdviceItem], k: int) -> Advice | None:
        return await RULES.advise(question, items, k)

    async def tips(self, trajectory: Trajectory, outcome: Outcome) -> tuple[str, ...]:
        return (f"The {trajectory.question} stands in a table.",)

    async def shortcut(self, trajectory: Trajectory, outcome: Outcome) -> Shortcut | None:
        topic = trajectory.question
        steps = ("open the page", "read the table", "answer")
        return Shortcut(name=f"read {topic}", description=f"gets {topic}", precondition="a page exists", steps=steps)

    async def principle(self, trajectory: Trajectory, outcome: Outcome) -> Principle | None:
        kind = "cautionary" if outcome.correct is False else "guiding"
        return Principle.model_validate({"description": f"The {trajectory.question} is in a table.", "kind": kind})

    async def same_principle(self, first: Principle, second: Principle) -> bool:
        return first == second

    async def run_summary(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return f"Opened {trajectory.question}; read"

    async def curate(
        self, question: str, sheet: Sequence[SheetItem], runs: Sequence[PastRun], max_words: int
    ) -> tuple[SheetEntry, ...]:
        return await RULES.curate(question, sheet, runs, max_words)

    async def reasoning(self, trajectory: Trajectory, outcome: Outcome) -> tuple[ReasoningItem, ...]:
        topic = trajectory.question
        return (ReasoningItem(title=f"Of {topic}", description=f"Where {topic} is.", content="In a table."),)


def runs() -> list[tuple[Trajectory, Outcome]]:
    outcomes = (CORRECT, WRONG, CORRECT, UNKNOWN, CORRECT)
    return [
        (run_of(f"t{n}", f"{TOPICS[n % 6]} {'length size amount'.split()[n % 3]}"), outcomes[n % 5]) for n in range(24)
    ]


async def filled(bank: MemoryBank, name: str, order: Sequence[tuple[Trajectory, Outcome]] = ()) -> MemoryProvider:
    provider = load_provider(name, bank.space(name), TopicDistiller())
    for trajectory, outcome in order or runs():
        await provider.store(trajectory, outcome)
    return provider


@pytest.mark.parametrize("name", PROVIDERS)
async def test_what_is_stored_is_retrieved_and_the_preview_is_its_start(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = await filled(bank, name)
        retrieval = await provider.retrieve(query_of("the length of the coal"))
        preview = provider.probe(query_of("the length of the coal"))
        assert "coal" in retrieval.text
        assert preview.text
        assert name in MERGING or preview.text in retrieval.text
        assert len(preview.text) <= 200
        assert preview.item_id in retrieval.item_ids
        assert all(bank.space(name).get(item) is not None for item in retrieval.item_ids)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_empty_bank_gives_an_empty_preview_and_retrieval(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = load_provider(name, bank.space(name), TopicDistiller())
        assert provider.probe(query_of("coal")).text == ""
        assert (await provider.retrieve(query_of("coal"))).empty


@pytest.mark.parametrize("name", PROVIDERS)
async def test_probing_and_retrieving_write_nothing(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = await filled(bank, name)
        before = list(bank.committed.iterdump())
        for topic in TOPICS:
            provider.probe(query_of(topic))
            await provider.retrieve(query_of(topic))
        assert list(bank.committed.iterdump()) == before


@pytest.mark.parametrize("name", PROVIDERS)
async def test_offering_everything_again_changes_no_record(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        await filled(bank, name)
        before = bank.space(name).records()
        await filled(bank, name)
        assert bank.space(name).records() == before


@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_same_stream_gives_the_same_bank_and_retrievals(name: str, tmp_path: Path) -> None:
    results = []
    for file in ("one.sqlite", "two.sqlite"):
        with open_bank(tmp_path, file) as bank:
            provider = await filled(bank, name)
            provider.apply((await provider.retrieve(query_of("coal length"))).effects, CORRECT)
            records = [record.model_copy(update={"created": 0.0}) for record in bank.space(name).records()]
            results.append((records, [await provider.retrieve(query_of(topic)) for topic in TOPICS]))
    assert results[0] == results[1]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_stores_at_once_from_two_instances_lose_nothing(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank, open_bank(tmp_path) as other_bank:
        instances = [load_provider(name, each.space(name), TopicDistiller()) for each in (bank, other_bank)]
        receipts = await asyncio.gather(
            *(instances[n % 2].store(trajectory, outcome) for n, (trajectory, outcome) in enumerate(runs()))
        )
        assert {receipt.status for receipt in receipts} <= {"stored", "skipped"}
        stored = {t.id for (t, _), receipt in zip(runs(), receipts, strict=True) if receipt.status == "stored"}
        records = bank.space(name).records(state=(*LIVE, "archived"))
        origins = {origin.trajectory_id for record in records for origin in record.origins}
        assert origins == stored
        assert stored


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_decorated_question_finds_what_the_bare_one_stored(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = await filled(bank, name)
        query = query_of("Answer with a number only. See https://example.org/start for the railway size, please.")
        assert "railway" in (await provider.retrieve(query)).text


@pytest.mark.parametrize("name", PROVIDERS)
async def test_use_never_shows_in_the_text(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = await filled(bank, name)
        first = await provider.retrieve(query_of("coal length"))
        for outcome in (CORRECT, WRONG):
            provider.apply(first.effects, outcome)
        assert (await provider.retrieve(query_of("coal length"))).text == first.text
        assert not re.search(r"\d\.\d|score|hits|success|quality|similarity", first.text.lower())


@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_relevance_floor_keeps_out_what_does_not_fit(name: str, tmp_path: Path) -> None:
    query = query_of("coal length")
    with open_bank(tmp_path) as bank:
        provider = await filled(bank, name)
        shown = (await provider.retrieve(query)).item_ids
        cosines = dict(zip(shown, bank.space(name).vectors(shown) @ query.embedding, strict=True))
        for floor in (float(max(cosines.values())), 1.0):
            strict = load_provider(name, bank.space(name), TopicDistiller(), floor)
            assert strict.card.relevance_floor == floor
            kept = await strict.retrieve(query)
            assert set(kept.item_ids) <= {item for item in shown if cosines[item] >= floor}
            assert (strict.probe(query).item_id in kept.item_ids) == bool(kept.text)
        assert kept.empty
        assert strict.probe(query).text == ""


async def test_a_provider_that_forgets_its_floor_is_stopped(tmp_path: Path) -> None:
    class Forgetful(Voyager):
        def lead(self, query: Query) -> tuple[str, str] | None:
            record = self.space.records("narrative")[0]
            return record.payload["digest"], record.id

    with open_bank(tmp_path) as bank:
        provider = Forgetful(bank.space("voyager"), TopicDistiller())
        await provider.store(*runs()[0])
        assert provider.probe(query_of("nothing of the kind")).text
        provider.set_relevance_floor(0.9)
        with pytest.raises(ProviderError, match=r"'voyager' would show an item below its relevance floor of 0\.9"):
            provider.probe(query_of("nothing of the kind"))


def test_importing_the_memories_loads_nothing_heavy() -> None:
    script = (
        "import sys, providers.bank, providers.registry as r\n"
        f"[r.provider_class(name) for name in {PROVIDERS!r}]\n"
        "print([m for m in ('torch', 'faiss', 'sklearn', 'transformers', 'sentence_transformers') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert result.stdout == "[]\n", result.stderr
