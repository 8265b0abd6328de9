"""The routing table: what each arm achieved on each task, and what a router would have seen.

Replay evaluates any Begin policy exactly on it (DESIGN section 9), and routers are trained on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path

from pydantic import Field

from providers.governance.words import only
from providers.types import Flow, Preview
from router.decisions import NONE, Arm


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

    def only(self, providers: Sequence[str]) -> TableRow:
        """The row with the previews and cells of these providers and of `none`."""
        shown = [place for place, preview in enumerate(self.previews) if preview.provider in providers]
        vectors = self.preview_embeddings
        return self.model_copy(
            update={
                "previews": tuple(self.previews[place] for place in shown),
                "preview_embeddings": tuple(vectors[place] for place in shown) if vectors else (),
                "cells": tuple(cell for cell in self.cells if cell.arm.provider in (NONE, *providers)),
            }
        )

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

    def only(self, providers: Sequence[str]) -> RoutingTable:
        """The table as it were had there been these providers alone, in the table's order; `none` stays."""
        kept = tuple(name for name in self.providers if name in providers)
        return self.model_copy(update={"providers": kept, "rows": tuple(row.only(kept) for row in self.rows)})

    def told(self, fields: Collection[str] | None) -> RoutingTable:
        """The table whose previews say these parts of descriptors alone; None leaves them all."""
        if fields is None:
            return self
        rows = []
        for row in self.rows:
            previews = (p.model_copy(update={"descriptor": only(p.descriptor, fields)}) for p in row.previews)
            rows.append(row.model_copy(update={"previews": tuple(previews)}))
        return self.model_copy(update={"rows": tuple(rows)})

    def judged(self) -> RoutingTable:
        """The judge's rewards in the place of correctness, so that a router can be fitted on them; None without one."""
        return self.model_copy(
            update={
                "rows": tuple(
                    row.model_copy(
                        update={"cells": tuple(c.model_copy(update={"correct": c.judge}) for c in row.cells)}
                    )
                    for row in self.rows
                )
            }
        )

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
