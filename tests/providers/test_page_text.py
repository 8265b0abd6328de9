"""Reading facts off a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.page_text import fields, links, names, number, title

PAGE = """# Chad: Geography
URL: /factbook/chad/geography
Site: World Factbook
Last updated: 12 May 2025

Area - total: 1.284 million sq km
Land boundaries - border countries: [Cameroon](/factbook/cameroon) 1,116 km; [Libya](/factbook/libya) 1,050 km
Highest point: Emi Koussi 3,445 m; note: in the Tibesti

Links:
- [Chad: Economy](/factbook/chad/economy)
"""

SEARCH = """Search results for "chad: size" (page 1 of 3)
1. [Chad](/factbook/chad) - World Factbook - Central Africa: south of Libya
Next page: 2
"""


def test_fields_split_at_the_first_colon_and_leave_out_headings_and_link_lists() -> None:
    assert fields(PAGE) == {
        "URL": "/factbook/chad/geography",
        "Site": "World Factbook",
        "Last updated": "12 May 2025",
        "Area - total": "1.284 million sq km",
        "Land boundaries - border countries": (
            "[Cameroon](/factbook/cameroon) 1,116 km; [Libya](/factbook/libya) 1,050 km"
        ),
        "Highest point": "Emi Koussi 3,445 m; note: in the Tibesti",
    }


def test_search_results_are_no_fields_but_the_next_page_is() -> None:
    assert fields(SEARCH) == {"Next page": "2"}


def test_first_of_equal_labels_counts_and_addresses_and_clock_times_split_nothing() -> None:
    assert fields("A: 1\nA: 2\nhttps://x.example/a\nOpened at 10:30") == {"A": "1"}


def test_a_long_sentence_with_a_colon_is_prose() -> None:
    assert fields("word " * 30 + "and so: this") == {}


def test_links_in_order_with_parentheses_in_addresses_and_without_images() -> None:
    text = "![map](/m.png) [ One ](/a) then [Two](/b_(c)) and [broken](/d e)"
    assert links(text) == [("One", "/a"), ("Two", "/b_(c)")]


def test_title_is_the_first_heading() -> None:
    assert title("intro\n# First\n# Second") == "First"
    assert title("## Lower\nplain") == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("19,674,004 (2025 est.)", 19_674_004.0),
        ("$1.5 billion (2024)", 1.5e9),
        ("-$2.5 million", -2.5e6),
        ("-3.2% of GDP", -3.2),
        ("−40 m", -40.0),
        ("3 Trillions", 3e12),
        ("12 thousand barrels", 12_000.0),
        ("2 millionaires", 2.0),
        ("1,23", 1.0),
        ("1,2345", 1.0),
        ("CO2 emissions 7.5 tonnes", 7.5),
        ("between 10-20 km", 10.0),
        ("[Lake 9](/page/4) 5 km", 9.0),
        ("[Lake](/page/4) 5 km", 5.0),
        (".5 percent", 0.5),
        ("no figure", None),
        ("", None),
    ],
)
def test_number(text: str, value: float | None) -> None:
    assert number(text) == (pytest.approx(value) if value is not None else None)


@given(st.integers(min_value=-(10**14), max_value=10**14))
def test_number_reads_back_any_integer_written_with_separators(value: int) -> None:
    assert number(f"about {value:,} people (2025 est.)") == float(value)


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    number(text)
    title(text)
    assert all(isinstance(address, str) for _, address in links(text))
    assert all(label and value for label, value in fields(text).items())


def test_names_are_link_texts_or_parts_between_semicolons() -> None:
    assert names(fields(PAGE)["Land boundaries - border countries"]) == ["Cameroon", "Libya"]
    assert names("French (official); Arabic ;; Sara") == ["French (official)", "Arabic", "Sara"]
    assert names(" ") == []
