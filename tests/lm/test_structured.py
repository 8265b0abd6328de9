"""Reading a shape out of whatever a model wrote around it."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from lm.structured import complaint, read


class Verdict(BaseModel):
    reason: str
    score: int = Field(ge=0, le=5)


PROSE = st.text(alphabet=st.characters(exclude_characters="{}"), max_size=40)


@given(PROSE, st.builds(Verdict, reason=st.text(), score=st.integers(0, 5)), PROSE)
def test_prose_around_an_object_does_not_matter(before: str, verdict: Verdict, after: str) -> None:
    assert read(before.replace("<think>", "") + verdict.model_dump_json() + after, Verdict) == verdict


@given(st.text())
def test_any_text_is_a_shape_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= read(text, Verdict).score <= 5


def test_braces_in_prose_and_an_object_of_another_shape_are_passed_over() -> None:
    text = 'In {short}: the form is {"kind": "verdict"}, so {"reason": "used", "score": 4}'
    assert read(text, Verdict).score == 4


def test_an_object_inside_of_one_that_does_not_fit_is_not_taken() -> None:
    with pytest.raises(ValueError, match="reason"):
        read('{"draft": {"reason": "no", "score": 1}}', Verdict)


@pytest.mark.parametrize("mark", ["\u200b", "\u200d", "\u2060", "\ufeff"])
def test_zero_width_characters_between_the_tokens_do_not_matter(mark: str) -> None:
    text = mark.join(['{"reason":', '"used",', '"score":', "4}"])
    assert read(text, Verdict).score == 4


def test_zero_width_characters_inside_a_value_stay() -> None:
    assert read('{"reason": "a\u200db", "score": 4}', Verdict).reason == "a\u200db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I would say four.", "no JSON object"),
        ('{"reason": "used", "sc', "does not parse"),
        ('{"reason": "used", "score": 9}', "score: Input should be less than or equal to 5"),
        ("{" * 5000, "does not parse"),
        ('{"reason": "a", "score": ' + "9" * 5000 + "}", "does not parse"),
    ],
)
def test_the_complaint_says_what_is_wrong_and_shows_the_schema(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read(text, Verdict)
    told = complaint(caught.value, Verdict)
    assert words in told
    assert json.loads(told[told.index(": {") + 2 :])["required"] == ["reason", "score"]
