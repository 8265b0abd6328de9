"""The interface of a task agent, and what a memory session offers it."""

from __future__ import annotations

from typing import Protocol

from providers.tools import Tool, ToolResult
from providers.types import Injection, SkillSpec, Step, Task, Trajectory


class AgentSession(Protocol):
    """The memory side of a task as the agent sees it."""

    @property
    def memory(self) -> str:
        """Long-term memory injected at Begin; empty where there is none."""
        ...

    @property
    def skills(self) -> tuple[SkillSpec, ...]:
        """Callable skills retrieved at Begin."""
        ...

    @property
    def injections(self) -> tuple[Injection, ...]:
        """All that was injected so far, for the trajectory."""
        ...

    async def step(self, steps: tuple[Step, ...]) -> str:
        """Working memory to show before the next action, or empty. Called once before every action."""
        ...

    async def call_skill(self, skill: SkillSpec, arguments: dict[str, object], tools: tuple[Tool, ...]) -> ToolResult:
        """Run a skill in its sandbox with the task's own tools."""
        ...


class TaskAgent(Protocol):
    """Runs one task to an answer or to its step limit."""

    name: str

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        """`task` is public (no gold, no family). `seed` settles every random choice of the agent."""
        ...
