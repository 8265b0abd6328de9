"""A run whose tiny random router an engine can serve, and an endpoint that computes it as vLLM would."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

from made_model import made_base, made_json_rows, made_run, write_rows
from scripted_endpoint import Endpoint, Play, said

from providers.base import ProviderCard
from providers.registry import provider_cards
from router.adapter import RECORD, AdapterRecord
from router.codec import CodecName, template_hash
from router.guide import guide_hash
from synth.config import EngineConfig, ServeConfig
from synth.runs import Run

OFFSETS = {"begin": {"functions": 0.05}, "in": {"short_term_memory": -0.02}}


def served_run(folder: Path, codec: CodecName = "marks", **engine: Any) -> tuple[Run, tuple[ProviderCard, ...]]:
    """A run with dataset, record and merged model; the adapter's weights are all zero, so it changes nothing."""
    base = made_base(folder / "base")
    run = made_run(folder, base, codec=codec)
    if codec == "json":
        write_rows(run, made_json_rows(4), made_json_rows(2, "validation"))
    run.config = run.config.model_copy(
        update={"serve": ServeConfig(engine=EngineConfig.model_validate({"model": "router", **engine}))}
    )
    cards = provider_cards(run.config.providers)
    write_router(run, base, codec, cards)
    return run, cards


def write_router(run: Run, base: Path, codec: CodecName, cards: tuple[ProviderCard, ...]) -> None:
    """What a finished training leaves."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    made_base(run.merged)
    model = AutoModelForCausalLM.from_pretrained(base)
    get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(str(run.adapter))
    (run.adapter / RECORD).write_text(record_of(str(base), codec, cards).model_dump_json())


def record_of(base: str, codec: CodecName, cards: tuple[ProviderCard, ...]) -> AdapterRecord:
    """The record of a training on these providers."""
    return AdapterRecord(
        base=base,
        codec=codec,
        providers=tuple(card.name for card in cards),
        template_hash=template_hash(codec, cards),
        guide_hash=guide_hash(cards),
        dataset_hash="d",
        settings={},
        fingerprint="f",
        rows={},
        steps=1,
        stopped_early=False,
        offsets=OFFSETS if codec == "marks" else {},
    )


class TinyVllm:
    """Answers an endpoint's requests from the model in `folder`, in vLLM's words; faults are switched on by attribute.

    `constrains` False ignores JSON schemas, as servers do that know another name for them; `shift` is added to the
    log-odds of every second prompt, as by another adapter.
    """

    def __init__(self, folder: Path, answers: dict[str, str] | None = None) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.answers = answers or {}
        self.constrains = True
        self.shift = 0.0
        self.knows_token_ids = True

    def __call__(self, request: dict[str, Any]) -> Play:
        if "messages" in request:
            return self._chat(request)
        choices = [self._choice(place, tokens, request) for place, tokens in enumerate(request["prompt"])]
        return Play(body={"object": "text_completion", "choices": choices[::-1]})

    def _chat(self, request: dict[str, Any]) -> Play:
        schema = request["response_format"]["json_schema"]["schema"]
        prompt = request["messages"][0]["content"]
        if prompt in self.answers:
            return said(self.answers[prompt])
        word = schema.get("properties", {}).get("word", {"enum": ["?"]})["enum"][0]
        return said(json.dumps({"word": word}) if self.constrains else "Hello!")

    def _choice(self, place: int, tokens: list[int], request: dict[str, Any]) -> dict[str, Any]:
        import torch

        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([tokens])).logits[0, -1].float()
        logprobs = torch.log_softmax(logits, -1)
        asked = request["logprob_token_ids"] if self.knows_token_ids else [int(logits.argmax())]
        found = {f"token_id:{token}": logprobs[token].item() for token in asked}
        if self.shift and place % 2:
            found[f"token_id:{asked[0]}"] += self.shift
        return {"index": place, "text": "", "finish_reason": "length", "logprobs": {"top_logprobs": [found]}}


def endpoint_of(tiny: TinyVllm) -> Endpoint:
    """A running endpoint; stop it after use."""
    endpoint = Endpoint()
    endpoint.models = ["router"]
    endpoint.answer = tiny
    return endpoint


def fake_environment(folder: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine environment whose Python plays vLLM before `endpoint`; every start leaves its pid in `folder`."""
    environment = folder / "env"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).with_name("fake_vllm.py")} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("FAKE_VLLM_BEHIND", endpoint.url)
    monkeypatch.setenv("FAKE_VLLM_PIDS", str(folder / "pids"))
    return environment


def pids(folder: Path) -> list[int]:
    """Of all engines that were started from a fake environment."""
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


async def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something to become true."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.02)
