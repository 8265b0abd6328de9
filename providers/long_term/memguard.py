"""MemGuard: governed lessons, the positive ones ranked by relevance and trust, failures shown as constraints."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import numpy as np

from providers.base import Candidate, Distiller, ProviderCard
from providers.dense import cosines_to
from providers.distill.candidates import SPAN
from providers.errors import ProviderError
from providers.governance.admission import FAILURE
from providers.governance.lifecycle import GOVERNED, SUMMARY, Governor, stale
from providers.governance.likeness import signature_of
from providers.governance.ranking import DEFAULT, best, guard_scores, positive_scores
from providers.governance.rule_verifier import RuleLooker
from providers.governance.verifier import Transcript, Verdict, Verifier, source_status, transcript
from providers.governance.words import trust_in_words
from providers.lexical import tokenise
from providers.long_term.base import SpaceProvider, with_origins
from providers.space import Space, sources_of
from providers.types import Descriptor, Outcome, Query, Record, Retrieval, Trajectory

if TYPE_CHECKING:
    import jinja2

POOL = 20
POSITIVES, SUMMARIES, GUARDS = 5, 2, 2
"""Most records of each sort that are shown."""
MOST_CANDIDATES = 3
LEAST_RELEVANCE = 0.25
"""Relevance below which a record is never shown (ours: the paper says "low-relevance")."""
GUARD_RELEVANCE = 0.62
GUARD_CONFIDENCE = 0.70
RESTATED = 0.8
"""Share of a candidate's terms from which on it says no more than the question."""
FULL_CONDITION = 8
"""Terms of a guard's condition from which on it is not over-general (ours)."""
_PROMPTS = Path(__file__).parent.parent / "governance" / "prompts"


@dataclass(frozen=True)
class _Pool:
    """Records for one query with their relevance: the mean of cosine and of BM25 as a share of the best one's."""

    query: Query
    records: tuple[Record, ...]
    relevance: np.ndarray
    run: int

    def where(self, fits: Callable[[Record, float], bool]) -> _Pool:
        kept = [n for n, record in enumerate(self.records) if fits(record, float(self.relevance[n]))]
        return _Pool(self.query, tuple(self.records[n] for n in kept), self.relevance[kept], self.run)


class MemGuard(SpaceProvider[tuple[Candidate, ...]]):
    """A run is verified by what its agent saw (the outcome that is given with it is not looked at), distilled to at
    most three candidates with evidence, and governed for as long as they are kept (MemGuard 3.2 to 3.5)."""

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="memguard",
        title="MemGuard",
        family="insight",
        stores="verified lessons per task with evidence and trust; failures as things to check",
        retrieves="the most relevant and trusted of them, with warnings that apply",
        gate="all",
        top_k=POSITIVES,
    )

    def __init__(self, space: Space, distiller: Distiller) -> None:
        super().__init__(space, distiller)
        self.governor = Governor(Verifier(RuleLooker()))
        self.weights = DEFAULT

    def judged(self, outcome: Outcome, verdict: Verdict | None) -> Outcome:
        """The verifier's word stands for the outcome."""
        if verdict is None:
            return outcome
        return verdict.outcome()

    def lead(self, query: Query) -> tuple[str, str] | None:
        chosen = [record for part in self.chosen(query) for record in part]
        return (_said(chosen[0]), chosen[0].id) if chosen else None

    def find(self, query: Query) -> Retrieval:
        positive, summaries, guards = self.chosen(query)
        shown = [*positive, *summaries, *guards]
        if not shown:
            return Retrieval(provider=self.card.name)
        text = block(positive, summaries, guards)
        return Retrieval(provider=self.card.name, text=text, item_ids=tuple(record.id for record in shown))

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Candidate, ...] | None:
        verdict = await self._governor.verify(trajectory)
        found = await self.distiller.candidates(trajectory, verdict)
        return found[:MOST_CANDIDATES] or None

    def draft(self, trajectory: Trajectory, artefact: tuple[Candidate, ...]) -> list[Record]:
        said = transcript(trajectory)
        return [self._record(trajectory, place, candidate, said) for place, candidate in enumerate(artefact)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        """Duplicates by signature become one record with further origins, where governance goes on after admission."""
        kept = []
        for draft, vector in zip(drafts, vectors, strict=True):
            states = GOVERNED if self._governor.goes_on else ()
            known = self.space.find_signature(draft.signature, draft.kind, states)
            if known is None:
                self.space.add([draft], vector[None, :])
                kept.append(draft.id)
            else:
                self.space.update(with_origins(known, draft.origins), "repeated", "another run says the same")
                kept.append(known.id)
        return tuple(kept)

    @property
    def _governor(self) -> Governor:
        if self.governor is None:
            raise ProviderError(f"{self.card.name!r} has no governor: give it one, it keeps nothing without.")
        return self.governor

    def _record(self, trajectory: Trajectory, place: int, candidate: Candidate, said: Transcript) -> Record:
        kind = candidate.type
        evidence = _line(candidate.evidence_span)[:SPAN]
        check = (candidate.guard_condition or candidate.content) if kind == FAILURE else ""
        payload = {
            "title": candidate.title,
            "description": candidate.description,
            "content": candidate.content,
            "applicability": candidate.applicability,
            "action": " ".join(sorted(set(tokenise(candidate.content)))),
            "risk": candidate.risk,
            "guard_condition": check,
            "evidence_span": evidence,
            "reject_reason": candidate.reject_reason
            or reject_reason(candidate.content, said.holds(evidence), trajectory),
            "source_status": source_status(trajectory),
        }
        signature = signature_of(
            kind=kind,
            pattern=candidate.description,
            action=candidate.content,
            scope=_scope_of(trajectory),
            condition=check or candidate.applicability,
        )
        parts = (candidate.title, candidate.description, candidate.content, candidate.applicability, evidence)
        text = " ".join(dict.fromkeys(part for part in parts if part))
        return self.space.new_record(kind, trajectory, place, text=text, payload=payload, signature=signature)

    def chosen(self, query: Query) -> tuple[list[Record], list[Record], list[Record]]:
        """Positive memories, summaries and failure guards to show, each best first."""
        pool = self._pool(query)
        fitting = {record.id for record in self.fitting(query, pool.records)}
        pool = pool.where(lambda record, relevance: record.id in fitting and relevance >= LEAST_RELEVANCE)
        if self._governor.mode == "admission":
            lessons = pool.where(lambda record, _: record.kind not in (FAILURE, SUMMARY))
            warnings = pool.where(lambda record, relevance: record.kind == FAILURE and relevance >= GUARD_RELEVANCE)
            return _by(lessons, lessons.relevance, POSITIVES), [], _by(warnings, warnings.relevance, GUARDS)
        sure = self._governor.rules.thresholds.confidence
        safe = pool.where(lambda record, _: record.state == "active" and _confidence(record) >= sure)
        lessons = safe.where(lambda record, _: record.kind not in (FAILURE, SUMMARY))
        summaries = safe.where(lambda record, _: record.kind == SUMMARY)
        guards = pool.where(
            lambda record, relevance: (
                record.state == "guard"
                and relevance >= GUARD_RELEVANCE
                and (_confidence(record) >= GUARD_CONFIDENCE or _known(record).review == "accepted")
            )
        )
        return (
            _by(lessons, positive_scores(signals(lessons), self.weights), POSITIVES),
            _by(summaries, positive_scores(signals(summaries), self.weights), SUMMARIES),
            _by(guards, guard_scores(signals(guards), self.weights), GUARDS),
        )

    def _pool(self, query: Query) -> _Pool:
        """The 20 records that are best by words and meaning together (MemGuard D.3)."""
        words = {record.id: (record, score) for record, score in self.space.search_lexical(query.text, POOL)}
        near = {record.id: (record, score) for record, score in self.space.search_dense(query.embedding, POOL)}
        records = {name: record for name, (record, _) in (words | near).items()}
        ids = sorted(records)
        if not ids:
            return _Pool(query, (), np.zeros(0), self._governor.runs(self.space))
        most = max((score for _, score in words.values()), default=0.0) or 1.0
        lexical = np.asarray(self.space.lexical_scores_of(query.text, ids)) / most
        cosines = np.maximum(cosines_to(self.space.vectors(ids), query.embedding), 0.0)
        relevance = np.minimum((lexical + cosines) / 2.0, 1.0)
        top = best(relevance, ids, POOL)
        return _Pool(query, tuple(records[ids[n]] for n in top), relevance[top], self._governor.runs(self.space))


class VerifierOnly(MemGuard):
    """MemGuard's control: the same verifier filters what comes in, and nothing of its verdict is kept or used after."""

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="verifier_only",
        title="Verifier-only",
        family="insight",
        stores="lessons of runs that a verifier let in",
        retrieves="the most relevant of them",
        gate="all",
        top_k=POSITIVES,
    )

    def __init__(self, space: Space, distiller: Distiller) -> None:
        super().__init__(space, distiller)
        self.governor = Governor(Verifier(RuleLooker()), mode="admission")


def signals(pool: _Pool) -> Mapping[str, np.ndarray]:
    """The raw signals of equations 3 and 4 for a pool, each of shape (len(pool.records),).

    The paper names them and leaves them open; ours: quality is the reward, for a failure lesson how sure the failure
    is; applicability the share of the condition's terms that the query has; use the logarithm of solved uses; verifier
    risk the mean of doubt and uncertainty; over-generality how few terms a guard's condition has.
    """
    known = [_known(record) for record in pool.records]
    asked = set(tokenise(pool.query.text))
    conditions = [set(tokenise(_condition(record))) for record in pool.records]

    def column(values: Sequence[float]) -> np.ndarray:
        return np.asarray(values, dtype=float)

    return {
        "relevance": pool.relevance,
        "quality": column(
            [
                _confidence(r) if r.kind == FAILURE else (d.reward or 0.0)
                for r, d in zip(pool.records, known, strict=True)
            ]
        ),
        "applicability": column([len(terms & asked) / len(terms) if terms else 0.0 for terms in conditions]),
        "recency": column([d.seen_run for d in known]),
        "use": column([math.log1p(d.wins) for d in known]),
        "conflict": column([len(d.conflicts) for d in known]),
        "staleness": column([stale(record, pool.run) for record in pool.records]),
        "verifier_risk": column([(1.0 - (d.confidence or 0.0) + (d.uncertainty or 0.0)) / 2.0 for d in known]),
        "over_generality": column([1.0 - min(1.0, len(terms) / FULL_CONDITION) for terms in conditions]),
    }


def block(positive: Sequence[Record], summaries: Sequence[Record], guards: Sequence[Record]) -> str:
    """What the agent is shown (MemGuard B.4). Every record stands on one line, so none can pass for another heading."""
    return (
        _template()
        .render(
            positive=[
                {
                    "id": record.id[:6],
                    "title": _line(record.payload["title"]),
                    "content": _line(record.payload["content"]),
                    "applicability": _line(record.payload["applicability"]),
                    "trust": trust_in_words(record.descriptor) if record.descriptor is not None else "unknown",
                }
                for record in positive
            ],
            summaries=[
                {
                    "id": record.id[:6],
                    "summary": _line(record.payload["summary"]),
                    "covered": ", ".join(covered[:6] for covered in record.payload["covered"]),
                    "applicability": _line(record.payload["applicability"]),
                }
                for record in summaries
            ],
            guards=[
                {
                    "id": record.id[:6],
                    "risk": record.payload["risk"],
                    "check": _line(record.payload["guard_condition"]),
                    "evidence": _line(record.payload["evidence_span"]).replace('"', "'"),
                }
                for record in guards
            ],
        )
        .strip()
    )


def reject_reason(content: str, shown: bool, trajectory: Trajectory) -> str:
    """Why a candidate is not kept, whatever the verdict (MemGuard B.3); empty where nothing speaks against it.

    `shown`: its evidence span stands in the run.
    """
    if not shown:
        return "no words of its run support it"
    terms = set(tokenise(content))
    if terms and len(terms & set(tokenise(trajectory.question))) >= RESTATED * len(terms):
        return "it says no more than the task"
    answer = " ".join((trajectory.answer or "").split())
    if len(answer) > 3 and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", content, re.IGNORECASE):
        return "it holds the answer of its task"
    return ""


def _scope_of(trajectory: Trajectory) -> str:
    """The sites that the run saw, or else its tools."""
    sites = {urlsplit(source).netloc for source in sources_of(trajectory)} - {""}
    return " ".join(sorted(sites or {step.tool for step in trajectory.steps}))


def _by(pool: _Pool, scores: np.ndarray, k: int) -> list[Record]:
    ids = [record.id for record in pool.records]
    return [pool.records[place] for place in best(scores, ids, k)]


def _known(record: Record) -> Descriptor:
    return record.descriptor or Descriptor()


def _confidence(record: Record) -> float:
    return _known(record).confidence or 0.0


def _condition(record: Record) -> str:
    return str(record.payload.get("guard_condition") or record.payload.get("applicability", ""))


def _said(record: Record) -> str:
    if record.kind == SUMMARY:
        return _line(record.payload["summary"])
    if record.kind == FAILURE:
        return f"Check before acting: {_line(record.payload['guard_condition'])}"
    return f"{_line(record.payload['title'])}: {_line(record.payload['content'])}"


def _line(text: str) -> str:
    return " ".join(str(text).split())


@lru_cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PROMPTS),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template("memory_block.jinja")
