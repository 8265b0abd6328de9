"""What callers send and get: the bodies of the HTTP interface, shared by the app and `MemoryClient`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from providers.base import ProviderCard
from providers.namespaces import PART_CHARACTERS
from providers.types import Flow, Lineage, Outcome, Parameter, Preview, Step, StoreReceipt

NAMESPACE_CHARACTERS = 3 * PART_CHARACTERS + 2
ID_CHARACTERS = 200

Name = Annotated[str, StringConstraints(min_length=1, max_length=ID_CHARACTERS)]
Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class Message(BaseModel):
    """Base of requests: unknown fields are errors, so that a misspelt one is not silently left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SentStep(Message):
    """One action of the agent and what came back; the server numbers them."""

    tool: Name
    arguments: dict[str, Any] = Field(default_factory=dict)
    observation: str = ""
    error: str | None = None
    thought: str = ""
    lineage: Lineage | None = None
    """Where the observation came from; its `source` is what memories can be forgotten by."""
    seconds: Number = 0.0
    usage: dict[str, Number] = Field(default_factory=dict)

    def numbered(self, index: int) -> Step:
        return Step(index=index, **{name: getattr(self, name) for name in type(self).model_fields})


class BeginRequest(Message):
    """A task starts."""

    question: Annotated[str, StringConstraints(min_length=1)]
    task_id: Name | None = None
    """The caller's id of the task, by which it can be forgotten; without one the session's id."""
    namespace: Annotated[str, StringConstraints(max_length=NAMESPACE_CHARACTERS)] | None = None
    """Whose memories; without one the key's own namespace."""


class Trouble(Flow):
    """Something that did not work while the request was served, and was made up for."""

    stage: Literal["probe", "retrieve", "fuse", "begin", "in", "end", "store"]
    name: str
    """The provider's or the router's."""
    reason: Literal["late", "failed", "invalid", "resting"]
    """`resting`: it failed several times in a row and was not asked."""


class Item(Flow):
    """One memory item with where it comes from."""

    id: str
    tasks: tuple[str, ...] = ()
    """Ids of the tasks that it was learned from."""
    sources: tuple[str, ...] = ()
    """Pages and tools that those runs saw."""


class GivenSkill(Flow):
    """A skill that this session may call."""

    id: str
    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    input_schema: dict[str, Any]
    """JSON Schema of its arguments."""
    calls_tools: bool
    """Whether it needs the caller's own tools: then `MemoryClient` runs it, and the server does not."""
    code: str


class GivenInjection(Flow):
    """What was injected, by whom, and from which items."""

    id: str
    phase: Literal["begin", "in"]
    provider: str
    title: str
    text: str
    """As the provider gives it; `memory` of the response quotes it for a prompt."""
    items: tuple[Item, ...] = ()
    skills: tuple[str, ...] = ()


class Decision(Flow):
    """What was decided, by which policy; `fallback` where a counted rule decided in its place."""

    policy: str
    providers: tuple[str, ...] = ()
    combine: Literal["single", "concat", "fuse"] = "single"
    action: Literal["query", "no_op"] | None = None
    """Of In decisions alone."""
    fallback: bool = False
    forced: bool = False
    """There was no choice, so nobody was asked."""


class Begun(Flow):
    """A session has begun."""

    session_id: str
    namespace: str
    expires: float
    """Unix time; every call of the session moves it."""
    memory: str
    """The injected memories, quoted for a prompt; empty where nothing is injected."""
    injections: tuple[GivenInjection, ...]
    skills: tuple[GivenSkill, ...]
    decision: Decision
    previews: tuple[Preview, ...]
    troubles: tuple[Trouble, ...] = ()


class StepRequest(Message):
    """Before the next action: the steps since the last call."""

    steps: Annotated[tuple[SentStep, ...], Field(max_length=1000)] = ()
    known: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """How many steps earlier calls have sent; a server that knows of another number refuses (409)."""


class Stepped(Flow):
    """What to show before the next action."""

    session_id: str
    steps: int
    """Steps that the server knows of now."""
    memory: str
    """Working memory, quoted for a prompt; empty where nothing is injected."""
    injection: GivenInjection | None
    decision: Decision
    troubles: tuple[Trouble, ...] = ()


class Providers(Flow):
    """The memories that a server routes among, in the order in which candidates are shown."""

    providers: tuple[ProviderCard, ...]


class SentOutcome(Message):
    """Whether the answer was correct, and who says so; null means that nobody knows."""

    correct: bool | None = None
    source: Literal["gold", "verifier", "user", "unknown"] = "unknown"


class EndRequest(StepRequest):
    """A task has ended."""

    answer: str | None = None
    outcome: SentOutcome = SentOutcome()
    outcome_later: bool = False
    """Whether an outcome will be sent: who keeps the run is decided then, or when the session expires."""
    agent: Annotated[str, StringConstraints(max_length=ID_CHARACTERS)] = ""
    status: Annotated[tuple[Annotated[str, StringConstraints(max_length=500)], ...], Field(max_length=50)] = ()
    """Signs seen at run time: confirmations, exit codes, errors."""
    usage: dict[str, Number] = Field(default_factory=dict)


class Ended(Flow):
    """What became of the run."""

    session_id: str
    trajectory_id: str
    status: Literal["waiting", "ended"]
    """`waiting` for an outcome, or decided."""
    outcome: Outcome
    decision: Decision | None
    """None while waiting."""
    receipts: tuple[StoreReceipt, ...] = ()
    """One per provider that was chosen and whose gate was open."""
    troubles: tuple[Trouble, ...] = ()


class SessionView(Flow):
    """A session as the server has it."""

    session_id: str
    namespace: str
    task_id: str
    status: Literal["open", "waiting", "ending", "ended"]
    steps: int
    expires: float
    previews: tuple[Preview, ...]
    injections: tuple[GivenInjection, ...]
    decisions: tuple[Decision, ...]
    outcome: Outcome | None = None
    receipts: tuple[StoreReceipt, ...] = ()


class RouteBeginRequest(Message):
    """A Begin decision for a caller that keeps the memories itself."""

    question: Annotated[str, StringConstraints(min_length=1)]
    previews: Annotated[tuple[Preview, ...], Field(min_length=1, max_length=64)]
    """One per provider, in the order in which candidates are shown."""
    cards: Annotated[tuple[ProviderCard, ...], Field(max_length=64)] = ()
    """What the providers are; those of the server's own providers may be left out."""
    task_id: Name = "task"


class RouteInRequest(Message):
    """An In decision for a caller that keeps the working memory itself."""

    question: Annotated[str, StringConstraints(min_length=1)]
    summary: str
    """One line on the working memory; empty means that there is nothing to inject."""
    step: Annotated[int, Field(ge=0, le=100_000)]
    recent: Annotated[tuple[SentStep, ...], Field(max_length=3)] = ()
    """The latest steps."""
    task_id: Name = "task"


class RouteEndRequest(Message):
    """An End decision for a caller that keeps the memories itself."""

    question: Annotated[str, StringConstraints(min_length=1)]
    summary: str
    """The finished run in a few lines."""
    outcome: SentOutcome = SentOutcome()
    providers: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Names of the candidates, where they are the server's own; without any, all of them."""
    cards: Annotated[tuple[ProviderCard, ...], Field(max_length=64)] = ()
    task_id: Name = "task"


class Routed(Flow):
    """A decision without a session."""

    decision: Decision
    troubles: tuple[Trouble, ...] = ()


class SkillCall(Message):
    """A call of a skill that a session was given."""

    session_id: Name
    arguments: dict[str, Any] = Field(default_factory=dict)


class SkillAnswer(Flow):
    """What a skill returned, or why it failed."""

    observation: str
    error: str | None = None


class AuditEntry(Flow):
    """Who read or wrote what, and when; never a key or a memory's text."""

    at: float
    key: str
    """The key's name."""
    action: str
    namespace: str
    session_id: str
    detail: dict[str, Any]
    """Ids and counts."""


class Audit(Flow):
    """Entries of the audit log, latest first."""

    entries: tuple[AuditEntry, ...]


class Problem(Flow):
    """Why a request was not served, in one sentence."""

    error: str
