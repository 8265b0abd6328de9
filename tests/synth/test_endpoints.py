"""What `doctor` finds about the endpoints of a config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted_endpoint import Endpoint, Play, said

from synth.config import EndpointConfig, ModelsConfig
from synth.endpoints import examine_endpoints

TOKENS = {"content": [{"token": "Y", "logprob": 0.0, "top_logprobs": [{"token": "Y", "logprob": 0.0}]}]}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.stop()


def able(request: dict[str, Any]) -> Play:
    if "tools" in request:
        return said(None, calls=[("report_colour", '{"colour": "yellow"}')])
    if "response_format" in request:
        return said('{"colour": "yellow"}')
    return said("Yellow", logprobs=TOKENS if request.get("logprobs") else None)


def config(url: str) -> ModelsConfig:
    small = EndpointConfig(base_url=url, model="small", key_env="NO_SUCH_KEY")
    return ModelsConfig(agent=small, judge=small.model_copy(update={"temperature": 0.5}))


async def test_an_able_endpoint_is_asked_once_for_all_its_purposes(endpoint: Endpoint) -> None:
    endpoint.answer = able
    (finding,) = await examine_endpoints(config(endpoint.url))
    assert finding.status == "ok"
    assert f"small at {endpoint.url} (agent, judge)" in finding.detail
    assert "JSON schema followed, tool choice followed, log-probabilities given" in finding.detail
    assert len(endpoint.requests) == 4


async def test_an_endpoint_that_ignores_what_it_is_told_is_a_warning(endpoint: Endpoint) -> None:
    endpoint.answer = lambda request: said("A ripe lemon is yellow.")
    (finding,) = await examine_endpoints(config(endpoint.url))
    assert finding.status == "warning"
    assert "JSON schema ignored, tool choice ignored, log-probabilities not given" in finding.detail


async def test_a_setting_that_is_refused_is_an_ability_that_is_missing(endpoint: Endpoint) -> None:
    endpoint.answer = lambda request: (
        Play(400, {"error": {"message": "unknown field"}}) if "tools" in request else able(request)
    )
    (finding,) = await examine_endpoints(config(endpoint.url))
    assert "JSON schema followed, tool choice ignored, log-probabilities given" in finding.detail


async def test_an_endpoint_that_fails_is_found_with_what_to_mend(endpoint: Endpoint) -> None:
    endpoint.script = [Play(401, {"error": {"message": "no key"}})]
    (finding,) = await examine_endpoints(config(endpoint.url))
    assert finding.status == "failed"
    assert "set NO_SUCH_KEY to a valid key" in finding.detail
    assert finding.mend == "NO_SUCH_KEY is not set, if a key is wanted"


async def test_without_endpoints_there_is_nothing_to_find() -> None:
    assert await examine_endpoints(ModelsConfig()) == ()
