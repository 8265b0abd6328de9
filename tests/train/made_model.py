"""A tiny random Llama with a tokenizer of its own, and rows to train it on."""

from __future__ import annotations

import json
from pathlib import Path

from synth.config import RunConfig, TrainConfig
from synth.rows import Row
from synth.runs import Run

WORDS = (
    "which memory helps ? task : fits yes no lessons workflows functions area coast people of the | norland eastmark "
    "suthria harbour step keeps this run outcome correct wrong"
).split()

CHAT_TEMPLATE = (
    "{% for turn in messages %}<s>{{ turn.role }}\n{{ turn.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def made_base(folder: Path) -> Path:
    """A Llama of 4 layers and 64 dimensions with seeded random weights, saved in float32."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([" ".join(WORDS)] * 3 + [" yes no yes no"] * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token="<unk>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    logging.disable_progress_bar()
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def made_rows(tasks: int, part: str = "train") -> list[Row]:
    """Begin rows in which the provider whose preview names the asked thing is right, and an In row for every second."""
    things, providers = ("area", "coast", "people"), ("lessons", "workflows", "functions")
    rows = []
    for number in range(tasks):
        asked = number % 3
        segments = []
        for place, provider in enumerate(providers):
            line = f"{provider} | {things[(place + number // 3) % 3]} of norland | fits {things[asked]} ?"
            segments.append(
                f"which memory helps ?\nlessons : the area\ntask : {things[asked]}\n{line}"
                if not place
                else f"\n{line}"
            )
        right = [float((place + number // 3) % 3 == asked) for place in range(3)]
        targets: tuple[float | None, ...] = (right[0], right[1], None if number % 4 == 3 and not right[2] else right[2])
        rows.append(
            Row(
                phase="begin",
                task_id=f"{part}-{number}",
                split=part,
                segments=tuple(segments),
                candidates=providers,
                targets=targets,
            )
        )
        if number % 2:
            rows.append(
                Row(
                    phase="in",
                    task_id=f"{part}-{number}",
                    split=part,
                    segments=(f"step {number} : {things[asked]} {'harbour ' * (number % 5)}helps ?",),
                    candidates=("short_term_memory",),
                    targets=(float(asked == 0),),
                )
            )
    return rows


def made_json_rows(tasks: int, part: str = "train") -> list[Row]:
    """Begin rows in the json codec, one for every provider that is right (one to three a task), and End rows."""
    providers = ("lessons", "workflows", "functions")
    rows = []
    for number in range(tasks):
        prompt = f"task : {'harbour ' * (number % 4)}area of norland {number}\nwhich memory helps ?"
        about = {"task_id": f"{part}-{number}", "split": part}
        for provider in providers[: number % 3 + 1]:
            answer = f'{{"action": "query", "provider": "{provider}"}}'
            rows.append(Row.model_validate({"phase": "begin", **about, "prompt": prompt, "completion": answer}))
        kept = '{"selected_providers": ["lessons"]}'
        shown = f"{prompt}\nkeeps this run ?"
        rows.append(Row.model_validate({"phase": "end", **about, "prompt": shown, "completion": kept}))
    return rows


def made_run(folder: Path, base: Path | str, *, name: str = "made", rows: int = 12, **train: object) -> Run:
    """A run whose dataset stands; close it after use."""
    settings: dict[str, object] = {
        "base": str(base),
        "dtype": "float32",
        "batch_size": 4,
        "accumulation": 1,
        "epochs": 1,
        "upper_layers": 1.0,
        "max_minutes": None,
        "learning_rate": 3e-3,
    }
    config = RunConfig(name=name, runs_dir=folder, train=TrainConfig.model_validate(settings | train))
    run = Run.open(config)
    write_rows(run, made_rows(rows), made_rows(6, "validation"))
    return run


def write_rows(run: Run, rows: list[Row], validation: list[Row]) -> None:
    run.dataset.mkdir(parents=True, exist_ok=True)
    for part, content in (("train", rows), ("validation", validation)):
        (run.dataset / f"{part}.jsonl").write_text("".join(row.model_dump_json() + "\n" for row in content))


def metrics(run: Run) -> list[dict[str, float]]:
    return [json.loads(line) for line in run.metrics.read_text().splitlines()]
