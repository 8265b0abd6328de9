"""Memories as text for a prompt: quoted line by line, with where they come from, so that none speaks as the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from serve.messages import GivenInjection, GivenSkill

if TYPE_CHECKING:
    import jinja2

TASKS_NAMED = 3


def quoted_memories(injections: Sequence[GivenInjection]) -> str:
    """What Begin injected; empty where there is no text."""
    parts = [
        {"title": injection.title, "origin": _origin(injection), "lines": quoted_lines(injection.text)}
        for injection in injections
        if injection.text
    ]
    return _template("memory").render(parts=parts).strip() if parts else ""


def quoted_working(text: str) -> str:
    """Working memory; empty where there is none."""
    return _template("working").render(lines=quoted_lines(text)).strip() if text else ""


def quoted_skills(skills: Sequence[GivenSkill]) -> str:
    """Skills for an agent that has no way to call them; empty where there are none."""
    parts = [
        {
            "name": skill.name,
            "parameters": ", ".join(f"{parameter.name}: {parameter.type}" for parameter in skill.parameters),
            "doc": " ".join(quoted_lines(skill.doc)),
            "lines": quoted_lines(skill.code),
        }
        for skill in skills
    ]
    return _template("skills").render(skills=parts).strip() if parts else ""


def quoted_lines(text: str) -> list[str]:
    """The lines that a reader sees, whatever separates them, without other control characters."""
    return ["".join(c for c in line if c.isprintable() or c == "\t") for line in text.splitlines()]


def _origin(injection: GivenInjection) -> str:
    """Whence the items come, in a few words; the ids of tasks are names that callers chose, so they are quoted too."""
    tasks = list(dict.fromkeys(task for item in injection.items for task in item.tasks))
    if not tasks:
        return ""
    named = ", ".join("".join(c for c in task if c.isprintable())[:60] for task in tasks[:TASKS_NAMED])
    return f"learned in {named}" + (f" and {len(tasks) - TASKS_NAMED} more" if len(tasks) > TASKS_NAMED else "")


@cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    return environment.get_template(f"{name}.jinja")
