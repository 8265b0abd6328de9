"""The forms in which a model gives its artefacts. "Nothing to learn" is an empty list or null, never a blank text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, create_model

from providers.types import Text

Line = Annotated[Text, StringConstraints(strip_whitespace=True, min_length=1, max_length=600)]
Passage = Annotated[Text, StringConstraints(strip_whitespace=True, min_length=1, max_length=6_000)]
Optional = Annotated[Text, StringConstraints(strip_whitespace=True, max_length=6_000)]
Grade = Annotated[int, Field(ge=1, le=10)]


class Answer(BaseModel):
    """Base of the forms: what is not asked for is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Lines(Answer):
    """A list of sentences."""

    sentences: list[Line] = Field(max_length=12)


class Note(Answer):
    """One text, or null."""

    text: Passage | None


class Free(Answer):
    """One text that may be empty."""

    text: Optional


class WorkflowForm(Answer):
    query: Line
    variables: list[Line] = Field(max_length=12)
    steps: list[Line] = Field(min_length=2, max_length=20)


class WorkflowAnswer(Answer):
    workflow: WorkflowForm | None


class SkillForm(Answer):
    doc: Passage
    code: Passage


class SkillAnswer(Answer):
    skill: SkillForm | None


class NarrativeForm(Answer):
    summary: Passage
    steps: list[Line] = Field(min_length=1, max_length=60)
    """A list, since a small model ends a text after its first line."""


class NarrativeAnswer(Answer):
    narrative: NarrativeForm | None


class ImportanceAnswer(Answer):
    importance: Grade


class ScriptForm(Answer):
    script: Passage
    steps: Passage


class ScriptAnswer(Answer):
    script: ScriptForm | None


class ExperienceForm(Answer):
    plan: Passage
    search_plan: Passage
    lessons: Passage
    search_lessons: Passage


class ExperienceAnswer(Answer):
    experience: ExperienceForm | None


class StrategiesAnswer(Answer):
    strategic: list[Line] = Field(max_length=6)
    operational: list[Line] = Field(max_length=6)


class ShortcutForm(Answer):
    name: Line
    description: Line
    precondition: Line
    steps: list[Line] = Field(min_length=3, max_length=6)


class ShortcutAnswer(Answer):
    shortcut: ShortcutForm | None


class TripletForm(Answer):
    subject: Line
    relation: Line
    object: Line


class PrincipleForm(Answer):
    description: Line
    triplets: list[TripletForm] = Field(max_length=6)


class PrincipleAnswer(Answer):
    principle: PrincipleForm | None


class SameAnswer(Answer):
    same: bool


class ReasoningForm(Answer):
    title: Line
    description: Line
    content: Passage


class ReasoningAnswer(Answer):
    items: list[ReasoningForm] = Field(max_length=8)


def _none_is_empty(text: str) -> str:
    return "" if text.upper().strip(" .") == "NONE" else text


OrNone = Annotated[Optional, AfterValidator(_none_is_empty)]
"""A text that may be empty, also spelt as NONE."""


class CandidateForm(Answer):
    type: Literal["procedural_hint", "tool_usage", "failure_avoidance"]
    title: Line
    description: Line
    content: Passage
    applicability: Line
    risk: Literal["none", "low", "medium", "high"]
    guard_condition: OrNone
    evidence_span: OrNone
    reject_reason: OrNone


class CandidatesAnswer(Answer):
    records: list[CandidateForm] = Field(max_length=8)


def ratings_answer(notes: int) -> type[Answer]:
    """`ratings`: exactly one grade per note."""
    grades = Annotated[list[Grade], Field(min_length=notes, max_length=notes)]
    return create_model("RatingsAnswer", __base__=Answer, ratings=(grades, ...))


def picks_answer(items: int, most: int) -> type[Answer]:
    """`picked`: at most `most` positions below `items`; `advice`: the text merged from them."""
    positions = Annotated[list[Annotated[int, Field(ge=0, lt=items)]], Field(max_length=most)]
    return create_model("PicksAnswer", __base__=Answer, picked=(positions, ...), advice=(Optional, ...))


def votes_answer(known: int) -> type[Answer]:
    """`votes`: operations on lessons by their positions below `known`."""
    operation: Any = Literal["ADD", "AGREE", "EDIT", "REMOVE"] if known else Literal["ADD"]
    vote: Any = create_model(
        "VoteForm", __base__=Answer, operation=(operation, ...), lesson=(_position(known), ...), text=(Optional, ...)
    )
    votes: Any = Annotated[list[vote], Field(max_length=8)]
    return create_model("VotesAnswer", __base__=Answer, votes=(votes, ...))


def sheet_answer(items: int, runs: int) -> type[Answer]:
    """`entries`: the new sheet, its items referring to old items and past runs by their positions."""
    entry: Any = create_model(
        "EntryForm",
        __base__=Answer,
        description=(Passage, ...),
        example=(Optional, ...),
        continues=(_position(items), ...),
        source=(_position(runs), ...),
        used=(bool, ...),
    )
    entries: Any = Annotated[list[entry], Field(max_length=40)]
    return create_model("SheetAnswer", __base__=Answer, entries=(entries, ...))


def _position(of: int) -> Any:
    """A position below `of`, or null."""
    return Annotated[int, Field(ge=0, lt=of)] | None if of else None
