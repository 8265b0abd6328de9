"""A judge that is a chat model (MemAgent B.2): reasons first, then a whole number per dimension."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, Field, create_model

from lm.structured import response_format
from lm.types import Completion, Message, Purpose
from providers.errors import JudgeError, ModelError
from providers.types import Step, content_hash
from synth.judge.cases import BEGIN_ACTIONS, BEGIN_TASK, IN_ACTIONS, IN_TASK, MEMORY, BeginCase, Case, EndCase, InCase
from synth.judge.reply import REASON, read_verdict
from synth.judge.scale import DIMENSIONS, JudgedPhase, Unscored, Verdict

if TYPE_CHECKING:
    import jinja2

PURPOSE: Purpose = "judge"

MAX_TOKENS = 400
"""Room for a few sentences of reasons and the scores."""

OBSERVATION = 160
"""Characters of each observation within the actions that a judge reads."""

_PROMPTS = Path(__file__).parent / "prompts"


class Asked(Protocol):
    """A chat model as a judge needs it; `lm.client.ChatModel` is one."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        purpose: Purpose,
        max_tokens: int = ...,
        response_format: Mapping[str, Any] | None = ...,
    ) -> Completion: ...


class Verdicts(Protocol):
    """Verdicts kept by what was asked, so that nothing is judged twice; `synth.facts.Facts` is one."""

    def verdict(self, key: str) -> Verdict | Unscored | None: ...

    def add_verdict(self, key: str, verdict: Verdict | Unscored) -> None: ...


class LMJudge:
    """Asks a chat model; an unreadable reply is sent back once with what is wrong with it, then the case is unscored.

    A failing endpoint leaves the case unscored too, but is not kept: the next run of the judge asks again.
    """

    name = "lm"

    def __init__(self, model: Asked, verdicts: Verdicts, *, described: str, concurrency: int = 32) -> None:
        """`described` names the model and all that changes its answers."""
        self.says = f"the language model {described}"
        self.identity = content_hash(self.name, described, MAX_TOKENS, prompt_sources())
        self.concurrency = concurrency
        self._model = model
        self._verdicts = verdicts
        self._asking: dict[str, asyncio.Task[Verdict | Unscored]] = {}

    async def judge(self, case: Case) -> Verdict | Unscored:
        if not case.readable:
            return Unscored(kind="nothing to read")
        messages = render(case)
        key = content_hash(self.identity, case.phase, [message.content for message in messages])
        known = self._verdicts.verdict(key)
        if known is not None:
            return known
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(case.phase, messages))
        try:
            found = await asking
        except ModelError as error:
            return Unscored(kind="judge failed", reason=str(error))
        finally:
            if asking.done():
                self._asking.pop(key, None)
        self._verdicts.add_verdict(key, found)
        return found

    async def _ask(self, phase: JudgedPhase, messages: Sequence[Message]) -> Verdict | Unscored:
        turns, problem = list(messages), ""
        for _ in range(2):
            answer = await self._model.complete(
                turns, purpose=PURPOSE, max_tokens=MAX_TOKENS, response_format=response_format(reply_shape(phase))
            )
            try:
                return read_verdict(phase, answer.text)
            except JudgeError as error:
                cut = " (the reply was cut off: give shorter reasons)" if answer.finish_reason == "length" else ""
                problem = f"{error}{cut}"
            turns = [*messages, Message(role="assistant", content=answer.text or "(nothing)"), _complaint(problem)]
        return Unscored(kind="unreadable verdict", reason=problem)


def _complaint(problem: str) -> Message:
    mend = "Reply with the one JSON object alone: the reason, then the scores."
    return Message(role="user", content=f"That reply cannot be used: {problem}. {mend}")


@lru_cache
def reply_shape(phase: JudgedPhase) -> type[BaseModel]:
    """The reply that is asked for: the reason, then every dimension from 0 to 5."""
    fields: dict[str, Any] = {REASON: (str, Field(description="two or three sentences"))}
    fields |= {dimension.name: (Literal[0, 1, 2, 3, 4, 5], ...) for dimension in DIMENSIONS[phase]}
    return create_model(f"{phase.title().replace('_', '')}Verdict", **fields)


def render(case: Case) -> tuple[Message, ...]:
    """The prompt of a case: the scale, then what happened, every field cut as in MemAgent B.2."""
    views: Mapping[type, Callable[[Any], dict[str, Any]]] = {BeginCase: _begin, InCase: _in, EndCase: _end}
    fields = views[type(case)](case)
    dimensions = DIMENSIONS[case.phase]
    system = _template("scale").render(dimensions=dimensions, reason=REASON)
    return (
        Message(role="system", content=system),
        Message(role="user", content=_template(case.phase).render(**fields)),
    )


def _begin(case: BeginCase) -> dict[str, Any]:
    return {
        "task": case.task[:BEGIN_TASK],
        "memory": case.memory[:MEMORY],
        "skills": case.skills,
        "actions": _steps(case.actions, case.answer)[:BEGIN_ACTIONS],
    }


def _in(case: InCase) -> dict[str, Any]:
    following = [] if case.after is None else [case.after]
    return {
        "task": case.task[:IN_TASK],
        "memory": case.memory[:MEMORY],
        "before": _steps(case.before[-2:], None)[-IN_ACTIONS:],
        "after": _steps(following, case.answer if case.after is None else None)[:IN_ACTIONS],
    }


def _end(case: EndCase) -> dict[str, Any]:
    return {
        "task": case.task[:IN_TASK],
        "summary": case.summary[:MEMORY],
        "provider": case.provider,
        "stores": case.stores,
        "earlier": [question[:IN_TASK] for question in case.earlier[-3:]],
    }


def _steps(steps: Sequence[Step], answer: str | None) -> str:
    """One line per action with the start of what came back, then the answer."""
    lines = []
    for step in steps:
        arguments = ", ".join(f"{name}={value}" for name, value in step.arguments.items())
        seen = f"error: {step.error}" if step.error else " ".join(step.observation.split())[:OBSERVATION]
        lines.append(f"{step.tool}({arguments}) -> {seen or '(nothing)'}")
    return "\n".join(lines if answer is None else [*lines, f"answer: {answer}"])


def prompt_sources() -> list[str]:
    """The texts that make the prompts: part of the judge's identity."""
    rubric = [str(DIMENSIONS[phase]) for phase in sorted(DIMENSIONS)]
    return [*(path.read_text(encoding="utf-8") for path in sorted(_PROMPTS.glob("*.jinja"))), *rubric]


@lru_cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PROMPTS),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["quoted"] = _quoted
    return environment.get_template(f"{name}.jinja")


def _quoted(text: str) -> str:
    """Every line behind a bar, so that no line of it can pass for one of the prompt's own."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"| {line}" for line in lines) or "| (empty)"
