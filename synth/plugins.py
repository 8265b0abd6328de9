"""Suites, agents, distillers and judges by built-in name or dotted path `package.module:Class`."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from providers.base import Distiller
from providers.errors import ConfigError
from synth.agents.base import TaskAgent
from synth.config import RunConfig
from synth.judge.cases import Judge
from synth.models import Models
from synth.named import load_named
from synth.tasks.base import TaskSuite

if TYPE_CHECKING:
    from lm.client import ChatModel
    from providers.governance.lifecycle import Governor

SUITES: Mapping[str, str] = {
    "factbook": "synth.tasks.factbook:Factbook",
    "questions": "synth.tasks.questions.suite:Questions",
    "textworld": "synth.tasks.textworld:TextWorld",
}
AGENTS: Mapping[str, str] = {
    "case_based": "synth.agents.case_based:CaseBased",
    "react": "synth.agents.react:ReAct",
    "function": "synth.agents.own:FunctionAgent",
    "command": "synth.agents.own:CommandAgent",
}
DISTILLERS: Mapping[str, str] = {
    "rules": "providers.distill.rules:RuleDistiller",
    "lm": "providers.distill.lm:LMDistiller",
}
SELF_GOVERNED = frozenset({"memguard", "verifier_only"})
JUDGES: Mapping[str, str] = {"rules": "synth.judge.rules:RuleJudge", "lm": "synth.judge.lm:LMJudge"}


def load_suite(name: str, seed: int, options: Mapping[str, Any], models: Models | None = None) -> TaskSuite:
    """The suite `Class(seed=seed, **options)`; a `seed` among the options wins.

    A class with a parameter `models` is given the run's chat models. Making a suite may take seconds, so equal calls in
    one process give the same one, where it takes no models.
    """
    wants = "models" in inspect.signature(_found("task suite", SUITES, name)).parameters
    return _suite(name, json.dumps({"seed": seed, **options}, sort_keys=True), models if wants else None)


def load_agent(name: str, options: Mapping[str, Any], models: Models) -> TaskAgent:
    """Build a task agent as `Class(**options)`; a class with a parameter `model` is given the agent's chat model."""
    return cast(TaskAgent, _build("agent", AGENTS, name, dict(options), lambda: models.get("agent")))


def load_distiller(name: str, models: Models) -> Distiller:
    """Build a distiller as `Class()`; a class with a parameter `model` is given the distiller's chat model."""
    return cast(Distiller, _build("distiller", DISTILLERS, name, {}, lambda: models.get("distiller")))


def load_governor(config: RunConfig, models: Models) -> Governor | None:
    """The governor that a config asks for; None where it asks for none and no provider governs itself."""
    from providers.governance.lifecycle import Governor, Rules
    from providers.governance.lm_verifier import LMLooker
    from providers.governance.rule_verifier import RuleLooker
    from providers.governance.verifier import Verifier

    if config.governance == "off" and not SELF_GOVERNED & set(config.providers):
        return None
    looker = LMLooker(models.get("verifier")) if config.verifier == "lm" else RuleLooker()
    return Governor(
        Verifier(looker),
        mode="admission" if config.governance == "admission" else "full",
        rules=Rules(budget=config.budget, gate=config.governance == "gated"),
        described=config.descriptors,
    )


def load_own_judge(name: str, models: Models) -> Judge:
    """Build a judge of the user's as `Class()`; a class with a parameter `model` is given the judge's chat model."""
    return cast(Judge, _build("judge", JUDGES, name, {}, lambda: models.get("judge")))


@lru_cache(maxsize=4)
def _suite(name: str, options: str, models: Models | None) -> TaskSuite:
    given = json.loads(options) | ({} if models is None else {"models": models})
    return cast(TaskSuite, _build("task suite", SUITES, name, given))


def _build(
    kind: str,
    known: Mapping[str, str],
    name: str,
    options: dict[str, Any],
    model: Callable[[], ChatModel] | None = None,
) -> object:
    built = _found(kind, known, name)
    if model is not None and "model" in inspect.signature(built).parameters:
        options["model"] = model()
    try:
        return cast(object, built(**options))
    except TypeError as error:
        raise ConfigError(f"the {kind} {name!r} refused its options ({error}): mend the section's options") from error


def _found(kind: str, known: Mapping[str, str], name: str) -> Callable[..., Any]:
    """The class that a built-in name or a dotted path stands for."""
    if name not in known and ":" not in name:
        near = difflib.get_close_matches(name, known, n=1)
        raise ConfigError(
            f"there is no {kind} {name!r}{f', did you mean {near[0]!r}?' if near else ''}"
            f" (known: {', '.join(sorted(known))}; or a dotted path package.module:Class)"
        )
    return load_named(kind, known.get(name, name))
