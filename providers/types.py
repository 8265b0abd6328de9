"""What flows between the rooms: frozen pydantic types with a schema version.

Times are seconds, lengths are characters unless the name says tokens.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Flow(BaseModel):
    """Base of everything that crosses a room's boundary: immutable, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


def well_formed(text: str) -> str:
    """`text` as UTF-8 can hold it: surrogates that stand in pairs are joined, single ones become U+FFFD.

    Models and truncated pages send such text; unmended, it could be neither stored nor encoded.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _well_formed_values(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_well_formed_values(key): _well_formed_values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_well_formed_values(part) for part in value]
    return value


Text = Annotated[str, AfterValidator(well_formed)]
"""Text from outside: pages, models, users."""
Arguments = Annotated[dict[str, Any], AfterValidator(_well_formed_values)]


def content_hash(*parts: Any) -> str:
    """16 hex digits over the canonical JSON of `parts`: the identity of content, never of clocks or positions."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Split(StrEnum):
    WARMUP = "warmup"
    EXPLORE = "explore"
    DEV = "dev"
    TEST = "test"


class Task(Flow):
    """One task of a suite. `gold`, `family` and `meta` are for scorers and reports: whatever acts gets `public()`.

    `meta["kin"]`, where present, is the family whose content the task shares though it counts as another;
    `meta["sealed"]` marks tasks whose plain text may not be published.
    """

    id: str
    question: Text
    suite: str
    family: str = ""
    split: Split
    attachments: tuple[str, ...] = ()
    gold: Any = None
    meta: dict[str, Any] = Field(default_factory=dict)

    def public(self) -> Task:
        """The task as agents, providers, judges and routers may see it: id, question, suite, attachments."""
        return self.model_copy(update={"gold": None, "family": "", "meta": {}})


Trust = Literal["tool", "page", "user", "model", "untrusted"]
"""Who stands behind an observation; `untrusted` is a place where anybody writes."""
Edit = Literal["none", "applied", "failed"]


class Lineage(Flow):
    """Where an observation came from."""

    source: str
    environment: str = ""
    agent: str = ""
    trust: Trust = "page"


class Step(Flow):
    """One action of a task agent and what came back."""

    index: int
    thought: Text = ""
    tool: str
    arguments: Arguments = Field(default_factory=dict)
    observation: Text = ""
    error: Text | None = None
    started: float = 0.0
    seconds: float = 0.0
    usage: dict[str, float] = Field(default_factory=dict)
    lineage: Lineage | None = None

    def content(self) -> list[Any]:
        return [self.thought, self.tool, self.arguments, self.observation, self.error]


class Injection(Flow):
    """Memory text that the agent was shown: at Begin (`step` None) or before step `step`."""

    phase: Literal["begin", "in"]
    step: int | None = None
    provider: str
    text: str
    item_ids: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class Trajectory(Flow):
    """A finished run of one task. Its id hashes content alone: never clocks, usage or outcome."""

    id: str
    task_id: str
    question: Text
    agent: str
    seed: int
    settings: dict[str, Any] = Field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    answer: Text | None = None
    status: tuple[str, ...] = ()
    """Signs seen at run time: errors, empty results, "last updated" lines, confirmations. No outcome."""
    injections: tuple[Injection, ...] = ()
    usage: dict[str, float] = Field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def make(cls, **fields: Any) -> Trajectory:
        """Build a trajectory and derive its id from its content."""
        draft = cls(id="", **fields)
        return draft.model_copy(
            update={
                "id": content_hash(
                    draft.task_id,
                    draft.question,
                    draft.agent,
                    draft.seed,
                    draft.settings,
                    [[i.phase, i.step, i.text, i.skills] for i in draft.injections],
                    [step.content() for step in draft.steps],
                    draft.answer,
                )
            }
        )


class Outcome(Flow):
    """Whether the answer was correct. `correct` None means unscored, never wrong."""

    correct: bool | None
    score: float | None = None
    reason: str = ""
    source: Literal["gold", "verifier", "user", "unknown"] = "unknown"


class Query(Flow):
    """What is asked of all memories at once: the text is encoded once and shared."""

    text: Text
    embedding: np.ndarray = Field(repr=False)
    """float32, L2-normalised, shape (dimension,)."""
    namespace: str = "default"
    task_id: str = ""


class Preview(Flow):
    """What one provider would show (never with a score); text is empty where it has nothing."""

    provider: str
    text: str = ""
    """At most 200 characters."""
    descriptor: str = ""
    item_id: str | None = None


class Parameter(Flow):
    """One typed parameter of a skill."""

    name: str
    type: Literal["str", "int", "float", "bool", "list"] = "str"
    doc: str = ""


class SkillSpec(Flow):
    """A callable skill: code is run by `providers.skills` in a separate process with the task's tools alone."""

    name: str
    parameters: tuple[Parameter, ...] = ()
    doc: str = ""
    code_id: str
    code: str = ""


class Effect(Flow):
    """A change that a retrieval implies but does not make: applied later, once, by `MemoryProvider.apply`."""

    provider: str
    kind: str
    record_id: str
    payload: dict[str, Any] = Field(default_factory=dict)


class Retrieval(Flow):
    """What a provider gives for a query; retrieving changes nothing."""

    provider: str
    text: str = ""
    item_ids: tuple[str, ...] = ()
    skills: tuple[SkillSpec, ...] = ()
    descriptor: str = ""
    effects: tuple[Effect, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.text and not self.skills

    def content_key(self) -> str:
        """Equal for two retrievals that would inject the same text and skills (DESIGN section 4, shared episodes)."""
        return content_hash(self.text, [[s.name, s.code_id] for s in self.skills])


class Origin(Flow):
    """Which finished trajectory a record came from, and its share of the credit."""

    trajectory_id: str
    task_id: str
    share: float = 1.0
    sources: tuple[str, ...] = ()
    """Where the run's observations came from: addresses of pages, names of tools."""

    def with_share(self, share: float) -> Origin:
        """This origin with another share; `model_copy` takes three times as long, and a record may have hundreds."""
        return Origin(trajectory_id=self.trajectory_id, task_id=self.task_id, share=share, sources=self.sources)


class Record(Flow):
    """One stored memory item."""

    id: str
    provider: str
    namespace: str
    kind: str
    payload: dict[str, Any]
    text: str
    """The text that is embedded and indexed."""
    text_hash: str = ""
    origins: tuple[Origin, ...] = ()
    state: Literal["candidate", "provisional", "active", "guard", "archived", "rejected"] = "active"
    descriptor: Descriptor | None = None
    signature: str = ""
    links: tuple[str, ...] = ()
    created: float = 0.0
    schema_version: int = SCHEMA_VERSION


class StoreReceipt(Flow):
    """What became of an offered trajectory."""

    provider: str
    status: Literal["stored", "skipped", "failed"]
    reason: str = ""
    record_ids: tuple[str, ...] = ()
    usage: dict[str, float] = Field(default_factory=dict)


class Observation(Flow):
    """One thing that an agent saw or said, and where it came from. Empty lineage is unknown lineage."""

    id: str
    text: Text
    source: str = ""
    """Address of the page or document."""
    tool: str = ""
    """The tool whose own output this is; a tool that only fetches a source does not count."""
    prompt_family: str = ""
    parent: str = ""
    """The event that this repeats or was made from: a message, an injected memory."""
    environment: str = ""
    """`name` or `name@version`: what it was seen in."""
    agent: str = ""
    trust: Trust = "model"
    confidence: float | None = None
    """What its author said of it, 0 to 1."""
    edit: Edit = "none"
    """Whether the step changed something, tried to, or only looked."""


class Descriptor(Flow):
    """MemGuard's verifier descriptor d = (reward, confidence, label, verified_at) with what we add."""

    reward: float | None = None
    confidence: float | None = None
    label: str = ""
    verified_at: float | None = None
    uncertainty: float | None = None
    reuse: int = 0
    wins: int = 0
    support: float = 0.0
    """Runs behind it; behind a write gate, those that do not depend on one another."""
    seen_run: int = 0
    """Number, in its space, of the governed run that last verified, confirmed or used it: its age has no clock."""
    conflicts: tuple[str, ...] = ()
    """Ids of records of its type that said otherwise and gave way to it."""
    covered_by: str = ""
    """Id of the summary that stands for it, where it was archived for that."""
    review: Literal["", "accepted", "rejected"] = ""
    """What a person decided on it."""
    observations: tuple[Observation, ...] = ()
    """What its runs saw of it, one each; kept where a write gate counts them."""


Record.model_rebuild()
