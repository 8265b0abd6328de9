"""The schema of a run's config: one section per stage, plain data, nothing heavy imported.

Everything here can be set from the command line with `--set section.key=value`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Base of the sections: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class SuiteConfig(Section):
    """Which tasks, and how many of each split."""

    name: str = "factbook"
    warmup: int = Field(default=300, ge=0)
    explore: int = Field(default=400, ge=0)
    dev: int = Field(default=150, ge=0)
    test: int = Field(default=600, ge=0)
    options: dict[str, Any] = Field(default_factory=dict)


class AgentConfig(Section):
    """Which task agent, and its step limits."""

    name: str = "case_based"
    max_steps: int = Field(default=12, ge=1)
    warmup_max_steps: int = Field(default=40, ge=1)
    options: dict[str, Any] = Field(default_factory=dict)


class EncoderConfig(Section):
    name: str = "minilm"
    options: dict[str, Any] = Field(default_factory=dict)


class ModelConfig(Section):
    """An OpenAI-compatible endpoint. The key is read from the environment variable `key_env`."""

    base_url: str = "http://127.0.0.1:8081/v1"
    model: str = ""
    key_env: str = "OPENAI_API_KEY"
    temperature: float = 0.0
    timeout: float = 120.0


class WarmupConfig(Section):
    """How the banks are filled before exploration."""

    tries: int = Field(default=2, ge=1)
    """Attempts per warm-up task with different agent seeds until one is correct."""
    passes: int = Field(default=2, ge=1)
    """Passes over the stream; later passes take the unsolved tasks again, with what was learned."""


class ExploreConfig(Section):
    """Forced exploration."""

    waves: int = Field(default=4, ge=1)
    in_modes: tuple[Literal["query", "no_op"], ...] = ("query", "no_op")
    repeats: int = Field(default=1, ge=1)
    concurrency: int = Field(default=8, ge=1)
    episode_seconds: float = Field(default=60.0, gt=0)
    fail_on_error: bool | float | int = 0.1
    """True: the first failed episode stops the run; a share below 1, or a count from 1 up."""
    positive: Literal["any", "mean", "all"] = "mean"


class RewardConfig(Section):
    """Rewards and the filter (reconstruction of MemAgent 4.3; thresholds are ours)."""

    judge: Literal["rules"] = "rules"
    eps_in: float = 0.6
    eps_end: float = 0.5
    top_k: int = 3
    min_exposures: int = 3
    """Later tasks an origin must have had before "never reused" counts as 0 and not as unscored."""
    in_requires_correct: bool = True


class DatasetConfig(Section):
    """Rows kept per phase; None keeps all."""

    max_begin: int | None = None
    max_in: int | None = 400
    max_end: int | None = 400
    validation_share: float = Field(default=0.1, ge=0, lt=1)


class TrainConfig(Section):
    """The LM router (LoRA SFT) and the heads."""

    base: str = "smollm2-135m"
    """`smollm2-135m` from its wheel, a local folder, or a hub id."""
    codec: Literal["marks", "json"] = "marks"
    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    upper_layers: float = Field(default=1.0, gt=0, le=1)
    """Share of the layers, from the top, that get adapters."""
    learning_rate: float = 5e-4
    warmup_ratio: float = 0.1
    batch_size: int = 8
    accumulation: int = 1
    epochs: float = 1.0
    max_tokens: int = 400
    max_minutes: float | None = 6.0
    """Training stops after this many minutes at the next step, and says so; None never stops."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"


class EvaluateConfig(Section):
    """Policies compared on the routing table of a split."""

    repeats: int = Field(default=2, ge=1)
    in_mode: Literal["query", "no_op"] = "query"
    policies: tuple[str, ...] | Literal["all"] = "all"
    bootstrap: int = 10_000
    shuffle: bool = True
    """Also run the control in which retrieved texts are shuffled across families."""


class RunConfig(Section):
    """A whole run, as `configs/*.yaml` spells it."""

    name: str
    seed: int = 0
    runs_dir: Path = Path("runs")
    suite: SuiteConfig = SuiteConfig()
    agent: AgentConfig = AgentConfig()
    providers: tuple[str, ...] = ("expel", "awm", "skillweaver", "voyager", "insight_graph")
    encoder: EncoderConfig = EncoderConfig()
    distiller: Literal["rules"] = "rules"
    model: ModelConfig | None = None
    """A frozen chat model for PromptRoute; without one the router's own base model is used, untrained."""
    warmup: WarmupConfig = WarmupConfig()
    explore: ExploreConfig = ExploreConfig()
    rewards: RewardConfig = RewardConfig()
    dataset: DatasetConfig = DatasetConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
