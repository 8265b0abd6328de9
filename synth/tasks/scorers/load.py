"""Scorers by name, with their options."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from providers.errors import ConfigError
from synth.models import Models
from synth.tasks.scorers.base import Scorer
from synth.tasks.scorers.gaia import Gaia
from synth.tasks.scorers.judge import EquivalenceJudge
from synth.tasks.scorers.own import Command, Function
from synth.tasks.scorers.text import Exact, Numeric, Regex

_PLAIN: Mapping[str, Callable[..., Scorer]] = {
    "exact": Exact,
    "numeric": Numeric,
    "gaia": Gaia,
    "regex": Regex,
    "command": Command,
    "function": Function,
}
NAMES = (*_PLAIN, "judge")


def load_scorer(wanted: str | Mapping[str, Any], models: Models | None) -> Scorer:
    """A scorer by name, or by `{name: ..., and its options}`.

    `judge` asks `models.scorer`, which may be neither the agent's nor the router's model unless `same_model: true`.
    Raises ConfigError for a name or option that there is not.
    """
    options = {"name": wanted} if isinstance(wanted, str) else dict(wanted)
    name = str(options.pop("name", ""))
    if name == "judge":
        return _judge(options, models)
    if name not in _PLAIN:
        near = difflib.get_close_matches(name, NAMES, n=1)
        nearest = f", did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"there is no scorer {name!r}{nearest} (known: {', '.join(NAMES)})")
    try:
        return _PLAIN[name](**options)
    except TypeError as error:
        raise ConfigError(f"the scorer {name!r} refused its options ({error}): mend them") from error


def _judge(options: dict[str, Any], models: Models | None) -> Scorer:
    same = options.pop("same_model", False)
    if options or not isinstance(same, bool):
        raise ConfigError(f"the judge scorer takes `same_model: true` alone, not {options or same}")
    if models is None:
        raise ConfigError("the judge scorer asks models.scorer, and there is no config to name it")
    return EquivalenceJudge(models.scorer(same_model=same))
