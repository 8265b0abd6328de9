"""Asking policies: what they see, what is kept, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from made_run import made_run, serve_tables
from made_tables import PROVIDERS

from evaluation.replay import evaluate
from evaluation.result import DecisionLog, Evaluation
from providers.errors import ConfigError, EngineError
from router.codec import decide_begin
from router.context import BeginContext
from router.decisions import BeginDecision
from router.policies import registry
from router.policies.fixed import BeginOnly
from synth.runs import Run

CHEAP = ("none", "random", *PROVIDERS, "overlap", "cosine", "knn", "prompt_route_rules")


class Scored(BeginOnly):
    """Scores providers by a fixed vector, and remembers what it was shown."""

    name = "scored"

    def __init__(self, scores: Sequence[float], seen: list[BeginContext]) -> None:
        self._scores = list(scores)
        self.seen = seen

    def score(self, contexts: Sequence[BeginContext]) -> np.ndarray:
        self.seen.extend(contexts)
        return np.array([self._scores] * len(contexts))

    def choose(self, context: BeginContext, scores: Sequence[float]) -> BeginDecision:
        return decide_begin(scores, PROVIDERS)

    async def begin(self, context: BeginContext) -> BeginDecision:
        raise AssertionError("a policy that scores in batches is not asked one by one")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with made_run(tmp_path, tasks=70, policies=CHEAP) as opened:
        serve_tables(opened, monkeypatch)
        yield opened


def asking(run: Run, *policies: str) -> Run:
    run.config = run.config.model_copy(
        update={"evaluate": run.config.evaluate.model_copy(update={"policies": policies})}
    )
    return run


async def test_every_policy_is_replayed_and_written(run: Run) -> None:
    found = await evaluate(run)
    assert list(found.policies) == ["none", "in_only", *CHEAP[1:], "oracle", "oracle_crossfit"]
    assert found.missing == {}
    assert Evaluation.load(run.evaluation / "dev.json") == found
    log = DecisionLog.load(run.evaluation / "dev_decisions.json")
    assert set(log.policies) == set(CHEAP)
    assert log.policies["voyager"].arms == (("voyager",) * 70,)
    assert len(log.policies["random"].arms) == 20
    assert found.policies["expel"].shares["expel"] == 1.0


async def test_the_same_run_gives_the_same_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for folder in ("one", "two"):
        with made_run(tmp_path / folder, tasks=35, policies=CHEAP) as opened:
            serve_tables(opened, monkeypatch)
            results.append(await evaluate(opened))
    assert results[0] == results[1]


async def test_policies_without_material_are_missing_with_the_command(run: Run) -> None:
    found = await evaluate(asking(run, "none", "trained", "heads", "average"))
    assert list(found.policies) == ["none", "in_only", "oracle", "oracle_crossfit"]
    for name in ("trained", "heads", "average"):
        assert "memroute train" in found.missing[name]
    assert found.recommended is None


async def test_an_unknown_policy_is_an_error(run: Run) -> None:
    with pytest.raises(ConfigError, match="astrology"):
        await evaluate(asking(run, "astrology"))


async def test_a_failing_engine_does_not_take_the_others_down(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(material: registry.PolicyMaterial) -> registry.Policy:
        raise EngineError("The base model cannot be read; unpack it again.")

    monkeypatch.setitem(registry._BUILDERS, "untrained", broken)
    found = await evaluate(asking(run, "untrained", "overlap"))
    assert found.missing == {"untrained": "The base model cannot be read; unpack it again."}
    assert "overlap" in found.policies


async def test_a_policy_that_raises_is_a_gap_with_its_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(BeginOnly):
        name = "overlap"

        async def begin(self, context: BeginContext) -> BeginDecision:
            raise ZeroDivisionError("no words")

    monkeypatch.setitem(registry._BUILDERS, "overlap", lambda material: Broken())
    found = await evaluate(asking(run, "overlap", "knn"))
    assert found.missing == {"overlap": "it failed with ZeroDivisionError: no words"}
    assert "knn" in found.policies


async def test_without_exploration_the_command_is_named(run: Run) -> None:
    run.table("explore").unlink()
    with pytest.raises(ConfigError, match="memroute explore"):
        await evaluate(run)


async def test_policies_see_neither_family_nor_outcome(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BeginContext] = []
    monkeypatch.setitem(registry._BUILDERS, "trained", lambda material: Scored([0, 0, 1, 0, 0], seen))
    found = await evaluate(asking(run, "trained"))
    assert found.policies["trained"].shares["skillweaver"] == 1.0
    assert len(seen) == 70
    assert not {"family", "cells", "gold", "outcome", "split"} & set(BeginContext.model_fields)
    assert [context.task_id for context in seen] == list(
        DecisionLog.load(run.evaluation / "dev_decisions.json").task_ids
    )


async def test_decisions_are_kept_until_their_material_changes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BeginContext] = []
    monkeypatch.setitem(registry._BUILDERS, "trained", lambda material: Scored([0, 0, 1, 0, 0], seen))
    asking(run, "trained")
    first = await evaluate(run)
    assert await evaluate(run) == first
    assert len(seen) == 70
    run.adapter.mkdir()
    (run.adapter / "adapter_model.safetensors").write_bytes(b"other weights")
    await evaluate(run)
    assert len(seen) == 140


async def test_decisions_taken_before_a_stop_are_not_asked_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BeginContext] = []

    def stop(material: registry.PolicyMaterial) -> registry.Policy:
        raise KeyboardInterrupt

    monkeypatch.setitem(registry._BUILDERS, "trained", lambda material: Scored([0, 0, 1, 0, 0], seen))
    monkeypatch.setitem(registry._BUILDERS, "heads", stop)
    asking(run, "trained", "heads")
    with pytest.raises(KeyboardInterrupt):
        await evaluate(run)
    monkeypatch.setitem(registry._BUILDERS, "heads", lambda material: Scored([0.9, 0.1, 0.1, 0.1, 0.1], []))
    found = await evaluate(run)
    assert len(seen) == 70
    assert set(found.policies) == {"trained", "heads", "oracle", "oracle_crossfit"}


async def test_average_weighs_log_odds_of_both_routers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The language model slightly prefers the third provider, the heads strongly the first: the first is taken."""
    monkeypatch.setitem(registry._BUILDERS, "trained", lambda material: Scored([0, 0, 1, 0, 0], []))
    monkeypatch.setitem(registry._BUILDERS, "heads", lambda material: Scored([0.9, 0.5, 0.5, 0.5, 0.5], []))
    found = await evaluate(asking(run, "trained", "heads", "average"))
    assert found.policies["heads"].shares["expel"] == 1.0
    assert found.policies["average"].shares["expel"] > 0.8
    assert found.policies["average"].shares["skillweaver"] < 0.2


async def test_test_split_takes_what_dev_recommended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dev", "dev_shuffled", "dev_alone"):
        text = run.table(name).read_text(encoding="utf-8").replace('"split":"dev"', '"split":"test"')
        run.table(name.replace("dev", "test")).write_text(text, encoding="utf-8")
    monkeypatch.setitem(registry._BUILDERS, "heads", lambda material: Scored([1, 0, 0, 0, 0], []))
    asking(run, "heads")
    before = await evaluate(run, "test")
    await evaluate(run, "dev")
    after = await evaluate(run, "test")
    assert (before.recommended, after.recommended) == (None, "heads")
    assert after.split == "test"
