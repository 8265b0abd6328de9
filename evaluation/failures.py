"""Why a policy fails: four classes after MemAgent C.3.4, with definitions that leave no task in two of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.metrics import SOLVED, Columns, Outcomes, taken
from evaluation.result import Failures

CRITICAL = 2
"""Up to so many providers solve a routing-critical task."""


def failures(outcomes: Outcomes, columns: Sequence[Columns]) -> Failures:
    """Sort the decisions of a policy (all its seeds) that end in no solution, over tasks with every arm scored.

    Asked in this order: no arm solves the task (coverage ceiling); the agent without memory does (retrieval
    interference); one or two providers do, and the policy chose another (routing error); three or more do, so that most
    memories suffice and what the chosen one served is at fault (memory quality).
    """
    complete = ~np.isnan(outcomes.correct).any(axis=1)
    solved = outcomes.correct >= SOLVED
    providers, bare = solved[:, 1:].sum(axis=1), solved[:, 0]
    counts = dict.fromkeys(("ceiling", "interference", "routing", "quality"), 0)
    decisions = failed = 0
    for picks in columns:
        missed = complete & ~(taken(outcomes.correct, picks) >= SOLVED)
        decisions += int(complete.sum())
        failed += int(missed.sum())
        nobody = missed & ~solved.any(axis=1)
        interfered = missed & bare
        routed = missed & ~bare & (providers >= 1) & (providers <= CRITICAL)
        counts["ceiling"] += int(nobody.sum())
        counts["interference"] += int(interfered.sum())
        counts["routing"] += int(routed.sum())
        counts["quality"] += int((missed & ~bare & (providers > CRITICAL)).sum())
    return Failures(decisions=decisions, failed=failed, **counts)
