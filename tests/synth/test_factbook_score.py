"""Scoring of factbook answers: what counts as the same figure, name or list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.tasks.factbook_score import matches, parse_number, score, text_key, unit_key

YEARS = {"kind": "number", "value": 16.9, "unit": "years"}
BILLIONS = {"kind": "number", "value": 5.841e9, "unit": "$"}
DEATHS = {"kind": "number", "value": 14.8, "unit": "deaths/1,000 live births"}
SHARE = {"kind": "number", "value": 5.3, "unit": "% of GDP"}
CAPITAL = {"kind": "text", "accepted": ["Suva (on Viti Levu)", "Suva"]}
PAIR = {"kind": "list", "items": [{"kind": "text", "accepted": ["Côte d'Ivoire"]}, BILLIONS]}


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (YEARS, "16.9 years (2025 est.)"),
        (YEARS, "16.90 Years."),
        (YEARS, "16.9"),
        (BILLIONS, "$5.841 billion (2024 est.)"),
        (BILLIONS, "5,841,000,000 US dollars"),
        (BILLIONS, "US$ 5841 million"),
        (DEATHS, "14.8 deaths per 1,000 live births"),
        (DEATHS, "14.8 deaths"),
        (SHARE, "5.3 percent of GDP"),
        (SHARE, "5.3%"),
        ({"kind": "number", "value": -2.15, "unit": "%"}, "-2.15% (2025 est.)"),
        ({"kind": "number", "value": 24800, "unit": "sq km"}, "24,800 square kilometres"),
        ({"kind": "number", "value": 3, "unit": "countries"}, "3"),
        (CAPITAL, "suva"),
        (CAPITAL, "Suva (on Viti Levu)."),
        ({"kind": "text", "accepted": ["The Gambia"]}, "Gambia"),
        ({"kind": "text", "accepted": ["N'Djamena"]}, "Ndjamena"),
        (PAIR, "Cote d'Ivoire; $5.841 billion"),
        (PAIR, "$5.841 billion (2024 est.), Côte d’Ivoire"),
        (PAIR, "Côte d'Ivoire and $5.841 billion"),
        (PAIR, "Côte d'Ivoire: $5.841 billion"),
        (PAIR, "Côte d'Ivoire ($5.841 billion)"),
    ],
)
def test_the_same_answer_in_another_spelling_is_correct(gold: dict[str, object], answer: str) -> None:
    assert matches(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (YEARS, "16.8 years"),
        (YEARS, "16.9%"),
        (YEARS, "16.9 months"),
        (YEARS, "between 16 and 17"),
        (BILLIONS, "$5.841 million"),
        (BILLIONS, "5.841"),
        (DEATHS, "14.8 deaths/100,000 live births"),
        (DEATHS, "14.8 births"),
        (SHARE, "5.3% of national budget"),
        (SHARE, "-5.3%"),
        ({"kind": "number", "value": 36, "unit": ""}, "36 km"),
        (CAPITAL, "Viti Levu"),
        (CAPITAL, "Suva and Nadi"),
        (PAIR, "Côte d'Ivoire"),
        (PAIR, "$5.841 billion"),
        (PAIR, "Ghana; $5.841 billion"),
        (PAIR, "Côte d'Ivoire; $5.8 billion"),
        (PAIR, "Côte d'Ivoire; Ghana; $5.841 billion"),
    ],
)
def test_another_value_unit_or_magnitude_is_wrong(gold: dict[str, object], answer: str) -> None:
    assert not matches(gold, answer)


def test_a_task_without_gold_is_unscored_and_a_missing_answer_is_wrong() -> None:
    assert score(None, "16.9").correct is None
    assert score(YEARS, None).correct is False
    assert score(YEARS, "  ").correct is False
    outcome = score(YEARS, "16.9")
    assert (outcome.correct, outcome.score, outcome.source) == (True, 1.0, "gold")


@given(st.integers(0, 10**13), st.sampled_from(["km", "%", "years", ""]))
def test_thousands_separators_and_estimates_do_not_matter(value: int, unit: str) -> None:
    gold = {"kind": "number", "value": value, "unit": unit}
    assert matches(gold, f"{value:,} {unit} (2024 est.)")
    assert not matches(gold, f"{value + 1:,} {unit}")
    assert not matches(gold, f"{value} acres")


@given(
    st.decimals(min_value=-999, max_value=999, places=3),
    st.sampled_from([("thousand", 3), ("million", 6), ("billion", 9), ("trillion", 12)]),
)
def test_multipliers_are_applied(value: object, multiplier: tuple[str, int]) -> None:
    word, power = multiplier
    parsed = parse_number(f"{value} {word} kWh")
    assert parsed is not None
    assert parsed[0] == pytest.approx(float(str(value)) * 10**power)
    assert parsed[1] == "kwh"


@given(st.text())
def test_text_keys_are_stable_and_blind_to_case(text: str) -> None:
    key = text_key(text)
    assert text_key(key) == key
    assert text_key(f"The {text}!") in {key, text_key(f" {text}")}


@given(st.text(max_size=40))
def test_any_answer_can_be_scored(answer: str) -> None:
    for gold in (YEARS, CAPITAL, PAIR):
        assert score(gold, answer).correct in (True, False)


@given(st.lists(st.sampled_from(["Chad", "Mali", "Niger", "Togo"]), min_size=2, max_size=4, unique=True))
def test_the_order_of_a_list_is_free(names: list[str]) -> None:
    gold = {"kind": "list", "items": [{"kind": "text", "accepted": [name]} for name in names]}
    shuffled = sorted(names, reverse=True)
    for separator in ("; ", ", ", " and "):
        assert matches(gold, separator.join(shuffled))
    assert not matches(gold, "; ".join([*shuffled[:-1], "Ghana"]))
    assert not matches(gold, "; ".join(shuffled[:-1]))


def test_units_have_one_spelling() -> None:
    assert unit_key("Square Kilometers") == unit_key("sq km")
    assert unit_key("per cent of GDP") == unit_key("% of GDP")
    assert unit_key("births per 1,000 population") == "births/1,000 population"
