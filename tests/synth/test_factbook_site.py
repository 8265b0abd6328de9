"""The factbook site over real HTTP: pages, search, titles, and what goes wrong."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from providers.errors import ConfigError, SuiteError
from providers.tools import Tool
from synth.tasks.factbook import Factbook
from synth.tasks.factbook_site import load_site
from synth.tasks.factbook_tools import page_text


@pytest_asyncio.fixture
async def tools() -> AsyncIterator[tuple[Tool, Tool]]:
    async with Factbook() as suite:
        search, open_ = suite.tools(None)  # type: ignore[arg-type]
        yield search, open_


async def test_a_country_page_has_title_site_date_and_links_to_its_sections(tools: tuple[Tool, Tool]) -> None:
    result = await tools[1].call(page="/factbook/chad")
    lines = result.observation.splitlines()
    assert lines[:3] == ["# Chad", "URL: /factbook/chad", "Site: World Factbook"]
    assert re.fullmatch(r"Last updated: \d+ \w+ 2025", lines[3])
    assert lines[4:8] == ["", "Location: Central Africa, south of Libya", "", "Links:"]
    assert "- [Chad: Geography](/factbook/chad/geography)" in lines
    assert lines[-1] == "- [Region: Central Africa](/factbook/regions/central-africa)"
    assert result.error is None
    assert result.lineage is not None
    assert (result.lineage.source, result.lineage.environment, result.lineage.trust) == (
        "/factbook/chad",
        "factbook",
        "page",
    )


async def test_a_section_page_has_fields_and_neighbours_as_links(tools: tuple[Tool, Tool]) -> None:
    text = (await tools[1].call(page="Chad: Geography")).observation
    assert text.startswith("# Chad: Geography\nURL: /factbook/chad/geography\n")
    assert "\nArea - total: 1.284 million sq km\n" in text
    assert "border countries: [Cameroon](/factbook/cameroon) 1,116 km; [Central African Republic]" in text
    assert "\n\nLinks:\n- [Chad](/factbook/chad)\n" in text
    assert max(len(line) for line in text.splitlines() if "border countries" not in line) < 400


async def test_search_lists_five_results_a_page_and_says_how_to_go_on(tools: tuple[Tool, Tool]) -> None:
    first = (await tools[0].call(query="chad")).observation.splitlines()
    assert re.fullmatch(r'Search results for "chad" \(page 1 of \d+\)', first[0])
    assert first[1] == "1. [Chad](/factbook/chad) - World Factbook - Central Africa, south of Libya"
    assert len(first) == 7
    assert first[-1] == "Next page: 2"
    second = (await tools[0].call(query="chad", page=2)).observation.splitlines()
    assert second[1].startswith("6. [Chad: ")
    last = (await tools[0].call(query="Chad median age")).observation.splitlines()
    assert last[1].startswith("1. [Chad: People and Society](/factbook/chad/people-and-society) - World Factbook - ")
    assert not last[-1].startswith("Next page")


async def test_search_finds_regions_things_and_nothing(tools: tuple[Tool, Tool]) -> None:
    async def first(query: str) -> str:
        return (await tools[0].call(query=query)).observation.splitlines()[1]

    assert first is not None
    assert "[Region: Central Asia]" in await first("Central Asia")
    assert "[Chad: Geography]" in await first("Emi Koussi")
    assert "[Chad: Communications]" in await first(".td")
    assert "[Guinea](" in await first("Guinea")
    assert (await tools[0].call(query='say "xyzzy"')).observation == 'No results for "say "xyzzy"".'
    assert (await tools[0].call(query="chad", page=99)).observation == 'No results for "chad".'


async def test_the_archive_usually_ranks_above_the_current_page(tools: tuple[Tool, Tool]) -> None:
    site = load_site()
    above = 0
    for slug in site.stale:
        hits = site.search(site.world.countries[slug].name).hits
        assert {hits[0][1], hits[1][1]} == {f"/archive/{slug}", f"/factbook/{slug}"}
        above += hits[0][1].startswith("/archive")
        opened = (await tools[1].call(page=site.world.countries[slug].name)).observation
        assert f"URL: {hits[0][1]}\n" in opened
    assert 0.7 < above / len(site.stale) < 1


async def test_signs_of_age_are_related_to_the_edition_but_not_equal() -> None:
    pages = load_site().pages.values()
    archive = [page for page in pages if page.url.startswith("/archive")]
    current = [page for page in pages if page.url.count("/") >= 2 and page.notices and page not in archive]
    assert all("2019" in page.notices[0] for page in archive)
    assert 0.05 < sum(len(page.notices) > 1 for page in archive) / len(archive) < 0.3
    assert 0.9 < sum("2025" in page.notices[0] for page in current) / len(current) < 1


async def test_what_is_not_there_is_said(tools: tuple[Tool, Tool]) -> None:
    for page in ("/factbook/atlantis", "Atlantis", ""):
        result = await tools[1].call(page=page)
        assert result.error == result.observation
        assert result.observation.startswith("No page")
    for arguments in ({"query": ""}, {"query": "chad", "page": "two"}, {}):
        assert (await tools[0].call(**arguments)).error


async def test_links_and_whole_addresses_open_the_same_page(tools: tuple[Tool, Tool]) -> None:
    plain = (await tools[1].call(page="/factbook/fiji")).observation
    for page in ("[Fiji](/factbook/fiji)", "/factbook/fiji/", "/factbook/fiji#top"):
        assert (await tools[1].call(page=page)).observation == plain


async def test_every_link_of_the_site_leads_to_a_page() -> None:
    site = load_site()
    for page in site.pages.values():
        targets = [link.url for link in page.links] + re.findall(r'href="([^"]+)"', " ".join(v for _, v in page.fields))
        assert all(url in site.pages for url in targets)


async def test_many_calls_at_once_give_what_single_calls_give(tools: tuple[Tool, Tool]) -> None:
    urls = [f"/factbook/{slug}" for slug in list(load_site().world.countries)[:60]]
    together = await asyncio.gather(*(tools[1].call(page=url) for url in urls))
    assert [result.observation.splitlines()[1] for result in together] == [f"URL: {url}" for url in urls]


async def test_a_port_in_use_is_named_with_the_mend() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SuiteError, match=rf"port {port} .* in use.*suite\.options\.port"):
            async with Factbook(port=port):
                pass


@pytest.mark.parametrize("port", [-1, 70_000, "8000"])
def test_what_is_no_port_is_refused(port: object) -> None:
    with pytest.raises(ConfigError, match=r"suite\.options\.port"):
        Factbook(port=port)  # type: ignore[arg-type]


async def test_a_chosen_port_is_used_and_freed() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        async with Factbook(port=port) as suite:
            tools = suite.tools(None)  # type: ignore[arg-type]
            assert "# Chad" in (await tools[1].call(page=f"http://127.0.0.1:{port}/factbook/chad")).observation
    with pytest.raises(SuiteError, match="not running"):
        suite.tools(None)  # type: ignore[arg-type]


def test_any_page_becomes_text() -> None:
    html = (
        b"<html><head><link rel='canonical' href='/a'></head><body><header><h1>T &amp; U</h1><p>one</p></header>"
        b"<main><dl><dt>k</dt><dd>see <a href='/b'>B</a> now</dd></dl></main><nav><ul><li><a href='/c'>C</a></li></ul>"
        b"</nav></body></html>"
    )
    assert page_text(html) == "# T & U\nURL: /a\none\n\nk: see [B](/b) now\n\n- [C](/c)"
