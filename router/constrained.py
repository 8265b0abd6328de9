"""Answers of the json codec that are always legal: every token is chosen among those that continue a legal answer.

What is legal is the canonical form of every decision that a context allows, as `JsonCodec.completion` writes it. Greedy
decoding under this constraint gives a legal greedy answer as it is, so only an illegal one has to be decoded again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from providers.errors import EngineError
from router.codec import JsonCodec
from router.decisions import BeginDecision, EndDecision, InDecision

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

AHEAD = 24
"""Characters of what may follow that are told at least, unless an answer ends before: no token has more that matter."""

Language = Callable[[str], list[str]]
"""What may follow a text, each to its end or `AHEAD` characters of it; the empty text where the answer is complete,
nothing where no legal answer begins so."""


def begin_language(names: Sequence[str]) -> Language:
    """One of these providers."""
    return _one_of([JsonCodec().completion(BeginDecision(providers=(name,))) for name in names])


def in_language() -> Language:
    """To show the working memory, or not."""
    return _one_of([JsonCodec().completion(InDecision(action=action)) for action in ("query", "no_op")])


def end_language(names: Sequence[str]) -> Language:
    """Any of these providers, in their order, each at most once."""
    opening = JsonCodec().completion(EndDecision()).removesuffix("]}")
    quoted = [json.dumps(name, ensure_ascii=False) for name in names]

    def following(text: str) -> list[str]:
        enough = len(text) + AHEAD

        def grown(built: str, start: int) -> Iterator[str]:
            if not (built.startswith(text) or text.startswith(built)):
                return
            if len(built) >= enough:
                yield built
                return
            yield f"{built}]}}"
            for place in range(start, len(quoted)):
                yield from grown(f"{built}{', ' if start else ''}{quoted[place]}", place + 1)

        return [whole[len(text) :] for whole in grown(opening, 0) if whole.startswith(text)]

    return following


def _one_of(answers: Sequence[str]) -> Language:
    return lambda text: [answer[len(text) :] for answer in answers if answer.startswith(text)]


class TokenFilter:
    """Which tokens continue a legal answer, for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int]) -> None:
        """`ends` are the tokens that end an answer."""
        self._ends = list(ends)
        self._texts = _token_texts(tokenizer)
        self._by_first: dict[str, list[int]] = {}
        for token, text in enumerate(self._texts):
            if text and token not in self._ends:
                self._by_first.setdefault(text[0], []).append(token)

    def allowed(self, written: str, language: Language) -> list[int]:
        """Raises `EngineError` where no token continues a legal answer: the tokenizer cannot spell a name."""
        following = language(written)
        if "" in following:
            return self._ends
        firsts = sorted({rest[0] for rest in following})
        found = [
            token
            for first in firsts
            for token in self._by_first.get(first, [])
            if any(rest.startswith(self._texts[token]) for rest in following)
        ]
        if not found:
            raise EngineError(
                f"The base model's tokenizer has no token that continues {written!r} to a legal answer; give providers "
                "names of ASCII characters."
            )
        return found

    def prefix_function(self, prompt_length: int, language: Language) -> Callable[[int, torch.Tensor], list[int]]:
        """For `generate(prefix_allowed_tokens_fn=...)`, one prompt at a time."""

        def allowed(_: int, tokens: torch.Tensor) -> list[int]:
            return self.allowed("".join(self._texts[int(token)] for token in tokens[prompt_length:]), language)

        return allowed


def _token_texts(tokenizer: Any) -> list[str]:
    """What each token adds to a text, its leading space included; special tokens add nothing."""
    special = set(tokenizer.all_special_ids)
    [anchor] = tokenizer("a", add_special_tokens=False)["input_ids"][:1]
    before = tokenizer.decode([anchor])
    pairs = tokenizer.batch_decode([[anchor, token] for token in range(len(tokenizer))])
    return [
        "" if token in special or not text.startswith(before) else text[len(before) :]
        for token, text in enumerate(pairs)
    ]
