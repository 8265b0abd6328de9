"""Training rows from the scored decisions (MemAgent 4.3, reward-filtered SFT data), split by task, with a card."""

from __future__ import annotations

import json
import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from providers.base import ProviderCard
from providers.errors import ConfigError
from providers.files import write_atomically
from providers.registry import provider_cards
from providers.types import Flow, content_hash
from router.codec import JsonCodec, MarksCodec, Prompt, codec, template_hash
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision, InMode
from router.table import RoutingTable, TableRow
from synth.facts import Probe, RewardFact
from synth.rewards import STAGE, episode_names, rewards_signature
from synth.runs import Run
from synth.success import is_empty, success_set

Phase = Literal["begin", "in", "end"]
Part = Literal["train", "validation"]
PARTS: tuple[Part, ...] = ("train", "validation")


class Row(Flow):
    """One training example.

    Codec marks: the i-th mark stands at the end of `segments[i]` and `targets[i]` is what candidate i should score,
    0 to 1, None without a label. Codec json: `prompt` and `completion`. The other codec's fields are empty.
    """

    phase: Phase
    task_id: str
    split: Part
    segments: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    targets: tuple[float | None, ...] = ()
    weight: float = 1.0
    prompt: str = ""
    completion: str = ""


@dataclass
class _Drops:
    """Why decisions or tasks gave no row."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, phase: Phase, reason: str) -> None:
        self.counts[f"{phase}: {reason}"] += 1


@dataclass(frozen=True)
class _Scored:
    """What a dataset is made of."""

    run: Run
    table: RoutingTable
    probes: Mapping[str, Probe]
    cards: tuple[ProviderCard, ...]
    rewards: Sequence[RewardFact]
    in_rewards: Mapping[tuple[str, str, str, int, int], float | None]
    """By task, episode name, In mode, repeat and step."""
    writer: _MarksWriter | _JsonWriter
    drops: _Drops

    def part(self, task_id: str) -> Part:
        """Validation or train by the hash of the task's id, so that a task's rows stay together."""
        share = int(content_hash("validation", task_id)[:8], 16) / 2**32
        return "validation" if share < self.run.config.dataset.validation_share else "train"


def build(run: Run) -> None:
    """Write `dataset/train.jsonl`, `dataset/validation.jsonl` and `dataset/card.json` from the scored decisions."""
    facts, config = run.facts, run.config
    if facts.mark("rewards") != rewards_signature(run):
        raise ConfigError(
            "the decisions are not scored with these settings: run `memroute score` with this config first"
        )
    cards = provider_cards(config.providers)
    settings = _settings(run, cards)
    if _card_settings(run) == settings:
        print("build: done already", file=sys.stderr)
        return
    table = RoutingTable.load(run.table(STAGE))
    rewards = facts.rewards(rewards_signature(run))
    scored = _Scored(
        run=run,
        table=table,
        probes=facts.probes(STAGE, [row.task_id for row in table.rows]),
        cards=cards,
        rewards=rewards,
        in_rewards={(r.task_id, r.provider, r.in_mode, r.repeat, r.step): r.reward for r in rewards if r.phase == "in"},
        writer=_MarksWriter(codec("marks")) if config.train.codec == "marks" else _JsonWriter(codec("json")),
        drops=_Drops(),
    )
    rows = [
        *_capped(scored, "begin", _distinct(scored, _begin_rows(scored)), config.dataset.max_begin),
        *_capped(scored, "in", _distinct(scored, _in_rows(scored)), config.dataset.max_in),
        *_capped(scored, "end", _distinct(scored, _end_rows(scored)), config.dataset.max_end),
    ]
    for part in PARTS:
        lines = [row.model_dump_json() for row in rows if row.split == part]
        write_atomically(run.dataset / f"{part}.jsonl", "".join(f"{line}\n" for line in lines))
    card = _card(rows, scored.drops, settings)
    write_atomically(run.dataset / "card.json", json.dumps(card, indent=2) + "\n")
    _tell(card)


def load_rows(run: Run, split: Part) -> list[Row]:
    """The rows of one part, in the order of the file."""
    path = run.dataset / f"{split}.jsonl"
    if not path.exists():
        raise ConfigError(f"{path} does not exist: run `memroute build` with this config first")
    return [Row.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def dataset_hash(rows: Sequence[Row]) -> str:
    """The identity of a dataset: over its rows, whatever their order."""
    return content_hash("dataset", sorted(row.model_dump_json() for row in rows))


class _MarksWriter:
    """Rows of the marks codec."""

    def __init__(self, chosen: MarksCodec) -> None:
        self._codec = chosen

    def begin(
        self, context: BeginContext, part: Part, targets: Mapping[str, float | None], kept: Sequence[str]
    ) -> Iterator[Row]:
        """One row: what every arm achieved."""
        yield self._row("begin", context.task_id, part, self._codec.begin(context), targets)

    def in_(self, context: InContext, part: Part, action: InMode) -> Row:
        prompt = self._codec.in_(context)
        return self._row("in", context.task_id, part, prompt, {prompt.candidates[0]: float(action == "query")})

    def end(self, context: EndContext, part: Part, targets: Mapping[str, float | None]) -> Row:
        return self._row("end", context.task_id, part, self._codec.end(context), targets)

    @staticmethod
    def _row(phase: Phase, task_id: str, part: Part, prompt: Prompt, targets: Mapping[str, float | None]) -> Row:
        return Row(
            phase=phase,
            task_id=task_id,
            split=part,
            segments=prompt.segments,
            candidates=prompt.candidates,
            targets=tuple(targets.get(candidate) for candidate in prompt.candidates),
        )


class _JsonWriter:
    """Rows of the json codec."""

    def __init__(self, chosen: JsonCodec) -> None:
        self._codec = chosen

    def begin(
        self, context: BeginContext, part: Part, targets: Mapping[str, float | None], kept: Sequence[str]
    ) -> Iterator[Row]:
        """One row per kept decision."""
        for provider in kept:
            decision = BeginDecision(providers=(provider,))
            yield self._row("begin", context.task_id, part, self._codec.begin(context), decision)

    def in_(self, context: InContext, part: Part, action: InMode) -> Row:
        return self._row("in", context.task_id, part, self._codec.in_(context), InDecision(action=action))

    def end(self, context: EndContext, part: Part, targets: Mapping[str, float | None]) -> Row:
        chosen = tuple(name for name, target in targets.items() if target == 1.0)
        return self._row("end", context.task_id, part, self._codec.end(context), EndDecision(providers=chosen))

    def _row(
        self,
        phase: Phase,
        task_id: str,
        part: Part,
        prompt: Prompt,
        decision: BeginDecision | InDecision | EndDecision,
    ) -> Row:
        completion = self._codec.completion(decision)
        return Row(phase=phase, task_id=task_id, split=part, prompt=prompt.text, completion=completion)


def _begin_rows(scored: _Scored) -> Iterator[Row]:
    """Begin: a proper subset keeps every succeeding provider, all succeeding keeps the top k by the judge, none drops
    the task; a decision whose judge reward is 0 is no positive example."""
    config = scored.run.config
    judge = _means(scored.rewards, "begin")
    for row in scored.table.rows:
        success = success_set(row, scored.table.providers, config.explore.positive)
        if success.kind == "none":
            scored.drops.add("begin", "no provider succeeded" if success.providers else "nothing was retrieved")
            continue
        rated = [name for name in success.succeeding if judge.get((row.task_id, name)) != 0.0]
        for _ in range(len(success.succeeding) - len(rated)):
            scored.drops.add("begin", "decision with judge reward 0")
        if success.kind == "all":
            rated.sort(key=lambda name: -(judge.get((row.task_id, name)) or 0.0))
            for _ in rated[config.rewards.top_k :]:
                scored.drops.add("begin", "decision outside the top k")
            rated = rated[: config.rewards.top_k]
        if not rated:
            scored.drops.add("begin", "no decision left")
            continue
        yield from scored.writer.begin(
            _begin_context(row, scored.cards), scored.part(row.task_id), _begin_targets(scored, row, rated), rated
        )


def _begin_context(row: TableRow, cards: tuple[ProviderCard, ...]) -> BeginContext:
    return BeginContext(task_id=row.task_id, question=row.question, previews=row.previews, cards=cards)


def _begin_targets(scored: _Scored, row: TableRow, kept: Sequence[str]) -> dict[str, float | None]:
    """Every arm's mean correctness; None where nothing was retrieved, or where success is no kept decision."""
    positive = scored.run.config.explore.positive
    success = success_set(row, scored.table.providers, positive)
    targets: dict[str, float | None] = {}
    for name in scored.table.providers:
        unlabelled = is_empty(row, name) or (name in success.succeeding and name not in kept)
        targets[name] = None if unlabelled else row.correctness(name)
    return targets


@dataclass
class _InGroup:
    """All decisions that were taken in one In context: (correct, judge reward) by action."""

    context: InContext
    taken: dict[InMode, list[tuple[bool | None, float]]] = field(default_factory=lambda: defaultdict(list))


def _in_rows(scored: _Scored) -> Iterator[Row]:
    """In: the action that did better in this context, if its judge reward reaches eps_in."""
    for row in scored.table.rows:
        for group in _in_groups(scored, row):
            action = _better(scored, group)
            if action is not None:
                yield scored.writer.in_(group.context, scored.part(row.task_id), action)


def _in_groups(scored: _Scored, row: TableRow) -> list[_InGroup]:
    """The task's In decisions by context, in a fixed order; arms agree in context until memory tells them apart."""
    names = episode_names(scored.table.providers, scored.probes[row.task_id])
    groups: dict[str, _InGroup] = {}
    for key, episode in scored.run.facts.episodes(STAGE, [row.task_id]).items():
        for record in episode.in_records:
            step = record.context.step
            reward = scored.in_rewards.get((row.task_id, names.get(key.content_key, ""), key.in_mode, key.repeat, step))
            if reward is None:
                scored.drops.add("in", "unscored")
                continue
            group = groups.setdefault(record.context.model_dump_json(), _InGroup(record.context))
            group.taken[record.decision.action].append((episode.outcome.correct, reward))
    return [groups[text] for text in sorted(groups)]


def _better(scored: _Scored, group: _InGroup) -> InMode | None:
    """The action with more correct answers, then with the larger judge reward, no_op at a tie; None where what it
    achieved does not pass the filter."""
    standing: dict[InMode, tuple[float, float]] = {
        action: (
            _share(correct for correct, _ in taken if correct is not None),
            math.fsum(reward for _, reward in taken) / len(taken),
        )
        for action, taken in group.taken.items()
    }
    action = max(standing, key=lambda name: (*standing[name], name == "no_op"))
    settings = scored.run.config.rewards
    passing = [
        reward
        for correct, reward in group.taken[action]
        if reward >= settings.eps_in and (correct or not settings.in_requires_correct)
    ]
    if not passing:
        scored.drops.add("in", "below eps_in, or not correct")
        return None
    return action


def _share(outcomes: Iterable[bool]) -> float:
    """Share of correct ones among scored outcomes; 0 where none is scored."""
    known = list(outcomes)
    return sum(known) / len(known) if known else 0.0


def _end_rows(scored: _Scored) -> Iterator[Row]:
    """End: per provider with an open gate, whether what it kept was reused well enough later."""
    reward_of = {(fact.task_id, fact.provider): fact.reward for fact in scored.rewards if fact.phase == "end"}
    endings = scored.run.facts.endings(STAGE)
    for row in scored.table.rows:
        ending = endings.get(row.task_id)
        if ending is None:
            scored.drops.add("end", "no arm finished")
            continue
        targets: dict[str, float | None] = {}
        for card in ending.context.cards:
            reward = reward_of.get((row.task_id, card.name))
            if card.accepts(ending.context.outcome) and reward is not None:
                targets[card.name] = float(reward >= scored.run.config.rewards.eps_end)
        if not targets:
            scored.drops.add("end", "unscored: too few later tasks, or no open gate")
            continue
        yield scored.writer.end(ending.context, scored.part(row.task_id), targets)


def _means(rewards: Sequence[RewardFact], phase: Phase) -> dict[tuple[str, str], float]:
    """Mean judge reward per task and provider over the scored arms."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for fact in rewards:
        if fact.phase == phase and fact.reward is not None:
            values[fact.task_id, fact.provider].append(fact.reward)
    return {key: math.fsum(found) / len(found) for key, found in values.items()}


def _distinct(scored: _Scored, rows: Iterator[Row]) -> list[Row]:
    """The rows without repetitions of equal content."""
    found: dict[str, Row] = {}
    for row in rows:
        text = row.model_dump_json()
        if text in found:
            scored.drops.add(row.phase, "the same row again")
        found.setdefault(text, row)
    return list(found.values())


def _capped(scored: _Scored, phase: Phase, rows: list[Row], most: int | None) -> list[Row]:
    """At most `most` rows, drawn by seed, in their order."""
    if most is None or len(rows) <= most:
        return rows
    scored.drops.counts[f"{phase}: above the cap"] += len(rows) - most
    kept = random.Random(content_hash("cap", scored.run.config.seed, phase)).sample(range(len(rows)), most)
    return [rows[place] for place in sorted(kept)]


def _settings(run: Run, cards: tuple[ProviderCard, ...]) -> str:
    config = run.config
    return content_hash(
        rewards_signature(run),
        config.seed,
        config.rewards.model_dump(mode="json"),
        config.dataset.model_dump(mode="json"),
        config.train.codec,
        template_hash(config.train.codec, cards),
    )


def _card_settings(run: Run) -> str | None:
    path = run.dataset / "card.json"
    if not path.exists():
        return None
    card = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for part in PARTS if (run.dataset / f"{part}.jsonl").exists() for row in load_rows(run, part)]
    return str(card["settings"]) if card.get("hash") == dataset_hash(rows) else None


def _card(rows: Sequence[Row], drops: _Drops, settings: str) -> dict[str, Any]:
    """What stands in the dataset: rows per phase and part, labels per candidate, reasons for what was dropped."""
    labels: dict[str, dict[str, Counter[str]]] = {}
    for row in rows:
        for candidate, target in zip(row.candidates, row.targets, strict=True):
            of_phase = labels.setdefault(row.phase, {}).setdefault(candidate, Counter())
            of_phase["none" if target is None else "yes" if target >= 0.5 else "no"] += 1
        if row.completion:
            labels.setdefault(row.phase, {}).setdefault(row.completion, Counter())["yes"] += 1
    return {
        "hash": dataset_hash(rows),
        "settings": settings,
        "rows": {part: dict(Counter(row.phase for row in rows if row.split == part)) for part in PARTS},
        "labels": {phase: {name: dict(count) for name, count in sorted(of.items())} for phase, of in labels.items()},
        "dropped": dict(sorted(drops.counts.items())),
    }


def _tell(card: Mapping[str, Any]) -> None:
    rows = card["rows"]
    parts = (
        f"{part} {', '.join(f'{phase} {count}' for phase, count in rows[part].items()) or 'none'}" for part in PARTS
    )
    print(f"build: rows: {'; '.join(parts)}; hash {card['hash']}", file=sys.stderr)
    for reason, count in card["dropped"].items():
        print(f"build: dropped {count}: {reason}", file=sys.stderr)
