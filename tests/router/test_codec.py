"""The codecs: golden renderings, limits, marks, legal decisions only, and a hash that notices every change."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from router_toys import card, fact_step

from providers.base import ProviderCard
from providers.errors import ConfigError, ModelError
from providers.types import Outcome, Preview
from router import codec as codec_module
from router.codec import (
    CodecName,
    JsonCodec,
    MarksCodec,
    Prompt,
    codec,
    decide_begin,
    decide_end,
    decide_in,
    empty_previews,
    fallback_begin,
    template_hash,
)
from router.context import BeginContext, EndContext, InContext
from router.decisions import BeginDecision, EndDecision, InDecision

GOLDEN = Path(__file__).parent / "golden"

CARDS = (
    ProviderCard(
        name="expel",
        title="ExpeL",
        family="insight",
        stores="short lessons from successes and failures, and condensed winning runs",
        retrieves="lessons by words, runs by words and meaning",
        gate="all",
        top_k=3,
    ),
    ProviderCard(
        name="awm",
        title="AWM",
        family="structural",
        stores="one workflow with variables per solved task",
        retrieves="the closest workflow",
        gate="success",
        top_k=1,
    ),
    ProviderCard(
        name="voyager",
        title="Voyager",
        family="similarity",
        stores="a summary and a short digest of each run",
        retrieves="the run whose summary is nearest",
        gate="all",
        top_k=1,
    ),
)
PREVIEWS = (
    Preview(
        provider="expel", text="Coastlines stand in the Geography section of a\n country's page; open it directly."
    ),
    Preview(provider="awm", text=""),
    Preview(provider="voyager", text="Run: searched 'Peru coast', opened Peru.", descriptor="worked 2 of 3"),
)
QUESTION = "Which neighbour of Bolivia has the longest coastline?"


def begin_context(question: str = QUESTION, task_id: str = "t7") -> BeginContext:
    return BeginContext(task_id=task_id, question=question, previews=PREVIEWS, cards=CARDS)


def in_context() -> InContext:
    steps = (
        fact_step(0, "# Bolivia\nArea: 1,098,581 sq km"),
        fact_step(1).model_copy(update={"error": "no such page"}),
    )
    summary = "2 facts, 2 pages opened (1 failed). Latest: Area: 1,098,581 sq km"
    return InContext(task_id="t7", question=QUESTION, step=2, summary=summary, recent=steps)


def end_context(correct: bool | None = True) -> EndContext:
    summary = "Question: Which neighbour ...\nSteps: 4 (open 3, search 1)\nAnswer: Chile"
    return EndContext(
        task_id="t7", question=QUESTION, summary=summary, outcome=Outcome(correct=correct, source="gold"), cards=CARDS
    )


def described(context: EndContext) -> EndContext:
    return context.model_copy(update={"descriptor": "trust medium"})


RENDERINGS = {
    "begin_json": lambda: codec("json").begin(begin_context()),
    "in_json": lambda: codec("json").in_(in_context()),
    "end_json": lambda: codec("json").end(end_context()),
    "begin_marks": lambda: codec("marks").begin(begin_context()),
    "in_marks": lambda: codec("marks").in_(in_context()),
    "end_marks": lambda: codec("marks").end(end_context()),
    "end_marks_described": lambda: codec("marks").end(described(end_context())),
    "end_json_described": lambda: codec("json").end(described(end_context())),
    "end_marks_wrong": lambda: codec("marks").end(end_context(False)),
}


def shown(prompt: Prompt) -> str:
    """A prompt with every mark made visible."""
    if not prompt.candidates:
        return prompt.text
    pairs = zip(prompt.segments, prompt.candidates, strict=True)
    return "".join(f"{segment}<<{candidate}>>" for segment, candidate in pairs)


@pytest.mark.parametrize("name", RENDERINGS)
def test_golden_renderings(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    text = shown(RENDERINGS[name]())
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["marks", "json"])
def test_parts_of_descriptors_that_are_not_told_leave_no_trace(name: CodecName) -> None:
    begin, end = begin_context(), described(end_context())
    said = tuple(p.model_copy(update={"descriptor": "trust high; age old"}) for p in begin.previews)
    told = begin.model_copy(update={"previews": said})
    chosen = codec(name)
    assert chosen.begin(told.told(())) == chosen.begin(begin.told(()))
    assert "age old" in chosen.begin(told.told(("age",))).text
    assert "trust" not in chosen.begin(told.told(("age",))).text
    assert chosen.begin(told.told(None)) == chosen.begin(told)
    assert chosen.end(end.told(("age",))) == chosen.end(end_context())
    assert chosen.end(end.told(("trust",))) == chosen.end(end)


def test_json_shuffles_by_task_and_only_by_task() -> None:
    orders = {codec("json").begin(begin_context(task_id=f"t{i}")).text for i in range(20)}
    assert len(orders) > 3
    assert codec("json").begin(begin_context()) == codec("json").begin(begin_context())


def test_marks_share_their_prefix_up_to_the_task_and_keep_the_order() -> None:
    one, two = codec("marks").begin(begin_context("Is it?")), codec("marks").begin(begin_context("Was it?"))
    assert one.candidates == two.candidates == ("expel", "awm", "voyager")
    assert one.text.split("Task: ")[0] == two.text.split("Task: ")[0] != ""
    assert one.text.split("Task: ")[1] != two.text.split("Task: ")[1]


def test_a_closed_gate_is_no_candidate() -> None:
    assert codec("marks").end(end_context(True)).candidates == ("expel", "awm", "voyager")
    for correct in (False, None):
        assert codec("marks").end(end_context(correct)).candidates == ("expel", "voyager")


text_with_controls = st.text(st.characters(codec="utf-8"), max_size=600)


@given(text_with_controls, text_with_controls)
def test_no_text_can_forge_a_mark_or_a_line(question: str, preview: str) -> None:
    context = BeginContext(
        task_id="t",
        question=question,
        previews=tuple(p.model_copy(update={"text": preview}) for p in PREVIEWS),
        cards=CARDS,
    )
    prompt = codec("marks").begin(context)
    assert len(prompt.segments) == len(prompt.candidates) == 3
    assert all(
        segment.startswith(f"\n{name} | ")
        for segment, name in zip(prompt.segments[1:], ("awm", "voyager"), strict=True)
    )
    assert all(segment.endswith(" | fits?") and segment.count("\n") == 1 for segment in prompt.segments[1:])
    assert codec("json").begin(context).text.count("\n") == codec("json").begin(begin_context()).text.count("\n")


def test_long_content_is_cut_to_the_limits() -> None:
    words = "coastline of the country " * 2000
    previews = tuple(Preview(provider=f"p{i}", text=words) for i in range(13))
    big = BeginContext(task_id="t", question=words, previews=previews, cards=tuple(card(f"p{i}") for i in range(13)))
    assert len(codec("json").begin(big).text) < 4 * 4096 - 4000
    five = big.model_copy(update={"previews": previews[:5], "cards": big.cards[:5]})
    assert len(codec("marks").begin(five).text) < 4 * 400
    steps = tuple(fact_step(i, words) for i in range(9))
    in_ = InContext(task_id="t", question=words, step=9, summary=words, recent=steps)
    assert len(codec("marks").in_(in_).text) < 4 * 400
    assert len(codec("json").in_(in_).text) < 1500 + 1500 + 3 * 300 + 1200
    end = EndContext(task_id="t", question=words, summary=words, outcome=Outcome(correct=True), cards=five.cards)
    assert len(codec("marks").end(end).text) < 4 * 400


names = st.sampled_from(["expel", "awm", "voyager"])


@given(names)
def test_begin_answers_round_trip(name: str) -> None:
    decision = BeginDecision(providers=(name,))
    assert codec("json").parse_begin(codec("json").completion(decision), begin_context()) == decision


@given(st.sets(names))
def test_end_answers_round_trip_in_the_configs_order(chosen: set[str]) -> None:
    ordered = tuple(c.name for c in CARDS if c.name in chosen)
    spelt = codec("json").completion(EndDecision(providers=tuple(reversed(ordered))))
    assert codec("json").parse_end(spelt, end_context()) == EndDecision(providers=ordered)


@pytest.mark.parametrize("action", ["query", "no_op"])
def test_in_answers_round_trip(action: str) -> None:
    decision = InDecision.model_validate({"action": action})
    assert codec("json").parse_in(codec("json").completion(decision)) == decision


@pytest.mark.parametrize(
    "text",
    [
        "",
        "expel",
        '```json\n{"action": "query", "provider": "expel"}\n```',
        '{"action": "query", "provider": "expel"} because',
        '{"action": "query", "provider": "mobile_e"}',
        '{"action": "query", "provider": "short_term_memory"}',
        '{"action": "query", "provider": "none"}',
        '{"action": "no_op", "provider": "expel"}',
        '{"action": "query", "provider": null}',
        '{"action": "query"}',
        '{"action": "query", "provider": "awm", "provider": "expel"}',
        '{"action": "query", "provider": "expel", "why": "x"}',
        '["query", "expel"]',
        '{"action": "query", "provider": ' + "1" * 5000 + "}",
        "[" * 100_000,
        '{"action": "query", "provider": "\\ud800"}',
    ],
)
def test_illegal_begin_answers_are_typed_errors(text: str) -> None:
    with pytest.raises(ModelError, match="illegal") as caught:
        codec("json").parse_begin(text, begin_context())
    assert caught.value.retryable


@pytest.mark.parametrize("text", ['{"action": "query", "provider": null}', '{"action": "no_op", "provider": "expel"}'])
def test_in_provider_is_null_exactly_without_query(text: str) -> None:
    with pytest.raises(ModelError):
        codec("json").parse_in(text)
    with pytest.raises(ModelError, match="does not go with"):
        codec("json").parse_in('{"action": "no_op", "provider": "short_term_memory"}')


def test_end_answers_may_not_open_a_gate_or_repeat_a_name() -> None:
    parse = codec("json").parse_end
    assert parse('{"selected_providers": []}', end_context(False)) == EndDecision()
    with pytest.raises(ModelError, match="awm"):
        parse('{"selected_providers": ["awm"]}', end_context(False))
    with pytest.raises(ModelError, match="twice"):
        parse('{"selected_providers": ["expel", "expel"]}', end_context(False))


@given(st.text(max_size=80) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_no_text_parses_to_anything_but_a_legal_decision(text: str) -> None:
    try:
        decision = codec("json").parse_begin(text, begin_context())
    except ModelError:
        return
    assert decision.arm in {"expel", "awm", "voyager"}


def test_a_begin_answer_names_exactly_one_provider() -> None:
    for providers in ((), ("expel", "awm")):
        with pytest.raises(ConfigError, match="one provider"):
            codec("json").completion(BeginDecision(providers=providers, combine="concat"))


scores = st.lists(st.floats(-9, 9), min_size=1, max_size=6)


@given(scores, st.sets(st.integers(0, 5)))
def test_begin_takes_the_best_full_candidate(values: list[float], hollow: set[int]) -> None:
    candidates = [f"p{i}" for i in range(len(values))]
    empty = {f"p{i}" for i in hollow}
    chosen = decide_begin(values, candidates, empty).arm
    rivals = [c for c in candidates if c not in empty] or candidates
    assert chosen in rivals
    best = max(values[candidates.index(c)] for c in rivals)
    assert chosen == next(c for c in rivals if values[candidates.index(c)] == best)


@given(scores, st.floats(-3, 3))
def test_end_keeps_what_is_above_the_threshold(values: list[float], threshold: float) -> None:
    candidates = [f"p{i}" for i in range(len(values))]
    kept = decide_end(values, candidates, threshold).providers
    assert [c in kept for c in candidates] == [v > threshold for v in values]


def test_decisions_from_marks() -> None:
    assert decide_in([0.1]).action == "query"
    assert decide_in([0.1], threshold=0.5).action == "no_op"
    with pytest.raises(ModelError, match="2 scores"):
        decide_begin([0.1, 0.2], ["a"])


def test_the_fallback_is_counted_seeded_and_avoids_empty_previews() -> None:
    contexts = [begin_context(task_id=f"t{i}") for i in range(40)]
    drawn = [fallback_begin(context) for context in contexts]
    assert drawn == [fallback_begin(context) for context in contexts]
    assert all(decision.fallback for decision in drawn)
    assert {decision.arm for decision in drawn} == {"expel", "voyager"}
    assert empty_previews(contexts[0]) == {"awm"}


@pytest.mark.parametrize("name", ["marks", "json"])
def test_the_hash_notices_words_limits_and_providers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = template_hash(name, CARDS)  # type: ignore[arg-type]
    assert before == template_hash(name, CARDS)  # type: ignore[arg-type]
    reworded = (CARDS[0].model_copy(update={"retrieves": "by luck"}), *CARDS[1:])
    hashes = {before, template_hash(name, reworded), template_hash(name, CARDS[::-1])}  # type: ignore[arg-type]
    for chosen in (MarksCodec, JsonCodec):
        monkeypatch.setattr(chosen, "SUMMARY", 77)
    hashes.add(template_hash(name, CARDS))  # type: ignore[arg-type]
    monkeypatch.setattr(codec_module, "EMPTY", "(nothing)")
    hashes.add(template_hash(name, CARDS))  # type: ignore[arg-type]
    assert len(hashes) == 5


def test_the_two_codecs_have_different_hashes() -> None:
    assert template_hash("marks", CARDS) != template_hash("json", CARDS)


def smollm2_tokens(prompt: Prompt) -> int:
    """Tokens as training counts them: segment by segment. Skips where the base model was never unpacked here."""
    from transformers import AutoTokenizer

    folder = Path(os.environ.get("MEMROUTE_CACHE", Path.home() / ".cache" / "memroute")) / "base" / "smollm2-135m"
    if not folder.is_dir():
        pytest.skip("the base model is not unpacked")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return sum(len(tokenizer(segment, add_special_tokens=False).input_ids) for segment in prompt.segments)


FILLERS = {
    "prose": "share of the population with access to electricity, going by the latest figure on file for ",
    "figures": "17,098,242 sq km (2023 est.); 756,102; $103.3 billion; 21.7% ",
    "names": "São Tomé and Príncipe; Côte d'Ivoire; Bosnia and Herzegovina; Kyrgyzstan; ",
    "workflow": "search {country} -> open {country}#geography -> read {field} -> keep the largest; ",
    "chinese": "各国海岸线长度与邻国比较",
}


@pytest.mark.slow
@pytest.mark.parametrize("filler", FILLERS)
def test_marks_prompts_fit_four_hundred_smollm2_tokens(filler: str) -> None:
    text = FILLERS[filler] * 50
    question = "Among the countries sharing a border with Bosnia and Herzegovina, Côte d'Ivoire or Laos, which had " * 3
    cards = tuple(
        CARDS[0].model_copy(update={"name": n}) for n in ("expel", "awm", "skillweaver", "voyager", "insight_graph")
    )
    previews = tuple(Preview(provider=c.name, text=text) for c in cards)
    steps = tuple(fact_step(i, text) for i in range(5))
    chosen = codec("marks")
    task: dict[str, Any] = {"task_id": "t", "question": question}
    prompts = [
        chosen.begin(BeginContext(**task, previews=previews, cards=cards)),
        chosen.in_(InContext(**task, step=7, summary=text, recent=steps)),
        chosen.end(EndContext(**task, summary=text, outcome=Outcome(correct=True), cards=cards)),
    ]
    counts = [smollm2_tokens(prompt) for prompt in prompts]
    assert max(counts) <= 400, counts
