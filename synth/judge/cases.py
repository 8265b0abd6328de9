"""What a judge reads of a decision, and the interface of judges. Neither gold nor outcome is in any of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from providers.types import Step
from synth.judge.scale import JudgedPhase, Unscored, Verdict

BEGIN_TASK, IN_TASK, MEMORY, BEGIN_ACTIONS, IN_ACTIONS = 500, 300, 800, 2000, 400
"""Characters that a judge reads of each field (MemAgent B.2)."""


@dataclass(frozen=True)
class BeginCase:
    """A Begin decision: the task, what was injected, and all that the agent then did."""

    task: str
    memory: str
    actions: Sequence[Step]
    answer: str | None
    skills: tuple[str, ...] = ()
    """Names of the injected skills."""
    similarity: float = 0.0
    """Cosine of the encoded question and preview."""

    @property
    def phase(self) -> JudgedPhase:
        return "begin"

    @property
    def readable(self) -> bool:
        return bool(self.actions) or self.answer is not None


@dataclass(frozen=True)
class InCase:
    """An In decision before step `len(before)`: the memory that was shown or held back, and the steps around it."""

    task: str
    memory: str
    before: Sequence[Step]
    after: Step | None
    """The next step; None where the agent answered."""
    answer: str | None
    injected: bool = True
    """True: query, the memory was shown. False: no_op, it was held back."""

    @property
    def phase(self) -> JudgedPhase:
        return "query" if self.injected else "no_op"

    @property
    def readable(self) -> bool:
        return self.after is not None or self.answer is not None


@dataclass(frozen=True)
class EndCase:
    """A finished run that one provider was offered."""

    task: str
    summary: str
    actions: Sequence[Step]
    provider: str
    stores: str
    """What the provider keeps of a run, in the words of its card."""
    records: int
    """Records that it made of this run."""
    earlier: Sequence[str] = ()
    """Questions of the tasks whose runs it was offered before."""

    @property
    def phase(self) -> JudgedPhase:
        return "end"

    @property
    def readable(self) -> bool:
        return bool(self.summary.strip())


Case = BeginCase | InCase | EndCase


class Judge(Protocol):
    """Scores decisions. What cannot be scored comes back as `Unscored` with its reason; nothing is filled in."""

    @property
    def name(self) -> str: ...

    @property
    def says(self) -> str:
        """What judges, in one sentence for reports."""

    @property
    def identity(self) -> str:
        """Changes whenever its verdicts may: model, endpoint, sampling, prompts, or the rules."""

    @property
    def concurrency(self) -> int:
        """Cases that it may be given at a time."""

    async def judge(self, case: Case) -> Verdict | Unscored: ...
