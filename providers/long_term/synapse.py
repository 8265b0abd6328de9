"""Synapse: whole solved runs as exemplars, found by their questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from providers.base import ProviderCard
from providers.long_term.base import SpaceProvider
from providers.types import Outcome, Query, Record, Retrieval, Step, Trajectory, content_hash

STEP_LIMIT = 300
"""Characters that an exemplar keeps of a thought, of arguments and of an observation (its abstraction of states)."""
EXEMPLAR_LIMIT = 6000


class Synapse(SpaceProvider[str]):
    """Trajectories as exemplars (a baseline of the MemGuard paper): nothing is distilled, so no model is asked.

    The key is the question, as the original's is the task's text; three exemplars are shown, the nearest first.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="synapse",
        title="Synapse",
        family="similarity",
        stores="each solved run whole, step by step",
        retrieves="the runs of the three nearest questions",
        gate="success",
        top_k=3,
    )

    def lead(self, query: Query) -> tuple[str, str] | None:
        found = self._nearest(query)
        return (found[0].payload["exemplar"], found[0].id) if found else None

    def find(self, query: Query) -> Retrieval:
        found = self._nearest(query)
        return Retrieval(
            provider=self.card.name,
            text="\n\n".join(f"A similar task, solved:\n{record.payload['exemplar']}" for record in found),
            item_ids=tuple(record.id for record in found),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return exemplar_of(trajectory) if trajectory.steps else None

    def draft(self, trajectory: Trajectory, artefact: str) -> list[Record]:
        payload = {"question": trajectory.question, "exemplar": artefact}
        text, signature = trajectory.question, content_hash(artefact)
        return [self.space.new_record("exemplar", trajectory, 0, text=text, payload=payload, signature=signature)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        return (self.keep_once(draft, vectors),)

    def _nearest(self, query: Query) -> list[Record]:
        hits = self.space.search_dense(query.embedding, self.card.top_k, kind="exemplar")
        return self.fitting(query, (record for record, _ in hits))


def exemplar_of(trajectory: Trajectory) -> str:
    """The run as text, one line per step; over the limit, steps are left out before the last ones, and it says so."""
    task = f"Task: {_line(trajectory.question)}"
    answer = f"Answer: {_line(trajectory.answer or '')}"
    lines = [_step_line(step) for step in trajectory.steps]
    room = EXEMPLAR_LIMIT - len(task) - len(answer)
    left_out = 0
    while len(lines) > 1 and sum(map(len, lines)) > room:
        del lines[len(lines) // 2]
        left_out += 1
    if left_out:
        lines.insert((len(lines) + 1) // 2, f"({left_out} steps left out)")
    return "\n".join([task, *lines, answer])


def _step_line(step: Step) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in step.arguments.items())
    seen = f"failed: {step.error}" if step.error is not None else step.observation
    thought = f"{_line(step.thought)} " if step.thought else ""
    return f"{step.index + 1}. {thought}{step.tool}({_line(arguments)}) -> {_line(seen)}"


def _line(text: str) -> str:
    """The start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= STEP_LIMIT else line[: STEP_LIMIT - 3] + "..."
