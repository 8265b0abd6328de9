"""SkillWeaver: callable functions from solved tasks, found by the words of their names and docs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from providers.base import Distiller, ProviderCard, Skill
from providers.errors import ProviderError
from providers.lexical import tokenise
from providers.long_term.base import Refused, SpaceProvider, with_origins
from providers.space import Space
from providers.types import Effect, Outcome, Parameter, Query, Record, Retrieval, SkillSpec, Trajectory, content_hash

NAME_WEIGHT = 2.0
FIRST_LINE_WEIGHT = 1.5
DOC_WEIGHT = 1.0
TRIALS = 3
DOC_LINES = 5


class SkillWeaver(SpaceProvider[Skill]):
    """Functions that passed `check_code`, one record per name and code (MemAgent Table 6).

    A further run with the same code adds an origin and its own doc lines (the original's usage log, at most five
    lines). A new version of a known name is provisional: it is offered in the old one's place until it was retrieved
    for a task that ended correct, and then replaces it, or for three that did not, and is dropped.
    Words are matched whole and stop words are left out, or most words would match most docs.
    """

    CARD: ClassVar[ProviderCard] = ProviderCard(
        name="skillweaver",
        title="SkillWeaver",
        family="structural",
        stores="one callable function with parameters per solved task",
        retrieves="the functions whose name or doc shares words with the question",
        gate="success",
        top_k=3,
    )

    def __init__(self, space: Space, distiller: Distiller) -> None:
        super().__init__(space, distiller)
        self._cached: tuple[int, dict[str, list[tuple[str, float]]]] | None = None

    def lead(self, query: Query) -> tuple[str, str] | None:
        ranked = self._ranked(query)
        return (_signature_line(ranked[0]), ranked[0].id) if ranked else None

    def find(self, query: Query) -> Retrieval:
        ranked = self._ranked(query)
        if not ranked:
            return Retrieval(provider=self.card.name)
        return Retrieval(
            provider=self.card.name,
            text="Skills that can be called:\n\n" + "\n\n".join(_signature_line(record) for record in ranked),
            item_ids=tuple(record.id for record in ranked),
            skills=tuple(_spec(record) for record in ranked),
            effects=tuple(Effect(provider=self.card.name, kind="use", record_id=record.id) for record in ranked),
        )

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None:
        from providers.skills import check_code

        skill = await self.distiller.skill(trajectory, outcome)
        if skill is not None:
            try:
                check_code(skill.name, skill.code)
            except ProviderError as error:
                raise Refused(f"the skill was refused: {error}") from error
        return skill

    def draft(self, trajectory: Trajectory, artefact: Skill) -> list[Record]:
        payload: dict[str, Any] = {
            "name": artefact.name,
            "parameters": [parameter.model_dump() for parameter in artefact.parameters],
            "doc": artefact.doc,
            "code": artefact.code,
            "version": 1,
            "uses": 0,
            "tests": 0,
        }
        text = f"{artefact.name.replace('_', ' ')}\n{artefact.doc}"
        signature = content_hash(artefact.name, artefact.code)
        return [self.space.new_record("skill", trajectory, 0, text=text, payload=payload, signature=signature)]

    def keep(self, drafts: Sequence[Record], vectors: np.ndarray) -> tuple[str, ...]:
        (draft,) = drafts
        known = self.space.find_signature(draft.signature, kind="skill")
        if known is not None:
            doc = _joined_docs(known.payload["doc"], draft.payload["doc"])
            self.space.update(
                with_origins(known, draft.origins).model_copy(update={"payload": known.payload | {"doc": doc}})
            )
            return (known.id,)
        versions = [r for r in self.space.records("skill") if r.payload["name"] == draft.payload["name"]]
        if versions:
            newest = max(record.payload["version"] for record in versions)
            payload = draft.payload | {"version": newest + 1}
            draft = draft.model_copy(update={"payload": payload, "state": "provisional"})
        return super().keep([draft], vectors)

    def take(self, effect: Effect, correct: bool) -> None:
        """Count a retrieval and whether its task ended correct; settle the trial of a provisional version."""
        record = self.space.get(effect.record_id)
        if record is None or record.state == "archived":
            return
        payload = record.payload | {
            "uses": record.payload["uses"] + 1,
            "tests": record.payload["tests"] + int(correct),
        }
        record = record.model_copy(update={"payload": payload})
        if record.state == "provisional" and correct:
            for older in self.space.records("skill"):
                if older.payload["name"] == payload["name"] and older.payload["version"] < payload["version"]:
                    self.space.archive(older.id, f"replaced by version {payload['version']}")
            record = record.model_copy(update={"state": "active"})
        self.space.update(record)
        if record.state == "provisional" and payload["uses"] >= TRIALS:
            self.space.archive(record.id, f"no correct run in {TRIALS} trials")

    def _ranked(self, query: Query) -> list[Record]:
        """The best of the offered versions with a score above 0, by score and then by id."""
        weights = self._weights()
        scores: defaultdict[str, float] = defaultdict(float)
        for term in sorted(set(tokenise(query.text))):
            for record_id, weight in weights.get(term, ()):
                scores[record_id] += weight
        best = sorted(scores, key=lambda record_id: (-scores[record_id], record_id))
        return self.fitting(query, (self.space.existing(record_id) for record_id in best[: self.card.top_k]))

    def _weights(self) -> dict[str, list[tuple[str, float]]]:
        """Term -> what it adds to the score of each offered version, cached until the space changes."""
        generation = self.space.generation
        if self._cached is None or self._cached[0] != generation:
            weights: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
            for record in self._offered():
                first, _, rest = record.payload["doc"].partition("\n")
                places = ((record.payload["name"], NAME_WEIGHT), (first, FIRST_LINE_WEIGHT), (rest, DOC_WEIGHT))
                for text, weight in places:
                    for term in set(tokenise(text)):
                        weights[term].append((record.id, weight))
            self._cached = (generation, dict(weights))
        return self._cached[1]

    def _offered(self) -> list[Record]:
        """The newest version of each name."""
        by_name: dict[str, Record] = {}
        for record in self.space.records("skill"):
            other = by_name.get(record.payload["name"])
            if other is None or record.payload["version"] > other.payload["version"]:
                by_name[record.payload["name"]] = record
        return list(by_name.values())


def _spec(record: Record) -> SkillSpec:
    payload = record.payload
    return SkillSpec(
        name=payload["name"],
        parameters=tuple(Parameter.model_validate(parameter) for parameter in payload["parameters"]),
        doc=payload["doc"],
        code_id=content_hash(payload["code"]),
        code=payload["code"],
    )


def _signature_line(record: Record) -> str:
    parameters = ", ".join(f"{parameter['name']}: {parameter['type']}" for parameter in record.payload["parameters"])
    return f"{record.payload['name']}({parameters}): {record.payload['doc']}"


def _joined_docs(known: str, new: str) -> str:
    lines = dict.fromkeys([*known.splitlines(), *new.splitlines()])
    return "\n".join(list(lines)[:DOC_LINES])
