"""An engine that is killed again and again under load costs no acknowledged run and no request."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kills import kill_under_load
from made_engine import TinyVllm, endpoint_of, fake_environment, pids, served_run

from serve import engine as engine_module
from serve.engine import Engine


@pytest.mark.slow
async def test_twenty_kills_of_the_engine_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for vLLM, which starts at once; `test_vllm` has the real one."""
    monkeypatch.setattr(engine_module, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(engine_module, "FIRST_WAIT", 0.05)
    run, cards = served_run(tmp_path / "run", kind="vllm", device="cpu")
    endpoint = endpoint_of(TinyVllm(run.merged))
    environment = fake_environment(tmp_path, endpoint, monkeypatch)
    engine_settings = run.config.serve.engine.model_copy(update={"environment": environment})
    run.config = run.config.model_copy(
        update={"serve": run.config.serve.model_copy(update={"engine": engine_settings})}
    )
    engine = Engine(run, cards)
    (tmp_path / "served").mkdir()
    try:
        await engine.start()
        await kill_under_load(engine, tmp_path / "served", 20, victim=lambda _: pids(tmp_path)[-1])
    finally:
        await engine.close()
        endpoint.stop()
        run.close()
    assert len(pids(tmp_path)) == 21
