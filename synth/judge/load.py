"""The judge that a run's config names."""

from __future__ import annotations

from synth.config import EndpointConfig
from synth.judge.cases import Judge
from synth.judge.lm import LMJudge
from synth.judge.rules import RuleJudge
from synth.runs import Run


def load_judge(run: Run) -> Judge:
    """The judge of `rewards.judge`; for `lm` the model of `models.judge`. Asks nothing.

    Raises:
        ConfigError: the config names no model for it.
    """
    if run.config.rewards.judge == "rules":
        return RuleJudge()
    model = run.models.get("judge")
    endpoint = run.config.models.judge
    assert endpoint is not None  # else there was no model
    return LMJudge(model, run.facts, described=_described(endpoint), concurrency=4 * endpoint.concurrency)


def _described(endpoint: EndpointConfig) -> str:
    warmth = "the endpoint's temperature" if endpoint.temperature is None else f"temperature {endpoint.temperature:g}"
    options = "".join(f", {name} {value}" for name, value in sorted(endpoint.options.items()))
    return f"{endpoint.model} at {endpoint.base_url}, {warmth}{options}"
