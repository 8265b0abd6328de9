"""Governance acts under every built-in provider alike, and none of them breaks by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_toys import CORRECT, WRONG, open_bank, query_of
from test_every_provider import PROVIDERS, TOPICS, TopicDistiller
from test_memguard import FAILS, Says

from providers.governance.lifecycle import RUNS, Governor
from providers.governance.verifier import Verifier
from providers.governance.words import bins, in_words, only, places
from providers.long_term.base import SpaceProvider
from providers.registry import load_provider
from providers.types import Descriptor, Step, Trajectory


def run(topic: str, number: int) -> Trajectory:
    step = Step(index=0, tool="open", arguments={"page": topic}, observation=f"The {topic} of {number} is in a table.")
    return Trajectory.make(
        task_id=f"{topic}{number}", question=topic, agent="toy", seed=number, steps=(step,), answer=str(number)
    )


@pytest.mark.parametrize("name", PROVIDERS)
async def test_every_provider_is_governed(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = load_provider(name, bank.space(name), TopicDistiller())
        assert isinstance(provider, SpaceProvider)
        provider.governor = Governor(Verifier(Says()))
        for number in range(2):
            for topic in TOPICS:
                assert (await provider.store(run(topic, number), CORRECT)).status == "stored"
        found = await provider.retrieve(query_of("coal"))
        assert found.text
        assert found.descriptor.startswith("trust high; ")
        assert provider.probe(query_of("coal")).descriptor.startswith("trust high; ")
        known = [record.descriptor for record in provider.space.records() if record.descriptor is not None]
        assert known
        assert provider.space.counter(RUNS) == 2 * len(TOPICS)
        for correct in (CORRECT, WRONG):
            provider.apply(found.effects, correct)
        assert (await provider.retrieve(query_of("coal"))).text
        provider.governor = Governor(Verifier(FAILS))
        await provider.store(run("coal", 7), WRONG)
        await provider.retrieve(query_of("coal"))


@pytest.mark.parametrize("name", ["awm", "expel", "insight_graph", "reasoning_bank"])
async def test_what_a_verifier_refuses_is_not_retrieved_and_says_why(name: str, tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        provider = load_provider(name, bank.space(name), TopicDistiller())
        assert isinstance(provider, SpaceProvider)
        provider.governor = Governor(Verifier(FAILS))
        receipt = await provider.store(run("coal", 1), CORRECT)
        assert (await provider.retrieve(query_of("coal"))).empty
        reasons = [
            detail
            for (detail,) in bank.committed.execute(
                "SELECT detail FROM events WHERE record_id = ?", receipt.record_ids[:1]
            )
        ]
        assert any("its run failed" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("known", "run", "words"),
    [
        (Descriptor(), 0, "trust low; age new; support one run; reuse never; wins untested"),
        (
            Descriptor(label="verified_success", confidence=0.8, support=2, seen_run=5, reuse=1, wins=1),
            15,
            "trust high; age recent; support two runs; reuse once; wins always",
        ),
        (
            Descriptor(label="verified_success", confidence=0.6, support=3, reuse=2, wins=1),
            100,
            "trust medium; age old; support several runs; reuse few; wins mostly",
        ),
        (
            Descriptor(label="verified_fail", confidence=1.0, support=6, reuse=6, wins=1),
            400,
            "trust failed; age stale; support many runs; reuse often; wins rarely",
        ),
    ],
)
def test_a_descriptor_in_words(known: Descriptor, run: int, words: str) -> None:
    assert in_words(known, run) == words
    assert places(words) == bins(known, run)
    assert only(words, ("age", "wins")) == "; ".join(words.split("; ")[1::3])
    assert places(only(words, ())) == {}
