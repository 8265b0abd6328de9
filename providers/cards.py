"""A provider's card in words: for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable

from providers.base import ProviderCard


def card_line(card: ProviderCard) -> str:
    """One line of `memroute providers list`."""
    return f"{card.name:<16} {card.title:<18} {card.family:<11} {card.stores}"


def card_page(card: ProviderCard) -> str:
    """What `memroute providers describe` says."""
    floor = "none, as in its paper" if card.relevance_floor is None else f"{card.relevance_floor:g}"
    return "\n".join(
        (
            f"{card.title} ({card.name}), family {card.family}",
            f"  stores          {card.stores}",
            f"  retrieves       {card.retrieves}",
            f"  gate            {_gate(card)}",
            f"  top-k           {card.top_k}",
            f"  relevance floor {floor}",
        )
    )


def cards_table(cards: Iterable[ProviderCard]) -> str:
    """A Markdown table of cards, as `docs/providers.md` holds it."""
    rows = ["| name | system | family | stores | retrieves | gate | top-k |", "|---|---|---|---|---|---|---|"]
    for card in cards:
        cells = (f"`{card.name}`", card.title, card.family, card.stores, card.retrieves, _gate(card), str(card.top_k))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _gate(card: ProviderCard) -> str:
    return "every run" if card.gate == "all" else "successful runs only"
