"""Trainings of the language model with other settings, compared on the same exploration.

Each variant has a folder of its own within the run, is finished once and then kept, and continues where it stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from pydantic import BaseModel

from evaluation.retrained import Answers
from evaluation.statistics import Bootstrap
from providers.errors import ConfigError, EngineError
from providers.files import write_atomically
from providers.registry import provider_cards
from providers.types import content_hash
from router.table import RoutingTable
from synth.config import TrainConfig
from synth.load_config import load_config
from synth.runs import Run
from train.asked import load_table, train_and_ask
from train.job import Job


class Variant(BaseModel, frozen=True):
    """One training and what it is worth on the split."""

    name: str
    value: float
    """Mean correctness of the chosen provider (routing value)."""
    low: float
    high: float
    gain: float
    """Against the first variant, paired by task, with its interval."""
    gain_low: float
    gain_high: float
    top_share: float
    """Share of the provider that is chosen most."""
    legal: float
    """Share of decisions that needed no fallback."""


class Comparison(BaseModel, frozen=True):
    """Variants of a training on one split."""

    split: str
    tasks: int
    variants: tuple[Variant, ...]

    def lines(self) -> list[str]:
        """For a terminal, in percent."""
        head = f"{self.tasks} {self.split} tasks, routing value in percent (95% intervals)"
        width = max(len(v.name) for v in self.variants)
        return [head] + [
            f"  {v.name:{width}}  {_range(v.value, v.low, v.high)}  "
            f"against the first {_range(v.gain, v.gain_low, v.gain_high)}  "
            f"top provider {100 * v.top_share:.0f}  legal {100 * v.legal:.1f}"
            for v in self.variants
        ]


def compare_variants(run: Run, settings: Sequence[str]) -> Comparison:
    """Train the config as it is and once for each of `settings` (`key=value` pairs of `train`, separated by `;`).

    Compared on dev by replay; written to `run.evaluation/variants.json`. Raises `ConfigError` for keys outside of
    `train`, or without a dev table.
    """
    configs = {"as configured": run.config.train} | {setting: _varied(run, setting) for setting in settings}
    table, cards = load_table(run, "dev"), provider_cards(run.config.providers)
    asked = {name: train_and_ask(_variant_job(run, config), table, table, cards) for name, config in configs.items()}
    comparison = _compared(run, table, asked)
    write_atomically(run.evaluation / "variants.json", comparison.model_dump_json(indent=2) + "\n")
    return comparison


def _varied(run: Run, setting: str) -> TrainConfig:
    pairs = [pair.strip() for pair in setting.split(";")]
    wrong = [pair for pair in pairs if not pair.startswith("train.")]
    if wrong:
        raise ConfigError(f"{wrong[0]}: only keys of train can vary within one run; give another run another --name.")
    return load_config(run.root / "config.yaml", pairs).train


def _variant_job(run: Run, config: TrainConfig) -> Job:
    """The run's training with other settings, in a folder of its own."""
    root = run.root / "variants" / content_hash(config.model_dump(mode="json"))[:12]
    root.mkdir(parents=True, exist_ok=True)
    return dataclasses.replace(Job.of_run(run, config), root=root, metrics=root / "metrics.jsonl")


def _compared(run: Run, table: RoutingTable, asked: dict[str, Answers]) -> Comparison:
    bootstrap = Bootstrap(len(table.rows), run.config.evaluate.bootstrap, run.config.seed)
    first = next(iter(asked.values()))
    variants = []
    for name, one in asked.items():
        value, gain = bootstrap.estimate(one.values), bootstrap.estimate(one.values - first.values)
        if value is None or gain is None:
            raise EngineError("No dev task is scored, so there is nothing to compare on.")
        variants.append(
            Variant(
                name=name,
                value=value.mean,
                low=value.low,
                high=value.high,
                gain=gain.mean,
                gain_low=gain.low,
                gain_high=gain.high,
                top_share=max(one.arms.count(arm) for arm in set(one.arms)) / len(one.arms),
                legal=one.legal,
            )
        )
    return Comparison(split=table.split, tasks=len(table.rows), variants=tuple(variants))


def _range(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:5.1f} ({100 * low:.1f} to {100 * high:.1f})"
