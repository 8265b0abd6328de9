"""Fetching pages from the open web within limits of size, time, redirects, content types and where they may lie."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

from synth.tools.addresses import Refused, resolve
from synth.tools.page_cache import PageCache

if TYPE_CHECKING:
    import httpx

AGENT = "memroute"
_HEADERS = {"User-Agent": f"{AGENT} (research agent)", "Accept": "text/html,application/pdf,text/*;q=0.9,*/*;q=0.5"}
_ROBOTS_BYTES = 500_000
_READABLE = (
    "text/",
    "application/xhtml",
    "application/xml",
    "application/json",
    "application/pdf",
    "application/vnd.openxmlformats",
    "application/octet-stream",
    "application/zip",
)


@dataclass(frozen=True)
class Limits:
    """What one page may take."""

    bytes: int = 10_000_000
    seconds: float = 30.0
    redirects: int = 5
    allow_private: bool = False
    robots: bool = True


@dataclass(frozen=True)
class Page:
    """A page as it came, at the address where it was found in the end."""

    url: str
    type: str
    """Its content type with parameters, lower case."""
    body: bytes


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


class Fetcher:
    """Gets pages; what stands against a page is Refused, with the reason."""

    def __init__(self, client: httpx.AsyncClient, limits: Limits, cache: PageCache | None) -> None:
        """`client` must neither follow redirects nor keep connections: both would pass the check of addresses by."""
        self._client, self._limits, self._cache = client, limits, cache
        self._robots: dict[str, RobotFileParser | str] = {}
        self._origin_locks: dict[str, asyncio.Lock] = {}

    async def get(self, url: str) -> Page:
        """The page at `url`, from the cache where it is fresh there. Raises Refused."""
        address = _checked(url)
        kept = await asyncio.to_thread(self._cache.get, address) if self._cache is not None else None
        if kept is not None:
            return Page(*kept)
        try:
            async with asyncio.timeout(self._limits.seconds):
                page = await self._followed(address)
        except TimeoutError:
            raise Refused(f"{address} did not answer within {self._limits.seconds:g} s.") from None
        if self._cache is not None:
            await asyncio.to_thread(self._cache.put, address, page.url, page.type, page.body)
        return page

    async def _followed(self, address: str) -> Page:
        start = address
        for _ in range(self._limits.redirects + 1):
            await self._check_robots(address)
            answer = await self._request(address, self._limits.bytes)
            if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
                return _page(address, answer)
            address = _checked(urljoin(address, answer.headers["location"]))
        raise Refused(f"{start} leads on to other addresses more than {self._limits.redirects} times.")

    async def _request(self, address: str, most: int) -> _Answer:
        """One request to an address that was checked, without a second look-up of its name in between."""
        import httpx

        url = httpx.URL(address)
        port = url.port or (443 if url.scheme == "https" else 80)
        place = await resolve(url.host, port, allow_private=self._limits.allow_private)
        request = self._client.build_request(
            "GET",
            url.copy_with(host=place),
            headers={**_HEADERS, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": url.host},
        )
        try:
            response = await self._client.send(request, stream=True)
            try:
                return _Answer(response.status_code, response.headers, await _body(response, address, most))
            finally:
                await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Refused(f"{address} could not be fetched ({type(error).__name__}).") from error

    async def _check_robots(self, address: str) -> None:
        if not self._limits.robots:
            return
        parts = urlsplit(address)
        origin = f"{parts.scheme}://{parts.netloc}"
        async with self._origin_locks.setdefault(origin, asyncio.Lock()):
            if origin not in self._robots:
                self._robots[origin] = await self._rules(origin)
        rules = self._robots[origin]
        if isinstance(rules, str):
            raise Refused(rules)
        if not rules.can_fetch(AGENT, address):
            raise Refused(f"{origin} does not allow programs to open {parts.path or '/'} (robots.txt).")

    async def _rules(self, origin: str) -> RobotFileParser | str:
        """What robots.txt says (RFC 9309): missing allows all, a failing server nothing, in words."""
        rules, address = RobotFileParser(), f"{origin}/robots.txt"
        for _ in range(self._limits.redirects + 1):
            answer = await self._request(address, _ROBOTS_BYTES)
            if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
                break
            address = _checked(urljoin(address, answer.headers["location"]))
        if answer.status >= 500:
            return f"{origin} cannot say what programs may open (robots.txt fails with {answer.status})."
        rules.parse(answer.body.decode("utf-8", "replace").splitlines() if answer.status < 300 else [])
        return rules


def _page(address: str, answer: _Answer) -> Page:
    if answer.status >= 400:
        raise Refused(f"{address} answers {answer.status}: the page cannot be read.")
    kind = answer.headers.get("content-type", "text/html").lower()
    if not kind.startswith(_READABLE):
        raise Refused(f"{address} is {kind.partition(';')[0]}, which cannot be read as text.")
    return Page(address, kind, answer.body)


async def _body(response: httpx.Response, address: str, most: int) -> bytes:
    """The body, decompressed, up to a limit. Raises Refused beyond it."""
    body, length = bytearray(), response.headers.get("content-length", "")
    if not length.isdecimal() or int(length) <= most:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise Refused(f"{address} is larger than {most / 1_000_000:g} MB: it is not read.")


def _checked(url: str) -> str:
    """The address as it is asked for. Raises Refused for what is no address of the web."""
    given = url.strip()
    if "://" not in given and "." in given.split("/")[0] and " " not in given:
        given = f"https://{given}"
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        raise Refused(f"{url!r} is no address.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise Refused(f"{url!r} is no address of the web: give one that starts with https:// or http://.")
    if parts.username or parts.password:
        raise Refused(f"{parts.hostname} was named with a user or password in the address: it is not opened.")
    return parts._replace(fragment="").geturl()
