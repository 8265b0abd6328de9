"""The process that turns one document into text: whatever a file from outside does, it does it here, within limits.

Started by `synth.tools.documents` as a script: `convert.py KIND MOST`, the file on standard input, JSON on its output.
"""

from __future__ import annotations

import csv
import io
import json
import resource
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Any

CPU_SECONDS = 60
MEMORY_BYTES = 4 * 2**30
MOST_UNPACKED = 200_000_000
MOST_RATIO = 200
"""Of unpacked to packed bytes in a whole archive; text reaches about 20."""
MOST_COLUMNS = 60
MOST_TEXTS = 200_000
"""Shared texts of a workbook that are parsed."""
_ROW_STARTS = (b"<row ", b"<row>", b"<row\n")


class Unreadable(Exception):
    """The document cannot be read; the text says why."""


def pdf(data: bytes, most: int) -> str:
    """Page by page, each in its layout, so that tables keep their columns."""
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is locked with a password")
        pages = (_page(number, page) for number, page in enumerate(reader.pages, 1))
        text = _up_to(pages, most, f"{len(reader.pages)} pages")
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"it is no readable PDF ({error})") from error
    if not any(character.isalnum() for character in text.replace("Page", "")[20:]):
        raise Unreadable("it holds no text, only pictures of pages")
    return text


def _page(number: int, page: Any) -> str:
    lines = (line.rstrip() for line in page.extract_text(extraction_mode="layout").splitlines())
    return f"[Page {number}]\n" + "\n".join(line for line in lines if line)


def xlsx(data: bytes, most: int) -> str:
    """Every sheet as rows of cells between bars, as many rows as have room; no more of the file is parsed for it."""
    archive = check_archive(data)
    try:
        book = _workbook(data)
        room = most // max(1, len(book.sheetnames))
        return "\n\n".join(_sheet(sheet, archive, room) for sheet in book.worksheets)
    except (Unreadable, ModuleNotFoundError, MemoryError):
        raise
    except Exception as error:  # openpyxl lets through whatever its parts raise
        raise Unreadable(f"it is no readable workbook ({type(error).__name__}: {error})") from error


def _workbook(data: bytes) -> Any:
    """The workbook; openpyxl alone would parse all shared texts, and whole sheets to learn how large they are."""
    from openpyxl.reader.excel import ExcelReader
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet
    from openpyxl.xml.constants import SHARED_STRINGS

    class Sheet(ReadOnlyWorksheet):  # type: ignore[misc]
        def _get_size(self) -> None:
            """Rows are taken as they come: what a file states of their number is often wrong."""

    class Reader(ExcelReader):  # type: ignore[misc]
        def read_strings(self) -> None:
            part = self.package.find(SHARED_STRINGS)
            if part is not None:
                self.shared_strings = _SharedTexts(self.archive.open(part.PartName[1:]))

        def read_worksheets(self) -> None:
            for sheet, part in self.parser.find_sheets():
                if part.target not in self.valid_files:
                    continue
                if "chartsheet" in part.Type:
                    self.read_chartsheet(sheet, part)
                else:
                    self.wb._sheets.append(Sheet(self.wb, sheet.name, part.target, self.shared_strings))

    reader = Reader(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    reader.read()
    return reader.wb


class _SharedTexts:
    """A workbook's table of texts, parsed as far as it was asked for, and never further than `MOST_TEXTS`."""

    def __init__(self, source: IO[bytes]) -> None:
        self._known: list[str] = []
        self._left = self._parsed(source)

    def __getitem__(self, place: int) -> str:
        self._known += islice(self._left, max(0, min(place + 1, MOST_TEXTS) - len(self._known)))
        if place >= MOST_TEXTS:
            return "(text left out)"
        return self._known[place]

    @staticmethod
    def _parsed(source: IO[bytes]) -> Iterator[str]:
        from openpyxl.cell.text import Text
        from openpyxl.xml.functions import iterparse

        for _, node in iterparse(source):
            if node.tag.endswith("}si"):
                yield Text.from_tree(node).content
                node.clear()


def _sheet(sheet: Any, archive: zipfile.ZipFile, room: int) -> str:
    given = sheet.iter_rows(values_only=True, max_col=MOST_COLUMNS)
    rows = (_row(cells) for cells in given if cells.count(None) < len(cells))

    def whole() -> str:
        return f"about {_rows_in(archive, sheet._worksheet_path):,} rows"

    return f"## Sheet {sheet.title}\n" + _up_to((row for row in rows if row), room, whole)


def _rows_in(archive: zipfile.ZipFile, path: str) -> int:
    """The rows of a sheet, counted without parsing them."""
    count, carried = 0, b""
    with archive.open(path) as sheet:
        while chunk := sheet.read(1 << 20):
            text = carried + chunk
            count += sum(text.count(start) for start in _ROW_STARTS)
            carried = text[1 - len(_ROW_STARTS[0]) :]
    return count


def table(data: bytes, most: int) -> str:
    """A CSV or TSV file as rows of cells between bars."""
    text = data.decode("utf-8-sig", "replace")
    csv.field_size_limit(10_000_000)
    try:
        dialect: type[csv.Dialect] | csv.Dialect = csv.Sniffer().sniff(text[:8192], ",;\t|")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = (_row(cells[:MOST_COLUMNS]) for cells in csv.reader(io.StringIO(text), dialect))
        return _up_to((row for row in rows if row), most, f"about {text.count(chr(10)) + 1:,} rows")
    except csv.Error as error:
        raise Unreadable(f"it is no readable table ({error})") from error


def office(data: bytes, most: int) -> str:
    """Word, PowerPoint and what else markitdown reads."""
    from markitdown import MarkItDown
    from markitdown import MarkItDownException as Failed

    check_archive(data)
    try:
        text = MarkItDown(enable_plugins=False).convert_stream(io.BytesIO(data)).text_content
    except (Failed, ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"it is no readable document ({type(error).__name__})") from error
    return _up_to(text.splitlines(), most, "more")


def listing(data: bytes, most: int) -> str:
    """What an archive holds."""
    archive = check_archive(data)
    return _up_to((f"- {one.filename} ({one.file_size:,} bytes)" for one in archive.infolist()), most, "more files")


def check_archive(data: bytes) -> zipfile.ZipFile:
    """An archive that unpacks to a size within bounds. Raises Unreadable for a bomb or what is no archive."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise Unreadable(f"it is no readable archive ({error})") from error
    unpacked = sum(one.file_size for one in archive.infolist())
    if unpacked > MOST_UNPACKED or (unpacked > 10_000_000 and unpacked > MOST_RATIO * len(data)):
        raise Unreadable(f"it unpacks to {unpacked / 1e6:,.0f} MB: it is not unpacked")
    return archive


def member(data: bytes, name: str, most: int) -> bytes:
    """One file of an archive; its true size is watched, whatever the archive says of it."""
    archive = check_archive(data)
    try:
        with archive.open(name) as file:
            unpacked = file.read(most + 1)
    except KeyError:
        raise Unreadable(f"the archive holds no {name}") from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError) as error:
        raise Unreadable(f"{name} cannot be taken out of the archive ({error})") from error
    if len(unpacked) > most:
        raise Unreadable(f"{name} unpacks to more than {most / 1e6:,.0f} MB")
    return unpacked


def _row(cells: Iterable[Any]) -> str:
    shown = ["" if cell is None else " ".join(str(cell).split()) for cell in cells]
    while shown and not shown[-1]:
        shown.pop()
    return f"| {' | '.join(shown)} |" if shown else ""


def _up_to(pieces: Iterable[str], most: int, whole: str | Callable[[], str]) -> str:
    """As many whole pieces as have room, and how much there is of them, which is asked only where they are cut."""
    kept: list[str] = []
    used, left = 0, iter(pieces)
    for piece in left:
        if used + len(piece) > most and kept:
            amount = whole if isinstance(whole, str) else whole()
            return "\n".join([*kept, f"(cut here; the document has {amount})"])
        kept.append(piece[:most])
        used += len(piece) + 1
    return "\n".join(kept)


READERS: dict[str, Callable[[bytes, int], str]] = {
    "pdf": pdf,
    "xlsx": xlsx,
    "table": table,
    "office": office,
    "zip": listing,
}


def main(kind: str, most: int) -> Iterator[dict[str, str]]:
    """The text of the document on standard input, or why there is none."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        yield {"text": READERS[kind](sys.stdin.buffer.read(), most)}
    except Unreadable as error:
        yield {"error": str(error)}
    except ModuleNotFoundError as error:
        yield {"missing": str(error.name)}
    except MemoryError:
        yield {"error": "it takes too much memory to read"}


if __name__ == "__main__":
    for reply in islice(main(sys.argv[1], int(sys.argv[2])), 1):
        sys.stdout.write(json.dumps(reply))
