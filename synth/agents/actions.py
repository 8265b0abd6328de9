"""The actions of a language-model agent: its tools, its retrieved skills, and `answer`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from lm.structured import read, response_format
from lm.types import Completion, ToolSpec
from providers.tools import Tool
from providers.types import Parameter, SkillSpec

ANSWER = "answer"
"""The action that ends a task; its argument is `text`."""

_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "list": list[str]}
_WORDS = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "list": "list of texts"}

_CUT = " It was cut off: think shorter."


class Unreadable(Exception):
    """An answer of the model that is no action; the text is what the model is told."""


@dataclass(frozen=True)
class Action:
    """One action that the model chose."""

    thought: str
    tool: str
    arguments: dict[str, Any]


class _Written(BaseModel):
    """An action as a model writes it where it does not call tools natively."""

    thought: str = ""
    action: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """One thing that can be done. Parameters after the first may be left out (null)."""

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    arguments: type[BaseModel] = field(repr=False, compare=False, default=BaseModel)

    @property
    def signature(self) -> str:
        """The name with its parameters, for prompts."""
        return f"{self.name}({', '.join(f'{one.name}: {_WORDS[one.type]}' for one in self.parameters)})"

    def read(self, arguments: Any) -> dict[str, Any]:
        """Validated arguments without those left out. Raises Unreadable naming what is wrong."""
        try:
            return self.arguments.model_validate(arguments).model_dump(by_alias=True, exclude_none=True)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            raise Unreadable(f"{self.signature} was called with wrong arguments ({wrong}).") from None


class ActionSpace:
    """What an agent may do at one step, as tool specifications and as a JSON schema."""

    def __init__(self, choices: tuple[Choice, ...]) -> None:
        self.choices = choices
        self._by_name = {choice.name: choice for choice in choices}
        self.specs = tuple(_spec(choice) for choice in choices)
        self.response_format = response_format(_schema(choices))

    def only_answer(self) -> ActionSpace:
        """The space of the last step."""
        return _space((self._by_name[ANSWER],))

    def called(self, completion: Completion) -> Action:
        """The first native tool call. Raises Unreadable where there is none or it is wrong."""
        cut = _CUT if completion.finish_reason == "length" else ""
        if not completion.tool_calls:
            raise Unreadable(f"No tool was called.{cut} Call one tool; to end the task, call answer.")
        call = completion.tool_calls[0]
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            raise Unreadable(f"The arguments of {call.name} are no JSON.{cut} Call one tool again.") from None
        return self._action(completion.text.strip(), call.name, arguments)

    def written(self, completion: Completion) -> Action:
        """The first action written as JSON. Raises Unreadable where there is none or it is wrong."""
        try:
            turn = read(completion.text, _Written)
        except ValueError:
            cut = _CUT if completion.finish_reason == "length" else ""
            raise Unreadable(
                f'That was no action.{cut} Reply with {{"thought": "...", "action": {{"tool": "...", ...}}}} alone.'
            ) from None
        arguments = dict(turn.action)
        return self._action(turn.thought.strip(), str(arguments.pop("tool", "")), arguments)

    def _action(self, thought: str, name: str, arguments: Any) -> Action:
        choice = self._by_name.get(name)
        if choice is None:
            raise Unreadable(f"There is no tool {name!r}; there are: {', '.join(self._by_name)}.")
        return Action(thought, name, choice.read(arguments))


def action_space(tools: tuple[Tool, ...], skills: tuple[SkillSpec, ...]) -> ActionSpace:
    """Tools, skills whose name no tool has, and `answer`."""
    named: dict[str, Choice] = {tool.name: _choice(tool.name, tool.doc, tool.parameters) for tool in tools}
    for skill in skills:
        named.setdefault(skill.name, _choice(skill.name, skill.doc or "A skill learned earlier.", skill.parameters))
    named[ANSWER] = _choice(
        ANSWER, "End the task; text is the value alone, as short as it can be.", (Parameter(name="text"),)
    )
    return _space(tuple(named.values()))


@lru_cache(maxsize=256)
def _space(choices: tuple[Choice, ...]) -> ActionSpace:
    return ActionSpace(choices)


@lru_cache(maxsize=256)
def _choice(name: str, doc: str, parameters: tuple[Parameter, ...]) -> Choice:
    return Choice(name, doc, parameters, _model(name, parameters))


def _model(name: str, parameters: tuple[Parameter, ...], **more: Any) -> type[BaseModel]:
    """A model whose fields are the parameters by alias: a parameter may have any name."""
    fields: dict[str, Any] = dict(more)
    for place, one in enumerate(parameters):
        kind: Any = _TYPES[one.type] if place == 0 else _TYPES[one.type] | None
        default: Any = ... if place == 0 else None
        fields[f"parameter_{place}"] = (kind, Field(default=default, alias=one.name, description=one.doc or None))
    return create_model(name, __config__=ConfigDict(extra="ignore", coerce_numbers_to_str=True), **fields)


def _spec(choice: Choice) -> ToolSpec:
    schema = response_format(choice.arguments)["json_schema"]["schema"]
    return ToolSpec(name=choice.name, description=choice.doc, parameters=schema)


def _schema(choices: tuple[Choice, ...]) -> type[BaseModel]:
    """The shape of a written action: the thought first, then one of the tools with its parameters."""
    shapes = tuple(_model(choice.name, choice.parameters, tool=(Literal[choice.name], ...)) for choice in choices)
    action: Any = Union[shapes]  # noqa: UP007
    return create_model("Turn", thought=(str, ...), action=(action, ...))
