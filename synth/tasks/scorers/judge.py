"""Equivalence judged by a chat model (MemAgent A.4): the same entity, number or meaning as the gold answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel

from lm.errors import AnswerError
from lm.structured import Shape
from lm.types import Message, Purpose
from providers.distill.quoting import shortened
from providers.types import Outcome, Task
from synth.tasks.scorers.base import verdict
from synth.tasks.scorers.text import gold_text

if TYPE_CHECKING:
    import jinja2

PURPOSE: Purpose = "scorer"

MAX_TOKENS = 200
CHARACTERS = 4000
"""Of a question, a gold or an answer that the judge is shown."""


class Asked(Protocol):
    """A chat model as this judge needs it; `lm.client.ChatModel` is one."""

    async def structured(
        self, messages: Sequence[Message], shape: type[Shape], *, purpose: Purpose, max_tokens: int = ...
    ) -> Shape: ...


class Equivalence(BaseModel):
    """What the judge replies."""

    reason: str
    correct: bool


class EquivalenceJudge:
    """Asks a chat model whether the answer says what the gold says; equal texts are not asked about.

    A model that answers twice in no readable form leaves the answer unscored; one that fails raises ModelError.
    """

    def __init__(self, model: Asked) -> None:
        self._model = model

    async def score(self, task: Task, answer: str) -> Outcome:
        gold = gold_text(task.gold)
        if " ".join(answer.split()).casefold() == " ".join(gold.split()).casefold():
            return verdict(True)
        case = _template("equivalence_case.jinja").render(question=task.question, gold=gold, answer=answer)
        messages = [
            Message(role="system", content=_template("equivalence.jinja").render()),
            Message(role="user", content=case),
        ]
        try:
            said = await self._model.structured(messages, Equivalence, purpose=PURPOSE, max_tokens=MAX_TOKENS)
        except AnswerError as error:
            return Outcome(correct=None, reason=str(error))
        return verdict(said.correct, " ".join(said.reason.split()))


def _barred(text: str) -> str:
    """Lines behind a bar, so that no quotation can end where it pleases."""
    return "\n".join(f"| {line}" for line in shortened(text.strip(), CHARACTERS).splitlines())


@lru_cache
def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["barred"] = _barred
    return environment.get_template(name)
