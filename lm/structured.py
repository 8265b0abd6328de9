"""Answers of a given shape: a JSON schema is asked for, and what comes back is validated by pydantic."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Shape = TypeVar("Shape", bound=BaseModel)

_THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
_ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")

MOST_TRIES = 20
"""Opening braces of one answer that are tried."""


def response_format(shape: type[BaseModel]) -> dict[str, Any]:
    """The `response_format` of the request, in the strict form: no further fields, every field required."""
    schema = _strict(shape.model_json_schema())
    return {"type": "json_schema", "json_schema": {"name": shape.__name__, "schema": schema, "strict": True}}


def read(text: str, shape: type[Shape]) -> Shape:
    """The first JSON object in an answer that is a `shape`, whatever prose or fence stands around it.

    Zero-width characters are dropped where the answer does not parse with them. Raises ValueError (pydantic's error is
    one) that says what is wrong.
    """
    answer = _THINKING.sub("", text)
    try:
        return _first(answer, shape)
    except ValueError:
        bare = _ZERO_WIDTH.sub("", answer)
        if bare == answer:
            raise
    return _first(bare, shape)


def complaint(error: Exception, shape: type[BaseModel]) -> str:
    """What to tell the model about its unreadable answer; some endpoints ignore the schema, so it is shown here."""
    reasons = (
        "; ".join(f"{'.'.join(map(str, each['loc'])) or 'object'}: {each['msg']}" for each in error.errors())
        if isinstance(error, ValidationError)
        else str(error)
    )
    schema = json.dumps(_strict(shape.model_json_schema()), ensure_ascii=False)
    return (
        f"That answer cannot be used: {reasons}. Reply again with one JSON object alone, of this JSON schema: {schema}"
    )


def _first(answer: str, shape: type[Shape]) -> Shape:
    """Objects are tried in the order of their opening braces; where none fits, the first one's error is raised."""
    decoder, start = json.JSONDecoder(), answer.find("{")
    problems: list[ValueError] = []
    while start >= 0 and len(problems) < MOST_TRIES:
        try:
            value, end = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError) as error:
            problems.append(ValueError(f"the JSON does not parse: {error}"))
            end = start + 1
        else:
            try:
                return shape.model_validate(value)
            except ValidationError as error:
                problems.append(error)
        start = answer.find("{", end)
    raise problems[0] if problems else ValueError("there is no JSON object in the answer")


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
