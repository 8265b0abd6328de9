"""A run that is opened to be served: who decides, and that the run's own bank stays as it was evaluated."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from served_toys import Notes, served_config

from providers.bank import MemoryBank
from providers.embedder import Hashing
from providers.errors import ConfigError
from providers.types import Outcome
from serve.auth import ANONYMOUS
from serve.command import _listening_on, make_key
from serve.messages import BeginRequest, EndRequest
from serve.opening import open_sessions, router_name
from synth.config import EncoderConfig, RunConfig
from synth.runs import Run


def config_of(root: Path, **serve: Any) -> RunConfig:
    return served_config(root, **serve).model_copy(update={"encoder": EncoderConfig(name="hashing")})


def made_bank(config: RunConfig) -> Path:
    folder = config.runs_dir / config.name
    folder.mkdir(parents=True)
    path = folder / "bank.sqlite"
    MemoryBank.open(path, Hashing()).close()
    return path


async def test_the_runs_bank_stays_as_it_was_and_the_copy_goes_on(tmp_path: Path) -> None:
    config = config_of(tmp_path, router="notes")
    trained = made_bank(config)
    for stored in range(2):
        async with open_sessions(config) as sessions:
            assert sessions.missing() == []
            begun = await sessions.begin(ANONYMOUS, BeginRequest(question="What is it?"))
            assert bool(begun.memory) == bool(stored)
            await sessions.end(ANONYMOUS, begun.session_id, EndRequest(answer="42"))
    with MemoryBank.open(trained, Hashing()) as bank:
        assert bank.space(Notes.CARD.name).records() == []
    with MemoryBank.open(trained.with_name("serve.bank.sqlite"), Hashing()) as bank:
        assert len(bank.space(Notes.CARD.name).records()) == 2


async def test_a_run_is_served_by_one_process_at_a_time(tmp_path: Path) -> None:
    config = config_of(tmp_path, router="notes")
    made_bank(config)
    async with open_sessions(config):
        with pytest.raises(ConfigError, match="in use by another process"):
            async with open_sessions(config):
                pass


@pytest.mark.parametrize(
    ("serve", "bank", "words"),
    [
        ({"router": "notes"}, False, "no bank"),
        ({}, True, "no trained router"),
        ({"router": "heads"}, True, "heads"),
        ({"router": "nobody"}, True, "no policy 'nobody'"),
        ({"router": "notes", "shadow": "nobody"}, True, "no policy 'nobody'"),
    ],
)
async def test_a_run_that_cannot_be_served_says_what_to_do(
    tmp_path: Path, serve: dict[str, Any], bank: bool, words: str
) -> None:
    config = config_of(tmp_path, **serve)
    if bank:
        made_bank(config)
    with pytest.raises(ConfigError, match=words):
        async with open_sessions(config):
            pass


def test_heads_decide_where_they_are_trained_else_what_dev_recommends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.opening.recommended_on_dev", lambda run: "average")
    with Run.open(config_of(tmp_path)) as run:
        assert router_name(run) == "average"
        run.heads.write_text("{}", encoding="utf-8")
        assert router_name(run) == "heads"
        run.config = config_of(tmp_path, router="overlap")
        assert router_name(run) == "overlap"


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Nothing can listen on 127.0.0.1:{port}"):
            _listening_on("127.0.0.1", port)


async def test_an_answer_is_not_held_back_for_its_acknowledgement() -> None:
    delayed: list[int] = []

    async def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        delayed.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with _listening_on("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(look, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            await reader.read()
            writer.close()
    assert delayed == [1]


def test_a_key_needs_a_file_to_stand_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"serve\.keys_file"):
        make_key(config_of(tmp_path), "ann", "acme", ["read"])
    config = config_of(tmp_path, keys_file=tmp_path / "keys.yaml")
    assert make_key(config, "ann", "acme", ["read"]).startswith("mr-")


def test_an_outcome_of_nobody_is_unscored() -> None:
    assert Outcome(**EndRequest().outcome.model_dump()).correct is None
