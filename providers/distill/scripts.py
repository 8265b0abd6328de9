"""Scripts: a procedure without the names of its task, beside the steps as they were taken."""

from __future__ import annotations

from providers.base import Script
from providers.distill.phrases import blanks_of, cue_of, direct_steps, loop_steps, with_blanks
from providers.distill.shape import RunShape

WARNINGS = 3


def script_of(shape: RunShape) -> Script | None:
    """The loop of a run with blanks for what stood in the question, and its steps without detours."""
    if not shape.reads or not shape.ending:
        return None
    blanks = blanks_of(shape)
    ending = f"answer with {shape.ending}"
    lines = [f"When asked: {with_blanks(shape.question, blanks)}"]
    lines += [f"{number}. {with_blanks(step, blanks)}" for number, step in enumerate([*loop_steps(shape), ending], 1)]
    return Script(script="\n".join(lines), steps="; ".join([*direct_steps(shape), ending]) + ".")


def revised(script: Script, shape: RunShape) -> Script | None:
    """The script with a warning where a run that took the same label failed; the last three warnings stay."""
    if not shape.label or f'"{shape.label}"' not in f"{script.script}\n{script.steps}":
        return None
    warning = f'Not "{shape.label}" when asked: {cue_of(shape)}.'
    lines = script.script.splitlines()
    warnings = [line for line in lines if line.startswith("Not ")]
    if warning in warnings:
        return None
    kept = [line for line in lines if not line.startswith("Not ")]
    return script.model_copy(update={"script": "\n".join([*kept, *[*warnings, warning][-WARNINGS:]])})
