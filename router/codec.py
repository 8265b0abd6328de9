"""Decisions as prompts and answers: one renderer for training and inference, so both see the same bytes.

Two codecs. `json` is MemAgent's (B.5): shuffled guide and previews, one JSON object as the answer; for models that
follow instructions. `marks` is for compact models: fixed order, and a yes / no mark at the end of every candidate's
line, all read in one forward pass. Neither shows a retrieval score.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from pydantic import ValidationError

from providers.base import ProviderCard
from providers.errors import ConfigError, ModelError
from providers.types import Flow, Outcome, Preview, Step, content_hash
from router.context import BeginContext, EndContext, InContext
from router.decisions import SHORT_TERM, BeginDecision, EndDecision, InDecision, InMode
from router.guide import GATE_WORDS, begin_line, end_line, shorten

if TYPE_CHECKING:
    import jinja2

CodecName = Literal["marks", "json"]
Answer = TypeVar("Answer", bound=Flow)

EMPTY = "(empty)"
_MARK = "\x1e"
"""Stands where a mark is read. Whitespace to `str.split`, so `shorten` removes it from whatever is shown."""
_PROMPTS = Path(__file__).parent / "prompts"
OUTCOME_WORDS = {True: "correct", False: "wrong", None: "unknown"}


@dataclass(frozen=True)
class Prompt:
    """What a model reads. In `marks` the i-th mark stands at the end of `segments[i]` and scores `candidates[i]`:
    logit(" yes") - logit(" no") of the next token there. In `json` there is one segment and no candidate."""

    segments: tuple[str, ...]
    candidates: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.segments)


class Codec(Protocol):
    """Renders the three contexts."""

    @property
    def name(self) -> CodecName: ...

    def begin(self, context: BeginContext) -> Prompt: ...

    def in_(self, context: InContext) -> Prompt: ...

    def end(self, context: EndContext) -> Prompt: ...


class BeginAnswer(Flow):
    """The JSON that a model answers at Begin."""

    action: Literal["query"]
    provider: str


class InAnswer(Flow):
    """The JSON that a model answers at In."""

    action: InMode
    provider: Literal["short_term_memory"] | None


class EndAnswer(Flow):
    """The JSON that a model answers at End."""

    selected_providers: tuple[str, ...]


class JsonCodec:
    """MemAgent B.5. Limits keep 13 providers within 4,096 tokens."""

    name: Literal["json"] = "json"

    TASK, PREVIEW, CALL, CALLS, SUMMARY, NOTE = 1500, 200, 300, 3, 1500, 80

    def begin(self, context: BeginContext) -> Prompt:
        """Guide and previews are shuffled apart from each other, seeded by the task."""
        task = shorten(context.question, self.TASK)
        candidates = _candidates(context, self.PREVIEW, shorten)
        return _one_segment(
            "begin_json",
            task=task,
            query=shorten(context.query, self.TASK) or task,
            guide=_shuffled([begin_line(card) for card in context.cards], "begin guide", context.task_id),
            candidates=_shuffled(candidates, "begin previews", context.task_id),
        )

    def in_(self, context: InContext) -> Prompt:
        return _one_segment(
            "in_json",
            task=shorten(context.question, self.TASK),
            step=context.step,
            summary=shorten(context.summary, self.SUMMARY) or EMPTY,
            calls=[_call(step, self.CALL, shorten) for step in context.recent[-self.CALLS :]],
            short_term=SHORT_TERM,
        )

    def end(self, context: EndContext) -> Prompt:
        return _one_segment(
            "end_json",
            task=shorten(context.question, self.TASK),
            outcome=OUTCOME_WORDS[context.outcome.correct],
            summary=_noted(shorten(context.summary, self.SUMMARY), context.descriptor, self.NOTE),
            guide=_shuffled([end_line(card) for card in context.cards], "end guide", context.task_id),
            success_only=GATE_WORDS["success"],
        )

    def completion(self, decision: BeginDecision | InDecision | EndDecision) -> str:
        """The canonical answer; a Begin decision must name exactly one provider (the action space of MemAgent)."""
        if isinstance(decision, BeginDecision):
            if len(decision.providers) != 1:
                raise ConfigError(f"A json Begin answer names one provider, not {list(decision.providers)}.")
            return json.dumps({"action": "query", "provider": decision.providers[0]}, ensure_ascii=False)
        if isinstance(decision, InDecision):
            provider = SHORT_TERM if decision.action == "query" else None
            return json.dumps({"action": decision.action, "provider": provider})
        return json.dumps({"selected_providers": list(decision.providers)}, ensure_ascii=False)

    def parse_begin(self, text: str, context: BeginContext) -> BeginDecision:
        """The decision that `text` spells; `ModelError` (retryable) where it is not exactly a legal one."""
        answer = _parse(text, BeginAnswer)
        _require_known([answer.provider], [preview.provider for preview in context.previews])
        return BeginDecision(providers=(answer.provider,))

    def parse_in(self, text: str) -> InDecision:
        """As `parse_begin`: the provider is null exactly when the action is no_op."""
        answer = _parse(text, InAnswer)
        if (answer.action == "query") != (answer.provider is not None):
            raise _illegal(f"action {answer.action!r} does not go with provider {answer.provider!r}")
        return InDecision(action=answer.action)

    def parse_end(self, text: str, context: EndContext) -> EndDecision:
        """As `parse_begin`: open gates only, each once; the decision is in the order of the config."""
        chosen = _parse(text, EndAnswer).selected_providers
        accepting = [card.name for card in context.cards if card.accepts(context.outcome)]
        _require_known(chosen, accepting)
        if len(set(chosen)) < len(chosen):
            raise _illegal(f"{list(chosen)} names a provider twice")
        return EndDecision(providers=tuple(name for name in accepting if name in chosen))


class MarksCodec:
    """One line per candidate in the order of the config. Limits keep five candidates within 400 SmolLM2 tokens."""

    name: Literal["marks"] = "marks"

    GUIDE, TASK, PREVIEW, CALL, CALLS, SUMMARY, STORES, NOTE = 32, 160, 72, 80, 3, 300, 60, 80

    def begin(self, context: BeginContext) -> Prompt:
        """The guide stands first: it is the same for every task, so a prefix cache holds it."""
        return _marked(
            "begin_marks",
            candidates=_candidates(context, self.PREVIEW, _fit),
            guide=[begin_line(card, lambda words: _fit(words, self.GUIDE)) for card in context.cards],
            task=_fit(context.question, self.TASK),
        )

    def in_(self, context: InContext) -> Prompt:
        """One candidate, the working memory."""
        return _marked(
            "in_marks",
            candidates=[{"name": SHORT_TERM}],
            task=_fit(context.question, self.TASK),
            step=context.step,
            calls=[_call(step, self.CALL, _fit) for step in context.recent[-self.CALLS :]],
            summary=_fit(context.summary, self.SUMMARY) or EMPTY,
            short_term=SHORT_TERM,
        )

    def end(self, context: EndContext) -> Prompt:
        """Only providers whose gate is open for the outcome are candidates."""
        accepting = [card for card in context.cards if card.accepts(context.outcome)]
        return _marked(
            "end_marks",
            candidates=[
                {"name": card.name, "text": f"{_fit(card.stores, self.STORES)} | {GATE_WORDS[card.gate]}"}
                for card in accepting
            ],
            outcome=OUTCOME_WORDS[context.outcome.correct],
            summary=_noted(_fit(context.summary, self.SUMMARY), context.descriptor, self.NOTE),
        )


def decide_begin(scores: Sequence[float], candidates: Sequence[str], empty: Collection[str] = ()) -> BeginDecision:
    """The best-scored candidate, the first of equals; one of `empty` only where all are."""
    _require_scores(scores, candidates)
    ranked = sorted(range(len(candidates)), key=lambda i: (candidates[i] in empty, -scores[i], i))
    return BeginDecision(providers=(candidates[ranked[0]],)) if ranked else BeginDecision()


def decide_in(scores: Sequence[float], threshold: float = 0.0) -> InDecision:
    """Query where the one score (log-odds) is above `threshold`."""
    _require_scores(scores, [SHORT_TERM])
    return InDecision(action="query" if scores[0] > threshold else "no_op")


def decide_end(scores: Sequence[float], candidates: Sequence[str], threshold: float = 0.0) -> EndDecision:
    """All candidates whose score (log-odds) is above `threshold`; none is legal."""
    _require_scores(scores, candidates)
    return EndDecision(providers=tuple(n for n, score in zip(candidates, scores, strict=True) if score > threshold))


def empty_previews(context: BeginContext) -> frozenset[str]:
    """Providers that would show nothing."""
    return frozenset(preview.provider for preview in context.previews if not preview.text.strip())


def fallback_begin(context: BeginContext, seed: int = 0) -> BeginDecision:
    """What stands in for an illegal answer: a seeded draw among providers that have something to show."""
    names = [preview.provider for preview in context.previews]
    full = [name for name in names if name not in empty_previews(context)]
    draw = random.Random(content_hash("fallback", seed, context.task_id))
    return BeginDecision(providers=(draw.choice(full or names),) if names else (), fallback=True)


@overload
def codec(name: Literal["marks"]) -> MarksCodec: ...


@overload
def codec(name: Literal["json"]) -> JsonCodec: ...


@overload
def codec(name: CodecName) -> MarksCodec | JsonCodec: ...


def codec(name: CodecName) -> MarksCodec | JsonCodec:
    """The codec of that name."""
    return MarksCodec() if name == "marks" else JsonCodec()


def template_hash(name: CodecName, cards: tuple[ProviderCard, ...]) -> str:
    """Changes whenever a prompt would: over the templates and renderings of fixed contexts with these providers.

    Stored beside an adapter and compared when one is loaded.
    """
    chosen = codec(name)
    sources = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(_PROMPTS.glob(f"*_{name}.jinja"))]
    long = "word " * 1000
    prompts = []
    for number, text in enumerate(("one", long)):
        previews = tuple(Preview(provider=c.name, text=text if i % 2 == number else "") for i, c in enumerate(cards))
        step = Step(index=0, tool="tool", arguments={"query": text}, observation=text, error=text if number else None)
        task: dict[str, Any] = {"task_id": text, "question": text}
        prompts.append(chosen.begin(BeginContext(**task, previews=previews, cards=cards)))
        prompts.append(chosen.in_(InContext(**task, step=number, summary=text, recent=(step,) * 5)))
        for correct in (True, False, None):
            context = EndContext(**task, summary=text, outcome=Outcome(correct=correct), cards=cards)
            prompts.append(chosen.end(context))
    return content_hash(name, sources, [[prompt.segments, prompt.candidates] for prompt in prompts])


def _fit(text: str, limit: int) -> str:
    """As `shorten`, but also within `1.25 * limit` where what compact tokenizers spell out costs more: a symbol 2,
    a digit 4, a character beyond ASCII 3 for each of its bytes."""
    line = shorten(text, limit)
    spent = 0
    for place, character in enumerate(line):
        spent += _cost(character)
        if spent > 1.25 * limit:
            return shorten(line, max(place, 4))
    return line


def _cost(character: str) -> int:
    if not character.isascii():
        return 3 * len(character.encode("utf-8", "replace"))
    return 4 if character.isdigit() else 1 if character.isalpha() or character == " " else 2


Cut = Callable[[str, int], str]


def _candidates(context: BeginContext, limit: int, cut: Cut) -> list[dict[str, str]]:
    chances = context.chances or ("",) * len(context.previews)
    return [_candidate(preview, chance, limit, cut) for preview, chance in zip(context.previews, chances, strict=True)]


def _candidate(preview: Preview, chance: str, limit: int, cut: Cut) -> dict[str, str]:
    text = cut(preview.text, limit) or EMPTY
    notes = [cut(preview.descriptor, limit)] if preview.descriptor else []
    if chance and text != EMPTY:
        notes.append(f"chance {chance}")
    return {"name": preview.provider, "text": f"{text} ({'; '.join(notes)})" if notes else text}


def _noted(summary: str, descriptor: str, limit: int) -> str:
    """A run's summary with what a verifier says of it."""
    return f"{summary} (verified: {shorten(descriptor, limit)})" if descriptor else summary


def _call(step: Step, limit: int, cut: Cut) -> str:
    arguments = ", ".join(str(value) for value in step.arguments.values())
    seen = f"error: {step.error}" if step.error else step.observation
    return cut(f"{step.tool}({shorten(arguments, limit // 2)}) -> {seen}", limit)


Item = TypeVar("Item")


def _shuffled(items: Iterable[Item], salt: str, task_id: str) -> list[Item]:
    mixed = list(items)
    random.Random(content_hash(salt, task_id)).shuffle(mixed)
    return mixed


def _one_segment(template: str, **fields: Any) -> Prompt:
    return Prompt(segments=(_template(template).render(**fields),))


def _marked(template: str, candidates: Sequence[dict[str, str]], **fields: Any) -> Prompt:
    *segments, _ = _template(template).render(candidates=candidates, mark=_MARK, **fields).split(_MARK)
    return Prompt(segments=tuple(segments), candidates=tuple(candidate["name"] for candidate in candidates))


@lru_cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PROMPTS),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template(f"{name}.jinja")


def _parse(text: str, form: type[Answer]) -> Answer:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise _illegal("a key stands twice")
        return dict(pairs)

    try:
        return form.model_validate_json(json.dumps(json.loads(text, object_pairs_hook=once)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise _illegal(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _illegal(f"it is not JSON ({error})") from error


def _require_known(names: Sequence[str], legal: Sequence[str]) -> None:
    for name in names:
        if name not in legal:
            raise _illegal(f"{name!r} is none of {list(legal)}")


def _require_scores(scores: Sequence[float], candidates: Sequence[str]) -> None:
    if len(scores) != len(candidates):
        raise ModelError(f"{len(scores)} scores came for {len(candidates)} candidates.", retryable=False)


def _illegal(why: str) -> ModelError:
    return ModelError(f"The model's decision is illegal: {why}.", retryable=True)
