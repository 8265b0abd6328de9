"""LoRA fine-tuning of the language-model router on the dataset (MemAgent 4.3 and A.3), resumable and capped in time."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from providers.base import ProviderCard
from providers.errors import EngineError
from providers.files import write_atomically
from providers.registry import provider_cards
from providers.types import content_hash
from router.adapter import AdapterRecord, read_record
from router.base_model import load_base, settle_threads
from router.codec import template_hash
from router.marks import MarkTokenizer
from synth.config import TrainConfig
from synth.rows import Row, dataset_hash, load_rows
from synth.runs import Run
from train.export import export
from train.marks import (
    PhaseBatches,
    collate_examples,
    encode_rows,
    fit_offsets,
    marks_loss,
    measure,
    score_examples,
    shifted,
    too_long,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""All attention and MLP projections get adapters; the LM head does not."""

CHECKPOINT_SECONDS = 30.0
"""Least time between checkpoints: what a killed training can lose."""

CHECKPOINTS_KEPT = 2

CALIBRATION_ROWS = 160
"""Training rows of each phase that are scored once more after training."""


@dataclass(frozen=True)
class Job:
    """One training: what goes in, and the identity of what comes out."""

    config: TrainConfig
    seed: int
    cards: tuple[ProviderCard, ...]
    rows: list[Row]
    validation: list[Row]
    checkpoints: Path
    metrics: Path

    @classmethod
    def of_run(cls, run: Run) -> Job:
        return cls(
            config=run.config.train,
            seed=run.config.seed,
            cards=provider_cards(run.config.providers),
            rows=load_rows(run, "train"),
            validation=load_rows(run, "validation"),
            checkpoints=run.root / "checkpoints",
            metrics=run.metrics,
        )

    @property
    def dataset_hash(self) -> str:
        return dataset_hash([*self.rows, *self.validation])

    @property
    def template_hash(self) -> str:
        return template_hash(self.config.codec, self.cards)

    @property
    def fingerprint(self) -> str:
        """Equal for trainings that must give the same adapter."""
        return content_hash(self.config.model_dump(mode="json"), self.seed, self.dataset_hash, self.template_hash)

    @property
    def folder(self) -> Path:
        """Where this training's checkpoints lie."""
        return self.checkpoints / self.fingerprint

    def record(self, steps: int, stopped_early: bool, calibrated: Calibrated) -> AdapterRecord:
        return AdapterRecord(
            base=self.config.base,
            codec=self.config.codec,
            providers=tuple(card.name for card in self.cards),
            template_hash=self.template_hash,
            dataset_hash=self.dataset_hash,
            settings=self.config.model_dump(mode="json") | {"seed": self.seed},
            fingerprint=self.fingerprint,
            rows=dict(Counter(row.phase for row in self.rows)),
            steps=steps,
            stopped_early=stopped_early,
            offsets=calibrated.offsets,
            validation=calibrated.validation,
        )


@dataclass(frozen=True)
class Calibrated:
    """What is measured on a trained model."""

    offsets: dict[str, dict[str, float]]
    """See `train.marks.fit_offsets`."""
    validation: dict[str, float]


def train(run: Run) -> None:
    """Train the adapter on `run.dataset`; write `run.adapter`, `run.merged` and lines of `run.metrics`.

    Continues from the last checkpoint of the same training; returns at once where that training is finished.
    Raises `EngineError` for an empty dataset, a prompt over `max_tokens`, or a base model that cannot be loaded.
    """
    job = Job.of_run(run)
    if _finished(run, job):
        _say("done already")
        return
    if not job.rows:
        raise EngineError("The dataset has no training row; explore more tasks, or loosen the rewards section.")
    settle_threads()
    model, tokenizer = load_base(job.config.base, dtype=job.config.dtype)
    progress = Progress(job)
    trainer = (_marks_trainer if job.config.codec == "marks" else _json_trainer)(job, model, tokenizer, progress)
    checkpoint = last_checkpoint(job.folder)
    resumed = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    drop_metrics_after(job.metrics, resumed)
    phases = ", ".join(f"{phase} {count}" for phase, count in Counter(row.phase for row in job.rows).items())
    _say(f"{len(job.rows)} rows ({phases}) on {job.config.base}" + (f", from step {resumed}" if resumed else ""))
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    calibrated = _calibrate(job, trainer, tokenizer)
    steps = int(trainer.state.global_step)
    if calibrated.validation:
        append_metrics(job.metrics, {"stage": "train", "step": steps, **calibrated.validation})
    export(trainer.model, tokenizer, job.record(steps, progress.stopped_early, calibrated), run.adapter, run.merged)
    shutil.rmtree(job.checkpoints, ignore_errors=True)
    found = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in calibrated.validation.items()]
    _say("; ".join([f"{steps} steps", *found]))


class Progress:
    """One line of progress, a line of metrics per step, checkpoints by the clock and the time cap."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._per_step = job.config.batch_size * job.config.accumulation
        self._bar: Any = None
        self.stopped_early = False

    def begin(self, step: int, steps: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=steps, initial=step, desc="training", unit="step", file=sys.stderr)
        self._started = self._saved = self._stepped = time.monotonic()
        self._speed = 0.0

    def step(self, step: int, steps: int) -> tuple[bool, bool]:
        """Whether to save a checkpoint now, and whether to stop."""
        now = time.monotonic()
        self._speed = self._per_step / max(now - self._stepped, 1e-6)
        self._stepped = now
        self._bar.update(1)
        cap = self._job.config.max_minutes
        stop = cap is not None and now - self._started > cap * 60 and step < steps
        if stop:
            self.stopped_early = True
            _say(f"stopped after step {step} of {steps}: train.max_minutes = {cap:g} is over")
        save = now - self._saved >= CHECKPOINT_SECONDS
        if save:
            self._saved = now
        return save, stop

    def log(self, step: int, loss: float, rate: float) -> None:
        self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        line = {"stage": "train", "step": step, "loss": loss, "lr": rate, "examples_s": round(self._speed, 3)}
        append_metrics(self._job.metrics, line)

    def end(self) -> None:
        self._bar.close()


def append_metrics(path: Path, line: Mapping[str, Any]) -> None:
    """Add one JSON line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def drop_metrics_after(path: Path, step: int) -> None:
    """Remove this stage's lines past `step`, and a torn last line: a resumed training writes them again."""
    if not path.exists():
        return
    kept = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if line.get("stage") != "train" or line.get("step", 0) <= step:
            kept.append(text)
    write_atomically(path, "".join(f"{text}\n" for text in kept))


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint. Its trainer state is written last: one without it was cut off, and is removed."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(path)
            continue
        return path
    return None


def _finished(run: Run, job: Job) -> bool:
    if not run.adapter.exists():
        return False
    try:
        if read_record(run.adapter).fingerprint == job.fingerprint:
            return True
    except EngineError as error:
        _say(str(error))
        return False
    _say("again: the dataset or the settings have changed")
    return False


def _lora(job: Job, layers: int) -> Any:
    """LoRA on all attention and MLP projections of the upper share of the layers (MemAgent A.3: r 16, alpha 32)."""
    from peft import LoraConfig

    lowest = layers - max(1, round(layers * job.config.upper_layers))
    return LoraConfig(
        r=job.config.lora_r,
        lora_alpha=job.config.lora_alpha,
        lora_dropout=job.config.lora_dropout,
        target_modules=list(PROJECTIONS),
        layers_to_transform=list(range(lowest, layers)) if lowest else None,
        task_type="CAUSAL_LM",
    )


def _arguments(job: Job, **more: Any) -> Any:
    import torch
    from trl import SFTConfig  # type: ignore[attr-defined]

    config = job.config
    return SFTConfig(
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
        activation_checkpointing=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to="none",
        disable_tqdm=True,
        max_length=config.max_tokens,
        **more,
    )


def _callback(progress: Progress) -> Any:
    from transformers import TrainerCallback

    class Reporting(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.begin(state.global_step, state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            save, stop = progress.step(state.global_step, state.max_steps)
            control.should_save |= save
            control.should_training_stop |= stop

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            logs = kwargs["logs"]
            if "loss" in logs:
                progress.log(state.global_step, logs["loss"], logs["learning_rate"])

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.end()

    return Reporting()


def _build(trainer: Callable[..., Any], progress: Progress, **parts: Any) -> Any:
    from transformers import PrinterCallback

    built = trainer(**parts)
    built.remove_callback(PrinterCallback)
    built.add_callback(_callback(progress))
    return built


def _marks_trainer(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase, progress: Progress) -> Any:
    from datasets import Dataset
    from trl import SFTTrainer  # type: ignore[attr-defined]

    marks = MarkTokenizer(tokenizer)
    examples = encode_rows(job.rows, marks, job.config.max_tokens)
    encode_rows(job.validation, marks, job.config.max_tokens)

    class MarksTrainer(SFTTrainer):
        """TRL's trainer with the loss at the marks and batches of one phase."""

        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            return marks_loss(self.accelerator.unwrap_model(model).get_base_model(), inputs, marks.yes, marks.no)

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return PhaseBatches(examples, job.config.batch_size * job.config.accumulation, job.seed)

    return _build(
        MarksTrainer,
        progress,
        model=model,
        args=_arguments(job, remove_unused_columns=False, dataset_kwargs={"skip_prepare_dataset": True}),
        train_dataset=Dataset.from_list(examples),
        data_collator=collate_examples,
        processing_class=tokenizer,
        peft_config=_lora(job, model.config.num_hidden_layers),
    )


def _json_trainer(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase, progress: Progress) -> Any:
    from datasets import Dataset
    from trl import SFTTrainer  # type: ignore[attr-defined]

    for row in [*job.rows, *job.validation]:
        tokens = len(tokenizer(row.prompt + row.completion)["input_ids"]) + 1
        if tokens > job.config.max_tokens:
            raise too_long(row, tokens, job.config.max_tokens)
    return _build(
        SFTTrainer,
        progress,
        model=model,
        args=_arguments(job, completion_only_loss=True),
        train_dataset=Dataset.from_list([{"prompt": row.prompt, "completion": row.completion} for row in job.rows]),
        processing_class=tokenizer,
        peft_config=_lora(job, model.config.num_hidden_layers),
    )


def _calibrate(job: Job, trainer: Any, tokenizer: PreTrainedTokenizerBase) -> Calibrated:
    """Offsets from training rows, and how the validation rows come out with them (marks only)."""
    if job.config.codec != "marks":
        return Calibrated({}, {})
    marks = MarkTokenizer(tokenizer)
    model = trainer.model.eval().get_base_model()

    def scored(rows: list[Row]) -> tuple[list[dict[str, Any]], list[list[float]]]:
        examples = encode_rows(rows, marks, job.config.max_tokens)
        return examples, score_examples(model, examples, marks.yes, marks.no, job.config.batch_size)

    offsets = fit_offsets(*scored(_calibration_rows(job)))
    if not job.validation:
        return Calibrated(offsets, {})
    examples, scores = scored(job.validation)
    return Calibrated(offsets, measure(examples, shifted(examples, scores, offsets)))


def _calibration_rows(job: Job) -> list[Row]:
    """At most `CALIBRATION_ROWS` training rows of each phase, drawn by the hash of their task."""
    drawn: list[Row] = []
    for phase in sorted({row.phase for row in job.rows}):
        rows = [row for row in job.rows if row.phase == phase]
        drawn += sorted(rows, key=lambda row: content_hash("calibration", row.task_id))[:CALIBRATION_ROWS]
    return drawn


def _say(text: str) -> None:
    print(f"training: {text}", file=sys.stderr, flush=True)
