"""Documents (PDF, Word, Excel, CSV, archives, plain text) as text, converted in a process of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from providers.errors import SuiteError
from synth.tools.addresses import Refused
from synth.tools.convert import Unreadable, member
from synth.tools.markup import decoded, html_text

SECONDS = 90.0
MOST_TEXT = 400_000
"""Characters that are kept of one document."""
MOST_MEMBER = 50_000_000
"""Bytes of one file out of an archive."""
MOST_AT_A_TIME = 2
"""Conversions; each is a process that may use much memory."""

KINDS = {
    ".pdf": "pdf",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".csv": "table",
    ".tsv": "table",
    ".docx": "office",
    ".pptx": "office",
    ".epub": "office",
    ".zip": "zip",
}
IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"})
RECORDINGS = frozenset({".mp3", ".wav", ".m4a", ".ogg", ".flac", ".mp4", ".mov"})
_TYPES = {
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
}


class Documents:
    """Turns documents into text. What cannot be read is Refused, with the reason."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(MOST_AT_A_TIME)

    async def page(self, url: str, kind: str, body: bytes) -> str:
        """The text of a page of the web by its content type."""
        plain = kind.partition(";")[0].strip()
        suffix = _TYPES.get(plain) or (Path(url.partition("?")[0]).suffix.lower() if "octet-stream" in plain else "")
        if body.startswith(b"%PDF-"):
            suffix = ".pdf"
        if suffix in KINDS:
            return f"URL: {url}\n\n{await self._converted(KINDS[suffix], body, url)}"
        text = await asyncio.to_thread(decoded, body, kind)
        if "\0" in text[:2000]:
            raise Refused(f"{url} is no text.")
        if plain in ("text/html", "application/xhtml+xml") or _looks_like_html(text):
            return await asyncio.to_thread(html_text, text, url)
        return f"URL: {url}\n\n{text[:MOST_TEXT]}"

    async def file(self, name: str, body: bytes) -> str:
        """The text of a file by its name's ending; `archive.zip/inner.csv` names a file in an archive."""
        suffix = Path(name).suffix.lower()
        if suffix in KINDS:
            return await self._converted(KINDS[suffix], body, name)
        text = decoded(body, "")
        if "\0" in text[:2000]:
            raise Refused(f"{name} is no text and no document that can be read.")
        return text[:MOST_TEXT]

    async def unpacked(self, name: str, body: bytes, inner: str) -> bytes:
        """A file out of an archive."""
        try:
            return await asyncio.to_thread(member, body, inner, MOST_MEMBER)
        except Unreadable as error:
            raise Refused(f"{name}: {error}.") from error

    async def _converted(self, kind: str, body: bytes, name: str) -> str:
        script = str(Path(__file__).with_name("convert.py"))
        async with self._turn:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", script, kind, str(MOST_TEXT), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
            )
            try:
                async with asyncio.timeout(SECONDS):
                    out, _ = await process.communicate(body)
            except TimeoutError:
                raise Refused(f"{name} takes more than {SECONDS:g} s to read: it is given up.") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return _reply(out, name)


def _looks_like_html(text: str) -> bool:
    return text[:200].lstrip().lower().startswith(("<!doctype html", "<html"))


def _reply(out: bytes, name: str) -> str:
    try:
        reply = json.loads(out)
    except ValueError:
        raise Refused(f"{name} cannot be read: it takes more time or memory than a document may.") from None
    if "missing" in reply:
        raise SuiteError(
            f'Reading {name} needs the Python package "{reply["missing"]}": install memroute with the extra `research`.'
        )
    if "error" in reply:
        raise Refused(f"{name} cannot be read: {reply['error']}.")
    text: str = reply["text"]
    return text or "(empty)"
