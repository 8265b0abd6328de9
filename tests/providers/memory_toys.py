"""Toys for tests of memories: a scripted distiller, made trajectories, a small bank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from providers.bank import MemoryBank
from providers.base import (
    Advice,
    AdviceItem,
    Candidate,
    Experience,
    Insight,
    Narrative,
    PastRun,
    Principle,
    ReasoningItem,
    Script,
    SheetEntry,
    SheetItem,
    Shortcut,
    Skill,
    Strategies,
    Vote,
    Workflow,
)
from providers.distill.candidates import candidates_from
from providers.embedder import Hashing
from providers.errors import ModelError
from providers.governance.verifier import Verdict
from providers.types import Outcome, Query, Step, Trajectory

CORRECT = Outcome(correct=True, source="gold")
WRONG = Outcome(correct=False, source="gold")
UNKNOWN = Outcome(correct=None)

ENCODER = Hashing()


def open_bank(folder: Path, name: str = "bank.sqlite") -> MemoryBank:
    return MemoryBank.open(folder / name, ENCODER)


def run_of(task_id: str, question: str = "What is the area of Chad?", seed: int = 0) -> Trajectory:
    step = Step(index=0, tool="search", arguments={"query": question}, observation="1. [Chad](/chad) In a table.")
    return Trajectory.make(task_id=task_id, question=question, agent="toy", seed=seed, steps=(step,), answer="1")


def query_of(text: str) -> Query:
    return Query(text=text, embedding=ENCODER.encode([text])[0])


class ScriptedDistiller:
    """Gives what it was constructed with, to every run; counts its calls; raises ModelError while `broken`."""

    def __init__(
        self,
        *,
        insights: Sequence[Insight] = (),
        condensed: str | None = None,
        workflow: Workflow | None = None,
        skill: Skill | None = None,
        narrative: Narrative | None = None,
        digest: str | None = None,
        importance: int = 1,
        ratings: Mapping[str, int] | None = None,
        script: Script | None = None,
        revision: Script | None = None,
        experience: Experience | None = None,
        search_texts: Mapping[str, str] | None = None,
    ) -> None:
        self.insight_lines = tuple(insights)
        self.condensed = condensed
        self.next_workflow = workflow
        self.next_skill = skill
        self.next_narrative = narrative
        self.next_digest = digest
        self.next_importance = importance
        self.ratings_of = dict(ratings or {})
        self.next_script = script
        self.next_revision = revision
        self.next_experience = experience
        self.search_texts = dict(search_texts or {})
        self.next_votes: tuple[Vote, ...] | None = None
        self.known_lessons: list[str] = []
        self.next_strategies: Strategies | None = None
        self.next_advice: Advice | None = None
        self.next_tips: tuple[str, ...] = ()
        self.next_shortcut: Shortcut | None = None
        self.next_principle: Principle | None = None
        self.same_principles: frozenset[frozenset[str]] = frozenset()
        self.next_summary: str | None = None
        self.next_sheet: tuple[SheetEntry, ...] = ()
        self.next_reasoning: tuple[ReasoningItem, ...] = ()
        self.next_candidates: tuple[Candidate, ...] = ()
        self.asked: list[Any] = []
        self.calls = 0
        self.broken = False

    def _called(self) -> None:
        self.calls += 1
        if self.broken:
            raise ModelError("The model cannot be reached.", retryable=True)

    async def insights(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...]:
        self._called()
        return self.insight_lines

    async def votes(self, trajectory: Trajectory, outcome: Outcome, known: Sequence[Insight]) -> tuple[Vote, ...]:
        self.known_lessons = [lesson.text for lesson in known]
        if self.next_votes is not None:
            self._called()
            return self.next_votes
        lessons = await self.insights(trajectory, outcome)
        return tuple(Vote(operation="ADD", text=lesson.text, kind=lesson.kind) for lesson in lessons)

    async def condensed_run(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        self._called()
        return self.condensed

    async def workflow(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None:
        self._called()
        return self.next_workflow

    async def skill(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None:
        self._called()
        return self.next_skill

    async def narrative(self, trajectory: Trajectory, outcome: Outcome) -> Narrative | None:
        self._called()
        return self.next_narrative

    async def digest(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        self._called()
        return self.next_digest

    async def importance(self, trajectory: Trajectory, outcome: Outcome) -> int:
        self._called()
        return self.next_importance

    async def ratings(self, question: str, notes: Sequence[str]) -> tuple[int, ...]:
        self._called()
        return tuple(self.ratings_of.get(note, 1) for note in notes)

    async def script(self, trajectory: Trajectory, outcome: Outcome) -> Script | None:
        self._called()
        return self.next_script

    async def revised_script(self, script: Script, trajectory: Trajectory) -> Script | None:
        self._called()
        return self.next_revision

    async def experience(self, trajectory: Trajectory, outcome: Outcome) -> Experience | None:
        self._called()
        return self.next_experience

    async def search_text(self, question: str) -> str:
        self._called()
        return self.search_texts.get(question, question)

    async def suggestions(self, question: str, experiences: Sequence[Experience]) -> str:
        self._called()
        return "Suggested: " + "; ".join(experience.plan for experience in experiences)

    async def refinement(self, question: str, experiences: Sequence[Experience], suggestions: str) -> str:
        self._called()
        return f"Refined {suggestions!r} with " + "; ".join(experience.lessons for experience in experiences)

    async def strategies(self, trajectory: Trajectory, outcome: Outcome) -> Strategies | None:
        self._called()
        return self.next_strategies

    async def advise(self, question: str, items: Sequence[AdviceItem], k: int) -> Advice | None:
        self._called()
        self.asked.append([item.text for item in items])
        return self.next_advice

    async def tips(self, trajectory: Trajectory, outcome: Outcome) -> tuple[str, ...]:
        self._called()
        return self.next_tips

    async def shortcut(self, trajectory: Trajectory, outcome: Outcome) -> Shortcut | None:
        self._called()
        return self.next_shortcut

    async def principle(self, trajectory: Trajectory, outcome: Outcome) -> Principle | None:
        self._called()
        return self.next_principle

    async def same_principle(self, first: Principle, second: Principle) -> bool:
        self._called()
        self.asked.append((first.description, second.description))
        return frozenset((first.description, second.description)) in self.same_principles

    async def run_summary(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        self._called()
        return self.next_summary

    async def curate(
        self, question: str, sheet: Sequence[SheetItem], runs: Sequence[PastRun], max_words: int
    ) -> tuple[SheetEntry, ...]:
        self._called()
        self.asked.append((list(sheet), list(runs)))
        return self.next_sheet

    async def reasoning(self, trajectory: Trajectory, outcome: Outcome) -> tuple[ReasoningItem, ...]:
        self._called()
        return self.next_reasoning

    async def candidates(self, trajectory: Trajectory, verdict: Verdict) -> tuple[Candidate, ...]:
        """What is given as such, or else the reasoning items as rules propose them."""
        found = await self.reasoning(trajectory, verdict.outcome())
        return self.next_candidates or candidates_from(found, trajectory, verdict)


class FixedEncoder:
    """Texts have the vectors that they are given; anything else is an error. For tests about similarity."""

    def __init__(self, vectors: dict[str, Sequence[float]]) -> None:
        self.vectors = {text: np.asarray(vector, dtype=np.float32) for text, vector in vectors.items()}
        self.identity = "fixed"
        self.dimension = len(next(iter(vectors.values())))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = [self.vectors[text] / np.linalg.norm(self.vectors[text]) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimension), dtype=np.float32)

    def query(self, text: str) -> Query:
        return Query(text=text, embedding=self.encode([text])[0])
