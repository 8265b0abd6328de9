"""The benchmark's specification as it is read from `spec.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from providers.errors import ConfigError
from providers.governance.evidence import Trust
from providers.governance.gate import Check
from providers.types import Flow

SPEC = Path(__file__).parent / "spec.yaml"
SUM_TOLERANCE = 1e-9

Share = Annotated[float, Field(ge=0, le=1)]
Shared = Literal["nothing", "source", "prompt", "tool", "parent"]


class Kind(Flow):
    """One kind of candidate: how its observations come about. Shares are chances."""

    valid: bool
    count: Annotated[int, Field(ge=1)]
    observations: tuple[int, int]
    shared: tuple[Shared, ...]
    sources: Literal["one", "each"]
    trust: dict[Trust, Share]
    confidence: tuple[float, float]
    environment: Literal["target", "older", "other"]
    contradicted: Share
    narrowed: Share
    repeated: Share

    @model_validator(mode="after")
    def _adds_up(self) -> Kind:
        _add_up(self.trust)
        return self


class CheckRates(Flow):
    """Chances of each result of the check for claims that hold, and for those that do not."""

    valid: dict[Check, Share]
    invalid: dict[Check, Share]

    @model_validator(mode="after")
    def _adds_up(self) -> CheckRates:
        _add_up(self.valid)
        _add_up(self.invalid)
        return self


class Spec(Flow):
    """All that the generator is told."""

    version: int
    seeds: tuple[int, ...]
    bundles: Annotated[int, Field(ge=1)]
    clustering_noise: Share
    noise_sweep: tuple[Share, ...]
    check: CheckRates
    kinds: dict[str, Kind]


def load_spec(path: Path = SPEC) -> Spec:
    """Read a specification. Raises ConfigError where it cannot be read or is wrong."""
    import yaml
    from pydantic import ValidationError

    try:
        return Spec.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"The benchmark's specification {path} cannot be used: {error}") from error


def _add_up(chances: Mapping[Any, float]) -> None:
    if abs(sum(chances.values()) - 1) > SUM_TOLERANCE:
        raise ValueError(f"chances add up to {sum(chances.values()):g} instead of 1: {dict(chances)}")
