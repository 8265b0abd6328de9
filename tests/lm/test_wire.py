"""What endpoints send, read once."""

from __future__ import annotations

import contextlib
import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm.wire import BadBody, read_body, retry_after

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "error", "usage"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_json_comes_is_a_completion_or_a_named_fault(body: Any) -> None:
    with contextlib.suppress(BadBody):
        assert isinstance(read_body(json.dumps(body)).text, str)


@given(st.text())
def test_the_content_is_given_as_it_is(text: str) -> None:
    assert read_body(json.dumps({"choices": [{"message": {"content": text}}]})).text == text


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 3}, {"prompt_tokens": None, "completion_tokens": 2}])
def test_a_usage_that_is_not_whole_is_unknown(usage: Any) -> None:
    assert read_body(json.dumps({"choices": [{"message": {"content": "a"}}], "usage": usage})).usage is None


def test_a_date_is_the_seconds_until_then_and_nonsense_is_no_wait() -> None:
    assert retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}) == pytest.approx(60, abs=2)
    assert retry_after({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0.0
    assert retry_after({"retry-after": "2.5", "retry-after-ms": "100"}) == 0.1
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert [retry_after(headers) for headers in ({}, {"retry-after": "soon"}, {"retry-after": "-3"})] == [None] * 3
