"""From streams to the online rows of an `Evaluation`: pure, no model, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from evaluation.behaviour import behaviour
from evaluation.comparison import adjusted
from evaluation.metrics import Matrix, average, mean_or_none
from evaluation.result import Comparison, Evaluation, OnlineResult, PolicyResult
from evaluation.statistics import Bootstrap, Estimate, SignFlip, Values, entropy_bits
from evaluation.stream import Stream, StreamTask
from router.decisions import NONE
from router.policies.registry import ONLINE_ONLY

ROUTER = "router"
CHANGED = ("in_always", "in_never", "store_all", "store_none")
"""Each differs from the whole router in one phase."""


class _Rows:
    """The streams as arrays over the tasks of the first stream, one row per seed."""

    def __init__(self, streams: Mapping[str, Sequence[Stream]], resamples: int, seed: int) -> None:
        self.streams = streams
        first = next(iter(streams.values()))[0]
        self.task_ids = sorted(task.task_id for task in first.tasks)
        self.families = {task.task_id: task.family for task in first.tasks}
        self.bootstrap = Bootstrap(len(self.task_ids), resamples, seed)
        self._flips = SignFlip(len(self.task_ids), resamples, seed)

    def by_seed(self, policy: str, value: Callable[[StreamTask], float | None]) -> list[Values]:
        """Per seed, per task; NaN where the run failed or has no such value."""
        found = []
        for stream in self.streams[policy]:
            of_task = {task.task_id: value(task) for task in stream.tasks if task.status == "done"}
            known = [of_task.get(task_id) for task_id in self.task_ids]
            found.append(np.array([np.nan if one is None else one for one in known]))
        return found

    def values(self, policy: str, value: Callable[[StreamTask], float | None]) -> Matrix:
        """Per task, the mean over the seeds."""
        return average(self.by_seed(policy, value))

    def correct(self, policy: str) -> Values:
        return self.values(policy, _correct)

    def p_value(self, policy: str, against: str) -> float | None:
        return self._flips.p(self.correct(policy), self.correct(against))


def _correct(task: StreamTask) -> float | None:
    return None if task.correct is None else float(task.correct)


def with_online(
    evaluation: Evaluation,
    streams: Mapping[str, Sequence[Stream]],
    *,
    router: str,
    missing: Mapping[str, str],
    resamples: int,
    chars_per_token: float | None,
) -> Evaluation:
    """The evaluation with its online rows; comparisons are online on both sides."""
    update: dict[str, object] = {"missing": {**evaluation.missing, **missing}}
    if streams:
        rows = _Rows(streams, resamples, evaluation.seed)
        best = evaluation.best_single if evaluation.best_single in streams else None
        online = {name: _result(rows, name, best, evaluation.providers, chars_per_token) for name in streams}
        own = {name: _as_policy(online[name], rows, evaluation) for name in online if name in ONLINE_ONLY}
        update |= {
            "online": online,
            "online_tasks": len(rows.task_ids),
            "online_router": router,
            "online_comparisons": _comparisons(rows, best),
            "policies": {**evaluation.policies, **own},
        }
    return evaluation.model_copy(update=update)


def _result(
    rows: _Rows, name: str, best: str | None, providers: Sequence[str], chars_per_token: float | None
) -> OnlineResult:
    correct = rows.correct(name)
    estimate = rows.bootstrap.estimate(correct)
    delta = rows.bootstrap.difference(correct, rows.correct(best)) if best else None
    injected = mean_or_none(rows.values(name, lambda task: float(task.injected)))
    seconds = mean_or_none(rows.values(name, lambda task: task.seconds))
    accuracy = estimate.mean if estimate else None
    tokens = None if injected is None or chars_per_token is None else injected / chars_per_token
    families = np.array([rows.families[task_id] for task_id in rows.task_ids])
    return OnlineResult(
        **_interval(estimate),
        n=estimate.n if estimate else 0,
        unscored=int(np.isnan(correct).sum()),
        seeds=len(rows.streams[name]),
        accuracy_by_seed=tuple(mean_or_none(part) for part in rows.by_seed(name, _correct)),
        delta_vs_best_single=delta.mean if delta else None,
        delta_ci_low=delta.low if delta else None,
        delta_ci_high=delta.high if delta else None,
        steps=mean_or_none(rows.values(name, lambda task: float(task.steps))),
        injected_chars=injected,
        injected_tokens=tokens,
        begin_chars=mean_or_none(rows.values(name, lambda task: float(task.begin_chars))),
        seconds=seconds,
        seconds_per_solved=_per_solved(seconds, accuracy),
        tokens_per_solved=_per_solved(tokens, accuracy),
        behaviour=behaviour(rows.streams[name], providers),
        by_family={family: mean_or_none(correct[families == family]) for family in sorted(set(families.tolist()))},
    )


def _interval(estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {"accuracy": None, "ci_low": None, "ci_high": None}
    return {"accuracy": estimate.mean, "ci_low": estimate.low, "ci_high": estimate.high}


def _per_solved(spent: float | None, accuracy: float | None) -> float | None:
    """Mean spending per task over the share solved; None where nothing was solved."""
    return spent / accuracy if spent is not None and accuracy else None


def _comparisons(rows: _Rows, best: str | None) -> tuple[Comparison, ...]:
    """The whole router against each of its variants and against the policies without a choice."""
    if ROUTER not in rows.streams:
        return ()
    others = [*([best] if best else []), NONE, "in_only", "concat", "fuse", *CHANGED]
    found = []
    for other in others:
        if other not in rows.streams:
            continue
        estimate = rows.bootstrap.difference(rows.correct(ROUTER), rows.correct(other))
        if estimate is not None:
            found.append(
                Comparison(
                    policy=ROUTER,
                    against=other,
                    delta=estimate.mean,
                    ci_low=estimate.low,
                    ci_high=estimate.high,
                    n=estimate.n,
                    way="online",
                    p=rows.p_value(ROUTER, other),
                )
            )
    return adjusted(found)


def _as_policy(result: OnlineResult, rows: _Rows, evaluation: Evaluation) -> PolicyResult:
    """An online row among the policies; the oracle is replay's, so there is no regret and no headroom."""
    total = sum(result.behaviour.begin_shares.values())
    shares = {arm: share / total if total else 0.0 for arm, share in result.behaviour.begin_shares.items()}
    return PolicyResult(
        kind="online",
        way="online",
        accuracy=result.accuracy,
        ci_low=result.ci_low,
        ci_high=result.ci_high,
        n=result.n,
        unscored=result.unscored,
        unscored_share=result.unscored / len(rows.task_ids) if rows.task_ids else 0.0,
        accuracy_by_repeat=result.accuracy_by_seed,
        delta_vs_best_single=result.delta_vs_best_single,
        delta_ci_low=result.delta_ci_low,
        delta_ci_high=result.delta_ci_high,
        delta_n=result.n if result.delta_vs_best_single is not None else 0,
        regret=None,
        steps=result.steps,
        injected_chars=result.injected_chars,
        injected_tokens=result.injected_tokens,
        shares=shares,
        shares_by_family={},
        entropy=entropy_bits(list(shares.values())),
        by_family=result.by_family,
        seeds=result.seeds,
    )
