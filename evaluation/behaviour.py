"""What a policy did in its online runs: where it retrieved, when it showed working memory, who kept what, and how its
accuracy went on over the stream (MemAgent C.3.1)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from evaluation.result import Behaviour
from evaluation.statistics import entropy_bits
from evaluation.stream import Stream, StreamTask
from router.decisions import NONE

PARTS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Of the stream: accuracy is stated up to each."""
OUTCOMES = {True: "correct", False: "wrong", None: "unscored"}


def behaviour(streams: Sequence[Stream], providers: Sequence[str]) -> Behaviour:
    """Over all seeds; tasks whose run failed count in the stream alone, as unscored."""
    done = [task for stream in streams for task in stream.tasks if task.status == "done"]
    used = Counter(name for task in done for name in (task.begin or (NONE,)))
    shares = {name: used[name] / len(done) if done else 0.0 for name in (NONE, *providers)}
    total = math.fsum(shares.values())
    shown, steps = _in_steps(done)
    return Behaviour(
        begin_shares=shares,
        begin_entropy=entropy_bits([share / total for share in shares.values()]) if total else 0.0,
        in_rate=sum(shown) / sum(steps) if sum(steps) else None,
        in_rate_by_step=tuple(share / count if count else None for share, count in zip(shown, steps, strict=True)),
        in_decisions_by_step=tuple(steps),
        end_sizes=_end_sizes(done),
        end_shares=_end_shares(done, providers),
        stream=tuple(_upto(streams, part) for part in PARTS),
    )


def _in_steps(tasks: Sequence[StreamTask]) -> tuple[list[int], list[int]]:
    """By step from 0: how often working memory was shown, and how often it could have been decided."""
    decided = [one for task in tasks for one in task.in_steps]
    last = max((one.step for one in decided), default=-1)
    shown = Counter(one.step for one in decided if one.action == "query")
    steps = Counter(one.step for one in decided)
    return [shown[step] for step in range(last + 1)], [steps[step] for step in range(last + 1)]


def _end_sizes(tasks: Sequence[StreamTask]) -> dict[str, dict[int, int]]:
    sizes: dict[str, Counter[int]] = defaultdict(Counter)
    for task in tasks:
        sizes[OUTCOMES[task.correct]][len(task.end)] += 1
    return {outcome: dict(sorted(sizes[outcome].items())) for outcome in OUTCOMES.values() if outcome in sizes}


def _end_shares(tasks: Sequence[StreamTask], providers: Sequence[str]) -> dict[str, dict[str, float]]:
    found = {}
    for correct, outcome in OUTCOMES.items():
        part = [task for task in tasks if task.correct is correct]
        if part:
            found[outcome] = {name: sum(name in task.end for task in part) / len(part) for name in providers}
    return found


def _upto(streams: Sequence[Stream], part: float) -> float | None:
    """Accuracy over the scored tasks of the first part of every stream, all seeds together."""
    first = [task for stream in streams for task in stream.tasks[: math.ceil(part * len(stream.tasks))]]
    scored = [task.correct for task in first if task.correct is not None]
    return sum(scored) / len(scored) if scored else None
