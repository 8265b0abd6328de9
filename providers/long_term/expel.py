"""ExpeL: a counted list of lessons from successes and failures, beside condensed runs of solved tasks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from typing import ClassVar

import numpy as np

from providers.base import Distiller, Insight, ProviderCard, Vote
from providers.lexical import tokenise
from providers.long_term.base import SpaceProvider, with_origins
from providers.long_term.hybrid import search_hybrid
from providers.space import Space
from providers.types import Effect, Outcome, Query, Record, Retrieval, Trajectory, content_hash

NEW_COUNT = 2
USELESS_IN_A_ROW = 3
SHOWN = 20
MAX_VOTES = 4
ORDER = ("REMOVE", "AGREE", "EDIT", "ADD")
WORDS_SHARE = 0.3
CONTRADICTION = 0.7

_QUOTED = re.compile(r"[\"“«]([^\"”»]+)[\"”»]")


@dataclass(frozen=True)
class Ballot:
    """What one run says: its votes, each with the id of the lesson it is about (None: a new one), and its digest."""

    votes: tuple[tuple[Vote, str | None], ...]
    run: str | None


@dataclass(frozen=True)
class Wording:
    """What is compared of a lesson's text: its index terms in a row and as a set, and the names that it quotes."""

    row: str
    terms: frozenset[str]
    names: frozenset[str]


class Expel(SpaceProvider[Ballot]):
    """The original's counted rules under its four operations, applied in its order: REMOVE, AGREE, EDIT, ADD.

    ADD starts a lesson at 2. One that is there, or stands inside the new one, gets AGREE, +1. EDIT rewords a lesson,
    +1; where the new words hold another lesson, that one gets AGREE instead. REMOVE takes 1; where the list is full, 3.
    The distiller is shown 20 lessons (the original's whole list), those nearest to the task by words first, and has
    four votes, one per lesson. Beside the votes, a lesson that a new one contradicts loses 1, as does one that was
    injected into three failing tasks in a row; a correct task gives it 1. At 0 it goes.
    The original caps the list at 20 rules for one benchmark; a stream with hundreds of fields would forget a lesson
    before its field returns, so the cap is 200 here: the lowest counts go first, of equals the oldest.
    Lessons are found by TF-IDF cosine and need one shared word; runs by 0.3 TF-IDF + 0.7 cosine of the question.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="expel",
        title="ExpeL",
        family="insight",
        stores="short lessons from successes and failures, and condensed runs of solved tasks",
        retrieves="lessons by shared words, runs by words and meaning",
        gate="all",
        top_k=3,
    )

    def __init__(self, space: Space, distiller: Distiller, max_insights: int = 200) -> None:
        super().__init__(space, distiller)
        self.max_insights = max_insights

    def lead(self, query: Query) -> tuple[str, str] | None:
        found = self._insights(query) or self._runs(query)
        if not found:
            return None
        first = min(found, key=lambda record: record.payload.get("kind") == "failure")
        return first.payload["text"], first.id

    def find(self, query: Query) -> Retrieval:
        insights, runs = self._insights(query), self._runs(query)
        blocks = []
        for kind, header in (("success", "Lessons from solved tasks:"), ("failure", "Lessons from failed tasks:")):
            lines = [f"- {record.payload['text']}" for record in insights if record.payload["kind"] == kind]
            if lines:
                blocks.append("\n".join([header, *lines]))
        blocks += [f"A similar task that was solved:\n{record.payload['text']}" for record in runs]
        return Retrieval(
            provider=self.card.name,
            text="\n\n".join(blocks),
            item_ids=tuple(record.id for record in (*insights, *runs)),
            effects=tuple(Effect(provider=self.card.name, kind="use", record_id=record.id) for record in insights),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Ballot | None:
        known = await asyncio.to_thread(self._shown, trajectory.question)
        lessons = [Insight(text=record.text, kind=record.payload["kind"]) for record in known]
        votes = _counted_votes(await self.distiller.votes(trajectory, outcome, lessons), known)
        run = await self.distiller.condensed_run(trajectory, outcome) if outcome.correct is True else None
        return Ballot(votes, run) if votes or run else None

    def draft(self, trajectory: Trajectory, artefact: Ballot) -> list[Record]:
        """One draft per vote; one about a known lesson links to it and is no record of its own."""
        drafts = []
        for position, (vote, lesson) in enumerate(artefact.votes):
            payload = {"text": vote.text, "kind": vote.kind, "count": NEW_COUNT, "useless": 0}
            if lesson is not None:
                payload["vote"] = vote.operation
            draft = self.space.new_record(
                "insight",
                trajectory,
                position,
                text=vote.text,
                payload=payload,
                signature=content_hash(vote.kind, _terms(vote.text)),
            )
            drafts.append(draft.model_copy(update={"links": (lesson,)}) if lesson is not None else draft)
        if artefact.run:
            run = {"text": artefact.run}
            drafts.append(self.space.new_record("run", trajectory, 0, text=trajectory.question, payload=run))
        return drafts

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        kept: dict[str, None] = {}
        for draft, vector in zip(drafts, vectors, strict=True):
            if draft.links:
                kept |= dict.fromkeys(self._voted(draft))
            elif draft.kind == "insight":
                kept[self._added(draft, vector)] = None
            else:
                self.space.add([draft], vector[np.newaxis])
                kept[draft.id] = None
        self._enforce_cap()
        return tuple(kept)

    def take(self, effect: Effect, correct: bool) -> None:
        """A correct task is an AGREE; the third failing one in a row takes 1 from the count."""
        record = self.space.get(effect.record_id)
        if record is None or record.state == "archived":
            return
        useless = 0 if correct else record.payload["useless"] + 1
        step = 1 if correct else 0
        if useless == USELESS_IN_A_ROW:
            useless, step = 0, -1
        self._settle(record.model_copy(update={"payload": record.payload | {"useless": useless}}), step)

    def _insights(self, query: Query) -> list[Record]:
        hits = self.space.search_tfidf(query.text, kind="insight")
        hits.sort(key=lambda hit: (-hit[1], -hit[0].payload["count"], hit[0].id))
        return self.fitting(query, (record for record, _ in hits[: self.card.top_k]))

    def _runs(self, query: Query) -> list[Record]:
        return self.fitting(query, search_hybrid(self.space, query, self.card.top_k, "run", WORDS_SHARE))

    def _shown(self, question: str) -> list[Record]:
        with self.space.snapshot():
            near = {record.id: score for record, score in self.space.search_tfidf(question, SHOWN, kind="insight")}
            lessons = self.space.records("insight")
        lessons.sort(key=lambda record: (-near.get(record.id, 0.0), -record.payload["count"], record.id))
        return lessons[:SHOWN]

    def _added(self, draft: Record, vector: np.ndarray) -> str:
        """ADD: the id of the lesson that now holds the draft."""
        self._weaken_contradicted(draft)
        known = self._same_lesson(draft)
        if known is not None:
            self.space.update(_counted(with_origins(known, draft.origins), +1))
            return known.id
        draft = draft.model_copy(update={"payload": draft.payload | {"order": self._next_order()}})
        self.space.add([draft], vector[np.newaxis])
        return draft.id

    def _voted(self, draft: Record) -> tuple[str, ...]:
        """A vote on a known lesson: the id of the one that now holds it; nothing where it went in the meantime."""
        lesson = self.space.get(draft.links[0])
        if lesson is None or lesson.state == "archived":
            return ()
        vote = draft.payload["vote"]
        if vote == "REMOVE":
            full = len(self.space.records("insight")) >= self.max_insights
            self._settle(lesson, -3 if full else -1)
            return ()
        if vote == "EDIT":
            draft = draft.model_copy(update={"signature": content_hash(lesson.payload["kind"], _terms(draft.text))})
            other = self._same_lesson(draft, besides=lesson)
            if other is None:
                words = {"text": draft.text, "useless": 0}
                lesson = lesson.model_copy(
                    update={"text": draft.text, "signature": draft.signature, "payload": lesson.payload | words}
                )
            lesson = other or lesson
        self.space.update(_counted(with_origins(lesson, draft.origins), +1))
        return (lesson.id,)

    def _same_lesson(self, draft: Record, besides: Record | None = None) -> Record | None:
        """The lesson with the same index terms, or one whose terms stand in the new one's in a row; same kind only."""
        known = self.space.find_signature(draft.signature, kind="insight")
        if known is not None and known.id != (besides or draft).id:
            return known
        itself, kind = (besides or draft).id, (besides or draft).payload["kind"]
        new = f" {_terms(draft.text)} "
        for record in self.space.records("insight"):
            if record.payload["kind"] != kind or record.id == itself:
                continue
            terms = _terms(record.text)
            if terms and f" {terms} " in new:
                return record
        return None

    def _weaken_contradicted(self, draft: Record) -> None:
        """Take 1 from lessons of the other kind with nearly the same words and the same quoted names."""
        new, kind = _wording(draft.text), draft.payload["kind"]
        for record in self.space.records("insight"):
            if record.payload["kind"] == kind:
                continue
            other = _wording(record.text)
            smaller = min(len(new.terms), len(other.terms))
            alike = smaller > 0 and len(new.terms & other.terms) / smaller >= CONTRADICTION
            if alike and (new.names <= other.names or other.names <= new.names):
                self._settle(record, -1)

    def _settle(self, record: Record, step: int) -> None:
        record = _counted(record, step)
        self.space.update(record)
        if record.payload["count"] <= 0:
            self.space.archive(record.id, "its count fell to 0")

    def _enforce_cap(self) -> None:
        insights = self.space.records("insight")
        over = len(insights) - self.max_insights
        if over <= 0:
            return
        for record in nsmallest(over, insights, key=lambda record: (record.payload["count"], record.payload["order"])):
            self.space.archive(record.id, f"more than {self.max_insights} lessons")

    def _next_order(self) -> int:
        order = self.space.counter("insights") + 1
        self.space.set_counter("insights", order)
        return order


def _counted_votes(votes: Sequence[Vote], known: Sequence[Record]) -> tuple[tuple[Vote, str | None], ...]:
    """The votes that count, in the original's order: at most four, one per known lesson, none on an unknown one."""
    counted: list[tuple[Vote, str | None]] = []
    seen: set[int] = set()
    for vote in votes:
        if vote.operation in ("ADD", "EDIT") and not _terms(vote.text):
            continue
        if vote.operation == "ADD":
            counted.append((vote, None))
        elif vote.lesson is not None and 0 <= vote.lesson < len(known) and vote.lesson not in seen:
            seen.add(vote.lesson)
            counted.append((vote, known[vote.lesson].id))
    return tuple(sorted(counted[:MAX_VOTES], key=lambda entry: ORDER.index(entry[0].operation)))


@lru_cache(maxsize=4096)
def _wording(text: str) -> Wording:
    """Kept, since each new lesson is compared with all that stand."""
    terms = tokenise(text)
    return Wording(" ".join(terms), frozenset(terms), frozenset(_QUOTED.findall(text)))


def _terms(text: str) -> str:
    return _wording(text).row


def _counted(record: Record, step: int) -> Record:
    return record.model_copy(update={"payload": record.payload | {"count": record.payload["count"] + step}})
