"""The two tools of the factbook suite, search and open, over HTTP; and pages as the text that agents read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from providers.errors import SuiteError
from providers.tools import ToolResult
from providers.types import Lineage, Parameter

if TYPE_CHECKING:
    from aiohttp import ClientSession
    from lxml.html import HtmlElement

_LINK = re.compile(r"\[[^\]]*\]\((?P<url>[^)\s]+)\)")


@lru_cache(maxsize=8192)
def page_text(html: bytes) -> str:
    """HTML as plain text: `# ` headings, `term: definition`, list items, `[text](url)` links, the canonical URL
    under the heading, a blank line between the parts of the body."""
    from lxml import html as parser

    document = parser.fromstring(html.decode())
    canonical = next(iter(document.xpath("//link[@rel='canonical']/@href")), None)
    blocks = ("\n".join(_lines(part, canonical)) for part in document.find("body"))
    return "\n\n".join(block for block in blocks if block)


def _lines(element: HtmlElement, canonical: str | None) -> Iterator[str]:
    if element.tag == "h1":
        yield f"# {_inline(element)}"
        if canonical:
            yield f"URL: {canonical}"
    elif element.tag == "p":
        yield _inline(element)
    elif element.tag == "dl":
        terms = list(element)
        for term, definition in zip(terms[::2], terms[1::2], strict=True):
            yield f"{_inline(term)}: {_inline(definition)}"
    elif element.tag in ("ol", "ul"):
        first = int(element.get("start", "1"))
        for number, item in enumerate(element, first):
            yield f"{number}. {_inline(item)}" if element.tag == "ol" else f"- {_inline(item)}"
    else:
        for child in element:
            yield from _lines(child, canonical)


def _inline(element: HtmlElement) -> str:
    text = element.text or ""
    for child in element:
        inner = _inline(child)
        text += f"[{inner}]({child.get('href')})" if child.tag == "a" else inner
        text += child.tail or ""
    return re.sub(r"\s+", " ", text).strip()


class _SiteTool:
    """What both tools share: the connection, and answers with their lineage."""

    def __init__(self, site: str, client: ClientSession) -> None:
        """`site`: address of the server, without a slash at its end."""
        self._site = site
        self._client = client

    async def _get(self, path: str, **query: str) -> tuple[int, str]:
        """Status and text of the page at `path`, which starts with a slash: no path leads to another host."""
        from aiohttp import ClientError

        try:
            async with self._client.get(f"{self._site}{path}", params=query, allow_redirects=False) as response:
                return response.status, page_text(await response.read())
        except (ClientError, TimeoutError) as error:
            raise SuiteError(
                f"The factbook server does not answer {path} ({error!r}): start the suite again."
            ) from error

    @staticmethod
    def _failure(message: str, source: str) -> ToolResult:
        return ToolResult(observation=message, error=message, lineage=_lineage(source))


def _lineage(source: str) -> Lineage:
    return Lineage(source=source, environment="factbook", trust="page")


class SearchTool(_SiteTool):
    """Ranked full-text search over both sites, five results a page."""

    name = "search"
    doc = "Search the World Factbook and its archive; results are titles with links, five per page."
    parameters = (
        Parameter(name="query", doc="words to look for"),
        Parameter(name="page", type="int", doc="page of the results, from 1"),
    )

    async def call(self, **arguments: Any) -> ToolResult:
        query, page = " ".join(str(arguments.get("query", "")).split()), str(arguments.get("page", 1))
        source = f"/search?q={query}&page={page}"
        if not query or not page.isdecimal():
            return self._failure("The search needs a query and a page number from 1.", source)
        _, text = await self._get("/search", q=query, page=page)
        return ToolResult(observation=text, lineage=_lineage(source))


class OpenTool(_SiteTool):
    """Opens a page by its URL, a link to it, or its exact title."""

    name = "open"
    doc = "Open a page of the site by its URL or its exact title, for example `Chad: Geography`."
    parameters = (Parameter(name="page", doc="URL or title of the page"),)

    async def call(self, **arguments: Any) -> ToolResult:
        page = " ".join(str(arguments.get("page", "")).split())
        if link := _LINK.fullmatch(page):
            page = link["url"]
        page = page.removeprefix(self._site)
        if not page:
            return self._failure("No page was named.", "/")
        if page.startswith("/"):
            path = re.split(r"[?#]", page, maxsplit=1)[0]
            status, text = await self._get(path)
        else:
            path = page
            status, text = await self._get("/open", title=page)
        if status != 200:
            return self._failure(text, path)
        url = re.search(r"^URL: (\S+)$", text, re.MULTILINE)
        return ToolResult(observation=text, lineage=_lineage(url[1] if url else path))
