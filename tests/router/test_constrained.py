"""Constrained answers: legal whatever the model prefers, and the model's own where that is legal."""

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

from made_model import made_base

from providers.base import ProviderCard
from providers.errors import EngineError
from providers.types import Outcome, Preview
from router.base_model import load_base
from router.chat import stop_tokens
from router.codec import JsonCodec
from router.constrained import AHEAD, TokenFilter, begin_language, end_language, in_language
from router.context import BeginContext, EndContext, InContext
from router.decisions import EndDecision
from router.policies.learned import Generating

NAMES = ("lessons", "less", "work flows")
CARDS = tuple(
    ProviderCard(name=name, title=name, family="insight", stores=name, retrieves="the nearest", gate="all", top_k=1)
    for name in NAMES
)
NAME_LISTS = st.lists(st.text(alphabet="ab_ é", min_size=1, max_size=12), min_size=1, max_size=4, unique=True)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_base(str(made_base(tmp_path_factory.mktemp("base"))), dtype="float32")


def contexts(number=1, texts=("area", "coast", "people")):
    previews = tuple(Preview(provider=name, text=text) for name, text in zip(NAMES, texts, strict=True))
    task = {"task_id": f"t{number}", "question": f"which area of norland {number} ?"}
    return (
        BeginContext(**task, previews=previews, cards=CARDS),
        InContext(**task, step=1, summary="area", recent=()),
        EndContext(**task, summary="run", outcome=Outcome(correct=True), cards=CARDS),
    )


@given(NAME_LISTS, st.data())
def test_what_may_follow_at_end_is_what_begins_a_set_of_open_providers(names, data):
    legal = {
        JsonCodec().completion(EndDecision(providers=chosen))
        for size in range(len(names) + 1)
        for chosen in itertools.combinations(names, size)
    }
    answer = data.draw(st.sampled_from(sorted(legal)))
    text = answer[: data.draw(st.integers(0, len(answer)))]
    for broken in (text, text + "x"):
        expected = {whole[len(broken) :] for whole in legal if whole.startswith(broken)}
        found = end_language(names)(broken)
        assert {rest[:AHEAD] for rest in found} == {rest[:AHEAD] for rest in expected}
        assert ("" in found) == (broken in legal)


def test_every_legal_answer_can_be_written_token_by_token_and_nothing_else(loaded):
    model, tokenizer = loaded
    ends = stop_tokens(model, tokenizer)
    filtered = TokenFilter(tokenizer, ends)
    for language in (begin_language(NAMES), in_language(), end_language(NAMES)):
        for answer in {rest for rest in language("") if len(rest) < AHEAD} | {begin_language(NAMES)("")[0]}:
            if not language(answer):
                continue
            tokens = tokenizer(answer, add_special_tokens=False)["input_ids"]
            for place, token in enumerate(tokens):
                assert token in filtered.allowed(tokenizer.decode(tokens[:place]), language)
            assert filtered.allowed(answer, language) == ends
    with pytest.raises(EngineError, match="no token that continues"):
        filtered.allowed("{,", in_language())


async def test_a_model_that_answers_nonsense_decides_legally_under_constraint_and_is_counted(loaded):
    model, tokenizer = loaded
    bound = Generating(model, tokenizer, name="bound", constrained=True)
    free = Generating(model, tokenizer, name="free")
    chosen = set()
    for number in range(6):
        begin, step, end = contexts(number)
        decisions = [await bound.begin(begin), await bound.step(step), await bound.end(end)]
        assert not any(decision.fallback for decision in decisions)
        assert all(decision.constrained for decision in decisions)
        assert (await free.begin(begin)).fallback
        assert decisions[0].arm in NAMES
        assert set(decisions[2].providers) <= set(NAMES)
        chosen.add(decisions[0].arm)
    closed = contexts()[2].model_copy(update={"cards": ()})
    assert (await bound.end(closed)).providers == ()


async def test_an_answer_that_is_legal_stays_as_it_is(loaded, monkeypatch):
    model, tokenizer = loaded
    bound = Generating(model, tokenizer, name="bound", constrained=True)
    asked = []

    def answered(text, tokens, language=None):
        asked.append(language)
        return '{"action":"query",  "provider":"less"}', 1.0

    monkeypatch.setattr(bound, "_generate", answered)
    decision = await bound.begin(contexts()[0])
    assert (decision.arm, decision.constrained, decision.fallback) == ("less", False, False)
    assert asked == [None]
