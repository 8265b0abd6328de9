"""Whether the adapter, the merged model and the model that serving loads take the same decisions."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from providers.errors import EngineError
from providers.files import write_atomically
from providers.registry import provider_cards
from router.adapter import load_router, read_record
from router.base_model import load_base
from router.codec import decide_begin, decide_end, decide_in
from router.marks import MarkTokenizer
from router.policies.learned import Generating
from synth.rows import Row
from synth.runs import Run
from train.collate import answers_loss, collate_rows
from train.contexts import encode_contexts
from train.job import Job
from train.marks import encode_rows, score_examples, shifted

WAYS = ("adapter", "merged", "reloaded")
"""The base with the adapter beside its weights; the exported model; base and adapter put together as serving does."""


class Difference(BaseModel, frozen=True):
    """A prompt on which two ways decide differently."""

    phase: str
    task_id: str
    way: str
    """The one that differs from the adapter."""
    adapter: str
    """The adapter's decision."""
    other: str
    margin: float
    """How sure the adapter is of its own: by log-odds (marks), or by log-probability of the two answers (json)."""


class Parity(BaseModel, frozen=True):
    """The decisions of all three ways on the held-out prompts."""

    prompts: int
    largest_gap: dict[str, float]
    """Largest difference of a log-odds to the adapter's, by way (marks)."""
    differences: tuple[Difference, ...]

    def lines(self) -> list[str]:
        """For a terminal."""
        found = [f"{self.prompts} held-out prompts, {len(self.differences)} decisions differ from the adapter's"]
        found += [f"  {way}: log-odds differ by at most {gap:.2g}" for way, gap in self.largest_gap.items()]
        return found + [
            f"  {d.way}, {d.phase} of {d.task_id}: {d.other} instead of {d.adapter} (margin {d.margin:.3g})"
            for d in self.differences
        ]


def check_parity(run: Run) -> Parity:
    """Compare the three ways on all validation prompts; written to `run.evaluation/parity.json`.

    Raises `EngineError` where no training has finished, or nothing is held out.
    """
    rows = list({row.text if run.config.train.codec == "marks" else row.prompt: row for row in _held_out(run)}.values())
    parity = _marks_parity(run, rows) if run.config.train.codec == "marks" else _json_parity(run, rows)
    write_atomically(run.evaluation / "parity.json", parity.model_dump_json(indent=2) + "\n")
    return parity


def _held_out(run: Run) -> list[Row]:
    read_record(run.adapter)
    rows = Job.of_run(run).validation
    if not rows:
        raise EngineError("No row is held out (dataset.validation_share), so there is nothing to compare on.")
    return rows


def _models(run: Run) -> Iterator[tuple[str, Any, Any]]:
    """The ways one after another: at most one model is in memory."""
    config = run.config.train
    for way in WAYS:
        if way == "adapter":
            from peft import PeftModel

            plain, tokenizer = load_base(config.base, dtype=config.dtype)
            model: Any = PeftModel.from_pretrained(plain, str(run.adapter)).eval()
            yield way, model, tokenizer
            del plain
        elif way == "merged":
            model, tokenizer = load_base(str(run.merged), dtype=config.dtype)
            yield way, model, tokenizer
        else:
            cards = provider_cards(run.config.providers)
            model, tokenizer = load_router(config.base, run.adapter, config.codec, cards, dtype=config.dtype)
            yield way, model, tokenizer
        del model
        gc.collect()


def _marks_parity(run: Run, rows: Sequence[Row]) -> Parity:
    config, offsets = run.config.train, read_record(run.adapter).offsets
    scores: dict[str, list[list[float]]] = {}
    for way, model, tokenizer in _models(run):
        marks = MarkTokenizer(tokenizer)
        examples = encode_rows(rows, marks, config.max_tokens)
        inner = model.get_base_model() if way == "adapter" else model
        raw = score_examples(inner, examples, marks.yes, marks.no, config.batch_size)
        scores[way] = shifted(examples, raw, offsets)
    own = scores["adapter"]
    differences = [
        Difference(
            phase=row.phase,
            task_id=row.task_id,
            way=way,
            adapter=_decided(row, mine),
            other=_decided(row, theirs),
            margin=_margin(row, mine),
        )
        for way in WAYS[1:]
        for row, mine, theirs in zip(rows, own, scores[way], strict=True)
        if _decided(row, mine) != _decided(row, theirs)
    ]
    gaps = {
        way: max(
            (
                abs(a - b)
                for mine, theirs in zip(own, scores[way], strict=True)
                for a, b in zip(mine, theirs, strict=True)
            ),
            default=0.0,
        )
        for way in WAYS[1:]
    }
    return Parity(prompts=len(rows), largest_gap=gaps, differences=tuple(differences))


def _decided(row: Row, scores: Sequence[float]) -> str:
    if row.phase == "begin":
        return decide_begin(scores, row.candidates).arm
    if row.phase == "in":
        return decide_in(scores).action
    return ", ".join(decide_end(scores, row.candidates).providers) or "none"


def _margin(row: Row, scores: Sequence[float]) -> float:
    """How far the scores are from another decision."""
    if row.phase == "begin":
        first, *rest = sorted(scores, reverse=True)
        return first - rest[0] if rest else first
    return min((abs(score) for score in scores), default=0.0)


def _json_parity(run: Run, rows: Sequence[Row]) -> Parity:
    answers: dict[str, list[str]] = {}
    for way, model, tokenizer in _models(run):
        policy = Generating(model, tokenizer, name=way)
        answers[way] = [policy.answer(row.prompt, row.phase) for row in rows]
    pairs = [
        (way, row, mine, theirs)
        for way in WAYS[1:]
        for row, mine, theirs in zip(rows, answers["adapter"], answers[way], strict=True)
        if mine != theirs
    ]
    margins = _preferences(run, [(row, mine, theirs) for _, row, mine, theirs in pairs])
    return Parity(
        prompts=len(rows),
        largest_gap={},
        differences=tuple(
            Difference(phase=row.phase, task_id=row.task_id, way=way, adapter=mine, other=theirs, margin=margin)
            for (way, row, mine, theirs), margin in zip(pairs, margins, strict=True)
        ),
    )


def _preferences(run: Run, pairs: Sequence[tuple[Row, str, str]]) -> list[float]:
    """By how much the adapter prefers its own answer: the difference of the log-probabilities."""
    import torch

    if not pairs:
        return []
    _, model, tokenizer = next(_models(run))

    def surprise(row: Row, answer: str) -> float:
        given = [row.model_copy(update={"completion": answer, "weight": 1.0})]
        inputs = collate_rows(encode_contexts(given, tokenizer, run.config.train.max_tokens + 256, shared=False))
        on_device = {name: part.to(model.device) for name, part in inputs.items()}
        return float(answers_loss(model, on_device, 1))

    with torch.inference_mode():
        return [surprise(row, theirs) - surprise(row, mine) for row, mine, theirs in pairs]
