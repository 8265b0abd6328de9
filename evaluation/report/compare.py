"""Two or more runs side by side: every policy's accuracy, and what the runs differ in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.report.html import asset, environment
from evaluation.report.together import BEST_SINGLE, RECOMMENDED, Together, together
from evaluation.result import Evaluation, PolicyResult
from evaluation.words import name_of, policy_words
from providers.errors import ConfigError
from providers.files import write_atomically

ROLES = {RECOMMENDED: "Recommended router", BEST_SINGLE: "Best single"}


@dataclass(frozen=True)
class Compared:
    """One run with its evaluation and its settings."""

    name: str
    evaluation: Evaluation
    settings: Mapping[str, Any]


def comparison_rows(runs: Sequence[Compared]) -> list[dict[str, Any]]:
    """One row per policy, with each run's result; None where a run lacks the policy."""
    policies = dict.fromkeys(policy for run in runs for policy in run.evaluation.policies)
    return [{"policy": policy, "results": [run.evaluation.policies.get(policy) for run in runs]} for policy in policies]


def warnings(runs: Sequence[Compared]) -> list[str]:
    """What makes the runs hard to compare, said plainly."""
    found = []
    for what, values in (
        ("suites", [run.evaluation.suite for run in runs]),
        ("splits", [run.evaluation.split for run in runs]),
        ("numbers of tasks", [str(run.evaluation.n) for run in runs]),
        ("repeats", [str(run.evaluation.repeats) for run in runs]),
        ("providers", [", ".join(run.evaluation.providers) for run in runs]),
    ):
        if len(set(values)) > 1:
            named = "; ".join(f"{run.name}: {value}" for run, value in zip(runs, values, strict=True))
            found.append(f"The runs have different {what} ({named}), so their figures are not differences of policies.")
    return found


def differing(runs: Sequence[Compared]) -> list[tuple[str, list[str]]]:
    """Settings that are not the same in all runs, dotted, with each run's value."""
    flat = [_flat(run.settings) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings if key not in ("name", "runs_dir"))
    rows = [(key, [str(settings.get(key, "–")) for settings in flat]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def replicas(runs: Sequence[Compared]) -> bool:
    """Whether the runs are one experiment under several seeds, whichever policies each was asked to compare."""
    return {key for key, _ in differing(runs)} - {"evaluate.policies"} == {"seed"} and not warnings(runs)


def write_comparison(splits: Mapping[str, Sequence[Compared]], path: Path) -> Path:
    """Write the page that shows the runs side by side, for every split on which all of them were evaluated.

    Raises `ConfigError` with fewer than two runs.
    """
    parts = [_Part(split, runs) for split, runs in splits.items()]
    if not parts or len(parts[0].runs) < 2:
        raise ConfigError("a comparison needs two runs or more that have been evaluated")
    page = environment().get_template("compare.html.jinja")
    text = page.render(
        parts=parts, runs=parts[0].runs, differing=differing(parts[0].runs), style=asset("style.css"), solved=_solved
    )
    write_atomically(path, text)
    return path


@dataclass(frozen=True)
class _Part:
    """One split of the page."""

    split: str
    runs: Sequence[Compared]

    @property
    def warnings(self) -> list[str]:
        return warnings(self.runs)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{**row, "name": _name(self.runs, row["policy"])} for row in comparison_rows(self.runs)]

    @property
    def together(self) -> list[Together]:
        """Differences over all runs, where they are one experiment under several seeds."""
        return together([run.evaluation for run in self.runs]) if replicas(self.runs) else []

    def named(self, policy: str) -> str:
        return ROLES[policy] if policy in ROLES else name_of(policy, self.runs[0].evaluation.titles)


def _name(runs: Sequence[Compared], policy: str) -> str:
    holder = next(run for run in runs if policy in run.evaluation.policies)
    return policy_words(policy, holder.evaluation).name


def _solved(result: PolicyResult | None) -> float | None:
    return result.accuracy if result is not None else None
