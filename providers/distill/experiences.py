"""Experiences: plan and lessons of a solved task, and what a later task is told from several of them."""

from __future__ import annotations

from collections.abc import Sequence

from providers.base import Experience
from providers.distill.phrases import blanks_of, entrance, loop_steps, success_lessons, with_blanks
from providers.distill.shape import RunShape, subject_of
from providers.lexical import tokenise

SUGGESTIONS = 3
LESSONS = 3


def experience_of(shape: RunShape) -> Experience | None:
    """The four fields of a run that read its answer somewhere; None for one that guessed or only called a skill."""
    lessons = success_lessons(shape) if shape.reads else []
    if not lessons or not shape.ending:
        return None
    blanks = blanks_of(shape)
    steps = [*loop_steps(shape), f"answer with {shape.ending}"]
    first, *others = lessons
    return Experience(
        plan="\n".join(f"{number}. {with_blanks(step, blanks)}" for number, step in enumerate(steps, 1)),
        search_plan=with_blanks(_way_in(shape), blanks),
        lessons=first,
        search_lessons="\n".join(others) or f'The page "{shape.title}" holds "{shape.label}".',
    )


def suggested(experiences: Sequence[Experience]) -> str:
    """The plans that differ, each under how its search began."""
    plans = dict.fromkeys(f"{experience.search_plan}\n{experience.plan}" for experience in experiences)
    return "\n\n".join(list(plans)[:SUGGESTIONS])


def refined(question: str, experiences: Sequence[Experience], suggestions: str) -> str:
    """The lessons with the most words of the question that the suggestions do not say already."""
    words = set(tokenise(question))
    lines = dict.fromkeys(
        line
        for experience in experiences
        for line in (*experience.lessons.splitlines(), *experience.search_lessons.splitlines())
        if line not in suggestions
    )
    ranked = sorted(lines, key=lambda line: -len(words & set(tokenise(line))))
    return "\n".join(f"- {line}" for line in ranked[:LESSONS])


def _way_in(shape: RunShape) -> str:
    """How the first page that was read from was found."""
    if searches := entrance(shape):
        return f"Begin with a search: {searches[0]}."
    return f"No search is needed where the page of {subject_of(shape.reads[0][1])} can be opened by its title."
