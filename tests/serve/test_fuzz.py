"""Ten thousand requests that nobody would mean: no 5xx, no stack trace, nothing of another namespace."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from scripted_endpoint import Endpoint, said
from served_toys import keys_of, listening

KEYS = keys_of(("own", "own", ["admin"]), ("other", "other", ["admin"]))
SECRET = "swordfish"
GENERATED, BODIES, RAW = 8_000, 1_500, 500
"""Requests made from the OpenAPI document, bodies of random bytes on real paths, and random bytes on the socket."""
PATHS = (
    "/v1/sessions",
    "/v1/sessions/{id}/step",
    "/v1/sessions/{id}/end",
    "/v1/sessions/{id}/outcome",
    "/v1/route/in",
    "/v1/chat/completions",
)
FIELDS = (
    b'{"question": "What?", "steps": [{"tool": "open"}], "correct": true, "summary": "",'
    b' "messages": [{"role": "user", "content": "What?"}]}'
)
OWN = {"authorization": "Bearer secret-of-own"}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """The chat endpoint that the server stands before."""
    made = Endpoint()
    made.script = [said("So it is.")]
    yield made
    made.stop()


@pytest.fixture
def url(tmp_path: Path, endpoint: Endpoint) -> Iterator[str]:
    """A server with a memory of another namespace, which says the secret."""
    limits: dict[str, Any] = {"rate": 1e6, "max_sessions": 100_000, "max_queue": 10_000}
    with listening(tmp_path, KEYS, chats=endpoint.url, **limits) as address:
        with httpx.Client(base_url=address, headers={"authorization": "Bearer secret-of-other"}) as other:
            begun = other.post("/v1/sessions", json={"question": f"What is the {SECRET}?"}).json()
            ended = other.post(f"/v1/sessions/{begun['session_id']}/end", json={"answer": SECRET})
            assert ended.json()["receipts"][0]["status"] == "stored"
        yield address


def session_of(url: str) -> str:
    answer = httpx.post(f"{url}/v1/sessions", json={"question": "What is the word?"}, headers=OWN)
    return str(answer.json()["session_id"])


def check(status: int, text: str) -> None:
    assert status < 500, text
    assert "Traceback" not in text
    assert 'File "' not in text
    assert SECRET not in text


@pytest.mark.slow
def test_requests_made_from_the_openapi_document(url: str, endpoint: Endpoint) -> None:
    import schemathesis

    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=OWN)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert "/v1/chat/completions" in {operation.path for operation in operations}
    session_id, sent = session_of(url), 0
    # Those that take little run out of examples; the others make up for it.
    operations.sort(key=lambda operation: bool(operation.body))
    for place, operation in enumerate(operations):

        @settings(
            max_examples=max(1, -((sent - GENERATED) // (len(operations) - place))),
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def sends(case: Any) -> None:
            nonlocal sent
            sent += 1
            if "session_id" in (case.path_parameters or {}) and sent % 2:
                case.path_parameters["session_id"] = session_id
            answer = case.call(headers=OWN)
            check(answer.status_code, answer.text)

        sends()
    assert sent >= GENERATED
    assert endpoint.requests
    assert SECRET not in json.dumps(endpoint.requests)


@pytest.mark.slow
def test_random_bytes_as_bodies_and_on_the_socket(url: str) -> None:
    draw, session_id = random.Random(7), session_of(url)
    with httpx.Client(base_url=url, headers=OWN) as client:
        for number in range(BODIES):
            path = PATHS[number % len(PATHS)].format(id=session_id)
            body = broken(draw, FIELDS)
            answer = client.post(path, content=body, headers={"content-type": "application/json"})
            check(answer.status_code, answer.text)
        for _ in range(RAW):
            check_raw(url, broken(draw, b"POST /v1/sessions HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nabcd"))
        assert client.get("/readyz").status_code == 200
        view = client.get(f"/v1/sessions/{session_id}")
        assert view.status_code == 200


def broken(draw: random.Random, text: bytes) -> bytes:
    """The bytes with some of them changed, cut off or doubled; or other bytes altogether."""
    if draw.random() < 0.2:
        return draw.randbytes(draw.randint(0, 300))
    changed = bytearray(text)
    for _ in range(draw.randint(1, 6)):
        place = draw.randrange(len(changed) + 1)
        changed[place : place + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
    return bytes(changed[: draw.randint(0, len(changed))] if draw.random() < 0.2 else changed)


def check_raw(url: str, sent: bytes) -> None:
    """What a server says to these bytes on its socket, if anything."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.settimeout(0.05)
        connection.sendall(sent)
        try:
            connection.shutdown(socket.SHUT_WR)
            text = connection.recv(65536).decode("latin-1")
        except OSError:
            return
    status = text.split(" ", 2)[1] if text.startswith("HTTP/") else "0"
    check(int(status), text)
