"""Web search: each service's form, keys, outages, and the cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web import Page, Web

from providers.errors import ConfigError
from synth.tools import search
from synth.tools.research import Research, ResearchOptions
from synth.tools.search import SearchFailed

FOUND = {
    "searxng": {
        "results": [{"title": "Ilmen", "url": "https://a.example/", "content": "41 km"}, {"url": "https://b.example/"}]
    },
    "serper": {
        "organic": [
            {"title": "Ilmen", "link": "https://a.example/", "snippet": "41 km"},
            {"link": "https://b.example/"},
        ]
    },
    "tavily": {
        "results": [{"title": "Ilmen", "url": "https://a.example/", "content": "41 km"}, {"url": "https://b.example/"}]
    },
    "brave": {
        "web": {
            "results": [
                {"title": "Ilmen", "url": "https://a.example/", "description": "41 km"},
                {"url": "https://b.example/"},
            ]
        }
    },
}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(search, "FIRST_WAIT", 0.01)
    for variable in search.KEYS.values():
        monkeypatch.setenv(variable, "a-key")
    running = Web()
    yield running
    running.stop()


async def found(web: Web, cache: Path, engine: str, query: str = "Ilmen  delta", **options: Any) -> str:
    given = ResearchOptions.model_validate(
        {"search": engine, "search_url": f"{web.url}/search", "cache": str(cache / "pages.sqlite"), **options}
    )
    async with Research(given, None) as research:
        tool = research.tools({})[0]
        return (await tool.call(query=query)).observation


@pytest.mark.parametrize("engine", FOUND)
async def test_every_service_is_asked_and_read_in_its_form(web: Web, tmp_path: Path, engine: str) -> None:
    web.pages["/search"] = Page(json.dumps(FOUND[engine]).encode(), "application/json")
    for _ in range(2):
        text = await found(web, tmp_path, engine)
        assert text == "1. [Ilmen](https://a.example/)\n   41 km\n2. [https://b.example/](https://b.example/)"
    asked = [body.decode() for _, body in web.posted] + [path for path, _ in web.seen]
    assert len(asked) == 1  # the second time it was in the cache
    assert "Ilmen delta" in asked[0].replace("+", " ")
    assert "a-key" not in asked[0]
    if engine in ("serper", "tavily"):
        assert "a-key" in " ".join(web.posted[0][0].values())


async def test_nothing_found_is_not_an_outage(web: Web, tmp_path: Path) -> None:
    web.pages["/search"] = Page(b'{"results": []}', "application/json")
    assert await found(web, tmp_path, "searxng") == "Nothing was found."
    assert await found(web, tmp_path, "searxng", query="  ") == "The search needs a query."


@pytest.mark.parametrize(("status", "asked"), [(503, search.ATTEMPTS), (429, search.ATTEMPTS), (400, 1)])
async def test_an_outage_ends_the_episode_to_be_run_again(web: Web, tmp_path: Path, status: int, asked: int) -> None:
    web.pages["/search"] = Page(status=status)
    with pytest.raises(SearchFailed, match=str(status)) as error:
        await found(web, tmp_path, "searxng")
    assert error.value.retryable
    assert len(web.seen) == asked


async def test_an_answer_in_another_form_is_no_empty_result(web: Web, tmp_path: Path) -> None:
    for body in (b"<html>", b'{"results": [{"title": "no address"}]}'):
        web.pages["/search"] = Page(body)
        with pytest.raises(SearchFailed, match="no form"):
            await found(web, tmp_path, "searxng")


async def test_a_key_that_is_missing_or_refused(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.pages["/search"] = Page(status=403)
    with pytest.raises(ConfigError, match="check BRAVE_API_KEY"):
        await found(web, tmp_path, "brave")
    monkeypatch.delenv("BRAVE_API_KEY")
    with pytest.raises(ConfigError, match="set BRAVE_API_KEY"):
        await found(web, tmp_path, "brave")


async def test_the_factbook_stands_in_for_the_web_offline(web: Web, tmp_path: Path) -> None:
    async with Research(ResearchOptions(search="factbook"), None) as research:
        tools = {tool.name: tool for tool in research.tools({})}
        results = await tools["search"].call(query="Chad government capital")
        page = await tools["open"].call(page="Chad: Government")
    assert "Chad" in results.observation
    assert "N'Djamena" in page.observation
    assert web.seen == []
