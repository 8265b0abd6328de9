"""Attached files: documents, tables and archives as text, pictures and recordings through a model."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import Endpoint, Play, said

from providers.errors import ModelError, SuiteError
from providers.tools import Tool, ToolResult
from synth.config import ModelsConfig
from synth.models import Models
from synth.tools import convert, documents, inspectors
from synth.tools.convert import MOST_UNPACKED, Unreadable, check_archive, member
from synth.tools.research import Research, ResearchOptions

SQUARE = Path(__file__).parent.parent / "samples" / "gaia" / "2023" / "validation" / "square.png"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    yield running
    running.stop()


async def called(
    folder: Path, files: Mapping[str, bytes], tool: str, models: Models | None = None, **given: Any
) -> ToolResult:
    """What a tool gives for files that lie in `folder`."""
    paths = {}
    for name, data in files.items():
        paths[name] = folder / name
        paths[name].write_bytes(data)
    options = ResearchOptions(open=False, cache_days=0)
    async with Research(options, models) as research:
        tools: dict[str, Tool] = {one.name: one for one in research.tools(paths)}
        return await tools[tool].call(**given)


async def read(folder: Path, name: str, data: bytes, **more: Any) -> ToolResult:
    return await called(folder, {name: data}, "read_file", file=name, **more)


def workbook(rows: int) -> bytes:
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    sheet = book.create_sheet("Boats")
    sheet.append(["name", "length", None, "built"])
    for n in range(rows):
        sheet.append([f"boat {n}", n * 1.5, None, 1900 + n % 100])
    book.create_sheet("Empty")
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def raw_workbook(rows: Sequence[int], *, before: str = "", after: str = "", broken_texts: bool = False) -> bytes:
    """A workbook written by hand, since openpyxl is slow: a row of a shared text and a number for each of `rows`."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    packages = "http://schemas.openxmlformats.org/package/2006"
    office = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    overrides = {"workbook": "sheet.main", "sheet1": "worksheet", "sharedStrings": "sharedStrings"}
    types = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{office}.{kind}+xml"/>' for name, kind in overrides.items()
    )
    linked = "".join(
        f'<Relationship Id="r{place}" Type="{kinds}/{kind}" Target="{name}.xml"/>'
        for place, (kind, name) in enumerate((("worksheet", "sheet1"), ("sharedStrings", "sharedStrings")))
    )
    texts = "".join(f"<si><t>boat {n}</t></si>" for n in range(len(rows) // 2 if broken_texts else len(rows)))
    cells = "".join(f'<row><c t="s"><v>{n}</v></c><c><v>{n}</v></c></row>' for n in rows)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{packages}/content-types"><Default Extension="rels" ContentType='
        f'"application/vnd.openxmlformats-package.relationships+xml"/>{types}</Types>',
        "_rels/.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r" '
        f'Type="{kinds}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{packages}/relationships">{linked}</Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{kinds}"><sheets>'
        '<sheet name="Boats" sheetId="1" r:id="r0"/></sheets></workbook>',
        "xl/sharedStrings.xml": f'<sst xmlns="{main}">{texts}{"<broken" if broken_texts else "</sst>"}',
        "xl/sheet1.xml": f'<worksheet xmlns="{main}">{before}<sheetData>{cells}{after}</sheetData></worksheet>',
    }
    return archive(**{name: part.encode() for name, part in parts.items()})


def archive(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name.replace("__", "."), data)
    return out.getvalue()


def pdf(text: str) -> bytes:
    """One page with `text`, written by hand: pypdf writes no text."""
    stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(out + b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % start)


async def test_a_workbook_is_read_sheet_by_sheet(tmp_path: Path) -> None:
    result = await read(tmp_path, "boats.xlsx", workbook(3))
    assert result.error is None
    assert "## Sheet Boats\n| name | length |  | built |\n| boat 0 | 0 |  | 1900 |" in result.observation
    assert "## Sheet Empty" in result.observation


async def test_a_million_rows_are_cut_with_a_word_of_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SECONDS", 900.0)  # a few of the processor, whatever else it has to do
    data = raw_workbook(range(1_000_000))
    assert len(data) < 50_000_000
    text = await documents.Documents().file("boats.xlsx", data)
    assert text.startswith("## Sheet Boats\n| boat 0 | 0 |\n| boat 1 | 1 |\n")
    assert text.endswith("(cut here; the document has about 1,000,000 rows)")
    assert len(text) < documents.MOST_TEXT + 200


def test_texts_that_no_row_with_room_needs_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = raw_workbook(range(20_000), broken_texts=True)
    assert "| boat 9 | 9 |" in convert.xlsx(broken, 200)
    with pytest.raises(Unreadable, match="no readable workbook"):
        convert.xlsx(broken, 1_000_000)
    ends_broken = raw_workbook(range(20_000), after="<broken")
    assert "(cut here; the document has about 20,000 rows)" in convert.xlsx(ends_broken, 200)
    monkeypatch.setattr(convert, "MOST_TEXTS", 2)
    first, second, third = convert.xlsx(raw_workbook([1, 0, 2]), 1000).splitlines()[1:]
    assert (first, second) == ("| boat 1 | 1 |", "| boat 0 | 0 |")
    assert third == "| (text left out) | 2 |"


def test_rows_that_are_stated_or_skipped_and_not_there_cost_nothing() -> None:
    stated = raw_workbook(range(3), before='<dimension ref="A1:XFD1048576"/>', after='<row r="1048576"/>')
    assert convert.xlsx(stated, 1000) == "## Sheet Boats\n| boat 0 | 0 |\n| boat 1 | 1 |\n| boat 2 | 2 |"


async def test_many_rows_are_cut_with_a_word_of_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MOST_TEXT", 2000)
    result = await read(tmp_path, "boats.xlsx", workbook(5000))
    assert "(cut here; the document has about 5,001 rows)" in result.observation
    assert len(result.observation) < 3500
    table = await read(tmp_path, "boats.csv", b"a;b\n" + b"1;2\n" * 5000)
    assert table.observation.startswith("| a | b |\n| 1 | 2 |\n")
    assert "(cut here; the document has about 5,002 rows)" in table.observation


async def test_a_pdf_and_an_office_document(tmp_path: Path) -> None:
    result = await read(tmp_path, "ilmen.pdf", pdf("The delta is 41 km long."))
    assert result.observation == "[Page 1]\nThe delta is 41 km long."
    paragraph = "<w:p><w:r><w:t>The delta is 41 km long.</w:t></w:r></w:p>"
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
    )
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{office}" Target="word/document.xml"/></Relationships>'
    )
    document = f"<w:document {space}><w:body>{paragraph}</w:body></w:document>"
    parts = {"[Content_Types].xml": types, "_rels/.rels": relations, "word/document.xml": document}
    docx = archive(**{name: f'<?xml version="1.0"?>{text}'.encode() for name, text in parts.items()})
    result = await read(tmp_path, "ilmen.docx", docx)
    assert result.observation.strip() == "The delta is 41 km long."


async def test_an_archive_and_a_file_in_it(tmp_path: Path) -> None:
    packed = archive(**{"notes/a.txt": b"the notes", "boats.csv": b"a,b\n1,2\n"})
    listing = await read(tmp_path, "all.zip", packed)
    assert listing.observation == "- notes/a.txt (9 bytes)\n- boats.csv (8 bytes)"
    inner = await called(tmp_path, {"all.zip": packed}, "read_file", file="all.zip/notes/a.txt")
    assert inner.observation == "the notes"
    gone = await called(tmp_path, {"all.zip": packed}, "read_file", file="all.zip/b.txt")
    assert gone.error == "all.zip: the archive holds no b.txt."


async def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = archive(**{"zeros.bin": bytes(50_000_000)})
    assert len(bomb) < 100_000
    for name in ("bomb.zip", "bomb.xlsx", "bomb.docx"):
        result = await read(tmp_path, name, bomb)
        assert result.error == f"{name} cannot be read: it unpacks to 50 MB: it is not unpacked."
    inner = await called(tmp_path, {"bomb.zip": bomb}, "read_file", file="bomb.zip/zeros.bin")
    assert inner.error is not None


def test_what_an_archive_unpacks_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = archive(**{"a.txt": b"ab" * 100, "b.txt": b"ba" * 100})
    assert len(member(packed, "a.txt", 200)) == 200
    with pytest.raises(Unreadable, match="unpacks to more than"):
        member(packed, "a.txt", 199)
    monkeypatch.setattr(convert, "MOST_UNPACKED", 399)
    with pytest.raises(Unreadable, match="it is not unpacked"):
        check_archive(packed)


def test_an_archive_that_lies_about_its_sizes() -> None:
    honest = bytearray(archive(**{"a.bin": bytes(2_000_000)}))
    place = honest.index(b"PK\x01\x02")
    honest[place + 24 : place + 28] = (10).to_bytes(4, "little")  # the size that the directory states
    assert check_archive(bytes(honest)).infolist()[0].file_size == 10
    with pytest.raises(Unreadable):
        member(bytes(honest), "a.bin", 1_000_000)
    assert MOST_UNPACKED > 1_000_000


@pytest.mark.parametrize("name", ["a.pdf", "a.xlsx", "a.docx", "a.pptx", "a.zip"])
@pytest.mark.parametrize("data", [b"", b"not what it says", b"PK\x03\x04 broken", b"%PDF-1.7 broken"])
async def test_files_that_are_not_what_they_say(tmp_path: Path, name: str, data: bytes) -> None:
    result = await read(tmp_path, name, data)
    assert result.error is not None
    assert result.error.startswith(f"{name} cannot be read: ")


async def test_a_file_that_takes_too_long_or_breaks_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "SECONDS", 0.01)
    result = await read(tmp_path, "slow.xlsx", workbook(10))
    assert result.error == "slow.xlsx takes more than 0.01 s to read: it is given up."
    with pytest.raises(SuiteError, match="extra `research`"):
        documents._reply(b'{"missing": "pypdf"}', "a.pdf")


async def test_only_the_tasks_own_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("of another task", encoding="utf-8")
    for name in ("other.txt", "../secret", "/etc/passwd", "a.txt/../other.txt", ""):
        result = await called(tmp_path, {"a.txt": b"mine"}, "read_file", file=name)
        assert result.error == f"There is no file {name!r}; there are: a.txt."
    assert (await read(tmp_path, "a.txt", "Größe".encode("cp1252"))).observation == "Größe"


def looking(endpoint: Endpoint, kind: str) -> Models:
    return Models(ModelsConfig.model_validate({kind: {"base_url": endpoint.url, "model": "m", "retries": 0}}))


async def test_a_picture_is_sent_with_the_question(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.script = [said("A red square.")]
    models = looking(endpoint, "vision")
    given = {"file": "square.png", "question": "What is it?"}
    result = await called(tmp_path, {"square.png": SQUARE.read_bytes()}, "inspect_image", models, **given)
    assert result.observation == "A red square."
    assert result.lineage is not None
    assert result.lineage.trust == "model"
    text, picture = endpoint.requests[0]["messages"][0]["content"]
    assert "What is it?" in text["text"]
    kind, _, data = picture["image_url"]["url"].partition(";base64,")
    assert kind == "data:image/jpeg"
    assert base64.b64decode(data).startswith(b"\xff\xd8")
    assert models.ledger.of("vision").calls == 1


@pytest.mark.parametrize("data", [b"", b"<svg/>", b"\x89PNG\r\n\x1a\n broken", b"GIF89a"])
async def test_a_picture_that_is_none(tmp_path: Path, endpoint: Endpoint, data: bytes) -> None:
    models = looking(endpoint, "vision")
    result = await called(tmp_path, {"a.png": data}, "inspect_image", models, file="a.png", question="?")
    assert result.error is not None
    assert "is no picture that can be read" in result.error
    assert endpoint.requests == []


async def test_a_picture_of_too_many_pixels_is_not_opened(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspectors, "MOST_PIXELS", 10)
    models, files = looking(endpoint, "vision"), {"a.png": SQUARE.read_bytes()}
    result = await called(tmp_path, files, "inspect_image", models, file="a.png", question="?")
    assert result.error is not None
    assert result.error.endswith("pixels: it is not opened.")
    assert endpoint.requests == []


async def test_a_recording(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.script = [said("forty-one")]
    models, files = looking(endpoint, "audio"), {"a.mp3": b"ID3" + bytes(100), "b.mp3": b"text", "c.mov": b"x"}
    result = await called(tmp_path, files, "inspect_audio", models, file="a.mp3", question="How long?")
    assert result.observation == "forty-one"
    assert endpoint.requests[0]["messages"][0]["content"][1]["input_audio"]["format"] == "mp3"
    for name, words in (("b.mp3", "no recording that can be read"), ("c.mov", "can be sent")):
        refused = await called(tmp_path, files, "inspect_audio", models, file=name, question="?")
        assert refused.error is not None
        assert words in refused.error


async def test_a_model_that_takes_no_pictures_or_fails(tmp_path: Path, endpoint: Endpoint) -> None:
    models, files = looking(endpoint, "vision"), {"a.png": SQUARE.read_bytes()}
    endpoint.script = [Play(status=400, body={"error": {"message": "no images"}})]
    result = await called(tmp_path, files, "inspect_image", models, file="a.png", question="?")
    assert result.error == "a.png could not be looked into: the model does not take it."
    endpoint.script = [Play(status=500, body={})]
    with pytest.raises(ModelError):
        await called(tmp_path, files, "inspect_image", models, file="a.png", question="?")


def test_the_converter_keeps_rows_short() -> None:
    assert convert._row([None, "a\nb", 1.5, None]) == "|  | a b | 1.5 |"
    assert convert._row([None, None]) == ""
