"""`memroute bench govmem`: every policy on the same candidates, seed by seed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import Field

from evaluation.govmem.bundles import Truth, make_bundles
from evaluation.govmem.scores import (
    DependencyScores,
    Judged,
    Scores,
    by_dependency,
    differences,
    mean_scores,
    scores_of,
)
from evaluation.govmem.spec import Spec, load_spec
from providers.errors import ConfigError
from providers.governance.gate import Case, write_gate
from providers.governance.policies import PUBLISHED, Policy, govmem_verified
from providers.types import Flow

OURS = "ours"
JUDGE = "llm_judge"
RIVAL = "govmem_verified"
"""The policy that ours is held against."""
TABLE_III: dict[str, tuple[float, float, float, float]] = {
    "raw_frequency": (0.403, 1.000, 0.597, 0.000),
    "unique_source": (0.375, 0.500, 0.625, 0.000),
    "source_scope": (0.500, 0.500, 0.500, 0.000),
    "confidence": (0.271, 0.372, 0.729, 0.000),
    "counterexample": (0.466, 1.000, 0.534, 0.000),
    "govmem_lite": (1.000, 0.500, 0.000, 0.000),
    "govmem_verified": (0.960, 0.960, 0.040, 0.151),
}
"""Precision, recall, false promotion and review of the paper's table III, beside which ours stand."""
THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Effective support from which the trade-off's policies promote without a check; both policies' own is 2."""
SPLIT = ("raw_frequency", "source_scope", "govmem_verified", OURS)
"""Policies whose decisions are shown by dependency."""


class Difference(Flow):
    """A mean difference over paired seeds with its 95% interval."""

    mean: float
    low: float
    high: float


class GovMemBench(Flow):
    """What `memroute bench govmem` gives. Shares from 0 to 1, means over seeds."""

    spec_version: int
    seeds: tuple[int, ...]
    candidates: int
    """Over all seeds."""
    clustering_noise: float
    policies: dict[str, Scores]
    by_dependency: dict[str, dict[str, DependencyScores]]
    """Of all seeds together."""
    ours_minus_govmem_verified: dict[str, Difference]
    auprc_by_noise: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Noise level (as text) -> policy -> AUPRC; empty where no sweep was asked for."""
    trade_off: dict[str, dict[str, Scores]] = Field(default_factory=dict)
    """Policy -> support that promotes without a check (as text) -> figures; empty where no sweep was asked for."""


Decided = dict[str, list[list[Judged]]]
"""The decisions of every policy: name -> one list per seed."""


async def bench_govmem(
    spec: Spec | None = None, seeds: int | None = None, *, sweep: bool = False, judge: Path | None = None
) -> GovMemBench:
    """Run all policies on the specification's first `seeds` seeds (default: all).

    `sweep` adds the rising noise of the paper's figure 2, and the trade-off by how much support is enough; `judge` is a
    config whose `models.verifier` decides too, by one call per candidate. Raises ConfigError where there are not so
    many seeds or no such model, ModelError where the model fails.
    """
    spec = spec or load_spec()
    if seeds is not None and not 1 <= seeds <= len(spec.seeds):
        raise ConfigError(f"--seeds {seeds}: give 1 to {len(spec.seeds)}, the seeds are frozen.")
    used = spec.seeds[:seeds]
    judged = compare(spec, used, POLICIES)
    if judge is not None:
        judged[JUDGE] = await _judged_by_model(spec, used, judge)
    sweeps = spec.noise_sweep if sweep else ()
    curve = {f"{noise:g}": _auprc(spec, used, noise) for noise in sweeps}
    added = {"auprc_by_noise": curve, "trade_off": trade_off(spec, used) if sweep else {}}
    return result_of(spec, used, judged).model_copy(update=added)


def result_of(spec: Spec, seeds: Sequence[int], judged: Decided) -> GovMemBench:
    """The figures of decisions that were made."""
    scores = {name: [scores_of(seed) for seed in of_seeds] for name, of_seeds in judged.items()}
    return GovMemBench(
        spec_version=spec.version,
        seeds=tuple(seeds),
        candidates=sum(map(len, judged[OURS])),
        clustering_noise=spec.clustering_noise,
        policies={name: mean_scores(of_seeds) for name, of_seeds in scores.items()},
        by_dependency={name: by_dependency([one for seed in judged[name] for one in seed]) for name in SPLIT},
        ours_minus_govmem_verified={
            name: Difference(mean=mean, low=low, high=high)
            for name, (mean, low, high) in differences(scores[OURS], scores[RIVAL]).items()
        },
    )


def compare(spec: Spec, seeds: Iterable[int], policies: Mapping[str, Policy], noise: float | None = None) -> Decided:
    """Every policy's decision on every candidate of every seed."""
    judged: Decided = {name: [] for name in policies}
    for seed in seeds:
        cases = list(_cases(spec, seed, noise))
        for name, policy in policies.items():
            judged[name].append([Judged(policy(case), truth, bundle) for case, truth, bundle in cases])
    return judged


def trade_off(spec: Spec, seeds: Sequence[int]) -> dict[str, dict[str, Scores]]:
    """False promotion, recall and review of our gate and of its rival as more or less support is enough."""
    policies: dict[str, Policy] = {}
    for enough in THRESHOLDS:
        policies[f"{OURS} {enough:g}"] = partial(write_gate, enough=enough)
        policies[f"{RIVAL} {enough:g}"] = partial(govmem_verified, several=enough)
    judged = compare(spec, seeds, policies)
    return {
        name: {
            f"{enough:g}": mean_scores([scores_of(seed) for seed in judged[f"{name} {enough:g}"]])
            for enough in THRESHOLDS
        }
        for name in (OURS, RIVAL)
    }


def _cases(spec: Spec, seed: int, noise: float | None) -> Iterable[tuple[Case, Truth, int]]:
    for number, bundle in enumerate(make_bundles(spec, seed, noise)):
        for candidate in bundle.candidates:
            yield Case(candidate, bundle.pool, bundle.checker), bundle.truths[candidate.id], number


def _auprc(spec: Spec, seeds: Sequence[int], noise: float) -> dict[str, float]:
    decided = compare(spec, seeds, POLICIES, noise)
    return {name: mean_scores([scores_of(seed) for seed in judged]).auprc for name, judged in decided.items()}


async def _judged_by_model(spec: Spec, seeds: Sequence[int], config: Path) -> list[list[Judged]]:
    """The decisions of the chat model, one list per seed; as many calls at once as its endpoint is set to take."""
    from providers.governance.write_judge import judge_write
    from synth.load_config import load_config
    from synth.models import Models

    models = Models(load_config(config).models)
    model = models.get("verifier")
    try:
        judged = []
        for seed in seeds:
            cases = list(_cases(spec, seed, None))
            audits = await asyncio.gather(*(judge_write(model, case) for case, _, _ in cases))
            judged.append([Judged(a, truth, bundle) for a, (_, truth, bundle) in zip(audits, cases, strict=True)])
        return judged
    finally:
        await model.close()


POLICIES: dict[str, Policy] = {**PUBLISHED, OURS: write_gate}
"""All policies of the benchmark, in the order of the table."""
