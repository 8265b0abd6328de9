"""Small providers, tasks and policies for the router's tests."""

from __future__ import annotations

import numpy as np

from providers.base import Gate, ProviderCard
from providers.errors import ProviderError
from providers.types import (
    Effect,
    Lineage,
    Outcome,
    Preview,
    Query,
    Retrieval,
    SkillSpec,
    Split,
    Step,
    StoreReceipt,
    Task,
    Trajectory,
)
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision


def card(name: str, gate: Gate = "all") -> ProviderCard:
    return ProviderCard(
        name=name,
        title=name.title(),
        family="similarity",
        stores=f"{name} notes of a run",
        retrieves="the nearest run",
        gate=gate,
        top_k=1,
    )


class ToyProvider:
    """Gives a fixed text, and writes down every call."""

    def __init__(self, name: str, text: str = "", gate: Gate = "all", skills: tuple[SkillSpec, ...] = ()) -> None:
        self.card = card(name, gate)
        self.text = text
        self.skills = skills
        self.calls: list[str] = []
        self.broken = False

    def probe(self, query: Query) -> Preview:
        self.calls.append("probe")
        return Preview(provider=self.card.name, text=self.text)

    async def retrieve(self, query: Query) -> Retrieval:
        self.calls.append("retrieve")
        if self.broken:
            raise ProviderError(f"{self.card.name} cannot be reached.")
        effects = (Effect(provider=self.card.name, kind="used", record_id="r1"),)
        return Retrieval(provider=self.card.name, text=self.text, item_ids=("r1",), skills=self.skills, effects=effects)

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        self.calls.append("store")
        if self.broken:
            raise ProviderError(f"{self.card.name} cannot write.")
        return StoreReceipt(provider=self.card.name, status="stored", record_ids=(trajectory.id,))

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        self.calls.append(f"apply {len(effects)}")


class Script:
    """A policy that answers as it was told and keeps what it was shown."""

    name = "script"

    def __init__(self, begin: BeginDecision, action: str = "query", end: tuple[str, ...] = ()) -> None:
        self._begin, self._action, self._end = begin, action, end
        self.seen: list[BeginContext | InContext | EndContext] = []

    async def begin(self, context: BeginContext) -> BeginDecision:
        self.seen.append(context)
        return self._begin

    async def step(self, context: InContext) -> InDecision:
        self.seen.append(context)
        return InDecision.model_validate({"action": self._action})

    async def end(self, context: EndContext) -> EndDecision:
        self.seen.append(context)
        return EndDecision(providers=self._end)


def toy_task(question: str = "What is the area of Chile?") -> Task:
    return Task(
        id="t1", question=question, suite="toy", family="secret-family", split=Split.EXPLORE, gold="756,102 sq km"
    )


def toy_query(text: str = "What is the area of Chile?") -> Query:
    return Query(text=text, embedding=np.zeros(4, dtype=np.float32), task_id="t1")


def fact_step(index: int, observation: str = "Population: 19.6 million\nArea: 756,102 sq km") -> Step:
    return Step(
        index=index,
        thought="think",
        tool="open",
        arguments={"page": "chile"},
        observation=observation,
        seconds=3.5,
        usage={"tokens": 9.0},
        lineage=Lineage(source=f"http://site/{index}"),
    )


def toy_trajectory(steps: tuple[Step, ...] = (), answer: str | None = "756,102") -> Trajectory:
    return Trajectory.make(
        task_id="t1",
        question="What is the area of Chile?",
        agent="toy",
        seed=0,
        steps=steps,
        answer=answer,
        status=("last updated 2020", "last updated 2020"),
    )
