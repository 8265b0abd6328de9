"""Chat models by purpose, from the config to what asks them."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_world import toy_config

from lm.client import ChatModel
from lm.cost import Price
from providers.errors import ConfigError
from synth.config import EndpointConfig, ModelsConfig
from synth.models import Models, price_of
from synth.plugins import load_agent
from synth.runs import Run

SMALL = EndpointConfig(base_url="http://127.0.0.1:9/v1", model="small")


class Asking:
    """An agent that is given the model of its purpose."""

    name = "asking"

    def __init__(self, model: ChatModel, turns: int = 1) -> None:
        self.model, self.turns = model, turns


def test_purposes_with_equal_endpoints_share_a_model_and_all_share_the_ledger() -> None:
    models = Models(ModelsConfig(agent=SMALL, judge=SMALL, router=SMALL.model_copy(update={"model": "large"})))
    assert models.get("agent") is models.get("judge")
    assert models.get("router") is not models.get("agent")
    assert models.get("router").ledger is models.get("agent").ledger is models.ledger


def test_a_purpose_without_an_endpoint_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"models\.verifier is not set"):
        Models(ModelsConfig(agent=SMALL)).get("verifier")


def test_a_plugin_that_takes_a_model_is_given_the_one_of_its_purpose() -> None:
    models = Models(ModelsConfig(agent=SMALL))
    agent = load_agent("test_models:Asking", {"turns": 3}, models)
    assert isinstance(agent, Asking)
    assert (agent.model, agent.turns) == (models.get("agent"), 3)
    with pytest.raises(ConfigError, match=r"models\.agent is not set"):
        load_agent("test_models:Asking", {}, Models(ModelsConfig()))


def test_half_a_price_is_unknown() -> None:
    assert price_of(SMALL.model_copy(update={"prompt_price": 1.0})) is None
    assert price_of(SMALL.model_copy(update={"prompt_price": 1.0, "completion_price": 0.0})) == Price(1.0, 0.0)


def test_a_run_refuses_to_go_on_with_another_agent_model_but_takes_another_address(tmp_path: Path) -> None:
    Run.open(toy_config(tmp_path, models=ModelsConfig(agent=SMALL))).close()
    moved = SMALL.model_copy(update={"base_url": "http://127.0.0.1:10/v1", "timeout": 5.0})
    Run.open(toy_config(tmp_path, models=ModelsConfig(agent=moved, judge=SMALL))).close()
    with pytest.raises(ConfigError, match=r"models\.agent\.model was 'small', is 'large'"):
        Run.open(toy_config(tmp_path, models=ModelsConfig(agent=SMALL.model_copy(update={"model": "large"}))))
