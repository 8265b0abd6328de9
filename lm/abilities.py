"""What an endpoint can do, found out by asking: some accept a setting with status 200 and ignore it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lm.errors import ModelError
from lm.types import Message, Purpose, ToolSpec

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


async def obeys_tool_choice(model: ChatModel, *, purpose: Purpose) -> bool:
    """Whether the endpoint makes the model call the one tool that it is told to call, with readable arguments.

    Raises ModelError where the endpoint cannot be asked at all.
    """
    try:
        answer = await model.complete(
            [_QUESTION],
            purpose=purpose,
            temperature=0.0,
            max_tokens=_TOKENS,
            tools=[_REPORT],
            tool_choice={"type": "function", "function": {"name": _REPORT.name}},
        )
    except ModelError as error:
        if error.status in (400, 404, 422, 501):
            return False  # it says that it knows no tools, which is an answer
        raise
    if len(answer.tool_calls) != 1 or answer.tool_calls[0].name != _REPORT.name:
        return False
    try:
        arguments = json.loads(answer.tool_calls[0].arguments)
    except ValueError:
        return False
    return isinstance(arguments, dict) and isinstance(arguments.get("colour"), str)
