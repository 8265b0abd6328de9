"""The interface of a task suite."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from providers.errors import SuiteError
from providers.tools import Tool
from providers.types import Outcome, Split, Task


class DataMissing(SuiteError):
    """A suite's data are not on this machine; the text says how they get there.

    `each` says it of one source after the other.
    """

    def __init__(self, *each: str) -> None:
        super().__init__(" ".join(each))
        self.each = each


class TaskSuite(Protocol):
    """Tasks with disjoint splits, tools and a scorer. An async context manager: inside it its servers run."""

    @property
    def name(self) -> str: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        """Tasks of a split, in a fixed order; the first `limit` of them, balanced over families."""
        ...

    def score(self, task: Task, answer: str | None) -> Outcome | Awaitable[Outcome]:
        """Correct, wrong, or None where it cannot be scored; a coroutine where scoring waits for a model or process."""
        ...

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """The tools of one task. `answer` is not among them: it is the agent's own last action."""
        ...


@runtime_checkable
class PlayedSuite(TaskSuite, Protocol):
    """A suite whose own world knows whether a task is solved: by what was done there, not by what is answered."""

    def score_played(self, task: Task, tools: Sequence[Tool]) -> Outcome:
        """What the world says of the run that was given `tools`, which `tools(task)` makes anew for each run."""
        ...


async def outcome_of(suite: TaskSuite, task: Task, answer: str | None, tools: Sequence[Tool]) -> Outcome:
    """What the suite says of a run with these tools and this answer, waited for where it has to be."""
    if isinstance(suite, PlayedSuite):
        return suite.score_played(task, tools)
    outcome = suite.score(task, answer)
    return await outcome if inspect.isawaitable(outcome) else outcome
