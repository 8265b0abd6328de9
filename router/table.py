"""The routing table: what each arm achieved on each task, and what a router would have seen.

Replay evaluates any Begin policy exactly on it (DESIGN section 9), and routers are trained on it.
"""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from providers.types import Flow, Preview
from router.decisions import Arm


class Cell(Flow):
    """What one arm of one task gave. `correct` None: it did not run, or was not scored."""

    arm: Arm
    correct: float | None
    steps: float = 0.0
    injected: float = 0.0
    """Characters injected at Begin and In together."""
    begin_chars: float = 0.0
    empty: bool = False
    """True where the provider retrieved nothing."""
    judge: float | None = None
    seconds: float = 0.0


class TableRow(Flow):
    """One task: its question, previews and cells."""

    task_id: str
    question: str
    family: str
    """For reports only; no policy sees it."""
    sealed: bool = False
    """Whether the question may not be published: reports leave such rows out, exports refuse them."""
    previews: tuple[Preview, ...]
    embedding: tuple[float, ...] = Field(repr=False, default=())
    preview_embeddings: tuple[tuple[float, ...], ...] = Field(repr=False, default=())
    """One per preview; all zeros where the preview is empty."""
    cells: tuple[Cell, ...]

    def correctness(self, provider: str, repeats: tuple[int, ...] | None = None) -> float | None:
        """Mean correctness of a provider's arms over In modes and (given) repeats; None where nothing was scored."""
        values = [
            cell.correct
            for cell in self.cells
            if cell.arm.provider == provider
            and cell.correct is not None
            and (repeats is None or cell.arm.repeat in repeats)
        ]
        return math.fsum(values) / len(values) if values else None

    def cell_mean(self, provider: str, field: str) -> float | None:
        """Mean of a numeric cell field over a provider's arms."""
        values = [float(getattr(c, field)) for c in self.cells if c.arm.provider == provider]
        return math.fsum(values) / len(values) if values else None


class RoutingTable(Flow):
    """Tasks x arms of one split over one frozen bank."""

    suite: str
    split: str
    providers: tuple[str, ...]
    """Without `none`, in the order of the config."""
    rows: tuple[TableRow, ...]

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all."""
        from providers.files import write_atomically

        write_atomically(path, self.model_dump_json())

    def publishable(self) -> RoutingTable:
        """The table without sealed rows."""
        return self.model_copy(update={"rows": tuple(row for row in self.rows if not row.sealed)})

    @classmethod
    def load(cls, path: Path) -> RoutingTable:
        return cls.model_validate_json(path.read_text(encoding="utf-8"))
