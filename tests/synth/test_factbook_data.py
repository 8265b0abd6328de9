"""Reading the factbook data: labels, figures, borders, and the older edition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.tasks.factbook_archive import archived
from synth.tasks.factbook_data import REGIONS, load_world, parse_quantity, slugify


@pytest.mark.parametrize(
    ("text", "value", "unit", "year"),
    [
        ("19,674,004 (2025 est.)", 19674004, "", 2025),
        ("$5.841 billion (2024 est.)", 5.841e9, "$", 2024),
        ("-2.15% (2025 est.)", -2.15, "%", 2025),
        ("-$1.368 billion (2023 est.)", -1.368e9, "$", 2023),
        ("1.284 million sq km", 1.284e6, "sq km", None),
        ("0 km (landlocked)", 0, "km", None),
        ("-23.84 migrant(s)/1,000 population (2025 est.)", -23.84, "migrant(s)/1,000 population", 2025),
        ("7.5% (of GDP) (2021 est.)", 7.5, "%", 2021),
    ],
)
def test_figures_are_parsed_with_multiplier_unit_and_year(text: str, value: float, unit: str, year: int | None) -> None:
    quantity = parse_quantity(text)
    assert quantity is not None
    assert (quantity.value, quantity.unit, quantity.year) == (pytest.approx(value), unit, year)


@pytest.mark.parametrize(
    "text", ["NA", "Emi Koussi 3,445 m", "45% (male 3)/4 (female 2)", "10-15,000 men", "5 km; 7 nm"]
)
def test_text_that_is_not_one_figure_is_none(text: str) -> None:
    assert parse_quantity(text) is None


@given(st.integers(0, 10**12))
def test_thousands_separators_are_read_back(value: int) -> None:
    quantity = parse_quantity(f"{value:,} km")
    assert quantity is not None
    assert quantity.value == value


def test_the_world_has_every_country_of_the_regions_with_flat_labels() -> None:
    world = load_world()
    assert 180 <= len(world.countries) <= 200
    assert set(world.regions) == set(REGIONS)
    chad = world.countries["chad"]
    assert chad.name == "Chad"
    assert chad.value("People and Society", "Median age - total") == "16.9 years (2025 est.)"
    assert chad.value("Geography", "Land use - agricultural land, arable land") == "4.2% (2023 est.)"
    assert chad.value("Economy", "Exports 2023") is not None
    for country in world.countries.values():
        assert country.slug == slugify(country.name)
        assert all(":" not in label for fields in country.sections.values() for label in fields)
        assert not any(
            "<" in value and ">" in value for fields in country.sections.values() for value in fields.values()
        )


def test_borders_are_countries_with_pages() -> None:
    world = load_world()
    chad = [border.slug for border in world.borders(world.countries["chad"])]
    assert chad == ["cameroon", "central-african-republic", "libya", "niger", "nigeria", "sudan"]
    for country in world.countries.values():
        for border in world.borders(country):
            if border.slug:
                back = {other.slug for other in world.borders(world.countries[border.slug])}
                assert country.slug in back, (country.name, border.name)


def test_the_older_edition_differs_by_3_to_25_percent_and_in_its_years() -> None:
    fiji = load_world().countries["fiji"]
    older = archived(fiji)
    assert older == archived(fiji)
    compared = 0
    for section, fields in fiji.sections.items():
        for label, value in fields.items():
            now = parse_quantity(value)
            if now is None or abs(now.value) < 50 or now.unit.startswith("%"):
                continue
            moved = {"2023": "2017", "2024": "2018", "2022": "2016", "2020": "2014", "2021": "2015"}
            then_label = next((label.replace(a, b) for a, b in moved.items() if a in label), label)
            then = parse_quantity(older[section][then_label])
            assert then is not None
            assert 0.02 <= abs(then.value / now.value - 1) <= 0.26
            assert then.year is None or then.year == (now.year or 0) - 6
            compared += 1
    assert compared > 40
