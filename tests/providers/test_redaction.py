"""Keys and passwords do not reach the bank; ordinary text does, unchanged."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_toys import ENCODER, open_bank, run_of

from providers.redaction import MARK, redact, redact_values
from providers.space import REDACTED


def unsigned_token() -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": "ann"}]
    coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, "c2lnbmF0dXJl"])


SECRETS = {
    "aws": ("the key AKIAIOSFODNN7EXAMPLE is in use", "AKIAIOSFODNN7EXAMPLE"),
    "github": ("push with ghp_" + "a1" * 18, "ghp_" + "a1" * 18),
    "password": ("log in with password: hunter2!", "hunter2!"),
    "quoted": ('api_key = "abcd1234efgh"', "abcd1234efgh"),
    "environment": ("export DB_PASS=tr0ub4dor", "tr0ub4dor"),
    "address": ("open https://ann:s3cretpw@host/x", "s3cretpw"),
    "bearer": ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
    "web token": (f"cookie {unsigned_token()} set", unsigned_token()),
    "private key": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabcd\n-----END RSA PRIVATE KEY-----\nend",
        "MIIEow\nabcd",
    ),
    "model key": ("use sk-proj-abcdefghijklmnopqrstuvwxyz123456 now", "sk-proj-abcdefghijklmnopqrstuvwxyz123456"),
}


@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=SECRETS)
def test_a_secret_goes_and_the_text_around_it_stays(text: str, secret: str) -> None:
    redacted, count = redact(text)
    assert secret not in redacted
    assert count == 1
    assert MARK in redacted
    assert redacted.split()[-1] in {text.split()[-1], MARK} or MARK in redacted.split()[-1]
    assert redact(redacted) == (redacted, 0)


@pytest.mark.parametrize(
    "text",
    [
        "What is the token of Chad, and who passes the basic law?",
        "The secret: look at the neighbours first.",
        "Visitors need a passport; the password changes daily.",
        "record 3f2a9c0d1e4b5a69 and http://localhost:8080/geos/cd.html",
        "密码是什么？",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == (text, 0)


def test_every_string_of_a_payload_is_looked_at() -> None:
    payload = {"steps": [{"arguments": {"line": "password: hunter2!"}}], "n": 3, "none": None}
    clean, count = redact_values(payload)
    assert count == 1
    assert "hunter2" not in json.dumps(clean)
    assert clean["n"] == 3
    assert clean["none"] is None


@given(st.text())
def test_text_without_secrets_is_the_same_text(text: str) -> None:
    redacted, count = redact(text)
    assert (redacted == text) == (count == 0)


def test_secrets_are_neither_stored_nor_searchable_and_are_counted(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        space = bank.space("toy")
        text = "open the panel with password: hunter2!"
        record = space.new_record("note", run_of("t"), 0, text=text, payload={"line": text})
        space.add([record], ENCODER.encode([text]))
        (stored,) = space.records()
        assert stored.text == f"open the panel with password: {MARK}"
        assert space.vectors([stored.id])[0] == pytest.approx(ENCODER.encode([stored.text])[0])
        assert space.search_lexical("hunter2") == []
        assert space.counter(REDACTED) == 1
        space.update(stored.model_copy(update={"payload": {"line": "pwd=letmein99"}}))
        assert space.counter(REDACTED) == 2
    assert b"hunter2" not in (tmp_path / "bank.sqlite").read_bytes()
