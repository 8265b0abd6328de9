"""What a json answer may be, as the JSON schema that an engine makes its grammar from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from router.decisions import SHORT_TERM


def begin_schema(providers: Sequence[str]) -> dict[str, Any]:
    """One of the providers that are shown."""
    return _object(action={"enum": ["query"]}, provider={"enum": list(providers)})


def in_schema() -> dict[str, Any]:
    """Query the working memory, or nothing; the provider goes with the action."""
    return {
        "anyOf": [
            _object(action={"enum": ["query"]}, provider={"enum": [SHORT_TERM]}),
            _object(action={"enum": ["no_op"]}, provider={"type": "null"}),
        ]
    }


def end_schema(accepting: Sequence[str]) -> dict[str, Any]:
    """Any of the providers whose gate is open. That none is named twice is no grammar's to say: the codec looks."""
    return _object(selected_providers={"type": "array", "items": {"enum": list(accepting)}, "maxItems": len(accepting)})


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
