"""A json prompt as an instruct model reads it: one user turn in its chat template, and what ends its answer.

The same for training and inference. The template alone frames the prompt, so a chat endpoint that is sent the prompt as
a user message gives the model the same tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from providers.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_ANSWER = "ANSWER"


def chat_text(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    """The prompt as a user turn, with the opening of the answer; `EngineError` for a tokenizer without a template."""
    return _render(tokenizer, [{"role": "user", "content": prompt}], opening=True)


def conversation_text(tokenizer: PreTrainedTokenizerBase, prompt: str, answer: str) -> str:
    """Prompt and answer as a whole conversation, as the template itself writes it."""
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    return _render(tokenizer, turns, opening=False)


def chat_tokens(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """The tokens of `chat_text`; the template writes the special ones."""
    return _tokens(tokenizer, chat_text(tokenizer, prompt))


def answer_tokens(tokenizer: PreTrainedTokenizerBase, answer: str) -> list[int]:
    """The tokens of an answer with the one that ends it."""
    return [*_tokens(tokenizer, answer), end_token(tokenizer)]


def end_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that the chat template sets after an answer, where it sets one; else the end-of-sequence token."""
    after = conversation_text(tokenizer, "question", _ANSWER).rpartition(_ANSWER)[2]
    tokens = _tokens(tokenizer, after)
    if tokens and tokens[0] in _special(tokenizer):
        return tokens[0]
    if tokenizer.eos_token_id is None:
        raise EngineError("The base model has no token that ends an answer; take another base, or train.codec marks.")
    return int(tokenizer.eos_token_id)


def stop_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Every token at which an answer ends: the template's, the tokenizer's and the model's own."""
    configured: Any = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    several = configured if isinstance(configured, list) else [configured]
    return sorted({end_token(tokenizer), *(int(t) for t in [tokenizer.eos_token_id, *several] if t is not None)})


def pad_token(tokenizer: PreTrainedTokenizerBase, ends: Collection[int]) -> int:
    """A token to pad with that ends no answer: the tokenizer's own where it does not, else another special one."""
    for token in (tokenizer.pad_token_id, tokenizer.unk_token_id, *sorted(_special(tokenizer))):
        if token is not None and token not in ends:
            return int(token)
    raise EngineError("Every special token of the base model ends an answer, so none is left to pad with.")


def _render(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]], *, opening: bool) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise EngineError(
            "The base model has no chat template, which train.codec json needs; take an instruct model, or set "
            "train.codec to marks."
        )
    # Templates that have no thinking ignore the last argument.
    text: Any = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=opening, enable_thinking=False
    )
    return str(text)


def _tokens(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _special(tokenizer: Any) -> set[int]:
    return {int(token) for token in (*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder)}
