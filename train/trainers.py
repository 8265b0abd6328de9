"""TRL's trainer for each codec, with LoRA adapters (MemAgent A.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from providers.errors import ConfigError, EngineError
from router.marks import MarkTokenizer
from synth.rows import Row
from train.collate import answers_loss, collate_rows, collate_shared
from train.contexts import attends_freely, encode_contexts
from train.job import Job
from train.lower import Lower
from train.marks import PhaseBatches, collate_examples, encode_rows, marks_loss
from train.progress import CHECKPOINTS_KEPT, processes

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

Collate = Callable[[Sequence[Any]], dict[str, "torch.Tensor"]]
Loss = Callable[[Any, Any, Any], "torch.Tensor"]


@dataclass(frozen=True)
class Material:
    """What a codec makes of the rows, and how it is trained on."""

    examples: list[dict[str, Any]]
    collate: Collate
    loss: Loss
    """Of a model as the trainer calls it, a batch, and the number of labels in the step (None: in this batch)."""
    way: str
    """In words, for people."""
    plain: Collate | None = None
    """Batches that cost more, where `collate` spares something: their loss is the same."""


def material(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase) -> Material:
    """Raises `EngineError` for a row that is too long, `ConfigError` where this codec cannot be trained so."""
    return (_marks_material if job.config.codec == "marks" else _json_material)(job, model, tokenizer)


def _marks_material(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase) -> Material:
    if processes() > 1:
        raise ConfigError("Marks are trained by one process: start `memroute train` without `accelerate launch`.")
    config, marks = job.config, MarkTokenizer(tokenizer)
    encode_rows(job.validation, marks, config.max_tokens)
    # Layers whose activations are computed again keep no keys and values, so a beginning cannot be shared.
    share = not config.activation_checkpointing
    plain = partial(collate_examples, share=share)
    lower = Lower(model, lowest_adapted(job, model), share=share) if config.cache_lower else None
    of_batch = lower.loss if lower else marks_loss

    def loss(model: Any, inputs: Any, items: Any) -> torch.Tensor:
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        return of_batch(inner, inputs, marks.yes, marks.no, listwise=config.objective == "listwise")

    return Material(
        examples=encode_rows([labelled(job, row) for row in job.rows], marks, config.max_tokens),
        collate=lower.collate if lower else plain,
        loss=loss,
        way="all candidates of a prompt in one pass" + (", layers below the adapters once" if lower else ""),
        plain=plain if lower else None,
    )


def _json_material(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase) -> Material:
    if job.config.cache_lower:
        raise ConfigError("train.cache_lower is for the marks codec; the json codec computes every layer.")
    if job.config.objective == "listwise":
        raise ConfigError("train.objective: listwise is for the marks codec; a json answer names one provider.")
    shared = job.config.shared_context and attends_freely(model)
    encode_contexts(job.validation, tokenizer, job.config.max_tokens, shared=False)
    ways = {True: "each prompt once for all its answers", False: "each answer behind its own prompt"}
    why = " (the base has layers without an attention mask)" if job.config.shared_context and not shared else ""
    return Material(
        examples=encode_contexts(job.rows, tokenizer, job.config.max_tokens, shared=shared),
        collate=collate_shared if shared else collate_rows,
        loss=answers_loss,
        way=ways[shared] + why,
        plain=collate_rows if shared else None,
    )


def build_trainer(
    job: Job,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    given: Material,
) -> Any:
    """TRL's trainer over the codec's own batches and loss; its `model` carries the adapters."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTTrainer  # type: ignore[attr-defined]

    class RouterTrainer(SFTTrainer):
        """TRL's trainer with the codec's loss and batches of one phase."""

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            loss = given.loss(model, inputs, num_items_in_batch)
            # Labels are counted over all processes, whose gradients are then averaged.
            return loss * self.accelerator.num_processes if num_items_in_batch is not None else loss

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            of_step = job.config.batch_size * job.config.accumulation * processes()
            return PhaseBatches(given.examples, of_step, job.seed)

    trainer = RouterTrainer(
        model=model,
        args=_arguments(job),
        train_dataset=Dataset.from_list(given.examples),
        data_collator=given.collate,
        processing_class=tokenizer,
        peft_config=lora(job, model),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def lora(job: Job, model: Any) -> Any:
    """LoRA on `lora_modules` of the upper share of the layers; `EngineError` where the base has none of a name."""
    from peft import LoraConfig

    config, layers, lowest = job.config, _layers(model), lowest_adapted(job, model)
    absent = [name for name in config.lora_modules if not modules_named(model, name)]
    if absent or not config.lora_modules:
        raise EngineError(
            f"{config.base} has no linear layer named {', '.join(absent)}; set train.lora_modules to some of "
            f"{', '.join(linear_layers(model))}."
        )
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=list(config.lora_modules),
        layers_to_transform=list(range(lowest, layers)) if lowest else None,
        task_type="CAUSAL_LM",
    )


def lowest_adapted(job: Job, model: Any) -> int:
    """The lowest layer that gets adapters, counted from 0."""
    layers = _layers(model)
    return layers - max(1, round(layers * job.config.upper_layers))


def _layers(model: Any) -> int:
    return int(model.config.get_text_config().num_hidden_layers)


def modules_named(model: Any, name: str) -> list[str]:
    """Full names of the linear layers within the model's layers that end in `name`."""
    return [full for full in _linear(model) if full.rpartition(".")[2] == name]


def linear_layers(model: Any) -> list[str]:
    """Last parts of the names of all linear layers within the model's layers."""
    return sorted({full.rpartition(".")[2] for full in _linear(model)})


def _linear(model: Any) -> list[str]:
    """The head is none of them: it is often tied to the embeddings, and an adapter on it could not be merged."""
    import torch

    head = model.get_output_embeddings()
    return [
        name
        for name, module in model.named_modules()
        if (isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D") and module is not head
    ]


def labelled(job: Job, row: Row) -> Row:
    """The row with soft labels as they are, made hard, or halfway to what heads expect that have not seen its task.

    Distilling from a cross-fitted teacher (Hinton et al. 2015) takes out much of what is chance in one run's outcome.
    """
    pairs = list(zip(row.candidates, row.targets, strict=True))
    if job.config.labels == "hard":
        targets = tuple(None if target is None else float(target >= 0.5) for _, target in pairs)
    elif job.config.labels == "distilled" and row.phase == "begin":
        expected = job.taught[row.task_id]
        targets = tuple(None if target is None else (target + expected[name]) / 2 for name, target in pairs)
    else:
        return row
    return row.model_copy(update={"targets": targets})


def _arguments(job: Job) -> Any:
    import torch
    from trl import SFTConfig  # type: ignore[attr-defined]

    config = job.config
    arguments = SFTConfig(
        output_dir=str(job.folder),
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulation,
        num_train_epochs=config.epochs,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=config.warmup_ratio,
        logging_steps=1,
        save_strategy="no",
        save_total_limit=CHECKPOINTS_KEPT,
        seed=job.seed,
        bf16=False,
        use_cpu=not torch.cuda.is_available(),
        activation_checkpointing=config.activation_checkpointing,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=list(config.report_to) or "none",
        disable_tqdm=True,
        max_length=config.max_tokens,
        remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # else one process spreads every batch over all GPUs; several are for `accelerate launch`
    return arguments
