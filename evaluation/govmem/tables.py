"""The tables of `memroute bench govmem`."""

from __future__ import annotations

from evaluation.govmem.bench import OURS, RIVAL, TABLE_III, GovMemBench
from evaluation.text_tables import Rows

COMPARED = ("false_promotion", "recall", "review", "precision", "actionable_recall", "auprc")


def tables_of(bench: GovMemBench) -> list[Rows]:
    """Policies beside table III, ours against its rival, the split of table VI, the noise sweep where it was run."""
    tables = [_policies(bench), _differences(bench), _dependencies(bench)]
    return [*tables, _noise(bench), _trade_off(bench)] if bench.auprc_by_noise else tables


def _policies(bench: GovMemBench) -> Rows:
    cells = []
    for name, scores in bench.policies.items():
        paper = TABLE_III.get(name)
        four = (scores.precision, scores.recall, scores.false_promotion, scores.review)
        beside = [f"{value:.3f}" + (f" ({paper[place]:.3f})" if paper else "") for place, value in enumerate(four)]
        rest = (scores.actionable_recall, scores.b_at_1, scores.b_at_3, scores.auprc)
        cells.append([name, *beside, *(f"{value:.3f}" for value in rest)])
    columns = ("policy", "precision", "recall", "false promotion", "review", "actionable recall", "B@1", "B@3", "AUPRC")
    return Rows(f"{bench.candidates:,} candidates, {len(bench.seeds)} seeds (table III in brackets)", columns, cells)


def _differences(bench: GovMemBench) -> Rows:
    found = bench.ours_minus_govmem_verified
    cells = [
        [name, *(f"{value:+.4f}" for value in (found[name].mean, found[name].low, found[name].high))]
        for name in COMPARED
    ]
    return Rows(f"{OURS} minus {RIVAL}, paired by seed", ("figure", "mean", "95% from", "to"), cells)


def _dependencies(bench: GovMemBench) -> Rows:
    cells = [
        [
            name,
            dependency,
            str(row.n),
            str(row.promoted),
            str(row.review),
            _or_none(row.false_promotion),
            _or_none(row.actionable_recall),
        ]
        for name, split in bench.by_dependency.items()
        for dependency, row in split.items()
    ]
    columns = ("policy", "dependency", "n", "promoted", "review", "false promotion", "actionable recall")
    return Rows("Split by what joins the support (as table VI), all seeds together", columns, cells)


def _noise(bench: GovMemBench) -> Rows:
    levels = list(bench.auprc_by_noise)
    cells = [
        [name, *(f"{bench.auprc_by_noise[level][name]:.3f}" for level in levels)]
        for name in bench.auprc_by_noise[levels[0]]
    ]
    return Rows("AUPRC by clustering noise", ("policy", *levels), cells)


def _trade_off(bench: GovMemBench) -> Rows:
    cells = [
        [
            name,
            enough,
            *(f"{value:.3f}" for value in (one.false_promotion, one.recall, one.review, one.actionable_recall)),
        ]
        for name, by_threshold in bench.trade_off.items()
        for enough, one in by_threshold.items()
    ]
    columns = ("policy", "enough", "false promotion", "recall", "review", "actionable recall")
    return Rows("Trade-off by the support that promotes without a check", columns, cells)


def _or_none(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
