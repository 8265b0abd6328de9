"""The served router decides as the exported model does, and is ready only when that was shown."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_engine import OFFSETS, TinyVllm, endpoint_of, fake_environment, pids, served_run, until
from scripted_endpoint import Endpoint, Play, said

from providers.base import ProviderCard
from providers.errors import EngineError
from providers.types import Outcome, Preview, Step
from router.adapter import RECORD, read_record
from router.codec import JsonCodec
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, ScoringPolicy
from router.policies.learned import Learned
from router.policies.none import NoMemory
from router.policies.overlap import Overlap
from router.policies.registry import PolicyMaterial, build_policy
from serve import engine as engine_module
from serve.attended import AttendedRouter, Notes, Rests
from serve.canary import Canary, Case, compare_marks, is_legal, load_canary, stamp_of
from serve.engine import Engine
from serve.failures import EngineFailure, FailureKind
from serve.opening import served_engine
from serve.vllm import vllm_arguments
from synth.runs import Run


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(engine_module, "FIRST_WAIT", 0.05)


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, tuple[ProviderCard, ...]]]:
    run, cards = served_run(tmp_path_factory.mktemp("marks"), kind="endpoint")
    yield run, cards
    run.close()


@pytest.fixture
def tiny(marks: tuple[Run, tuple[ProviderCard, ...]]) -> TinyVllm:
    return TinyVllm(marks[0].merged)


@pytest.fixture
def endpoint(tiny: TinyVllm) -> Iterator[Endpoint]:
    made = endpoint_of(tiny)
    yield made
    made.stop()


@asynccontextmanager
async def started(run: Run, cards: tuple[ProviderCard, ...], **settings: Any) -> AsyncIterator[Engine]:
    """An engine of the run with other settings, until it is ready or refused."""
    changed = run.config.serve.engine.model_copy(update=settings)
    own = run.config
    run.config = own.model_copy(update={"serve": own.serve.model_copy(update={"engine": changed})})
    made = Engine(run, cards)
    try:
        await made.start()
        await asyncio.wait_for(made.wait(), 20)
        yield made
    finally:
        await made.close()
        run.config = own


def begin(cards: tuple[ProviderCard, ...], number: int) -> BeginContext:
    shown = [f"{word} of norland {number}" for word in ("area", "coast", "people", "", "harbour")]
    return BeginContext(
        task_id=f"t{number}",
        question="which area " + "harbour " * (number % 5) + "?",
        previews=tuple(Preview(provider=card.name, text=text) for card, text in zip(cards, shown, strict=True)),
        cards=cards,
    )


def within(cards: tuple[ProviderCard, ...]) -> InContext:
    step = Step(index=0, tool="open", observation="the area")
    return InContext(task_id="t", question="which area ?", step=1, summary="area : 5", recent=(step,))


def ending(cards: tuple[ProviderCard, ...], correct: bool | None = True) -> EndContext:
    return EndContext(task_id="t", question="which ?", summary="run", outcome=Outcome(correct=correct), cards=cards)


async def test_marks_through_an_engine_equal_the_exported_models(marks, endpoint) -> None:
    run, cards = marks
    exported = Learned.load(str(run.merged), None, "marks", cards, dtype="float32")
    assert isinstance(exported, Learned)
    exported._offsets = OFFSETS
    contexts = [begin(cards, number) for number in range(5)]
    async with started(run, cards, base_url=endpoint.url) as engine:
        assert engine.state.status == "ready", engine.state
        assert engine.state.agreement is not None
        assert engine.state.agreement.largest_gap == pytest.approx(0, abs=1e-3)
        policy = engine.policy
        assert isinstance(policy, ScoringPolicy)
        theirs = await asyncio.to_thread(policy.score, contexts)
        assert np.allclose(theirs, exported.score(contexts), atol=1e-4)
        assert theirs.std() > 1e-3
        for context in contexts:
            assert await policy.begin(context) == await exported.begin(context)
        assert await policy.step(within(cards)) == await exported.step(within(cards))
        for correct in (True, False, None):
            assert await policy.end(ending(cards, correct)) == await exported.end(ending(cards, correct))


async def test_a_prompt_is_asked_as_its_beginnings_so_that_a_cached_prefix_serves_all(marks, endpoint) -> None:
    run, cards = marks
    async with started(run, cards, base_url=endpoint.url) as engine:
        endpoint.requests.clear()
        await engine.policy.begin(begin(cards, 1))
        await engine.policy.begin(begin(cards, 2))
    first, second = (request["prompt"] for request in endpoint.requests)
    assert len(first) == len(cards)
    for shorter, longer in itertools.pairwise(first):
        assert longer[: len(shorter)] == shorter
    # The guide stands first and is the same for every task.
    shared = next(place for place, (a, b) in enumerate(zip(first[0], second[0], strict=False)) if a != b)
    assert shared > len(first[0]) // 2


async def test_an_engine_with_another_adapter_is_refused_and_decides_nothing(marks, endpoint, tiny) -> None:
    run, cards = marks
    tiny.shift = 9.0
    async with started(run, cards, base_url=endpoint.url) as engine:
        assert engine.state.status == "refused"
        assert "another adapter" in engine.state.reason
        with pytest.raises(EngineFailure) as caught:
            await engine.policy.begin(begin(cards, 1))
        assert caught.value.kind == "refused"


async def test_an_engine_that_ignores_the_tokens_asked_for_is_refused(marks, endpoint, tiny) -> None:
    run, cards = marks
    tiny.knows_token_ids = False
    async with started(run, cards, base_url=endpoint.url) as engine:
        assert engine.state.status == "refused"
        assert "logprob_token_ids" in engine.state.reason


async def test_an_engine_without_the_router_is_refused_by_name(marks, endpoint) -> None:
    run, cards = marks
    endpoint.models = ["another"]
    async with started(run, cards, base_url=endpoint.url) as engine:
        assert engine.state.status == "refused"
        assert "another, not router" in engine.state.reason


@pytest.mark.parametrize(
    ("play", "kind"),
    [
        (Play(status=500, body={"error": {"message": "engine is dead"}}), "down"),
        (Play(status=400, body={"error": {"message": "prompt is too long"}}), "refused"),
        (Play(body="<html>"), "invalid"),
        (Play(body={"choices": []}), "invalid"),
        (Play(body={"choices": [{"index": 0, "logprobs": {"top_logprobs": [None]}}] * 5}), "invalid"),
        (Play(body={"choices": []}, hang=5), "slow"),
        (Play(body={"choices": []}, drop=3), "down"),
    ],
)
async def test_every_way_to_fail_has_its_kind(marks, endpoint, play, kind) -> None:
    run, cards = marks
    async with started(run, cards, base_url=endpoint.url, timeout=0.5) as engine:
        endpoint.answer, endpoint.script = None, [play]
        with pytest.raises(EngineFailure) as caught:
            await engine.policy.begin(begin(cards, 1))
        assert caught.value.kind == kind
        with pytest.raises(EngineFailure) as caught:
            await asyncio.to_thread(engine.policy.score, [begin(cards, 1)])  # type: ignore[attr-defined]
        assert caught.value.kind == kind


async def test_an_engine_that_comes_back_decides_again_without_help(marks, tiny) -> None:
    run, cards = marks
    first = endpoint_of(tiny)
    port = first.server.server_port
    async with started(run, cards, base_url=first.url) as engine:
        first.stop()
        await until(lambda: engine.state.status == "down")
        with pytest.raises(EngineFailure, match="engine is down"):
            await engine.policy.begin(begin(cards, 1))
        second = Endpoint(port)
        second.models, second.answer = ["router"], tiny
        try:
            await until(lambda: engine.ready)
            assert (await engine.policy.begin(begin(cards, 1))).arm in [card.name for card in cards]
            assert engine.state.restarts > 0
        finally:
            second.stop()


async def test_the_engine_in_this_process_decides_like_the_others(tmp_path, endpoint) -> None:
    run, cards = served_run(tmp_path, kind="local")
    try:
        async with started(run, cards) as engine:
            assert engine.ready
            local = await engine.policy.begin(begin(cards, 3))
        async with started(run, cards, kind="endpoint", base_url=endpoint.url) as engine:
            assert await engine.policy.begin(begin(cards, 3)) == local
    finally:
        run.close()


class Failing(NoMemory):
    """A router whose engine gives no decision."""

    name = "failing"

    def __init__(self, kind: FailureKind) -> None:
        self.kind = kind

    async def begin(self, context: BeginContext) -> BeginDecision:
        raise EngineFailure("no decision", kind=self.kind)


@pytest.mark.parametrize(
    ("kind", "reason", "rests"),
    [
        ("down", "failed", True),
        ("refused", "failed", True),
        ("slow", "late", True),
        ("invalid", "invalid", False),
        ("cut", "invalid", False),
    ],
)
async def test_the_fallback_decides_where_the_engine_does_not(marks, kind, reason, rests) -> None:
    _, cards = marks
    notes, resting = Notes(), Rests(60)
    router = AttendedRouter(Failing(kind), Overlap(), resting, 1.0, notes)
    for _ in range(3):
        decision = await router.begin(begin(cards, 1))
        assert decision.fallback
        assert decision.providers
    assert [trouble.reason for trouble in notes.troubles] == [reason] * 3
    assert resting.resting("failing") == rests


async def test_a_policy_that_asks_the_model_is_served_through_the_engine(marks, endpoint) -> None:
    run, cards = marks
    own = run.config
    changed = own.serve.engine.model_copy(update={"base_url": endpoint.url})
    run.config = own.model_copy(update={"serve": own.serve.model_copy(update={"engine": changed})})
    material = PolicyMaterial(cards=cards, adapter_path=run.adapter)
    try:
        async with served_engine(run, material, ("overlap", None)) as engine:
            assert engine is None
        async with served_engine(run, material, ("trained", "overlap", None)) as engine:
            assert engine is not None
            assert build_policy("trained", material) is engine.policy
            await asyncio.wait_for(engine.wait(), 20)
            assert engine.missing() == ""
        assert "stopped" in engine.missing()
    finally:
        run.config = own


def test_a_record_that_does_not_fit_stops_the_engine_before_it_starts(tmp_path) -> None:
    run, cards = served_run(tmp_path, kind="endpoint")
    try:
        path = run.adapter / RECORD
        record = read_record(run.adapter)
        for change, said_so in (
            ({"template_hash": "x"}, "prompts have changed"),
            ({"guide_hash": "x"}, "guide"),
            ({"providers": ("a",)}, "providers a"),
            ({"codec": "json"}, "codec json"),
        ):
            path.write_text(record.model_copy(update=change).model_dump_json())
            with pytest.raises(EngineError, match=said_so):
                Engine(run, cards)
    finally:
        run.close()


def test_a_decision_by_a_hair_may_fall_out_otherwise_and_a_sure_one_may_not(marks) -> None:
    run, _ = marks
    record = read_record(run.adapter).model_copy(update={"offsets": {}})

    def canary(margin: float) -> Canary:
        scores = (margin, 0.0)
        case = Case(phase="begin", task_id="c", segments=("", ""), candidates=("a", "b"), scores=scores, margin=margin)
        return Canary(stamp="s", codec="marks", cases=(case,))

    assert compare_marks(canary(0.1), [[0.0, 0.1]], record).largest_gap == pytest.approx(0.1)
    with pytest.raises(EngineFailure, match="decides 'b'"):
        compare_marks(canary(0.6), [[0.3, 0.4]], record)
    with pytest.raises(EngineFailure, match=r"up to 1\.20"):
        compare_marks(canary(0.1), [[1.3, 0.0]], record)


def test_the_canary_has_every_decision_and_is_made_once_per_training(marks) -> None:
    run, _ = marks
    record = read_record(run.adapter)
    made = load_canary(run, record)
    assert {case.phase for case in made.cases} == {"begin", "in"}
    assert len({tuple(case.segments) for case in made.cases}) == len(made.cases)
    path = run.root / "canary.json"
    before = path.stat().st_mtime_ns
    assert load_canary(run, record) == made
    assert path.stat().st_mtime_ns == before
    other = load_canary(run, record.model_copy(update={"fingerprint": "another"}))
    assert other.stamp != made.stamp


@pytest.fixture(scope="module")
def json_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, tuple[ProviderCard, ...]]]:
    run, cards = served_run(tmp_path_factory.mktemp("json"), "json", kind="endpoint")
    # The tiny random model answers no JSON, so its canary is written down here.
    answer = '{"action": "query", "provider": "awm"}'
    stamp = stamp_of(read_record(run.adapter))
    case = {"phase": "begin", "task_id": "c", "prompt": "canary", "answer": answer, "margin": 1.0}
    (run.root / "canary.json").write_text(json.dumps({"stamp": stamp, "codec": "json", "cases": [case]}))
    yield run, cards
    run.close()


class TestJson:
    @pytest.fixture
    def tiny(self, json_run: Any) -> TinyVllm:
        return TinyVllm(json_run[0].merged, {"canary": '{"action":"query","provider":"awm"}'})

    async def test_answers_become_decisions(self, json_run, endpoint, tiny) -> None:
        run, cards = json_run
        codec = JsonCodec()
        context = begin(cards, 1)
        tiny.answers[codec.begin(context).text] = '{"action": "query", "provider": "expel"}'
        tiny.answers[codec.in_(within(cards)).text] = '{"action": "no_op", "provider": null}'
        tiny.answers[codec.end(ending(cards)).text] = '{"selected_providers": ["awm", "expel"]}'
        async with started(run, cards, base_url=endpoint.url) as engine:
            assert engine.state.status == "ready", engine.state
            endpoint.requests.clear()
            assert (await engine.policy.begin(context)).arm == "expel"
            assert (await engine.policy.step(within(cards))).action == "no_op"
            assert (await engine.policy.end(ending(cards))).providers == ("expel", "awm")
        schemas = [request["response_format"]["json_schema"]["schema"] for request in endpoint.requests]
        assert schemas[0]["properties"]["provider"]["enum"] == [card.name for card in cards]
        assert schemas[1]["anyOf"][1]["properties"]["provider"] == {"type": "null"}
        accepting = [card.name for card in cards if card.accepts(Outcome(correct=True))]
        assert schemas[2]["properties"]["selected_providers"]["items"]["enum"] == accepting

    @pytest.mark.parametrize(
        ("play", "kind"),
        [
            (said('{"action": "query", "provider": "nobody"}'), "invalid"),
            (said('{"action": "query", "pro', finish="length"), "cut"),
            (said("I would take expel."), "invalid"),
        ],
    )
    async def test_answers_that_are_no_decision_are_typed(self, json_run, endpoint, play, kind) -> None:
        run, cards = json_run
        async with started(run, cards, base_url=endpoint.url) as engine:
            endpoint.answer, endpoint.script = None, [play]
            with pytest.raises(EngineFailure) as caught:
                await engine.policy.begin(begin(cards, 1))
            assert caught.value.kind == kind

    async def test_an_engine_that_ignores_the_grammar_is_refused(self, json_run, endpoint, tiny) -> None:
        run, cards = json_run
        tiny.constrains = False
        async with started(run, cards, base_url=endpoint.url) as engine:
            assert engine.state.status == "refused"
            assert "does not keep to it" in engine.state.reason

    async def test_an_engine_that_decides_otherwise_is_refused(self, json_run, endpoint, tiny) -> None:
        run, cards = json_run
        tiny.answers["canary"] = '{"action": "query", "provider": "expel"}'
        async with started(run, cards, base_url=endpoint.url) as engine:
            assert engine.state.status == "refused"
            assert "expel" in engine.state.reason


@pytest.mark.parametrize(
    ("phase", "answer", "legal"),
    [
        ("begin", '{"provider": "awm", "action": "query"}', True),
        ("begin", '{"action": "query", "provider": "Cabo Verde"}', False),
        ("begin", '{"action": "no_op", "provider": null}', False),
        ("in", '{"action": "no_op", "provider": null}', True),
        ("in", '{"action": "query", "provider": null}', False),
        ("end", '{"selected_providers": ["awm", "expel"]}', True),
        ("end", '{"selected_providers": []}', True),
        ("end", '{"selected_providers": ["Cabo Verde"]}', False),
        ("end", '{"selected_providers": "awm"}', False),
        ("end", "I would keep all.", False),
    ],
)
def test_only_legal_answers_are_held_against_an_engine_under_a_grammar(phase: Any, answer: str, legal: bool) -> None:
    assert is_legal(answer, phase, ["expel", "awm"]) is legal


class TestProcess:
    @pytest.fixture
    def environment(self, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An engine environment whose Python plays vLLM."""
        return fake_environment(tmp_path, endpoint, monkeypatch)

    async def test_a_killed_engine_is_started_again_and_ended_with_us(self, marks, environment, tmp_path) -> None:
        run, cards = marks
        async with started(run, cards, kind="vllm", device="cpu", environment=environment) as engine:
            assert engine.state.status == "ready", engine.state
            expected = await engine.policy.begin(begin(cards, 1))
            [first] = pids(tmp_path)
            os.kill(first, signal.SIGKILL)
            await until(lambda: len(pids(tmp_path)) == 2 and engine.ready)
            assert await engine.policy.begin(begin(cards, 1)) == expected
        for pid in pids(tmp_path):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    async def test_an_engine_that_cannot_start_says_what_its_log_says(
        self, marks, environment, tmp_path, monkeypatch
    ) -> None:
        run, cards = marks
        monkeypatch.setenv("FAKE_VLLM_FAILS", "1")
        settings = run.config.serve.engine.model_copy(
            update={"kind": "vllm", "device": "cpu", "environment": environment}
        )
        own = run.config
        run.config = own.model_copy(update={"serve": own.serve.model_copy(update={"engine": settings})})
        engine = Engine(run, cards)
        try:
            await engine.start()
            await until(lambda: len(pids(tmp_path)) > 2)
            assert engine.state.status == "down"
            assert "no memory for the weights" in engine.state.reason
        finally:
            await engine.close()
            run.config = own

    async def test_a_missing_environment_is_an_error_that_names_the_script(self, marks) -> None:
        run, cards = marks
        with pytest.raises(EngineFailure, match="scripts/setup_engine"):
            async with started(run, cards, kind="vllm", environment=Path("no-such-environment")):
                pass

    def test_the_adapter_is_served_beside_its_base_on_a_gpu_and_merged_on_a_cpu(self, marks) -> None:
        run, _ = marks
        cpu = vllm_arguments(run, "router", gpu=False, lora=False)
        assert cpu[cpu.index("--model") + 1] == str(run.merged.absolute())
        assert "--enforce-eager" in cpu
        assert cpu[cpu.index("--block-size") + 1] == "32"
        assert "--enable-lora" not in cpu
        gpu = vllm_arguments(run, "router", gpu=True, lora=True)
        assert gpu[gpu.index("--model") + 1] == run.config.train.base
        assert gpu[gpu.index("--max-lora-rank") + 1] == "8"
        assert gpu[gpu.index("--lora-modules") + 1] == f"router={run.adapter.absolute()}"
        assert gpu[gpu.index("--max-model-len") + 1] == "512"
        assert "--block-size" not in gpu
