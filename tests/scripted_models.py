"""Plays all models of a benchmark's config on its sample: agent, scorer, distiller, judge, router, vision.

Deterministic: what is answered depends on the request alone. The agent knows the samples' gold answers, and gives them
where a memory is shown and, without one, to every other question, so that memory is worth something and not all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripted_endpoint import Play, said

from providers.types import content_hash
from synth.tasks.questions.formats import FORMATS
from synth.tasks.questions.sources import Source, load

SAMPLES = Path(__file__).parent / "synth" / "samples"

LESSON = "Search for the words of the question, then answer with what the first result says."
SKILL = "def look_up(subject):\n    return search(query=subject)\n"

_FILE = re.compile(r"^Files: .*?([\w.-]+\.(csv|png))", re.MULTILINE)
_LINK = re.compile(r"\]\((/[^)\s]+)\)")


class Cast:
    """Answers requests as `scripted_endpoint.Endpoint.answer`. `native`: tool_choice is obeyed."""

    def __init__(self, samples: Path = SAMPLES, *, native: bool = False) -> None:
        self._native = native
        self._known = {
            question.question: str(question.gold)
            for name in FORMATS
            for question in load(Source.model_validate({"format": name, "data": str(samples / name)}))[1]
        }

    def __call__(self, request: dict[str, Any]) -> Play:
        """The next answer of whichever model is asked."""
        turns: list[dict[str, Any]] = request["messages"]
        if "tools" in request:
            return self._called(request, turns)
        shape = request.get("response_format", {}).get("json_schema", {})
        if shape.get("name") == "Turn":
            return said(json.dumps({"thought": "I go on.", "action": self._action(turns)}, ensure_ascii=False))
        if shape.get("name") == "Equivalence":
            return said(json.dumps({"reason": "compared", "correct": _equal(turns[1]["content"])}))
        if shape:
            return said(json.dumps(_filled(shape["schema"], content_hash(turns)), ensure_ascii=False))
        return said("A red square.")

    def _called(self, request: Mapping[str, Any], turns: list[dict[str, Any]]) -> Play:
        """A native tool call; prose where tool_choice is not obeyed."""
        if not self._native:
            return said("Lemons are yellow.")
        names = [tool["function"]["name"] for tool in request["tools"]]
        action = {"tool": names[0], "colour": "yellow"} if names == ["report_colour"] else self._action(turns)
        name = action.pop("tool")
        return said("I go on.", calls=[(name, json.dumps(action, ensure_ascii=False))], finish="tool_calls")

    def _action(self, turns: list[dict[str, Any]]) -> dict[str, Any]:
        """Reads the file where there is one, searches, opens the first result, answers."""
        opening = turns[1]["content"]
        question = opening.splitlines()[0].removeprefix("Task: ")
        file, link = _FILE.search(opening), _LINK.search("\n".join(turn["content"] or "" for turn in turns[2:]))
        plan: list[dict[str, Any]] = [
            *([_reading(file, question)] if file else []),
            {"tool": "search", "query": question},
        ]
        plan += [{"tool": "open", "page": link[1]}] if link else []
        done: int = sum(turn["role"] == "assistant" for turn in turns)
        if done < len(plan):
            return plan[done]
        right = "From earlier tasks" in opening or len(question) % 2 == 0
        return {"tool": "answer", "text": f"It is {self._known[question]}" if right else "Nothing of the kind"}


def _reading(file: re.Match[str], question: str) -> dict[str, Any]:
    if file[2] == "csv":
        return {"tool": "read_file", "file": file[1]}
    return {"tool": "inspect_image", "file": file[1], "question": question}


def _equal(case: str) -> bool:
    """The scorer's verdict: whether the answer to grade is the reference answer, as the scripted agent says it."""
    gold, answer = re.findall(r"^\| (.*)$", case, re.MULTILINE)[-2:]
    return bool(answer == f"It is {gold}")


def _filled(schema: Mapping[str, Any], seed: str) -> Any:
    """A value of the schema: texts are a lesson, choices and whole numbers are drawn by `seed`."""
    return _value(schema, schema.get("$defs", {}), seed, "")


def _value(schema: Mapping[str, Any], named: Mapping[str, Any], seed: str, key: str) -> Any:
    if "$ref" in schema:
        return _value(named[schema["$ref"].rpartition("/")[2]], named, seed, key)
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], named, seed, key)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _drawn(schema["enum"], seed, key)
    kind = schema.get("type")
    if kind == "object":
        return {name: _value(part, named, seed, name) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        length = max(schema.get("minItems", 0), min(2, schema.get("maxItems", 1)))
        return [_value(schema["items"], named, seed, f"{key}{place}") for place in range(length)]
    if kind in ("integer", "number"):
        return _number(schema, seed, key)
    return {"boolean": True, "null": None}.get(str(kind), SKILL if key == "code" else LESSON)


def _number(schema: Mapping[str, Any], seed: str, key: str) -> int:
    low = int(schema.get("minimum", 0))
    high = int(schema.get("maximum", schema.get("exclusiveMaximum", low + 2) - 1))
    return int(_drawn(range(low, high + 1), seed, key))


def _drawn(choices: Any, seed: str, key: str) -> Any:
    return choices[int(content_hash(seed, key)[:8], 16) % len(choices)]
