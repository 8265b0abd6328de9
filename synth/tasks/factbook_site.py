"""The two sites of the factbook suite as pages, links and a search index; served by `factbook_server`.

The current edition has pages for every country and region. The older one, the World Factbook Archive, has pages for
the stale countries alone, and usually ranks above the current pages in search.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from html import escape, unescape
from random import Random

from providers.types import content_hash
from synth.tasks.factbook_archive import EDITION, archived
from synth.tasks.factbook_data import Country, World, load_world, plain, slugify

CURRENT_SITE = "World Factbook"
ARCHIVE_SITE = "World Factbook Archive"
STALE_REGIONS = (
    "Indian Ocean",
    "Greater Antilles",
    "Eastern Caribbean",
    "Australasia and Melanesia",
    "Micronesia and Polynesia",
)
"""Every country of these regions has archive pages; they are islands, so no other country borders on them."""
RESULTS_PER_PAGE = 5
VALUE_LENGTH = 300
SNIPPET_LENGTH = 80
_MOST_RESULTS = 50
_MONTHS = "January February March April May June July August September October November December".split()
_STOP_WORDS = frozenset(
    "a an and are as at by for from has have in is it its of on or the their to was what which with".split()
)


@dataclass(frozen=True)
class Link:
    text: str
    url: str


@dataclass(frozen=True)
class Page:
    """One page: `notices` are the lines under the title, `fields` are label and value (HTML), in page order."""

    url: str
    title: str
    site: str
    notices: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    links: tuple[Link, ...]
    summary: str
    weight: float = 1.0
    """How much the rest of the site links to it: multiplies its rank in search."""

    def html(self) -> str:
        fields = "".join(f"<dt>{escape(label)}</dt><dd>{value}</dd>" for label, value in self.fields)
        links = "".join(f"<li>{_anchor(link.text, link.url)}</li>" for link in self.links)
        notices = "".join(f"<p>{escape(notice)}</p>" for notice in self.notices)
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title>'
            f'<link rel="canonical" href="{self.url}"></head><body>'
            f"<header><h1>{escape(self.title)}</h1><p>Site: {self.site}</p>{notices}</header>"
            f"<main><dl>{fields}</dl></main><nav><p>Links:</p><ul>{links}</ul></nav></body></html>"
        )


@dataclass(frozen=True)
class SearchResults:
    """One page of search results: hits are (title, url, site, snippet)."""

    query: str
    page: int
    pages: int
    hits: tuple[tuple[str, str, str, str], ...]

    def html(self) -> str:
        if not self.hits:
            body = f"<main><p>No results for {_quoted(self.query)}.</p></main>"
        else:
            first = (self.page - 1) * RESULTS_PER_PAGE + 1
            items = "".join(
                f"<li>{_anchor(title, url)} - {site} - {escape(snippet)}</li>"
                for title, url, site, snippet in self.hits
            )
            following = f"<p>Next page: {self.page + 1}</p>" if self.page < self.pages else ""
            head = f"<p>Search results for {_quoted(self.query)} (page {self.page} of {self.pages})</p>"
            body = f'<main>{head}<ol start="{first}">{items}</ol>{following}</main>'
        return f'<!doctype html><html lang="en"><head><meta charset="utf-8"></head><body>{body}</body></html>'


def _quoted(text: str) -> str:
    return escape(f'"{text}"', quote=False)


def _anchor(text: str, url: str) -> str:
    return f'<a href="{url}">{escape(text)}</a>'


def _cut(text: str, length: int) -> str:
    """At most `length` characters, cut between words."""
    return text if len(text) <= length else text[: length - 3].rsplit(" ", 1)[0] + "..."


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", plain(text))


def _key(text: str) -> str:
    """The searched words of a text, as one string; stop words count where there is nothing else."""
    words = _words(text)
    return " ".join([word for word in words if word not in _STOP_WORDS] or words)


def _date(random: Random, year: int) -> str:
    return f"{random.randint(1, 28)} {random.choice(_MONTHS)} {year}"


def country_url(slug: str, *, archive: bool = False) -> str:
    return f"/{'archive' if archive else 'factbook'}/{slug}"


def section_url(slug: str, section: str, *, archive: bool = False) -> str:
    return f"{country_url(slug, archive=archive)}/{slugify(section)}"


def region_url(region: str) -> str:
    return f"/factbook/regions/{slugify(region)}"


class _Writer:
    """Makes the pages of both sites."""

    def __init__(self, world: World, stale: frozenset[str]) -> None:
        self.world = world
        self.stale = stale

    def pages(self) -> Iterator[Page]:
        yield self._index()
        for region, countries in self.world.regions.items():
            yield self._region(region, countries)
        for country in self.world.countries.values():
            yield from self._country(country, country.sections, archive=False)
            if country.slug in self.stale:
                yield from self._country(country, archived(country), archive=True)

    def _index(self) -> Page:
        links = tuple(Link(f"Region: {region}", region_url(region)) for region in self.world.regions)
        return Page("/factbook", "World Factbook", CURRENT_SITE, (), (), links, "All regions")

    def _region(self, region: str, countries: tuple[Country, ...]) -> Page:
        links = tuple(Link(country.name, country_url(country.slug)) for country in countries)
        summary = _cut(", ".join(country.name for country in countries), SNIPPET_LENGTH)
        fields = (("Countries", str(len(countries))),)
        return Page(region_url(region), f"Region: {region}", CURRENT_SITE, (), fields, links, summary)

    def _country(self, country: Country, sections: dict[str, dict[str, str]], *, archive: bool) -> Iterator[Page]:
        site = ARCHIVE_SITE if archive else CURRENT_SITE
        weight = self._archive_weight(country.slug) if archive else 1.0
        contents = tuple(
            Link(f"{country.name}: {section}", section_url(country.slug, section, archive=archive))
            for section in sections
        )
        home = Link(country.name, country_url(country.slug, archive=archive))
        region = Link(f"Region: {country.region}", region_url(country.region))
        location = _cut(sections["Geography"].get("Location", country.region), VALUE_LENGTH)
        yield Page(
            home.url,
            country.name,
            site,
            self._notices(home.url, archive=archive),
            (("Location", escape(location)),),
            (*contents, region),
            _cut(location, SNIPPET_LENGTH),
            weight,
        )
        for link, fields in zip(contents, sections.values(), strict=True):
            others = tuple(other for other in contents if other != link)
            shown = tuple((label, self._value(country, label, value, archive)) for label, value in fields.items())
            summary = _cut(": ".join(next(iter(fields.items()))), SNIPPET_LENGTH)
            notices = self._notices(link.url, archive=archive)
            yield Page(link.url, link.text, site, notices, shown, (home, *others), summary, weight * 0.9)

    def _value(self, country: Country, label: str, value: str, archive: bool) -> str:
        if label != "Land boundaries - border countries":
            return escape(_cut(value, VALUE_LENGTH))
        entries = []
        for border in self.world.borders(country):
            name = escape(border.name)
            if border.slug:
                url = country_url(border.slug, archive=archive and border.slug in self.stale)
                name = _anchor(self.world.countries[border.slug].name, url)
            entries.append(f"{name} {escape(border.rest)}")
        return "; ".join(entries)

    def _notices(self, url: str, *, archive: bool) -> tuple[str, ...]:
        """Honest but imperfect signs: a few right pages look old, a few old ones look looked after."""
        random = Random(content_hash("notices", url))
        odd = random.random()
        if archive:
            checked = (f"Last checked: {_date(random, 2025)}",) if odd < 0.15 else ()
            return (f"Last updated: {_date(random, EDITION)}", *checked)
        if odd < 0.04:
            return (f"Last updated: {_date(random, random.choice((2019, 2020, 2021)))}",)
        review = ("Note: figures under review",) if odd < 0.08 else ()
        return (f"Last updated: {_date(random, 2025)}", *review)

    def _archive_weight(self, slug: str) -> float:
        return 1.02 if Random(content_hash("inbound", slug)).random() < 0.85 else 0.98


class Site:
    """All pages by URL, with full-text search over titles and text (SQLite FTS5, bm25, titles weighted high)."""

    def __init__(self, world: World, stale: frozenset[str]) -> None:
        self.world = world
        self.stale = stale
        self.pages = {page.url: page for page in _Writer(world, stale).pages()}
        self._titled: dict[str, list[Page]] = {}
        for page in self.pages.values():
            self._titled.setdefault(plain(page.title), []).append(page)
        self._lock = threading.Lock()
        self._index = _build_index(self.pages.values())
        self._ranked = lru_cache(maxsize=4096)(self._rank)
        self._lines = lru_cache(maxsize=4096)(self._searchable_lines)

    def search(self, query: str, page: int = 1) -> SearchResults:
        """Page `page` (from 1) of the results; no hits where nothing matches or the page is past the last."""
        urls = self._ranked(_key(query))
        count = -(-len(urls) // RESULTS_PER_PAGE)
        shown = urls[(page - 1) * RESULTS_PER_PAGE : page * RESULTS_PER_PAGE] if page >= 1 else ()
        words = frozenset(_words(query))
        hits = tuple(
            (self.pages[url].title, url, self.pages[url].site, self._snippet(self.pages[url], words)) for url in shown
        )
        return SearchResults(query, page, count, hits)

    def resolve(self, title: str) -> Page | None:
        """The page with this title; where both sites have one, the one that ranks first in search."""
        return max(self._titled.get(plain(title), ()), key=lambda page: page.weight, default=None)

    def _rank(self, key: str) -> tuple[str, ...]:
        """Pages with all words; else pages with any word, at least one of them in the title."""
        if not key:
            return ()
        quoted = [f'"{word}"' for word in dict.fromkeys(key.split())]
        found = self._match(" AND ".join(quoted))
        if not found and len(quoted) > 1:
            anywhere = " OR ".join(quoted)
            found = self._match(f"({anywhere}) AND title : ({anywhere})")
        best = sorted((score * self._weight(self.pages[url], key), url) for url, score in found)
        return tuple(url for _, url in best[:_MOST_RESULTS])

    def _weight(self, page: Page, key: str) -> float:
        return page.weight * (2.0 if _key(page.title) == key else 1.0)

    def _match(self, expression: str) -> list[tuple[str, float]]:
        with self._lock:
            rows = self._index.execute(
                "SELECT url, rank FROM pages WHERE pages MATCH ? ORDER BY rank LIMIT 200",
                (expression,),
            )
            return [(str(url), float(score)) for url, score in rows]

    def _snippet(self, page: Page, words: frozenset[str]) -> str:
        """The field that shares most words with the query, apart from the title's own; else the page's summary."""
        wanted = words - set(_words(page.title)) - _STOP_WORDS
        best = max(self._lines(page.url), key=lambda line: len(wanted & line[1]), default=None)
        return best[0] if best and wanted & best[1] else page.summary

    def _searchable_lines(self, url: str) -> tuple[tuple[str, frozenset[str]], ...]:
        lines = (f"{label}: {_text(value)}" for label, value in self.pages[url].fields)
        return tuple((_cut(line, SNIPPET_LENGTH), frozenset(_words(line))) for line in lines)


def _text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def _build_index(pages: Iterable[Page]) -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute(
        "CREATE VIRTUAL TABLE pages USING fts5"
        "(url UNINDEXED, title, labels, body, tokenize='unicode61 remove_diacritics 2')"
    )
    index.execute("INSERT INTO pages(pages, rank) VALUES ('rank', 'bm25(0, 100.0, 5.0, 1.0)')")
    rows = (
        (
            page.url,
            page.title,
            " ".join(label for label, _ in page.fields),
            " ".join(_text(value) for _, value in page.fields),
        )
        for page in pages
    )
    with index:
        index.executemany("INSERT INTO pages VALUES (?, ?, ?, ?)", rows)
    return index


@lru_cache(maxsize=1)
def load_site() -> Site:
    """The site over the whole world, built once per process (about a second)."""
    world = load_world()
    stale = frozenset(country.slug for region in STALE_REGIONS for country in world.regions[region])
    return Site(world, stale)
