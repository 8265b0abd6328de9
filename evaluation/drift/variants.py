"""The banks that are compared: MemGuard's mechanics with its switches (tables 13 to 15, 17, 18, 20 and 24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from evaluation.drift.signals import Noise, OutcomeLooker, Rescaled, SignLooker, TestedGovernor, label_alone
from evaluation.statistics import seeded
from providers.base import Distiller
from providers.errors import ConfigError
from providers.governance.admission import Thresholds
from providers.governance.descriptor import MIX
from providers.governance.lifecycle import Rules
from providers.governance.ranking import DEFAULT, GUARD_POSITIVE, GUARD_RISK, POSITIVE, RISK, Weights
from providers.governance.verifier import Looker, Verifier
from providers.long_term.memguard import MemGuard
from providers.space import Space

GOVERNED, VERIFIER_ONLY, UNGOVERNED, NO_MEMORY = "governed", "verifier_only", "ungoverned", "no_memory"
MAIN = (GOVERNED, VERIFIER_ONLY, UNGOVERNED)
DIRICHLET_DRAWS = 5
BUDGETS = (32, 64, 128, 256, 1024)
"""Beside the default of 512."""
_SIGNALS = (POSITIVE, RISK, GUARD_POSITIVE, GUARD_RISK)


@dataclass(frozen=True)
class Variant:
    """One bank. `keeps` says who decides on what comes in: nobody (no memory), the outcome that is told, the verifier
    once, or governance."""

    keeps: Literal["nothing", "outcome", "admission", "full"] = "full"
    rules: Rules = field(default_factory=Rules)
    repeat: bool = True
    masked: bool = False
    criteria: tuple[float, ...] | None = None
    """Weights of the criteria; None: alike."""
    mix: float = MIX
    tokens: int = 5
    label_only: bool = False
    weights: Weights = field(default_factory=lambda: DEFAULT)

    @property
    def stores(self) -> bool:
        return self.keeps != "nothing"

    def looker(self) -> Looker:
        if self.keeps == "outcome":
            return OutcomeLooker()
        return SignLooker() if self.tokens == 5 else Rescaled(SignLooker(), self.tokens)

    def provider(self, space: Space, distiller: Distiller, noise: Noise) -> MemGuard:
        """MemGuard over a space, governed as this variant says, on verdicts that are wrong as `noise` says."""
        mistaken = partial(noise.mistaken, thresholds=self.rules.thresholds, mix=self.mix)
        provider = MemGuard(space, distiller)
        provider.governor = TestedGovernor(
            Verifier(self.looker(), repeat=self.repeat, masked=self.masked, weights=self.criteria, mix=self.mix),
            mode="full" if self.keeps == "full" else "admission",
            rules=self.rules,
            changes=(mistaken, label_alone) if self.label_only else (mistaken,),
        )
        provider.weights = self.weights
        return provider


def _weights(change: Mapping[str, float] | None = None, draw: int | None = None) -> Weights:
    """Uniform weights, or those of one Dirichlet draw, each table keeping its sum; `change` sets signals by name."""
    tables = []
    for place, table in enumerate(_SIGNALS):
        total, shares = sum(table.values()), [1 / len(table)] * len(table)
        if draw is not None:
            shares = seeded(draw, "dirichlet", place).dirichlet([1.0] * len(table)).tolist()
        drawn = {name: total * share for name, share in zip(table, shares, strict=True)}
        tables.append(drawn if change is None else {name: change.get(name, 0.0) for name in table})
    return Weights(*tables)


VARIANTS: dict[str, Variant] = {
    GOVERNED: Variant(),
    VERIFIER_ONLY: Variant(keeps="admission"),
    UNGOVERNED: Variant(keeps="outcome", rules=Rules(admission=False)),
    NO_MEMORY: Variant(keeps="nothing"),
    "gated": Variant(rules=Rules(gate=True)),
    "without_admission": Variant(rules=Rules(admission=False)),
    "without_repeats": Variant(repeat=False),
    "without_governance": Variant(rules=Rules(lifecycle=False)),
    "without_failures": Variant(rules=Rules(guards=False)),
    "semantic_only": Variant(weights=_weights({"relevance": 1.0})),
    "tokens_3": Variant(tokens=3),
    "tokens_10": Variant(tokens=10),
    "label_confidence": Variant(label_only=True),
    "thresholds_lower": Variant(rules=Rules(thresholds=Thresholds(0.65, 0.55))),
    "thresholds_higher": Variant(rules=Rules(thresholds=Thresholds(0.75, 0.65))),
    "alpha_0.3": Variant(mix=0.3),
    "alpha_0.7": Variant(mix=0.7),
    "masked_status": Variant(masked=True),
    "uniform_weights": Variant(weights=_weights()),
    **{f"random_weights_{n}": Variant(weights=_weights(draw=n)) for n in range(1, DIRICHLET_DRAWS + 1)},
    "completion_heavy": Variant(criteria=(0.55, 0.15, 0.15, 0.15)),
    "execution_heavy": Variant(criteria=(0.15, 0.15, 0.55, 0.15)),
    **{f"budget_{budget}": Variant(rules=Rules(budget=budget)) for budget in BUDGETS},
}
"""By name, in the order of the tables."""
SWITCHES = tuple(name for name in VARIANTS if name not in MAIN)


def named(names: Sequence[str]) -> tuple[str, ...]:
    """Names of variants from what was asked for: `main`, `all`, or names. Raises ConfigError for one that is not."""
    import difflib

    found: list[str] = []
    for name in names:
        if name in ("main", "all"):
            found += MAIN if name == "main" else VARIANTS
        elif name in VARIANTS:
            found.append(name)
        else:
            near = difflib.get_close_matches(name, VARIANTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"There is no variant {name!r} (main, all, or of: {', '.join(VARIANTS)}){hint}")
    return tuple(dict.fromkeys(found))
