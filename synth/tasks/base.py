"""The interface of a task suite and of its tools."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self

from providers.types import Flow, Lineage, Outcome, Parameter, Split, Task


class ToolResult(Flow):
    """What a tool call gave: text as any agent reads it, or an error that is an observation too."""

    observation: str
    error: str | None = None
    lineage: Lineage | None = None


class Tool(Protocol):
    """One tool of a task, described so that an LLM or a rule agent can call it."""

    name: str
    doc: str
    parameters: tuple[Parameter, ...]

    async def call(self, **arguments: Any) -> ToolResult: ...


class TaskSuite(Protocol):
    """Tasks with disjoint splits, tools and a scorer. An async context manager: inside it its servers run."""

    name: str

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
