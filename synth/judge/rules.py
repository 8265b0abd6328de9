"""A judge by rules: word overlap, repeated steps, signs of progress. Deterministic, and says that it is rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from providers.lexical import tokenise
from providers.page_text import fields
from providers.types import Step
from synth.judge.cases import BEGIN_ACTIONS, BEGIN_TASK, IN_ACTIONS, IN_TASK, MEMORY, BeginCase, Case, EndCase, InCase
from synth.judge.scale import TOP, Unscored, Verdict


class RuleJudge:
    """Reads the dimensions off word overlap, repeated steps and signs of progress."""

    name = "rules"
    says = "rules: word overlap, repeated steps and signs of progress; no model read anything"
    identity = "rules-1"
    concurrency = 1

    async def judge(self, case: Case) -> Verdict | Unscored:
        if not case.readable:
            return Unscored(kind="nothing to read")
        if isinstance(case, BeginCase):
            return Verdict(phase="begin", scores=self._begin(case))
        if isinstance(case, EndCase):
            return Verdict(phase="end", scores=self._end(case))
        return Verdict(phase=case.phase, scores=self._query(case) if case.injected else self._no_op(case))

    def _begin(self, case: BeginCase) -> dict[str, int]:
        task, memory = _words(case.task[:BEGIN_TASK]), _words(case.memory[:MEMORY])
        told = memory - task
        acted = _words(_actions(case.actions, case.answer)[:BEGIN_ACTIONS]) - task
        used_skill = any(step.tool in case.skills for step in case.actions)
        wasted = [step for step, waste in zip(case.actions, _wasted(case.actions), strict=True) if waste]
        misled = sum(1 for step in wasted if _words(_arguments(step)) & told)
        return {
            "relevance": max(_level(_share(task, memory), RELEVANCE), _level(case.similarity, SIMILARITY)),
            "utilization": TOP if used_skill else _level(_share(acted, told), UTILIZATION),
            "progress": _progress(case.actions, case.answer),
            "noise": min(TOP, misled + 2) if misled else min(1, len(wasted)),
        }

    def _query(self, case: InCase) -> dict[str, int]:
        task, memory, visible = self._views(case)
        after = _words(_next_action(case)) - task
        return {
            "relevance": _level(_share(task, memory), RELEVANCE),
            "utilization": _level(_share(after - visible, memory), UTILIZATION),
            "progress": _advance(case),
            "noise": round(TOP * _share(memory, visible)),
        }

    def _no_op(self, case: InCase) -> dict[str, int]:
        task, memory, visible = self._views(case)
        after = _words(_next_action(case))
        lacked = (task & memory) - visible
        if case.after is not None and _signature(case.after) in {_signature(step) for step in case.before}:
            missed = 4
        elif case.after is not None and case.after.error is not None and lacked:
            missed = 3
        else:
            missed = round(2 * _share(task, lacked))
        return {
            "missed_opportunity": missed,
            "self_sufficiency": round(TOP * max(_share(task, visible), _share(after - task, visible))),
            "progress": _advance(case),
        }

    def _end(self, case: EndCase) -> dict[str, int]:
        task = _words(case.task)
        known = max((_share(task, _words(earlier)) for earlier in case.earlier), default=0.0)
        return {
            "fit": min(TOP, 2 + case.records) if case.records else 0,
            "reusability": round(TOP * _useful(case.actions)) if case.records else 0,
            "pollution": round(TOP * known),
        }

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


def _useful(steps: Sequence[Step]) -> float:
    """The share of steps that brought a new page or new fields; 0 where there is no step."""
    sources: set[str] = set()
    labels: set[str] = set()
    useful = sum(any(_news(step, sources, labels)) for step in steps)
    return useful / len(steps) if steps else 0.0


def _progress(steps: Sequence[Step], answer: str | None) -> int:
    """3 for an answer, and up to 2 by the share of useful steps."""
    return (3 if answer else 0) + round(2 * _useful(steps))


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
