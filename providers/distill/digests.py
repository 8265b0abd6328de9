"""The digest of a run, how much of it is worth remembering, and how well a note serves a question."""

from __future__ import annotations

from providers.distill.phrases import direct_steps, is_contested, literal_steps
from providers.distill.shape import read_shape
from providers.lexical import tokenise
from providers.types import Outcome, Trajectory

WORDS = 150


def digest_of(trajectory: Trajectory) -> str | None:
    """The question and the steps that led to the answer, or all steps where it was a guess; at most 150 words."""
    shape = read_shape(trajectory)
    steps = [*direct_steps(shape), f"answer with {shape.ending}"] if shape.tells else literal_steps(trajectory)
    if not steps:
        return None
    text = f"Task: {shape.question}\nSteps: "
    room = WORDS - len(text.split())
    while len(steps) > 1 and sum(len(step.split()) for step in steps) > room:
        del steps[-2]
    return text + "; ".join(steps) + "."


def importance_of(trajectory: Trajectory, outcome: Outcome) -> int:
    """1 to 10: two detours or errors count one, up to three; rival sites, a list to go through, a failure two each."""
    shape = read_shape(trajectory)
    detours = len(set(shape.opened) - {title for _, title in shape.reads})
    errors = sum(step.error is not None for step in trajectory.steps)
    special = (bool(shape.reads) and is_contested(shape)) + bool(shape.listing) + (outcome.correct is False)
    return 1 + min(3, (detours + errors) // 2) + 2 * special


def rating_of(question: str, note: str) -> int:
    """1 to 10: the share of the question's words that the note has."""
    words = set(tokenise(question))
    if not words:
        return 1
    return 1 + round(9 * len(words & set(tokenise(note))) / len(words))
