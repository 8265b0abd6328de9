"""The formats of benchmarks: where their rows lie, and how a row becomes a question with its gold answer."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from providers.errors import SuiteError
from providers.types import content_hash
from synth.tasks.questions.rows import Row, column, optional, text


@dataclass(frozen=True)
class Question:
    """One row of a benchmark. `sealed`: it may not be published in plain text."""

    id: str
    question: str
    gold: Any
    family: str
    attachments: tuple[str, ...] = ()
    """Paths relative to the folder of the file that the row stands in."""
    meta: dict[str, Any] = field(default_factory=dict)
    sealed: bool = False


@dataclass(frozen=True)
class Format:
    """One benchmark's format."""

    read: Callable[[Row, str], Question]
    """A row, and where it stands, for errors."""
    files: tuple[str, ...]
    """Where the rows lie in the benchmark's folder; the first that there is counts. Globs."""
    hub: str = ""
    """The hub's id of the data set."""
    revision: str = "main"
    download: tuple[str, ...] = ()
    """What to take from the hub; `files` where it is empty."""
    scorer: str = "exact"
    licence: str = ""
    """What a user must do before the hub gives the data."""


def _gaia(row: Row, where: str) -> Question:
    level = _whole(column(row, where, "Level"), f"{where}, Level")
    gold = optional(row, "Final answer", "final_answer")
    name = str(optional(row, "file_name") or "").strip()
    if name and Path(name).name != name:
        raise SuiteError(f"{where} names the file {name!r}, which does not lie beside it: mend the file.")
    return Question(
        id=text(column(row, where, "task_id"), f"{where}, task_id"),
        question=text(column(row, where, "Question"), f"{where}, Question"),
        gold=None if gold is None or str(gold).strip() in ("", "?") else str(gold),
        family=f"level {level}",
        attachments=(name,) if name else (),
        meta={"level": level},
    )


def _webwalkerqa(row: Row, where: str) -> Question:
    question = text(column(row, where, "question"), f"{where}, question")
    answer = text(column(row, where, "answer"), f"{where}, answer")
    info = column(row, where, "info")
    if isinstance(info, str):
        info = _json_object(info, f"{where}, info")
    if not isinstance(info, Mapping):
        raise SuiteError(f"{where} holds {info!r} as its info: mend the file.")
    hops = str(optional(info, "hop", "type", default="")).strip().lower().replace("-", "_")
    language = str(optional(info, "lang", "language", default="")).strip().lower()
    difficulty = str(optional(info, "difficulty_level", default="")).strip().lower()
    return Question(
        id=_identity(question, answer),
        question=question,
        gold=answer,
        family=" ".join(filter(None, (hops, difficulty))),
        meta={
            "hops": hops,
            "language": {"english": "en", "chinese": "zh"}.get(language, language),
            "difficulty": difficulty,
            "domain": str(optional(info, "domain", default="")).strip().lower(),
            "root_url": str(optional(row, "root_url", default="")),
        },
    )


def _xbench_ds(row: Row, where: str) -> Question:
    key = text(column(row, where, "canary"), f"{where}, canary")
    return Question(
        id=text(column(row, where, "id"), f"{where}, id"),
        question=unsealed(text(column(row, where, "prompt"), f"{where}, prompt"), key, where),
        gold=unsealed(text(column(row, where, "answer"), f"{where}, answer"), key, where),
        family="deep search",
        sealed=True,
    )


def _taskcraft(row: Row, where: str) -> Question:
    question = text(column(row, where, "query", "question"), f"{where}, query")
    answer = text(column(row, where, "golden_answer", "answer"), f"{where}, golden_answer")
    hops = optional(row, "valid_hop")
    tools, domain = optional(row, "tool"), str(optional(row, "domain") or "").strip().lower()
    return Question(
        id=_identity(question, answer),
        question=question,
        gold=answer,
        family=domain or "taskcraft",
        meta={
            "hops": None if hops is None else _whole(hops, f"{where}, valid_hop"),
            "domain": domain,
            "tool": tools if isinstance(tools, str) else ", ".join(map(str, tools or ())),
        },
    )


def _jsonl(row: Row, where: str) -> Question:
    question = text(column(row, where, "question"), f"{where}, question")
    answer = column(row, where, "answer")
    files = optional(row, "attachments", default=())
    if not isinstance(files, list | tuple) or any(Path(str(name)).name != str(name) for name in files):
        raise SuiteError(f"{where} holds {files!r} as its attachments: give a list of names of files beside it.")
    meta = optional(row, "meta", default={})
    if not isinstance(meta, Mapping):
        raise SuiteError(f"{where} holds {meta!r} as its meta: give an object.")
    return Question(
        id=str(optional(row, "id") or _identity(question, answer)),
        question=question,
        gold=answer,
        family=str(optional(row, "family") or "question"),
        attachments=tuple(map(str, files)),
        meta=dict(meta),
    )


def unsealed(sealed: str, key: str, where: str) -> str:
    """Text that was XORed with a key, repeated as often as needed, and written in base64."""
    repeated = key.encode()
    try:
        data = base64.b64decode(sealed, validate=True)
        return bytes(byte ^ repeated[place % len(repeated)] for place, byte in enumerate(data)).decode().strip()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise SuiteError(f"{where} cannot be decrypted with its canary ({error}): fetch the file again.") from error


def _identity(question: str, answer: Any) -> str:
    """The id of a row that has none: the same row twice is one task."""
    return content_hash(question, answer)[:12]


def _whole(value: Any, where: str) -> int:
    try:
        return int(str(value).strip())
    except ValueError:
        raise SuiteError(f"{where} holds {value!r} where a whole number is needed: mend the file.") from None


def _json_object(raw: str, where: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        raise SuiteError(f"{where} is no JSON object: mend the file.") from None


FORMATS: Mapping[str, Format] = {
    "gaia": Format(
        _gaia,
        files=(
            "metadata.jsonl",
            "metadata.parquet",
            "validation/metadata.*",
            "2023/validation/metadata.jsonl",
            "2023/validation/metadata.parquet",
        ),
        hub="gaia-benchmark/GAIA",
        download=("2023/validation/*",),
        scorer="gaia",
        licence="GAIA is gated: accept its conditions at https://huggingface.co/datasets/gaia-benchmark/GAIA, then log "
        "in with `hf auth login` or set HF_TOKEN. Its questions and answers may not be passed on.",
    ),
    "webwalkerqa": Format(
        _webwalkerqa,
        files=("main.jsonl", "webwalkerqa_main.jsonl", "data/main*", "*main*.jsonl", "*main*.parquet", "*.jsonl"),
        hub="callanwu/WebWalkerQA",
        scorer="judge",
    ),
    "xbench_ds": Format(
        _xbench_ds,
        files=("DeepSearch-2505.csv", "DeepSearch.csv", "data/DeepSearch*.csv", "*.csv", "data/*.parquet"),
        hub="xbench/DeepSearch-2505",
        scorer="judge",
        licence="xBench-DeepSearch is encrypted so that no model learns it: keep it so, publish no plain text.",
    ),
    "taskcraft": Format(
        _taskcraft,
        files=("pure_qa.jsonl", "data/pure_qa.jsonl", "*pure_qa*", "*.jsonl"),
        hub="PersonalAILab/TaskCraft",
        download=("*pure_qa*",),
        scorer="judge",
    ),
    "jsonl": Format(_jsonl, files=("questions.jsonl", "*.jsonl"), scorer="exact"),
}
