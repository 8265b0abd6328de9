"""A ReAct agent (reason, act, observe) over any chat model: one tool call or the answer per step."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lm.abilities import obeys_tool_choice
from lm.client import ChatModel
from lm.types import Completion, Message, Usage
from providers.errors import ConfigError
from providers.tools import Tool, ToolResult, is_stateful
from providers.types import Step, Task, Trajectory
from synth.agents.actions import ANSWER, Action, ActionSpace, Unreadable, action_space
from synth.agents.base import AgentSession
from synth.agents.transcript import Exchange, transcript

if TYPE_CHECKING:
    import jinja2

UNREADABLE = "unreadable"
"""The tool's name of a step in which the model gave no action."""

LAST_CALL = "This is your last step: answer now, with the best that you have."

_FOUND = ("The page says it.", "41 km")
"""How the worked example ends: thought and answer."""
NO_CHANGE = "(You did this before and it gave the same: take another action.)"

_SAID = 500
"""Characters of an unreadable answer that the model is shown again."""
_TOKEN_CHARS = 4
"""Of English, about; other scripts take more tokens."""
_OPENING_CHARS = 4000
"""Of the instructions, the task and its memory, about."""
_SEEN = 300
"""Characters of the earlier observation in the reply to a repeated action."""


class ReAct:
    """Asks the agent's model for one action at a time; everything that goes wrong in one is its observation.

    `actions`: `tools` are native tool calls, `json` actions written to a JSON schema, `auto` the former where the
    endpoint obeys them. `page_chars` cuts every observation, `context_chars` bounds the prompt, in which the `latest`
    steps stand whole. `example` shows one worked example, which small models need.
    """

    name = "react"

    def __init__(
        self,
        model: ChatModel,
        *,
        actions: Literal["auto", "tools", "json"] = "auto",
        page_chars: int = 4000,
        context_chars: int = 24_000,
        latest: int = 3,
        max_tokens: int = 512,
        example: bool = True,
    ) -> None:
        if actions not in ("auto", "tools", "json"):
            raise ConfigError(f"agent.options.actions is {actions!r}: give auto, tools or json.")
        self.model = model
        self.page_chars, self.context_chars, self.latest = page_chars, context_chars, latest
        self.max_tokens, self.example = max_tokens, example
        self._native: bool | None = {"tools": True, "json": False}.get(actions)

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        """At most `max_steps` steps, of which the last can only answer. Raises ModelError where the endpoint fails."""
        return await _Attempt(self, task, tools, session, seed, max_steps, native=await self.native()).run()

    def most_tokens(self, max_steps: int) -> Usage:
        """What a run of so many steps takes at most, at four characters a token."""
        growth = self.page_chars + self.max_tokens * _TOKEN_CHARS
        shown = [min(self.context_chars, _OPENING_CHARS + step * growth) for step in range(max_steps)]
        answers = max_steps * (self.max_tokens + self.model.thinking_tokens)
        return Usage(prompt_tokens=sum(shown) // _TOKEN_CHARS, completion_tokens=answers)

    async def native(self) -> bool:
        """Whether actions are native tool calls; asks the endpoint once where the config leaves it open."""
        if self._native is None:
            self._native = await obeys_tool_choice(self.model, purpose="agent")
        return self._native


class _Attempt:
    """One run of one task."""

    def __init__(
        self,
        agent: ReAct,
        task: Task,
        tools: tuple[Tool, ...],
        session: AgentSession,
        seed: int,
        max_steps: int,
        *,
        native: bool,
    ) -> None:
        self.agent, self.task, self.toolset, self.session = agent, task, tools, session
        self.seed, self.max_steps, self.native = seed, max_steps, native
        self.tools = {tool.name: tool for tool in tools}
        self.skills = {skill.name: skill for skill in session.skills if skill.name not in self.tools}
        stateful = {tool.name for tool in tools if is_stateful(tool)}
        self.again = stateful | (self.skills.keys() if stateful else set())
        """What may be done again: in a world that has changed it may give something else."""
        self.space = action_space(tools, session.skills)
        self.system = _system(self.space, written=not native, example=agent.example, world=bool(stateful))
        self.steps: list[Step] = []
        self.exchanges: list[Exchange] = []
        self.done: dict[str, Step] = {}
        self.gave: dict[str, str] = {}
        """What actions that may be done again gave the last time."""

    async def run(self) -> Trajectory:
        answer = None
        while answer is None and len(self.steps) < self.max_steps:
            working = await self.session.step(tuple(self.steps))
            last = len(self.steps) == self.max_steps - 1
            answer = await self._step(working, last=last)
        return self._trajectory(answer or None)

    async def _step(self, working: str, *, last: bool) -> str | None:
        """One step: decide, act, keep. Gives the answer where that was the action ("" for an empty one)."""
        space = self.space.only_answer() if last else self.space
        completion = await self._ask(space, working, last=last)
        try:
            action = self._read(space, completion)
        except Unreadable as problem:
            self._keep_unreadable(completion, str(problem))
            return None
        started, clock = time.time(), time.perf_counter()
        result = await self._act(action)
        self._keep(action, completion, result, started, time.perf_counter() - clock)
        return str(action.arguments.get("text", "")).strip() if action.tool == ANSWER else None

    async def _ask(self, space: ActionSpace, working: str, *, last: bool) -> Completion:
        notes = [f"Notes from your steps so far:\n{working}"] if working else []
        messages = transcript(
            self.system,
            self._opening,
            self.exchanges,
            "\n\n".join([*notes, LAST_CALL] if last else notes),
            limit=self.agent.context_chars,
            latest=self.agent.latest,
        )
        how: dict[str, Any] = {"response_format": space.response_format}
        if self.native:
            only = {"type": "function", "function": {"name": ANSWER}}
            how = {"tools": space.specs, "tool_choice": only if last else "required"}
        return await self.agent.model.complete(
            messages, purpose="agent", max_tokens=self.agent.max_tokens, sample=self.seed, **how
        )

    def _opening(self, left_out: int) -> str:
        return _template("react_task.jinja").render(
            question=self.task.question,
            attachments=self.task.attachments,
            memory=self.session.memory,
            left_out=left_out,
        )

    def _read(self, space: ActionSpace, completion: Completion) -> Action:
        return space.called(completion) if self.native else space.written(completion)

    async def _act(self, action: Action) -> ToolResult:
        if action.tool == ANSWER:
            return ToolResult(observation="Answer noted.")
        earlier = self.done.get(_identity(action))
        if earlier is not None and action.tool not in self.again:
            return _already(earlier)
        if action.tool in self.skills:
            result = await self.session.call_skill(self.skills[action.tool], action.arguments, self.toolset)
        else:
            result = await self.tools[action.tool].call(**action.arguments)
        return self._told_again(action, result) if action.tool in self.again else result

    def _told_again(self, action: Action, result: ToolResult) -> ToolResult:
        """What was done again in a world and changed nothing is said to be so, first: long observations are cut."""
        before = self.gave.get(_identity(action))
        self.gave[_identity(action)] = result.observation
        if before != result.observation:
            return result
        return result.model_copy(update={"observation": f"{NO_CHANGE}\n{result.observation}"})

    def _keep(self, action: Action, completion: Completion, result: ToolResult, started: float, seconds: float) -> None:
        observation = _cut(result.observation, self.agent.page_chars)
        if len(completion.tool_calls) > 1:
            observation += f"\n(Only the first of {len(completion.tool_calls)} calls was made: call one at a time.)"
        step = Step(
            index=len(self.steps),
            thought=action.thought,
            tool=action.tool,
            arguments=action.arguments,
            observation=observation,
            error=result.error,
            started=started,
            seconds=seconds,
            usage=_usage(completion),
            lineage=result.lineage,
        )
        self.steps.append(step)
        self.done.setdefault(_identity(action), step)
        self.exchanges.append(Exchange(self._said(action, completion), observation))

    def _keep_unreadable(self, completion: Completion, problem: str) -> None:
        said = completion.text.strip()[:_SAID]
        self.steps.append(
            Step(
                index=len(self.steps),
                thought=said,
                tool=UNREADABLE,
                observation=problem,
                error=problem,
                started=time.time(),
                usage=_usage(completion),
            )
        )
        self.exchanges.append(Exchange(Message(role="assistant", content=said or "(nothing)"), problem))

    def _said(self, action: Action, completion: Completion) -> Message:
        """The model's own turn as it is shown again: the action that was taken and nothing that followed it."""
        if self.native:
            return Message(role="assistant", content=action.thought, tool_calls=completion.tool_calls[:1])
        turn = {"thought": action.thought, "action": {"tool": action.tool, **action.arguments}}
        return Message(role="assistant", content=json.dumps(turn, ensure_ascii=False))

    def _trajectory(self, answer: str | None) -> Trajectory:
        return Trajectory.make(
            task_id=self.task.id,
            question=self.task.question,
            agent=self.agent.name,
            seed=self.seed,
            settings={
                "model": self.agent.model.model,
                "actions": "tools" if self.native else "json",
                "max_steps": self.max_steps,
                "page_chars": self.agent.page_chars,
                "context_chars": self.agent.context_chars,
                "latest": self.agent.latest,
                "example": self.agent.example,
            },
            steps=tuple(self.steps),
            answer=answer,
            status=tuple(self._signs()),
            injections=self.session.injections,
            usage={"steps": float(len(self.steps)), **_sums(self.steps)},
        )

    def _signs(self) -> Iterator[str]:
        for step in self.steps:
            if step.error:
                yield f"step {step.index}: {step.error}"
        if len(self.steps) == self.max_steps:
            yield "step limit reached"


def _system(space: ActionSpace, *, written: bool, example: bool, world: bool) -> str:
    return _template("react_system.jinja").render(
        tools=space.choices,
        written=written,
        asked="Ring the bell." if world else "What is the length of the Ilmen delta?",
        example=list(_example(space, written=written, world=world)) if example else (),
    )


def _example(space: ActionSpace, *, written: bool, world: bool) -> Iterator[str]:
    """The worked example with the task's own tools: looking for a thing, opening it where that is a tool, answering.

    In a `world`, whose first tool acts, something is done: small models take whatever they are shown for an action.
    """
    choices = {choice.name: choice for choice in space.choices}
    first = next(iter(choices))
    shown, end = [(first, "Ilmen delta length", "I must look for it.", "Ilmen delta: its length is 41 km.")], _FOUND
    if world:
        shown, end = [(first, "ring bell", "The bell is here.", "The bell rings.")], ("It has rung.", "done")
    elif {"search", "open"} <= choices.keys():
        shown = [
            ("search", "Ilmen delta length", "I must look for it.", "1. [Ilmen: Rivers](/ilmen/rivers)"),
            ("open", "/ilmen/rivers", "The first result fits.", "# Ilmen: Rivers\nDelta: length 41 km, width 12 km"),
        ]
    for name, value, thought, observation in shown:
        if name != ANSWER:
            yield _line(thought, name, {one.name: value for one in choices[name].parameters[:1]}, written=written)
            yield f"Observation:\n{observation}"
    yield _line(end[0], ANSWER, {"text": end[1]}, written=written)


def _line(thought: str, tool: str, arguments: dict[str, Any], *, written: bool) -> str:
    if written:
        return json.dumps({"thought": thought, "action": {"tool": tool, **arguments}}, ensure_ascii=False)
    return f"{thought} Call {tool} with {json.dumps(arguments, ensure_ascii=False)}."


def _already(earlier: Step) -> ToolResult:
    """The reply to an action that was taken before: models that repeat themselves otherwise go on doing so."""
    return ToolResult(
        observation=f"You did this already in step {earlier.index + 1}, and it gave: "
        f"{_cut(earlier.observation, _SEEN)}\nTake another action, or answer.",
        error="repeated action",
        lineage=earlier.lineage,
    )


def _identity(action: Action) -> str:
    return json.dumps([action.tool, action.arguments], sort_keys=True, ensure_ascii=False)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n(cut; {len(text) - limit} characters more)"


def _usage(completion: Completion) -> dict[str, float]:
    used = completion.usage
    return {} if used is None else {name: float(count) for name, count in used.model_dump().items()}


def _sums(steps: list[Step]) -> dict[str, float]:
    names = sorted({name for step in steps for name in step.usage})
    return {name: sum(step.usage.get(name, 0.0) for step in steps) for name in names}


@lru_cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template(name)
