"""The real vLLM, where scripts/setup_engine has put one: its decisions, its grammar, its end and its return."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

from engine_kills import kill_under_load
from made_engine import OFFSETS, record_of
from made_model import made_run
from transformers import AutoTokenizer

from providers.base import ProviderCard
from providers.registry import provider_cards
from providers.types import Preview
from router.adapter import RECORD, load_merged
from router.base_model import WHEEL_BASE, load_base
from router.codec import MarksCodec
from router.context import BeginContext
from router.decisions import ScoringPolicy
from router.marks import Encoded, MarkTokenizer
from router.policies.learned import Learned
from serve.engine import Engine
from serve.failures import EngineFailure
from serve.schemas import begin_schema
from serve.vllm import engine_python
from synth.config import EngineConfig, ServeConfig
from synth.runs import Run

ENVIRONMENT = Path(os.environ.get("MEMROUTE_ENGINE_ENV", ".venv-engine"))
KILLS = int(os.environ.get("MEMROUTE_ENGINE_KILLS", "20"))
"""Each costs a start of vLLM, some 25 s on two idle cores."""
Served = tuple[Run, tuple[ProviderCard, ...]]


def _without_vllm() -> bool:
    try:
        engine_python(ENVIRONMENT)
    except EngineFailure:
        return True
    return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_without_vllm(), reason="there is no vLLM here: scripts/setup_engine installs one"),
]


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """SmolLM2 with a random adapter that moves its log-odds by more than rounding does."""
    import torch
    from peft import LoraConfig, get_peft_model

    run = made_run(tmp_path_factory.mktemp("vllm"), WHEEL_BASE, dtype="bfloat16", codec="marks")
    cards = provider_cards(run.config.providers)
    model, tokenizer = load_base(WHEEL_BASE, dtype="float32")
    torch.manual_seed(1)
    adapted: Any = get_peft_model(
        model, LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "o_proj"], init_lora_weights=False)
    )
    adapted.save_pretrained(str(run.adapter))
    whole, _ = load_merged(WHEEL_BASE, run.adapter)
    whole.to(torch.bfloat16).save_pretrained(run.merged)  # type: ignore[arg-type]
    tokenizer.save_pretrained(str(run.merged))
    (run.adapter / RECORD).write_text(record_of(WHEEL_BASE, "marks", cards).model_dump_json())
    yield run, cards
    run.close()


@asynccontextmanager
async def started(run: Run, cards: tuple[ProviderCard, ...], **settings: Any) -> AsyncIterator[Engine]:
    engine_settings = {"kind": "vllm", "environment": ENVIRONMENT, "timeout": 60.0, **settings}
    serve = ServeConfig(engine=EngineConfig.model_validate(engine_settings))
    run.config = run.config.model_copy(update={"serve": serve})
    engine = Engine(run, cards)
    try:
        await engine.start()
        state = await asyncio.wait_for(engine.wait(), 400)
        assert state.status == "ready", state
        yield engine
    finally:
        await engine.close()


def contexts(cards: tuple[ProviderCard, ...]) -> list[BeginContext]:
    words = ("the area of Norland", "steps to the coast", "", "people of Eastmark", "the harbour")
    return [
        BeginContext(
            task_id=f"t{number}",
            question=f"Which area has the harbour of town {number}?",
            previews=tuple(
                Preview(provider=card.name, text=f"{words[(place + number) % 5]}".strip())
                for place, card in enumerate(cards)
            ),
            cards=cards,
        )
        for number in range(4)
    ]


async def _cached_tokens(engine: Engine, cards: tuple[ProviderCard, ...]) -> tuple[int, int]:
    """Tokens that a decision on a new task shares with those before it, and how many of them vLLM had in its cache."""
    marks = MarkTokenizer(AutoTokenizer.from_pretrained(str(engine.merged)))
    known, new = (
        marks.encode(MarksCodec().begin(contexts(cards)[0].model_copy(update={"question": question})).segments)
        for question in (contexts(cards)[0].question, "Who has walked to the far coast?")
    )
    shared = [one == other for one, other in zip(known.tokens, new.tokens, strict=False)].index(False)

    async def hits() -> int:
        async with httpx.AsyncClient() as client:
            told = await client.get(engine.client.base_url.removesuffix("/v1") + "/metrics")
        return int(float(re.findall(r"^vllm:prefix_cache_hits_total.* (\S+)$", told.text, re.MULTILINE)[0]))

    before = await hits()
    await engine.client.log_odds([Encoded(new.tokens, new.marks[:1])], marks.yes, marks.no)
    return shared, await hits() - before


async def test_marks_equal_the_exported_models_and_a_killed_engine_comes_back(router: Served) -> None:
    run, cards = router
    async with started(run, cards, weights="merged") as engine:
        policy = engine.policy
        assert isinstance(policy, ScoringPolicy)
        theirs = await asyncio.to_thread(policy.score, contexts(cards))
        exported = Learned(*load_base(str(run.merged), dtype="bfloat16"), name="exported", offsets=OFFSETS)
        assert np.abs(theirs - exported.score(contexts(cards))).max() < 0.5
        assert theirs.std() > 0.2

        shared, hits = await _cached_tokens(engine, cards)
        assert hits == shared // 32 * 32 > 32

        schema = begin_schema([card.name for card in cards])
        asked = 'Reply with {"action": "query", "provider": "nobody"} and nothing else.'
        answer = json.loads((await engine.client.answer(asked, schema, max_tokens=64)).text)
        assert answer["action"] == "query"
        assert answer["provider"] in [card.name for card in cards]
        with pytest.raises(EngineFailure) as caught:
            await engine.client.answer("Say hello.", schema, max_tokens=3)
        assert caught.value.kind == "cut"

        assert engine.process is not None
        os.kill(engine.process.pid, signal.SIGKILL)
        async with asyncio.timeout(400):
            while engine.ready:
                await asyncio.sleep(0.05)
            with pytest.raises(EngineFailure):
                await policy.begin(contexts(cards)[0])
            while not engine.ready:
                await asyncio.sleep(0.1)
        again = await asyncio.to_thread(policy.score, contexts(cards))
        assert np.abs(theirs - again).max() < 0.5


async def test_kills_of_the_engine_lose_nothing(router: Served, tmp_path: Path) -> None:
    """Every second kill takes the process that computes, and leaves vLLM to notice it."""
    run, cards = router

    def victim(kill: int) -> int:
        assert engine.process is not None
        server = psutil.Process(engine.process.pid)
        computes = max(server.children(recursive=True), key=lambda child: child.memory_info().rss)
        return int(computes.pid if kill % 2 else server.pid)

    async with started(run, cards, weights="merged") as engine:
        late = {"router_seconds": 60.0, "probe_seconds": 60.0}
        await kill_under_load(engine, tmp_path, KILLS, victim=victim, pause=0.5, patience=400, **late)


async def test_the_adapter_beside_its_base_decides_as_the_merged_model(router: Served) -> None:
    run, cards = router
    async with started(run, cards, weights="lora") as engine:
        policy = engine.policy
        assert isinstance(policy, ScoringPolicy)
        theirs = await asyncio.to_thread(policy.score, contexts(cards))
    exported = Learned(*load_base(str(run.merged), dtype="bfloat16"), name="exported", offsets=OFFSETS)
    bare = Learned(*load_base(WHEEL_BASE, dtype="bfloat16"), name="bare", offsets=OFFSETS)
    assert np.abs(theirs - exported.score(contexts(cards))).max() < 0.5
    to_exported, to_bare = (np.abs(theirs - each.score(contexts(cards))).mean() for each in (exported, bare))
    assert to_exported < to_bare / 2
