"""Where a split's questions come from: a local file or folder, or the hub; which of them; and in which sample."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from providers.errors import SuiteError
from synth.tasks.base import DataMissing
from synth.tasks.questions.formats import FORMATS, Format, Question
from synth.tasks.questions.rows import read_rows

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class Source(BaseModel):
    """Questions of one benchmark."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    format: Literal["gaia", "webwalkerqa", "xbench_ds", "taskcraft", "jsonl"]
    data: str = ""
    """A file, a folder, or a data set's id on the hub; empty takes the benchmark's own id."""
    revision: str | None = None
    """Of the hub's data set; null takes the newest."""
    where: dict[str, list[Any]] = Field(default_factory=dict)
    """Only questions with these values, e.g. {level: [1]} (gaia) or {hops: [2]} (taskcraft)."""
    sample: int | None = Field(default=None, ge=1)
    """So many of them, drawn by `seed`; null takes all."""
    seed: int = 42
    """Of the draw; 42 gives the 170 tasks of WebWalkerQA that MemEvolve and MemAgent use."""
    overlap: bool = False
    """Also questions that an earlier split has; else they are left out before the draw."""
    scorer: str | dict[str, Any] | None = None
    """By name, or {name: ..., and its options}; null takes the benchmark's own."""

    @property
    def kind(self) -> Format:
        return FORMATS[self.format]


def load(source: Source) -> tuple[Path, list[Question]]:
    """All questions of a source that its `where` lets through, in the order of its file, and their folder.

    Raises DataMissing where the data are not here, SuiteError where they cannot be read.
    """
    path = _file(source, _place(source))
    questions: dict[str, Question] = {}
    for number, row in enumerate(read_rows(path), 1):
        read = source.kind.read(row, f"{path}, row {number}")
        question = replace(read, id=f"{source.format}:{read.id}")
        if _wanted(question, source, path):
            questions.setdefault(question.id, question)
    if not questions:
        raise SuiteError(f"No question of {path} fits `where: {source.where}`: mend it in the suite's options.")
    return path.parent, list(questions.values())


def drawn(source: Source, questions: Iterable[Question], taken: set[str]) -> list[Question]:
    """The sample of a source's questions; those whose ids are `taken` are left out unless they may overlap."""
    left = [one for one in questions if source.overlap or one.id not in taken]
    if source.sample is None:
        return left
    if source.sample > len(left):
        raise SuiteError(
            f"The {source.format} source has {len(left)} questions left, not {source.sample}: lower its `sample`, or "
            "allow those of earlier splits with `overlap: true`."
        )
    return random.Random(source.seed).sample(left, source.sample)


def _wanted(question: Question, source: Source, path: Path) -> bool:
    for key, values in source.where.items():
        if key not in question.meta:
            known = ", ".join(question.meta) or "nothing"
            raise SuiteError(f"Questions of {path} say nothing of {key!r} (they say: {known}): mend `where`.")
        if question.meta[key] not in values:
            return False
    return True


def _place(source: Source) -> Path:
    """The file or folder that the data lie in, fetched from the hub where they have to be."""
    named = source.data or source.kind.hub
    path = Path(named).expanduser()
    if source.data and path.exists():
        return path
    if not _HUB_ID.fullmatch(named):
        raise DataMissing(_missing(source, f"there is no file or folder {named}"))
    return _fetched(source, named)


def _fetched(source: Source, repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    patterns = list(source.kind.download or source.kind.files)
    try:
        return Path(
            snapshot_download(repository, repo_type="dataset", revision=source.revision, allow_patterns=patterns)
        )
    except GatedRepoError as error:
        raise DataMissing(
            _missing(source, f"the hub gives {repository} to those alone who accepted its terms")
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise DataMissing(_missing(source, f"there is neither a folder nor a hub data set {repository}")) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        reason = f"{repository} is not in the hub's cache, and the hub was not reached (HF_HUB_OFFLINE=0 asks it)"
        raise DataMissing(_missing(source, reason)) from error
    except (HfHubHTTPError, OSError) as error:
        raise DataMissing(_missing(source, f"the hub could not give {repository} ({type(error).__name__})")) from error


def _missing(source: Source, reason: str) -> str:
    licence = f" {source.kind.licence}" if source.kind.licence else ""
    return (
        f"The {source.format} data are not here: {reason}. Give their place as `data` in the suite's options.{licence}"
    )


def _file(source: Source, place: Path) -> Path:
    """The file with the rows."""
    if place.is_file():
        return place
    for pattern in source.kind.files:
        found = sorted(place.glob(pattern))
        if found:
            return found[0]
    raise DataMissing(_missing(source, f"{place} has none of {', '.join(source.kind.files)}"))
