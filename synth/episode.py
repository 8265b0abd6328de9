"""One episode: a task run under one arm, from what the providers served to its one terminal status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from providers.base import MemoryProvider
from providers.errors import AgentError
from providers.skills import SkillRunner
from providers.tools import Tool
from providers.types import Outcome, Preview, Query, Retrieval, Task, Trajectory, content_hash
from router.context import InContext
from router.decisions import NONE, Arm, EndDecision, InDecision
from router.policies.fixed import Forced
from router.session import Ending, MemorySession, apply_ending, probe_all
from synth.agents.base import TaskAgent
from synth.config import RunConfig
from synth.facts import Episode, EpisodeKey, Facts, InRecord, OfferFact, Probe, Served
from synth.tasks.base import TaskSuite, outcome_of
from synth.workbench import Workbench

GRACE_SECONDS = 5.0
"""What an agent may take to end once it is cancelled."""


class Host(Protocol):
    """What an episode runs in: a workbench, or a worker that holds a snapshot of its bank."""

    config: RunConfig
    agent: TaskAgent
    suite: TaskSuite
    providers: dict[str, MemoryProvider]
    skill_runner: SkillRunner


@dataclass(frozen=True)
class Prepared:
    """A task with what every provider shows and serves for it over the frozen bank."""

    task: Task
    query: Query
    probe: Probe

    def retrieval(self, provider: str) -> Retrieval:
        """What `provider` injects; an empty retrieval for `none`."""
        return Retrieval(provider=NONE) if provider == NONE else self.probe.served[provider].retrieval

    def content_key(self, provider: str) -> str:
        return self.retrieval(provider).content_key()


async def prepare(bench: Workbench, stage: str, tasks: Sequence[Task], wave: int = 0) -> list[Prepared]:
    """Probe and retrieve once per task and provider, in task order; what the facts already hold is not asked again."""
    facts = bench.run.facts
    known = facts.probes(stage, [task.id for task in tasks])
    queries = await asyncio.to_thread(encode_queries, bench, tasks)
    prepared = []
    for task, query in zip(tasks, queries, strict=True):
        probe = known.get(task.id)
        if probe is None:
            probe = await _probe(bench, task, query, wave)
            facts.add_probe(stage, probe)
        prepared.append(Prepared(task, query, probe))
    facts.flush()
    return prepared


def encode_queries(bench: Workbench, tasks: Sequence[Task]) -> list[Query]:
    """One query per task, its question encoded in one batch."""
    embeddings = bench.encoder.encode([task.question for task in tasks]) if tasks else np.zeros((0, 0), np.float32)
    return [
        Query(text=task.question, embedding=embedding, task_id=task.id)
        for task, embedding in zip(tasks, embeddings, strict=True)
    ]


async def _probe(bench: Workbench, task: Task, query: Query, wave: int) -> Probe:
    previews = await probe_all(query, bench.providers)
    served = {}
    for name, provider in bench.providers.items():
        retrieval = await provider.retrieve(query)
        served[name] = Served(retrieval=retrieval, origins=_origins(bench, name, retrieval))
    return Probe(task_id=task.id, wave=wave, previews=previews, served=served)


def _origins(bench: Workbench, provider: str, retrieval: Retrieval) -> tuple[tuple[str, float], ...]:
    """Origin tasks of the retrieved items with their credit: the largest share over the items, 1/m within an item."""
    credit: dict[str, float] = {}
    for item_id in retrieval.item_ids:
        record = bench.record(provider, item_id)
        tasks = sorted({origin.task_id for origin in record.origins}) if record is not None else []
        for task_id in tasks:
            credit[task_id] = max(credit.get(task_id, 0.0), 1 / len(tasks))
    return tuple(sorted(credit.items()))


async def keep(
    providers: Mapping[str, MemoryProvider],
    facts: Facts,
    stage: str,
    task_id: str,
    trajectory: Trajectory,
    outcome: Outcome,
) -> None:
    """Offer a finished run to every provider whose gate is open, in the order of the config, and note the receipts."""
    seen = public_outcome(outcome)
    stores = tuple(name for name, provider in providers.items() if provider.card.accepts(seen))
    ending = Ending(decision=EndDecision(providers=stores), stores=stores, effects=())
    for receipt in await apply_ending(ending, trajectory, seen, providers):
        facts.add_offer(
            stage,
            OfferFact(
                task_id=task_id,
                provider=receipt.provider,
                status=receipt.status,
                reason=receipt.reason,
                record_ids=receipt.record_ids,
            ),
        )


def agent_seed(run_seed: int, task_id: str, repeat: int) -> int:
    """The agent's seed: the same for every arm of a task, so that arms differ by their memory alone."""
    return int(content_hash("agent", run_seed, task_id, repeat)[:8], 16)


def public_outcome(outcome: Outcome) -> Outcome:
    """The outcome as providers, distillers and routers may see it: without the scorer's words, which may hold gold."""
    return Outcome(correct=outcome.correct, source=outcome.source)


async def run_episode(host: Host, prepared: Prepared, arm: Arm, key: EpisodeKey, max_steps: int) -> Episode:
    """Run `arm` on a prepared task within the wall-clock limit, its set-up included; a failure is the episode's status,
    no exception."""
    started = time.monotonic()
    limit = host.config.explore.episode_seconds
    session = _session(host, prepared, arm)
    try:
        tools = host.suite.tools(prepared.task)
        trajectory = await _within(limit, run_agent(host, prepared.task, tools, session, arm, max_steps))
        trajectory.model_dump_json()  # a lone surrogate cannot be written: it fails here, as this episode's error
        outcome = await outcome_of(host.suite, prepared.task, trajectory.answer, tools)
        await session.end(trajectory, outcome)
    except TimeoutError as error:
        reason = str(error) or f"no answer within {limit:g} s"
        return Episode(key=key, status="timeout", error=reason, retryable=True, seconds=time.monotonic() - started)
    except Exception as error:  # noqa: BLE001  (recorded as the episode's error; an agent may be a stranger's code)
        return _failed(key, error, time.monotonic() - started)
    return _done(key, trajectory, outcome, session, time.monotonic() - started)


async def run_agent(
    host: Host, task: Task, tools: tuple[Tool, ...], session: MemorySession, arm: Arm, max_steps: int
) -> Trajectory:
    """Begin the session and let the agent run; its code is what `Heartbeat` may interrupt."""
    await session.begin()
    try:
        trajectory = await host.agent.run(
            task.public(),
            tools,
            session,
            seed=agent_seed(host.config.seed, task.id, arm.repeat),
            max_steps=max_steps,
        )
    except SystemExit as error:
        raise AgentError(f"the agent {host.agent.name!r} called sys.exit({error.code!r})") from error
    if not isinstance(trajectory, Trajectory):
        raise AgentError(
            f"the agent {host.agent.name!r} ended with {type(trajectory).__name__} instead of a Trajectory: "
            "let it return Trajectory.make(...)"
        )
    if trajectory.task_id != task.id:
        raise AgentError(
            f"the agent {host.agent.name!r} ended with a trajectory of task {trajectory.task_id!r} on {task.id!r}: "
            "let it make one of the task that it is given"
        )
    return trajectory


async def _within(limit: float, work: Coroutine[Any, Any, Trajectory]) -> Trajectory:
    """What the work returns, within `limit` seconds; work that does not end when it is cancelled is closed.

    Raises:
        TimeoutError: there was nothing in time.
        AgentError: the work cancelled itself.
    """
    running = asyncio.create_task(work)
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # seen, whatever comes of it
    try:
        await asyncio.wait({running}, timeout=limit)
    finally:
        in_time = running.done()
        if not in_time:
            await _end(running, work)
    if not in_time:
        raise TimeoutError
    if running.cancelled():
        raise AgentError("the agent cancelled itself")
    return running.result()


async def _end(running: asyncio.Task[Trajectory], work: Coroutine[Any, Any, Trajectory]) -> None:
    """Cancel a task, again where it goes on, and close its coroutine where it still does: one agent that takes its
    cancellation for a passing fault must not hold up all others."""
    for grace in (GRACE_SECONDS, GRACE_SECONDS / 5):
        running.cancel()
        await asyncio.wait({running}, timeout=grace)
        if running.done():
            return
    with suppress(RuntimeError):  # it ignores that as well
        work.close()
    running.cancel()
    await asyncio.wait({running}, timeout=GRACE_SECONDS / 5)


def _session(host: Host, prepared: Prepared, arm: Arm) -> MemorySession:
    previews: tuple[Preview, ...] = prepared.probe.previews
    return MemorySession(
        prepared.task,
        prepared.query,
        host.providers,
        Forced(arm),
        previews=previews,
        retrievals={name: served.retrieval for name, served in prepared.probe.served.items()},
        skill_runner=host.skill_runner,
    )


def _failed(key: EpisodeKey, error: Exception, seconds: float) -> Episode:
    return Episode(
        key=key,
        status="failed",
        error=f"{type(error).__name__}: {error}",
        retryable=getattr(error, "retryable", False) is True or isinstance(error, ConnectionError),
        retry_after=getattr(error, "retry_after", None),
        seconds=seconds,
    )


def _done(key: EpisodeKey, trajectory: Trajectory, outcome: Outcome, session: MemorySession, seconds: float) -> Episode:
    records = tuple(
        InRecord(context=decided.context, decision=decided.decision)
        for decided in session.decisions
        if isinstance(decided.context, InContext) and isinstance(decided.decision, InDecision) and not decided.forced
    )
    begin_chars = sum(len(injection.text) for injection in session.injections if injection.phase == "begin")
    within = [len(injection.text) for injection in session.injections if injection.phase == "in"]
    return Episode(
        key=key,
        status="done",
        outcome=outcome,
        trajectory=trajectory,
        in_records=records,
        answer=trajectory.answer,
        steps=len(trajectory.steps),
        injected=begin_chars + sum(within),
        begin_chars=begin_chars,
        in_injections=len(within),
        seconds=seconds,
    )
