"""Runs that differ in their seed alone, taken together: differences over the tasks of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluation.result import Comparison, Evaluation, Way
from evaluation.statistics import Estimate, pooled

RECOMMENDED = "recommended"
"""Each run's own recommended router."""
BEST_SINGLE = "best_single"
"""Each run's own best single provider, as chosen on exploration."""
Pair = tuple[str, str, Way]


@dataclass(frozen=True)
class Together:
    """`policy` minus `against` over all runs, and in each."""

    policy: str
    against: str
    way: Way
    all: Estimate
    by_run: tuple[Estimate, ...]


def together(evaluations: Sequence[Evaluation]) -> list[Together]:
    """What every run compared, in the first one's order; who is another one in each run goes by its role."""
    found = [dict(_differences(evaluation)) for evaluation in evaluations]
    common = [pair for pair in found[0] if all(pair in differences for differences in found)]
    estimates = {pair: tuple(differences[pair] for differences in found) for pair in common}
    return [Together(*pair, pooled(by_run), by_run) for pair, by_run in estimates.items()]


def _differences(evaluation: Evaluation) -> Iterator[tuple[Pair, Estimate]]:
    replayed = [one for one in evaluation.comparisons if one.policy == evaluation.recommended]
    for one in replayed:
        yield (RECOMMENDED, _role(one, evaluation), one.way), _estimate(one)
    for one in (*evaluation.comparisons, *evaluation.online_comparisons):
        yield (one.policy, _role(one, evaluation), one.way), _estimate(one)


def _role(one: Comparison, evaluation: Evaluation) -> str:
    return BEST_SINGLE if one.against == evaluation.best_single else one.against


def _estimate(one: Comparison) -> Estimate:
    return Estimate(one.delta, one.ci_low, one.ci_high, one.n)
