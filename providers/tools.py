"""A task's tools, described so that an LLM agent, a rule agent or a stored skill can call them."""

from __future__ import annotations

from typing import Any, Protocol

from providers.types import Flow, Lineage, Parameter


class ToolResult(Flow):
    """What a tool call gave: text as any agent reads it; an error is an observation too."""

    observation: str
    error: str | None = None
    lineage: Lineage | None = None


class Tool(Protocol):
    """One tool of a task."""

    @property
    def name(self) -> str: ...

    @property
    def doc(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    async def call(self, **arguments: Any) -> ToolResult: ...


def is_stateful(tool: Tool) -> bool:
    """Whether the same call may give something else the next time; tools say so by a true attribute `stateful`."""
    return bool(getattr(tool, "stateful", False))
