"""Policies compared by replay: each takes its Begin decision on every task, and the table says what that arm gave."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from evaluation.comparison import IN_ONLY, Material, compare
from evaluation.online import online_names, run_online
from evaluation.online_comparison import with_online
from evaluation.result import ROUTERS, DecisionLog, Decisions, Evaluation
from evaluation.tokens import chars_per_token
from providers.base import ProviderCard
from providers.errors import ConfigError, EngineError, ModelError
from providers.types import content_hash
from router.codec import decide_begin, empty_previews, template_hash
from router.context import BeginContext
from router.decisions import NONE, BeginDecision, Policy, ScoringPolicy
from router.policies.average import averaged
from router.policies.registry import ABLATIONS, AVERAGE, ONLINE_ONLY, PolicyMaterial, RouterName, build_policies
from router.table import RoutingTable
from synth.explore import arms_name, run_alone, run_arms, run_arms_shuffled
from synth.tables import changed_by_in_mode

if TYPE_CHECKING:
    from synth.config import AgentConfig, RunConfig
    from synth.runs import Run

RANDOM_SEEDS = 20
"""Policy seeds over which `random` is averaged."""

SLOW = ("prompt_route", "untrained", "trained", AVERAGE, *ABLATIONS)
"""Policies that ask a language model: their decisions are kept and not asked again while their material stands."""

BATCH = 32
"""Tasks that a policy which scores is given at once."""

COMPARED = (
    NONE,
    "random",
    "overlap",
    "cosine",
    "knn",
    "prompt_route_rules",
    "prompt_route",
    "untrained",
    "trained",
    "heads",
)
"""What `evaluate.policies: standard` means, beside every single provider and the average of the two trained routers."""


async def evaluate(run: Run, split: str = "dev") -> Evaluation:
    """Compare all policies on a split; written to `run.evaluation/<split>.json`, decisions beside it.

    Runs the split's arms where they do not stand yet. A policy whose material is missing, or whose model fails, is
    reported as missing with the mend. Safe to kill: decisions that were taken on the same material are not asked again.
    """
    config, other = run.config, run.config.evaluate.agent
    if other is None or other == config.agent:
        return await _evaluate(run, split, config.agent.name)
    run.config = config.model_copy(update={"agent": other})
    try:
        return await _evaluate(run, split, _told_apart(other, config.agent))
    finally:
        run.config = config


def _told_apart(agent: AgentConfig, own: AgentConfig) -> str:
    """The other agent's name, and what is different about it where that is not its name."""
    if agent.name != own.name:
        return agent.name
    known = own.model_dump()
    changed = [f"{key} {value}" for key, value in agent.model_dump().items() if value != known[key]]
    return f"{agent.name}, {', '.join(changed)}"


async def _evaluate(run: Run, split: str, agent: str) -> Evaluation:
    config = run.config
    explore = _explore_table(run)
    table = await run_arms(run, split)
    shuffled = await run_arms_shuffled(run, split) if config.evaluate.shuffle else None
    alone = await run_alone(run, split) if config.evaluate.alone else None
    asking = _Asking(run, table, explore)
    asked = await asking.all()
    rate = chars_per_token(run, split)
    changed, pairs = changed_by_in_mode(explore)
    evaluation = compare(
        Material(
            run=config.name,
            agent=agent,
            seed=config.seed,
            table=table,
            explore=explore,
            cards=_cards(run),
            decisions=asked.log.policies,
            resamples=config.evaluate.bootstrap,
            repeats=config.evaluate.repeats,
            shuffled=shuffled,
            alone=alone,
            chars_per_token=rate,
            codec=config.train.codec,
            missing=asked.missing,
            in_mode_changes=changed / pairs if pairs else None,
            recommended_on_dev=recommended_on_dev(run),
        )
    )
    names = online_names(policy_names(config, _cards(run)), evaluation.best_single)
    if names:
        ran = await run_online(run, split, names, asking.online_material(asked.log.policies), asking.stamp())
        evaluation = with_online(
            evaluation,
            ran.streams,
            router=ran.router,
            missing=ran.missing,
            resamples=config.evaluate.bootstrap,
            chars_per_token=rate,
        )
    evaluation.save(run.evaluation / f"{arms_name(config, split)}.json")
    return evaluation


def contexts_of(table: RoutingTable, cards: tuple[ProviderCard, ...]) -> list[BeginContext]:
    """What a policy sees of each task: never its family or an outcome."""
    return [
        BeginContext(
            task_id=row.task_id,
            question=row.question,
            embedding=np.asarray(row.embedding, dtype=np.float32) if row.embedding else None,
            previews=row.previews,
            cards=cards,
        )
        for row in table.rows
    ]


@dataclass(frozen=True)
class Asked:
    """The decisions of all policies that could be asked, and why the others could not."""

    log: DecisionLog
    missing: dict[str, str]


class _Asking:
    """Asks the policies one after another, so that at most one model is in memory, and keeps every answer at once."""

    def __init__(self, run: Run, table: RoutingTable, explore: RoutingTable) -> None:
        self._run, self._table = run, table
        self._cards = _cards(run)
        self._contexts = contexts_of(table, self._cards)
        self._task_ids = tuple(row.task_id for row in table.rows)
        self._path = run.evaluation / f"{arms_name(run.config, table.split)}_decisions.json"
        self._common = content_hash(
            [context.model_dump(mode="json", exclude={"embedding"}) for context in self._contexts],
            explore.model_dump_json(exclude={"rows": {"__all__": {"cells": {"__all__": {"judge"}}}}}),
            run.config.seed,
            run.config.encoder.model_dump(mode="json"),
        )
        self._material = policy_material(run, explore, self._cards)
        self._scores: dict[str, np.ndarray] = {}
        self._kept = DecisionLog.load(self._path).policies if self._path.exists() else {}

    async def all(self) -> Asked:
        names = [name for name in policy_names(self._run.config, self._cards) if name not in (*ONLINE_ONLY, IN_ONLY)]
        made: dict[str, Decisions] = {}
        missing: dict[str, str] = {}
        for name in names:
            if name in ABLATIONS:
                self._material = dataclasses.replace(self._material, router=self.router(made))
            try:
                decisions = await self._one(name)
            except (EngineError, ModelError, _Missing) as error:
                missing[name] = str(error)
                print(f"evaluate: {name} is missing: {error}", file=sys.stderr)
                continue
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001  (one policy's fault is its own gap, and is named)
                missing[name] = f"it failed with {type(error).__name__}: {error}"
                print(f"evaluate: {name} is missing: {missing[name]}", file=sys.stderr)
                continue
            made[name] = decisions
            kept = {other: old for other, old in self._kept.items() if other not in made}
            DecisionLog(task_ids=self._task_ids, policies=made | kept).save(self._path)
        log = DecisionLog(task_ids=self._task_ids, policies=made)
        log.save(self._path)
        return Asked(log, missing)

    def online_material(self, made: Mapping[str, Decisions]) -> PolicyMaterial:
        """What online policies are built from; they share one language model."""
        return dataclasses.replace(self._material, router=self.router(made), loaded={})

    def stamp(self) -> str:
        """Changes with whatever a router is made of."""
        return content_hash({name: self._stamps(name) for name in (AVERAGE, "prompt_route")})

    def router(self, made: Mapping[str, Decisions]) -> RouterName:
        """The trained router that others build on: what dev recommended; on dev the best of those just asked."""
        known = recommended_on_dev(self._run) if self._table.split != "dev" else None
        scored = {name: self._accuracy(made[name]) for name in ROUTERS if name in made}
        best = known or max(scored, key=lambda name: scored[name], default="trained")
        return next(name for name in ROUTERS if name == best)

    def _accuracy(self, made: Decisions) -> float:
        values = [row.correctness(arm) for row, arm in zip(self._table.rows, made.arms[0], strict=True)]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else 0.0

    async def _one(self, name: str) -> Decisions:
        key = content_hash(name, self._common, self._stamps(name))
        kept = self._kept.get(name) if name in SLOW else None
        if kept is not None and kept.key == key:
            return kept
        if name == AVERAGE:
            decisions = await self._averaged()
        elif name == "random":
            seeds = [self._run.config.seed * 1000 + draw for draw in range(RANDOM_SEEDS)]
            return await self._lots(key, seeds)
        else:
            decisions = await self._ask(name, self._build(name, self._material))
        return Decisions(
            key=key,
            arms=(tuple(_single_arm(decision) for decision in decisions),),
            fallbacks=sum(decision.fallback for decision in decisions),
            constrained=sum(decision.constrained for decision in decisions),
        )

    async def _lots(self, key: str, seeds: Sequence[int]) -> Decisions:
        """A policy that depends on its seed alone, under several seeds."""
        rounds = []
        for seed in seeds:
            policy = self._build("random", dataclasses.replace(self._material, seed=seed))
            rounds.append(tuple(decision.arm for decision in await self._ask("random", policy)))
        return Decisions(key=key, arms=tuple(rounds))

    def _build(self, name: str, material: PolicyMaterial) -> Policy:
        # one language model in memory at a time
        built, missing = build_policies([name], dataclasses.replace(material, loaded={}))
        if name in missing:
            raise _Missing(missing[name])
        return built[name]

    async def _ask(self, name: str, policy: Policy) -> list[BeginDecision]:
        tasks, what = len(self._contexts), f"asking {name}"
        with tqdm(total=tasks, desc=what, unit="task", disable=None, leave=False, file=sys.stderr) as bar:
            if isinstance(policy, ScoringPolicy):
                rows = await self._score(name, policy, bar.update)
                return [policy.choose(context, row) for context, row in zip(self._contexts, rows, strict=True)]
            limit = asyncio.Semaphore(self._run.config.explore.concurrency if self._material.chat else 1)

            async def ask(context: BeginContext) -> BeginDecision:
                async with limit:
                    decision = await policy.begin(context)
                bar.update()
                return decision

            return await asyncio.gather(*(ask(context) for context in self._contexts))

    async def _score(self, name: str, policy: ScoringPolicy, advance: Callable[[int], object]) -> list[list[float]]:
        """All scores of a policy, kept for the average."""
        parts = []
        for start in range(0, len(self._contexts), BATCH):
            batch = self._contexts[start : start + BATCH]
            parts.append(await asyncio.to_thread(policy.score, batch))
            advance(len(batch))
        self._scores[name] = np.concatenate(parts)
        scores: list[list[float]] = self._scores[name].tolist()
        return scores

    async def _averaged(self) -> list[BeginDecision]:
        """Log-odds of both routers, averaged; asked again where the decisions were kept but not the scores."""
        for name in ("trained", "heads"):
            if name not in self._scores:
                policy = self._build(name, self._material)
                if not isinstance(policy, ScoringPolicy):
                    raise _Missing(f"{name} answers in words with train.codec {self._material.codec}, without scores")
                await self._ask(name, policy)
        scores = averaged(self._scores["trained"], self._scores["heads"])
        names = [card.name for card in self._cards]
        return [
            decide_begin(row, names, empty_previews(context))
            for context, row in zip(self._contexts, scores.tolist(), strict=True)
        ]

    def _stamps(self, name: str) -> dict[str, str]:
        """What else a policy's decisions depend on."""
        config, stamps = self._run.config, dict[str, str]()
        if name in ABLATIONS:
            stamps["router"] = self._material.router
        if name in ("trained", "untrained", AVERAGE, *ABLATIONS):
            # With marks nothing is decoded, so what was asked before this setting existed stands.
            decoding = (config.evaluate.constrained,) if config.train.codec == "json" else ()
            hashed = template_hash(config.train.codec, self._cards)
            stamps["train"] = content_hash(config.train.base, hashed, *decoding)
        if name in ("trained", AVERAGE, *ABLATIONS):
            stamps["adapter"] = _folder_hash(self._run.adapter)
        if name in ("heads", AVERAGE, *ABLATIONS):
            stamps["heads"] = _file_hash(self._run.heads)
        if name == "prompt_route":
            stamps["model"] = content_hash(
                config.train.base, config.models.router.model_dump(mode="json") if config.models.router else None
            )
        return stamps


class _Missing(Exception):
    """A policy cannot be asked; the message says why and what mends it."""


def policy_names(config: RunConfig, cards: Sequence[ProviderCard]) -> list[str]:
    """The policies that a config asks for, routers before what builds on them."""
    chosen = config.evaluate.policies
    standard = [*COMPARED[:2], *(card.name for card in cards), *COMPARED[2:], AVERAGE]
    if chosen == "standard":
        return standard
    if chosen == "all":
        return [*standard, *ABLATIONS, *ONLINE_ONLY]
    return sorted(dict.fromkeys(chosen), key=lambda name: name in ABLATIONS)


def _single_arm(decision: BeginDecision) -> str:
    if len(decision.providers) > 1:
        raise _Missing(f"it combines {len(decision.providers)} providers, and a routing table has single arms alone")
    return decision.arm


def _explore_table(run: Run) -> RoutingTable:
    path = run.table("explore")
    if not path.exists():
        raise ConfigError(
            f"there is no exploration table of {run.config.name}: run `memroute explore` with this config first"
        )
    return RoutingTable.load(path)


def _cards(run: Run) -> tuple[ProviderCard, ...]:
    from providers.registry import provider_cards

    return provider_cards(run.config.providers)


def policy_material(run: Run, explore: RoutingTable | None, cards: tuple[ProviderCard, ...]) -> PolicyMaterial:
    """What the run's policies are built from, as far as its stages have made it."""
    from providers.embedder import load_encoder

    config = run.config
    return PolicyMaterial(
        cards=cards,
        seed=config.seed,
        encoder=load_encoder(config.encoder.name, config.encoder.options, run.cache),
        explore_table=explore,
        heads_path=run.heads,
        adapter_path=run.adapter,
        base=config.train.base,
        codec=config.train.codec,
        constrained=config.evaluate.constrained,
        chat=run.models.get("router") if config.models.router else None,
    )


def recommended_on_dev(run: Run) -> str | None:
    """The trained router that the dev evaluation recommends; None before one."""
    path = run.evaluation / "dev.json"
    return Evaluation.load(path).recommended if path.exists() else None


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _folder_hash(folder: Path) -> str:
    return content_hash(sorted((path.name, _file_hash(path)) for path in folder.glob("*") if path.is_file()))
