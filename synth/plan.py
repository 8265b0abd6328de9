"""What a run would do, told before it is done: tasks, arms, episodes and rough minutes of each stage."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from providers.embedder import load_encoder
from providers.errors import ConfigError, SuiteError
from providers.registry import provider_cards
from providers.types import Flow, Split
from router.policies.registry import AVERAGE, POLICY_NAMES
from synth.config import RunConfig
from synth.models import Models
from synth.plugins import load_agent, load_distiller, load_suite

EPISODES_PER_SECOND = 33.0
"""Of the embedded suite and agent on two cores, model-free; episodes with a language model are far slower."""
ROUTED_PER_SECOND = 3.0
"""Prompts that the 135M router reads per second on two cores."""
STARTING_MINUTES = 0.3
"""Loading the encoder, the suite and the memories."""


class StagePlan(Flow):
    """One stage before it is run. `episodes` is an upper bound: equal episodes are run once."""

    stage: str
    does: str
    tasks: int = 0
    arms: int = 0
    """Ways in which each task is run."""
    episodes: int = 0
    minutes: float = 0.0


class Plan(Flow):
    """All stages that a command would run."""

    run: str
    """The run's folder."""
    stages: tuple[StagePlan, ...]
    episodes: int
    minutes: float


def plan(config: RunConfig, stages: Sequence[str], split: str = "dev") -> Plan:
    """What `stages` would do; `split` is the one that evaluation uses.

    Raises ConfigError where a stage would have nothing to work on, where a split has fewer tasks than are asked for, or
    where a provider, suite, agent, distiller or encoder is unknown or refuses its options.
    """
    _check_plugins(config)
    plans = tuple(_PLANNERS[stage](config, split) for stage in stages)
    _check_tasks(config, {"warmup", "explore"} & set(stages) | ({split} if "evaluate" in stages else set()))
    return Plan(
        run=str(config.runs_dir / config.name),
        stages=plans,
        episodes=sum(stage.episodes for stage in plans),
        minutes=round(sum(stage.minutes for stage in plans), 1),
    )


def _check_plugins(config: RunConfig) -> None:
    """Find everything that the config names now, before a run's folder is made with names that cannot work."""
    if not config.providers:
        raise ConfigError("providers is empty, so there is nothing to choose from; name at least one.")
    twice = sorted({name for name in config.providers if config.providers.count(name) > 1})
    if twice:
        raise ConfigError(f"providers names {', '.join(twice)} more than once; name each provider once.")
    cards = provider_cards(config.providers)
    if config.evaluate.policies != "all":
        known = [*POLICY_NAMES, AVERAGE, *(card.name for card in cards)]
        for name in config.evaluate.policies:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
                raise ConfigError(f"evaluate.policies: there is no policy {name!r} (nearest: {near}).")
    models = Models(config.models)
    load_agent(config.agent.name, config.agent.options, models)
    load_distiller(config.distiller, models)
    load_encoder(config.encoder.name, config.encoder.options)
    load_suite(config.suite.name, config.seed, config.suite.options)


def _check_tasks(config: RunConfig, splits: set[str]) -> None:
    """Ask the suite for the tasks of `splits`, so that one that is too small is not found after the others were run."""
    suite = load_suite(config.suite.name, config.seed, config.suite.options)
    for split in sorted(splits):
        wanted: int = getattr(config.suite, split)
        try:
            found = len(suite.tasks(Split(split), wanted))
        except SuiteError as error:
            raise ConfigError(str(error)) from error
        if found < wanted:
            raise ConfigError(
                f"the task suite {config.suite.name!r} has {found} {split} tasks, not {wanted}: lower suite.{split}."
            )


def _tasks(config: RunConfig, split: str, stage: str) -> int:
    count: int = getattr(config.suite, split)
    if count == 0:
        raise ConfigError(f"suite.{split} is 0, so {stage} has no task to run; set it to 1 or more.")
    return count


def _warmup(config: RunConfig, split: str) -> StagePlan:
    tasks = config.suite.warmup
    episodes = tasks * config.warmup.tries * config.warmup.passes
    return StagePlan(
        stage="warmup",
        does=f"{tasks} tasks dealt to no memory and {len(config.providers)} providers, "
        f"at most {config.warmup.tries} tries in each of {config.warmup.passes} passes",
        tasks=tasks,
        arms=1,
        episodes=episodes,
        minutes=_minutes(episodes),
    )


def _explore(config: RunConfig, split: str) -> StagePlan:
    tasks = _tasks(config, "explore", "exploration")
    arms = (1 + len(config.providers)) * len(config.explore.in_modes) * config.explore.repeats
    return StagePlan(
        stage="explore",
        does=f"{tasks} tasks under {arms} arms in {config.explore.waves} waves",
        tasks=tasks,
        arms=arms,
        episodes=tasks * arms,
        minutes=_minutes(tasks * arms),
    )


def _score(config: RunConfig, split: str) -> StagePlan:
    return StagePlan(
        stage="score", does=f"rewards by correctness, judge ({config.rewards.judge}) and reuse", minutes=0.2
    )


def _build(config: RunConfig, split: str) -> StagePlan:
    return StagePlan(stage="build", does=f"rows for Begin, In and End in the {config.train.codec} codec", minutes=0.2)


def _train(config: RunConfig, split: str) -> StagePlan:
    limit = config.train.max_minutes
    return StagePlan(
        stage="train",
        does=f"heads in seconds; LoRA on {config.train.base} "
        + (f"for at most {limit:g} minutes" if limit is not None else "without a time limit"),
        minutes=(limit or 0.0) + STARTING_MINUTES,
    )


def _evaluate(config: RunConfig, split: str) -> StagePlan:
    tasks = _tasks(config, split, "evaluation")
    arms = (1 + len(config.providers)) * config.evaluate.repeats
    shuffled = len(config.providers) * config.evaluate.repeats if config.evaluate.shuffle else 0
    draws = max(1 + len(config.providers), config.evaluate.repeats)
    alone = draws if config.evaluate.alone else 0  # draws - repeats bare ones are new, repeats with working memory
    episodes = tasks * (arms + shuffled + alone)
    reading = 3 * tasks / ROUTED_PER_SECOND / 60
    more = [f"{shuffled} shuffled ones"] * bool(shuffled) + [f"{alone} without long-term memory"] * bool(alone)
    return StagePlan(
        stage="evaluate",
        does=f"{tasks} {split} tasks under {', '.join([f'{arms} arms', *more])}; then every policy is replayed on them",
        tasks=tasks,
        arms=arms + shuffled + alone,
        episodes=episodes,
        minutes=round(_minutes(episodes) + reading, 1),
    )


def _report(config: RunConfig, split: str) -> StagePlan:
    return StagePlan(stage="report", does="one self-contained HTML page", minutes=0.1)


def _minutes(episodes: int) -> float:
    return round(STARTING_MINUTES + episodes / EPISODES_PER_SECOND / 60, 1)


_PLANNERS: dict[str, Callable[[RunConfig, str], StagePlan]] = {
    "warmup": _warmup,
    "explore": _explore,
    "score": _score,
    "build": _build,
    "train": _train,
    "evaluate": _evaluate,
    "report": _report,
}
