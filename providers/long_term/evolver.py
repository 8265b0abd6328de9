"""EvolveR: principles that guide or caution, which merge when they say the same and go when they stop helping."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from providers.base import Principle, ProviderCard
from providers.long_term.base import Refused, with_origins
from providers.long_term.nearest import NearestProvider
from providers.types import Effect, Outcome, Record, Trajectory, content_hash

ALIKE = 0.85
NEIGHBOURS = 3
LEAST_QUALITY = 0.3
KEPT_TRACES = {True: 3, False: 2, None: 2}
TRACE_CHARACTERS = 4096

_CONTROL = re.compile(r"<\|[^|<>]*\|>|</?(?:think|tool_call|s)>")


@dataclass(frozen=True)
class Evidence:
    """What one run teaches: a principle, its digest and outcome, and the standing record that says the same, if any."""

    principle: Principle
    trace: str
    correct: bool | None
    same_as: str | None


class Evolver(NearestProvider[Evidence]):
    """Principles by the cosine of their description, one with its triplets, one solved and one failed run.

    A new principle is compared with the three nearest above cosine 0.85 (the original's threshold); where the
    distiller says that two are the same, the run joins the older one. Quality is (wins + 1) / (uses + 2): a retrieval
    counts a use, and a win where its task ended correct; a joined run counts a use, and a win where it confirms the
    kind of principle. Below 0.3 a principle goes: one failed use (0.33) keeps it, two (0.25) do not.
    """

    KIND = "principle"
    COUNTS_USE = True
    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="evolver",
        title="EvolveR",
        family="insight",
        stores="a guiding or cautionary principle with its structure and short runs that show it",
        retrieves="the principle nearest in meaning, with a solved and a failed run",
        gate="all",
        top_k=1,
    )

    def headline(self, record: Record) -> str:
        return record.text

    def shown(self, record: Record) -> str:
        principle = Principle.model_validate(record.payload["principle"])
        kind = "Guiding" if principle.kind == "guiding" else "Cautionary"
        blocks = ["\n".join([f"{kind} principle: {record.text}", *(f"- {' - '.join(t)}" for t in principle.triplets)])]
        for correct, header in ((True, "A run that was solved:"), (False, "A run that failed (outcome: wrong):")):
            traces = [trace["text"] for trace in record.payload["traces"] if trace["correct"] is correct]
            blocks += [f"{header}\n{traces[-1]}"] if traces else []
        return "\n\n".join(blocks)

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Evidence | None:
        principle = await self.distiller.principle(trajectory, outcome)
        if principle is None:
            return None
        if _CONTROL.search(principle.description):
            raise Refused("its principle holds control tokens of a model")
        trace = await self.distiller.digest(trajectory, outcome) or ""
        same_as = None
        for record in await asyncio.to_thread(self._alike, principle.description):
            if await self.distiller.same_principle(principle, Principle.model_validate(record.payload["principle"])):
                same_as = record.id
                break
        return Evidence(principle, trace[:TRACE_CHARACTERS], outcome.correct, same_as)

    def draft(self, trajectory: Trajectory, artefact: Evidence) -> list[Record]:
        """The principle as a new record; one that says what a standing record says links to it."""
        principle = artefact.principle
        trace = {"text": artefact.trace, "correct": artefact.correct}
        draft = self.space.new_record(
            self.KIND,
            trajectory,
            0,
            text=principle.description,
            payload={
                "principle": principle.model_dump(mode="json"),
                "traces": [trace] if artefact.trace else [],
                "correct": artefact.correct,
                "uses": 0,
                "wins": 0,
            },
            signature=content_hash(principle.kind, " ".join(principle.description.lower().split())),
        )
        return [draft.model_copy(update={"links": (artefact.same_as,)}) if artefact.same_as else draft]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        correct = draft.payload["correct"]
        payload = {key: value for key, value in draft.payload.items() if key != "correct"}
        draft = draft.model_copy(update={"links": (), "payload": payload})
        same = self.standing(drafts[0].links)
        known = same[0] if same else self.space.find_signature(draft.signature, kind=self.KIND)
        if known is None:
            return super().keep([draft], vectors)
        traces = _newest([*known.payload["traces"], *payload["traces"]])
        confirmed = known.payload["principle"]["kind"] == ("cautionary" if correct is False else "guiding")
        known = with_origins(known, draft.origins)
        known = known.model_copy(update={"payload": known.payload | {"traces": traces}})
        self._count(known, used=correct is not None, won=correct is not None and confirmed)
        return (known.id,)

    def take(self, effect: Effect, correct: bool) -> None:
        for record in self.standing([effect.record_id]):
            self._count(record, used=True, won=correct)

    def _count(self, record: Record, *, used: bool, won: bool) -> None:
        """Write the record with its counts; below the least quality it goes."""
        uses, wins = record.payload["uses"] + int(used), record.payload["wins"] + int(won)
        self.space.update(record.model_copy(update={"payload": record.payload | {"uses": uses, "wins": wins}}))
        quality = (wins + 1) / (uses + 2)
        if quality < LEAST_QUALITY:
            self.space.archive(record.id, f"its quality fell to {quality:.2f}")

    def _alike(self, description: str) -> list[Record]:
        embedding = self.space.encoder.encode([description])[0]
        hits = self.space.search_dense(embedding, NEIGHBOURS, kind=self.KIND)
        return [record for record, cosine in hits if cosine > ALIKE]


def _newest(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last three solved runs and the last two failed ones, in order."""
    left = dict(KEPT_TRACES)
    kept = []
    for trace in reversed(traces):
        if left[trace["correct"]] > 0:
            left[trace["correct"]] -= 1
            kept.append(trace)
    return kept[::-1]
