"""Plays the vLLM process: asks for the key that it was given, and passes everything on to the endpoint of the test."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

arguments = sys.argv[sys.argv.index("vllm.entrypoints.openai.api_server") + 1 :]
port = int(arguments[arguments.index("--port") + 1])
with Path(os.environ["FAKE_VLLM_PIDS"]).open("a") as pids:
    pids.write(f"{os.getpid()}\n")
if os.environ.get("FAKE_VLLM_FAILS"):
    sys.exit("no memory for the weights")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        self._pass_on(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass_on(self, body: bytes | None) -> None:
        status, answer = 401, b"{}"
        if self.headers["Authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}":
            url = os.environ["FAKE_VLLM_BEHIND"] + self.path.removeprefix("/v1")
            request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as response:
                status, answer = response.status, response.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
