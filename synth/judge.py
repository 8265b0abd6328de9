"""Judging a memory decision from what the agent then did (MemAgent B.2): dimensions, aggregation, and a rule judge.

A judge never sees gold or outcome. Its dimension scores are whole numbers 0 to 5; what cannot be read is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from providers.errors import JudgeError
from providers.lexical import tokenise
from providers.page_text import fields
from providers.types import Flow, Step

JudgedPhase = Literal["begin", "query", "no_op"]

TOP = 5


@dataclass(frozen=True)
class Dimension:
    """One thing that is scored 0 to 5; of an inverted one 0 is the best."""

    name: str
    weight: float
    inverted: bool = False


DIMENSIONS: Mapping[JudgedPhase, tuple[Dimension, ...]] = {
    "begin": (
        Dimension("relevance", 0.30),
        Dimension("utilization", 0.35),
        Dimension("progress", 0.25),
        Dimension("noise", 0.10, inverted=True),
    ),
    "query": (
        Dimension("relevance", 0.30),
        Dimension("utilization", 0.30),
        Dimension("progress", 0.25),
        Dimension("noise", 0.15, inverted=True),
    ),
    "no_op": (
        Dimension("missed_opportunity", 0.50, inverted=True),
        Dimension("self_sufficiency", 0.30),
        Dimension("progress", 0.20),
    ),
}
"""Dimensions per decision (MemAgent Table 8; the weights are ours). End is rewarded by later reuse, not judged."""

BEGIN_TASK, IN_TASK, MEMORY, BEGIN_ACTIONS, IN_ACTIONS = 500, 300, 800, 2000, 400
"""Characters that a judge reads of each field (MemAgent B.2)."""


class Verdict(Flow):
    """The scores of one decision by dimension name."""

    phase: JudgedPhase
    scores: dict[str, int]

    @property
    def reward(self) -> float:
        """r_d in [0, 1]: see `aggregate`."""
        return aggregate(self.phase, self.scores)


def aggregate(phase: JudgedPhase, scores: Mapping[str, int]) -> float:
    """r_d = g_d * sum of w_i * h_i with h_i = s_i / 5, or 1 - s_i / 5 where inverted (MemAgent B.2).

    g_d is 0 for Begin and Query where relevance is 0 (an empty or irrelevant retrieval), else 1.

    Raises:
        JudgeError: a dimension is missing, unknown, no whole number, or out of range; nothing is filled in.
    """
    dimensions = DIMENSIONS[phase]
    if set(scores) != {dimension.name for dimension in dimensions}:
        raise JudgeError(f"a {phase} verdict scores {sorted(scores)}, not {[d.name for d in dimensions]}")
    for name, score in scores.items():
        if type(score) is not int or not 0 <= score <= TOP:
            raise JudgeError(f"a {phase} verdict gives {name} = {score!r}, which is no whole number from 0 to {TOP}")
    if phase != "no_op" and scores["relevance"] == 0:
        return 0.0
    shares = ((1 - scores[d.name] / TOP if d.inverted else scores[d.name] / TOP) * d.weight for d in dimensions)
    return round(sum(shares), 6)


class Judge(Protocol):
    """Scores decisions; None where there is nothing to read, so that the decision stays unscored."""

    def begin(self, case: BeginCase) -> Verdict | None: ...

    def query(self, case: InCase) -> Verdict | None: ...

    def no_op(self, case: InCase) -> Verdict | None: ...


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


@dataclass(frozen=True)
class InCase:
    """An In decision before step `len(before)`: the memory that was shown or held back, and the steps around it."""

    task: str
    memory: str
    before: Sequence[Step]
    after: Step | None
    """The next step; None where the agent answered."""
    answer: str | None


class RuleJudge:
    """Reads the dimensions off word overlap, repeated steps and signs of progress; deterministic."""

    def begin(self, case: BeginCase) -> Verdict | None:
        if not case.actions and case.answer is None:
            return None
        task, memory = _words(case.task[:BEGIN_TASK]), _words(case.memory[:MEMORY])
        told = memory - task
        acted = _words(_actions(case.actions, case.answer)[:BEGIN_ACTIONS]) - task
        used_skill = any(step.tool in case.skills for step in case.actions)
        wasted = [step for step, waste in zip(case.actions, _wasted(case.actions), strict=True) if waste]
        misled = sum(1 for step in wasted if _words(_arguments(step)) & told)
        scores = {
            "relevance": max(_level(_share(task, memory), RELEVANCE), _level(case.similarity, SIMILARITY)),
            "utilization": TOP if used_skill else _level(_share(acted, told), UTILIZATION),
            "progress": _progress(case.actions, case.answer),
            "noise": min(TOP, misled + 2) if misled else min(1, len(wasted)),
        }
        return Verdict(phase="begin", scores=scores)

    def query(self, case: InCase) -> Verdict | None:
        if case.after is None and case.answer is None:
            return None
        task, memory, visible = self._views(case)
        after = _words(_next_action(case)) - task
        scores = {
            "relevance": _level(_share(task, memory), RELEVANCE),
            "utilization": _level(_share(after - visible, memory), UTILIZATION),
            "progress": _advance(case),
            "noise": round(TOP * _share(memory, visible)),
        }
        return Verdict(phase="query", scores=scores)

    def no_op(self, case: InCase) -> Verdict | None:
        if case.after is None and case.answer is None:
            return None
        task, memory, visible = self._views(case)
        after = _words(_next_action(case))
        lacked = (task & memory) - visible
        if case.after is not None and _signature(case.after) in {_signature(step) for step in case.before}:
            missed = 4
        elif case.after is not None and case.after.error is not None and lacked:
            missed = 3
        else:
            missed = round(2 * _share(task, lacked))
        scores = {
            "missed_opportunity": missed,
            "self_sufficiency": round(TOP * max(_share(task, visible), _share(after - task, visible))),
            "progress": _advance(case),
        }
        return Verdict(phase="no_op", scores=scores)

    @staticmethod
    def _views(case: InCase) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Words of the task, of the memory, and of what the agent has in view."""
        latest = case.before[-1] if case.before else None
        seen = f"{_arguments(latest)} {latest.observation}"[:IN_ACTIONS] if latest is not None else ""
        return _words(case.task[:IN_TASK]), _words(case.memory[:MEMORY]), _words(seen)


RELEVANCE = (0.0, 0.10, 0.20, 0.35, 0.50)
SIMILARITY = (0.10, 0.25, 0.40, 0.55, 0.70)
UTILIZATION = (0.0, 0.10, 0.25, 0.45, 0.70)
"""Scores 1 to 5 are given to shares above these bounds."""


def _level(share: float, bounds: Sequence[float]) -> int:
    return sum(share > bound for bound in bounds)


def _words(text: str) -> frozenset[str]:
    return frozenset(tokenise(text))


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    """The share of `part` that is in `whole`; 0 where there is no part."""
    return len(part & whole) / len(part) if part else 0.0


def _arguments(step: Step) -> str:
    return " ".join(str(value) for value in step.arguments.values())


def _actions(steps: Sequence[Step], answer: str | None) -> str:
    return "\n".join([*map(_arguments, steps), answer or ""])


def _next_action(case: InCase) -> str:
    return (_arguments(case.after) if case.after is not None else case.answer or "")[:IN_ACTIONS]


def _signature(step: Step) -> str:
    return f"{step.tool} {json.dumps(step.arguments, sort_keys=True, default=str)}"


def _wasted(steps: Sequence[Step]) -> list[bool]:
    """Per step: it repeated an earlier one, failed, or brought nothing."""
    seen: set[str] = set()
    wasted = []
    for step in steps:
        signature = _signature(step)
        wasted.append(signature in seen or step.error is not None or not step.observation.strip())
        seen.add(signature)
    return wasted


def _news(step: Step, sources: set[str], labels: set[str]) -> tuple[bool, bool]:
    """Whether a step brought a new page, and new fields; both sets are brought up to date."""
    if step.error is not None:
        return False, False
    source = step.lineage.source if step.lineage is not None else _signature(step)
    found = {f"{source} {label}" for label in _labels(step.observation)}
    new_page, new_fields = source not in sources, bool(found - labels)
    sources.add(source)
    labels |= found
    return new_page, new_fields


@lru_cache(maxsize=4096)
def _labels(observation: str) -> tuple[str, ...]:
    return tuple(fields(observation))


def _progress(steps: Sequence[Step], answer: str | None) -> int:
    """3 for an answer, and up to 2 by the share of steps that brought a new page or new fields."""
    sources: set[str] = set()
    labels: set[str] = set()
    useful = sum(any(_news(step, sources, labels)) for step in steps)
    return (3 if answer else 0) + (round(2 * useful / len(steps)) if steps else 0)


def _advance(case: InCase) -> int:
    """How far the next action went: an answer 5, a new page with fields 4, a new page 3, new fields 2, else 0."""
    if case.after is None or (case.answer and case.answer in _arguments(case.after)):
        return TOP
    sources: set[str] = set()
    labels: set[str] = set()
    for step in case.before:
        _news(step, sources, labels)
    new_page, new_fields = _news(case.after, sources, labels)
    return 4 if new_page and new_fields else 3 if new_page else 2 if new_fields else 0
