"""Serves the two factbook sites as HTML over loopback HTTP with keep-alive, from a thread of its own."""

from __future__ import annotations

import errno
import socket
import threading
import time
from html import escape
from typing import TYPE_CHECKING

from providers.errors import SuiteError
from synth.tasks.factbook_site import Site

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

HOST = "127.0.0.1"
START_SECONDS = 20.0


def application(site: Site) -> Starlette:
    """The web application: pages by path, `/search?q=&page=`, and `/open?title=` for a page by its title."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    rendered: dict[str, bytes] = {}

    def html(url: str) -> Response:
        if url not in rendered:
            rendered[url] = site.pages[url].html().encode()
        return Response(rendered[url], media_type="text/html")

    def missing(what: str) -> Response:
        body = f"<!doctype html><html><body><main><p>No page {escape(what)}.</p></main></body></html>"
        return Response(body.encode(), status_code=404, media_type="text/html")

    async def page(request: Request) -> Response:
        url = request.url.path.rstrip("/")
        return html(url) if url in site.pages else missing(url)

    async def by_title(request: Request) -> Response:
        title = request.query_params.get("title", "")
        found = site.resolve(title)
        return html(found.url) if found else missing(f'"{title}"')

    async def search(request: Request) -> Response:
        number = request.query_params.get("page", "1")
        results = site.search(request.query_params.get("q", ""), int(number) if number.isdecimal() else 0)
        return Response(results.html().encode(), media_type="text/html")

    return Starlette(
        routes=[Route("/search", search), Route("/open", by_title), Route("/{path:path}", page)],
    )


class SiteServer:
    """Runs `application(site)` between `start` and `stop`. `port` 0 takes any free port."""

    def __init__(self, site: Site, port: int = 0) -> None:
        self._site = site
        self._wanted = port
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self) -> None:
        """Returns once requests are answered. Raises SuiteError where the port is taken."""
        import uvicorn

        listener = self._listen()
        self.url = f"http://{HOST}:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            application(self._site),
            http="httptools",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            timeout_keep_alive=600,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="factbook", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise SuiteError(f"The factbook server did not start on {self.url}: see the log above and try again.")
            time.sleep(0.005)

    def stop(self) -> None:
        if self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            self._thread = None

    def _listen(self) -> socket.socket:
        # asyncio turns Nagle's algorithm off only where the protocol is named: without it every answer waits 40 ms.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, self._wanted))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise SuiteError(
                f"The factbook suite cannot listen on port {self._wanted} of {HOST}: it is in use or not allowed. "
                "Set suite.options.port to a free one, or to 0 for any."
            ) from error
        return listener
