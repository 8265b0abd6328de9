"""Batches for the json codec, and a loss that computes a prompt once for all its right answers.

Every provider that solved a task is a right answer to the same prompt, and an answer is a few tokens behind a long
context. Prompt and answers are laid out as one sequence; each answer attends to the prompt and to itself, at the
positions that it has behind the prompt alone. So loss and gradients are those of the rows one by one.

An example is a mapping of `input_ids` (the prompt's tokens), `answers` (each with the token that ends it), `weights`.
This module imports torch alone, so that `scripts/gpu_check` runs where nothing of ours is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def collate_shared(examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch of contexts. Prompts end at the same column, so the positions that are read lie close together.

    `input_ids` and `position_ids`: (contexts, length); `attention_mask`: (contexts, 1, length, length), true where a
    position may look; `row`, `column`, `weights`: one per answer token, which is predicted there; `labels`: those
    tokens, after one ignored entry, as the trainer counts labels from the second on.
    """
    import torch

    widest = max(len(example["input_ids"]) for example in examples)
    length = widest + max(sum(len(answer) - 1 for answer in example["answers"]) for example in examples)
    ids = torch.zeros(len(examples), length, dtype=torch.long)
    positions, parts = torch.zeros_like(ids), torch.full_like(ids, -1)
    read: list[tuple[int, int, int, float]] = []
    for row, example in enumerate(examples):
        size = len(example["input_ids"])
        ids[row, widest - size : widest] = torch.tensor(example["input_ids"])
        positions[row, widest - size : widest] = torch.arange(size)
        parts[row, widest - size : widest] = 0
        start = widest
        for part, (answer, weight) in enumerate(zip(example["answers"], example["weights"], strict=True), start=1):
            end = start + len(answer) - 1  # nothing is predicted after the last token, so it is no input
            ids[row, start:end] = torch.tensor(answer[:-1], dtype=torch.long)
            positions[row, start:end] = torch.arange(size, size + len(answer) - 1)
            parts[row, start:end] = part
            columns = [widest - 1, *range(start, end)]
            read += [(row, column, token, weight) for column, token in zip(columns, answer, strict=True)]
            start = end
    return {
        "input_ids": ids,
        "position_ids": positions,
        "attention_mask": _mask(parts),
        **_read(read),
    }


def collate_rows(examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """As `collate_shared`, every answer behind its own copy of the prompt, for any architecture.

    Padded on the right; `attention_mask` is (rows, length), 1 where there is a token.
    """
    import torch

    sequences = [
        (example["input_ids"], answer, weight)
        for example in examples
        for answer, weight in zip(example["answers"], example["weights"], strict=True)
    ]
    length = max(len(prompt) + len(answer) for prompt, answer, _ in sequences)
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    mask = torch.zeros_like(ids)
    read: list[tuple[int, int, int, float]] = []
    for row, (prompt, answer, weight) in enumerate(sequences):
        ids[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        mask[row, : len(prompt) + len(answer)] = 1
        read += [(row, column, token, weight) for column, token in enumerate(answer, start=len(prompt) - 1)]
    return {"input_ids": ids, "attention_mask": mask, **_read(read)}


def answers_loss(model: Any, inputs: Mapping[str, torch.Tensor], items: torch.Tensor | int | None) -> torch.Tensor:
    """Weighted cross-entropy of the answer tokens, summed, over `items` of them (default: those of this batch).

    The head is applied only where an answer token is predicted. The model is called as a whole, so that wrappers for
    several GPUs see the call.
    """
    import torch

    columns, places = torch.unique(inputs["column"], return_inverse=True)
    taken = {name: inputs[name] for name in ("input_ids", "attention_mask", "position_ids") if name in inputs}
    logits = model(**taken, use_cache=False, logits_to_keep=columns).logits
    tokens = inputs["labels"][1:]
    losses = torch.nn.functional.cross_entropy(logits[inputs["row"], places].float(), tokens, reduction="none")
    loss: torch.Tensor = (losses * inputs["weights"]).sum() / (len(tokens) if items is None else items)
    return loss


def _mask(parts: torch.Tensor) -> torch.Tensor:
    """True where a position may look: back, at the prompt (part 0) or its own part; padding (-1) at itself alone."""
    import torch

    length = parts.shape[1]
    back = torch.ones(length, length, dtype=torch.bool).tril()
    same = parts[:, :, None] == parts[:, None, :]
    prompt = (parts[:, None, :] == 0) & (parts[:, :, None] >= 0)
    itself = torch.eye(length, dtype=torch.bool)
    return (((same & (parts[:, :, None] >= 0)) | prompt) & back | itself)[:, None]


def _read(read: Sequence[tuple[int, int, int, float]]) -> dict[str, torch.Tensor]:
    import torch

    rows, columns, tokens, weights = zip(*read, strict=True)
    return {
        "row": torch.tensor(rows),
        "column": torch.tensor(columns),
        "labels": torch.tensor([-100, *tokens]),
        "weights": torch.tensor(weights, dtype=torch.float32),
    }
