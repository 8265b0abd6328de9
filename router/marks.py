"""Marks read from a causal language model: tokenising, batching and scoring, the same for training and inference.

A prompt's segments are tokenised one by one and concatenated, so the token before a mark is known exactly. The score
of a candidate is logit(" yes") - logit(" no") of the next token at its mark: log-odds, two rows of the LM head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from providers.errors import EngineError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

YES, NO = " yes", " no"


@dataclass(frozen=True)
class Encoded:
    """A prompt as tokens; `marks[i]` is the position whose next token answers for candidate i."""

    tokens: tuple[int, ...]
    marks: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Prompts that share their first tokens: the shared part once, the rest padded on the right.

    Padding follows everything that is read and attention is causal, so it needs no mask and changes nothing. Hidden
    states may stand in the tokens' places, with one dimension more, for a model that begins at a later layer.
    """

    prefix: torch.Tensor
    """Shape (1, shared tokens); may be of length 0."""
    rest: torch.Tensor
    """Shape (prompts, longest rest)."""
    row: torch.Tensor
    """Which prompt each mark belongs to, shape (marks,)."""
    column: torch.Tensor
    """Where in `rest` each mark is read, shape (marks,)."""

    def to(self, device: torch.device) -> Batch:
        return Batch(*(part.to(device) for part in (self.prefix, self.rest, self.row, self.column)))


class MarkTokenizer:
    """Segments -> tokens for one model's tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self.yes, self.no = self._answer(YES), self._answer(NO)
        if self.yes == self.no:
            raise EngineError(
                f"The base model's tokenizer begins {YES!r} and {NO!r} with the same token, so marks cannot be read; "
                "set train.codec to json or take another base."
            )

    def encode(self, segments: Sequence[str]) -> Encoded:
        """Begins with the beginning-of-sequence token exactly where the tokenizer itself would set one."""
        tokens, marks = self._start(), []
        for segment in segments:
            tokens.extend(self._tokenizer(segment, add_special_tokens=False)["input_ids"])
            marks.append(len(tokens) - 1)
        return Encoded(tuple(tokens), tuple(marks))

    def _start(self) -> list[int]:
        first: int | None = self._tokenizer.bos_token_id
        return [first] if first is not None and self._tokenizer("")["input_ids"][:1] == [first] else []

    def _answer(self, word: str) -> int:
        return int(self._tokenizer(word, add_special_tokens=False)["input_ids"][0])


def collate(prompts: Sequence[Encoded], padding: int = 0, *, share: bool = True) -> Batch:
    """One batch; at least one token of every prompt, and every mark, lies in `rest`; all without `share`."""
    import torch

    shared = _shared(prompts) if share else 0
    longest = max(len(prompt.tokens) for prompt in prompts)
    rest = torch.full((len(prompts), longest - shared), padding, dtype=torch.long)
    for place, prompt in enumerate(prompts):
        rest[place, : len(prompt.tokens) - shared] = torch.tensor(prompt.tokens[shared:])
    marks = [(place, mark - shared) for place, prompt in enumerate(prompts) for mark in prompt.marks]
    row, column = torch.tensor(marks, dtype=torch.long).reshape(-1, 2).unbind(1)
    return Batch(torch.tensor([prompts[0].tokens[:shared]], dtype=torch.long), rest, row, column)


def mark_scores(model: Any, batch: Batch, yes: int, no: int) -> torch.Tensor:
    """The log-odds at every mark, shape (marks,), float32; differentiable.

    The shared part runs once and its keys and values are repeated. `model` is a transformers causal language model.
    """
    head = model.get_output_embeddings().weight
    scores: torch.Tensor = _rest_states(model, batch)[batch.row, batch.column] @ (head[yes] - head[no])
    return scores.float()


def with_offsets(scores: Sequence[float], candidates: Sequence[str], offsets: Mapping[str, float]) -> list[float]:
    """Log-odds with every candidate's offset (`train.marks.fit_offsets`).

    A candidate that the training did not know gets the mean of those that it did: what they share is the level at which
    the training left all marks.
    """
    level = sum(offsets.values()) / len(offsets) if offsets else 0.0
    return [score + offsets.get(name, level) for score, name in zip(scores, candidates, strict=True)]


def _rest_states(model: Any, batch: Batch) -> Any:
    """Last hidden states over `rest`, shape (prompts, longest rest, width)."""
    body = model.base_model
    if batch.prefix.shape[1] == 0:
        return body(**_fed(batch.rest), use_cache=False).last_hidden_state
    cache = body(**_fed(batch.prefix), use_cache=True).cache
    cache.batch_repeat_interleave(len(batch.rest))
    return body(**_fed(batch.rest), cache=cache, use_cache=True).last_hidden_state


def _fed(part: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"inputs_embeds" if part.is_floating_point() else "input_ids": part}


def _shared(prompts: Sequence[Encoded]) -> int:
    """Length of the common prefix, short of the first mark; 0 for a single prompt, where sharing saves nothing."""
    if len(prompts) < 2:
        return 0
    limit = min([*(mark for prompt in prompts for mark in prompt.marks), *(len(p.tokens) - 1 for p in prompts)])
    first = prompts[0].tokens
    for place in range(limit):
        if any(prompt.tokens[place] != first[place] for prompt in prompts):
            return place
    return limit
