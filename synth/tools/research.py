"""The research agent's tools: `search`, `open`; for attached files `read_file`, `inspect_image`, `inspect_audio`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from providers.errors import ConfigError, SuiteError
from providers.tools import Tool, ToolResult
from providers.types import Lineage, Parameter
from synth.models import Models
from synth.tools.addresses import Refused
from synth.tools.documents import IMAGES, RECORDINGS, Documents
from synth.tools.fetch import Fetcher, Limits, Page
from synth.tools.inspectors import Inspector
from synth.tools.page_cache import PageCache
from synth.tools.search import Hit, WebSearch

MOST_FILE = 200_000_000
"""Bytes of an attached file."""


class ResearchOptions(BaseModel):
    """What the tools may do."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    search: Literal["searxng", "serper", "tavily", "brave", "factbook"] | None = None
    """The search service; `factbook` serves the CIA World Factbook offline in place of the web; null has no search."""
    search_url: str = ""
    """The service's address, where it is not its usual one."""
    results: int = Field(default=10, ge=1, le=20)
    """Results of a search."""
    open: bool = True
    """Whether pages may be opened."""
    part_chars: int = Field(default=3500, ge=200)
    """Characters of a page or file that are shown at a time; keep it below the agent's `page_chars`."""
    max_mb: float = Field(default=10.0, gt=0)
    """Larger pages are not read."""
    seconds: float = Field(default=30.0, gt=0)
    """Longest wait for a page, redirects included."""
    redirects: int = Field(default=5, ge=0)
    """Most redirects that are followed."""
    allow_private: bool = False
    """Also open addresses of private networks and of this machine."""
    robots: bool = True
    """Keep to what sites allow programs to open."""
    cache: str = ""
    """File that keeps pages and results; empty is memroute/pages.sqlite in the user's cache folder."""
    cache_days: float = Field(default=30.0, ge=0)
    """How long they are kept; 0 keeps none."""

    @property
    def cache_file(self) -> Path:
        """Where pages are kept."""
        if self.cache:
            return Path(self.cache).expanduser()
        home = os.environ.get("XDG_CACHE_HOME", "") or "~/.cache"
        return Path(home).expanduser() / "memroute" / "pages.sqlite"


class Research:
    """An async context manager: inside it the connections stand that the tools share."""

    def __init__(self, options: ResearchOptions, models: Models | None) -> None:
        self._options = options
        self._documents = Documents()
        self._inspectors = _inspectors(models)
        self._stack = AsyncExitStack()
        self._web: tuple[Tool, ...] | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._web = await self._web_tools(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._web = None
        await self._stack.aclose()

    def tools(self, files: Mapping[str, Path]) -> tuple[Tool, ...]:
        """The tools of a task with these files attached. Raises SuiteError outside `async with`."""
        if self._web is None:
            raise SuiteError("The research tools are not connected: use them inside `async with`.")
        return (*self._web, *self._file_tools(files))

    async def _web_tools(self, stack: AsyncExitStack) -> tuple[Tool, ...]:
        options = self._options
        if options.search == "factbook":
            from synth.tasks.factbook import Factbook

            suite = await stack.enter_async_context(Factbook())
            return suite.site_tools
        import httpx

        cache = None
        if options.cache_days > 0:
            cache = PageCache(options.cache_file, options.cache_days)
            stack.callback(cache.close)
        tools: list[Tool] = []
        if options.search is not None:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=options.seconds))
            engine = WebSearch(options.search, client, cache, url=options.search_url, results=options.results)
            tools.append(SearchTool(engine))
        if options.open:
            if importlib.util.find_spec("trafilatura") is None:
                raise ConfigError("opening pages needs more packages: install memroute with the extra `research`.")
            # Names are looked up and checked before every request: a kept connection or a proxy would pass that by.
            alone = httpx.Limits(max_keepalive_connections=0, max_connections=64)
            client = await stack.enter_async_context(
                httpx.AsyncClient(timeout=options.seconds, limits=alone, trust_env=False)
            )
            limits = Limits(
                bytes=round(options.max_mb * 1_000_000),
                seconds=options.seconds,
                redirects=options.redirects,
                allow_private=options.allow_private,
                robots=options.robots,
            )
            tools.append(OpenTool(Fetcher(client, limits, cache), self._documents, options.part_chars))
        return tuple(tools)

    def _file_tools(self, files: Mapping[str, Path]) -> list[Tool]:
        suffixes = {path.suffix.lower() for path in files.values()}
        tools: list[Tool] = []
        if suffixes - IMAGES - RECORDINGS:
            tools.append(ReadFileTool(files, self._documents, self._options.part_chars))
        archives = ".zip" in suffixes
        if "image" in self._inspectors and (archives or suffixes & IMAGES):
            tools.append(InspectTool("image", files, self._documents, self._inspectors["image"]))
        if "audio" in self._inspectors and (archives or suffixes & RECORDINGS):
            tools.append(InspectTool("audio", files, self._documents, self._inspectors["audio"]))
        return tools


class _ResearchTool:
    """What the tools share: how what they found, or why they did not, becomes a result."""

    trust: Literal["page", "tool", "model", "user"] = "page"

    async def _result(self, source: str, finding: Awaitable[str]) -> ToolResult:
        try:
            return ToolResult(observation=await finding, lineage=self._lineage(source))
        except Refused as reason:
            return ToolResult(observation=str(reason), error=str(reason), lineage=self._lineage(source))

    def _lineage(self, source: str) -> Lineage:
        return Lineage(source=source, environment="research", trust=self.trust)


class SearchTool(_ResearchTool):
    """Searches the web."""

    name = "search"
    doc = "Search the web; results are titles with addresses and a few words of each page."
    parameters = (Parameter(name="query", doc="words to look for"),)

    def __init__(self, engine: WebSearch) -> None:
        self._engine = engine

    async def call(self, **arguments: Any) -> ToolResult:
        query = " ".join(str(arguments.get("query", "")).split())
        return await self._result(f"search: {query}", self._found(query))

    async def _found(self, query: str) -> str:
        if not query:
            raise Refused("The search needs a query.")
        hits = await self._engine.find(query)
        return "\n".join(_line(place, hit) for place, hit in enumerate(hits, 1)) or "Nothing was found."


class OpenTool(_ResearchTool):
    """Opens a page of the web."""

    name = "open"
    doc = "Open a page or document of the web and read it; long ones come in parts."
    parameters = (
        Parameter(name="url", doc="address of the page"),
        Parameter(name="part", type="int", doc="which part of it, from 1"),
    )

    def __init__(self, fetcher: Fetcher, documents: Documents, part_chars: int) -> None:
        self._fetcher, self._documents, self._part_chars = fetcher, documents, part_chars

    async def call(self, **arguments: Any) -> ToolResult:
        url = str(arguments.get("url", "")).strip()
        try:
            page = await self._fetcher.get(url)
        except Refused as reason:
            return ToolResult(observation=str(reason), error=str(reason), lineage=self._lineage(url))
        return await self._result(page.url, self._read(page, arguments.get("part")))

    async def _read(self, page: Page, number: Any) -> str:
        return part(await self._documents.page(page.url, page.type, page.body), number, self._part_chars)


class _FileTool(_ResearchTool):
    """What tools on attached files share: a name leads to this task's files alone, and into archives among them."""

    trust: Literal["page", "tool", "model", "user"] = "user"

    def __init__(self, files: Mapping[str, Path], documents: Documents) -> None:
        self._files, self._documents = files, documents

    async def _bytes(self, name: str) -> bytes:
        path = self._files.get(name)
        if path is not None:
            if await asyncio.to_thread(lambda: path.stat().st_size) > MOST_FILE:
                raise Refused(f"{name} is larger than {MOST_FILE / 1e6:g} MB: it is not read.")
            return await asyncio.to_thread(path.read_bytes)
        outer, _, inner = name.partition("/")
        if outer.lower().endswith(".zip") and outer in self._files and inner:
            return await self._documents.unpacked(outer, await self._bytes(outer), inner)
        raise Refused(f"There is no file {name!r}; there are: {', '.join(self._files)}.")


class ReadFileTool(_FileTool):
    """Reads an attached file as text."""

    name = "read_file"
    doc = "Read an attached file; `archive.zip/name` reads a file in an archive. Long ones come in parts."
    parameters = (
        Parameter(name="file", doc="its name"),
        Parameter(name="part", type="int", doc="which part of it, from 1"),
    )

    def __init__(self, files: Mapping[str, Path], documents: Documents, part_chars: int) -> None:
        super().__init__(files, documents)
        self._part_chars = part_chars

    async def call(self, **arguments: Any) -> ToolResult:
        name = str(arguments.get("file", "")).strip()
        return await self._result(f"file: {name}", self._read(name, arguments.get("part")))

    async def _read(self, name: str, number: Any) -> str:
        suffix = Path(name).suffix.lower()
        if suffix in IMAGES | RECORDINGS:
            raise Refused(f"{name} is no text: ask about it with the tool for pictures or recordings, if there is one.")
        return part(await self._documents.file(name, await self._bytes(name)), number, self._part_chars)


class InspectTool(_FileTool):
    """Asks a model about an attached picture or recording."""

    parameters = (Parameter(name="file", doc="its name"), Parameter(name="question", doc="what to find out"))
    trust: Literal["page", "tool", "model", "user"] = "model"

    def __init__(
        self, kind: Literal["image", "audio"], files: Mapping[str, Path], documents: Documents, inspector: Inspector
    ) -> None:
        super().__init__(files, documents)
        self.name = f"inspect_{kind}"
        self.doc = "Ask what an attached picture shows." if kind == "image" else "Ask what an attached recording says."
        self._inspector = inspector

    async def call(self, **arguments: Any) -> ToolResult:
        name = str(arguments.get("file", "")).strip()
        question = " ".join(str(arguments.get("question", "")).split())
        return await self._result(f"file: {name}", self._asked(name, question))

    async def _asked(self, name: str, question: str) -> str:
        return await self._inspector.ask(name, await self._bytes(name), question)


def part(text: str, number: Any, size: int) -> str:
    """One part of a long text, cut at the ends of lines where they are near. Raises Refused where there is no such."""
    cuts = [0]
    while len(text) - cuts[-1] > size:
        end = cuts[-1] + size
        newline = text.rfind("\n", cuts[-1] + size // 2, end)
        cuts.append(newline + 1 if newline > 0 else end)
    parts = [text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]
    wanted = 1 if number in (None, "") else number
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= len(parts):
        raise Refused(f"There is no part {wanted!r}: the parts are 1 to {len(parts)}.")
    if len(parts) == 1:
        return parts[0]
    more = f"; part {wanted + 1} goes on" if wanted < len(parts) else ""
    return f"{parts[wanted - 1].rstrip()}\n(part {wanted} of {len(parts)}{more})"


def _line(place: int, hit: Hit) -> str:
    title, text = " ".join(hit.title.split()), " ".join(hit.text.split())[:300]
    return f"{place}. [{title or hit.url}]({hit.url})" + (f"\n   {text}" if text else "")


def _inspectors(models: Models | None) -> dict[str, Inspector]:
    """Those whose endpoint the config names."""
    found: dict[str, Inspector] = {}
    kinds: tuple[tuple[Literal["image", "audio"], Literal["vision", "audio"]], ...] = (
        ("image", "vision"),
        ("audio", "audio"),
    )
    for kind, purpose in kinds:
        if models is not None and models.has(purpose):
            found[kind] = Inspector(models.get(purpose), kind)
    return found
