"""Which scored decisions become training rows (MemAgent 4.3, reward-filtered SFT data), and what became of others."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from providers.base import ProviderCard
from providers.types import Flow, content_hash
from router.context import BeginContext, InContext
from router.decisions import InMode
from router.table import RoutingTable, TableRow
from synth.config import RunConfig
from synth.facts import EndingFact, Probe, RewardFact
from synth.rewards import STAGE, episode_names, rewards_signature
from synth.rows import JsonWriter, MarksWriter, Part, Phase, Place, Row, Written, row_writer
from synth.runs import Run
from synth.success import SuccessSet, is_empty, success_set

KEPT = "kept"
NEGATIVE = "kept as a negative"


class Fate(Flow):
    """What became of one decision: kept, kept as a negative, or why it gave no row."""

    phase: Phase
    task_id: str
    provider: str
    in_mode: str = ""
    repeat: int = -1
    step: int = -1
    fate: str


@dataclass
class Draft:
    """A row that may still be dropped as a repetition or above a cap, and the decisions that it holds."""

    written: Written
    fates: list[Fate]


@dataclass
class Selection:
    """The rows of a dataset, what was dropped, and the fate of every decision."""

    rows: list[Row] = field(default_factory=list)
    shortened: Counter[Phase] = field(default_factory=Counter)
    """Rows whose codec cut what it shows of the task, by phase."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Tasks, contexts, decisions and rows that were dropped, by "phase: reason"."""
    fates: list[Fate] = field(default_factory=list)

    def drop(self, phase: Phase, reason: str, count: int = 1) -> None:
        self.dropped[f"{phase}: {reason}"] += count


@dataclass(frozen=True)
class Scored:
    """The scored decisions of a run."""

    config: RunConfig
    run: Run
    table: RoutingTable
    probes: Mapping[str, Probe]
    cards: tuple[ProviderCard, ...]
    rewards: Sequence[RewardFact]
    endings: Mapping[str, EndingFact]
    chances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By task: what the heads expect of each provider, where the language model is to be shown it."""

    @classmethod
    def of_run(cls, run: Run, cards: tuple[ProviderCard, ...]) -> Scored:
        table = RoutingTable.load(run.table(STAGE))
        return cls(
            config=run.config,
            run=run,
            table=table,
            probes=run.facts.probes(STAGE, [row.task_id for row in table.rows]),
            cards=cards,
            rewards=run.facts.rewards(rewards_signature(run)),
            endings=run.facts.endings(STAGE),
        )

    def place(self, task_id: str, weight: float = 1.0) -> Place:
        """Validation or train by the hash of the task's id, so that a task's rows stay together."""
        share = int(content_hash("validation", task_id)[:8], 16) / 2**32
        part: Part = "validation" if share < self.config.dataset.validation_share else "train"
        return Place(task_id, part, weight)


def select(scored: Scored) -> Selection:
    """The rows of all phases: filtered, without repetitions, at most as many as the config says."""
    selection = Selection()
    writer = row_writer(scored.config.train.codec)
    limits = scored.config.dataset
    _settle(scored, selection, "begin", _begin(scored, selection, writer), limits.max_begin)
    _settle(scored, selection, "in", _in(scored, selection, writer), limits.max_in)
    _settle(scored, selection, "end", _end(scored, selection, writer), limits.max_end)
    return selection


def _settle(scored: Scored, selection: Selection, phase: Phase, drafts: Iterable[Draft], most: int | None) -> None:
    """Take the drafts' rows but for repetitions and those above the cap, drawn by seed, in their order."""
    found: dict[str, Draft] = {}
    for draft in drafts:
        text = draft.written.row.model_dump_json()
        if text in found:
            selection.drop(phase, "the same row again")
            _reject(draft, "the same row again")
            selection.fates += draft.fates
        found.setdefault(text, draft)
    distinct = list(found.values())
    kept = set(range(len(distinct)))
    if most is not None and len(distinct) > most:
        selection.drop(phase, "above the cap", len(distinct) - most)
        draw = random.Random(content_hash("cap", scored.config.seed, phase))
        kept = set(draw.sample(range(len(distinct)), most))
    for number, draft in enumerate(distinct):
        if number in kept:
            selection.rows.append(draft.written.row)
            selection.shortened[phase] += draft.written.shortened
        else:
            _reject(draft, "above the cap")
        selection.fates += draft.fates


def _reject(draft: Draft, reason: str) -> None:
    draft.fates = [
        fate.model_copy(update={"fate": reason}) if fate.fate in (KEPT, NEGATIVE) else fate for fate in draft.fates
    ]


@dataclass(frozen=True)
class _Labels:
    """What a task's Begin decisions are worth as examples."""

    kept: list[str]
    """Providers whose decision is a positive example; none where the task gives no row."""
    targets: dict[str, float | None]
    """What every provider's mark should score; None without a label."""
    fates: dict[str, str]
    """Of the providers that are not kept."""
    weight: float = 1.0


def _begin(scored: Scored, selection: Selection, writer: MarksWriter | JsonWriter) -> Iterator[Draft]:
    """Begin rows, labelled by correctness; without the correctness filter by the judge alone."""
    judge = _mean_rewards(scored.rewards)
    labelled = _labels_by_correctness if scored.config.rewards.begin_requires_correct else _labels_by_judge
    for row in scored.table.rows:
        labels = labelled(scored, selection, row, judge)
        fates = labels.fates
        if not labels.kept:
            selection.fates += [_begin_fate(row, name, fate) for name, fate in fates.items()]
            continue
        place = scored.place(row.task_id, labels.weight)
        context = _begin_context(row, scored.cards).told(scored.config.train.descriptors)
        context = context.forecast(scored.chances.get(row.task_id, ()))
        if scored.config.train.candidate_order == "shuffled" and place.part == "train":
            context = context.shuffled(random.Random(content_hash("candidates", scored.config.seed, row.task_id)))
        for written in writer.begin(context, place, labels.targets, labels.kept):
            held = {name: KEPT if name in labels.kept else NEGATIVE for name in written.providers}
            fates = {name: fate for name, fate in fates.items() if name not in held}
            yield Draft(written, [_begin_fate(row, name, fate) for name, fate in held.items()])
        selection.fates += [_begin_fate(row, name, fate) for name, fate in fates.items()]


def _labels_by_correctness(
    scored: Scored, selection: Selection, row: TableRow, judge: Mapping[tuple[str, str], float]
) -> _Labels:
    """A proper subset keeps every succeeding provider, all succeeding keeps the top k by the judge, none drops the
    task; a decision whose judge reward is 0 is no positive example."""
    config = scored.config
    success = success_set(row, scored.table.providers, config.explore.positive)
    fates = {
        name: _unsuccessful(row, success, name) for name in scored.table.providers if name not in success.succeeding
    }
    kept = _kept_at_begin(scored, selection, row, success, judge, fates)
    weight = 1 + success.discriminability if config.rewards.weighting == "discriminability" else 1.0
    return _Labels(kept, _begin_targets(scored, row, success, kept), fates, weight)


def _labels_by_judge(
    scored: Scored, selection: Selection, row: TableRow, judge: Mapping[tuple[str, str], float]
) -> _Labels:
    """The top k by the judge, whatever came of them; what it gave 0, or nothing, is no positive example."""
    targets = {name: None if is_empty(row, name) else judge.get((row.task_id, name)) for name in scored.table.providers}
    rated = sorted((name for name, target in targets.items() if target), key=lambda name: -(targets[name] or 0.0))
    kept = rated[: scored.config.rewards.top_k]
    if not kept:
        selection.drop("begin", "no decision that the judge rates")
    fates = {name: _unrated(row, name, target) for name, target in targets.items() if name not in kept}
    return _Labels(kept, targets, fates)


def _unrated(row: TableRow, provider: str, target: float | None) -> str:
    if is_empty(row, provider):
        return "retrieved nothing"
    if target is None:
        return "unscored"
    return "outside the top k" if target else "judge reward 0"


def _kept_at_begin(
    scored: Scored,
    selection: Selection,
    row: TableRow,
    success: SuccessSet,
    judge: Mapping[tuple[str, str], float],
    fates: dict[str, str],
) -> list[str]:
    """The providers whose decision is a positive example, the best judged first where all succeed; the fates of the
    others are added to `fates`."""
    if success.kind == "none":
        selection.drop("begin", "no provider succeeded" if success.providers else "nothing was retrieved")
        return []
    for name in success.succeeding:
        if judge.get((row.task_id, name)) == 0.0:
            selection.drop("begin", "decision with judge reward 0")
            fates[name] = "judge reward 0"
    rated = [name for name in success.succeeding if name not in fates]
    if success.kind == "all":
        rated.sort(key=lambda name: -(judge.get((row.task_id, name)) or 0.0))
        for name in rated[scored.config.rewards.top_k :]:
            selection.drop("begin", "decision outside the top k")
            fates[name] = "outside the top k"
        rated = rated[: scored.config.rewards.top_k]
    if not rated:
        selection.drop("begin", "no decision left")
    return rated


def _unsuccessful(row: TableRow, success: SuccessSet, provider: str) -> str:
    if is_empty(row, provider):
        return "retrieved nothing"
    if row.correctness(provider) is None:
        return "outcome unscored"
    return "repeats leave it open" if provider not in success.providers else "did not solve the task"


def _begin_fate(row: TableRow, provider: str, fate: str) -> Fate:
    return Fate(phase="begin", task_id=row.task_id, provider=provider, fate=fate)


def _begin_context(row: TableRow, cards: tuple[ProviderCard, ...]) -> BeginContext:
    return BeginContext(task_id=row.task_id, question=row.question, previews=row.previews, cards=cards)


def _begin_targets(scored: Scored, row: TableRow, success: SuccessSet, kept: Sequence[str]) -> dict[str, float | None]:
    """Every arm's mean correctness; None where nothing was retrieved, or where success is no kept decision."""
    targets: dict[str, float | None] = {}
    for name in scored.table.providers:
        unlabelled = name not in success.providers or (name in success.succeeding and name not in kept)
        targets[name] = None if unlabelled else row.correctness(name)
    return targets


@dataclass(frozen=True)
class _Taken:
    """An In decision with what came of it."""

    fate: Fate
    correct: bool | None
    reward: float


@dataclass
class _InGroup:
    """All decisions that were taken in one In context, by action."""

    context: InContext
    taken: dict[InMode, list[_Taken]] = field(default_factory=lambda: defaultdict(list))


def _in(scored: Scored, selection: Selection, writer: MarksWriter | JsonWriter) -> Iterator[Draft]:
    """In: the action that did better in this context, if its judge reward reaches eps_in."""
    rewards = {
        (r.task_id, r.provider, r.in_mode, r.repeat, r.step): r.reward for r in scored.rewards if r.phase == "in"
    }
    for row in scored.table.rows:
        for group in _in_groups(scored, selection, row, rewards):
            action = _better(group)
            fates = [
                _in_fate(scored, taken, action == taken_action)
                for taken_action, all_taken in group.taken.items()
                for taken in all_taken
            ]
            if any(fate.fate == KEPT for fate in fates):
                yield Draft(writer.in_(group.context, scored.place(row.task_id), action), fates)
            else:
                selection.drop("in", "below eps_in, or not correct")
                selection.fates += fates


def _in_groups(
    scored: Scored,
    selection: Selection,
    row: TableRow,
    rewards: Mapping[tuple[str, str, str, int, int], float | None],
) -> list[_InGroup]:
    """The task's In decisions by context, in a fixed order; arms agree in context until memory tells them apart."""
    names = episode_names(scored.table.providers, scored.probes[row.task_id])
    groups: dict[str, _InGroup] = {}
    for key, episode in scored.run.facts.episodes(STAGE, [row.task_id]).items():
        provider = names.get(key.content_key, "")
        for record in episode.in_records:
            step = record.context.step
            fate = Fate(
                phase="in",
                task_id=row.task_id,
                provider=provider,
                in_mode=key.in_mode,
                repeat=key.repeat,
                step=step,
                fate="unscored",
            )
            reward = rewards.get((row.task_id, provider, key.in_mode, key.repeat, step))
            if reward is None:
                selection.drop("in", "unscored")
                selection.fates.append(fate)
                continue
            group = groups.setdefault(record.context.model_dump_json(), _InGroup(record.context))
            group.taken[record.decision.action].append(_Taken(fate, episode.outcome.correct, reward))
    return [groups[text] for text in sorted(groups)]


def _better(group: _InGroup) -> InMode:
    """The action with more correct answers, then with the larger judge reward, no_op at a tie."""
    standing: dict[InMode, tuple[float, float]] = {
        action: (
            _share(one.correct for one in taken if one.correct is not None),
            math.fsum(one.reward for one in taken) / len(taken),
        )
        for action, taken in group.taken.items()
    }
    return max(standing, key=lambda name: (*standing[name], name == "no_op"))


def _in_fate(scored: Scored, taken: _Taken, chosen: bool) -> Fate:
    settings = scored.config.rewards
    if not chosen:
        fate = "the other action did better here"
    elif taken.reward < settings.eps_in:
        fate = "judge reward below eps_in"
    elif settings.in_requires_correct and not taken.correct:
        fate = "the run was not correct"
    else:
        fate = KEPT
    return taken.fate.model_copy(update={"fate": fate})


def _share(outcomes: Iterable[bool]) -> float:
    """Share of correct ones among scored outcomes; 0 where none is scored."""
    known = list(outcomes)
    return sum(known) / len(known) if known else 0.0


def _end(scored: Scored, selection: Selection, writer: MarksWriter | JsonWriter) -> Iterator[Draft]:
    """End: per provider with an open gate, whether what it kept was worth keeping: its reward reaches eps_end."""
    reward_of = {(fact.task_id, fact.provider): fact.reward for fact in scored.rewards if fact.phase == "end"}
    for row in scored.table.rows:
        ending = scored.endings.get(row.task_id)
        if ending is None:
            selection.drop("end", "no arm finished")
            continue
        targets: dict[str, float | None] = {}
        fates = []
        for card in ending.context.cards:
            reward = reward_of.get((row.task_id, card.name))
            if not card.accepts(ending.context.outcome):
                fate = "gate closed"
            elif reward is None:
                fate = "unscored"
            else:
                targets[card.name] = float(reward >= scored.config.rewards.eps_end)
                fate = KEPT if targets[card.name] else NEGATIVE
            fates.append(Fate(phase="end", task_id=row.task_id, provider=card.name, fate=fate))
        if targets:
            context = ending.context.told(scored.config.train.descriptors)
            yield Draft(writer.end(context, scored.place(row.task_id), targets), fates)
        else:
            selection.drop("end", "unscored: too few later tasks, or no open gate")
            selection.fates += fates


def _mean_rewards(rewards: Sequence[RewardFact]) -> dict[tuple[str, str], float]:
    """Mean judge reward at Begin per task and provider over the scored arms."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for fact in rewards:
        if fact.phase == "begin" and fact.reward is not None:
            values[fact.task_id, fact.provider].append(fact.reward)
    return {key: math.fsum(found) / len(found) for key, found in values.items()}
