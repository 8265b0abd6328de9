"""What a run would do, told before it is done: tasks, arms, episodes and rough minutes of each stage."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence

from providers.embedder import load_encoder
from providers.errors import ConfigError, SuiteError
from providers.registry import provider_cards
from providers.types import Flow, Split
from router.policies.registry import AVERAGE, ONLINE_ONLY, POLICY_NAMES
from synth.agents.base import TaskAgent
from synth.config import RunConfig
from synth.models import Models, price_of
from synth.pace import Pace, bounded, measured
from synth.plugins import load_agent, load_distiller, load_own_judge, load_suite
from synth.tasks.base import DataMissing

CANDIDATES_PER_SECOND = 15.0
"""Candidates that the 135M router reads per second on two cores: three prompts of five providers each."""
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
    minutes: float | None = 0.0
    tokens: int | None = 0
    """Of the task agent's model, as far as it can be known."""
    cost: float | None = 0.0
    """US dollars of the task agent's model; None where unknown."""


class Plan(Flow):
    """All stages that a command would run."""

    run: str
    """The run's folder."""
    stages: tuple[StagePlan, ...]
    episodes: int
    minutes: float | None
    tokens: int | None
    cost: float | None
    source: str
    """What the estimates are made from."""
    prices: str = ""
    """Where the cost's prices come from; empty where no model is asked."""
    uncounted: tuple[str, ...] = ()
    """What else models are asked for, whose calls show only when they are made: not in tokens and cost."""
    missing: tuple[str, ...] = ()
    """Data that are not on this machine, and how they get there: before that nothing can be run."""


def plan(config: RunConfig, stages: Sequence[str], split: str = "dev") -> Plan:
    """What `stages` would do; `split` is the one that evaluation uses.

    Raises ConfigError where a stage would have nothing to work on, where a split has fewer tasks than are asked for, or
    where a provider, suite, agent, distiller or encoder is unknown or refuses its options.
    """
    models, agent = _check_plugins(config)
    known = measured(config)
    paces = [known or bounded(config, agent, _steps(config, stage)) for stage in stages]
    plans = tuple(_priced(_PLANNERS[stage](config, split), pace) for stage, pace in zip(stages, paces, strict=True))
    splits = {"warmup", "explore"} & set(stages) | ({split} if "evaluate" in stages else set())
    missing = _check_tasks(config, models, splits)
    minutes, tokens, cost = (_sum(getattr(stage, name) for stage in plans) for name in ("minutes", "tokens", "cost"))
    return Plan(
        run=str(config.runs_dir / config.name),
        stages=plans,
        episodes=sum(stage.episodes for stage in plans),
        minutes=None if minutes is None else round(minutes, 1),
        tokens=None if tokens is None else round(tokens),
        cost=cost,
        source=paces[0].source,
        prices=_prices(config),
        uncounted=_uncounted(config, stages),
        missing=missing,
    )


def describe(planned: Plan) -> str:
    """The plan for people."""
    lines = [f"Nothing is done (--dry-run). In {planned.run}:"]
    for stage in planned.stages:
        episodes = f", at most {stage.episodes:,} episodes" if stage.episodes else ""
        lines.append(f"  {stage.stage:<9} {stage.does}{episodes}, {_duration(stage.minutes)}")
    tokens = "an unknown number of tokens" if planned.tokens is None else f"{planned.tokens:,} tokens"
    cost = "unknown" if planned.cost is None else f"${planned.cost:,.2f}"
    lines += [
        f"Together at most {planned.episodes:,} episodes, {tokens} of the agent's model (cost: {cost}),"
        f" {_duration(planned.minutes)}.",
        f"Estimated from {planned.source}; what stands in the folder already is not done again.",
    ]
    if planned.prices:
        lines.append(planned.prices)
    if planned.uncounted:
        lines.append(f"Not counted: what the models of {', '.join(planned.uncounted)} are asked.")
    if planned.tokens is None:
        lines.append("Run some episodes first (`memroute explore CONFIG --max-episodes 20`), then ask again.")
    lines += [f"Before that: {sentence}" for sentence in planned.missing]
    return "\n".join(lines)


def _prices(config: RunConfig) -> str:
    """Whose prices the cost is made with: nobody asks the endpoint for them."""
    endpoint = config.models.agent
    if endpoint is None:
        return ""
    price = price_of(endpoint)
    if price is None:
        return f"No price of {endpoint.model} is known: give prompt_price and completion_price in models.agent."
    return (
        f"Prices are the config's own, not asked of the endpoint: {endpoint.model} at ${price.prompt:g} and "
        f"${price.completion:g} per million tokens of prompts and answers; compare them with its list."
    )


def _uncounted(config: RunConfig, stages: Sequence[str]) -> tuple[str, ...]:
    """Purposes beside the agent for which `stages` ask a model."""
    runs = bool({"warmup", "explore", "evaluate"} & set(stages))
    asked = {
        "distiller": runs and config.distiller == "lm",
        "verifier": runs and config.verifier == "lm" and config.governance != "off",
        "scorer": runs and config.suite.name == "questions" and config.models.scorer is not None,
        "judge": "score" in stages and config.rewards.judge == "lm",
        "router": "evaluate" in stages and config.models.router is not None,
    }
    return tuple(purpose for purpose, is_asked in asked.items() if is_asked)


def _duration(minutes: float | None) -> str:
    if minutes is None:
        return "time unknown"
    return f"about {minutes:g} min" if minutes < 120 else f"about {minutes / 60:.1f} hours"


def _priced(stage: StagePlan, pace: Pace) -> StagePlan:
    """The plan of a stage with what its episodes take."""
    if not stage.episodes:
        return stage
    minutes = None if pace.seconds is None else STARTING_MINUTES + stage.episodes * pace.seconds / 60
    return stage.model_copy(
        update={
            "minutes": None if minutes is None else round(minutes + (stage.minutes or 0.0), 1),
            "tokens": None if pace.tokens is None else round(stage.episodes * pace.tokens),
            "cost": None if pace.cost is None else round(stage.episodes * pace.cost, 4),
        }
    )


def _steps(config: RunConfig, stage: str) -> int:
    """Most steps of an episode of a stage."""
    if stage == "warmup":
        return config.agent.warmup_max_steps
    if stage == "evaluate" and config.evaluate.agent is not None:
        return config.evaluate.agent.max_steps
    return config.agent.max_steps


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value or 0 for value in known)


def _check_plugins(config: RunConfig) -> tuple[Models, TaskAgent]:
    """Find everything that the config names now, before a run's folder is made with names that cannot work."""
    if not config.providers:
        raise ConfigError("providers is empty, so there is nothing to choose from; name at least one.")
    twice = sorted({name for name in config.providers if config.providers.count(name) > 1})
    if twice:
        raise ConfigError(f"providers names {', '.join(twice)} more than once; name each provider once.")
    cards = provider_cards(config.providers)
    if not isinstance(config.evaluate.policies, str):
        known = [*POLICY_NAMES, AVERAGE, *(card.name for card in cards)]
        for name in config.evaluate.policies:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
                raise ConfigError(f"evaluate.policies: there is no policy {name!r} (nearest: {near}).")
    models = Models(config.models, base=config.train.base)
    agent = load_agent(config.agent.name, config.agent.options, models)
    load_distiller(config.distiller, models)
    if config.rewards.judge == "lm":
        models.get("judge")
    elif config.rewards.judge != "rules":
        load_own_judge(config.rewards.judge, models)
    load_encoder(config.encoder.name, config.encoder.options)
    load_suite(config.suite.name, config.seed, config.suite.options, models)
    return models, agent


def _check_tasks(config: RunConfig, models: Models, splits: set[str]) -> tuple[str, ...]:
    """Ask the suite for the tasks of `splits`, so that one that is too small is not found after the others were run.

    Gives what is to be done first where data are not on this machine.
    """
    missing: dict[str, None] = {}
    suite = load_suite(config.suite.name, config.seed, config.suite.options, models)
    for split in sorted(splits):
        wanted: int = getattr(config.suite, split)
        try:
            found = len(suite.tasks(Split(split), wanted))
        except DataMissing as error:
            missing.update(dict.fromkeys(error.each))
            continue
        except SuiteError as error:
            raise ConfigError(str(error)) from error
        if found < wanted:
            raise ConfigError(
                f"the task suite {config.suite.name!r} has {found} {split} tasks, not {wanted}: lower suite.{split}."
            )
    return tuple(missing)


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
    )


def _explore(config: RunConfig, split: str) -> StagePlan:
    tasks = _tasks(config, "explore", "exploration")
    arms = (1 + len(config.providers)) * len(config.explore.in_modes) * config.explore.repeats
    budget = config.explore.budget
    episodes = tasks * arms if budget is None else max(config.explore.waves, round(tasks * arms * budget.share))
    part = "" if budget is None else f", {budget.share:.0%} of them (explore.budget)"
    return StagePlan(
        stage="explore",
        does=f"{tasks} tasks under {arms} arms in {config.explore.waves} waves{part}",
        tasks=tasks,
        arms=arms,
        episodes=min(episodes, config.explore.max_episodes or episodes),
    )


def _score(config: RunConfig, split: str) -> StagePlan:
    judge = config.rewards.judge
    does = f"rewards by correctness, judge ({judge}) and reuse"
    # What a model takes for each decision shows when it is asked.
    return StagePlan(stage="score", does=does, minutes=0.2 if judge == "rules" else None)


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
    online = _online_streams(config)
    streamed = min(tasks, config.evaluate.online.tasks) * config.evaluate.online.seeds * online
    episodes = tasks * (arms + shuffled + alone) + streamed
    read = 3 * tasks * len(config.providers) + _online_candidates(config, tasks)
    reading = read / CANDIDATES_PER_SECOND / 60
    more = [f"{shuffled} shuffled ones"] * bool(shuffled) + [f"{alone} without long-term memory"] * bool(alone)
    more += [f"{online} policies in fresh runs of their own"] * bool(online)
    return StagePlan(
        stage="evaluate",
        does=f"{tasks} {split} tasks under {', '.join([f'{arms} arms', *more])}; then every policy is replayed on them",
        tasks=tasks,
        arms=arms + shuffled + alone,
        episodes=episodes,
        minutes=reading,
    )


def _online_streams(config: RunConfig) -> int:
    """Policies that run afresh: those that replay cannot say, and none, working memory and the best single beside."""
    own = _online_names(config)
    return len(own) + 3 if own else 0


def _online_names(config: RunConfig) -> list[str]:
    chosen = ONLINE_ONLY if config.evaluate.policies == "all" else config.evaluate.policies
    return [name for name in ONLINE_ONLY if name in chosen]


def _online_candidates(config: RunConfig, tasks: int) -> int:
    """Candidates that the language model reads in fresh runs: all at Begin and End, one where it takes In, which it is
    asked before about two steps of three."""
    all_of_them, within = len(config.providers), 2 * config.agent.max_steps // 3
    each = {"router": 2 * all_of_them + within, "in_always": 2 * all_of_them, "in_never": 2 * all_of_them}
    each |= dict.fromkeys(("store_all", "store_none"), all_of_them + within)
    streamed = min(tasks, config.evaluate.online.tasks) * config.evaluate.online.seeds
    return streamed * sum(each.get(name, 0) for name in _online_names(config))


def _report(config: RunConfig, split: str) -> StagePlan:
    return StagePlan(stage="report", does="one self-contained HTML page", minutes=0.1)


_PLANNERS: dict[str, Callable[[RunConfig, str], StagePlan]] = {
    "warmup": _warmup,
    "explore": _explore,
    "score": _score,
    "build": _build,
    "train": _train,
    "evaluate": _evaluate,
    "report": _report,
}
