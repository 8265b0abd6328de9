"""Keys reach their own namespace with their own rights, and nothing of a key or a memory is written down."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import httpx
import pytest
from served_toys import calling, keys_of, run_task, served

from providers.errors import ConfigError
from serve.auth import Keys, add_key, hash_of, is_loopback, read_keys

KEYS = keys_of(
    ("acme", "acme", ["read", "write"]),
    ("ann", "acme/ann", ["read", "write"]),
    ("other", "other", ["read", "write"]),
    ("reader", "acme", ["read"]),
    ("boss", "acme", ["admin"]),
    ("root", "*", ["admin"]),
)


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer wrong", "Basic secret-of-acme", "secret-of-acme", "Bearer secret-of-acme2"]
)
async def test_a_wrong_key_is_401(tmp_path: Path, header: str | None) -> None:
    async with served(tmp_path) as sessions, calling(sessions, KEYS) as client:
        headers = {} if header is None else {"authorization": header}
        for path in ("/v1/providers", "/v1/nothing", "/metrics", "/openapi.json"):
            answer = await client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await client.get("/healthz")).status_code == 200


async def test_every_right_is_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        async with calling(sessions, KEYS, "reader") as reader:
            begun = (await reader.post("/v1/sessions", json={"question": "What?"})).json()
            path = f"/v1/sessions/{begun['session_id']}"
            assert (await reader.post(f"{path}/step", json={})).status_code == 200
            refused = [
                await reader.post(f"{path}/end", json={"answer": "1"}),
                await reader.post(f"{path}/outcome", json={"correct": True}),
                await reader.post("/v1/forget", json={"namespace": "acme"}),
                await reader.get("/v1/audit"),
                await reader.get("/metrics"),
            ]
            assert [answer.status_code for answer in refused] == [403] * 5
        assert sessions.memories.bank.space("notes", "acme").records() == []


async def test_namespaces_do_not_see_each_other(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        clients = {name: calling(sessions, KEYS, name) for name in ("acme", "ann", "other", "root")}
        await run_task(clients["acme"], "What is the code word?", "swordfish")
        begun = {
            name: (await client.post("/v1/sessions", json={"question": "What is the code word?"})).json()
            for name, client in clients.items()
        }
        assert "swordfish" in begun["acme"]["memory"]
        for name in ("ann", "other", "root"):
            assert "swordfish" not in str(begun[name])
        own = f"/v1/sessions/{begun['acme']['session_id']}"
        for answer in (
            await clients["other"].get(own),
            await clients["other"].post(f"{own}/step", json={}),
            await clients["other"].post(f"{own}/end", json={"answer": "1"}),
            await clients["other"].post(
                "/v1/skills/shout-1/call", json={"session_id": begun["acme"]["session_id"], "arguments": {}}
            ),
        ):
            assert answer.status_code == 404
        asked = {"question": "What is the code word?", "namespace": "acme"}
        assert (await clients["other"].post("/v1/sessions", json=asked)).status_code == 403
        assert (await clients["ann"].post("/v1/sessions", json=asked)).status_code == 403
        below = {"question": "What is the code word?", "namespace": "acme/ann"}
        assert (await clients["acme"].post("/v1/sessions", json=below)).status_code == 201
        for client in clients.values():
            await client.aclose()


async def test_an_idempotency_key_belongs_to_its_caller(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        answers = []
        for name in ("acme", "other"):
            async with calling(sessions, KEYS, name) as client:
                answers.append(
                    await client.post("/v1/sessions", json={"question": "W?"}, headers={"idempotency-key": "k"})
                )
        assert answers[0].json()["session_id"] != answers[1].json()["session_id"]


async def test_forgetting_reaches_the_callers_namespace_alone_and_sessions_too(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        for name in ("acme", "other"):
            async with calling(sessions, KEYS, name) as client:
                await run_task(client, "What is the code word?", "swordfish")
                open_one = (await client.post("/v1/sessions", json={"question": "Is it swordfish?"})).json()
        async with calling(sessions, KEYS, "boss") as boss:
            gone = await boss.post("/v1/forget", json={"text": "SWORDFISH"})
            assert gone.status_code == 200
            assert [space["namespace"] for space in gone.json()["spaces"]] == ["acme", "acme"]
            assert (await boss.post("/v1/forget", json={"namespace": "other"})).status_code == 403
            assert (await boss.post("/v1/forget", json={})).status_code in (200, 422)
        space = sessions.memories.bank.space("notes", "other")
        assert [record.payload["text"] for record in space.records()] == ["What is the code word? swordfish"]
        async with calling(sessions, KEYS, "other") as client:
            assert (await client.get(f"/v1/sessions/{open_one['session_id']}")).status_code == 200
        async with calling(sessions, KEYS, "root") as root:
            assert (await root.post("/v1/forget", json={"text": "swordfish"})).status_code == 200
        assert space.records() == []
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert b"swordfish" not in held


async def test_the_audit_log_says_who_and_where_and_never_what(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions:
        for name in ("acme", "other"):
            async with calling(sessions, KEYS, name) as client:
                await run_task(client, "What is the code word?", "swordfish")
        async with calling(sessions, KEYS, "boss") as boss:
            entries = (await boss.get("/v1/audit")).json()["entries"]
        assert [(entry["key"], entry["action"], entry["namespace"]) for entry in entries] == [
            ("acme", "store", "acme"),
            ("acme", "begin", "acme"),
        ]
        assert entries[0]["detail"]["receipts"]["notes"]["status"] == "stored"
        async with calling(sessions, KEYS, "root") as root:
            everything = await root.get("/v1/audit")
        assert {entry["key"] for entry in everything.json()["entries"]} == {"acme", "other"}
        assert "swordfish" not in everything.text
        assert "secret-of" not in everything.text


async def test_no_secret_and_no_text_is_logged(tmp_path: Path, json_logs: io.StringIO) -> None:
    async with served(tmp_path) as sessions, calling(sessions, KEYS, "acme") as client:
        await run_task(client, "What is the code word?", "swordfish")
        await client.get("/v1/providers", headers={"authorization": "Bearer a-wrong-secret"})
    logged = json_logs.getvalue()
    assert '"route": "/v1/sessions"' in logged
    assert not any(word in logged for word in ("swordfish", "secret-of", "a-wrong-secret", "code word"))


async def test_a_server_without_keys_answers_to_this_machines_names_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as sessions, calling(sessions) as client:
        for host, status in (("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("localhost", 200), ("evil.example", 403)):
            assert (await client.get("/v1/providers", headers={"host": host})).status_code == status


def test_without_keys_only_loopback_is_listened_on() -> None:
    Keys([]).check_host("127.0.0.1")
    KEYS.check_host("0.0.0.0")
    for host in ("0.0.0.0", "192.168.1.1", "::", "example.org"):
        with pytest.raises(ConfigError, match="without keys"):
            Keys([]).check_host(host)
    assert is_loopback("::1")
    assert is_loopback("127.0.0.2")


def test_a_key_is_made_once_shown_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    first = add_key(path, "ann", "acme/ann", ["read"])
    second = add_key(path, "root", "*", ["admin"])
    assert first not in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o077 == 0
    assert [(key.name, key.sha256) for key in read_keys(path)] == [("ann", hash_of(first)), ("root", hash_of(second))]
    caller = Keys.load(path, "NO_SUCH_VARIABLE").caller(f"Bearer {first}")
    assert (caller.key, caller.scope, caller.rights) == ("ann", "acme/ann", {"read"})
    for wrong in (("ann", "acme", ["read"]), ("x", "../x", ["read"]), ("y", "acme", ["fly"])):
        with pytest.raises(ConfigError):
            add_key(path, *wrong)
    assert len(read_keys(path)) == 2


def test_a_key_in_the_environment_and_files_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "a-key-of-some-length")
    assert Keys.load(None, "A_KEY").caller("Bearer a-key-of-some-length").scope == "*"
    monkeypatch.setenv("A_KEY", "short")
    with pytest.raises(ConfigError, match="too short"):
        Keys.load(None, "A_KEY")
    with pytest.raises(ConfigError, match="no key file"):
        Keys.load(tmp_path / "none.yaml", "NO_SUCH_VARIABLE")
    for content in ("keys: [{name: a}]", "keys: 3", ": :", "\udcff".encode("utf-8", "surrogatepass").decode("latin-1")):
        (tmp_path / "bad.yaml").write_text(content, encoding="latin-1")
        with pytest.raises(ConfigError, match="cannot be used"):
            Keys.load(tmp_path / "bad.yaml", "NO_SUCH_VARIABLE")


def test_every_key_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    import hmac

    compared: list[str] = []
    true = hmac.compare_digest

    def watched(one: str, other: str) -> bool:
        compared.append(one)
        return true(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    for name in ("acme", "root"):
        compared.clear()
        assert KEYS.caller(f"Bearer secret-of-{name}").key == name
        assert len(compared) == 6


def test_the_app_is_an_openapi_with_its_security(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.app.own_version", lambda: "9.8.7")

    async def schema() -> httpx.Response:
        async with served(tmp_path) as sessions, calling(sessions, KEYS, "acme") as client:
            return await client.get("/openapi.json")

    document = asyncio.run(schema()).json()
    assert document["info"]["version"] == "9.8.7"
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert set(document["paths"]["/v1/sessions"]["post"]["responses"]) >= {"201", "401", "413", "422", "507"}


async def test_many_namespaces_share_the_memory_of_a_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.memories.NAMESPACES", 2)
    async with served(tmp_path) as sessions, calling(sessions, KEYS, "acme") as client:
        for number in range(6):
            body = {"question": "What is the code word?", "namespace": f"acme/u{number}"}
            begun = (await client.post("/v1/sessions", json=body)).json()
            await client.post(f"/v1/sessions/{begun['session_id']}/end", json={"answer": f"word-{number}"})
        assert len({namespace for _, namespace in sessions.memories.bank._spaces}) <= 4
        body = {"question": "What is the code word?", "namespace": "acme/u0"}
        assert "word-0" in (await client.post("/v1/sessions", json=body)).json()["memory"]


async def test_old_lines_leave_the_audit_log(tmp_path: Path) -> None:
    async with served(tmp_path, audit_days=1e-7) as sessions, calling(sessions, KEYS, "root") as client:
        await client.post("/v1/sessions", json={"question": "What is the code word?"})
        assert len((await client.get("/v1/audit")).json()["entries"]) == 1
        await asyncio.sleep(0.02)
        await sessions.sweep()
        assert (await client.get("/v1/audit")).json()["entries"] == []
