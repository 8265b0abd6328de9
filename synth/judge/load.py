"""The judge that a run's config names."""

from __future__ import annotations

from synth.config import EndpointConfig
from synth.judge.cases import Judge
from synth.judge.lm import LMJudge
from synth.judge.rules import RuleJudge
from synth.plugins import load_own_judge
from synth.runs import Run


def load_judge(run: Run) -> Judge:
    """The judge of `rewards.judge`; for `lm` the model of `models.judge`. Asks nothing.

    Raises:
        ConfigError: there is no such judge, or the config names no model for it.
    """
    name = run.config.rewards.judge
    if name == "rules":
        return RuleJudge()
    if name != "lm":
        return load_own_judge(name, run.models)
    model = run.models.get("judge")
    endpoint = run.config.models.judge
    assert endpoint is not None  # else there was no model
    return LMJudge(model, run.facts, described=_described(endpoint), concurrency=4 * endpoint.concurrency)


def _described(endpoint: EndpointConfig) -> str:
    warmth = "the endpoint's temperature" if endpoint.temperature is None else f"temperature {endpoint.temperature:g}"
    options = "".join(f", {name} {value}" for name, value in sorted(endpoint.options.items()))
    return f"{endpoint.model} at {endpoint.base_url}, {warmth}{options}"
