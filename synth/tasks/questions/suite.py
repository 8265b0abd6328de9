"""The suite of question benchmarks: which questions each split has, their tools, and who scores their answers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from providers.errors import ConfigError, SuiteError
from providers.tools import Tool
from providers.types import Outcome, Split, Task, content_hash
from synth.models import Models
from synth.tasks.base import DataMissing
from synth.tasks.questions.formats import Question
from synth.tasks.questions.sources import Source, drawn, load
from synth.tasks.scorers.base import Scorer, scored
from synth.tasks.scorers.load import load_scorer
from synth.tools.research import Research, ResearchOptions


class QuestionOptions(BaseModel):
    """`suite.options` of the suite `questions`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    warmup: tuple[Source, ...] = ()
    explore: tuple[Source, ...] = ()
    dev: tuple[Source, ...] = ()
    test: tuple[Source, ...] = ()
    scorer: str | dict[str, Any] | None = None
    """Of all sources that name none; null takes each benchmark's own."""
    tools: ResearchOptions = Field(default_factory=ResearchOptions)
    """What the agent may do: search, open pages, read attached files."""


class Questions:
    """Questions from files, splits in the order warmup, explore, dev, test disjoint unless a source says otherwise.

    Within a split the order is drawn by `seed`, such that every prefix keeps the mix of families.
    """

    name = "questions"

    def __init__(self, seed: int = 0, models: Models | None = None, **options: Any) -> None:
        try:
            self._options = QuestionOptions.model_validate(options)
        except ValidationError as error:
            raise ConfigError(f"suite.options: {_problems(error)}") from error
        self._seed, self._models = seed, models
        self._scorers = {
            (split, place): load_scorer(source.scorer or self._options.scorer or source.kind.scorer, models)
            for split in Split
            for place, source in enumerate(self._sources(split))
        }
        self._research = Research(self._options.tools, models)
        self._tasks: dict[Split, list[Task]] = {}
        self._scorer_of: dict[tuple[Split, str], Scorer] = {}
        self._folders: dict[str, Path] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._research)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        """Tasks of a split. Raises SuiteError where it has fewer than `limit`, DataMissing where data are not here."""
        if limit == 0:
            return []
        self._load(split)
        tasks = self._tasks[split]
        if limit is not None and limit > len(tasks):
            raise SuiteError(
                f"The questions suite has {len(tasks)} {split} tasks, not {limit}: lower suite.{split} in the config, "
                f"or name more sources in suite.options.{split}."
            )
        return tasks[:limit]

    async def score(self, task: Task, answer: str | None) -> Outcome:
        """What the scorer of the task's source says."""
        self._load(task.split)
        return await scored(self._scorer_of[(task.split, task.id)], task, answer)

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """`search` and `open`; with attachments also what reads them. Raises SuiteError outside `async with`."""
        folder = self._folders.get(task.id)
        return self._research.tools({name: folder / name for name in task.attachments} if folder is not None else {})

    @property
    def sealed(self) -> bool:
        """Whether some tasks may not be published in plain text."""
        return any(task.meta.get("sealed") for tasks in self._tasks.values() for task in tasks)

    def _sources(self, split: Split) -> Sequence[Source]:
        sources: Sequence[Source] = getattr(self._options, split.value)
        return sources

    def _load(self, wanted: Split) -> None:
        """Make a split's tasks, after those of the splits before it, which it may not repeat.

        Raises DataMissing that tells of all sources, up to the wanted split's, whose data are not here.
        """
        missing: list[str] = []
        for split in Split:
            try:
                if missing:
                    self._loaded(split)
                elif split not in self._tasks:
                    tasks = self._drawn(split)
                    self._tasks[split] = mixed(tasks, content_hash("questions", self._seed, split.value))
            except DataMissing as error:
                missing += error.each
            if split is wanted:
                break
        if missing:
            raise DataMissing(*dict.fromkeys(missing))

    def _drawn(self, split: Split) -> list[Task]:
        taken = {task.id for tasks in self._tasks.values() for task in tasks}
        drawn_here: dict[str, Task] = {}
        for place, (source, (folder, questions)) in enumerate(self._loaded(split)):
            for question in drawn(source, questions, taken | drawn_here.keys()):
                task = _task(question, source, split)
                _check_files(task, folder)
                drawn_here[task.id] = task
                self._folders[task.id] = folder
                self._scorer_of[(split, task.id)] = self._scorers[(split, place)]
        return list(drawn_here.values())

    def _loaded(self, split: Split) -> list[tuple[Source, tuple[Path, list[Question]]]]:
        """A split's sources with their questions. Raises DataMissing that tells of all whose data are not here."""
        found: list[tuple[Source, tuple[Path, list[Question]]]] = []
        missing: list[str] = []
        for source in self._sources(split):
            try:
                found.append((source, load(source)))
            except DataMissing as error:
                missing += error.each
        if missing:
            raise DataMissing(*dict.fromkeys(missing))
        return found


def mixed(tasks: list[Task], seed: str) -> list[Task]:
    """`tasks` in an order drawn by `seed` in which each family is spread evenly from the first to the last."""
    random.Random(seed).shuffle(tasks)
    families: dict[str, list[Task]] = {}
    for task in tasks:
        families.setdefault(task.family, []).append(task)
    places = {task.id: (place + 0.5) / len(family) for family in families.values() for place, task in enumerate(family)}
    return sorted(tasks, key=lambda task: places[task.id])


def _task(question: Question, source: Source, split: Split) -> Task:
    return Task(
        id=question.id,
        question=question.question,
        suite=Questions.name,
        family=f"{source.format} {question.family}",
        split=split,
        attachments=question.attachments,
        gold=question.gold,
        meta={**question.meta, **({"sealed": True} if question.sealed else {})},
    )


def _check_files(task: Task, folder: Path) -> None:
    for name in task.attachments:
        if not (folder / name).is_file():
            raise SuiteError(f"The file {name} of task {task.id} is not in {folder}: fetch the data again.")


def _problems(error: ValidationError) -> str:
    found: Mapping[str, None] = dict.fromkeys(
        f"{'.'.join(map(str, one['loc']))}: {one['msg'][0].lower()}{one['msg'][1:]}" for one in error.errors()
    )
    return "; ".join(found)
