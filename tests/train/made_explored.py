"""Exploration tables with real providers' names, and a run that has one with its dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from made_heads import made_table
from made_model import made_base, write_rows

from evaluation.replay import contexts_of
from providers.registry import provider_cards
from router.codec import MarksCodec
from router.table import Cell, RoutingTable
from synth.config import EvaluateConfig, RunConfig, TrainConfig
from synth.rows import Row
from synth.runs import Run

NAMES = ("expel", "awm", "voyager")


def named_table(
    tasks: int,
    *,
    seed: int,
    split: str = "explore",
    judge: Callable[[Cell], float] | None = None,
    descriptors: Sequence[str] = (),
) -> RoutingTable:
    """`made_table`; `judge` gives each cell its reward, `descriptors` each provider's previews theirs."""
    table = made_table(tasks, seed=seed)
    text = table.model_dump_json()
    for made, real in zip(table.providers, NAMES, strict=True):
        text = text.replace(f'"{made}"', f'"{real}"')
    rows = []
    for row in RoutingTable.model_validate_json(text).rows:
        cells = tuple(c.model_copy(update={"judge": None if judge is None else judge(c)}) for c in row.cells)
        previews = row.previews
        if descriptors:
            pairs = zip(previews, descriptors, strict=True)
            previews = tuple(preview.model_copy(update={"descriptor": said}) for preview, said in pairs)
        rows.append(row.model_copy(update={"cells": cells, "previews": previews}))
    return table.model_copy(update={"providers": NAMES, "rows": tuple(rows), "split": split})


def tabled_config(
    folder: Path,
    name: str = "made",
    *,
    explore: RoutingTable,
    dev: RoutingTable,
    train: TrainConfig | None = None,
) -> RunConfig:
    """The config of a run that has these two tables and nothing else."""
    config = RunConfig(
        name=name,
        runs_dir=folder,
        providers=NAMES,
        train=train or TrainConfig(),
        evaluate=EvaluateConfig(bootstrap=400),
    )
    with Run.open(config) as run:
        explore.save(run.table("explore"))
        dev.save(run.table("dev"))
    return config


def explored_run(folder: Path) -> Run:
    """A run with tables of 12 and 6 tasks, its Begin rows, and a tiny base model; close it after use."""
    train = TrainConfig(
        base=str(made_base(folder / "base")),
        dtype="float32",
        epochs=1,
        max_tokens=4000,
        max_minutes=None,
        batch_size=4,
        accumulation=1,
    )
    explore = named_table(12, seed=1)
    config = tabled_config(folder, explore=explore, dev=named_table(6, seed=2, split="dev"), train=train)
    rows = []
    for row, context in zip(explore.rows, contexts_of(explore, provider_cards(NAMES)), strict=True):
        prompt = MarksCodec().begin(context)
        targets = tuple(row.correctness(name) for name in prompt.candidates)
        shown = {"segments": prompt.segments, "candidates": prompt.candidates, "targets": targets}
        rows.append(Row.model_validate({"phase": "begin", "task_id": row.task_id, "split": "train", **shown}))
    run = Run.open(config)
    write_rows(run, rows, [])
    return run
