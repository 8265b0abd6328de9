"""`memroute bench govmem`: every policy on the same candidates, seed by seed, and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluation.govmem.bundles import Truth, make_bundles
from evaluation.govmem.scores import DependencyScores, Judged, Scores, by_dependency, mean_scores, scores_of
from evaluation.govmem.spec import Spec, load_spec
from providers.governance.gate import Case
from providers.governance.policies import PUBLISHED, Policy
from providers.types import Flow

if TYPE_CHECKING:
    from rich.console import Console

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
SPLIT = ("raw_frequency", "source_scope", "govmem_verified")
"""Policies whose decisions are shown by dependency."""


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
    auprc_by_noise: dict[str, dict[str, float]]
    """Noise level (as text) -> policy -> AUPRC; empty where no sweep was asked for."""


@dataclass(frozen=True)
class Compared:
    """The decisions of every policy, by name and seed."""

    judged: dict[str, list[list[Judged]]]

    def scores(self, name: str) -> list[Scores]:
        return [scores_of(seed) for seed in self.judged[name]]


def bench_govmem(spec: Spec | None = None, seeds: Sequence[int] = (), *, sweep: bool = False) -> GovMemBench:
    """Run all policies on the specification's seeds (or on `seeds`), with the noise sweep of figure 2 if asked for."""
    spec = spec or load_spec()
    used = tuple(seeds) or spec.seeds
    compared = compare(spec, used, POLICIES)
    return GovMemBench(
        spec_version=spec.version,
        seeds=used,
        candidates=sum(map(len, compared.judged[next(iter(POLICIES))])),
        clustering_noise=spec.clustering_noise,
        policies={name: mean_scores(compared.scores(name)) for name in POLICIES},
        by_dependency={name: by_dependency([one for seed in compared.judged[name] for one in seed]) for name in SPLIT},
        auprc_by_noise={f"{noise:g}": _auprc(spec, used, noise) for noise in spec.noise_sweep} if sweep else {},
    )


def compare(spec: Spec, seeds: Iterable[int], policies: Mapping[str, Policy], noise: float | None = None) -> Compared:
    """Every policy's decision on every candidate of every seed."""
    judged: dict[str, list[list[Judged]]] = {name: [] for name in policies}
    for seed in seeds:
        cases = list(_cases(spec, seed, noise))
        for name, policy in policies.items():
            judged[name].append([Judged(policy(case), truth, bundle) for case, truth, bundle in cases])
    return Compared(judged)


def _cases(spec: Spec, seed: int, noise: float | None) -> Iterable[tuple[Case, Truth, int]]:
    for number, bundle in enumerate(make_bundles(spec, seed, noise)):
        for candidate in bundle.candidates:
            yield Case(candidate, bundle.pool, bundle.checker), bundle.truths[candidate.id], number


def _auprc(spec: Spec, seeds: Sequence[int], noise: float) -> dict[str, float]:
    compared = compare(spec, seeds, POLICIES, noise)
    return {name: mean_scores(compared.scores(name)).auprc for name in POLICIES}


POLICIES: dict[str, Policy] = dict(PUBLISHED)
"""All policies of the benchmark, in the order of the table."""


def print_bench(bench: GovMemBench, console: Console | None = None) -> None:
    """The tables for a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    table = Table(
        title=f"GovMem-Bench: {bench.candidates:,} candidates, {len(bench.seeds)} seeds (in brackets: the paper)",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
    )
    table.add_column("policy", no_wrap=True)
    for title in ("precision", "recall", "false prom.", "review", "actionable", "B@1", "B@3", "AUPRC"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, scores in bench.policies.items():
        four = (scores.precision, scores.recall, scores.false_promotion, scores.review)
        paper = TABLE_III.get(name)
        shown = [f"{ours:.3f}" + (f" ({paper[place]:.3f})" if paper else "") for place, ours in enumerate(four)]
        rest = (scores.actionable_recall, scores.b_at_1, scores.b_at_3, scores.auprc)
        table.add_row(name, *shown, *(f"{value:.3f}" for value in rest))
    console.print(table)
