"""A small served run: two memories that can be made slow or broken, fixed policies, and the app in this process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
import uvicorn

from providers.bank import MemoryBank
from providers.base import ProviderCard
from providers.distill.rules import RuleDistiller
from providers.embedder import CachedEncoder, Hashing
from providers.errors import BankError, ProviderError
from providers.long_term.base import SpaceProvider
from providers.types import Effect, Outcome, Preview, Query, Record, Retrieval, SkillSpec, StoreReceipt, Trajectory
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, Policy
from router.policies.fixed import Single
from router.policies.overlap import Overlap
from serve.app import make_app
from serve.auth import Key, Keys, hash_of
from serve.chat import add_chat
from serve.command import proxying
from serve.database import ServeDatabase
from serve.memories import Memories
from serve.sessions import Sessions
from synth.config import ProxyConfig, RunConfig, ServeConfig

SKILL = SkillSpec(
    name="shout",
    doc="Says it loudly.",
    code_id="shout-1",
    code="def shout(tools, word: str) -> str:\n    return word.upper()\n",
)
TOOL_SKILL = SkillSpec(
    name="look",
    doc="Looks it up.",
    code_id="look-1",
    code="def look(tools, word: str) -> str:\n    return tools.open(word)\n",
)


class Notes(SpaceProvider[str]):
    """Keeps the answer of every run; can be made slow, broken or full."""

    CARD = ProviderCard(
        name="notes",
        title="Notes",
        family="similarity",
        stores="the answer of every run",
        retrieves="that of the nearest question",
        gate="all",
        top_k=1,
    )
    slow: ClassVar[float] = 0.0
    broken: ClassVar[str] = ""
    """Which of probe, retrieve, store and disk does not work."""

    def probe(self, query: Query) -> Preview:
        time.sleep(self.slow)
        self.fail("probe")
        return super().probe(query)

    async def retrieve(self, query: Query) -> Retrieval:
        await asyncio.sleep(self.slow)
        self.fail("retrieve")
        found = await super().retrieve(query)
        if not found.item_ids:
            return found
        effects = (Effect(provider=self.card.name, kind="used", record_id=found.item_ids[0]),)
        return found.model_copy(update={"skills": (SKILL, TOOL_SKILL), "effects": effects})

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        self.fail("store")
        if self.broken == "disk":
            raise BankError("no room") from OSError(28, "No space left on device")
        return await super().store(trajectory, outcome)

    @classmethod
    def fail(cls, what: str) -> None:
        if cls.broken == what:
            raise ProviderError(f"{cls.CARD.name} cannot {what}: /secret/path")

    async def distil(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        return f"{trajectory.question} {trajectory.answer}"

    def draft(self, trajectory: Trajectory, artefact: str) -> list[Record]:
        payload = {"text": artefact, "uses": 0, "wins": 0}
        return [self.space.new_record("note", trajectory, 0, text=trajectory.question, payload=payload)]

    def lead(self, query: Query) -> tuple[str, str] | None:
        hits = self.space.search_dense(query.embedding, 1)
        return (hits[0][0].payload["text"], hits[0][0].id) if hits else None

    def find(self, query: Query) -> Retrieval:
        first = self.lead(query)
        if first is None:
            return Retrieval(provider=self.card.name)
        return Retrieval(provider=self.card.name, text=first[0], item_ids=(first[1],))

    def take(self, effect: Effect, correct: bool) -> None:
        record = self.space.existing(effect.record_id)
        counted = {"uses": record.payload["uses"] + 1, "wins": record.payload["wins"] + int(correct)}
        self.space.update(record.model_copy(update={"payload": {**record.payload, **counted}}))


class Lessons(Notes):
    """The same for solved runs alone, without skills and always well."""

    CARD = Notes.CARD.model_copy(update={"name": "lessons", "title": "Lessons", "gate": "success"})

    async def retrieve(self, query: Query) -> Retrieval:
        return await SpaceProvider.retrieve(self, query)

    @classmethod
    def fail(cls, what: str) -> None:
        return None

    def probe(self, query: Query) -> Preview:
        return SpaceProvider.probe(self, query)

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        return await SpaceProvider.store(self, trajectory, outcome)


class Odd:
    """A router that answers as it is told: late, with an error, or with a provider that there is none of."""

    name = "odd"

    def __init__(self, how: str) -> None:
        self.how = how
        self.asked = 0

    async def _odd(self) -> None:
        self.asked += 1
        if self.how == "late":
            await asyncio.sleep(5)
        if self.how == "failed":
            raise RuntimeError("the engine is down")

    async def begin(self, context: BeginContext) -> BeginDecision:
        await self._odd()
        return BeginDecision(providers=("nobody",) if self.how == "invalid" else ("lessons",))

    async def step(self, context: InContext) -> InDecision:
        await self._odd()
        return InDecision(action="no_op", fallback=self.how == "invalid")

    async def end(self, context: EndContext) -> EndDecision:
        await self._odd()
        return EndDecision(providers=("nobody",) if self.how == "invalid" else ())


def served_config(root: Path, **serve: Any) -> RunConfig:
    settings = ServeConfig(**{"probe_seconds": 2.0, **serve})
    providers = ("served_toys:Notes", "served_toys:Lessons")
    return RunConfig(name="toy", runs_dir=root, providers=providers, serve=settings)


@asynccontextmanager
async def served(
    root: Path, router: Policy | None = None, *, acting: Policy | None = None, **serve: Any
) -> AsyncIterator[Sessions]:
    """A started service over the bank and the database in `root`."""
    config = served_config(root, **serve)
    with MemoryBank.open(root / "bank.sqlite", CachedEncoder(Hashing())) as bank:
        sessions = Sessions(
            Memories(config, bank, RuleDistiller()),
            ServeDatabase(root / "serve.sqlite"),
            config.serve,
            router=router or Single("notes"),
            fallback=Overlap(),
            acting=acting,
        )
        await sessions.start()
        try:
            yield sessions
        finally:
            await sessions.close()


@contextmanager
def listening(root: Path, keys: Keys | None = None, *, chats: str | None = None, **serve: Any) -> Iterator[str]:
    """The app on a free port, in a thread of this process; its address. `chats`: the endpoint that it stands before."""
    ready, ports, servers = threading.Event(), list[int](), list[uvicorn.Server]()

    async def serving() -> None:
        allowed = keys or Keys([])
        async with (
            served(root, **serve) as sessions,
            proxying(sessions, ProxyConfig(base_url=chats), allowed) as proxy,
        ):
            app = make_app(sessions, allowed)
            if proxy is not None:
                add_chat(app, proxy)
            server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
            servers.append(server)
            task = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            ports.append(server.servers[0].sockets[0].getsockname()[1])
            ready.set()
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serving()))
    thread.start()
    assert ready.wait(60)
    yield f"http://127.0.0.1:{ports[0]}"
    servers[0].should_exit = True
    thread.join(60)


def keys_of(*entries: tuple[str, str, Iterable[str]]) -> Keys:
    """Keys whose secret is `secret-of-NAME`, by name, namespace and rights."""
    return Keys(
        [
            Key.model_validate(
                {"name": name, "sha256": hash_of(f"secret-of-{name}"), "namespace": namespace, "rights": tuple(rights)}
            )
            for name, namespace, rights in entries
        ]
    )


def calling(sessions: Sessions, keys: Keys | None = None, key: str | None = None) -> httpx.AsyncClient:
    """A client of the app in this process, with one of `keys_of`'s keys."""
    transport = httpx.ASGITransport(app=make_app(sessions, keys or Keys([])), raise_app_exceptions=False)
    headers = {"authorization": f"Bearer secret-of-{key}"} if key else {}
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


async def run_task(client: httpx.AsyncClient, question: str, answer: str, correct: bool | None = True) -> Any:
    """Begin and end a task; the answer to its end."""
    begun = (await client.post("/v1/sessions", json={"question": question})).json()
    outcome = {"correct": correct, "source": "user"}
    path = f"/v1/sessions/{begun['session_id']}/end"
    return (await client.post(path, json={"answer": answer, "outcome": outcome})).json()
