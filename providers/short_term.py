"""Short-term memory: the working state of one task, extracted by rules (MemAgent B.4).

It gathers facts, pages and searches across steps, and stays silent until enough of a kind has come together.
No model, no storage, no clock: the same steps always give the same text. Tools are told apart by the shape of
their arguments, so any agent's tools will do: an argument `query` is a search, an address or a `page` is a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from providers.page_text import links, title
from providers.types import Step

FACTS_PER_STEP = 3
SAME_FACT = 0.6
"""Word Jaccard above which two facts of one page are the same."""
FACT_CAPACITY, URL_CAPACITY, SEARCH_CAPACITY = 15, 30, 20
FACTS_TO_SHOW, PAGES_TO_SHOW, SEARCHES_TO_SHOW = 2, 3, 4
"""A section with fewer entries is not shown (MemAgent Table 10)."""
FACTS_SHOWN, PAGES_SHOWN, SEARCHES_SHOWN = 10, 8, 5
"""The latest entries that a section shows."""
BUDGET = 1600
ERROR_WINDOW = 500
"""Characters of an observation that are searched for an error: further down is page content."""
FACT_LIMIT, SOURCE_LIMIT, QUERY_LIMIT = 100, 40, 80

FACT_PATTERNS: dict[str, re.Pattern[str]] = {
    "key value": re.compile(r"^(?:[-*]\s+)?[^\W\d_][^\[\]\":]{0,59}:\s+(?=.*\d)\S.*$"),
    "answer": re.compile(r"\b(?:final\s+|correct\s+)?answer(?:\s+is|:)\s+\S.*$", re.IGNORECASE),
    "founding": re.compile(
        r"[A-Z][^.;:]{1,60}?\s(?:was\s|were\s)?(?:founded|established|incorporated|created|formed)\s(?:in|on)\s"
        r"[^.;:]{0,24}?\b\d{4}\b"
    ),
    "coordinates": re.compile(
        r"\d{1,2}(?:[.\s°]\s?\d{1,8}){0,2}\s?[°'′\"″]*\s?[NS]\b[,;\s]+"
        r"\d{1,3}(?:[.\s°]\s?\d{1,8}){0,2}\s?[°'′\"″]*\s?[EW]\b"
        r"|-?\d{1,2}\.\d{3,8},\s?-?\d{1,3}\.\d{3,8}"
    ),
    "assertion": re.compile(
        r"^(?!(?:It|This|That|These|Those|There|Here|He|She|They|We|You|I|What|Which|Who|Where|When|How|If|As)\b)"
        r"[A-Z][\w'’-]*(?:\s[\w'’-]+){0,6}?\s(?:is|are|was|were)\s\S.{1,140}$"
    ),
}
NAVIGATION = frozenset({"url", "site", "source", "last updated", "last checked", "next page", "page", "note"})
"""Labels of a page's own furniture, never facts."""

_ERRORS = {
    "access denied": r"\baccess (?:is |was )?denied\b|\b403\W+forbidden|\berror:? 403\b|\bpermission denied\b",
    "not found": r"\b404\W+not found|\berror:? 404\b|\b(?:page|file|url) (?:was )?not found\b|^\W*no (?:such )?page\b",
    "timeout": r"\btimed out\b|\btimeout (?:error|exceeded|after|while)|\btimeouterror\b|\b504\W+gateway",
    "rate limit": r"\brate limit(?:ed|s)?\b|\btoo many requests\b|\berror:? 429\b",
    "no results": r"\bno (?:search )?results? (?:for|found|were)|\b0 results\b|\bdid not match any (?:document|page)s",
    "connection": r"\bconnection (?:error|refused|reset|aborted|failed)\b|\b(?:dns|name resolution) (?:error|fail)",
    "server error": r"\binternal server error\b|\berror:? 50[023]\b|\bbad gateway\b|\bservice (?:is )?unavailable\b",
    "login required": r"\b401\W+unauthori[sz]ed|\b(?:log|sign) ?in (?:is )?(?:required|to (?:continue|view|read))",
    "robot check": r"\bcaptcha\b|\b(?:verify|confirm) (?:that )?you are (?:a )?(?:human|not a robot)\b",
    "paywall": r"\bsubscri(?:be|ption)\b.{0,30}\b(?:to (?:continue|read)|required)\b|\bpaywall\b",
    "bad request": r"\b400\W+bad request|\b(?:invalid|missing|unknown|unexpected) (?:argument|parameter|url)s?\b",
    "empty page": r"^\W*(?:empty(?: page| response| result)?|no content)\W*$|\bpage (?:is empty|has no content)\b",
    "unsupported format": r"\bunsupported (?:file |content |media )?(?:format|type)\b|\bcould not (?:parse|decode)\b",
    "tool failure": r"^\W*(?:error|exception|traceback)\b\W*[:(]|\b[a-z]\w*(?:error|exception):\s",
}
ERROR_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _ERRORS.items()}

_ADDRESS = re.compile(r"^(?:https?://|/)\S+$")
_OWN_ADDRESS = re.compile(r"^URL:\s+(\S+)", re.MULTILINE)
_BARE_ADDRESS = re.compile(r"(?<![(\w])https?://[^\s)\]>\"']+")
_RESULT = re.compile(r"^\s*\d+\.\s+\S", re.MULTILINE)
_LISTED = re.compile(r"\s*(?:#|\d+\.\s|[-*]\s+\[)")
"""Headings, search results and lists of links."""
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_WORD = re.compile(r"\w+(?:[.,]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True)
class Fact:
    """A statement, the page (or tool) that made it, and the step."""

    text: str
    source: str
    step: int
    words: frozenset[str]


@dataclass(frozen=True)
class Address:
    """An address that was visited, or seen as a link (`outcome` None)."""

    url: str
    tool: str
    step: int
    outcome: str | None = None
    """`success`, or the kind of error."""


@dataclass(frozen=True)
class Search:
    """A query and how many results it showed."""

    query: str
    step: int
    results: int


def error_kind(observation: str) -> str | None:
    """Which of the fourteen kinds of failure the start of an observation shows; None for ordinary content."""
    start = observation[:ERROR_WINDOW]
    return next((kind for kind, pattern in ERROR_PATTERNS.items() if pattern.search(start)), None)


class ShortTermMemory:
    """Working memory of one task: feed it every step once, render it before the next.

    Of the facts on one page the three that share most words with `question` are kept, in page order where equal.
    """

    def __init__(self, question: str = "", budget: int = BUDGET) -> None:
        self.facts: list[Fact] = []
        self.addresses: list[Address] = []
        self.searches: list[Search] = []
        self._budget = budget
        self._question = _words(question)

    def observe(self, step: Step) -> None:
        """Take in one step: its search or page, the links and facts of its observation, its error."""
        failure = error_kind(step.observation) or ("tool failure" if step.error else None)
        query = next((step.arguments[key] for key in ("query", "q") if key in step.arguments), None)
        if query is not None:
            count = len(_RESULT.findall(step.observation)) if failure is None else 0
            self.searches.append(Search(_cut(str(query), QUERY_LIMIT), step.index, count))
            del self.searches[:-SEARCH_CAPACITY]
        elif visited := _visited(step):
            self._record(Address(visited, step.tool, step.index, failure or "success"))
        if failure is None:
            for url in _addresses(step.observation):
                if all(known.url != url for known in self.addresses):
                    self._record(Address(url, step.tool, step.index))
            self._collect(step)

    def render(self) -> str:
        """What is injected: the sections over their thresholds, cut after the last that fits whole; else empty."""
        text = ""
        for section in self._sections():
            longer = f"{text}\n\n{section}" if text else section
            if len(longer) > self._budget:
                break
            text = longer
        return text

    def summary(self) -> str:
        """One line for the In decision: counts, the latest facts and the last search; empty when `render` is."""
        if not self.render():
            return ""
        visited = [address for address in self.addresses if address.outcome is not None]
        failed = sum(address.outcome != "success" for address in visited)
        parts = [
            f"{len(self.facts)} facts",
            f"{len(visited)} pages opened ({failed} failed)",
            f"{len(self.addresses) - len(visited)} links not opened",
            f"{len(self.searches)} searches",
        ]
        latest = "; ".join(fact.text for fact in self.facts[-FACTS_PER_STEP:])
        return ", ".join(parts) + (f". Latest: {latest}" if latest else "")

    def _record(self, address: Address) -> None:
        self.addresses = [known for known in self.addresses if known.url != address.url]
        self.addresses.append(address)
        if len(self.addresses) > URL_CAPACITY:
            unvisited = (place for place, known in enumerate(self.addresses) if known.outcome is None)
            del self.addresses[next(unvisited, 0)]

    def _collect(self, step: Step) -> None:
        source = _cut(title(step.observation) or _visited(step) or step.tool, SOURCE_LIMIT)
        texts = [_cut(text, FACT_LIMIT) for text in _facts(step.observation)]
        found = [Fact(text, source, step.index, _words(text)) for text in texts]
        found.sort(key=lambda fact: -len(fact.words & self._question))
        kept = 0
        for fact in found:
            if kept == FACTS_PER_STEP:
                break
            if not any(_same(fact, known) for known in self.facts):
                self.facts.append(fact)
                kept += 1
        del self.facts[:-FACT_CAPACITY]

    def _sections(self) -> Iterator[str]:
        if len(self.facts) >= FACTS_TO_SHOW:
            yield _section(
                "Collected Data",
                [f"{fact.text} ({fact.source}, step {fact.step})" for fact in self.facts[-FACTS_SHOWN:]],
            )
        visited = [address for address in self.addresses if address.outcome is not None]
        if len(visited) >= PAGES_TO_SHOW:
            yield _section(
                "Pages Visited",
                [f"{page.url} ({page.tool}, step {page.step}, {page.outcome})" for page in visited[-PAGES_SHOWN:]],
            )
        if len(self.searches) >= SEARCHES_TO_SHOW:
            yield _section(
                "Recent Searches",
                [
                    f'"{search.query}" (step {search.step}, {search.results} results)'
                    for search in self.searches[-SEARCHES_SHOWN:]
                ],
            )


def _section(heading: str, lines: list[str]) -> str:
    return "\n".join([f"{heading}:", *(f"- {line}" for line in lines)])


def _visited(step: Step) -> str | None:
    """The address of the page that a step opened: as the page gives it, else as it was asked for."""
    if any(key in step.arguments for key in ("query", "q")):
        return None
    asked = [
        str(value)
        for key, value in step.arguments.items()
        if key in ("url", "page") or (isinstance(value, str) and _ADDRESS.match(value))
    ]
    if not asked:
        return None
    given = _OWN_ADDRESS.search(step.observation)
    return given.group(1) if given else asked[0]


def _addresses(observation: str) -> Iterator[str]:
    """Addresses that an observation shows, as links or bare."""
    for _, url in links(observation):
        yield url
    if "http" in observation:
        yield from _BARE_ADDRESS.findall(observation)


@lru_cache(maxsize=4096)
def _facts(observation: str) -> tuple[str, ...]:
    """Statements of an observation that a fact pattern matches, in order; a line gives at most one per sentence."""
    return tuple(_statements(observation))


def _statements(observation: str) -> Iterator[str]:
    for raw in observation.splitlines():
        line = _LINK.sub(r"\1", raw.strip())
        if _LISTED.match(raw) or line.split(":", 1)[0].strip("-* ").lower() in NAVIGATION:
            continue
        if FACT_PATTERNS["key value"].match(line):
            yield line.lstrip("-* ")
            continue
        for sentence in _SENTENCE.split(line):
            match = next((found for pattern in FACT_PATTERNS.values() if (found := pattern.search(sentence))), None)
            if match:
                yield match.group(0).strip(" .;")


@lru_cache(maxsize=16384)
def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _same(one: Fact, other: Fact) -> bool:
    """Near-duplicates: word Jaccard above the threshold. The same words on another page speak of another thing."""
    return one.source == other.source and len(one.words & other.words) > SAME_FACT * len(one.words | other.words)


def _cut(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3].rstrip() + "..."
