"""Training rows: their form, their identity, and how a codec writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from providers.errors import ConfigError
from providers.types import Flow, content_hash
from router.codec import JsonCodec, MarksCodec, Prompt
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, InMode
from synth.runs import Run

Phase = Literal["begin", "in", "end"]
Part = Literal["train", "validation"]
PHASES: tuple[Phase, ...] = ("begin", "in", "end")
PARTS: tuple[Part, ...] = ("train", "validation")


class Row(Flow):
    """One training example.

    Codec marks: the i-th mark stands at the end of `segments[i]` and `targets[i]` is what candidate i should score,
    0 to 1, None without a label. Codec json: `prompt` and `completion`. The other codec's fields are empty.
    """

    phase: Phase
    task_id: str
    split: Part
    segments: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    targets: tuple[float | None, ...] = ()
    weight: float = 1.0
    prompt: str = ""
    completion: str = ""

    @property
    def text(self) -> str:
        """All that a model reads of it, a json answer included."""
        return "".join(self.segments) + self.prompt + self.completion


def load_rows(run: Run, split: Part) -> list[Row]:
    """The rows of one part, in the order of the file."""
    path = run.dataset / f"{split}.jsonl"
    if not path.exists():
        raise ConfigError(f"{path} does not exist: run `memroute build` with this config first")
    return [Row.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def dataset_hash(rows: Sequence[Row]) -> str:
    """The identity of a dataset: over its rows, whatever their order."""
    return content_hash("dataset", sorted(row.model_dump_json() for row in rows))


@dataclass(frozen=True)
class Place:
    """Where a row belongs and what it counts."""

    task_id: str
    part: Part
    weight: float = 1.0


@dataclass(frozen=True)
class Written:
    """A row, whether its codec had to cut what it shows of the task, and the providers whose decisions it holds."""

    row: Row
    shortened: bool
    providers: tuple[str, ...] = ()


class WholeMarks(MarksCodec):
    """The marks codec without a limit on what it shows of a task."""

    TASK = PREVIEW = CALL = SUMMARY = 10**6


class WholeJson(JsonCodec):
    """The json codec without a limit on what it shows of a task."""

    TASK = PREVIEW = CALL = SUMMARY = 10**6


class MarksWriter:
    """Rows of the marks codec."""

    def __init__(self) -> None:
        self._codec, self._whole = MarksCodec(), WholeMarks()

    def begin(
        self, context: BeginContext, place: Place, targets: Mapping[str, float | None], kept: Sequence[str]
    ) -> Iterator[Written]:
        """One row: what every arm achieved."""
        labelled = tuple(name for name, target in targets.items() if target is not None)
        prompt, whole = self._codec.begin(context), self._whole.begin(context)
        yield Written(_marks_row("begin", place, prompt, targets), prompt != whole, labelled)

    def in_(self, context: InContext, place: Place, action: InMode) -> Written:
        prompt, whole = self._codec.in_(context), self._whole.in_(context)
        targets = {prompt.candidates[0]: float(action == "query")}
        return Written(_marks_row("in", place, prompt, targets), prompt != whole)

    def end(self, context: EndContext, place: Place, targets: Mapping[str, float | None]) -> Written:
        prompt, whole = self._codec.end(context), self._whole.end(context)
        return Written(_marks_row("end", place, prompt, targets), prompt != whole, tuple(targets))


def _marks_row(phase: Phase, place: Place, prompt: Prompt, targets: Mapping[str, float | None]) -> Row:
    return Row(
        phase=phase,
        task_id=place.task_id,
        split=place.part,
        segments=prompt.segments,
        candidates=prompt.candidates,
        targets=tuple(targets.get(candidate) for candidate in prompt.candidates),
        weight=place.weight,
    )


class JsonWriter:
    """Rows of the json codec."""

    def __init__(self) -> None:
        self._codec, self._whole = JsonCodec(), WholeJson()

    def begin(
        self, context: BeginContext, place: Place, targets: Mapping[str, float | None], kept: Sequence[str]
    ) -> Iterator[Written]:
        """One row per kept decision."""
        prompt, whole = self._codec.begin(context), self._whole.begin(context)
        for provider in kept:
            row = self._row("begin", place, prompt, BeginDecision(providers=(provider,)))
            yield Written(row, prompt != whole, (provider,))

    def in_(self, context: InContext, place: Place, action: InMode) -> Written:
        prompt, whole = self._codec.in_(context), self._whole.in_(context)
        return Written(self._row("in", place, prompt, InDecision(action=action)), prompt != whole)

    def end(self, context: EndContext, place: Place, targets: Mapping[str, float | None]) -> Written:
        prompt, whole = self._codec.end(context), self._whole.end(context)
        chosen = tuple(name for name, target in targets.items() if target == 1.0)
        row = self._row("end", place, prompt, EndDecision(providers=chosen))
        return Written(row, prompt != whole, tuple(targets))

    def _row(
        self, phase: Phase, place: Place, prompt: Prompt, decision: BeginDecision | InDecision | EndDecision
    ) -> Row:
        return Row(
            phase=phase,
            task_id=place.task_id,
            split=place.part,
            weight=place.weight,
            prompt=prompt.text,
            completion=self._codec.completion(decision),
        )


def row_writer(codec: Literal["marks", "json"]) -> MarksWriter | JsonWriter:
    """The writer of a codec's rows."""
    return MarksWriter() if codec == "marks" else JsonWriter()
