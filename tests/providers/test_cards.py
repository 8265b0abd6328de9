"""Cards in words: the terminal's pages and the table in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from memroute import main
from providers.cards import card_line, card_page, cards_table
from providers.conformance import properties_list
from providers.registry import BUILT_IN, provider_cards

DOCUMENT = Path(__file__).parents[2] / "docs" / "providers.md"
CARDS = provider_cards(sorted(BUILT_IN))


def between(text: str, opening: str) -> str:
    return text.split(f"<!-- {opening} -->\n", 1)[1].split("<!-- end -->", 1)[0]


def test_the_documentation_holds_what_the_cards_say() -> None:
    """After a change of a card: put the output of `memroute providers list --markdown` between the marks."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert between(text, "made by: memroute providers list --markdown") == cards_table(CARDS)
    assert between(text, "made from the kit") == properties_list()


def test_every_card_is_one_line_and_one_page() -> None:
    for card in CARDS:
        assert "\n" not in card_line(card)
        page = card_page(card)
        for part in (card.title, card.name, card.family, card.stores, card.retrieves, str(card.top_k)):
            assert part in page
        assert "none, as in its paper" in page
    assert "relevance floor 0.25" in card_page(CARDS[0].model_copy(update={"relevance_floor": 0.25}))


def test_a_bar_in_a_card_does_not_break_the_table() -> None:
    card = CARDS[0].model_copy(update={"stores": "this | that"})
    rows = cards_table([card]).splitlines()
    assert rows[2].count(" | ") == rows[0].count(" | ")


def test_the_command_prints_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["providers", "list", "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert all(row in printed for row in cards_table(CARDS).splitlines()[2:])
