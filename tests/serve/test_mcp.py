"""The tools of the Model Context Protocol, through its own client: in this process, and over standard streams."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest
from served_toys import Notes, keys_of, listening, served, served_config

from providers.errors import ConfigError
from serve import mcp as tools
from serve.opening import open_sessions
from serve.sessions import Sessions
from synth.config import EncoderConfig

Client = pytest.importorskip("mcp").Client

QUESTION = "What is the area of Chile?"
STEP = {"tool": "open", "arguments": {"page": "chile"}, "observation": "Area: 756,102 sq km"}


def own(sessions: Sessions, namespace: str) -> Any:
    return tools.make_server(tools.OwnMemory(sessions, namespace))


async def call(client: Any, name: str, **arguments: Any) -> Any:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def test_what_one_task_stores_the_next_retrieves_and_explains(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, Client(own(sessions, "default")) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"retrieve", "store", "explain"}
        first = await call(client, "retrieve", question=QUESTION)
        assert first["memory"] == ""
        kept = await call(client, "store", session_id=first["session_id"], answer="756,102", steps=[STEP], correct=True)
        assert kept["stored"] == ["notes", "lessons"]
        second = await call(client, "retrieve", question=QUESTION, task_id="again")
        assert f"> {QUESTION} 756,102" in second["memory"]
        assert second["providers"] == ["notes"]
        told = await call(client, "explain", session_id=second["session_id"])
        assert [(shown["provider"], shown["chosen"]) for shown in told["shown"]] == [
            ("notes", True),
            ("lessons", False),
        ]
        assert "notes chose notes among 2; 2 had something." in told["summary"]
        told = await call(client, "explain", session_id=first["session_id"])
        assert "Offered to notes (stored), lessons (stored)." in told["summary"]


async def test_a_client_is_told_what_it_speaks_to(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, Client(own(sessions, "default")) as client:
        assert client.server_info.name == "memroute"
        assert client.server_info.version == importlib.metadata.version("memroute")


async def test_namespaces_of_two_servers_do_not_meet(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        async with Client(own(sessions, "ann")) as client:
            begun = await call(client, "retrieve", question=QUESTION)
            await call(client, "store", session_id=begun["session_id"], answer="756,102", correct=True)
        async with Client(own(sessions, "bob")) as client:
            assert (await call(client, "retrieve", question=QUESTION))["memory"] == ""
            other = await client.call_tool("explain", {"session_id": begun["session_id"]})
            assert other.is_error
            assert "no such session" in other.content[0].text


async def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, Client(own(sessions, "default")) as client:
        begun = await call(client, "retrieve", question=QUESTION)
        await call(client, "store", session_id=begun["session_id"], answer="x")
        for name, arguments, words in (
            ("store", {"session_id": begun["session_id"], "answer": "x"}, "ended already"),
            ("store", {"session_id": "nobody", "answer": "x"}, "no such session"),
            ("retrieve", {"question": ""}, "at least 1"),
            ("retrieve", {"question": "x" * 30_000}, "at most 20,000"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert words in result.content[0].text
        Notes.broken = "retrieve"
        try:
            assert (await call(client, "retrieve", question=QUESTION))["troubles"] == ["retrieve notes: failed"]
        finally:
            Notes.broken = ""


async def test_over_standard_streams_as_clients_start_it(tmp_path: Path) -> None:
    from mcp import StdioServerParameters

    config = tmp_path / "toy.yaml"
    config.write_text(
        f"name: toy\nruns_dir: {tmp_path}\nproviders: ['served_toys:Notes', 'served_toys:Lessons']\n"
        "encoder: {name: hashing}\nserve: {router: overlap}\n"
    )
    empty_bank(tmp_path / "toy" / "bank.sqlite")
    here = Path(__file__).resolve()
    parameters = StdioServerParameters(
        command=sys.executable,
        args=[str(here.parents[2] / "memroute.py"), "mcp", str(config), "--namespace", "ann"],
        env={"PYTHONPATH": f"{here.parent}:{here.parents[2]}"},
    )
    async with Client(parameters, read_timeout_seconds=120) as client:
        begun = await call(client, "retrieve", question=QUESTION)
        kept = await call(client, "store", session_id=begun["session_id"], answer="756,102", correct=True)
        assert "notes" in kept["stored"]
        again = await call(client, "retrieve", question=QUESTION)
        assert "756,102" in again["memory"]


async def test_several_clients_go_through_one_service(tmp_path: Path) -> None:
    from mcp import StdioServerParameters

    keys = keys_of(("ann", "ann", ["read", "write"]), ("bob", "bob", ["read", "write"]))
    with listening(tmp_path, keys) as url:
        here = Path(__file__).resolve()
        args = [str(here.parents[2] / "memroute.py"), "mcp", "--through", url]
        ann, bob = (
            StdioServerParameters(
                command=sys.executable, args=args, env={"MEMROUTE_SERVE_KEY": f"secret-of-{name}", "PYTHONPATH": ""}
            )
            for name in ("ann", "bob")
        )
        async with (
            Client(ann, read_timeout_seconds=120) as first,
            Client(ann, read_timeout_seconds=120) as second,
            Client(bob, read_timeout_seconds=120) as other,
        ):
            begun = await call(first, "retrieve", question=QUESTION)
            kept = await call(first, "store", session_id=begun["session_id"], answer="756,102", correct=True)
            assert kept["stored"] == ["notes", "lessons"]
            assert "756,102" in (await call(second, "retrieve", question=QUESTION))["memory"]
            told = await call(second, "explain", session_id=begun["session_id"])
            assert "Offered to notes (stored), lessons (stored)." in told["summary"]
            assert (await call(other, "retrieve", question=QUESTION))["memory"] == ""
            refused = await other.call_tool("explain", {"session_id": begun["session_id"]})
            assert refused.is_error
            assert "no such session" in refused.content[0].text


async def test_a_run_that_is_served_already_is_said_to_be_gone_through(tmp_path: Path) -> None:
    config = served_config(tmp_path, router="overlap").model_copy(update={"encoder": EncoderConfig(name="hashing")})
    empty_bank(tmp_path / "toy" / "bank.sqlite")
    async with open_sessions(config):
        with pytest.raises(ConfigError, match="memroute mcp --through URL"):
            await tools.serve_mcp(config, "default")


def empty_bank(path: Path) -> None:
    from providers.bank import MemoryBank
    from providers.embedder import load_encoder

    path.parent.mkdir(parents=True)
    MemoryBank.open(path, load_encoder("hashing", {}, None)).close()


async def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(ConfigError, match=r"memroute\[mcp\]"):
        await tools.serve_mcp(served_config(tmp_path), "default")
    with pytest.raises(ConfigError):
        await tools.serve_mcp(served_config(tmp_path), "../x")
