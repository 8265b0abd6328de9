"""One policy on a stream of tasks: what happened to each, kept as a file so that a stopped evaluation continues."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from providers.types import Flow
from router.decisions import InMode


class InStep(Flow):
    """One In decision. `forced`: there was nothing to show, so the policy was not asked."""

    step: int
    action: InMode
    forced: bool


class StreamTask(Flow):
    """One task of a stream. `correct` None: it failed, or nothing could score it."""

    task_id: str
    family: str
    status: Literal["done", "failed", "timeout"]
    error: str = ""
    correct: bool | None = None
    begin: tuple[str, ...] = ()
    """Providers that were retrieved from."""
    in_steps: tuple[InStep, ...] = ()
    end: tuple[str, ...] = ()
    """Providers whose gate was open and that the policy chose to keep the run."""
    stored: tuple[str, ...] = ()
    """Those of `end` that stored something."""
    steps: int = 0
    injected: int = 0
    begin_chars: int = 0
    seconds: float = 0.0


class Stream(Flow):
    """All tasks of one policy under one seed, in the order of the stream."""

    key: str
    """Hash of everything that the stream depends on."""
    policy: str
    seed: int
    tasks: tuple[StreamTask, ...]

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        from providers.files import write_atomically

        write_atomically(path, self.model_dump_json())

    @classmethod
    def load(cls, path: Path) -> Stream:
        return cls.model_validate_json(path.read_text(encoding="utf-8"))
