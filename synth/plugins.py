"""Suites, agents and distillers by built-in name or dotted path `package.module:Class`."""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from providers.base import Distiller
from providers.errors import ConfigError
from synth.agents.base import TaskAgent
from synth.tasks.base import TaskSuite

SUITES: Mapping[str, str] = {"factbook": "synth.tasks.factbook:Factbook"}
AGENTS: Mapping[str, str] = {"case_based": "synth.agents.case_based:CaseBased"}
DISTILLERS: Mapping[str, str] = {"rules": "providers.distill.rules:RuleDistiller"}


def load_suite(name: str, seed: int, options: Mapping[str, Any]) -> TaskSuite:
    """The suite `Class(seed=seed, **options)`; a `seed` among the options wins.

    Making one may take seconds, so equal calls in one process give the same suite.
    """
    return _suite(name, json.dumps({"seed": seed, **options}, sort_keys=True))


def load_agent(name: str, options: Mapping[str, Any]) -> TaskAgent:
    """Build a task agent as `Class(**options)`."""
    return cast(TaskAgent, _build("agent", AGENTS, name, dict(options)))


def load_distiller(name: str) -> Distiller:
    """Build a distiller as `Class()`."""
    return cast(Distiller, _build("distiller", DISTILLERS, name, {}))


@lru_cache(maxsize=4)
def _suite(name: str, options: str) -> TaskSuite:
    return cast(TaskSuite, _build("task suite", SUITES, name, json.loads(options)))


def _build(kind: str, known: Mapping[str, str], name: str, options: dict[str, Any]) -> object:
    path = known.get(name, name)
    module_name, colon, class_name = path.partition(":")
    if not colon:
        near = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            f"there is no {kind} {name!r}{f', did you mean {near[0]!r}?' if near else ''}"
            f" (known: {', '.join(sorted(known))}; or a dotted path package.module:Class)"
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"the {kind} {name!r} cannot be imported ({error}): install its package or mend the path"
        ) from error
    built = getattr(module, class_name, None)
    if not callable(built):
        raise ConfigError(f"the {kind} {name!r} cannot be built: {module_name} has no class {class_name}")
    try:
        return cast(object, built(**options))
    except TypeError as error:
        raise ConfigError(
            f"the {kind} {name!r} refused its options {options} ({error}): mend the section's options"
        ) from error
