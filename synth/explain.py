"""One task of a dataset laid open: every arm, its rewards, later reuse, and why each row was kept or dropped."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from providers.errors import ConfigError
from providers.registry import provider_cards
from providers.types import Flow
from router.table import TableRow
from synth.facts import OfferFact, RewardFact
from synth.reuse import Reuse
from synth.rewards import STAGE, reuse_of
from synth.rows import PARTS, Row, load_rows
from synth.runs import Run
from synth.selection import Fate, Scored, select
from synth.success import success_set


class ArmShown(Flow):
    """One arm: what it achieved, what the judge gave its Begin decision, and why."""

    provider: str
    in_mode: str
    repeat: int
    correct: float | None
    empty: bool
    judge: float | None = None
    dimensions: dict[str, int] = Field(default_factory=dict)
    note: str = ""


class InShown(Flow):
    """One In decision with its reward and fate."""

    provider: str
    in_mode: str
    repeat: int
    step: int
    reward: float | None
    dimensions: dict[str, int]
    note: str
    fate: str


class ReuseShown(Flow):
    """One later task that was shown something of this one."""

    task_id: str
    share: float
    solved: bool


class EndShown(Flow):
    """What became of this task's run at one provider: stored or not, later reuse, reward and fate."""

    provider: str
    offer: str
    reward: float | None
    exposures: int
    reused_by: tuple[ReuseShown, ...]
    fate: str


class RowShown(Flow):
    """A row of the dataset."""

    phase: str
    split: str
    weight: float
    targets: dict[str, float | None]
    completion: str
    characters: int


class Explanation(Flow):
    """All that a dataset says of one task."""

    task_id: str
    question: str
    family: str
    success: str
    """Whether all, none or a proper subset of the providers solved it."""
    discriminability: float
    represented_by: str
    """The arm whose run was offered to the memories; empty where none finished."""
    arms: tuple[ArmShown, ...]
    begin: dict[str, str]
    """The fate of each provider's Begin decision."""
    within: tuple[InShown, ...]
    end: tuple[EndShown, ...]
    rows: tuple[RowShown, ...]


def explain(run: Run, task_id: str) -> Explanation:
    """Lay one task open; a task is named by its id or by an unambiguous beginning of it.

    Raises:
        ConfigError: no exploration task is named so, or several are.
    """
    scored = Scored.of_run(run, provider_cards(run.config.providers))
    row = _find(scored.table.rows, task_id)
    fates = [fate for fate in select(scored).fates if fate.task_id == row.task_id]
    rewards = [fact for fact in scored.rewards if fact.task_id == row.task_id]
    success = success_set(row, scored.table.providers, run.config.explore.positive)
    ending = scored.endings.get(row.task_id)
    return Explanation(
        task_id=row.task_id,
        question=row.question,
        family=row.family,
        success=success.kind,
        discriminability=round(success.discriminability, 4),
        represented_by=ending.provider if ending is not None else "",
        arms=_arms(row, rewards),
        begin={fate.provider: fate.fate for fate in fates if fate.phase == "begin"},
        within=_within(rewards, fates),
        end=_end(run, row.task_id, reuse_of(run, scored.table, scored.probes), rewards, fates),
        rows=tuple(_row(one) for part in PARTS for one in load_rows(run, part) if one.task_id == row.task_id),
    )


def _find(rows: Sequence[TableRow], task_id: str) -> TableRow:
    found = [row for row in rows if row.task_id == task_id] or [r for r in rows if r.task_id.startswith(task_id)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(row.task_id for row in found[:5])
        raise ConfigError(
            f'"{task_id}" begins the ids of {len(found)} exploration tasks ({names} ...): give more of it'
        )
    near = difflib.get_close_matches(task_id, [row.task_id for row in rows], n=3, cutoff=0.0)
    raise ConfigError(f'there is no exploration task "{task_id}" (nearest: {", ".join(near)})')


def _arms(row: TableRow, rewards: Sequence[RewardFact]) -> tuple[ArmShown, ...]:
    facts = {(fact.provider, fact.in_mode, fact.repeat): fact for fact in rewards if fact.phase == "begin"}
    arms = []
    for cell in row.cells:
        arm = cell.arm
        fact = facts.get((arm.provider, arm.in_mode, arm.repeat))
        arms.append(
            ArmShown(
                provider=arm.provider,
                in_mode=arm.in_mode,
                repeat=arm.repeat,
                correct=cell.correct,
                empty=cell.empty,
                judge=fact.reward if fact is not None else None,
                dimensions=fact.dimensions if fact is not None else {},
                note=fact.note if fact is not None else "",
            )
        )
    return tuple(arms)


def _within(rewards: Sequence[RewardFact], fates: Sequence[Fate]) -> tuple[InShown, ...]:
    fate_of = {(f.provider, f.in_mode, f.repeat, f.step): f.fate for f in fates if f.phase == "in"}
    return tuple(
        InShown(
            provider=fact.provider,
            in_mode=fact.in_mode,
            repeat=fact.repeat,
            step=fact.step,
            reward=fact.reward,
            dimensions=fact.dimensions,
            note=fact.note,
            fate=fate_of.get((fact.provider, fact.in_mode, fact.repeat, fact.step), ""),
        )
        for fact in rewards
        if fact.phase == "in"
    )


def _end(
    run: Run,
    task_id: str,
    reuse: dict[tuple[str, str], Reuse],
    rewards: Sequence[RewardFact],
    fates: Sequence[Fate],
) -> tuple[EndShown, ...]:
    offers = {offer.provider: offer for offer in run.facts.offers(STAGE) if offer.task_id == task_id}
    reward_of = {fact.provider: fact.reward for fact in rewards if fact.phase == "end"}
    shown = []
    for fate in fates:
        if fate.phase != "end":
            continue
        found = reuse.get((task_id, fate.provider), Reuse(exposures=0))
        shown.append(
            EndShown(
                provider=fate.provider,
                offer=_offer_words(offers.get(fate.provider)),
                reward=reward_of.get(fate.provider),
                exposures=found.exposures,
                reused_by=tuple(
                    ReuseShown(task_id=event.task_id, share=event.share, solved=event.solved) for event in found.events
                ),
                fate=fate.fate,
            )
        )
    return tuple(shown)


def _offer_words(offer: OfferFact | None) -> str:
    if offer is None:
        return "not offered"
    return f"{offer.status}: {offer.reason}" if offer.reason else f"{offer.status}, {len(offer.record_ids)} records"


def _row(row: Row) -> RowShown:
    return RowShown(
        phase=row.phase,
        split=row.split,
        weight=row.weight,
        targets=dict(zip(row.candidates, row.targets, strict=True)),
        completion=row.completion,
        characters=len(row.text),
    )


def explanation_lines(shown: Explanation) -> list[str]:
    """The explanation for the terminal."""
    lines = [
        f"{shown.task_id}: {shown.question}",
        f"solved by: {shown.success} (discriminability {shown.discriminability:.2f});"
        f" run kept for the memories: {shown.represented_by or 'none'}",
        "",
        "Arms",
    ]
    lines += [_arm_line(arm) for arm in shown.arms]
    lines += ["", "Begin decisions", *(f"  {name:<16} {fate}" for name, fate in shown.begin.items())]
    lines += ["", "In decisions", *(_in_line(one) for one in shown.within)]
    lines += ["", "End decisions", *(line for one in shown.end for line in _end_lines(one))]
    lines += ["", "Rows in the dataset", *([_row_line(row) for row in shown.rows] or ["  none"])]
    return lines


def _arm_line(arm: ArmShown) -> str:
    word = {None: "unscored", 1.0: "correct", 0.0: "wrong"}.get(arm.correct, f"{arm.correct}")
    line = f"  {arm.provider:<16} {arm.in_mode:<6} {arm.repeat}  {word:<9}"
    if arm.empty:
        return f"{line} nothing to inject"
    return f"{line} judge {_number(arm.judge)}  {_scores(arm.dimensions)}{_noted(arm.note)}"


def _in_line(one: InShown) -> str:
    place = f"  {one.provider:<16} {one.in_mode:<6} {one.repeat}  step {one.step:<3}"
    return f"{place} judge {_number(one.reward)}  {_scores(one.dimensions)}  -> {one.fate}{_noted(one.note)}"


def _end_lines(one: EndShown) -> list[str]:
    lines = [
        f"  {one.provider:<16} {one.offer}; reward {_number(one.reward)}; {one.exposures} later tasks -> {one.fate}"
    ]
    for event in one.reused_by:
        share = "" if event.share == 1 else f" (share {event.share:.2f})"
        lines.append(f"    shown to {event.task_id}{share}, which was {'solved' if event.solved else 'not solved'}")
    return lines


def _row_line(row: RowShown) -> str:
    labels = ", ".join(f"{name} {'-' if value is None else f'{value:g}'}" for name, value in row.targets.items())
    place = f"  {row.phase:<6} {row.split:<10} weight {row.weight:g}  {row.characters} characters"
    return f"{place}  {labels or row.completion}"


def _number(value: float | None) -> str:
    return "   -" if value is None else f"{value:.2f}"


def _scores(dimensions: dict[str, Any]) -> str:
    return " ".join(f"{name} {score}" for name, score in dimensions.items())


def _noted(note: str) -> str:
    return f"  ({note})" if note else ""
