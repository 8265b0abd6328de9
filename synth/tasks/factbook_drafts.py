"""One question of each factbook family, with its gold, from entities, a field and a frame; None where it has no
single clear answer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from synth.tasks.factbook_archive import archived
from synth.tasks.factbook_data import Country, Quantity, World, parse_quantity, plain
from synth.tasks.factbook_fields import Field
from synth.tasks.factbook_frames import THING_CLAUSES, Frame

LEAST_GAP = 0.06
"""Least distance between a count's threshold and the values next to it, as a share of the values' spread."""
LONGEST_TEXT = 120


@dataclass(frozen=True)
class Draft:
    """A task before it has an id."""

    family: str
    question: str
    gold: dict[str, Any]
    meta: dict[str, Any]


def number_gold(quantity: Quantity, field: Field) -> dict[str, Any]:
    """Gold for a figure: its value with the multiplier applied, and its unit."""
    return {"kind": "number", "value": quantity.value, "unit": quantity.unit or field.unit}


def text_gold(value: str) -> dict[str, Any]:
    """Gold for a text: as written, and without what it adds in parentheses, after a semicolon or as a figure."""
    short = re.sub(r"\s+per US dollar\b.*", "", value)
    bare = re.sub(r"\s*\([^()]*\)", "", short)
    forms = [value, short, bare, re.split(r"[;(]", short)[0], re.sub(r"\s[\d,.]+ m$", "", bare)]
    forms += re.findall(r"\(([A-Z]{3})\)", short)
    return {"kind": "text", "accepted": list(dict.fromkeys(form.strip(" -") for form in forms if form.strip(" -")))}


def field_gold(country: Country, field: Field) -> dict[str, Any] | None:
    """Gold for one field of one country; None where its page has no usable value."""
    if field.kind == "number":
        quantity = country.quantity(field.section, field.label)
        return number_gold(quantity, field) if quantity else None
    value = country.value(field.section, field.label)
    if not value or len(value) > LONGEST_TEXT or plain(value).split()[0] in ("na", "none", "note", "no"):
        return None
    return text_gold(value)


def lookup(country: Country, field: Field, phrasing: str, frame: Frame) -> Draft | None:
    """One field of one country, in paraphrase."""
    gold = field_gold(country, field)
    if gold is None:
        return None
    question = frame.text().format(x=phrasing.format(c=country.name))
    return Draft("lookup", question, gold, _meta(field, [country], frame) | {"phrasing": phrasing})


def extremum(
    centre: Country, neighbours: tuple[Country, ...], field: Field, operator: str, phrasing: str | None, frame: Frame
) -> Draft | None:
    """Which neighbour of `centre` has the largest or smallest figure; `phrasing` None names the field plainly."""
    best = _best(neighbours, field, operator)
    if best is None:
        return None
    x = phrasing.format(c="a country") if phrasing else f"the {field.name}"
    question = frame.text(operator).format(c=centre.name, x=x)
    meta = _meta(field, [centre], frame) | {"operator": operator, "phrasing": phrasing}
    meta["neighbours"] = [neighbour.slug for neighbour in neighbours]
    return Draft("extremum", question, {"kind": "text", "accepted": [best[0].name]}, meta)


def count(region: str, members: tuple[Country, ...], field: Field, operator: str, frame: Frame) -> Draft | None:
    """How many members of a region lie above or below a threshold in the middle."""
    quantities = _quantities(members, field)
    threshold = _threshold(sorted(quantity.value for quantity in quantities)) if quantities else None
    if threshold is None:
        return None
    unit = quantities[0].unit or field.unit
    question = frame.text(operator).format(r=region, name=field.name, n=_spelled(threshold, unit))
    above = sum(quantity.value > threshold for quantity in quantities)
    gold = {"kind": "number", "value": above if operator == "above" else len(members) - above, "unit": "countries"}
    meta = _meta(field, [], frame) | {"operator": operator, "region": region, "threshold": threshold}
    return Draft("count", question, gold, meta)


def bridge(
    country: Country, thing_section: str, thing_label: str, field: Field, world: World, frame: Frame
) -> Draft | None:
    """One field of the country that is known by a thing that no other country shares and that does not name it."""
    thing, gold = _short_form(country, thing_section, thing_label), field_gold(country, field)
    owners = _owners(world, thing_section, thing_label)[thing]
    if gold is None or field.label == thing_label or owners != 1 or plain(country.name) in plain(thing):
        return None
    clause = THING_CLAUSES[thing_section, thing_label][frame.split].format(t=thing)
    question = frame.text().format(name=field.name, clause=clause)
    meta = _meta(field, [country], frame) | {"thing": thing, "thing_section": thing_section, "thing_label": thing_label}
    return Draft("bridge", question, gold, meta)


def compare(group: tuple[Country, ...], field: Field, operator: str, frame: Frame) -> Draft | None:
    """Which of two or three countries has the highest or lowest figure, and the figure itself."""
    best = _best(group, field, operator)
    if best is None:
        return None
    country, quantity = best
    names = [member.name for member in group]
    question = frame.text(operator).format(list=f"{', '.join(names[:-1])} and {names[-1]}", name=field.name)
    items = [{"kind": "text", "accepted": [country.name]}, number_gold(quantity, field)]
    return Draft(
        "compare", question, {"kind": "list", "items": items}, _meta(field, list(group), frame) | {"operator": operator}
    )


def stale(country: Country, field: Field, edition: str, frame: Frame) -> Draft | None:
    """A figure of a country that both sites show differently: the current one, or that of the 2019 archive."""
    current, older = country.quantity(field.section, field.label), archive_quantity(country, field)
    if current is None or older is None or current.value == older.value:
        return None
    question = frame.text(edition).format(name=field.name, c=country.name)
    gold = number_gold(current if edition == "current" else older, field)
    return Draft("stale", question, gold, _meta(field, [country], frame) | {"operator": edition})


def archive_quantity(country: Country, field: Field) -> Quantity | None:
    """The figure that the archive shows for a field."""
    text = archived(country).get(field.section, {}).get(field.label)
    return parse_quantity(text) if text else None


def _meta(field: Field, countries: list[Country], frame: Frame) -> dict[str, Any]:
    return {
        "label": field.label,
        "section": field.section,
        "countries": [country.slug for country in countries],
        "frame": frame.id,
    }


def _quantities(countries: tuple[Country, ...], field: Field) -> list[Quantity]:
    """The figures of all the countries in one unit; empty where one lacks it or has another unit."""
    found = [country.quantity(field.section, field.label) for country in countries]
    quantities = [quantity for quantity in found if quantity is not None]
    same = len({quantity.unit for quantity in quantities}) == 1
    return quantities if same and len(quantities) == len(countries) else []


def _best(countries: tuple[Country, ...], field: Field, operator: str) -> tuple[Country, Quantity] | None:
    """The one country with the largest or smallest figure; None at a tie or a missing value."""
    quantities = _quantities(countries, field)
    if len(quantities) < 2:
        return None
    sign = 1 if operator == "max" else -1
    ranked = sorted(zip(countries, quantities, strict=True), key=lambda pair: -sign * pair[1].value)
    return None if ranked[0][1].value == ranked[1][1].value else ranked[0]


def _threshold(values: list[float]) -> float | None:
    """A round number in the widest gap among the middle of sorted values; None where no gap is clear."""
    spread, size = values[-1] - values[0], len(values)
    middle = range(max(1, round(size * 0.3)), min(size - 1, round(size * 0.7)) + 1)
    index = max(middle, key=lambda i: values[i] - values[i - 1])
    low, high = values[index - 1], values[index]
    if spread <= 0 or high - low < 2 * LEAST_GAP * spread:
        return None
    return _round_between(low + LEAST_GAP * spread / 2, high - LEAST_GAP * spread / 2)


def _round_between(low: float, high: float) -> float:
    """The number with the fewest significant digits strictly between two others."""
    middle = (low + high) / 2
    return next((rounded for digits in range(1, 12) if low < (rounded := float(f"{middle:.{digits}g}")) < high), middle)


def _spelled(value: float, unit: str) -> str:
    """A threshold as a page would write it: `$2.5 billion`, `30% of GDP`, `1,200 km`."""
    for word, factor in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if abs(value) >= factor:
            number = f"{value / factor:g} {word}"
            break
    else:
        number = f"{value:,.0f}" if value == int(value) else f"{value:,g}"
    if unit.startswith("$"):
        return f"-${number[1:]}" if value < 0 else f"${number}"
    return f"{number}{'' if unit.startswith('%') else ' '}{unit}".strip()


def _short_form(country: Country, section: str, label: str) -> str:
    """A text value as one would mention it: the shortest accepted form that is not a code."""
    value = country.value(section, label)
    if not value or len(value) > LONGEST_TEXT:
        return ""
    forms = [form for form in text_gold(value)["accepted"] if not re.fullmatch(r"[A-Z]{3}", form)]
    return min(forms, key=len, default="").strip('"“” ')


@cache
def _owners(world: World, section: str, label: str) -> Counter[str]:
    """How many countries have each short form."""
    return Counter(_short_form(country, section, label) for country in world.countries.values())
