"""One training: what goes in, where it lies, and the identity of what comes out."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from providers.base import ProviderCard
from providers.errors import ConfigError
from providers.registry import provider_cards
from providers.types import content_hash
from router.adapter import AdapterRecord
from router.codec import template_hash
from router.guide import guide_hash
from router.table import RoutingTable
from synth.config import TrainConfig
from synth.rows import Part, Row, dataset_hash, load_rows
from synth.runs import Run
from synth.selection import Scored, select
from train.forecast import Forecast
from train.watch import HeldOut

WITHOUT_EFFECT = ("report_to", "watch_every")
"""Settings that no adapter depends on."""

NEUTRAL = (
    "lora_modules",
    "labels",
    "shared_context",
    "descriptors",
    "forecast",
    "candidate_order",
    "objective",
    "cache_lower",
    "activation_checkpointing",
)
"""Settings that count only where they differ from the default, so that adapters made before they existed stand."""


@dataclass(frozen=True)
class Measured:
    """What is measured on a trained model."""

    offsets: dict[str, dict[str, float]] = field(default_factory=dict)
    """See `train.marks.fit_offsets`."""
    validation: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One training of the language model."""

    config: TrainConfig
    seed: int
    cards: tuple[ProviderCard, ...]
    rows: list[Row]
    validation: list[Row]
    root: Path
    """The folder that takes the adapter, the merged model and the checkpoints."""
    metrics: Path
    held_out: HeldOut | None = None
    """What routing value is measured on while training; None without an exploration table or validation rows."""
    forecast: Forecast | None = None
    """What the heads expect, where the model is shown it."""
    taught: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the heads expect by task and provider, where Begin's labels are distilled from it."""

    @classmethod
    def of_run(cls, run: Run, config: TrainConfig | None = None, tasks: Collection[str] | None = None) -> Job:
        """The run's training, with other settings (`config`), or on the rows of these tasks alone (`tasks`)."""
        config, table = config or run.config.train, run.table("explore")
        cards = provider_cards(run.config.providers)
        expected = Forecast.of_run(run, tasks) if config.forecast or config.labels == "distilled" else None
        forecast = expected if config.forecast else None
        if forecast is None and _written_alike(config, run.config.train):
            rows, validation = _stored(run, "train"), _stored(run, "validation")
        else:
            rows, validation = _written(run, config, cards, forecast)
        held_out = {row.task_id for row in validation}
        return cls(
            config=config,
            seed=run.config.seed,
            cards=cards,
            rows=[row for row in rows if tasks is None or row.task_id in tasks],
            validation=validation,
            root=run.root,
            metrics=run.metrics,
            held_out=HeldOut.of_table(RoutingTable.load(table), held_out, forecast) if table.exists() else None,
            forecast=forecast,
            taught=expected.predicted if expected is not None and config.labels == "distilled" else {},
        )

    @property
    def adapter(self) -> Path:
        return self.root / "adapter"

    @property
    def merged(self) -> Path:
        return self.root / "merged"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def folder(self) -> Path:
        """Where this training's checkpoints lie."""
        return self.checkpoints / self.fingerprint

    @property
    def dataset_hash(self) -> str:
        return dataset_hash([*self.rows, *self.validation])

    @property
    def template_hash(self) -> str:
        return template_hash(self.config.codec, self.cards)

    @property
    def fingerprint(self) -> str:
        """Equal for trainings that must give the same adapter."""
        taught = (self.taught,) if self.taught else ()
        return content_hash(_settings(self.config), self.seed, self.dataset_hash, self.template_hash, *taught)

    @property
    def phases(self) -> dict[str, int]:
        """Training rows by phase."""
        return dict(Counter(row.phase for row in self.rows))

    def record(self, steps: int, stopped_early: bool, measured: Measured) -> AdapterRecord:
        return AdapterRecord(
            base=self.config.base,
            codec=self.config.codec,
            providers=tuple(card.name for card in self.cards),
            template_hash=self.template_hash,
            guide_hash=guide_hash(self.cards),
            dataset_hash=self.dataset_hash,
            settings=self.config.model_dump(mode="json") | {"seed": self.seed},
            fingerprint=self.fingerprint,
            heads=self.forecast.heads.identity if self.forecast else "",
            rows=self.phases,
            steps=steps,
            stopped_early=stopped_early,
            offsets=measured.offsets,
            validation=measured.validation,
        )


def _written_alike(one: TrainConfig, other: TrainConfig) -> bool:
    """Whether the same rows are written for both."""
    return one.codec == other.codec and one.candidate_order == other.candidate_order


def _stored(run: Run, part: Part) -> list[Row]:
    """The dataset's rows of one part. Raises `ConfigError` where they are those of the other codec."""
    rows, codec = load_rows(run, part), run.config.train.codec
    if any(bool(row.segments) != (codec == "marks") for row in rows):
        raise ConfigError(
            f"{run.dataset} is not written for train.codec: {codec}; run `memroute build` with this config"
        )
    return rows


def _written(
    run: Run, config: TrainConfig, cards: tuple[ProviderCard, ...], forecast: Forecast | None
) -> tuple[list[Row], list[Row]]:
    """The dataset's rows for training and validation, written anew in the codec and with the forecasts of `config`."""
    settings = run.config.model_copy(update={"train": config})
    scored = dataclasses.replace(Scored.of_run(run, cards), config=settings)
    if forecast is not None:
        scored = dataclasses.replace(scored, chances=forecast.chances)
    rows = select(scored).rows
    return [row for row in rows if row.split == "train"], [row for row in rows if row.split == "validation"]


def _settings(config: TrainConfig) -> Mapping[str, Any]:
    standard = TrainConfig().model_dump(mode="json")
    return {
        name: value
        for name, value in config.model_dump(mode="json", exclude=set(WITHOUT_EFFECT)).items()
        if name not in NEUTRAL or value != standard[name]
    }
