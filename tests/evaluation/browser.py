"""A headless Chromium driven over the WebDriver protocol, for looking at the report as a reader would."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ENTER = "\ue007"
"""The key's code in the WebDriver protocol."""


def available() -> bool:
    """Whether chromium and its driver are installed."""
    return bool(shutil.which("chromedriver") and (shutil.which("chromium") or shutil.which("google-chrome")))


class Browser:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, page: Path) -> None:
        self._post("url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns; a promise is awaited."""
        head = "const done = arguments[arguments.length - 1];"
        wrapped = f"{head} (async () => {{ {script} }})().then(done, failure => done(String(failure)));"
        return self._post("execute/async", {"script": wrapped, "args": list(arguments)})

    def press(self, keys: str) -> None:
        """Keys to whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def resize(self, width: int, height: int) -> None:
        self._post("window/rect", {"width": width, "height": height})

    def errors(self) -> list[str]:
        """Messages of the console that are errors or warnings."""
        logged = self._post("se/log", {"type": "browser"})
        return [entry["message"] for entry in logged if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, to: Path) -> None:
        to.write_bytes(base64.b64decode(self._get("screenshot")))

    def _post(self, command: str, body: dict[str, Any]) -> Any:
        answer = httpx.post(f"{self._base}/{command}", json=body, timeout=60)
        assert answer.is_success, answer.text
        return answer.json()["value"]

    def _get(self, command: str) -> Any:
        answer = httpx.get(f"{self._base}/{command}", timeout=60)
        assert answer.is_success, answer.text
        return answer.json()["value"]


@contextmanager
def chromium(width: int = 1200, height: int = 900) -> Iterator[Browser]:
    """A browser of its own, ended with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait(address)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        wanted = {
            "goog:chromeOptions": {"args": [*flags, f"--window-size={width},{height}"]},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        answer = httpx.post(f"{address}/session", json={"capabilities": {"alwaysMatch": wanted}}, timeout=60)
        assert answer.is_success, answer.text
        session = answer.json()["value"]["sessionId"]
        try:
            yield Browser(address, session)
        finally:
            httpx.delete(f"{address}/session/{session}", timeout=60)
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _wait(address: str) -> None:
    for _ in range(200):
        try:
            httpx.get(f"{address}/status", timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("chromedriver does not answer")
