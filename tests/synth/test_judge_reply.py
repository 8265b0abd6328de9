"""Reading a judge model's reply: exactly one verdict in a closed vocabulary, or a refusal with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.errors import JudgeError
from synth.judge.reply import read_verdict
from synth.judge.scale import DIMENSIONS, JudgedPhase

SCORES = {"relevance": 4, "utilization": 3, "progress": 5, "noise": 0}
WHY = "It opened the page that the memory names."


def reply(reason: Any = WHY, **changes: Any) -> str:
    return json.dumps({"reason": reason, **SCORES, **changes})


def refused(text: str) -> str:
    with pytest.raises(JudgeError) as caught:
        read_verdict("begin", text)
    return str(caught.value)


def test_a_verdict_is_read_with_its_reason() -> None:
    verdict = read_verdict("begin", reply())
    assert (verdict.scores, verdict.reason) == (SCORES, WHY)


@pytest.mark.parametrize(
    "text",
    [
        f"Let me think.\n{reply()}",
        f"```json\n{reply()}\n```\n",
        f"<think>noise is {{5}}? {reply(noise=5)}</think>{reply()}",
        f"  \n{reply()}\n\n",
        json.dumps({"reason": WHY, **SCORES}, indent=2),
        json.dumps({"reason": WHY, **dict(reversed(SCORES.items()))}),
    ],
)
def test_thoughts_fences_and_prose_may_stand_before_it(text: str) -> None:
    assert read_verdict("begin", text).scores == SCORES


def test_the_last_of_several_verdicts_binds() -> None:
    assert read_verdict("begin", f"{reply(noise=5)}\nNo, rather:\n{reply(noise=1)}").scores["noise"] == 1


def test_an_unreadable_last_verdict_does_not_give_way_to_an_earlier_one() -> None:
    assert "out of" not in refused(f"{reply()} {reply(noise=9)}")
    refused(f'{reply()} {{"reason": "cut')
    refused(f'{reply()} {{"reason": "half", "relevance": 3}}')


@pytest.mark.parametrize("hidden", ["\u200b", "\u200d", "\ufeff", "\u2060", "\u00ad", "\u202e"])
def test_characters_that_show_nothing_change_nothing(hidden: str) -> None:
    text = reply().replace('"relevance"', f'"rele{hidden}vance"').replace(": 5", f":{hidden} {hidden}5")
    assert read_verdict("begin", hidden + text + hidden).scores == SCORES


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON object"),
        ("null", "no JSON object"),
        ("The memory was relevant: 5. Noise: 0.", "no JSON object"),
        ("[5, 4, 3, 0]", "no JSON object"),
        ("{not json}", "does not parse"),
        (reply()[:-1], "does not parse"),
        (reply(noise=6), "0 to 5"),
        (reply(noise=-1), "0 to 5"),
        (reply(noise=10**30), "0 to 5"),
        (reply(noise=2.0), "0 to 5"),
        (reply(noise="2"), "0 to 5"),
        (reply(noise=None), "0 to 5"),
        (reply(noise=True), "0 to 5"),
        (reply(noise=[2]), "0 to 5"),
        (reply(noise="high"), "0 to 5"),
        (reply().replace(": 0", ": NaN"), "0 to 5"),
        (reply(charm=3), "charm"),
        (json.dumps({"reason": WHY, "relevance": 4}), "utilization"),
        (json.dumps(SCORES), 'no "reason"'),
        (reply(reason="  "), 'no "reason"'),
        (reply(reason=None), 'no "reason"'),
        (json.dumps({**SCORES, "reason": WHY}), "before the"),
        (f"{reply()} That said, the memory misled it.", "follow the verdict"),
        (reply()[:-1] + ', "noise": 5}', "twice"),
        (reply(reason="Nothing fits, so relevance: 0 here."), "contradict"),
        (reply(reason="Noise is 4 since it wandered off."), "contradict"),
        (reply(reason="I would say utilization 1/5."), "contradict"),
    ],
)
def test_what_is_not_exactly_a_verdict_is_refused_with_the_reason(text: str, says: str) -> None:
    assert says in refused(text)


@pytest.mark.parametrize(
    "reason",
    [
        "Relevance: 4, since it names the page; noise is 0.",
        "It made progress of 3 steps after 2 pages.",
        "The noise: 12 words that were not used.",
        "Progress, 3 pages on, was clear.",
        "First relevance: 2, but on reflection relevance: 4.",
    ],
)
def test_numbers_that_are_no_other_score_do_not_contradict(reason: str) -> None:
    assert read_verdict("begin", reply(reason=reason)).scores == SCORES


@given(st.sampled_from(sorted(DIMENSIONS)), st.data())
def test_every_legal_reply_is_read_as_it_stands(phase: JudgedPhase, data: st.DataObject) -> None:
    scores = {d.name: data.draw(st.integers(0, 5)) for d in DIMENSIONS[phase]}
    before = data.draw(st.text(alphabet=st.characters(blacklist_characters="{<"), max_size=40))
    text = f"{before}{json.dumps({'reason': WHY, **scores}, ensure_ascii=data.draw(st.booleans()))}"
    assert read_verdict(phase, text).scores == scores


@given(
    st.one_of(
        st.text(),
        st.text(alphabet='{}[]":,0123456789reasonlv \n\u200b'),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
            lambda inner: st.dictionaries(st.sampled_from(["reason", *SCORES, "x"]), inner, max_size=5),
        ).map(json.dumps),
    )
)
def test_whatever_comes_is_a_whole_verdict_or_a_refusal(text: str) -> None:
    try:
        verdict = read_verdict("begin", text)
    except JudgeError:
        return
    assert set(verdict.scores) == set(SCORES)
    assert all(type(score) is int and 0 <= score <= 5 for score in verdict.scores.values())
    assert verdict.reason
