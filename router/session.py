"""The lifecycle of memory around one task: probe, begin, steps, end (MemAgent B.1, Algorithm 1).

Warm-up, exploration, evaluation and serving all run tasks through `MemorySession`; nothing else knows the order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from providers.base import MemoryProvider
from providers.errors import AgentError, ConfigError, ProviderError
from providers.short_term import ShortTermMemory
from providers.tools import Tool, ToolResult
from providers.types import (
    Effect,
    Flow,
    Injection,
    Outcome,
    Preview,
    Query,
    Retrieval,
    SkillSpec,
    Step,
    StoreReceipt,
    Task,
    Trajectory,
)
from router.context import BeginContext, EndContext, InContext
from router.decisions import SHORT_TERM, BeginDecision, EndDecision, InDecision, Policy
from router.guide import shorten

if TYPE_CHECKING:
    from providers.skills import SkillRunner
    from router.policies.fuse import Fuser

FUSED = "fused"
"""The provider's name in an injection that is one note of several providers."""
PREVIEW_LIMIT = 200
RECENT_STEPS = 3
OBSERVATION_LIMIT = 300
SUMMARY_LIMIT = 600


@dataclass(frozen=True)
class Decided:
    """One decision with what it was taken from. `forced`: there was no choice, so the policy was not asked."""

    phase: Literal["begin", "in", "end"]
    context: BeginContext | InContext | EndContext
    decision: BeginDecision | InDecision | EndDecision
    forced: bool = False


class SessionState(Flow):
    """A session between two calls, for a caller that keeps it elsewhere than in this process."""

    previews: tuple[Preview, ...] = ()
    injections: tuple[Injection, ...] = ()
    skills: tuple[SkillSpec, ...] = ()
    effects: tuple[Effect, ...] = ()


class Ending(Flow):
    """What the end of a task leaves to do: the caller applies it at once, or after the wave."""

    decision: EndDecision
    """Reduced to providers whose gate is open."""
    stores: tuple[str, ...]
    """Providers to offer the trajectory to, in the order of the config."""
    effects: tuple[Effect, ...]
    """What the retrievals at Begin implied."""


async def probe_all(query: Query, providers: Mapping[str, MemoryProvider]) -> tuple[Preview, ...]:
    """Every provider's preview in the order of `providers`, at most 200 characters each, off the event loop."""
    previews = await asyncio.gather(*(asyncio.to_thread(provider.probe, query) for provider in providers.values()))
    return tuple(
        preview.model_copy(update={"provider": name, "text": preview.text.strip()[:PREVIEW_LIMIT]})
        for name, preview in zip(providers, previews, strict=True)
    )


class MemorySession:
    """One task's memory, as its agent sees it (`synth.agents.base.AgentSession`) and as its caller drives it.

    Call `begin`, run the agent (which calls `step` before every action), then `end`. Nothing is written to any
    provider: `end` returns what is to be stored and applied. `decisions` records what was decided and from what.
    """

    def __init__(
        self,
        task: Task,
        query: Query,
        providers: Mapping[str, MemoryProvider],
        policy: Policy,
        *,
        previews: Sequence[Preview] | None = None,
        retrievals: Mapping[str, Retrieval] | None = None,
        skill_runner: SkillRunner | None = None,
        fuser: Fuser | None = None,
        state: SessionState | None = None,
        describe: Callable[[Trajectory], Awaitable[str]] | None = None,
    ) -> None:
        """`previews` and `retrievals` stand for probing and retrieving again where the caller already did.

        `fuser` writes the note of a decision that fuses providers. `state` continues a session that began earlier: no
        memory is asked again, so `query` needs no embedding, and its first `step` is given all steps so far as ever.
        `describe` says in coarse words what a verifier makes of the finished run, for End to see.
        """
        self._task = task.public()
        self._query = query
        self._providers = providers
        self._cards = tuple(provider.card for provider in providers.values())
        self._policy = policy
        state = state or SessionState(previews=tuple(previews or ()))
        self._previews = state.previews or (None if previews is None else ())
        self._retrievals = dict(retrievals or {})
        self._skill_runner = skill_runner
        self._fuser = fuser
        self._describe = describe
        self._working = ShortTermMemory(task.question)
        self._observed = 0
        self._skills = state.skills
        self._injections = list(state.injections)
        self._effects = state.effects
        self.decisions: list[Decided] = []

    @property
    def memory(self) -> str:
        """Long-term memory injected at Begin; empty where there is none."""
        return "\n\n".join(i.text for i in self._injections if i.phase == "begin" and i.text)

    @property
    def skills(self) -> tuple[SkillSpec, ...]:
        """Callable skills retrieved at Begin."""
        return self._skills

    @property
    def injections(self) -> tuple[Injection, ...]:
        """All that was injected so far."""
        return tuple(self._injections)

    @property
    def state(self) -> SessionState:
        """What has to be kept for this session to be continued elsewhere, beside its task and its steps."""
        return SessionState(
            previews=self._previews or (),
            injections=tuple(self._injections),
            skills=self._skills,
            effects=self._effects,
        )

    async def begin(self) -> None:
        """Probe all, let the policy choose, retrieve. A failed retrieval raises: it is not "nothing found"."""
        if self._previews is None:
            self._previews = await probe_all(self._query, self._providers)
        context = BeginContext(
            task_id=self._task.id,
            question=self._task.question,
            query="" if self._query.text == self._task.question else self._query.text,
            embedding=self._query.embedding,
            previews=self._previews,
            cards=self._cards,
        )
        decision = await self._policy.begin(context)
        self._check_names("begin", decision.providers)
        if decision.combine == "single" and len(decision.providers) > 1:
            raise ConfigError(
                f"Policy {self._policy.name!r} chose {len(decision.providers)} providers as 'single'; "
                "a session takes one provider, or several as 'concat' or 'fuse'."
            )
        self.decisions.append(Decided("begin", context, decision))
        if decision.combine == "fuse":
            await self._inject_fused([(name, await self._retrieve(name)) for name in decision.providers])
            return
        for name in decision.providers:
            self._inject(name, await self._retrieve(name), titled=decision.combine == "concat")

    async def step(self, steps: tuple[Step, ...]) -> str:
        """The working memory to show before the next action, or empty.

        `steps` are all steps of the task so far. Where the working memory has nothing to show, In is no_op
        without asking the policy.
        """
        self.observe(steps)
        text = self._working.render()
        context = InContext(
            task_id=self._task.id,
            question=self._task.question,
            step=len(steps),
            summary=self._working.summary() if text else "",
            recent=tuple(_seen(step) for step in steps[-RECENT_STEPS:]),
        )
        decision = await self._policy.step(context) if text else InDecision(action="no_op")
        self.decisions.append(Decided("in", context, decision, forced=not text))
        if decision.action == "no_op":
            return ""
        self._injections.append(Injection(phase="in", step=len(steps), provider=SHORT_TERM, text=text))
        return text

    def observe(self, steps: tuple[Step, ...]) -> None:
        """Take in steps without deciding anything: what `step` begins with, for callers that do it in a thread."""
        if len(steps) < self._observed:
            raise AgentError(f"The agent passed {len(steps)} steps after {self._observed}; pass all steps so far.")
        for step in steps[self._observed :]:
            self._working.observe(step)
        self._observed = len(steps)

    async def call_skill(self, skill: SkillSpec, arguments: dict[str, object], tools: tuple[Tool, ...]) -> ToolResult:
        """Run a retrieved skill in its sandbox with the task's own tools."""
        if self._skill_runner is None:
            raise AgentError(f"Skill {skill.name!r} cannot run: this session was made without a skill runner.")
        return (await self._skill_runner.run(skill, arguments, tools)).result

    async def end(self, trajectory: Trajectory, outcome: Outcome) -> Ending:
        """Let the policy choose who keeps the trajectory; providers whose gate is closed are taken out.

        The policy sees whether the answer was correct and who says so, never the scorer's reason.
        """
        context = EndContext(
            task_id=self._task.id,
            question=self._task.question,
            summary=summarise(trajectory),
            outcome=Outcome(correct=outcome.correct, source=outcome.source),
            cards=self._cards,
            descriptor=await self._describe(trajectory) if self._describe is not None else "",
        )
        accepting = [card.name for card in self._cards if card.accepts(outcome)]
        decision = await self._policy.end(context) if accepting else EndDecision()
        self._check_names("end", decision.providers)
        self.decisions.append(Decided("end", context, decision, forced=not accepting))
        stores = tuple(name for name in accepting if name in decision.providers)
        return Ending(decision=decision.model_copy(update={"providers": stores}), stores=stores, effects=self._effects)

    async def _retrieve(self, name: str) -> Retrieval:
        if name in self._retrievals:
            return self._retrievals[name]
        return await self._providers[name].retrieve(self._query)

    async def _inject_fused(self, retrieved: Sequence[tuple[str, Retrieval]]) -> None:
        """One note of all texts; skills stay as they are."""
        if self._fuser is None:
            raise ConfigError(f"Policy {self._policy.name!r} fuses providers: make the session with a fuser.")
        for _, retrieval in retrieved:
            self._effects += retrieval.effects
            self._skills += retrieval.skills
        parts = [(self._providers[name].card.title, found.text) for name, found in retrieved if found.text]
        if not parts and not self._skills:
            return
        note = await self._fuser.fuse(self._task.question, parts) if parts else ""
        item_ids = tuple(item for _, found in retrieved for item in found.item_ids)
        skills = tuple(skill.name for skill in self._skills)
        self._injections.append(Injection(phase="begin", provider=FUSED, text=note, item_ids=item_ids, skills=skills))

    def _inject(self, name: str, retrieval: Retrieval, *, titled: bool) -> None:
        self._effects += retrieval.effects
        self._skills += retrieval.skills
        if retrieval.empty:
            return
        title = self._providers[name].card.title
        self._injections.append(
            Injection(
                phase="begin",
                provider=name,
                text=f"From {title}:\n{retrieval.text}" if titled else retrieval.text,
                item_ids=retrieval.item_ids,
                skills=tuple(skill.name for skill in retrieval.skills),
            )
        )

    def _check_names(self, phase: str, names: tuple[str, ...]) -> None:
        unknown = [name for name in names if name not in self._providers]
        if unknown or len(set(names)) < len(names):
            raise ConfigError(
                f"Policy {self._policy.name!r} decided {list(names)} at {phase}; "
                f"it may choose each of {list(self._providers)} once."
            )


async def apply_ending(
    ending: Ending, trajectory: Trajectory, outcome: Outcome, providers: Mapping[str, MemoryProvider]
) -> tuple[StoreReceipt, ...]:
    """Apply effects, then offer the trajectory; one receipt per provider of `ending.stores`, in that order."""
    await asyncio.to_thread(apply_effects, ending.effects, outcome, providers)
    return await offer(ending.stores, trajectory, outcome, providers)


def apply_effects(effects: Sequence[Effect], outcome: Outcome, providers: Mapping[str, MemoryProvider]) -> None:
    """Give every provider its own effects, in the order of `providers`."""
    for name, provider in providers.items():
        own = tuple(effect for effect in effects if effect.provider == name)
        if own:
            provider.apply(own, outcome)


async def offer(
    names: Sequence[str], trajectory: Trajectory, outcome: Outcome, providers: Mapping[str, MemoryProvider]
) -> tuple[StoreReceipt, ...]:
    """Offer a trajectory to these providers; one receipt each, in that order.

    A provider that fails gets a receipt `failed` and the others still store.
    """
    receipts = []
    for name in names:
        try:
            receipts.append(await providers[name].store(trajectory, outcome))
        except ProviderError as error:
            receipts.append(StoreReceipt(provider=name, status="failed", reason=str(error)))
    return tuple(receipts)


def summarise(trajectory: Trajectory) -> str:
    """The finished run in at most 600 characters: question, steps, tools, pages, answer, signs seen at run time."""
    tools = Counter(step.tool for step in trajectory.steps)
    errors = sum(step.error is not None for step in trajectory.steps)
    pages = list(dict.fromkeys(step.lineage.source for step in trajectory.steps if step.lineage is not None))
    lines = [
        f"Question: {shorten(trajectory.question, 200)}",
        f"Steps: {len(trajectory.steps)} ({', '.join(f'{tool} {count}' for tool, count in tools.most_common())})",
        f"Errors: {errors}",
        f"Pages: {len(pages)}, last {shorten(', '.join(pages[-2:]), 100)}" if pages else "Pages: 0",
        f"Answer: {shorten(trajectory.answer or '(none)', 80)}",
        f"Signs: {shorten('; '.join(dict.fromkeys(trajectory.status)) or '(none)', 120)}",
    ]
    return "\n".join(lines)[:SUMMARY_LIMIT]


def _seen(step: Step) -> Step:
    """A step as an In context shows it: no thought, clock or usage, and the start of its observation."""
    return Step(
        index=step.index,
        tool=step.tool,
        arguments=step.arguments,
        observation=step.observation[:OBSERVATION_LIMIT],
        error=step.error,
    )
