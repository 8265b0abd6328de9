"""Support is counted by what it depends on; scope and contradiction are found in the text and the lineage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.governance.evidence import (
    Candidate,
    Observation,
    Trust,
    dependency_groups,
    dependency_of,
    effective_support,
    gather,
    observations_of,
    relation,
    scope_of,
)
from providers.types import Injection, Lineage, Step, Trajectory

CLAIM = "The retry limit of kestrel is 5."


def seen(id: str, trust: Trust = "page", text: str = CLAIM, **lineage: str) -> Observation:
    """An observation with a source of its own, where none is given."""
    return Observation.model_validate({"id": id, "text": text, "trust": trust, "source": f"/{id}"} | lineage)


def support(*observations: Observation) -> float:
    return effective_support(dependency_groups(observations))


@pytest.mark.parametrize(
    ("claim", "text", "says"),
    [
        (CLAIM, "On kestrel, retry limit = 5.", "supports"),
        (CLAIM, "On kestrel, retry limit = 7.", "contradicts"),
        (CLAIM, "The retry limit of heron is 5.", "unrelated"),
        (CLAIM, "The idle timeout of kestrel is 5.", "unrelated"),
        (CLAIM, "kestrel has a retry limit", "unrelated"),
        ("Kestrel supports streaming uploads", "kestrel does not support streaming uploads", "contradicts"),
        ("Kestrel supports streaming uploads", "Kestrel never supports streaming uploads", "contradicts"),
        ("Kestrel supports streaming uploads", "streaming uploads: kestrel supports these", "supports"),
        ("Kestrel 3.11 needs glibc 2.28", "kestrel 3.11 needs glibc 2.17", "contradicts"),
        ("", "anything", "unrelated"),
        ("of the", "of the", "unrelated"),
    ],
)
def test_what_a_text_says_of_a_claim(claim: str, text: str, says: str) -> None:
    assert relation(claim, text) == says


@given(st.text(max_size=80))
def test_every_text_with_words_supports_itself_and_none_contradicts_itself(text: str) -> None:
    assert relation(text, text) in ("supports", "unrelated")


@pytest.mark.parametrize(
    ("observed", "target", "scope"),
    [
        ("kestrel@3", "kestrel@3", "same"),
        ("kestrel@2", "kestrel@3", "older"),
        ("kestrel@2.9", "kestrel@2.10", "older"),
        ("kestrel@4", "kestrel@3", "other"),
        ("kestrel@3", "kestrel", "same"),
        ("kestrel", "kestrel@3", "unknown"),
        ("heron@3", "kestrel@3", "other"),
        ("", "kestrel@3", "unknown"),
        ("kestrel@3", "", "unknown"),
    ],
)
def test_scope(observed: str, target: str, scope: str) -> None:
    assert scope_of(observed, target) == scope


@pytest.mark.parametrize(
    ("name", "observations", "counts"),
    [
        ("two pages", [seen("a"), seen("b")], 2.0),
        ("one page seen twice", [seen("a"), seen("b", source="/a")], 1.0),
        ("one parent event", [seen("a", parent="m"), seen("b", parent="m")], 1.0),
        ("one tool's output", [seen("a", "tool", tool="probe"), seen("b", "tool", tool="probe")], 1.0),
        ("agents with one prompt", [seen("a", "model", prompt_family="p"), seen("b", "model", prompt_family="p")], 0.5),
        ("two pages read under one prompt", [seen("a", prompt_family="p"), seen("b", prompt_family="p")], 2.0),
        ("one agent's two remarks", [seen("a", "model", agent="x"), seen("b", "model", agent="x")], 0.5),
        ("two agents' own remarks", [seen("a", "model", agent="x"), seen("b", "model", agent="y")], 1.0),
        ("through a third", [seen("a", parent="m"), seen("b", source="/a"), seen("c", parent="m")], 1.0),
        ("no lineage", [seen("a", source=""), seen("b", source="")], 1.0),
        ("untrusted", [seen("a", "untrusted"), seen("b", "untrusted")], 0.0),
        ("an untrusted member", [seen("a", parent="m"), seen("b", "untrusted", parent="m")], 0.0),
        ("a page beside an untrusted one", [seen("a"), seen("b", "untrusted")], 1.0),
        ("nothing", [], 0.0),
    ],
)
def test_effective_support_by_hand(name: str, observations: list[Observation], counts: float) -> None:
    assert support(*observations) == counts


def test_agents_who_repeat_a_long_wording_are_copies_and_tools_with_one_format_are_not() -> None:
    text = "For kestrel the retry limit was 5 in the response of every node."
    assert support(*(seen(id, "model", text) for id in "abc")) == 0.5
    assert support(*(seen(id, "tool", text) for id in "abc")) == 3.0


lineages = st.builds(
    lambda number, trust, source, parent, prompt, agent: Observation(
        id=str(number), text=CLAIM, trust=trust, source=source, parent=parent, prompt_family=prompt, agent=agent
    ),
    st.integers(),
    st.sampled_from(("tool", "page", "user", "model", "untrusted")),
    *(st.sampled_from(("", "x", "y")) for _ in range(4)),
)


@given(st.lists(lineages, max_size=8), st.randoms())
@settings(max_examples=60)
def test_support_depends_on_no_order_and_is_never_more_than_the_number_of_groups(
    observations: list[Observation], random: object
) -> None:
    groups = dependency_groups(observations)
    assert sum(len(group.observations) for group in groups) == len(observations)
    assert 0 <= effective_support(groups) <= len(groups)
    turned = dependency_groups(observations[::-1])
    assert sorted(len(g.observations) for g in groups) == sorted(len(g.observations) for g in turned)
    assert effective_support(groups) == effective_support(turned)


@given(st.lists(lineages, min_size=1, max_size=6), st.data())
@settings(max_examples=60)
def test_copying_an_observation_any_number_of_times_adds_nothing(
    observations: list[Observation], data: st.DataObject
) -> None:
    copied = data.draw(st.sampled_from(observations))
    many = [copied.model_copy(update={"id": f"copy {number}"}) for number in range(5)]
    assert support(*observations, *many) == support(*observations)


@pytest.mark.parametrize(
    ("dependency", "observations"),
    [
        ("independent", [seen("a"), seen("b")]),
        ("copied_source", [seen("a"), seen("b", source="/a")]),
        ("echo", [seen("a", parent="m"), seen("b", parent="m")]),
        ("echo", [seen("a", "model", agent="x"), seen("b", "model", agent="x")]),
        ("shared_prompt", [seen("a", "model", prompt_family="p"), seen("b", "model", prompt_family="p")]),
        ("shared_tool", [seen("a", "tool", tool="t"), seen("b", "tool", tool="t")]),
        ("low_trust", [seen("a", "untrusted"), seen("b", "untrusted"), seen("c")]),
        ("unknown", [seen("a", source=""), seen("b", source="")]),
    ],
)
def test_the_word_for_a_dependency(dependency: str, observations: list[Observation]) -> None:
    assert dependency_of(observations) == dependency


def test_evidence_is_searched_beyond_the_cluster_and_strangers_are_set_aside() -> None:
    here = "kestrel@3"
    candidate = Candidate(
        id="c",
        claim=CLAIM,
        environment="kestrel@3",
        observations=(
            seen("own", environment=here),
            seen("stranger", text="The idle timeout of heron is 9.", environment=here),
            seen("old", environment="kestrel@2"),
        ),
    )
    pool = (
        seen("own", environment=here),
        seen("found", text="kestrel: retry limit 5", environment=here),
        seen("against", text="kestrel: retry limit 6", environment=here),
        seen("elsewhere", text="kestrel: retry limit 6", environment="lab@3"),
        seen("unrelated", text="The queue depth of avocet is 2.", environment=here),
    )
    evidence = gather(candidate, pool)
    assert [o.id for group in evidence.supporting for o in group.observations] == ["own", "found"]
    assert [o.id for group in evidence.contradicting for o in group.observations] == ["against"]
    assert {o.id: reason.split(" (")[0] for o, reason in evidence.set_aside} == {
        "stranger": "about something else",
        "old": "supports it in an older version",
        "elsewhere": "narrows it: contradicts it in another environment",
    }
    assert (evidence.support, evidence.opposition, evidence.grounded) == (2.0, 1.0, True)


def test_the_observations_of_a_run_have_the_lineage_of_its_steps() -> None:
    memory = "kestrel retries five times before it gives up for good on a call"
    page = Lineage(source="/kestrel", environment="factbook", trust="page")
    trajectory = Trajectory.make(
        task_id="t",
        question="q",
        agent="reader",
        seed=0,
        injections=(Injection(phase="begin", provider="awm", text=f"Remember: {memory}"),),
        steps=(
            Step(index=0, tool="open", observation="a page", lineage=page),
            Step(index=1, tool="note", thought=memory),
            Step(
                index=2, tool="edit_file", observation="error: no such file", lineage=Lineage(source="", trust="tool")
            ),
            Step(index=3, tool="write_file", observation="done", lineage=Lineage(source="", trust="tool")),
            Step(index=4, tool="answer"),
        ),
    )
    opened, echo, failed, written = observations_of(trajectory)
    assert (opened.source, opened.environment, opened.trust, opened.tool) == ("/kestrel", "factbook", "page", "")
    assert (echo.trust, echo.parent.split(":")[0], opened.parent) == ("model", "awm", "")
    assert (opened.edit, failed.edit, written.edit) == ("none", "failed", "applied")
    assert written.tool == "write_file"
    assert opened.prompt_family == echo.prompt_family != ""
