"""What an endpoint can do, found out by asking: some accept a setting with status 200 and ignore it."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from lm.errors import ModelError
from lm.structured import read, response_format
from lm.types import Completion, Message, Purpose, ToolSpec

if TYPE_CHECKING:
    from lm.client import ChatModel

_REPORT = ToolSpec(
    name="report_colour",
    description="Report a colour.",
    parameters={
        "type": "object",
        "properties": {"colour": {"type": "string"}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
_QUESTION = Message(role="user", content="Which colour has a ripe lemon?")
_TOKENS = 64
_REFUSALS = (400, 404, 422, 501)
"""Statuses by which an endpoint says that it does not know a setting."""


class _Colour(BaseModel):
    colour: Literal["yellow", "green", "blue"]


@dataclass(frozen=True)
class Abilities:
    """What one endpoint and model do."""

    seconds: float
    """Until the first, short answer."""
    schema: bool
    """Answers follow a JSON schema that the prompt does not show."""
    tool_choice: bool
    """The tool that must be called is called."""
    logprobs: bool


async def examine(model: ChatModel, *, purpose: Purpose) -> Abilities:
    """Ask four short questions. Raises ModelError where the endpoint gives no answer at all."""
    clock = time.perf_counter()
    await model.complete([_QUESTION], purpose=purpose, max_tokens=_TOKENS)
    seconds = time.perf_counter() - clock
    return Abilities(
        seconds=seconds,
        schema=await follows_schema(model, purpose=purpose),
        tool_choice=await obeys_tool_choice(model, purpose=purpose),
        logprobs=await gives_logprobs(model, purpose=purpose),
    )


async def follows_schema(model: ChatModel, *, purpose: Purpose) -> bool:
    """Whether an answer has the form of a JSON schema that stands in the request alone."""
    answer = await _unless_refused(
        model.complete(
            [_QUESTION],
            purpose=purpose,
            temperature=0.0,
            max_tokens=_TOKENS,
            response_format=response_format(_Colour),
        )
    )
    if answer is None:
        return False
    try:
        read(answer.text, _Colour)
    except ValueError:
        return False
    return True


async def obeys_tool_choice(model: ChatModel, *, purpose: Purpose) -> bool:
    """Whether the endpoint makes the model call the one tool that it is told to call, with readable arguments.

    Raises ModelError where the endpoint cannot be asked at all.
    """
    answer = await _unless_refused(
        model.complete(
            [_QUESTION],
            purpose=purpose,
            temperature=0.0,
            max_tokens=_TOKENS,
            tools=[_REPORT],
            tool_choice={"type": "function", "function": {"name": _REPORT.name}},
        )
    )
    if answer is None or len(answer.tool_calls) != 1 or answer.tool_calls[0].name != _REPORT.name:
        return False
    try:
        arguments = json.loads(answer.tool_calls[0].arguments)
    except ValueError:
        return False
    return isinstance(arguments, dict) and isinstance(arguments.get("colour"), str)


async def gives_logprobs(model: ChatModel, *, purpose: Purpose) -> bool:
    """Whether log-probabilities come with an answer."""
    answer = await _unless_refused(
        model.complete([_QUESTION], purpose=purpose, temperature=0.0, max_tokens=1, top_logprobs=5)
    )
    return answer is not None and bool(answer.logprobs and answer.logprobs[0].top)


async def _unless_refused(asked: Awaitable[Completion]) -> Completion | None:
    """The answer, or None where the endpoint says that it does not know the setting; an outage is no such answer."""
    try:
        return await asked
    except ModelError as error:
        if error.status in _REFUSALS:
            return None
        raise
