"""Whether the endpoints that a config names answer, and what they can do."""

from __future__ import annotations

import os
from typing import get_args

from lm.abilities import Abilities, examine
from providers.errors import ModelError
from synth.config import EndpointConfig, ModelsConfig, Purpose
from synth.doctor import Finding
from synth.models import Models

PATIENCE = 60.0
"""Most seconds per question: a doctor's visit is no run."""


async def examine_endpoints(config: ModelsConfig) -> tuple[Finding, ...]:
    """One finding per distinct endpoint, asked a few short questions once each; none where no purpose has one."""
    findings = []
    for endpoint, purposes in _endpoints(config):
        visited = endpoint.model_copy(update={"retries": 0, "timeout": min(endpoint.timeout, PATIENCE)})
        model = Models(ModelsConfig(**{purposes[0]: visited})).get(purposes[0])
        check, where = "endpoint", f"{endpoint.model} at {endpoint.base_url} ({', '.join(purposes)})"
        try:
            found = await examine(model, purpose=purposes[0])
        except ModelError as error:
            mend = "" if os.environ.get(endpoint.key_env) else f"{endpoint.key_env} is not set, if a key is wanted"
            findings.append(Finding(check=check, status="failed", detail=f"({', '.join(purposes)}) {error}", mend=mend))
        else:
            findings.append(_finding(check, where, found))
        finally:
            await model.close()
    return tuple(findings)


def _finding(check: str, where: str, found: Abilities) -> Finding:
    detail = (
        f"{where}: first answer after {found.seconds:.1f} s; JSON schema {_word(found.schema)}, "
        f"tool choice {_word(found.tool_choice)}, log-probabilities {'given' if found.logprobs else 'not given'}"
    )
    if found.schema or found.tool_choice:
        return Finding(check=check, status="ok", detail=detail)
    mend = "expect unreadable answers; use a server or model with structured output"
    return Finding(check=check, status="warning", detail=detail, mend=mend)


def _word(obeyed: bool) -> str:
    return "followed" if obeyed else "ignored"


def _endpoints(config: ModelsConfig) -> list[tuple[EndpointConfig, list[Purpose]]]:
    """Distinct addresses and models with their purposes, in the order of the purposes."""
    found: dict[tuple[str, str, str], tuple[EndpointConfig, list[Purpose]]] = {}
    for purpose in get_args(Purpose):
        endpoint: EndpointConfig | None = getattr(config, purpose)
        if endpoint is not None:
            identity = (endpoint.base_url, endpoint.model, endpoint.key_env)
            found.setdefault(identity, (endpoint, []))[1].append(purpose)
    return list(found.values())
