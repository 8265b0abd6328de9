"""Index files: what a space's indexes were at one generation, beside the bank, with a checksum over every part."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from providers.errors import BankError
from providers.files import write_atomically
from providers.types import content_hash

MAGIC = b"memroute index 1\n"
ALIGNMENT = 64
SUFFIX = ".indexes"


@dataclass(frozen=True)
class IndexParts:
    """Named lists of strings and named arrays."""

    lists: dict[str, Sequence[str]]
    arrays: dict[str, np.ndarray]


def index_folder(bank: Path) -> Path:
    """Where the index files of a bank are."""
    return bank.with_name(bank.name + SUFFIX)


def index_path(bank: Path, provider: str, namespace: str) -> Path:
    """The index file of a space; the name is a hash, so that no namespace can point elsewhere."""
    return index_folder(bank) / f"{content_hash(provider, namespace)}.index"


def remove_indexes(bank: Path) -> None:
    """Remove the index files of a bank; they are made again when needed."""
    folder = index_folder(bank)
    if folder.is_dir():
        for path in (*folder.glob("*.index"), *folder.glob(".*.index.*")):
            path.unlink(missing_ok=True)
        folder.rmdir()


def write_index(path: Path, identity: Mapping[str, Any], parts: IndexParts) -> None:
    """Write the file whole or not at all; `identity` says which rows and encoder it belongs to."""
    texts = {f"l:{name}": _list_bytes(values) for name, values in parts.lists.items()}
    arrays = {f"a:{name}": np.ascontiguousarray(array) for name, array in parts.arrays.items()}
    raws = texts | {name: array.tobytes() for name, array in arrays.items()}
    sections: list[dict[str, Any]] = []
    offset = 0
    for name, raw in raws.items():
        form = [arrays[name].dtype.str, list(arrays[name].shape)] if name in arrays else None
        sections.append({"name": name, "offset": offset, "bytes": len(raw), "check": zlib.crc32(raw), "form": form})
        offset += _aligned(len(raw))
    header = json.dumps({"identity": dict(identity), "sections": sections}, ensure_ascii=False).encode("utf-8")
    start = MAGIC + len(header).to_bytes(8, "little") + zlib.crc32(header).to_bytes(4, "little") + header
    base = _aligned(len(start))
    content = bytearray(base + offset)
    content[: len(start)] = start
    for section, raw in zip(sections, raws.values(), strict=True):
        content[base + section["offset"] : base + section["offset"] + len(raw)] = raw
    write_atomically(path, content)


def read_index(path: Path, identity: Mapping[str, Any]) -> IndexParts:
    """The parts of the file; arrays are read-only views of the mapped file.

    Raises BankError, naming the file, where it is damaged or belongs to other rows or another encoder.
    """
    found, sections, content, base = _opened(path)
    if found != dict(identity):
        raise BankError(f"The index file {path} is of another state of the bank or of another encoder.")
    lists: dict[str, Sequence[str]] = {}
    arrays: dict[str, np.ndarray] = {}
    for section, raw in _checked(path, sections, content, base):
        kind, _, name = section["name"].partition(":")
        if kind == "l":
            lists[name] = json.loads(bytes(raw))
        else:
            dtype, shape = section["form"]
            arrays[name] = np.frombuffer(raw, dtype=dtype).reshape(shape)
    return IndexParts(lists, arrays)


def read_identity(path: Path) -> dict[str, Any]:
    """Which rows and encoder the file belongs to. Raises BankError, naming the file, where any part is damaged."""
    identity, sections, content, base = _opened(path)
    for _ in _checked(path, sections, content, base):
        pass
    return identity


def _checked(
    path: Path, sections: Sequence[dict[str, Any]], content: memoryview, base: int
) -> Iterator[tuple[dict[str, Any], memoryview]]:
    for section in sections:
        raw = content[base + section["offset"] : base + section["offset"] + section["bytes"]]
        if len(raw) != section["bytes"] or zlib.crc32(raw) != section["check"]:
            raise BankError(f"The index file {path} is damaged in its part {section['name']!r}.")
        yield section, raw


def _opened(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], memoryview, int]:
    """Identity, sections, the mapped file, and where its sections start."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    except OSError as error:
        raise BankError(f"The index file {path} cannot be read ({error}).") from error
    length_at = len(MAGIC)
    length = int.from_bytes(content[length_at : length_at + 8], "little")
    header = content[length_at + 12 : length_at + 12 + length]
    check = int.from_bytes(content[length_at + 8 : length_at + 12], "little")
    if content[:length_at] != MAGIC or len(header) != length or not length or zlib.crc32(header) != check:
        raise BankError(f"The index file {path} is damaged.")
    read = json.loads(bytes(header))
    return read["identity"], read["sections"], content, _aligned(length_at + 12 + length)


def _list_bytes(values: Sequence[str]) -> bytes:
    return json.dumps(list(values), ensure_ascii=False).encode("utf-8")


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
