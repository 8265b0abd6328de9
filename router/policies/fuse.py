"""All providers at once, consolidated into one note (All-Fuse, MemAgent 5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lm.client import ChatModel
from lm.types import Message
from router.context import BeginContext
from router.decisions import BeginDecision
from router.features import word_overlap
from router.policies.fixed import BeginOnly

if TYPE_CHECKING:
    import jinja2

NOTE = 1500
"""Characters of a note."""
NOTE_TOKENS = 600
PART = 3000
"""Characters of each provider's text that a model is shown."""


class Fuse(BeginOnly):
    """Every provider, as one note; who writes the note is the session's `Fuser`."""

    name = "fuse"

    async def begin(self, context: BeginContext) -> BeginDecision:
        return BeginDecision(providers=tuple(card.name for card in context.cards), combine="fuse")


class Fuser(Protocol):
    """Makes one note of what several providers retrieved."""

    async def fuse(self, question: str, parts: Sequence[tuple[str, str]]) -> str:
        """`parts` are (provider's title, retrieved text), none of them empty; at most `NOTE` characters come back."""
        ...


class ModelFuser:
    """A chat model writes the note, as in the paper. An endpoint that fails raises `ModelError`."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    async def fuse(self, question: str, parts: Sequence[tuple[str, str]]) -> str:
        prompt = render(question, parts)
        answer = await self._chat.complete(
            [Message(role="user", content=prompt)], purpose="router", max_tokens=NOTE_TOKENS
        )
        return answer.text.strip()[:NOTE]


class RuleFuser:
    """Without a model: the lines that share most words with the question, each once, in the order they were given."""

    async def fuse(self, question: str, parts: Sequence[tuple[str, str]]) -> str:
        lines = list(dict.fromkeys(line.strip() for _, text in parts for line in text.splitlines() if line.strip()))
        ranked = sorted(range(len(lines)), key=lambda place: (-word_overlap(question, lines[place]), place))
        kept: list[int] = []
        spent = 0
        for place in ranked:
            if spent + len(lines[place]) + 1 <= NOTE:
                kept.append(place)
                spent += len(lines[place]) + 1
        return "\n".join(lines[place] for place in sorted(kept))


def render(question: str, parts: Sequence[tuple[str, str]]) -> str:
    """The prompt for a note. What memories hold is quoted as data: a closing mark inside it is taken out."""
    quoted = [(title, re.sub(r"</?memory\b[^>]*>?", "", text)[:PART]) for title, text in parts]
    return _template().render(question=question, parts=quoted, limit=NOTE)


@lru_cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parents[1] / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    return environment.get_template("fuse.jinja")
