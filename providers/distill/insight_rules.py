"""Deterministic artefacts of the insight family: lessons, strategies, tips, shortcuts, principles, sheets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from providers.base import (
    Advice,
    AdviceItem,
    Candidate,
    Insight,
    PastRun,
    Principle,
    ReasoningItem,
    SheetEntry,
    SheetItem,
    Shortcut,
    Strategies,
    Vote,
)
from providers.distill.candidates import candidates_from
from providers.distill.phrases import (
    blanks_of,
    cue_of,
    direct_steps,
    failure_lessons,
    identifier,
    literal_steps,
    loop_steps,
    operational_lessons,
    strategic_lessons,
    success_lessons,
    with_blanks,
)
from providers.distill.shape import RunShape, read_shape
from providers.lexical import tokenise
from providers.types import Outcome, Trajectory

if TYPE_CHECKING:
    from providers.governance.verifier import Verdict

MAX_INSIGHTS = 4
MAX_STRATEGIES = 2
MAX_TIPS = 5
MAX_REASONING = 3
SHORTCUT_STEPS = (3, 6)
SUMMARY_WORDS = 399
SAME_WORDS = 0.8
USED_WORDS = 0.5

_QUOTED = re.compile(r'"([^"]+)"')


class InsightRules:
    """What `RuleDistiller` makes for memories of many small items; its other artefacts are in `rules.py`."""

    async def insights(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...]:
        """At most four imperative lessons of at most 30 words (MemAgent B.3.4)."""
        kind, lessons = _lessons(trajectory, outcome)
        return tuple(Insight.model_validate({"text": line, "kind": kind}) for line in lessons[:MAX_INSIGHTS])

    async def votes(self, trajectory: Trajectory, outcome: Outcome, known: Sequence[Insight]) -> tuple[Vote, ...]:
        """ADD for every lesson: rules do not reword, and the list itself finds what agrees and what contradicts."""
        kind, lessons = _lessons(trajectory, outcome)
        return tuple(
            Vote.model_validate({"operation": "ADD", "text": line, "kind": kind}) for line in lessons[:MAX_INSIGHTS]
        )

    async def strategies(self, trajectory: Trajectory, outcome: Outcome) -> Strategies | None:
        """How such a task is gone about, and where its values stand; at most two sentences of each."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.ending:
            return None
        strategic, operational = strategic_lessons(shape), operational_lessons(shape)
        if not strategic and not operational:
            return None
        return Strategies(strategic=tuple(strategic[:MAX_STRATEGIES]), operational=tuple(operational[:MAX_STRATEGIES]))

    async def advise(self, question: str, items: Sequence[AdviceItem], k: int) -> Advice | None:
        """The k sentences with most of the question's words, of equals the more successful, then the nearer."""
        asked = set(tokenise(question))
        shared = [len(asked & set(tokenise(item.text))) for item in items]
        rates = [(item.wins + 1) / (item.uses + 2) for item in items]
        fitting = [position for position in range(len(items)) if shared[position]]
        picked = sorted(fitting, key=lambda position: (-shared[position], -rates[position], position))[:k]
        if not picked:
            return None
        lines = dict.fromkeys(items[position].text for position in picked)
        return Advice(picked=tuple(picked), text="\n".join(f"- {line}" for line in lines))

    async def tips(self, trajectory: Trajectory, outcome: Outcome) -> tuple[str, ...]:
        """The run's lessons, of whatever outcome."""
        _, lessons = _lessons(trajectory, outcome)
        return tuple(lessons[:MAX_TIPS])

    async def shortcut(self, trajectory: Trajectory, outcome: Outcome) -> Shortcut | None:
        """The run as three to six steps with blanks; None where it took fewer or more."""
        shape = read_shape(trajectory)
        if not shape.reads or not shape.ending or shape.skill:
            return None
        blanks = {value: blank for value, blank in blanks_of(shape).items() if value != shape.label}
        steps = tuple(with_blanks(step, blanks) for step in (*loop_steps(shape), f"answer with {shape.ending}"))
        fewest, most = SHORTCUT_STEPS
        if not fewest <= len(steps) <= most:
            return None
        needed = "a list of names to go through" if shape.listing else "what the question names"
        return Shortcut(
            name=identifier(shape.kind, shape.label, shape.listing),
            description=f'Gets "{shape.label}" when asked: {cue_of(shape)}.',
            precondition=f'{needed} has pages with "{shape.label}"',
            steps=steps,
        )

    async def principle(self, trajectory: Trajectory, outcome: Outcome) -> Principle | None:
        """A guiding principle from the label that answered, or a cautionary one from the first failure lesson."""
        shape = read_shape(trajectory)
        kind, lessons = _lessons(trajectory, outcome)
        if not lessons or not shape.reads:
            return None
        cue = cue_of(shape)
        if kind == "failure":
            relation = "is not answered by"
            return Principle(description=lessons[0], kind="cautionary", triplets=((cue, relation, shape.label),))
        triplets = [(cue, "is answered by", shape.label), (shape.label, "gives", shape.ending)]
        if shape.section:
            triplets.insert(1, (shape.label, "stands under", shape.section))
        return Principle(description=lessons[0], kind="guiding", triplets=tuple(triplets))

    async def same_principle(self, first: Principle, second: Principle) -> bool:
        """The same kind, the same quoted names, and nearly the same words."""
        if first.kind != second.kind:
            return False
        if set(_QUOTED.findall(first.description)) != set(_QUOTED.findall(second.description)):
            return False
        one, other = set(tokenise(first.description)), set(tokenise(second.description))
        return len(one & other) >= SAME_WORDS * len(one | other)

    async def run_summary(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """The steps without detours (all where no way to the answer is seen), and the outcome."""
        shape = read_shape(trajectory)
        ended = {True: "correct", False: "wrong", None: "unknown"}[outcome.correct]
        steps = [*direct_steps(shape), f"answer with {shape.ending}"] if shape.tells else literal_steps(trajectory)
        if not steps:
            return None
        while len(steps) > 1 and len(" ".join(steps).split()) > SUMMARY_WORDS - 3:
            del steps[len(steps) // 2]
        return f"Steps: {'; '.join(steps)}.\nOutcome: {ended}"

    async def curate(
        self, question: str, sheet: Sequence[SheetItem], runs: Sequence[PastRun], max_words: int
    ) -> tuple[SheetEntry, ...]:
        """New items from the runs first, then those with the question's words, then by use, as far as the words go."""
        asked = set(tokenise(question))
        written = {item.description for item in sheet}
        fresh = [
            SheetEntry(description=run.question, example=_first_words(run.summary, max_words // 2), source=n)
            for n, run in enumerate(runs)
        ]
        shared = [len(asked & set(tokenise(item.description))) for item in sheet]
        ranked = sorted(range(len(sheet)), key=lambda n: (-shared[n], -sheet[n].uses, n))
        kept = [
            SheetEntry(
                description=sheet[n].description,
                example=sheet[n].example,
                continues=n,
                used=bool(asked) and shared[n] >= USED_WORDS * len(asked),
            )
            for n in ranked
        ]
        entries: list[SheetEntry] = []
        left = max_words
        for entry in (*(entry for entry in fresh if entry.description not in written), *kept):
            left -= len(f"{entry.description} {entry.example}".split())
            if left < 0:
                break
            entries.append(entry)
        return tuple(entries)

    async def reasoning(self, trajectory: Trajectory, outcome: Outcome) -> tuple[ReasoningItem, ...]:
        """One item per lesson: what kind of lesson it is, for which questions, and what it says."""
        shape = read_shape(trajectory)
        kind, lessons = _lessons(trajectory, outcome)
        strategic = set(strategic_lessons(shape)) if lessons else set()
        description = f"For questions such as: {cue_of(shape)}."
        items = []
        for line in lessons[:MAX_REASONING]:
            title = "How to go about it" if line in strategic else "Where it stands"
            title = "What to avoid" if kind == "failure" else title
            items.append(ReasoningItem(title=title, description=description, content=line))
        return tuple(items)

    async def candidates(self, trajectory: Trajectory, verdict: Verdict) -> tuple[Candidate, ...]:
        """The reasoning items of a run that ended as its verdict says, with the lines that show them."""
        return candidates_from(await self.reasoning(trajectory, verdict.outcome()), trajectory, verdict)


def _lessons(trajectory: Trajectory, outcome: Outcome) -> tuple[str, list[str]]:
    """Kind and lines of what a run teaches; no line where its answer was a guess."""
    shape: RunShape = read_shape(trajectory)
    kind = "failure" if outcome.correct is False else "success"
    if not shape.tells:
        return kind, []
    return kind, failure_lessons(shape) if kind == "failure" else success_lessons(shape)


def _first_words(text: str, count: int) -> str:
    """The text up to its word number `count`, with its own line breaks."""
    words = list(re.finditer(r"\S+", text))
    return text if len(words) <= count else text[: words[count - 1].end()]
