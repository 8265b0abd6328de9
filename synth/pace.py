"""What an episode takes in time, tokens and money: as measured, or bounded by what the config allows."""

from __future__ import annotations

from dataclasses import dataclass

from synth.agents.base import TaskAgent
from synth.agents.react import ReAct
from synth.config import RunConfig
from synth.facts import Spent, read_spent
from synth.models import price_of

EPISODES_PER_SECOND = 33.0
"""Of the embedded suite and agent on two cores, model-free; episodes with a language model are far slower."""
STEP_SECONDS = 5.0
"""Assumed of one step of a language-model agent, its call and its tool together, until some were measured."""
LEAST_MEASURED = 10
"""Episodes of an earlier start from which an estimate is made."""


@dataclass(frozen=True)
class Pace:
    """What one episode takes; None where nothing is known yet."""

    seconds: float | None
    """Of the whole run, with as many episodes at a time as the config says."""
    tokens: float | None
    cost: float | None
    """US dollars."""
    source: str


def measured(config: RunConfig) -> Pace | None:
    """From the episodes that stand in the run's folder; None where they are too few."""
    database = config.runs_dir / config.name / "run.sqlite"
    spent = read_spent(database) if database.exists() else Spent()
    if spent.episodes < LEAST_MEASURED:
        return None
    return Pace(
        seconds=spent.seconds / spent.episodes / config.explore.concurrency,
        tokens=spent.tokens / spent.episodes,
        cost=None if spent.cost is None else spent.cost / spent.episodes,
        source=f"the {spent.episodes} episodes in the run's folder",
    )


def bounded(config: RunConfig, agent: TaskAgent, max_steps: int) -> Pace:
    """What an episode of so many steps takes at most, as far as the agent lets that be known."""
    endpoint = config.models.agent
    if endpoint is None:
        return Pace(1 / EPISODES_PER_SECOND, 0.0, 0.0, "the embedded suite and agent on two idle cores")
    if not isinstance(agent, ReAct):
        return Pace(None, None, None, "nothing yet, since the agent's model was never asked")
    most, price = agent.most_tokens(max_steps), price_of(endpoint)
    return Pace(
        seconds=max_steps * STEP_SECONDS / min(config.explore.concurrency, endpoint.concurrency),
        tokens=most.prompt_tokens + most.completion_tokens,
        cost=None if price is None else price.of(most),
        source=f"the most that the agent's settings allow, {STEP_SECONDS:g} s a step (assumed)",
    )
