"""Whose memories are whose."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_toys import ENCODER, open_bank, run_of

from providers.errors import ConfigError
from providers.namespaces import checked_namespace, within


@pytest.mark.parametrize(
    "namespace", ["default", "acme", "acme/ann", "acme/ann/trip to Peru", "会社/花子", "a.b@c-d_e"]
)
def test_tenant_user_and_project_are_namespaces(namespace: str) -> None:
    assert checked_namespace(namespace) == namespace


@pytest.mark.parametrize(
    "namespace",
    [
        *["", "/", ".", "../x", "acme/..", "acme//x", "/acme", "acme/", "a/b/c/d"],
        *["a\\b", "a\x00b", "a\nb", " a", "x" * 65, "cafe\u0301", "acme/\u202eann"],
    ],
)
def test_what_is_no_namespace_is_refused_before_anything_is_searched(tmp_path: Path, namespace: str) -> None:
    with open_bank(tmp_path) as bank, pytest.raises(ConfigError, match="tenant/user/project"):
        bank.space("toy", namespace)


def test_a_scope_covers_what_lies_below_it_and_nothing_else() -> None:
    assert within("acme", "acme")
    assert within("acme/ann/trip", "acme/ann")
    assert not within("acme/anna", "acme/ann")
    assert not within("acme", "acme/ann")


def test_no_search_sees_another_namespace(tmp_path: Path) -> None:
    with open_bank(tmp_path) as bank:
        names = ["acme", "acme/ann", "acme/ann/trip", "other"]
        for name in names:
            space = bank.space("toy", name)
            space.add([space.new_record("note", run_of("t"), 0, text=f"coal of {name}", payload={})])
        for name in names:
            space = bank.space("toy", name)
            found = [
                space.records(),
                [record for record, _ in space.search_lexical("coal")],
                [record for record, _ in space.search_tfidf("coal")],
                [record for record, _ in space.search_dense(ENCODER.encode(["coal"])[0], 9)],
            ]
            assert [[record.text for record in records] for records in found] == [[f"coal of {name}"]] * 4
