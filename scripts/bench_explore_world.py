"""The world of `bench_explore`: endless tasks, agents that do nothing or only ask a model, one-line memories."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lm.client import ChatModel
from lm.types import Message
from providers.base import Distiller, ProviderCard
from providers.space import Space
from providers.tools import Tool
from providers.types import (
    Effect,
    Outcome,
    Preview,
    Query,
    Retrieval,
    Split,
    StoreReceipt,
    Task,
    Trajectory,
    content_hash,
)
from synth.agents.base import AgentSession

CALLS_PER_EPISODE = 3
EARLY = 1_000
"""Episodes after which memory is read for the first time."""


def resident_mb() -> float:
    """Resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


class Endless:
    """As many tasks as one asks for; every answer is right."""

    name = "endless"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        return [
            Task(
                id=content_hash(self._seed, split.value, number),
                question=f"What is number {number} of {split.value}?",
                suite=self.name,
                split=split,
                gold=str(number),
            )
            for number in range(limit or 0)
        ]

    def score(self, task: Task, answer: str | None) -> Outcome:
        return Outcome(correct=True, source="gold")

    def tools(self, task: Task) -> tuple[Tool, ...]:
        return ()


class Idle:
    """Answers at once."""

    name = "idle"
    episodes = 0
    early_mb = 0.0
    late_mb = 0.0

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        Idle.episodes += 1
        if Idle.episodes == EARLY:
            Idle.early_mb = resident_mb()
        if Idle.episodes % EARLY == 0:
            Idle.late_mb = resident_mb()
        await session.step(())
        return Trajectory.make(
            task_id=task.id,
            question=task.question,
            agent=self.name,
            seed=seed,
            answer="",
            injections=session.injections,
        )


class Asking:
    """Asks its model three times."""

    name = "asking"

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        await session.step(())
        for number in range(CALLS_PER_EPISODE):
            question = f"{task.question} {session.memory} {number}"
            await self._model.complete([Message(role="user", content=question)], purpose="agent")
        return Trajectory.make(
            task_id=task.id,
            question=task.question,
            agent=self.name,
            seed=seed,
            answer="",
            injections=session.injections,
        )


class _Line:
    """Serves one line of its own and keeps nothing."""

    CARD: ProviderCard

    def __init__(self, space: Space, distiller: Distiller) -> None:
        self.card = self.CARD

    def probe(self, query: Query) -> Preview:
        return Preview(provider=self.card.name, text=f"{self.card.name} knows")

    async def retrieve(self, query: Query) -> Retrieval:
        return Retrieval(provider=self.card.name, text=f"{self.card.name} knows {query.text}")

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        return StoreReceipt(provider=self.card.name, status="skipped", reason="keeps nothing")

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        return None


def _card(name: str) -> ProviderCard:
    words: dict[str, Any] = {"stores": "nothing", "retrieves": "a line", "gate": "all", "top_k": 1}
    return ProviderCard(name=name, title=name.title(), family="similarity", **words)


class North(_Line):
    CARD = _card("north")


class East(_Line):
    CARD = _card("east")


class South(_Line):
    CARD = _card("south")


class West(_Line):
    CARD = _card("west")
