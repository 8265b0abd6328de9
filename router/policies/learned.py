"""The language-model router, trained or untrained, and the same frozen model as a scorer of labels."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from providers.base import ProviderCard
from providers.errors import EngineError, ModelError
from router.adapter import load_router, read_record
from router.base_model import Dtype, load_base
from router.chat import chat_tokens, pad_token, stop_tokens
from router.codec import (
    CodecName,
    JsonCodec,
    Prompt,
    fallback_begin,
)
from router.constrained import Language, TokenFilter, begin_language, end_language, in_language
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy
from router.marks import Encoded, MarkTokenizer, collate, mark_scores
from router.policies.marking import MarksPolicy
from router.sight import Sight

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from router.policies.heads import Heads

BATCH = 16
KNOWN_PROMPTS = 16_384
"""Single prompts whose scores are kept: streams that differ in one phase read most of each other's prompts again."""
PARAGRAPH = "\n\n"
ANSWER_TOKENS = 64
ANSWER_TOKENS_END = 128


class Learned(MarksPolicy):
    """Marks read in this process: one forward pass for each decision."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str,
        offsets: Mapping[str, Mapping[str, float]] | None = None,
        sight: Sight | None = None,
    ) -> None:
        """`offsets` are those of the adapter's record, `sight` is what it was trained with."""
        super().__init__(name, offsets, sight)
        self._model: Any = model
        self._marks = MarkTokenizer(tokenizer)
        self._lock = threading.Lock()
        self._known = lru_cache(KNOWN_PROMPTS)(self._score_one)

    @classmethod
    def load(
        cls,
        base: str,
        adapter: Path | None,
        codec: CodecName,
        cards: tuple[ProviderCard, ...],
        *,
        seed: int = 0,
        dtype: Dtype = "bfloat16",
        constrained: bool = False,
        heads: Callable[[], Heads] | None = None,
    ) -> Policy:
        """The router on `base`: trained with an adapter, untrained without. `seed` is for the json codec's fallback,
        `constrained` for its illegal answers; `heads` loads those whose forecasts an adapter may have been shown.

        Raises `EngineError` where the base cannot be loaded, or the adapter was trained on other prompts, providers or
        forecasts.
        """
        model, tokenizer = load_router(base, adapter, codec, cards, dtype=dtype)
        name = "trained" if adapter else "untrained"
        record = read_record(adapter) if adapter else None
        sight = Sight.of_record(record, heads) if record else Sight()
        if codec == "json":
            return Generating(model, tokenizer, name=name, seed=seed, sight=sight, constrained=constrained)
        return cls(model, tokenizer, name=name, offsets=record.offsets if record else None, sight=sight)

    async def read(self, prompt: Prompt) -> list[float]:
        """As `MarksPolicy.read`; a prompt that was read before is not read again."""
        return list(await asyncio.to_thread(self._known, prompt))

    def _score_one(self, prompt: Prompt) -> tuple[float, ...]:
        [scores] = self.score_prompts([prompt])
        return tuple(scores)

    def score_prompts(self, prompts: Sequence[Prompt]) -> list[list[float]]:
        import torch

        encoded = [self._marks.encode(prompt.segments) for prompt in prompts]
        order = sorted(range(len(encoded)), key=lambda place: len(encoded[place].tokens))
        scores: list[list[float]] = [[] for _ in prompts]
        with self._lock, torch.inference_mode():
            for start in range(0, len(order), BATCH):
                places = [place for place in order[start : start + BATCH] if encoded[place].marks]
                found = self._score_batch([encoded[place] for place in places]) if places else []
                for place, values in zip(places, found, strict=True):
                    scores[place] = values
        return scores

    def _score_batch(self, prompts: Sequence[Encoded]) -> list[list[float]]:
        batch = collate(prompts).to(self._model.device)
        flat = iter(mark_scores(self._model, batch, self._marks.yes, self._marks.no).tolist())
        return [[next(flat) for _ in prompt.marks] for prompt in prompts]


class Generating:
    """The router in the json codec: greedy answers to the prompt as a user turn.

    An illegal one is asked again among legal answers alone where `constrained` is set. Otherwise a counted rule stands
    in for it: Begin falls back to a seeded draw among non-empty previews, In to no_op, End to storing nothing.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str,
        seed: int = 0,
        sight: Sight | None = None,
        constrained: bool = False,
    ) -> None:
        """`sight` as for `Learned`."""
        self.name = name
        self._sight = sight or Sight()
        self._constrained = constrained
        self._model: Any = model
        self._tokenizer: Any = tokenizer
        self._seed = seed
        self._ends = stop_tokens(model, tokenizer)
        self._padding = pad_token(tokenizer, self._ends)
        self._codec = JsonCodec()
        self._filter: TokenFilter | None = None
        self._lock = threading.Lock()

    async def begin(self, context: BeginContext) -> BeginDecision:
        names = [preview.provider for preview in context.previews]
        if not names:
            return BeginDecision()
        [seen] = await asyncio.to_thread(self._sight.begin, [context])
        prompt = self._codec.begin(seen)
        try:
            return self._codec.parse_begin(await self._ask(prompt, ANSWER_TOKENS), context)
        except ModelError:
            if not self._constrained:
                return fallback_begin(context, self._seed)
        answer = await self._ask(prompt, ANSWER_TOKENS, begin_language(names))
        return self._codec.parse_begin(answer, context).model_copy(update={"constrained": True})

    async def step(self, context: InContext) -> InDecision:
        if not context.summary:
            return InDecision(action="no_op")
        prompt = self._codec.in_(context)
        try:
            return self._codec.parse_in(await self._ask(prompt, ANSWER_TOKENS))
        except ModelError:
            if not self._constrained:
                return InDecision(action="no_op", fallback=True)
        answer = await self._ask(prompt, ANSWER_TOKENS, in_language())
        return self._codec.parse_in(answer).model_copy(update={"constrained": True})

    async def end(self, context: EndContext) -> EndDecision:
        prompt = self._codec.end(self._sight.end(context))
        try:
            return self._codec.parse_end(await self._ask(prompt, ANSWER_TOKENS_END), context)
        except ModelError:
            if not self._constrained:
                return EndDecision(fallback=True)
        names = [card.name for card in context.cards if card.accepts(context.outcome)]
        answer = await self._ask(prompt, _longest_end(names), end_language(names))
        return self._codec.parse_end(answer, context).model_copy(update={"constrained": True})

    def answer(self, prompt: str, phase: str) -> str:
        """The greedy answer to a prompt of that phase (begin, in or end), legal or not."""
        return self._generate(prompt, _answer_tokens(phase))[0]

    def answer_with_margin(self, prompt: str, phase: str) -> tuple[str, float]:
        """As `answer`, and the least logit by which one of its tokens was ahead of the next likely one."""
        return self._generate(prompt, _answer_tokens(phase))

    async def _ask(self, prompt: Prompt, tokens: int, language: Language | None = None) -> str:
        return (await asyncio.to_thread(self._generate, prompt.text, tokens, language))[0]

    def _generate(self, text: str, tokens: int, language: Language | None = None) -> tuple[str, float]:
        import torch

        with self._lock, torch.inference_mode():
            prompt = torch.tensor([chat_tokens(self._tokenizer, text)], device=self._model.device)
            allowed = None if language is None else self._allowed(prompt.shape[1], language)
            output = self._model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=self._ends,
                pad_token_id=self._padding,
                output_logits=True,
                return_dict_in_generate=True,
                prefix_allowed_tokens_fn=allowed,
            )
        answer: str = self._tokenizer.decode(output.sequences[0, prompt.shape[1] :], skip_special_tokens=True)
        ahead = [(best[0] - best[1]).item() for best in (step[0].float().topk(2).values for step in output.logits)]
        return answer.strip(), min(ahead)

    def _allowed(self, prompt_length: int, language: Language) -> Callable[[int, torch.Tensor], list[int]]:
        if self._filter is None:
            self._filter = TokenFilter(self._tokenizer, self._ends)
        return self._filter.prefix_function(prompt_length, language)


def _longest_end(names: Sequence[str]) -> int:
    """Tokens enough for an answer that keeps all of them, spelt character by character."""
    return ANSWER_TOKENS_END + sum(len(name) + 4 for name in names)


def _answer_tokens(phase: str) -> int:
    return ANSWER_TOKENS_END if phase == "end" else ANSWER_TOKENS


class LocalScorer:
    """How well labels continue a prompt under the frozen base model.

    A label's score is its mean log-probability per token after the prompt, less the same after the prompt's last line
    alone: what the label is worth without content (domain-conditional PMI, Holtzman et al. 2021). The prompt's first
    two paragraphs are taken to be the same for every task: they run once and are kept.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self._model: Any = model
        self._tokenizer: Any = tokenizer
        self._without_content: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        self._kept: tuple[str, Any] = ("", None)
        self._lock = threading.Lock()

    @classmethod
    def load(cls, base: str, *, dtype: Dtype = "bfloat16") -> Self:
        """Raises `EngineError` where the base cannot be loaded."""
        return cls(*load_base(base, dtype=dtype))

    async def score(self, prompt: str, labels: Sequence[str]) -> list[float]:
        """One score per label; a label stands right after the prompt, its leading space included."""
        return await asyncio.to_thread(self._score, prompt, tuple(labels))

    def _score(self, prompt: str, labels: tuple[str, ...]) -> list[float]:
        import torch

        if not labels:
            return []
        premise = prompt.rstrip().rpartition("\n")[2]
        with self._lock, torch.inference_mode():
            if (premise, labels) not in self._without_content:
                self._without_content[premise, labels] = self._log_probabilities(premise, labels)
            found = self._log_probabilities(prompt, labels)
        return [value - prior for value, prior in zip(found, self._without_content[premise, labels], strict=True)]

    def _log_probabilities(self, prompt: str, labels: tuple[str, ...]) -> list[float]:
        """Mean log-probability per token of each label; the prompt runs once, the labels as one batch on its cache."""
        import torch

        device = self._model.device
        continuations = [self._tokenizer(label, add_special_tokens=False)["input_ids"] for label in labels]
        if not all(continuations):
            raise EngineError("The base model's tokenizer gives no token for a label; a label cannot be empty.")
        start = self._read(prompt)
        sums = torch.log_softmax(start.logits[0, -1].float(), -1)[[tokens[0] for tokens in continuations]]
        longest = max(len(tokens) for tokens in continuations)
        if longest > 1:
            padded = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in continuations], device=device)
            cache = start.cache
            cache.batch_repeat_interleave(len(labels))
            logits = self._model(input_ids=padded[:, :-1], cache=cache, use_cache=True).logits
            steps = torch.log_softmax(logits.float(), -1).gather(-1, padded[:, 1:, None])[..., 0]
            for place, tokens in enumerate(continuations):
                sums[place] += steps[place, : len(tokens) - 1].sum()
        return [float(total) / len(tokens) for total, tokens in zip(sums, continuations, strict=True)]

    def _read(self, prompt: str) -> Any:
        """The model's output after `prompt`; its cache may be changed."""
        second = prompt.find(PARAGRAPH, prompt.find(PARAGRAPH) + len(PARAGRAPH)) + len(PARAGRAPH)
        if prompt.count(PARAGRAPH) < 2 or second == len(prompt):
            return self._model(**self._tokens(prompt), use_cache=True, logits_to_keep=1)
        opening, rest = prompt[:second], prompt[second:]
        if self._kept[0] != opening:
            self._kept = opening, self._model(**self._tokens(opening), use_cache=True, logits_to_keep=1).cache
        tokens = self._tokens(rest, add_special_tokens=False)
        return self._model(
            input_ids=tokens["input_ids"], cache=copy.deepcopy(self._kept[1]), use_cache=True, logits_to_keep=1
        )

    def _tokens(self, text: str, **options: Any) -> Any:
        return self._tokenizer(text, return_tensors="pt", **options).to(self._model.device)
