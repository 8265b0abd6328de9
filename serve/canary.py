"""Whether an engine decides as the exported model does: fixed prompts with the decisions that it must give.

The expected decisions come from the merged model in this process, once per training; they are kept as `canary.json` in
the run's folder. Of the held-out prompts those are taken on which the model is surest, and of every decision some, so
that a constant answer does not pass for agreement; where it decides by a hair, log-odds are compared alone.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from providers.errors import EngineError
from providers.files import write_atomically
from providers.types import Flow, content_hash
from router.adapter import AdapterRecord
from router.codec import CodecName, Prompt, decide_begin, decide_end, decide_in
from router.decisions import SHORT_TERM
from router.marks import with_offsets
from serve.failures import EngineFailure
from serve.schemas import begin_schema, end_schema, in_schema
from synth.rows import PARTS, PHASES, Phase, Row, load_rows

if TYPE_CHECKING:
    from synth.runs import Run

LOOKED_AT = {"begin": 24, "in": 6, "end": 6}
"""Prompts of each phase that the exported model is asked."""
KEPT = {"begin": 6, "in": 2, "end": 2}
ROUNDING = 0.5
"""A decision that the exported model takes by less than this (log-odds, or logits) may fall out otherwise elsewhere."""
LARGEST_GAP = 1.0
"""Of a log-odds. bfloat16 on other kernels moves one by a tenth or two; another adapter moves it by whole units."""
MOST_TOKENS = 128


class Case(Flow):
    """One prompt and what the exported model makes of it."""

    phase: Phase
    task_id: str
    segments: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    """Log-odds without offsets (marks)."""
    prompt: str = ""
    answer: str = ""
    """The greedy answer without a grammar (json)."""
    margin: float
    """How far the decision is from another: in log-odds, or in logits of the closest token."""


class Canary(Flow):
    """The cases of one training."""

    stamp: str
    """Changes with the training and its offsets."""
    codec: CodecName
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Agreement:
    """How an engine did on the canary."""

    cases: int
    largest_gap: float | None
    """Largest difference of a log-odds (marks)."""


def load_canary(run: Run, record: AdapterRecord) -> Canary:
    """The canary of what stands in the run's folder; made with the merged model where there is none of this training.

    Raises `EngineError` where the merged model cannot be loaded, ConfigError where the dataset is gone.
    """
    path = run.root / "canary.json"
    stamp = stamp_of(record)
    try:
        known = Canary.model_validate_json(path.read_text(encoding="utf-8"))
        if known.stamp == stamp:
            return known
    except (FileNotFoundError, ValidationError):
        pass
    cases = _marks_cases(run, record) if record.codec == "marks" else _json_cases(run, record.providers)
    if not cases:
        raise EngineError(
            "There is nothing that the engine could be checked on: the dataset has no row (run `memroute build`), "
            "or the model answers none legally (train it longer, or serve another router)."
        )
    made = Canary(stamp=stamp, codec=record.codec, cases=cases)
    write_atomically(path, made.model_dump_json(indent=1) + "\n")
    return made


def stamp_of(record: AdapterRecord) -> str:
    """Changes with whatever the expected decisions depend on."""
    return content_hash("canary of legal answers", record.fingerprint, record.template_hash, record.offsets, KEPT)


def compare_marks(canary: Canary, scores: Sequence[Sequence[float]], record: AdapterRecord) -> Agreement:
    """Hold an engine's log-odds against the canary's. Raises `EngineFailure` (refused) where a decision differs."""
    gaps = [0.0]
    for case, found in zip(canary.cases, scores, strict=True):
        gaps += [abs(mine - theirs) for mine, theirs in zip(case.scores, found, strict=True)]
        offsets = record.offsets.get(case.phase, {})
        expected, decided = (decided_marks(case.phase, case.candidates, each, offsets) for each in (case.scores, found))
        if expected != decided and case.margin > ROUNDING:
            raise _differs(case, expected, decided)
    if max(gaps) > LARGEST_GAP:
        raise EngineFailure(
            f"The engine's log-odds differ from the exported model's by up to {max(gaps):.2f}: it serves another "
            "adapter or base.",
            kind="refused",
        )
    return Agreement(len(canary.cases), max(gaps))


def compare_answer(case: Case, answer: str) -> None:
    """Hold an engine's json answer against a case. Raises `EngineFailure` (refused) where it decides otherwise."""
    if _object(answer) != _object(case.answer) and case.margin > ROUNDING:
        raise _differs(case, case.answer, answer)


def is_legal(answer: str, phase: Phase, providers: Sequence[str]) -> bool:
    """Whether the grammar of that phase lets an answer through; at End over all providers."""
    found = _object(answer)
    if phase == "begin":
        return found in [{"action": "query", "provider": name} for name in providers]
    if phase == "in":
        return found in ({"action": "query", "provider": SHORT_TERM}, {"action": "no_op", "provider": None})
    kept = found.get("selected_providers") if isinstance(found, dict) and len(found) == 1 else None
    return isinstance(kept, list) and all(name in providers for name in kept)


def case_schema(case: Case, providers: Sequence[str]) -> dict[str, Any]:
    """The schema for a json case; at End all providers, since the case does not say whose gate is open."""
    schemas = {"begin": begin_schema(providers), "in": in_schema(), "end": end_schema(providers)}
    return schemas[case.phase]


def decided_marks(phase: Phase, candidates: Sequence[str], scores: Sequence[float], offsets: dict[str, float]) -> str:
    """The decision that log-odds give, as a word or two."""
    shifted = with_offsets(scores, candidates, offsets)
    if phase == "begin":
        return decide_begin(shifted, candidates).arm
    if phase == "in":
        return decide_in(shifted).action
    return ", ".join(decide_end(shifted, candidates).providers) or "none"


def surest(cases: Sequence[tuple[str, Case]], most: int) -> list[Case]:
    """Up to `most` cases, the surest of every decision in turn; `cases` are pairs of decision and case."""
    by_decision: dict[str, list[Case]] = {}
    for decision, case in sorted(cases, key=lambda pair: -pair[1].margin):
        by_decision.setdefault(decision, []).append(case)
    ranks = [(place, -case.margin, case) for each in by_decision.values() for place, case in enumerate(each)]
    return [case for _, _, case in sorted(ranks, key=lambda rank: rank[:2])][:most]


def _marks_cases(run: Run, record: AdapterRecord) -> tuple[Case, ...]:
    from router.base_model import load_base
    from router.policies.learned import Learned

    rows = _rows(run)
    model, tokenizer = load_base(str(run.merged), dtype=run.config.train.dtype)
    policy = Learned(model, tokenizer, name="exported")
    scores = policy.score_prompts([Prompt(segments=row.segments, candidates=row.candidates) for row in rows])
    del policy, model
    gc.collect()
    cases = []
    for row, found in zip(rows, scores, strict=True):
        offsets = record.offsets.get(row.phase, {})
        case = Case(
            phase=row.phase,
            task_id=row.task_id,
            segments=row.segments,
            candidates=row.candidates,
            scores=tuple(found),
            margin=_margin(row, found, offsets),
        )
        cases.append((decided_marks(row.phase, row.candidates, found, offsets), case))
    return _kept(cases)


def _json_cases(run: Run, providers: Sequence[str]) -> tuple[Case, ...]:
    """Without answers that are illegal: the engine's grammar makes others of them, and it is to."""
    from router.base_model import load_base
    from router.policies.learned import Generating

    rows = _rows(run)
    policy = Generating(*load_base(str(run.merged), dtype=run.config.train.dtype), name="exported")
    cases = []
    for row in rows:
        answer, margin = policy.answer_with_margin(row.prompt, row.phase)
        if is_legal(answer, row.phase, providers):
            case = Case(phase=row.phase, task_id=row.task_id, prompt=row.prompt, answer=answer, margin=margin)
            cases.append((answer, case))
    del policy
    gc.collect()
    return _kept(cases)


def _rows(run: Run) -> list[Row]:
    """Some rows of every phase, held-out ones first, each prompt once."""
    distinct = {
        row.text if row.segments else row.prompt: row for part in reversed(PARTS) for row in load_rows(run, part)
    }
    return [row for phase in PHASES for row in _of(phase, distinct.values())[: LOOKED_AT[phase]]]


def _of(phase: Phase, rows: Any) -> list[Row]:
    return [row for row in rows if row.phase == phase]


def _kept(cases: Sequence[tuple[str, Case]]) -> tuple[Case, ...]:
    return tuple(
        case for phase in PHASES for case in surest([pair for pair in cases if pair[1].phase == phase], KEPT[phase])
    )


def _margin(row: Row, scores: Sequence[float], offsets: dict[str, float]) -> float:
    shifted = with_offsets(scores, row.candidates, offsets)
    if row.phase == "begin":
        first, *rest = sorted(shifted, reverse=True)
        return first - rest[0] if rest else 0.0
    return min((abs(score) for score in shifted), default=0.0)


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _differs(case: Case, expected: str, found: str) -> EngineFailure:
    return EngineFailure(
        f"The engine decides {found!r} where the exported model decides {expected!r} ({case.phase} of {case.task_id}): "
        "it serves another adapter or base, or frames the prompt otherwise.",
        kind="refused",
    )
