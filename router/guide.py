"""The provider guide: what prompts say about a provider, made from its card alone (MemAgent Table 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from providers.base import Gate, ProviderCard
from providers.types import content_hash

GATE_WORDS: dict[Gate, str] = {"all": "any outcome", "success": "correct only"}


def begin_line(card: ProviderCard, cut: Callable[[str], str] = str) -> str:
    """What the provider stores and how it retrieves, each through `cut`."""
    return f"{card.name}: {cut(card.stores)}; {cut(card.retrieves)}"


def end_line(card: ProviderCard) -> str:
    """What the provider stores, and for which outcomes."""
    return f"{card.name}: {card.stores} [{GATE_WORDS[card.gate]}]"


def guide_hash(cards: Sequence[ProviderCard]) -> str:
    """Changes with whatever the guide says about these providers, or their order."""
    return content_hash("guide", [[begin_line(card), end_line(card)] for card in cards])


def shorten(text: str, limit: int | None = None) -> str:
    """`text` on one line with single spaces; over `limit` characters it is cut, at a word where one ends nearby."""
    line = " ".join(text.split())
    if limit is None or len(line) <= limit:
        return line
    kept = line[: limit - 3]
    at_word = kept.rfind(" ")
    return (kept[:at_word] if at_word > limit // 2 else kept).rstrip() + "..."
