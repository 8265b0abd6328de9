"""Web search by a service with a key (Serper, Tavily, Brave), or by a SearXNG of one's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, Field, ValidationError

from providers.errors import ConfigError, SuiteError
from synth.tools.page_cache import PageCache

if TYPE_CHECKING:
    import httpx

Engine = Literal["searxng", "serper", "tavily", "brave"]

KEYS: Mapping[str, str] = {"serper": "SERPER_API_KEY", "tavily": "TAVILY_API_KEY", "brave": "BRAVE_API_KEY"}
"""Environment variables that hold the services' keys."""
ADDRESSES: Mapping[str, str] = {
    "searxng": "http://127.0.0.1:8888/search",
    "serper": "https://google.serper.dev/search",
    "tavily": "https://api.tavily.com/search",
    "brave": "https://api.search.brave.com/res/v1/web/search",
}
ATTEMPTS = 3
FIRST_WAIT = 1.0
LONGEST_WAIT = 20.0


class SearchFailed(SuiteError):
    """The search service fails: the episode is run again later. An outage is not "nothing found"."""

    retryable = True


class Hit(BaseModel):
    """One result."""

    title: str = ""
    url: str
    text: str = ""


class _Searxng(BaseModel):
    class Result(BaseModel):
        title: str = ""
        url: str
        content: str | None = ""

    results: list[Result]

    def hits(self) -> list[Hit]:
        return [Hit(title=one.title, url=one.url, text=one.content or "") for one in self.results]


class _Serper(BaseModel):
    class Result(BaseModel):
        title: str = ""
        link: str
        snippet: str = ""

    organic: list[Result] = Field(default_factory=list)

    def hits(self) -> list[Hit]:
        return [Hit(title=one.title, url=one.link, text=one.snippet) for one in self.organic]


class _Brave(BaseModel):
    class Web(BaseModel):
        class Result(BaseModel):
            title: str = ""
            url: str
            description: str = ""

        results: list[Result] = Field(default_factory=list)

    web: Web | None = None

    def hits(self) -> list[Hit]:
        found = self.web.results if self.web is not None else []
        return [Hit(title=one.title, url=one.url, text=one.description) for one in found]


_SHAPES: Mapping[str, type[_Searxng] | type[_Serper] | type[_Brave]] = {
    "searxng": _Searxng,
    "serper": _Serper,
    "tavily": _Searxng,  # the same shape
    "brave": _Brave,
}


@dataclass(frozen=True)
class _Call:
    method: str
    url: str
    headers: dict[str, str]
    json: dict[str, Any] | None = None


class WebSearch:
    """Asks one search service; answers are cached, keys go into headers alone."""

    def __init__(
        self, engine: Engine, client: httpx.AsyncClient, cache: PageCache | None, *, url: str = "", results: int = 10
    ) -> None:
        """Raises ConfigError where the service wants a key and its environment variable holds none."""
        self._engine, self._client, self._cache = engine, client, cache
        self._url, self._results = url or ADDRESSES[engine], results
        variable = KEYS.get(engine)
        self._key = os.environ.get(variable, "") if variable else ""
        if variable and not self._key:
            raise ConfigError(f"the search service {engine} wants a key: set {variable}, or choose another service.")

    async def find(self, query: str) -> list[Hit]:
        """Results, best first. Raises SearchFailed, or ConfigError where the key is refused."""
        key = f"search {self._engine} {self._results} {query}"
        kept = await asyncio.to_thread(self._cache.get, key) if self._cache is not None else None
        body = kept[2] if kept is not None else await self._asked(query)
        try:
            hits = _SHAPES[self._engine].model_validate_json(body).hits()[: self._results]
        except ValidationError as error:
            raise SearchFailed(f"The search service {self._engine} answered in no form that is known.") from error
        if kept is None and self._cache is not None:
            await asyncio.to_thread(self._cache.put, key, self._url, "application/json", body)
        return hits

    async def _asked(self, query: str) -> bytes:
        import httpx

        call, problem, wait = self._call(query), "", FIRST_WAIT
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(wait)
                wait = min(wait * 3, LONGEST_WAIT)
            try:
                answer = await self._client.request(call.method, call.url, headers=call.headers, json=call.json)
            except httpx.HTTPError as error:
                problem = type(error).__name__
                continue
            if answer.status_code in (401, 403):
                raise ConfigError(
                    f"the search service {self._engine} refuses ({answer.status_code}): "
                    f"{f'check {KEYS[self._engine]}' if self._engine in KEYS else 'let it answer in JSON'}."
                )
            if answer.status_code < 300:
                return answer.content
            problem = str(answer.status_code)
            if answer.status_code != 429 and answer.status_code < 500:
                break
        raise SearchFailed(f"The search service {self._engine} at {self._url} failed ({problem}): try again later.")

    def _call(self, query: str) -> _Call:
        if self._engine == "serper":
            return _Call("POST", self._url, {"X-API-KEY": self._key}, {"q": query, "num": self._results})
        if self._engine == "tavily":
            asked = {"query": query, "max_results": self._results}
            return _Call("POST", self._url, {"Authorization": f"Bearer {self._key}"}, asked)
        if self._engine == "brave":
            url = f"{self._url}?{urlencode({'q': query, 'count': min(self._results, 20)})}"
            return _Call("GET", url, {"X-Subscription-Token": self._key, "Accept": "application/json"})
        return _Call("GET", f"{self._url}?{urlencode({'q': query, 'format': 'json'})}", {"Accept": "application/json"})
