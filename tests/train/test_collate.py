import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_model import made_base, made_json_rows

from providers.errors import EngineError
from router.base_model import load_base
from router.chat import answer_tokens, chat_text, conversation_text, end_token, pad_token, stop_tokens
from train.collate import answers_loss, collate_rows, collate_shared
from train.contexts import attends_freely, encode_contexts


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_base(str(made_base(tmp_path_factory.mktemp("base"))), dtype="float32")


def encoded(tokenizer, shared, tasks=4):
    return encode_contexts(made_json_rows(tasks), tokenizer, 400, shared=shared)


def test_rows_of_one_prompt_become_one_context_with_all_their_answers(loaded):
    _, tokenizer = loaded
    rows = made_json_rows(4)
    alone, joined = encoded(tokenizer, False), encoded(tokenizer, True)
    assert len(alone) == len(rows) > len(joined) == len({(row.phase, row.prompt) for row in rows})
    texts = [tokenizer.decode(answer) for example in joined for answer in example["answers"]]
    assert sorted(texts) == sorted(f"{row.completion}</s>" for row in rows)
    assert tokenizer.decode(joined[0]["input_ids"]) == f"<s>user\n{rows[0].prompt}</s>\n<s>assistant\n"


def test_loss_and_gradients_of_shared_contexts_are_those_of_the_rows_one_by_one(loaded):
    import torch

    model, tokenizer = loaded
    rows = [row.model_copy(update={"weight": 1.0 + place % 3}) for place, row in enumerate(made_json_rows(5))]
    found = []
    for shared, collate in ((False, collate_rows), (True, collate_shared)):
        model.zero_grad()
        loss = answers_loss(model, collate(encode_contexts(rows, tokenizer, 400, shared=shared)), None)
        loss.backward()
        found.append((loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}))
    model.zero_grad()
    total, tokens = 0.0, 0
    for row in rows:
        prompt, answer = (
            tokenizer(chat_text(tokenizer, row.prompt))["input_ids"],
            answer_tokens(tokenizer, row.completion),
        )
        labels = torch.tensor([[-100] * len(prompt) + answer])
        with torch.inference_mode():
            mean = model(input_ids=torch.tensor([prompt + answer]), labels=labels).loss.item()
        total, tokens = total + mean * len(answer) * row.weight, tokens + len(answer)
    assert found[0][0] == pytest.approx(total / tokens, abs=1e-4)
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-4)
    for name, gradient in found[0][1].items():
        assert torch.allclose(gradient, found[1][1][name], atol=1e-4), name
    assert max(gradient.abs().max() for gradient in found[0][1].values()) > 1e-2


@given(
    st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(1, 4), min_size=1, max_size=3)), min_size=1, max_size=3)
)
def test_an_answer_sees_its_prompt_and_itself_alone(shapes):
    examples = [
        {
            "input_ids": list(range(10, 10 + prompt)),
            "answers": [[100 * (k + 1) + j for j in range(size)] for k, size in enumerate(answers)],
            "weights": [1.0] * len(answers),
        }
        for prompt, answers in shapes
    ]
    batch = collate_shared(examples)
    labels = batch["labels"][1:].tolist()
    read = zip(batch["row"].tolist(), batch["column"].tolist(), labels, strict=True)
    expected = [(row, a, j) for row, example in enumerate(examples) for a in example["answers"] for j in range(len(a))]
    for (row, column, label), (place, answer, j) in zip(read, expected, strict=True):
        looks = batch["attention_mask"][row, 0, column].nonzero().flatten()
        seen = batch["input_ids"][row][looks].tolist()
        assert (row, label) == (place, answer[j])
        assert seen == [*examples[row]["input_ids"], *answer[:j]]
        assert batch["position_ids"][row][looks].tolist() == list(range(len(seen)))
    assert bool(batch["attention_mask"].any(dim=-1).all())


def test_a_row_over_the_limit_is_shown(loaded):
    with pytest.raises(EngineError, match=r"begin row of task train-0 has \d+ tokens, over train\.max_tokens = 20"):
        encode_contexts(made_json_rows(1), loaded[1], 20, shared=True)


def test_layers_without_an_attention_mask_are_known(loaded):
    from transformers import LlamaConfig, MistralConfig, Qwen3_5TextConfig

    class Of:
        def __init__(self, config):
            self.config = config

    assert attends_freely(loaded[0])
    assert attends_freely(Of(LlamaConfig()))
    assert not attends_freely(Of(MistralConfig(sliding_window=64)))
    assert not attends_freely(Of(Qwen3_5TextConfig()))


def test_what_ends_an_answer_is_read_from_the_template_and_padding_is_another_token(loaded):
    model, tokenizer = loaded
    assert tokenizer.decode([end_token(tokenizer)]) == "</s>"
    ends = stop_tokens(model, tokenizer)
    assert pad_token(tokenizer, ends) not in ends
    assert conversation_text(tokenizer, "which ?", "yes").startswith(chat_text(tokenizer, "which ?") + "yes</s>")
    tokenizer.chat_template, kept = None, tokenizer.chat_template
    try:
        with pytest.raises(EngineError, match="no chat template"):
            chat_text(tokenizer, "which ?")
    finally:
        tokenizer.chat_template = kept
