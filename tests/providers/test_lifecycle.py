"""Governed spaces: admission as a table, merging, conflicts, summaries, budget, re-verification, reviews."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from memory_toys import open_bank, run_of

from providers.errors import ModelError
from providers.forgetting import Selection
from providers.governance.admission import FAILURE, admit
from providers.governance.descriptor import Label, View
from providers.governance.lifecycle import (
    STALE_RUNS,
    SUMMARY,
    Governor,
    Rules,
    combined,
    keep_to_budget,
    priority,
    trust_of,
)
from providers.governance.likeness import Likeness, signature_of
from providers.governance.rule_verifier import RuleLooker
from providers.governance.verifier import Look, Verdict, Verifier
from providers.governance.words import BINS
from providers.space import Space
from providers.types import Descriptor, Record, Trajectory

SUCCESS: Label = "verified_success"
FAIL: Label = "verified_fail"
UNCERTAIN: Label = "uncertain"


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Space]:
    with open_bank(tmp_path) as bank:
        yield bank.space("toy")


def verdict(reward: float = 0.9, confidence: float = 0.9, label: Label = SUCCESS) -> Verdict:
    return Verdict(
        reward=reward, confidence=confidence, uncertainty=0.1, label=label, source_status="answered", verified_at=1.0
    )


def memory(space: Space, task: str, content: str, **changes: Any) -> Record:
    fields = {"kind": "procedural_hint", "pattern": "coal of a country", "action": content, "scope": "a.example"}
    fields |= {name: changes.pop(name) for name in list(changes) if name in fields}
    signature = signature_of(**fields, condition=fields["pattern"])
    payload = {"content": content, "action": fields["action"], "applicability": fields["pattern"], **changes}
    text = f"{fields['pattern']} {content}"
    return space.new_record(fields["kind"], run_of(task), 0, text=text, payload=payload, signature=signature)


def taken_in(space: Space, governor: Governor, record: Record, task: str, said: Verdict) -> Record:
    with space.transaction():
        space.add([record])
        governor.take_in(space, [record.id], run_of(task), said)
    return space.existing(record.id)


def governor(**rules: Any) -> Governor:
    return Governor(Verifier(RuleLooker()), rules=Rules(**rules))


def events(space: Space, record_id: str) -> list[tuple[str, str]]:
    return space.bank.committed.execute(
        "SELECT event, detail FROM events WHERE record_id = ? ORDER BY seq", (record_id,)
    ).fetchall()


@pytest.mark.parametrize(
    ("kind", "label", "reward", "confidence", "state"),
    [
        ("procedural_hint", SUCCESS, 0.70, 0.60, "active"),
        ("procedural_hint", SUCCESS, 0.69, 0.60, "candidate"),
        ("procedural_hint", SUCCESS, 0.70, 0.59, "candidate"),
        ("procedural_hint", UNCERTAIN, 0.90, 0.90, "candidate"),
        ("procedural_hint", UNCERTAIN, 0.44, 0.90, "rejected"),
        ("procedural_hint", FAIL, 0.90, 0.90, "rejected"),
        (FAILURE, FAIL, 0.10, 0.60, "guard"),
        (FAILURE, FAIL, 0.10, 0.59, "candidate"),
        (FAILURE, UNCERTAIN, 0.50, 0.60, "guard"),
        (FAILURE, SUCCESS, 0.90, 0.90, "candidate"),
    ],
)
def test_states_at_admission(
    space: Space, kind: str, label: Label, reward: float, confidence: float, state: str
) -> None:
    found = admit(memory(space, "t", "Open the page.", kind=kind), verdict(reward, confidence, label).descriptor())
    assert found.state == state
    assert found.reason


def test_a_lesson_of_another_provider_from_a_failure_is_a_guard(space: Space) -> None:
    lesson = space.new_record("insight", run_of("t"), 0, text="Never guess.", payload={"kind": "failure"})
    assert admit(lesson, verdict(0.1, 0.9, FAIL).descriptor()).state == "guard"
    assert admit(lesson, verdict(0.1, 0.9, FAIL).descriptor(), guards=False).state == "rejected"


def test_a_record_says_why_it_came_in_or_did_not(space: Space) -> None:
    active = taken_in(space, governor(), memory(space, "t", "Open the page."), "t", verdict())
    assert (active.state, active.descriptor and active.descriptor.label) == ("active", SUCCESS)
    refused = memory(space, "u", "Guess it.", reject_reason="no words of its run support it")
    refused = taken_in(space, governor(), refused, "u", verdict())
    assert refused.state == "rejected"
    assert events(space, refused.id)[-1] == ("rejected", "no words of its run support it")
    assert [event for event, _ in events(space, active.id)] == ["added", "active"]


def test_the_verifier_only_control_filters_and_keeps_nothing_of_the_verdict(space: Space) -> None:
    control = Governor(Verifier(RuleLooker()), mode="admission")
    kept = taken_in(space, control, memory(space, "t", "Open the page."), "t", verdict())
    out = taken_in(space, control, memory(space, "u", "Guess it."), "u", verdict(0.5, 0.5, UNCERTAIN))
    assert (kept.state, kept.descriptor, out.state) == ("active", None, "rejected")


def test_records_that_say_the_same_become_one_with_the_evidence_of_both(space: Space) -> None:
    weak = taken_in(space, governor(), memory(space, "t", "Open the energy page."), "t", verdict(0.8))
    strong = taken_in(space, governor(), memory(space, "u", "Open the energy page."), "u", verdict(0.9))
    weak = space.existing(weak.id)
    assert (weak.state, strong.state, weak.links) == ("archived", "active", (strong.id,))
    assert {origin.task_id for origin in strong.origins} == {"t", "u"}
    assert strong.descriptor is not None
    assert (strong.descriptor.support, strong.descriptor.reward) == (2.0, pytest.approx(0.85))
    assert any(event == "merged" for event, _ in events(space, strong.id))
    assert any("the same as" in detail for _, detail in events(space, weak.id))


def test_repeated_evidence_lifts_a_waiting_record_over_the_threshold(space: Space) -> None:
    waits = taken_in(space, governor(), memory(space, "t", "Open the energy page."), "t", verdict(0.66))
    assert waits.state == "candidate"
    taken_in(space, governor(), memory(space, "u", "Open the energy page."), "u", verdict(0.9))
    live = space.records()
    assert [record.descriptor and record.descriptor.support for record in live] == [2.0]


def test_of_two_that_contradict_each_other_the_stronger_stays_and_names_the_other(space: Space) -> None:
    weak = taken_in(space, governor(), memory(space, "t", "Open the energy page."), "t", verdict(0.75))
    strong = taken_in(space, governor(), memory(space, "u", "Search the energy page."), "u", verdict(0.95))
    assert space.existing(weak.id).state == "archived"
    assert strong.descriptor is not None
    assert strong.descriptor.conflicts == (weak.id,)
    assert [record.id for record in space.records()] == [strong.id]


def test_records_of_other_kinds_or_about_other_things_are_left_alone(space: Space) -> None:
    taken_in(space, governor(), memory(space, "t", "Open the energy page."), "t", verdict())
    other = memory(space, "u", "Count the borders listed.", pattern="neighbours of an island", scope="b.example")
    taken_in(space, governor(), other, "u", verdict())
    guard = memory(space, "v", "Open the energy page.", kind=FAILURE)
    taken_in(space, governor(), guard, "v", verdict(0.1, 0.9, FAIL))
    assert len(space.records()) == 3


def test_records_that_conflict_in_a_circle_leave_the_strongest(space: Space) -> None:
    for task, content, worth in (
        ("t", "Open the energy page.", 0.80),
        ("u", "Search the energy page.", 0.90),
        ("v", "Skip the energy page.", 0.85),
    ):
        taken_in(space, governor(), memory(space, task, content), task, verdict(worth))
    assert [record.payload["content"] for record in space.records()] == ["Search the energy page."]


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ({"label": SUCCESS, "reward": 0.1}, {"label": UNCERTAIN, "reward": 0.9}),
        ({"label": UNCERTAIN, "reward": 0.1}, {"label": FAIL, "reward": 0.9}),
        ({"reward": 0.9, "confidence": 0.1}, {"reward": 0.8, "confidence": 0.9}),
        ({"confidence": 0.9, "seen_run": 1}, {"confidence": 0.8, "seen_run": 9}),
        ({"seen_run": 9, "reuse": 1}, {"seen_run": 8, "reuse": 9}),
        ({"reuse": 9}, {"reuse": 8}),
        ({"review": "accepted", "label": FAIL}, {"label": SUCCESS}),
    ],
)
def test_conflicts_are_settled_by_label_reward_confidence_recency_and_use(
    space: Space, stronger: dict[str, Any], weaker: dict[str, Any]
) -> None:
    record = memory(space, "t", "Open the page.")
    one, other = (record.model_copy(update={"descriptor": Descriptor(**fields)}) for fields in (stronger, weaker))
    assert priority(one) > priority(other)


@pytest.mark.parametrize(
    ("known", "new", "label"),
    [
        ((0.80, 0.9, SUCCESS), (0.75, 0.6, UNCERTAIN), SUCCESS),
        ((0.80, 0.6, SUCCESS), (0.75, 0.9, UNCERTAIN), UNCERTAIN),
        ((0.90, 0.1, SUCCESS), (0.20, 0.9, FAIL), SUCCESS),
        ((0.20, 0.9, FAIL), (0.90, 0.1, SUCCESS), SUCCESS),
    ],
)
def test_the_label_of_two_runs(
    known: tuple[float, float, Label], new: tuple[float, float, Label], label: Label
) -> None:
    found = combined(verdict(*known).descriptor(), verdict(*new).descriptor())
    assert (found.label, found.support) == (label, 2.0)
    assert found.reward == pytest.approx((known[0] + new[0]) / 2)


def test_over_budget_repeated_successes_become_a_summary_that_keeps_their_ids(space: Space) -> None:
    actions = ["Open the energy page.", "Sum borders twice", "Follow railway tables", "Weigh tourist income"]
    for place, action in enumerate(actions):
        record = memory(space, f"t{place}", action, pattern="coal output")
        record = record.model_copy(
            update={
                "text": f"{action} {action[::-1]} {place}" * 3,
                "descriptor": Descriptor(reward=0.9, confidence=0.9, label=SUCCESS, support=1.0, seen_run=place),
            }
        )
        space.add([record])
    with space.transaction():
        keep_to_budget(space, 2, run=5)
    live = space.records()
    assert [record.kind for record in live] == [SUMMARY]
    summary = live[0]
    archived = space.records(state=("archived",))
    assert set(summary.payload["covered"]) == {record.id for record in archived} == set(summary.links)
    assert summary.payload["applicability"] == "coal output"
    assert all(action in summary.payload["summary"] for action in actions)
    assert len(summary.origins) == 4


def test_what_a_summary_stood_for_stands_for_itself_when_a_source_is_forgotten(space: Space) -> None:
    test_over_budget_repeated_successes_become_a_summary_that_keeps_their_ids(space)
    space.bank.forget(Selection(task="t1"))
    assert space.records() == []
    with space.transaction():
        keep_to_budget(space, 3, run=6)
    assert sorted(origin.task_id for record in space.records() for origin in record.origins) == ["t0", "t2", "t3"]
    assert all(record.kind != SUMMARY for record in space.records())


@pytest.mark.parametrize("task", ["t", "u"])
def test_a_merge_whose_source_is_forgotten_leaves_nothing_of_it_and_can_be_learned_again(
    space: Space, task: str
) -> None:
    taken_in(space, governor(gate=True), memory(space, "t", "Open the energy page."), "t", verdict())
    taken_in(space, governor(gate=True), memory(space, "u", "Open the energy page."), "u", verdict())
    space.bank.forget(Selection(task=task))
    assert space.records(state=("active", "candidate", "archived", "rejected")) == []
    bodies = space.bank.committed.execute("SELECT body FROM records").fetchall()
    assert not any(run_of(task).id in body for (body,) in bodies)
    again = taken_in(space, governor(), memory(space, "v", "Open the energy page."), "v", verdict())
    assert (again.state, [origin.task_id for origin in again.origins]) == ("active", ["v"])


def test_over_budget_the_stale_go_first_and_then_the_weakest(space: Space) -> None:
    for place, (worth, seen) in enumerate([(0.95, 0), (0.75, STALE_RUNS), (0.85, STALE_RUNS), (0.80, STALE_RUNS)]):
        record = space.new_record("note", run_of(f"t{place}"), 0, text=f"note {place}", payload={})
        known = Descriptor(reward=worth, confidence=0.9, label=SUCCESS, support=1.0, seen_run=seen)
        space.add([record.model_copy(update={"descriptor": known})])
    with space.transaction():
        keep_to_budget(space, 2, run=STALE_RUNS)
    assert sorted(r.descriptor.reward or 0 for r in space.records() if r.descriptor) == [0.80, 0.85]
    reasons = [events(space, record.id)[-1][1] for record in space.records(state=("archived",))]
    assert any("not seen for" in reason for reason in reasons)
    assert any("the weakest" in reason for reason in reasons)


def test_a_memory_that_misleads_is_taken_out_and_then_archived(space: Space) -> None:
    """Confidence .9, two lost uses: (2 * .9 + 0) / 4 = .45 < .60."""
    record = taken_in(space, governor(), memory(space, "t", "Open the page."), "t", verdict())
    assert trust_of(0.9, 0, 2) == pytest.approx(0.45)
    governor().used(space, record.id, False)
    assert space.existing(record.id).state == "active"
    governor().used(space, record.id, False)
    assert space.existing(record.id).state == "candidate"
    assert events(space, record.id)[-1][0] == "misled"
    assert "0 of 2 tasks" in events(space, record.id)[-1][1]


@pytest.mark.parametrize(("solved", "state"), [(18, "candidate"), (2, "active")])
def test_whether_a_lost_use_speaks_against_a_memory_depends_on_how_many_tasks_are_solved_anyhow(
    space: Space, solved: int, state: str
) -> None:
    """Of twenty uses of another 18 solved: 1.8 / (2 + 2 * 20 / 22) = .47; 2 solved: 1.8 / (2 + 2 * 4 / 22) = .76."""
    usual = taken_in(space, governor(), memory(space, "t", "Open the page."), "t", verdict())
    other = memory(space, "u", "Count borders", pattern="islands", scope="b.example")
    other = taken_in(space, governor(), other, "u", verdict())
    for number in range(20):
        governor().used(space, usual.id, number < solved)
    governor().used(space, other.id, False)
    governor().used(space, other.id, False)
    assert space.existing(other.id).state == state
    assert trust_of(0.9, 0, 2, 20 / 22) == pytest.approx(1.8 / (2 + 40 / 22))
    assert trust_of(0.9, 5, 5, 0.5) == 1.0


def test_two_lessons_of_one_run_do_not_contradict_each_other(space: Space) -> None:
    for content in ("Open the energy page.", "Search the energy page."):
        record = memory(space, "t", content)
        taken_in(space, governor(), record.model_copy(update={"id": content}), "t", verdict())
    assert len(space.records(state=("active",))) == 2


def test_a_memory_that_helps_stays_and_counts_its_wins(space: Space) -> None:
    record = taken_in(space, governor(), memory(space, "t", "Open the page."), "t", verdict())
    for correct in (True, True, False, True):
        governor().used(space, record.id, correct)
    known = space.existing(record.id).descriptor
    assert known is not None
    assert (space.existing(record.id).state, known.reuse, known.wins) == ("active", 4, 3)


async def test_of_a_finished_run_its_trust_alone_is_said_and_only_where_it_is_asked_for() -> None:
    class Out(RuleLooker):
        async def look(self, trajectory: Trajectory, view: View, order: Sequence[str]) -> Look:
            raise ModelError("no answer", retryable=True)

    run = run_of("t")
    for described, said in ((("trust", "age"), True), (("age",), False), ((), False)):
        words = await Governor(Verifier(RuleLooker()), described=described).says_of_run(run)
        assert (words in {f"trust {word}" for word in BINS["trust"]}) is said
        assert said or words == ""
    assert await Governor(Verifier(RuleLooker()), mode="admission").says_of_run(run) == ""
    assert await Governor(Verifier(Out())).says_of_run(run) == "trust unknown"


def test_structure_is_by_signature_parts_or_else_by_words(space: Space) -> None:
    one, other = memory(space, "t", "Open the energy page."), memory(space, "u", "Search the trade page.")
    assert Likeness(one).structure(other) == pytest.approx(4 / 5)
    plain = [space.new_record("note", run_of("t"), n, text=t, payload={}) for n, t in enumerate(("a coal", "a coke"))]
    assert Likeness(plain[0]).structure(plain[0]) == 1.0
    assert Likeness(plain[0]).structure(plain[1]) == 0.0
