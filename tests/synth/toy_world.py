"""A small suite, agent and two providers with real structure: memory tells which label a question's word stands for."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from providers.bank import MemoryBank
from providers.base import Distiller, ProviderCard
from providers.embedder import load_encoder
from providers.errors import AgentError
from providers.space import Space
from providers.tools import Tool, ToolResult
from providers.types import (
    Effect,
    Lineage,
    Outcome,
    Parameter,
    Preview,
    Query,
    Retrieval,
    Split,
    Step,
    StoreReceipt,
    Task,
    Trajectory,
    content_hash,
)
from synth.agents.base import AgentSession
from synth.config import AgentConfig as Agent
from synth.config import DatasetConfig, EncoderConfig, RunConfig, SuiteConfig, WarmupConfig
from synth.runs import Run

LABELS = {
    "height": "Vertical extent",
    "mass": "Total weight",
    "age": "Years since founding",
    "price": "Amount due",
    "crowd": "Head count",
    "chill": "Lowest reading",
}


def value_of(thing: str, label: str) -> str:
    return str(int(content_hash(thing, label)[:4], 16))


class Open:
    """Opens a thing's page: one line per label."""

    name = "open"
    doc = "Open a page."
    parameters = (Parameter(name="page"),)

    async def call(self, **arguments: Any) -> ToolResult:
        await asyncio.sleep(0)
        page = str(arguments["page"])
        lines = [f"# {page}", f"URL: /{page}", *(f"{label}: {value_of(page, label)}" for label in LABELS.values())]
        return ToolResult(observation="\n".join(lines), lineage=Lineage(source=f"/{page}"))


class ToySuite:
    """Questions of two families: `size` and `life`."""

    name = "toy"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def tasks(self, split: Split, limit: int | None = None) -> list[Task]:
        tasks = []
        for number in range(200):
            word = list(LABELS)[number % len(LABELS)]
            thing = f"{split.value}{number}"
            tasks.append(
                Task(
                    id=content_hash(self._seed, thing),
                    question=f"What is the {word} of {thing}?",
                    suite=self.name,
                    family="size" if word in ("height", "mass", "crowd") else "life",
                    split=split,
                    gold=value_of(thing, LABELS[word]),
                    meta={"word": word},
                )
            )
        return tasks[:limit]

    def score(self, task: Task, answer: str | None) -> Outcome:
        return Outcome(correct=answer == task.gold, reason=f"gold is {task.gold}", source="gold")

    def tools(self, task: Task) -> tuple[Tool, ...]:
        return (Open(),)


class ToyAgent:
    """Opens the thing's page and others, then reads the label that memory names, or any."""

    name = "toy"

    def __init__(self, fail: str = "", hang: str = "", log: str = "") -> None:
        self._fail, self._hang, self._log = fail, hang, log

    async def run(
        self, task: Task, tools: tuple[Tool, ...], session: AgentSession, *, seed: int, max_steps: int
    ) -> Trajectory:
        _die_at("TOY_KILL_EPISODE")
        assert task.gold is None
        assert not task.family
        if self._log:
            with Path(self._log).open("a") as file:
                file.write(f"{os.getpid()} {task.id} {seed}\n")
        word, thing = task.question.split()[3], task.question.split()[-1].rstrip("?")
        if self._fail and word == self._fail:
            raise AgentError(f"no engine for {word}")
        if self._hang and word == self._hang:
            await asyncio.sleep(60)
        draw = random.Random(seed)
        steps: list[Step] = []
        for page in (thing, "lobby", f"{thing}-annex", thing)[:max_steps]:
            shown = await session.step(tuple(steps))
            if shown and draw.random() < 0.5:
                break
            result = await tools[0].call(page=page)
            steps.append(
                Step(
                    index=len(steps),
                    tool="open",
                    arguments={"page": page},
                    observation=result.observation,
                    lineage=result.lineage,
                )
            )
        label = self._label(session.memory, word) or draw.choice(list(LABELS.values()))
        steps.append(Step(index=len(steps), tool="read", arguments={"label": label}, observation=f"read {label}"))
        return Trajectory.make(
            task_id=task.id,
            question=task.question,
            agent=self.name,
            seed=seed,
            steps=tuple(steps),
            answer=value_of(thing, label),
            injections=session.injections,
        )

    @staticmethod
    def _label(memory: str, word: str) -> str:
        for line in memory.splitlines():
            if line.startswith(f"For {word} read "):
                return line.removeprefix(f"For {word} read ")
        return ""


_CALLS: Counter[str] = Counter()


def _die_at(variable: str) -> None:
    """SIGKILL this process at the n-th call, n in the environment."""
    _CALLS[variable] += 1
    if os.environ.get(variable) == str(_CALLS[variable]):
        os.kill(os.getpid(), signal.SIGKILL)


def _lesson(trajectory: Trajectory) -> str:
    return f"For {trajectory.question.split()[3]} read {trajectory.steps[-1].arguments['label']}"


class Notes:
    """Keeps every run; shows the nearest one."""

    CARD = ProviderCard(
        name="notes",
        title="Notes",
        family="similarity",
        stores="every run as a note",
        retrieves="the note of the nearest question",
        gate="all",
        top_k=1,
    )

    def __init__(self, space: Space, distiller: Distiller) -> None:
        self._space = space
        self.card = self.CARD

    def probe(self, query: Query) -> Preview:
        hits = self._space.search_dense(query.embedding, 1)
        return Preview(provider=self.card.name, text=hits[0][0].payload["text"] if hits else "")

    async def retrieve(self, query: Query) -> Retrieval:
        hits = self._space.search_dense(query.embedding, 1)
        if not hits:
            return Retrieval(provider=self.card.name)
        record = hits[0][0]
        return Retrieval(
            provider=self.card.name,
            text=record.payload["text"],
            item_ids=(record.id,),
            effects=(Effect(provider=self.card.name, kind="used", record_id=record.id),),
        )

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        earlier = self._space.receipt_of(trajectory.id)
        if earlier is not None:
            return earlier
        _die_at("TOY_KILL_STORE")
        assert not outcome.reason
        text = _lesson(trajectory)
        record = self._space.new_record(
            "note", trajectory, 0, text=trajectory.question, payload={"text": text, "uses": 0, "wins": 0}
        )
        receipt = StoreReceipt(provider=self.card.name, status="stored", record_ids=(record.id,))
        with self._space.transaction():
            self._space.add([record])
            self._space.note_offer(trajectory.id, receipt)
        return receipt

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        for effect in effects:
            record = self._space.get(effect.record_id)
            assert record is not None
            used = {"uses": record.payload["uses"] + 1, "wins": record.payload["wins"] + bool(outcome.correct)}
            self._space.update(record.model_copy(update={"payload": {**record.payload, **used}}))


class Lessons(Notes):
    """Keeps solved runs alone, one lesson per word, with all its origins."""

    CARD = ProviderCard(
        name="lessons",
        title="Lessons",
        family="insight",
        stores="one lesson per word of a solved run",
        retrieves="the lesson that shares a word",
        gate="success",
        top_k=1,
    )

    def probe(self, query: Query) -> Preview:
        hits = self._hits(query)
        return Preview(provider=self.card.name, text=hits[0].payload["text"] if hits else "")

    async def retrieve(self, query: Query) -> Retrieval:
        hits = self._hits(query)
        if not hits:
            return Retrieval(provider=self.card.name)
        return Retrieval(provider=self.card.name, text=hits[0].payload["text"], item_ids=(hits[0].id,))

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        text = _lesson(trajectory)
        earlier = self._space.find_signature(text)
        new = self._space.new_record(
            "lesson", trajectory, 0, text=text, payload={"text": text, "uses": 0, "wins": 0}, signature=text
        )
        receipt = StoreReceipt(provider=self.card.name, status="stored", record_ids=((earlier or new).id,))
        with self._space.transaction():
            if self._space.receipt_of(trajectory.id) is not None:
                return receipt
            if earlier is None:
                self._space.add([new])
            else:
                self._space.update(earlier.model_copy(update={"origins": (*earlier.origins, *new.origins)}))
            self._space.note_offer(trajectory.id, receipt)
        return receipt

    def _hits(self, query: Query) -> list[Any]:
        word = query.text.split()[3]
        return [record for record in self._space.records() if f"For {word} read" in record.payload["text"]]


def toy_config(runs_dir: Path, name: str = "toy", **changes: Any) -> RunConfig:
    """A run over the toy world: 60 warm-up tasks, 24 exploration tasks in 3 waves, 12 dev tasks."""
    values: dict[str, Any] = {
        "name": name,
        "runs_dir": runs_dir,
        "suite": SuiteConfig(name="toy_world:ToySuite", warmup=60, explore=24, dev=12, test=12),
        "agent": Agent(name="toy_world:ToyAgent", max_steps=4, warmup_max_steps=4),
        "providers": ("toy_world:Notes", "toy_world:Lessons"),
        "encoder": EncoderConfig(name="hashing"),
        "warmup": WarmupConfig(tries=1, passes=2),
        "dataset": DatasetConfig(validation_share=0.25),
    }
    return RunConfig(**{**values, **changes})


def bank_content(run: Run) -> list[str]:
    """All records of a run's bank without their clocks, in order."""
    with MemoryBank.open(run.bank, load_encoder("hashing", {}, None)) as bank:
        records = [record for name in ("notes", "lessons") for record in bank.space(name).records()]
        return sorted(record.model_copy(update={"created": 0.0}).model_dump_json() for record in records)
