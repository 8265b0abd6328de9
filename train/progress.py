"""What a training shows and leaves while it goes: a bar, lines of metrics, checkpoints by the clock, the time cap."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from providers.files import write_atomically
from train.job import Job

CHECKPOINT_SECONDS = 30.0
"""Least time between checkpoints: what a killed training can lose."""

CHECKPOINTS_KEPT = 2


class Progress:
    """One line of progress, a line of metrics per step, checkpoints by the clock and the time cap."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._per_step = job.config.batch_size * job.config.accumulation
        self._bar: Any = None
        self.stopped_early = False

    def begin(self, step: int, steps: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(
            total=steps, initial=step, desc="training", unit="step", file=sys.stderr, disable=not is_first_process()
        )
        self._started = self._saved = self._stepped = time.monotonic()
        self._speed = 0.0

    def step(self, step: int, steps: int) -> tuple[bool, bool]:
        """Whether to save a checkpoint now, and whether to stop.

        One is always saved at the end, so that a failure to export (a full disk) costs no training.
        """
        now = time.monotonic()
        self._speed = self._per_step / max(now - self._stepped, 1e-6)
        self._stepped = now
        self._bar.update(1)
        cap = self._job.config.max_minutes
        stop = cap is not None and now - self._started > cap * 60 and step < steps
        if stop:
            self.stopped_early = True
            say(f"stopped after step {step} of {steps}: train.max_minutes = {cap:g} is over")
        save = now - self._saved >= CHECKPOINT_SECONDS or stop or step == steps
        if save:
            self._saved = now
        return save, stop

    def log(self, step: int, loss: float, rate: float) -> None:
        self._bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        line = {"stage": "train", "step": step, "loss": loss, "lr": rate, "examples_s": round(self._speed, 3)}
        append_metrics(self._job.metrics, line)

    def end(self) -> None:
        self._bar.close()


def callback(progress: Progress, watch: Callable[[int, int], None] | None) -> Any:
    """The trainer's callback for `progress` and for `watch`, which is called after every step with it and their number.

    Only the first of several processes reports.
    """
    from transformers import TrainerCallback

    class Reporting(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.begin(state.global_step, state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            save, stop = _together(*progress.step(state.global_step, state.max_steps))
            control.should_save |= save
            control.should_training_stop |= stop
            if watch is not None:
                watch(state.global_step, state.max_steps)

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            logs = kwargs["logs"]
            if "loss" in logs and state.is_world_process_zero:
                progress.log(state.global_step, logs["loss"], logs["learning_rate"])

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            progress.end()

    return Reporting()


def _together(save: bool, stop: bool) -> tuple[bool, bool]:
    """What the first process decides: clocks differ, and all processes have to save and stop at the same step."""
    if processes() == 1:
        return save, stop
    from accelerate.utils import broadcast_object_list

    decided: list[bool] = broadcast_object_list([save, stop])
    return decided[0], decided[1]


def processes() -> int:
    """How many processes train together (`accelerate launch`)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    return int(os.environ.get("RANK", "0")) == 0


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
            shutil.rmtree(path, ignore_errors=True)
            continue
        return path
    return None


def say(text: str) -> None:
    """One line for people, on standard error; once, however many processes train."""
    if is_first_process():
        print(f"training: {text}", file=sys.stderr, flush=True)
