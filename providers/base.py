"""The interface of a memory provider, its card, and the distiller that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pydantic import Field

from providers.types import Effect, Flow, Outcome, Parameter, Preview, Query, Retrieval, StoreReceipt, Trajectory

if TYPE_CHECKING:
    from providers.governance.verifier import Verdict

Gate = Literal["all", "success"]


class ProviderCard(Flow):
    """The only place where a provider's words live: prompts, docs and tables are made from it."""

    name: str
    title: str
    """The system's usual name, e.g. `InsightGraph`."""
    family: Literal["similarity", "structural", "insight"]
    stores: str
    retrieves: str
    gate: Gate
    top_k: int
    relevance_floor: float | None = Field(default=None, ge=-1, le=1)
    """Least cosine between the query and an item's indexed text for the item to be shown (ours; None as in the
    paper: the best match is shown however little it fits)."""

    def accepts(self, outcome: Outcome) -> bool:
        """Whether the gate is open for `outcome`: an unscored outcome leaves a success-only gate closed."""
        return self.gate == "all" or outcome.correct is True


@runtime_checkable
class MemoryProvider(Protocol):
    """One memory system over a `Space` of the bank. It owns no files."""

    @property
    def card(self) -> ProviderCard: ...

    def probe(self, query: Query) -> Preview:
        """What `retrieve` would lead with, by embedding or keywords only: no model call, no write."""
        ...

    async def retrieve(self, query: Query) -> Retrieval:
        """What to inject. Pure: what using it should change is returned as effects."""
        ...

    async def store(self, trajectory: Trajectory, outcome: Outcome) -> StoreReceipt:
        """Keep what this provider keeps of a finished run; idempotent per trajectory id.

        The gate is three-valued: `outcome.correct` None leaves a success-only gate closed and says so.
        """
        ...

    def apply(self, effects: tuple[Effect, ...], outcome: Outcome) -> None:
        """Apply what earlier retrievals implied, now that the task's outcome is known."""
        ...


class Insight(Flow):
    """One short imperative lesson, from a success or a failure."""

    text: str
    kind: Literal["success", "failure"]


class Workflow(Flow):
    """A run with its inputs made variables."""

    query: str
    text: str
    variables: tuple[str, ...] = ()


class Skill(Flow):
    """A Python function over the task's tools: `def name(tools, ...)` (see providers.skills)."""

    name: str
    parameters: tuple[Parameter, ...]
    doc: str
    code: str


class Narrative(Flow):
    """Voyager's pair: the summary that is indexed and the step digest that is shown."""

    summary: str
    digest: str


class Script(Flow):
    """Memp's pair: a script without names of things, and the steps that were taken."""

    script: str
    steps: str


class Experience(Flow):
    """Agent-KB's four fields: the plan of a solved task and what it taught, for the whole and for its search."""

    plan: str
    search_plan: str
    lessons: str
    search_lessons: str


# Of the insight family: ExpeL, LightWeight, Mobile-E, EvolveR, Dynamic Cheatsheet, ReasoningBank


class Vote(Flow):
    """One of ExpeL's operations on its list of lessons.

    `lesson` is the position of the known lesson of AGREE, EDIT and REMOVE; `text` is what ADD and EDIT write.
    """

    operation: Literal["ADD", "AGREE", "EDIT", "REMOVE"]
    lesson: int | None = None
    text: str = ""
    kind: Literal["success", "failure"] = "success"


class Strategies(Flow):
    """LightWeight's sentences from one solved run, at most two of each, of 20 characters or more."""

    strategic: tuple[str, ...] = ()
    """How to go about such tasks."""
    operational: tuple[str, ...] = ()
    """How to use tools and where things stand."""


class AdviceItem(Flow):
    """A sentence of LightWeight's list, with how often it was given and in how many solved tasks."""

    text: str
    uses: int = 0
    wins: int = 0


class Advice(Flow):
    """What LightWeight gives for a task: positions of the sentences it rests on, and the advice merged from them."""

    picked: tuple[int, ...]
    text: str


class Shortcut(Flow):
    """Mobile-E's named sequence of three to six steps, and when it may be used."""

    name: str
    description: str
    precondition: str
    steps: tuple[str, ...]


class Principle(Flow):
    """EvolveR's one sentence with its structure as (subject, relation, object)."""

    description: str
    kind: Literal["guiding", "cautionary"]
    triplets: tuple[tuple[str, str, str], ...] = ()


class PastRun(Flow):
    """A finished run as Dynamic Cheatsheet's curator sees it."""

    question: str
    summary: str


class SheetItem(Flow):
    """One item of a cheatsheet: what it is for, an example, and how many tasks used it."""

    description: str
    example: str = ""
    uses: int = 0


class SheetEntry(Flow):
    """One item of a rewritten sheet. What is not written forward is lost."""

    description: str
    example: str = ""
    continues: int | None = None
    """Position of the item that this one continues, perhaps reworded; None where it is new."""
    source: int | None = None
    """Position of the past run that a new item comes from."""
    used: bool = False
    """Whether the task at hand uses it."""


class ReasoningItem(Flow):
    """ReasoningBank's unit: a title, one sentence of description, one to three of content."""

    title: str
    description: str
    content: str


class Candidate(Flow):
    """MemGuard's unit: a memory that a verified run proposes, with the words of the run that show it (B.3)."""

    type: Literal["procedural_hint", "tool_usage", "failure_avoidance"]
    title: str
    description: str
    content: str
    applicability: str
    risk: Literal["none", "low", "medium", "high"] = "none"
    guard_condition: str = ""
    """What to check first; of failure lessons alone."""
    evidence_span: str = ""
    """As it stands in the run; empty where none shows it."""
    reject_reason: str = ""
    """Why it is not to be kept; empty where nothing speaks against it."""


class Distiller(Protocol):
    """Trajectory -> artefact, one method per kind. None (or an empty tuple) means there is nothing to learn;
    a failed model call raises `ModelError`. A provider never knows which distiller it has."""

    async def insights(self, trajectory: Trajectory, outcome: Outcome) -> tuple[Insight, ...]: ...

    async def condensed_run(self, trajectory: Trajectory, outcome: Outcome) -> str | None: ...

    async def workflow(self, trajectory: Trajectory, outcome: Outcome) -> Workflow | None: ...

    async def skill(self, trajectory: Trajectory, outcome: Outcome) -> Skill | None: ...

    async def narrative(self, trajectory: Trajectory, outcome: Outcome) -> Narrative | None: ...

    # Digests (Generative, DILU)

    async def digest(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """What was asked and the steps taken, at most 150 words; it does not say whether the answer was correct."""
        ...

    async def importance(self, trajectory: Trajectory, outcome: Outcome) -> int:
        """How much there is to remember of a run: 1 (routine) to 10."""
        ...

    async def ratings(self, question: str, notes: Sequence[str]) -> tuple[int, ...]:
        """How well each note serves the question: 1 (not at all) to 10, in the order of the notes."""
        ...

    # Scripts (Memp)

    async def script(self, trajectory: Trajectory, outcome: Outcome) -> Script | None: ...

    async def revised_script(self, script: Script, trajectory: Trajectory) -> Script | None:
        """The script as the failed run that it was shown to teaches; None where the run says nothing against it."""
        ...

    # Experiences (Agent-KB)

    async def experience(self, trajectory: Trajectory, outcome: Outcome) -> Experience | None: ...

    async def search_text(self, question: str) -> str:
        """What to look for among the questions of solved tasks."""
        ...

    async def suggestions(self, question: str, experiences: Sequence[Experience]) -> str:
        """The student: a plan for the question from the plans of similar tasks, best first. Empty: none fits."""
        ...

    async def refinement(self, question: str, experiences: Sequence[Experience], suggestions: str) -> str:
        """The teacher: what those tasks' lessons add to the suggestions. Empty: nothing."""

    # Of the insight family

    async def votes(self, trajectory: Trajectory, outcome: Outcome, known: Sequence[Insight]) -> tuple[Vote, ...]:
        """What the run says about the known lessons, and which it adds; at most four votes, one per known lesson."""
        ...

    async def strategies(self, trajectory: Trajectory, outcome: Outcome) -> Strategies | None: ...

    async def advise(self, question: str, items: Sequence[AdviceItem], k: int) -> Advice | None:
        """Choose at most k of the sentences (nearest in meaning first) and merge them; None where none helps."""
        ...

    async def tips(self, trajectory: Trajectory, outcome: Outcome) -> tuple[str, ...]:
        """At most five sentences, from any outcome."""
        ...

    async def shortcut(self, trajectory: Trajectory, outcome: Outcome) -> Shortcut | None: ...

    async def principle(self, trajectory: Trajectory, outcome: Outcome) -> Principle | None: ...

    async def same_principle(self, first: Principle, second: Principle) -> bool:
        """Whether two principles, near in meaning, say the same."""
        ...

    async def run_summary(self, trajectory: Trajectory, outcome: Outcome) -> str | None:
        """The run in under 400 words, whatever its outcome; its question is kept beside it."""
        ...

    async def curate(
        self, question: str, sheet: Sequence[SheetItem], runs: Sequence[PastRun], max_words: int
    ) -> tuple[SheetEntry, ...]:
        """The sheet rewritten for a task within `max_words`, what helps most first."""
        ...

    async def reasoning(self, trajectory: Trajectory, outcome: Outcome) -> tuple[ReasoningItem, ...]:
        """At most three items, from successes and failures."""
        ...

    async def candidates(self, trajectory: Trajectory, verdict: Verdict) -> tuple[Candidate, ...]:
        """At most three memories that a verified run proposes, those included that are not to be kept."""
        ...
