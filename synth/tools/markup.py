"""Pages as the text that agents read: the main part of an HTML page with its tables, then its links."""

from __future__ import annotations

import codecs
import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from synth.tools.addresses import Refused

if TYPE_CHECKING:
    from lxml.html import HtmlElement

MOST_HTML = 3_000_000
"""Characters of HTML that are parsed; what follows is cut off."""
MOST_LINKS = 150
LEAST_TEXT = 80
"""Characters below which a page with scripts counts as made by them."""
LEAST_GUESSED = 64
"""Bytes below which an encoding cannot be told from its letters."""
_IN_ASCII = ("iso-2022", "hz", "utf-7", "utf-16")
"""Beginnings of encodings that write other scripts in ASCII's bytes, so that UTF-8 would seem to fit."""
_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:-]{1,40})|<\?xml[^>]{0,100}encoding=["']([\w.:-]{1,40})""", re.I
)


def decoded(body: bytes, kind: str) -> str:
    """Text of bytes, never an error: by byte order mark, as UTF-8 where they are that, as header or page say, guessed.

    Bytes beyond ASCII that are UTF-8 are hardly ever anything else, whereas headers are often wrong.
    """
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if body.startswith(mark):
            return body.decode(name, "replace")
    declared = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", kind)
    stated = _CHARSET.search(body[:4096])
    names = [declared[1] if declared else "", (stated[1] or stated[2]).decode("ascii") if stated else ""]
    escaping = [name for name in names if name.lower().startswith(_IN_ASCII)]
    for name in filter(None, [*escaping, "utf-8", *names]):
        try:
            return body.decode(name)
        except (LookupError, UnicodeDecodeError):
            continue
    return _guessed(body)


def _guessed(body: bytes) -> str:
    import charset_normalizer

    best = charset_normalizer.from_bytes(body[:100_000]).best() if len(body) >= LEAST_GUESSED else None
    return body.decode(best.encoding if best is not None else "cp1252", "replace")


def html_text(html: str, url: str) -> str:
    """The title, the main text in Markdown, and the page's links. Raises Refused where there is nothing to read."""
    import lxml.etree
    import lxml.html
    import trafilatura

    cut = html[:MOST_HTML]
    try:
        document = lxml.html.document_fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", cut))
    except (lxml.etree.LxmlError, ValueError) as error:
        raise Refused(f"{url} is no readable page.") from error
    scripted = document.find(".//script") is not None
    logging.getLogger("trafilatura").setLevel(logging.ERROR)  # an empty page is told to the agent, not to the terminal
    main = trafilatura.extract(
        cut, url=url, output_format="markdown", include_tables=True, include_comments=False, favor_recall=True
    )
    text = main if main and len(main) >= LEAST_TEXT else _all_text(document)
    if len(text) < LEAST_TEXT and scripted:
        raise Refused(f"{url} shows nothing without running its scripts ({text!r}): open another page.")
    title = " ".join((document.findtext(".//title") or "").split())
    links = _links(document, url)
    parts = [f"# {title}" if title else "", f"URL: {url}", text or "(no text)"]
    if links:
        parts.append("Links:\n" + "\n".join(links))
    if len(html) > MOST_HTML:
        parts.append(f"(cut: the page is {len(html):,} characters long)")
    return "\n\n".join(part for part in parts if part)


def _all_text(document: HtmlElement) -> str:
    """All that a reader sees, block by block: for pages without a main part, such as lists of links."""
    for hidden in document.xpath("//script|//style|//noscript|//template|//head"):
        hidden.drop_tree()
    lines = (" ".join(part.split()) for part in document.itertext())
    return "\n".join(line for line in lines if line)


def _links(document: HtmlElement, url: str) -> list[str]:
    """Links that lead on, each once, as `- text: address`."""
    found: dict[str, str] = {}
    for link in document.iter("a"):
        words, target = " ".join(link.text_content().split())[:80], str(link.get("href") or "").strip()
        try:
            address = urljoin(url, target).partition("#")[0]
        except ValueError:
            continue
        if words and target and not target.startswith("#") and address.startswith(("http://", "https://")):
            found.setdefault(address, words)
    return [f"- {words}: {address}" for address, words in list(found.items())[:MOST_LINKS]]
