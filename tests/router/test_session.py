"""The session's lifecycle: what is asked of whom, in which order, and what is never done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from router_toys import Script, ToyProvider, fact_step, toy_query, toy_task, toy_trajectory

from providers.errors import AgentError, ConfigError, ProviderError
from providers.tools import ToolResult
from providers.types import Effect, Outcome, Preview, Retrieval, SkillSpec, Trajectory
from router.context import EndContext, InContext
from router.decisions import SHORT_TERM, Arm, BeginDecision
from router.policies.fixed import Forced
from router.session import MemorySession, apply_ending, probe_all, summarise

SKILL = SkillSpec(name="area", code_id="c1")


def pool(*providers: ToyProvider) -> dict[str, ToyProvider]:
    return {provider.card.name: provider for provider in providers}


async def begun(policy: Script | Forced, providers: dict[str, ToyProvider]) -> MemorySession:
    session = MemorySession(toy_task(), toy_query(), providers, policy)
    await session.begin()
    return session


async def test_probe_all_keeps_the_configs_order_and_cuts_previews() -> None:
    providers = pool(ToyProvider("b", "x" * 500), ToyProvider("a", "  \n "), ToyProvider("c", "short"))
    previews = await probe_all(toy_query(), providers)
    assert [(p.provider, p.text) for p in previews] == [("b", "x" * 200), ("a", ""), ("c", "short")]


async def test_begin_probes_all_retrieves_from_the_chosen_one_and_writes_nothing() -> None:
    providers = pool(ToyProvider("a", "alpha"), ToyProvider("b", "beta", skills=(SKILL,)))
    session = await begun(Script(BeginDecision(providers=("b",))), providers)
    assert providers["a"].calls == ["probe"]
    assert providers["b"].calls == ["probe", "retrieve"]
    assert session.memory == "beta"
    assert session.skills == (SKILL,)
    assert [(i.phase, i.provider, i.item_ids, i.skills) for i in session.injections] == [
        ("begin", "b", ("r1",), ("area",))
    ]


async def test_known_previews_and_retrievals_are_not_asked_for_again() -> None:
    providers = pool(ToyProvider("a", "alpha"))
    session = MemorySession(
        toy_task(),
        toy_query(),
        providers,
        Forced(Arm(provider="a")),
        previews=(Preview(provider="a", text="given"),),
        retrievals={"a": Retrieval(provider="a", text="swapped")},
    )
    await session.begin()
    assert session.memory == "swapped"
    assert providers["a"].calls == []


async def test_policies_see_no_gold_no_family_and_no_reason() -> None:
    policy = Script(BeginDecision(providers=("a",)), end=("a",))
    session = await begun(policy, pool(ToyProvider("a", "alpha")))
    await session.step((fact_step(0), fact_step(1, "Capital city: 7.5 million people")))
    await session.end(
        toy_trajectory(), Outcome(correct=False, score=0.0, reason="expected 756,102 sq km", source="gold")
    )
    assert len(policy.seen) == 3
    shown = " ".join(context.model_dump_json(exclude={"embedding", "recent"}) for context in policy.seen)
    assert "secret-family" not in shown
    assert "expected" not in shown


async def test_concat_titles_every_block_and_skips_empty_providers() -> None:
    providers = pool(ToyProvider("a", "alpha"), ToyProvider("b"), ToyProvider("c", "gamma"))
    session = await begun(Script(BeginDecision(providers=("a", "b", "c"), combine="concat")), providers)
    assert session.memory == "From A:\nalpha\n\nFrom C:\ngamma"
    assert [i.provider for i in session.injections] == ["a", "c"]


@pytest.mark.parametrize(
    "decision",
    [
        BeginDecision(providers=("nobody",)),
        BeginDecision(providers=("a", "b")),
        BeginDecision(providers=("a", "a"), combine="concat"),
        BeginDecision(providers=("a", "b"), combine="fuse"),  # without a fuser
    ],
)
async def test_illegal_begin_decisions_are_refused_by_name(decision: BeginDecision) -> None:
    with pytest.raises(ConfigError, match="script"):
        await begun(Script(decision), pool(ToyProvider("a", "alpha"), ToyProvider("b", "beta")))


class Joined:
    """A fuser that joins what it is given."""

    async def fuse(self, question: str, parts: Sequence[tuple[str, str]]) -> str:
        return " + ".join(f"{title} {text}" for title, text in parts)


async def test_fused_providers_give_one_note_with_all_skills_and_effects() -> None:
    providers = pool(ToyProvider("a", "alpha", skills=(SKILL,)), ToyProvider("b"), ToyProvider("c", "gamma"))
    decision = BeginDecision(providers=("a", "b", "c"), combine="fuse")
    session = MemorySession(toy_task(), toy_query(), providers, Script(decision), fuser=Joined())
    await session.begin()
    assert session.memory == "A alpha + C gamma"
    assert session.skills == (SKILL,)
    assert [injection.provider for injection in session.injections] == ["fused"]
    ending = await session.end(toy_trajectory(), Outcome(correct=True))
    assert [effect.provider for effect in ending.effects] == ["a", "b", "c"]


async def test_fusing_nothing_injects_nothing() -> None:
    decision = BeginDecision(providers=("a",), combine="fuse")
    session = MemorySession(toy_task(), toy_query(), pool(ToyProvider("a")), Script(decision), fuser=Joined())
    await session.begin()
    assert session.injections == ()


async def test_a_failed_retrieval_is_not_nothing_found() -> None:
    providers = pool(ToyProvider("a", "alpha"))
    providers["a"].broken = True
    with pytest.raises(ProviderError, match="cannot be reached"):
        await begun(Script(BeginDecision(providers=("a",))), providers)


async def test_empty_working_memory_forces_no_op_without_asking() -> None:
    policy = Script(BeginDecision())
    session = await begun(policy, pool(ToyProvider("a")))
    assert await session.step(()) == ""
    assert not any(isinstance(context, InContext) for context in policy.seen)
    last = session.decisions[-1]
    assert (last.phase, last.forced) == ("in", True)


async def test_step_feeds_each_step_once_and_injects_what_it_shows() -> None:
    policy = Script(BeginDecision())
    session = await begun(policy, pool(ToyProvider("a")))
    steps = (fact_step(0), fact_step(1, "Coastline: 6,435 km"))
    text = await session.step(steps)
    again = await session.step(steps)
    assert "756,102" in text
    assert again == text
    assert [(i.phase, i.provider, i.step) for i in session.injections] == [("in", SHORT_TERM, 2)] * 2
    assert session.memory == ""


async def test_forced_no_op_injects_nothing_but_records_what_it_could_have() -> None:
    session = await begun(Forced(Arm(provider="none", in_mode="no_op")), pool(ToyProvider("a", "alpha")))
    assert await session.step((fact_step(0), fact_step(1))) == ""
    assert session.injections == ()
    decided = session.decisions[-1]
    assert isinstance(decided.context, InContext)
    assert decided.context.summary
    assert not decided.forced


async def test_in_contexts_carry_no_clock_and_only_the_start_of_observations() -> None:
    policy = Script(BeginDecision())
    session = await begun(policy, pool(ToyProvider("a")))
    long = "Population: 19.6 million\nArea: 756,102 sq km\n" + "y" * 5000
    await session.step(tuple(fact_step(i, long) for i in range(5)))
    context = policy.seen[-1]
    assert isinstance(context, InContext)
    assert [step.index for step in context.recent] == [2, 3, 4]
    assert all(len(step.observation) == 300 and step.seconds == 0 and not step.usage for step in context.recent)


async def test_fewer_steps_than_before_is_the_agents_fault() -> None:
    session = await begun(Script(BeginDecision()), pool(ToyProvider("a")))
    await session.step((fact_step(0),))
    with pytest.raises(AgentError, match="all steps"):
        await session.step(())


@pytest.mark.parametrize(("correct", "kept"), [(True, ("s", "a")), (False, ("a",)), (None, ("a",))])
async def test_closed_gates_keep_nothing_whatever_the_policy_says(correct: bool | None, kept: tuple[str, ...]) -> None:
    providers = pool(ToyProvider("s", "x", gate="success"), ToyProvider("a", "y"))
    session = await begun(Script(BeginDecision(providers=("a",)), end=("a", "s")), providers)
    ending = await session.end(toy_trajectory(), Outcome(correct=correct))
    assert ending.stores == kept
    assert ending.decision.providers == kept
    assert ending.effects == (Effect(provider="a", kind="used", record_id="r1"),)
    assert "store" not in providers["a"].calls + providers["s"].calls


async def test_end_is_told_what_a_verifier_says_of_the_run_where_one_is_asked() -> None:
    async def describe(trajectory: Trajectory) -> str:
        return f"trust {'high' if trajectory.answer else 'failed'}"

    for said, expected in ((None, ""), (describe, "trust high")):
        policy = Script(BeginDecision())
        session = MemorySession(toy_task(), toy_query(), pool(ToyProvider("a", "x")), policy, describe=said)
        await session.begin()
        await session.end(toy_trajectory(), Outcome(correct=True))
        context = session.decisions[-1].context
        assert isinstance(context, EndContext)
        assert context.descriptor == expected


async def test_no_open_gate_means_the_policy_is_not_asked() -> None:
    policy = Script(BeginDecision(), end=("s",))
    session = await begun(policy, pool(ToyProvider("s", "x", gate="success")))
    ending = await session.end(toy_trajectory(), Outcome(correct=False))
    assert ending.stores == ()
    assert not any(isinstance(context, EndContext) for context in policy.seen)


async def test_an_ending_applies_effects_before_stores_and_a_failure_stops_nobody() -> None:
    providers = pool(ToyProvider("a", "alpha"), ToyProvider("b", "beta"))
    session = await begun(Script(BeginDecision(providers=("b",)), end=("a", "b")), providers)
    ending = await session.end(toy_trajectory(), Outcome(correct=True))
    providers["a"].broken = True
    receipts = await apply_ending(ending, toy_trajectory(), Outcome(correct=True), providers)
    assert [(r.provider, r.status) for r in receipts] == [("a", "failed"), ("b", "stored")]
    assert "cannot write" in receipts[0].reason
    assert providers["b"].calls == ["probe", "retrieve", "apply 1", "store"]


async def test_skills_run_through_the_runner_and_without_one_say_so() -> None:
    class Runner:
        async def run(self, skill: SkillSpec, arguments: dict[str, object], tools: tuple[object, ...]) -> object:
            class Result:
                result = ToolResult(observation=f"{skill.name}({arguments})")

            return Result()

    providers = pool(ToyProvider("a", "alpha", skills=(SKILL,)))
    policy = Script(BeginDecision(providers=("a",)))
    session = MemorySession(toy_task(), toy_query(), providers, policy, skill_runner=Runner())  # type: ignore[arg-type]
    assert (await session.call_skill(SKILL, {"x": 1}, ())).observation == "area({'x': 1})"
    bare = MemorySession(toy_task(), toy_query(), providers, policy)
    with pytest.raises(AgentError, match="area"):
        await bare.call_skill(SKILL, {}, ())


def test_the_summary_names_what_happened_and_stays_short() -> None:
    steps = (*(fact_step(i) for i in range(3)), fact_step(3).model_copy(update={"tool": "search", "error": "x"}))
    text = summarise(toy_trajectory(steps))
    for part in (
        "What is the area of Chile?",
        "Steps: 4 (open 3, search 1)",
        "Errors: 1",
        "Pages: 4",
        "Answer: 756,102",
    ):
        assert part in text
    assert text.count("last updated 2020") == 1
    endless = toy_trajectory(steps, answer="z" * 5000).model_copy(update={"question": "q" * 5000})
    assert len(summarise(endless)) <= 600
