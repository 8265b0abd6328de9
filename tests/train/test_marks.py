import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_model import made_base, made_rows

from providers.errors import EngineError
from router.base_model import load_base
from router.marks import MarkTokenizer, collate, mark_scores
from train.lower import Lower
from train.marks import (
    PhaseBatches,
    collate_examples,
    encode_rows,
    fit_offsets,
    listwise_loss,
    marks_loss,
    measure,
    score_examples,
    shifted,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return made_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def loaded(base):
    model, tokenizer = load_base(str(base), dtype="float32")
    return model, MarkTokenizer(tokenizer), tokenizer


@pytest.fixture(scope="module")
def examples(loaded):
    return encode_rows(made_rows(12), loaded[1], 400)


def rebuilt(inputs, place):
    """The tokens of one prompt of a batch, padding included."""
    return [*inputs["prefix"][0].tolist(), *inputs["input_ids"][place].tolist()]


def test_segments_are_tokenised_one_by_one_and_marks_stand_at_their_ends(loaded):
    _, marks, tokenizer = loaded
    row = made_rows(1)[0]
    encoded = marks.encode(row.segments)
    start = 0
    for segment, mark in zip(row.segments, encoded.marks, strict=True):
        assert tokenizer.decode(encoded.tokens[start : mark + 1]) == segment
        start = mark + 1
    assert start == len(encoded.tokens)


def test_the_answers_are_the_tokens_of_yes_and_no(loaded):
    _, marks, tokenizer = loaded
    assert (tokenizer.decode([marks.yes]), tokenizer.decode([marks.no])) == (" yes", " no")


def test_a_batch_keeps_every_token_and_only_marks_carry_weight(examples):
    batch = [example for example in examples if example["phase"] == "begin"][:5]
    inputs = collate_examples(batch)
    shared = inputs["prefix"].shape[1]
    assert shared > 0
    weights, targets = inputs["weights"].tolist(), inputs["targets"].tolist()
    expected = []
    for place, example in enumerate(batch):
        tokens = example["input_ids"]
        assert rebuilt(inputs, place)[: len(tokens)] == tokens
        known = [not math.isnan(target) for target in example["targets"]]
        for mark, target, labelled in zip(example["marks"], example["targets"], known, strict=True):
            weight = 1 / sum(known) / 5 if labelled else 0.0
            expected.append((place, mark - shared, target if labelled else None, pytest.approx(weight)))
    rows, columns = inputs["row"].tolist(), inputs["column"].tolist()
    found = [
        (r, c, None if math.isnan(t) else t, w) for r, c, t, w in zip(rows, columns, targets, weights, strict=True)
    ]
    assert found == expected


def test_the_loss_is_the_cross_entropy_of_the_full_heads_logits_at_the_marks(loaded, examples):
    import torch

    model, marks, _ = loaded
    total = 0.0
    for example in examples[:6]:
        logits = model(input_ids=torch.tensor([example["input_ids"]])).logits[0]
        losses = []
        for mark, target in zip(example["marks"], example["targets"], strict=True):
            if not math.isnan(target):
                chance = torch.sigmoid(logits[mark, marks.yes] - logits[mark, marks.no]).item()
                losses.append(-target * math.log(chance) - (1 - target) * math.log(1 - chance))
        total += sum(losses) / len(losses) / 6
    with torch.inference_mode():
        loss = float(marks_loss(model, collate_examples(examples[:6]), marks.yes, marks.no))
    assert loss == pytest.approx(total, abs=1e-5)


def test_the_listwise_loss_is_the_cross_entropy_over_a_rows_labelled_candidates():
    import torch

    scores = torch.tensor([2.0, 0.0, 5.0, 1.0, 3.0, -1.0], requires_grad=True)
    inputs = {
        "row": torch.tensor([0, 0, 0, 1, 1, 2]),
        "targets": torch.tensor([1.0, 0.5, math.nan, 0.0, 0.0, 1.0]),
        "weights": torch.tensor([0.25, 0.25, 0.0, 0.5, 0.5, 1.0]),
    }
    total = math.exp(2) + 1
    expected = 0.5 * -(math.log(math.exp(2) / total) * 2 / 3 + math.log(1 / total) / 3)
    loss = listwise_loss(scores, inputs)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    loss.backward()
    chance = math.exp(2) / total
    assert scores.grad.tolist() == pytest.approx(
        [0.5 * (chance - 2 / 3), -0.5 * (chance - 2 / 3), 0, 0, 0, 0], abs=1e-6
    )


def test_gradients_through_the_shared_prefix_equal_those_of_single_prompts(loaded, examples):
    import torch

    model, marks, _ = loaded
    first = [example for example in examples if example["phase"] == "begin"][:4]
    model.zero_grad()
    marks_loss(model, collate_examples(first), marks.yes, marks.no).backward()
    together = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    for example in first:
        (marks_loss(model, collate_examples([example]), marks.yes, marks.no) / 4).backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, together[name], atol=1e-6), name
    model.zero_grad()


def test_upper_layers_on_kept_states_have_the_loss_and_gradients_of_the_whole_model(loaded, examples):
    import torch

    model, marks, _ = loaded
    first = [example for example in examples if example["phase"] == "begin"][:4]
    upper = {name: p for name, p in model.named_parameters() if ".layers.2." in name or ".layers.3." in name}
    lower, found = Lower(model, 2), []
    for collate_way in (collate_examples, lower.collate, lower.collate):
        model.zero_grad()
        loss = lower.loss(model, collate_way(first), marks.yes, marks.no)
        loss.backward()
        found.append((loss.item(), {name: parameter.grad.clone() for name, parameter in upper.items()}))
    model.zero_grad()
    whole, gradients = found[0]
    assert len(upper) == 18
    for loss, kept in found[1:]:
        assert loss == pytest.approx(whole, abs=1e-6)
        assert all(torch.allclose(kept[name], gradients[name], atol=1e-6) for name in upper)
    assert [layer.self_attn.layer_idx for layer in model.model.layers] == [0, 1, 2, 3]


def test_scores_do_not_depend_on_the_company_of_a_prompt(loaded):
    import torch

    model, marks, _ = loaded
    prompts = [marks.encode(row.segments) for row in made_rows(9)]
    with torch.inference_mode():
        alone = torch.cat([mark_scores(model, collate([prompt]), marks.yes, marks.no) for prompt in prompts])
        together = mark_scores(model, collate(prompts), marks.yes, marks.no)
    assert torch.allclose(alone, together, atol=1e-5)
    assert together.std() > 1e-3


def test_a_prompt_over_the_limit_stops_the_training_before_it_starts_and_is_shown(loaded):
    with pytest.raises(
        EngineError, match=r"begin row of task train-0 has \d+ tokens, over train\.max_tokens = 20.*memory"
    ):
        encode_rows(made_rows(2), loaded[1], 20)


def test_a_row_without_any_label_is_refused(loaded):
    row = made_rows(1)[0].model_copy(update={"targets": (None, None, None)})
    with pytest.raises(EngineError, match="no label"):
        encode_rows([row], loaded[1], 400)


def test_batches_hold_one_phase_and_every_example_comes_once(examples):
    order = PhaseBatches(examples, 2, seed=0)
    epochs = []
    for epoch in (0, 1, 0):
        order.set_epoch(epoch)
        epochs.append(list(order))
    assert epochs[0] == epochs[2] != epochs[1]
    assert sorted(epochs[0]) == list(range(len(examples)))
    batches = [epochs[0][i : i + 2] for i in range(0, len(examples), 2)]
    assert sum(len({examples[place]["phase"] for place in batch}) > 1 for batch in batches) <= 1


def test_measure_gives_the_loss_of_training_and_agreement_by_phase(loaded):
    import torch

    model, marks, _ = loaded
    examples = encode_rows(made_rows(12), marks, 400)
    scores = score_examples(model, examples, marks.yes, marks.no, 4)
    found = measure(examples, scores)
    with torch.inference_mode():
        single = [float(marks_loss(model, collate_examples([example]), marks.yes, marks.no)) for example in examples]
    assert found["validation_loss"] == pytest.approx(sum(single) / len(single), abs=1e-5)
    right = [[10.0 if target == 1 else -10.0 for target in example["targets"]] for example in examples]
    wrong = [[-score for score in values] for values in right]
    assert measure(examples, right)["agreement"] == 1.0
    assert measure(examples, wrong)["agreement"] == 0.0
    half = [
        values if example["phase"] == "in" else [-s for s in values]
        for example, values in zip(examples, right, strict=True)
    ]
    assert (measure(examples, half)["agreement_in"], measure(examples, half)["agreement_begin"]) == (1.0, 0.0)


@given(st.lists(st.tuples(st.floats(-2000, 2000), st.floats(0, 1)), min_size=1, max_size=30))
def test_offsets_bring_the_mean_chance_to_the_mean_label(pairs):
    examples = [{"phase": "begin", "candidates": ["p", "q"], "targets": [target, math.nan]} for _, target in pairs]
    scores = [[score, 0.0] for score, _ in pairs]
    [(phase, found)] = fit_offsets(examples, scores).items()
    offset = found["p"]
    chances = [(1 + math.tanh((score + offset) / 2)) / 2 for score, _ in pairs]
    assert phase == "begin"
    assert set(found) == {"p"}
    assert sum(target for _, target in pairs) - sum(chances) == pytest.approx(offset, abs=1e-5)
    assert shifted(examples, scores, {"begin": found}) == [[score + offset, offset] for score, _ in pairs]


def test_a_few_examples_can_be_learned_by_heart(base):
    import torch

    model, tokenizer = load_base(str(base), dtype="float32")
    marks = MarkTokenizer(tokenizer)
    inputs = collate_examples(encode_rows(made_rows(4), marks, 400)[:4])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(80):
        loss = marks_loss(model, inputs, marks.yes, marks.no)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 0.02
