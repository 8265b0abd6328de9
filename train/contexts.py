"""The json codec's rows as tokens: a prompt in the base's chat template, and its right answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from router.chat import answer_tokens, chat_tokens
from synth.rows import Row
from train.marks import too_long

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_contexts(
    rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, max_tokens: int, *, shared: bool
) -> list[dict[str, Any]]:
    """Training examples: `input_ids` (the prompt), `answers` (each with its end token), `weights`, `phase`.

    `shared` joins the rows of one prompt; otherwise every row is an example. Raises `EngineError` for a row with more
    than `max_tokens` tokens: a cut row would lose its answer.
    """
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for place, row in enumerate(rows):
        answer = answer_tokens(tokenizer, row.completion)
        key = (row.phase, row.prompt, 0 if shared else place)
        example = found.get(key)
        if example is None:
            prompt = chat_tokens(tokenizer, row.prompt)
            example = found[key] = {"input_ids": prompt, "answers": [], "weights": [], "phase": row.phase}
        if len(example["input_ids"]) + len(answer) > max_tokens:
            raise too_long(row, len(example["input_ids"]) + len(answer), max_tokens)
        example["answers"].append(answer)
        example["weights"].append(row.weight)
    return list(found.values())


def attends_freely(model: Any) -> bool:
    """Whether all layers take an attention mask: no linear attention, state space or sliding window among them."""
    config = model.config.get_text_config()
    layers = getattr(config, "layer_types", None)
    if layers is not None:
        return set(layers) <= {"full_attention"}
    return hasattr(config, "num_attention_heads") and getattr(config, "sliding_window", None) is None
