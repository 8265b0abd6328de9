"""A distiller without a language model: artefacts from a trajectory's structure alone, deterministic.

It reads what any agent leaves behind: which pages were opened, what the thoughts say was read there, what was done, how
the answer was formed, and the signs seen at run time. What stands in the question becomes a blank in workflows; labels
of pages stay, and so do actions.
"""

from __future__ import annotations

from collections.abc import Sequence

from providers.base import Experience, Narrative, Script, Skill, Workflow
from providers.distill.digests import digest_of, importance_of, rating_of
from providers.distill.experiences import experience_of, refined, suggested
from providers.distill.insight_rules import InsightRules
from providers.distill.phrases import (
    blanks_of,
    cue_of,
    direct_steps,
    identifier,
    literal_steps,
    loop_steps,
    with_blanks,
)
from providers.distill.scripts import revised, script_of
from providers.distill.shape import RunShape, read_shape, subject_of
from providers.types import Outcome, Parameter, Trajectory


class RuleDistiller(InsightRules):
    """The embedded distiller. Every method gives None (or nothing) where the run has nothing to teach."""

    async def condensed_run(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """The run without its detours, with its own names."""
        shape = read_shape(trajectory)
        if not shape.tells:
            return None
        return f"Case: {shape.question}\n" + "; ".join([*direct_steps(shape), f"answer with {shape.ending}."])

    async def workflow(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        """The run as numbered steps in which all that stood in the question is a blank."""
        shape = read_shape(trajectory)
        if not shape.tells:
            return None
        blanks = blanks_of(shape)
        steps = [*loop_steps(shape), f"answer with {shape.ending}"]
        text = "\n".join(f"{number}. {with_blanks(step, blanks)}" for number, step in enumerate(steps, 1))
        query = with_blanks(shape.question, blanks)
        return Workflow(query=query, text=text, variables=tuple(dict.fromkeys(blanks.values())))

    async def skill(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None:
        """A function that reads one label for any names and does what the run did with the values."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.section or shape.skill or not shape.ending:
            return None
        if shape.kind == "value":
            return _value_skill(shape)
        return _extreme_skill(shape) if shape.kind == "extreme" else _count_skill(shape)

    async def narrative(self, trajectory: Trajectory, outcome: Outcome) -> Narrative | None:
        """What was asked and every step taken, detours included, with the run's own names."""
        shape = read_shape(trajectory)
        if not trajectory.steps:
            return None
        steps = literal_steps(trajectory)
        seen = " It ended at the step limit." if "step limit reached" in trajectory.status else ""
        source = shape.title or ("what was done" if shape.actions else "no page")
        summary = f"{shape.question} Answered from {source}.{seen}"
        return Narrative(summary=summary, digest=f"Task: {shape.question}\nSteps: " + "; ".join(steps) + ".")

    # Digests

    async def digest(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """What was asked and the steps that led to the answer; all steps where it was a guess."""
        return digest_of(trajectory)

    async def importance(self, trajectory: Trajectory, outcome: Outcome) -> int:
        """1 for a run that went straight to its answer; more for what went wrong or took care."""
        return importance_of(trajectory, outcome)

    async def ratings(self, question: str, notes: Sequence[str]) -> tuple[int, ...]:
        """By the share of the question's words that a note has."""
        return tuple(rating_of(question, note) for note in notes)

    # Scripts

    async def script(self, trajectory: Trajectory, outcome: Outcome) -> Script | None:
        """The steps with blanks for what stood in the question, and the steps as they were taken."""
        return script_of(read_shape(trajectory))

    async def revised_script(self, script: Script, trajectory: Trajectory) -> Script | None:
        """A warning against the value that the failed run took where the script says to take it."""
        return revised(script, read_shape(trajectory))

    # Experiences

    async def experience(self, trajectory: Trajectory, outcome: Outcome) -> Experience | None:
        """The steps with blanks, how the right page was reached, and the lessons of a success."""
        return experience_of(read_shape(trajectory))

    async def search_text(self, question: str) -> str:
        """The question itself: it was encoded already."""
        return question

    async def suggestions(self, question: str, experiences: Sequence[Experience]) -> str:
        """The plans that differ, best first, at most three (as many as the original's student gives)."""
        return suggested(experiences)

    async def refinement(self, question: str, experiences: Sequence[Experience], suggestions: str) -> str:
        """The lessons that share most words with the question, at most three (as the original's teacher gives)."""
        return refined(question, experiences, suggestions)


# --- skills ---


def _value_skill(shape: RunShape) -> Skill | None:
    if subject_of(shape.title) not in shape.question:
        return None
    name = identifier(shape.label)
    code = (
        f"def {name}(tools, subject: str) -> str:\n"
        f"    page = tools.open(subject + {': ' + shape.section!r})\n"
        f"    return fields(page).get({shape.label!r}, '')\n"
    )
    doc = f"Read {shape.label} of a subject.\n{cue_of(shape)}."
    return Skill(name=name, parameters=(Parameter(name="subject"),), doc=doc, code=code)


_LOOP = (
    "    best = None\n"
    "    for name in {names}:\n"
    "        value = fields(tools.open(name + {section!r})).get({label!r}, '')\n"
    "        amount = number(value)\n"
    "        if amount is None:\n"
    "            continue\n"
    "        if best is None or (amount > best[0]) == (direction == 'largest'):\n"
    "            best = (amount, name, value)\n"
    "    return '' if best is None else {result}\n"
)


def _extreme_skill(shape: RunShape) -> Skill | None:
    direction = Parameter(name="direction", doc="largest or smallest")
    result = "best[1]" if shape.listing else "best[1] + '; ' + best[2]"
    loop = {"section": f": {shape.section}", "label": shape.label, "result": result}
    if not shape.listing:
        name = identifier("compare", shape.label)
        code = f"def {name}(tools, names: list, direction: str) -> str:\n" + _LOOP.format(names="names", **loop)
        parameters = (Parameter(name="names", type="list"), direction)
        return Skill(
            name=name, parameters=parameters, doc=f"Compare {shape.label} of names.\n{cue_of(shape)}.", code=code
        )
    source = next((title for label, title in shape.reads if label == shape.listing), "")
    page = next((t for t in shape.opened if subject_of(t) == source and ": " in t), "")
    if not page:
        return None
    name = identifier("compare", shape.label, shape.listing.rpartition(" - ")[2])
    code = (
        f"def {name}(tools, subject: str, direction: str) -> str:\n"
        f"    listed = fields(tools.open(subject + {': ' + page.partition(': ')[2]!r})).get({shape.listing!r}, '')\n"
        + _LOOP.format(names="[text for text, url in links(listed)]", **loop)
    )
    doc = f"Compare {shape.label} of the names under {shape.listing}.\n{cue_of(shape)}."
    return Skill(name=name, parameters=(Parameter(name="subject"), direction), doc=doc, code=code)


def _count_skill(shape: RunShape) -> Skill | None:
    if shape.listing not in shape.opened or ": " not in shape.listing:
        return None
    name = identifier("count", shape.label)
    prefix = shape.listing.partition(": ")[0] + ": "
    code = (
        f"def {name}(tools, subject: str, direction: str, threshold: float) -> str:\n"
        f"    page = tools.open({prefix!r} + subject)\n"
        "    count = 0\n"
        "    for name, url in links(page):\n"
        "        if ': ' in name:\n"
        "            continue\n"
        f"        amount = number(fields(tools.open(name + {': ' + shape.section!r})).get({shape.label!r}, ''))\n"
        "        if amount is None:\n"
        "            continue\n"
        "        if (amount > threshold) if direction == 'largest' else (amount < threshold):\n"
        "            count = count + 1\n"
        "    return str(count)\n"
    )
    parameters = (
        Parameter(name="subject"),
        Parameter(name="direction", doc="largest: above; smallest: below"),
        Parameter(name="threshold", type="float"),
    )
    doc = f"Count how many on a list have {shape.label} above or below a number.\n{cue_of(shape)}."
    return Skill(name=name, parameters=parameters, doc=doc, code=code)
