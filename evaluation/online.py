"""Online evaluation: fresh runs of each policy from the same bank, which then grows as the policy's own stream goes on.

Replay says what a Begin decision is worth. What is combined, shown within a task or kept after it changes what later
tasks see, so it has to be run. All policies get the same tasks in the same order with the same agent seeds and step
limits; each starts from its own copy of the bank that exploration left.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tqdm import tqdm

from evaluation.stream import InStep, Stream, StreamTask
from providers.base import MemoryProvider
from providers.errors import ConfigError, EngineError
from providers.types import Outcome, Query, Split, StoreReceipt, Task, Trajectory, content_hash
from router.context import InContext
from router.decisions import NONE, BeginDecision, InDecision, Policy
from router.policies.fuse import Fuser, ModelFuser, RuleFuser
from router.policies.registry import ONLINE_ONLY, PolicyMaterial, build_policies
from router.session import Ending, MemorySession, apply_ending
from synth.episode import agent_seed, encode_queries, public_outcome
from synth.explore import arms_name
from synth.runs import Run
from synth.tasks.base import outcome_of
from synth.workbench import Workbench

BESIDE = (NONE, "in_only")
"""Run online beside whatever is: what the others are held against, with the best single provider."""


@dataclass(frozen=True)
class OnlineRuns:
    """The streams of every policy, seed by seed, and why some policies have none."""

    router: str
    """Who takes Begin where a policy is the router with one phase changed."""
    streams: Mapping[str, tuple[Stream, ...]]
    missing: Mapping[str, str]


def online_names(names: Sequence[str], best_single: str | None) -> list[str]:
    """The policies of `names` that have to be run online with what they are held against; none where none has to."""
    own = [name for name in ONLINE_ONLY if name in names]
    beside = [*BESIDE, *([best_single] if best_single else [])]
    return [*beside, *own] if own else []


async def run_online(run: Run, split: str, names: Sequence[str], material: PolicyMaterial, stamp: str) -> OnlineRuns:
    """Run the streams of policies by name; `stamp` says what routers are made of."""
    builders = {name: partial(_build, name, material) for name in names}
    return await run_streams(run, split, builders, material.router, stamp)


async def run_streams(
    run: Run, split: str, builders: Mapping[str, Callable[[], Policy]], router: str, stamp: str
) -> OnlineRuns:
    """Run every policy's streams; those that stand under the same `stamp` and `router` are not run again.

    A stream that was stopped starts again from the bank that exploration left: its own bank is never half used.
    """
    settings = run.config.evaluate.online
    streams: dict[str, tuple[Stream, ...]] = {}
    missing: dict[str, str] = {}
    async with Workbench(run) as bench:
        tasks = bench.tasks(Split(split))[: settings.tasks]
        common = content_hash(stamp, router, bench.record_counts(), [task.id for task in tasks])
        for name, build in builders.items():
            try:
                policy = build()
                streams[name] = tuple(
                    [await _stream(bench, split, policy, tasks, seed, common) for seed in range(settings.seeds)]
                )
            except (_Missing, EngineError, ConfigError) as error:
                missing[name] = str(error)
                print(f"evaluate: {name} is missing online: {error}", file=sys.stderr)
    return OnlineRuns(router=router, streams=streams, missing=missing)


class _Missing(Exception):
    """A policy has no streams; the message says why and what mends it."""


def _build(name: str, material: PolicyMaterial) -> Policy:
    built, missing = build_policies([name], material)
    if name in missing:
        raise _Missing(missing[name])
    return built[name]


async def _stream(
    bench: Workbench, split: str, policy: Policy, tasks: Sequence[Task], seed: int, common: str
) -> Stream:
    """One policy's stream under one seed, from its file where it stands."""
    run = bench.run
    settings = run.config.evaluate.online
    key = content_hash(common, policy.name, seed, settings.batch, run.config.agent.max_steps)
    path = run.evaluation / "online" / f"{arms_name(run.config, split)}-{policy.name}-{seed}.json"
    if path.exists() and (kept := Stream.load(path)).key == key:
        return kept
    order = list(tasks)
    random.Random(content_hash("stream", run.config.seed, seed)).shuffle(order)
    done: list[StreamTask] = []
    title = f"{policy.name} online, seed {seed + 1} of {settings.seeds}"
    with (
        bench.forked(run.root / "bank.online.sqlite") as providers,
        tqdm(total=len(order), desc=title, unit="task", disable=None, leave=False, file=sys.stderr) as bar,
    ):
        streaming = Streaming(bench, policy, providers, seed)
        for start in range(0, len(order), settings.batch):
            done += [ran.result for ran in await streaming.batch(order[start : start + settings.batch])]
            bar.update(len(done) - bar.n)
    if not any(task.status == "done" for task in done):
        first = done[0].error if done else "there is no task"
        raise _Missing(f"none of its {len(done)} runs ended; the first: {first}")
    stream = Stream(key=key, policy=policy.name, seed=seed, tasks=tuple(done))
    stream.save(path)
    return stream


def _fuser(run: Run) -> Fuser:
    """The frozen model that the config names for routing writes fused notes; without one, rules do."""
    return ModelFuser(run.models.get("router")) if run.config.models.router is not None else RuleFuser()


Seen = Callable[[Trajectory, Outcome], Awaitable[tuple[Trajectory, Outcome]]]
"""What memories and policies are told of a finished run; its scoring stays as it is."""


async def as_it_was(trajectory: Trajectory, outcome: Outcome) -> tuple[Trajectory, Outcome]:
    """They are told what happened."""
    return trajectory, outcome


@dataclass(frozen=True)
class Left:
    """What a finished task leaves to be applied to the bank: run and outcome as they are told, and how it scored."""

    trajectory: Trajectory
    told: Outcome
    outcome: Outcome
    ending: Ending


@dataclass(frozen=True)
class Ran:
    """One task of a stream; `left` None: it failed. One receipt per memory that it was offered to."""

    result: StreamTask
    left: Left | None
    receipts: tuple[StoreReceipt, ...] = ()


class Streaming:
    """Runs batches of one stream over its own bank.

    `seed` draws the agent's runs, `max_steps` stands for the config's own limit, `seen` for what happened.
    """

    def __init__(
        self,
        bench: Workbench,
        policy: Policy,
        providers: Mapping[str, MemoryProvider],
        seed: int,
        *,
        max_steps: int | None = None,
        seen: Seen = as_it_was,
    ) -> None:
        self._bench, self._policy, self._providers, self._seed = bench, policy, providers, seed
        self._max_steps = max_steps or bench.run.config.agent.max_steps
        self._seen = seen
        self._fuser = _fuser(bench.run)

    async def batch(self, tasks: Sequence[Task]) -> list[Ran]:
        """Run tasks over the bank as it stands, then apply what they leave, in their order."""
        queries = await asyncio.to_thread(encode_queries, self._bench, tasks)
        ran = await asyncio.gather(*(self._run(task, query) for task, query in zip(tasks, queries, strict=True)))
        return [await self._apply(result, left) for result, left in ran]

    async def _run(self, task: Task, query: Query) -> tuple[StreamTask, Left | None]:
        """Run one task; a failure is its status. A policy that cannot work at all raises."""
        started, limit = time.monotonic(), self._bench.run.config.explore.episode_seconds
        session = MemorySession(
            task,
            query,
            self._providers,
            self._policy,
            skill_runner=self._bench.skill_runner,
            fuser=self._fuser,
            describe=self._bench.describe,
        )
        try:
            async with asyncio.timeout(limit):
                left = await self._lifecycle(task, session)
        except TimeoutError:
            error, status = f"no answer within {limit:g} s", "timeout"
        except (ConfigError, EngineError):
            raise
        except Exception as reason:  # noqa: BLE001  (recorded as the task's error; an agent may be a stranger's code)
            error, status = f"{type(reason).__name__}: {reason}", "failed"
        else:
            return _done(task, session, left, time.monotonic() - started), left
        failed = {"task_id": task.id, "family": task.family, "status": status, "error": error}
        return StreamTask.model_validate({**failed, "seconds": time.monotonic() - started}), None

    async def _lifecycle(self, task: Task, session: MemorySession) -> Left:
        config = self._bench.run.config
        await session.begin()
        tools = self._bench.suite.tools(task)
        trajectory = await self._bench.agent.run(
            task.public(),
            tools,
            session,
            seed=agent_seed(config.seed, task.id, self._seed),
            max_steps=self._max_steps,
        )
        outcome = public_outcome(await outcome_of(self._bench.suite, task, trajectory.answer, tools))
        trajectory, told = await self._seen(trajectory, outcome)
        return Left(trajectory, told, outcome, await session.end(trajectory, told))

    async def _apply(self, result: StreamTask, left: Left | None) -> Ran:
        if left is None:
            return Ran(result, None)
        receipts = await apply_ending(left.ending, left.trajectory, left.told, self._providers)
        stored = tuple(receipt.provider for receipt in receipts if receipt.status == "stored")
        return Ran(result.model_copy(update={"stored": stored}), left, receipts)


def _done(task: Task, session: MemorySession, left: Left, seconds: float) -> StreamTask:
    begin = [one.decision for one in session.decisions if isinstance(one.decision, BeginDecision)]
    lengths = [(injection.phase, len(injection.text)) for injection in session.injections]
    return StreamTask(
        task_id=task.id,
        family=task.family,
        status="done",
        correct=left.outcome.correct,
        begin=begin[0].providers if begin else (),
        in_steps=tuple(
            InStep(step=one.context.step, action=one.decision.action, forced=one.forced)
            for one in session.decisions
            if isinstance(one.context, InContext) and isinstance(one.decision, InDecision)
        ),
        end=left.ending.stores,
        steps=len(left.trajectory.steps),
        injected=sum(length for _, length in lengths),
        begin_chars=sum(length for phase, length in lengths if phase == "begin"),
        seconds=round(seconds, 3),
    )
