"""LoRA fine-tuning of the language-model router on the dataset (MemAgent 4.3 and A.3), resumable and capped in time."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from providers.errors import EngineError
from providers.types import content_hash
from router.adapter import read_record
from router.base_model import load_base, settle_threads
from router.marks import MarkTokenizer
from router.policies.learned import Generating
from router.sight import Sight
from synth.rows import Row
from synth.runs import Run
from train.export import export
from train.guards import Guards, model_guards, row_guards
from train.job import Job, Measured
from train.marks import encode_rows, fit_offsets, measure, score_examples, shifted
from train.progress import (
    Progress,
    append_metrics,
    callback,
    drop_metrics_after,
    is_first_process,
    last_checkpoint,
    say,
)
from train.trainers import Material, build_trainer, material
from train.watch import complaints, marks_measures, policy_measures

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CALIBRATION_ROWS = 160
"""Training rows of each phase that are scored once more after training."""


def train(run: Run) -> None:
    """Train the adapter on `run.dataset`; write `run.adapter`, `run.merged` and lines of `run.metrics`.

    Continues from the last checkpoint of the same training; returns at once where that training is finished.
    Raises `EngineError` for an empty dataset, a failing guard, or a base model that cannot be loaded.
    """
    train_job(Job.of_run(run))


def train_job(job: Job) -> None:
    """As `train`, for any job."""
    if _finished(job):
        say("done already")
        return
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and job.held_out is not None:
        say("routing value is not measured: a model that FSDP has split does not generate")
        job = dataclasses.replace(job, held_out=None)
    model, tokenizer = _opened(job)
    tokens, checks = row_guards(job, tokenizer)
    Guards(**_facts(job, ""), tokens=tokens, checks=tuple(checks)).require()
    given = material(job, model, tokenizer)
    progress = Progress(job)
    trainer = build_trainer(job, model, tokenizer, given)
    watch = _watch(job, trainer.model, tokenizer)
    trainer.add_callback(callback(progress, watch))
    Guards(**_facts(job, given.way), tokens=tokens, checks=_model_checks(job, trainer, tokenizer, given)).require()
    _run(job, trainer, tokenizer, progress)


def check_run(run: Run) -> Guards:
    """What `check` finds of the run's own training."""
    return check(Job.of_run(run))


def check(job: Job) -> Guards:
    """All guards, passed or not, without training or writing anything."""
    model, tokenizer = _opened(job)
    tokens, checks = row_guards(job, tokenizer)
    if not all(guard.passed for guard in checks):
        return Guards(**_facts(job, "not looked at further"), tokens=tokens, checks=tuple(checks))
    given = material(job, model, tokenizer)
    trainer = build_trainer(job, model, tokenizer, given)
    checks += _model_checks(job, trainer, tokenizer, given)
    return Guards(**_facts(job, given.way), tokens=tokens, checks=tuple(checks))


def _opened(job: Job) -> tuple[Any, PreTrainedTokenizerBase]:
    if not job.rows:
        raise EngineError("The dataset has no training row; explore more tasks, or loosen the rewards section.")
    settle_threads()
    return load_base(job.config.base, dtype=job.config.dtype)


def _facts(job: Job, way: str) -> dict[str, Any]:
    return {"base": job.config.base, "codec": job.config.codec, "way": way, "max_tokens": job.config.max_tokens}


def _model_checks(job: Job, trainer: Any, tokenizer: PreTrainedTokenizerBase, given: Material) -> tuple[Any, ...]:
    # A model that FSDP will split is not on its devices yet.
    return () if trainer.is_fsdp_enabled else tuple(model_guards(job, trainer.model, tokenizer, given))


def _run(job: Job, trainer: Any, tokenizer: PreTrainedTokenizerBase, progress: Progress) -> None:
    checkpoint = last_checkpoint(job.folder)
    resumed = int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0
    if is_first_process():
        drop_metrics_after(job.metrics, resumed)
        phases = ", ".join(f"{phase} {count}" for phase, count in job.phases.items())
        say(f"{len(job.rows)} rows ({phases}) on {job.config.base}" + (f", from step {resumed}" if resumed else ""))
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    measured = _measured(job, trainer.model.eval(), tokenizer)
    steps = int(trainer.state.global_step)
    saved = job.folder / "final"
    trainer.save_model(str(saved))  # all processes: FSDP gathers the parts, the first writes
    if not is_first_process():
        return
    record = job.record(steps, progress.stopped_early, measured)
    export(saved, tokenizer, record, job.adapter, job.merged, job.config.dtype)
    if measured.validation:
        append_metrics(job.metrics, {"stage": "train", "step": steps, **measured.validation})
    shutil.rmtree(job.checkpoints, ignore_errors=True)
    found = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in measured.validation.items()]
    say("; ".join([f"{steps} steps", *found]))


def _finished(job: Job) -> bool:
    if not job.adapter.exists():
        return False
    try:
        if read_record(job.adapter).fingerprint == job.fingerprint:
            return True
    except EngineError as error:
        say(str(error))
        return False
    say("again: the dataset or the settings have changed")
    return False


def _measured(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase) -> Measured:
    """Offsets from training rows (marks), and what the router is worth on the held-out rows and tasks with them."""
    offsets = {}
    if job.config.codec == "marks":
        rows = _calibration_rows(job)
        offsets = fit_offsets(*_scored(job, model, tokenizer, rows))
    return Measured(offsets, _validation(job, model, tokenizer, offsets))


def _validation(
    job: Job, model: Any, tokenizer: PreTrainedTokenizerBase, offsets: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """What the model, as it is now, is worth on what is held out; complaints are said."""
    found: dict[str, float] = {}
    if job.config.codec == "marks" and job.validation:
        examples, raw = _scored(job, model, tokenizer, job.validation)
        scores = shifted(examples, raw, offsets)
        found = measure(examples, scores)
        if job.held_out is not None:
            found |= marks_measures(job.held_out, job.validation, scores)
    elif job.config.codec == "json" and job.held_out is not None:
        found = policy_measures(job.held_out, job.cards, _generating(job, model, tokenizer))
    for sentence in complaints(found):
        say(f"warning: {sentence}")
    return found


def _generating(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase) -> Generating:
    return Generating(model, tokenizer, name="trained", seed=job.seed, sight=Sight(job.config.descriptors))


def _scored(
    job: Job, model: Any, tokenizer: PreTrainedTokenizerBase, rows: list[Row]
) -> tuple[list[dict[str, Any]], list[list[float]]]:
    marks = MarkTokenizer(tokenizer)
    examples = encode_rows(rows, marks, job.config.max_tokens)
    return examples, score_examples(model.get_base_model(), examples, marks.yes, marks.no, job.config.batch_size)


def _watch(job: Job, model: Any, tokenizer: PreTrainedTokenizerBase) -> Callable[[int, int], None] | None:
    """Measures the held-out tasks every `watch_every` steps; the end is measured apart, with offsets."""
    every = job.config.watch_every
    if every is None:
        return None

    def watch(step: int, steps: int) -> None:
        if step % every or step == steps:
            return
        training = model.training
        model.eval()
        found = _validation(job, model, tokenizer, {})
        model.train(training)
        if is_first_process() and found:
            append_metrics(job.metrics, {"stage": "train", "step": step, **found})

    return watch


def _calibration_rows(job: Job) -> list[Row]:
    """At most `CALIBRATION_ROWS` training rows of each phase, drawn by the hash of their task."""
    drawn: list[Row] = []
    for phase in sorted({row.phase for row in job.rows}):
        rows = [row for row in job.rows if row.phase == phase]
        drawn += sorted(rows, key=lambda row: content_hash("calibration", row.task_id))[:CALIBRATION_ROWS]
    return drawn
