"""A chat endpoint on loopback that plays a script, faults included, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Play:
    """One response. `hang` waits before it; `drop` sends so many bytes of the body and hangs up."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    drop: int | None = None


def said(
    text: str | None,
    *,
    usage: Any = True,
    logprobs: Any = None,
    finish: str = "stop",
    calls: list[tuple[str, Any]] | None = None,
    **message: Any,
) -> Play:
    """An answer with `text`, or with tool calls as (name, arguments)."""
    if calls is not None:
        message["tool_calls"] = [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ]
    body: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
                "logprobs": logprobs,
            }
        ],
    }
    if usage is True:
        body["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    elif usage:
        body["usage"] = usage
    return Play(body=body)


class Endpoint:
    """Plays `script`, one response per request, the last one again and again; or asks `answer` for each.

    `requests` are the bodies that came, `paths` where to, `keys` their Authorization headers, `times` when they came,
    `most` how many were being answered at once. `models` are the names that it lists.
    """

    def __init__(self, port: int = 0) -> None:
        self.script: list[Play] = []
        self.answer: Callable[[dict[str, Any]], Play] | None = None
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str] = []
        self.models: list[str] = ["m"]
        self.times: list[float] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with endpoint._lock:
                    endpoint.paths.append(self.path)
                    play = endpoint._next(json.loads(body), self.headers["Authorization"])
                    endpoint._now += 1
                    endpoint.most = max(endpoint.most, endpoint._now)
                try:
                    if play.hang:
                        endpoint._stopped.wait(play.hang)
                    self._send(play)
                finally:
                    with endpoint._lock:
                        endpoint._now -= 1

            def do_GET(self) -> None:
                listed = [{"id": name, "object": "model"} for name in endpoint.models]
                self._send(Play(body={"object": "list", "data": listed}))

            def _send(self, play: Play) -> None:
                data = (play.body if isinstance(play.body, str) else json.dumps(play.body)).encode()
                try:
                    self.send_response(play.status)
                    for name, value in {"Content-Type": "application/json", **play.headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data[: play.drop])
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.close_connection = play.drop is not None

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def _next(self, request: dict[str, Any], key: str) -> Play:
        self.requests.append(request)
        self.keys.append(key)
        self.times.append(time.monotonic())
        if self.answer is not None:
            return self.answer(request)
        return self.script[0] if len(self.script) == 1 else self.script.pop(0)

    def stop(self) -> None:
        """End the server; what hangs is let go."""
        self._stopped.set()
        self.server.shutdown()
        self.server.server_close()
