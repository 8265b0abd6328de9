"""Answers of a given shape: a JSON schema is asked for, and what comes back is validated by pydantic."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Shape = TypeVar("Shape", bound=BaseModel)

_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)


def response_format(shape: type[BaseModel]) -> dict[str, Any]:
    """The `response_format` of the request, in the strict form: no further fields, every field required."""
    schema = _strict(shape.model_json_schema())
    return {"type": "json_schema", "json_schema": {"name": shape.__name__, "schema": schema, "strict": True}}


def read(text: str, shape: type[Shape]) -> Shape:
    """The first JSON object in an answer as `shape`, whatever prose or fence stands around it.

    Raises ValueError (pydantic's error is one) that says what is wrong with it.
    """
    answer = _THINKING.sub("", text)
    start = answer.find("{")
    if start < 0:
        raise ValueError("there is no JSON object in the answer")
    try:
        value, _ = json.JSONDecoder().raw_decode(answer, start)
    except json.JSONDecodeError as error:
        raise ValueError(f"the JSON does not parse: {error}") from error
    return shape.model_validate(value)


def complaint(error: ValueError) -> str:
    """What to tell the model about its unreadable answer."""
    reasons = (
        "; ".join(f"{'.'.join(map(str, each['loc'])) or 'object'}: {each['msg']}" for each in error.errors())
        if isinstance(error, ValidationError)
        else str(error)
    )
    return f"That answer cannot be used: {reasons}. Reply again with the JSON object alone, in the requested form."


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(part) for key, part in schema.items() if key not in ("default", "properties")}
    if isinstance(properties := schema.get("properties"), dict):
        strict["properties"] = {name: _strict(part) for name, part in properties.items()}
        strict |= {"additionalProperties": False, "required": list(properties)}
    return strict
