"""Training on marks: rows -> tokens, batches that waste little, and the loss at the marks alone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from providers.errors import EngineError
from providers.types import content_hash
from router.marks import Batch, Encoded, MarkTokenizer, collate, mark_scores, with_offsets
from synth.rows import Row

if TYPE_CHECKING:
    import torch

CHUNK = 8
"""Batches within which rows are sorted by length; between them they stay shuffled."""


def encode_rows(rows: Sequence[Row], tokenizer: MarkTokenizer, max_tokens: int) -> list[dict[str, Any]]:
    """One training example per row: `input_ids`, `marks`, `candidates`, `targets` (NaN: no label), `weight`, `phase`.

    Raises `EngineError` for a row with more than `max_tokens` tokens: a cut prompt would teach nothing.
    """
    examples = []
    for row in rows:
        encoded = tokenizer.encode(row.segments)
        if len(encoded.tokens) > max_tokens:
            raise too_long(row, len(encoded.tokens), max_tokens)
        targets = [math.nan if target is None else target for target in row.targets]
        if all(map(math.isnan, targets)):
            raise EngineError(f"The {row.phase} row of task {row.task_id} has no label; build the dataset again.")
        examples.append(
            {
                "input_ids": list(encoded.tokens),
                "marks": list(encoded.marks),
                "candidates": list(row.candidates),
                "targets": targets,
                "weight": row.weight,
                "phase": row.phase,
            }
        )
    return examples


def too_long(row: Row, tokens: int, max_tokens: int) -> EngineError:
    """The error for a row over the limit, with the row's beginning."""
    text = " ".join(("".join(row.segments) or row.prompt).split())
    return EngineError(
        f"The {row.phase} row of task {row.task_id} has {tokens} tokens, over train.max_tokens = {max_tokens}; "
        f"raise it or shorten what the providers show. The row begins: {text[:200]!r}"
    )


def collate_examples(examples: Sequence[Mapping[str, Any]], *, share: bool = True) -> dict[str, torch.Tensor]:
    """A batch of `encode_rows` as tensors: those of `router.marks.Batch`, `targets` and `weights` per mark.

    A mark's weight is its row's, shared among the row's labelled marks and the batch's rows, so that every row counts
    alike however many candidates it has and however rows are batched; 0 where there is no label.
    """
    import torch

    prompts = [Encoded(tuple(example["input_ids"]), tuple(example["marks"])) for example in examples]
    batch = collate(prompts, share=share)
    targets = torch.tensor([target for example in examples for target in example["targets"]], dtype=torch.float32)
    weights = []
    for example in examples:
        labelled = [not math.isnan(target) for target in example["targets"]]
        weights += [example["weight"] * known / sum(labelled) / len(examples) for known in labelled]
    return {
        "input_ids": batch.rest,
        "prefix": batch.prefix,
        "row": batch.row,
        "column": batch.column,
        "targets": targets,
        "weights": torch.tensor(weights, dtype=torch.float32),
    }


def marks_loss(
    model: Any, inputs: Mapping[str, torch.Tensor], yes: int, no: int, *, listwise: bool = False
) -> torch.Tensor:
    """Weighted binary cross-entropy of the marks' log-odds against soft targets; no other token carries loss.

    With `listwise` a row's candidates are also held against each other (`listwise_loss`).
    """
    scores = _scores(model, inputs, yes, no)
    loss = _loss(scores, inputs)
    return loss + listwise_loss(scores, inputs) if listwise else loss


def listwise_loss(scores: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Cross-entropy of the softmax over a row's labelled candidates against their shares of its labels' sum, weighted.

    A decision turns on which candidate is right, not on how many are (ListNet, Cao et al. 2007, with shares in place of
    its softmax of the labels). A row whose labels are all 0 prefers none and adds nothing.
    """
    import torch

    targets, row = inputs["targets"], inputs["row"]
    rows = torch.arange(int(row.max()) + 1, device=row.device)[:, None]
    labelled = (row == rows) & ~targets.isnan()
    right = torch.where(labelled, targets, 0.0)
    shares = right / right.sum(1, keepdim=True).clamp(min=torch.finfo(right.dtype).tiny)
    chances = torch.where(labelled, scores, -torch.inf).log_softmax(1)
    entropy = -torch.where(labelled, shares * chances, 0.0).sum(1)
    return (entropy * torch.where(labelled, inputs["weights"], 0.0).sum(1)).sum()


def score_examples(
    model: Any, examples: Sequence[Mapping[str, Any]], yes: int, no: int, size: int
) -> list[list[float]]:
    """The log-odds at every example's marks, in batches of at most `size` examples of one phase."""
    import torch

    order = sorted(
        range(len(examples)), key=lambda place: (examples[place]["phase"], len(examples[place]["input_ids"]))
    )
    found: list[list[float]] = [[] for _ in examples]
    with torch.inference_mode():
        for start in range(0, len(order), size):
            places = order[start : start + size]
            inputs = collate_examples([examples[place] for place in places])
            flat = iter(
                _scores(model, {name: part.to(model.device) for name, part in inputs.items()}, yes, no).tolist()
            )
            for place in places:
                found[place] = [next(flat) for _ in examples[place]["marks"]]
    return found


def fit_offsets(
    examples: Sequence[Mapping[str, Any]], scores: Sequence[Sequence[float]]
) -> dict[str, dict[str, float]]:
    """What to add to a candidate's log-odds, by phase and candidate, so that its mean chance meets its mean label.

    A short training leaves candidates above or below their base rate, which decides between them more than their
    previews do. One intercept per candidate with a unit normal prior (Platt 1999, slope fixed at 1).
    """
    labelled: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for example, values in zip(examples, scores, strict=True):
        for candidate, score, target in zip(example["candidates"], values, example["targets"], strict=True):
            if not math.isnan(target):
                labelled.setdefault(example["phase"], {}).setdefault(candidate, []).append((score, target))
    return {
        phase: {candidate: _offset(pairs) for candidate, pairs in sorted(of_phase.items())}
        for phase, of_phase in sorted(labelled.items())
    }


def _offset(pairs: Sequence[tuple[float, float]]) -> float:
    """Newton's method on a concave log-posterior; its curvature is at least 1, so steps of at most 1 converge."""
    offset = 0.0
    for _ in range(100):
        chances = [(1 + math.tanh((score + offset) / 2)) / 2 for score, _ in pairs]
        slope = math.fsum(target - chance for (_, target), chance in zip(pairs, chances, strict=True)) - offset
        step = slope / (1 + math.fsum(chance * (1 - chance) for chance in chances))
        offset += max(-1.0, min(1.0, step))
        if abs(step) < 1e-9:
            break
    return offset


def shifted(
    examples: Sequence[Mapping[str, Any]],
    scores: Sequence[Sequence[float]],
    offsets: Mapping[str, Mapping[str, float]],
) -> list[list[float]]:
    """The scores with each candidate's offset added."""
    return [
        with_offsets(values, example["candidates"], offsets.get(example["phase"], {}))
        for example, values in zip(examples, scores, strict=True)
    ]


def measure(examples: Sequence[Mapping[str, Any]], scores: Sequence[Sequence[float]]) -> dict[str, float]:
    """`validation_loss`, and the share of labels that the decisions agree with: `agreement`, and by phase.

    A Begin row agrees where the best-scored labelled candidate is one of the best-labelled; at In and End every label
    counts, a score above 0 standing for yes.
    """
    losses: list[float] = []
    agreed: dict[str, list[bool]] = {}
    for example, values in zip(examples, scores, strict=True):
        pairs = [(s, t) for s, t in zip(values, example["targets"], strict=True) if not math.isnan(t)]
        losses.append(math.fsum(_cross_entropy(*pair) for pair in pairs) / len(pairs) * example["weight"])
        agreed.setdefault(example["phase"], []).extend(_agreement(example["phase"], pairs))
    every = [value for values in agreed.values() for value in values]
    return {
        "validation_loss": math.fsum(losses) / len(losses),
        "agreement": sum(every) / len(every),
        **{f"agreement_{phase}": sum(values) / len(values) for phase, values in sorted(agreed.items())},
    }


def _cross_entropy(score: float, target: float) -> float:
    """-target log(chance) - (1 - target) log(1 - chance) of the log-odds `score`."""
    return max(score, 0.0) - score * target + math.log1p(math.exp(-abs(score)))


def _agreement(phase: str, pairs: Sequence[tuple[float, float]]) -> list[bool]:
    if phase == "begin":
        return [max(pairs, key=lambda pair: pair[0])[1] == max(target for _, target in pairs)]
    return [(score > 0) == (target >= 0.5) for score, target in pairs]


def _scores(model: Any, inputs: Mapping[str, torch.Tensor], yes: int, no: int) -> torch.Tensor:
    batch = Batch(inputs["prefix"], inputs["input_ids"], inputs["row"], inputs["column"])
    return mark_scores(model, batch, yes, no)


def _loss(scores: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    import torch

    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        scores, torch.nan_to_num(inputs["targets"]), reduction="none"
    )
    return (losses * inputs["weights"]).sum()


class PhaseBatches:
    """An order of examples in which consecutive batches hold one phase (one shared guide) and similar lengths.

    Seeded by epoch; what is left of each phase after full batches comes last, mixed.
    """

    def __init__(self, examples: Sequence[Mapping[str, Any]], batch_size: int, seed: int) -> None:
        self._lengths = [len(example["input_ids"]) for example in examples]
        self._phases = [str(example["phase"]) for example in examples]
        self._size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(content_hash("batches", self._seed, self._epoch))
        batches: list[list[int]] = []
        left: list[int] = []
        for phase in sorted(set(self._phases)):
            places = [place for place, name in enumerate(self._phases) if name == phase]
            draw.shuffle(places)
            whole = len(places) // self._size * self._size
            left += places[whole:]
            for start in range(0, whole, self._size * CHUNK):
                chunk = sorted(
                    places[start : start + self._size * CHUNK][: whole - start], key=self._lengths.__getitem__
                )
                batches += [chunk[i : i + self._size] for i in range(0, len(chunk), self._size)]
        draw.shuffle(batches)
        for batch in batches:
            yield from batch
        yield from left
