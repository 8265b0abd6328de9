"""PromptRoute: a frozen model takes the decisions, with the part of the knowledge base that fits (MemAgent C.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, create_model

from lm.client import ChatModel
from lm.errors import AnswerError
from lm.types import Message
from providers.errors import ModelError
from router.codec import EMPTY, OUTCOME_WORDS
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, InMode
from router.features import word_overlap
from router.guide import begin_line, end_line, shorten
from router.policies.knowledge import KnowledgeBase, KnowledgeRules, categorise

if TYPE_CHECKING:
    import jinja2

ANSWER_TOKENS = 64


class LabelScorer(Protocol):
    """A model that says how well each label continues a prompt."""

    async def score(self, prompt: str, labels: Sequence[str]) -> list[float]:
        """One score per label, higher is likelier, comparable between labels of any length and frequency.

        A label is what would follow the prompt as it stands, its leading space included.
        """
        ...


@dataclass(frozen=True)
class Limits:
    """Characters shown of each part, on one line each."""

    task: int
    words: int
    """Of what a provider stores, and of how it retrieves."""
    preview: int
    example: int


CHAT = Limits(task=1500, words=200, preview=200, example=160)
COMPACT = Limits(task=200, words=48, preview=60, example=60)
"""For a `LabelScorer` that is a small local model."""


class PromptRoute:
    """Asks a frozen model: a chat model in all three phases, a `LabelScorer` at Begin, with In and End by the rules.

    A chat model answers as JSON. Where its answer is illegal, even when asked again, the rules decide, and the decision
    says so. An endpoint that fails raises `ModelError`.
    """

    name = "prompt_route"

    def __init__(self, base: KnowledgeBase, answerer: ChatModel | LabelScorer) -> None:
        self._base = base
        self._answerer = answerer
        self._rules = KnowledgeRules(base)

    async def begin(self, context: BeginContext) -> BeginDecision:
        names = [preview.provider for preview in context.previews]
        if not names:
            return BeginDecision()
        if not isinstance(self._answerer, ChatModel):
            return await self._likeliest(self._answerer, context, names)
        legal: Any = Literal[tuple(names)]
        shape = create_model("Choice", provider=(legal, ...))
        answer = await _asked(self._answerer, render(self._base, context, CHAT), shape)
        if answer is None:
            return self._rules.decide(context, fallback=True)
        return BeginDecision(providers=(answer.provider,))

    async def step(self, context: InContext) -> InDecision:
        if not isinstance(self._answerer, ChatModel):
            return await self._rules.step(context)
        answer = await _asked(self._answerer, render_in(self._base, context, CHAT), InChoice)
        if answer is None:
            return (await self._rules.step(context)).model_copy(update={"fallback": True})
        return InDecision(action=answer.action)

    async def end(self, context: EndContext) -> EndDecision:
        ruled = await self._rules.end(context)
        if not isinstance(self._answerer, ChatModel) or not ruled.providers:
            return ruled
        legal: Any = Literal[tuple(ruled.providers)]
        many: Any = tuple
        shape = create_model("Keepers", providers=(many[legal, ...], ...))
        answer = await _asked(self._answerer, render_end(self._base, context, ruled.providers, CHAT), shape)
        if answer is None:
            return ruled.model_copy(update={"fallback": True})
        return EndDecision(providers=tuple(name for name in ruled.providers if name in answer.providers))

    async def _likeliest(self, scorer: LabelScorer, context: BeginContext, names: list[str]) -> BeginDecision:
        """The provider whose name continues the prompt best; the first of equals."""
        scores = await scorer.score(render(self._base, context, COMPACT, labels=True), [f" {name}" for name in names])
        if len(scores) != len(names) or any(math.isnan(score) for score in scores):
            raise ModelError(f"The local model scored {len(names)} providers as {scores}.", retryable=False)
        return BeginDecision(providers=(names[max(range(len(names)), key=scores.__getitem__)],))


class InChoice(BaseModel):
    """What a chat model answers at In."""

    action: InMode


async def _asked(model: ChatModel, prompt: str, shape: type[BaseModel]) -> Any:
    """The model's answer in that shape; None where it is illegal twice."""
    messages = [Message(role="user", content=prompt)]
    try:
        return await model.structured(messages, shape, purpose="router", max_tokens=ANSWER_TOKENS)
    except AnswerError:
        return None


def render(base: KnowledgeBase, context: BeginContext, limits: Limits, *, labels: bool = False) -> str:
    """The prompt. With `labels` it ends where a provider's name follows, else it asks for JSON."""
    category = categorise(context.question)
    names = [preview.provider for preview in context.previews]
    return _template("prompt_route").render(
        guide=[begin_line(card, lambda words: shorten(words, limits.words)) for card in context.cards],
        task=shorten(context.question, limits.task),
        category=category,
        records=[record for name in names if (record := _record(base, name, category, context.question, limits))],
        rules=", ".join(
            f"{rule.provider} ({rule.win_rate:.0%} of {rule.occurrences})"
            for rule in base.rules_for(category)
            if rule.provider in names
        ),
        candidates=[
            {
                "name": preview.provider,
                "text": (shorten(preview.text, limits.preview) or EMPTY)
                + (f" ({shorten(preview.descriptor, limits.preview)})" if preview.descriptor else ""),
            }
            for preview in context.previews
        ],
        labels=labels,
    )


def render_in(base: KnowledgeBase, context: InContext, limits: Limits) -> str:
    """The prompt at In, with the base's heuristics."""
    calls = [f"{step.tool}({', '.join(map(str, step.arguments.values()))})" for step in context.recent]
    return _template("prompt_route_in").render(
        task=shorten(context.question, limits.task),
        step=context.step,
        summary=shorten(context.summary, limits.task) or EMPTY,
        calls=[shorten(call, limits.preview) for call in calls],
        rules=base.in_rules,
    )


def render_end(base: KnowledgeBase, context: EndContext, compatible: Sequence[str], limits: Limits) -> str:
    """The prompt at End, over the providers whose gate takes the outcome."""
    category = categorise(context.question)
    cards = [card for card in context.cards if card.name in compatible]
    return _template("prompt_route_end").render(
        task=shorten(context.question, limits.task),
        category=category,
        outcome=OUTCOME_WORDS[context.outcome.correct],
        summary=shorten(context.summary, limits.task),
        candidates=[
            {"line": end_line(card), "tasks": 0, "affinities": ""}
            | (_record(base, card.name, category, context.question, limits) or {})
            for card in cards
        ],
    )


def _record(base: KnowledgeBase, provider: str, category: str, question: str, limits: Limits) -> dict[str, Any] | None:
    """What the prompt says of one provider's past; None where exploration has nothing of this kind."""
    known = base.of(provider)
    record = known.of(category) if known else None
    if known is None or record is None:
        return None
    return {
        "name": provider,
        "wins": record.wins,
        "tasks": record.tasks,
        "affinities": ", ".join(known.affinities[:2]),
        "won": _nearest(record.won, question, limits),
        "lost": _nearest(record.lost, question, limits),
    }


def _nearest(examples: Sequence[str], question: str, limits: Limits) -> str:
    """The example that shares most words with the question, or empty."""
    nearest = max(examples, key=lambda example: word_overlap(question, example), default="")
    return shorten(nearest, limits.example)


@cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    folder = Path(__file__).parents[1] / "prompts"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template(f"{name}.jinja")
