"""A small web on loopback whose pages misbehave as told, for tests of the research tools."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Page:
    """One response. `pieces` are sent without a length, one after the other."""

    body: bytes = b""
    type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] | None = None
    hang: float = 0.0


class Web:
    """Serves `pages` by path; `seen` are the paths that were asked for, with the Host that was named."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.seen: list[tuple[str, str]] = []
        self.posted: list[tuple[dict[str, str], bytes]] = []
        self._stopped = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.seen.append((self.path, self.headers["Host"]))
                page = web.pages.get(self.path) or web.pages.get(self.path.partition("?")[0])
                if page is None:
                    page = Page(b"no such page", status=404)
                web._stopped.wait(page.hang)
                self._send(page)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.posted.append((dict(self.headers), body))
                self._send(web.pages.get(self.path, Page(status=404)))

            def _send(self, page: Page) -> None:
                try:
                    self.send_response(page.status)
                    self.send_header("Content-Type", page.type)
                    for name, value in page.headers.items():
                        self.send_header(name, value)
                    if page.pieces is None and "Content-Length" not in page.headers:
                        self.send_header("Content-Length", str(len(page.body)))
                    self.end_headers()
                    for piece in (page.body,) if page.pieces is None else page.pieces:
                        self.wfile.write(piece)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
