"""The interface of a task suite."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from providers.tools import Tool
from providers.types import Outcome, Split, Task


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

    def score(self, task: Task, answer: str | None) -> Outcome:
        """Correct, wrong, or None where it cannot be scored."""
        ...

    def tools(self, task: Task) -> tuple[Tool, ...]:
        """The tools of one task. `answer` is not among them: it is the agent's own last action."""
        ...
