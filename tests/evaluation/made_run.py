"""A run's folder made up for tests: tables, rewards, dataset card and metrics as the stages leave them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from made_tables import PROVIDERS, made_alone, made_table

from evaluation import replay
from providers.files import write_atomically
from router.table import RoutingTable
from synth.config import DatasetConfig, EncoderConfig, EvaluateConfig, RunConfig, SuiteConfig
from synth.runs import Run


def made_config(folder: Path, **evaluate: Any) -> RunConfig:
    return RunConfig(
        name="made",
        runs_dir=folder,
        suite=SuiteConfig(warmup=0, explore=210, dev=140, test=70),
        encoder=EncoderConfig(name="hashing"),
        dataset=DatasetConfig(),
        evaluate=EvaluateConfig(bootstrap=1000, **evaluate),
    )


def made_run(folder: Path, *, tasks: int = 140, unscored: float = 0.01, **evaluate: Any) -> Run:
    """An opened run with tables for explore, dev and the shuffled control."""
    run = Run.open(made_config(folder, **evaluate))
    made_table(210, "explore", repeats=1, in_modes=("query", "no_op")).save(run.table("explore"))
    made_table(tasks, "dev", unscored=unscored).save(run.table("dev"))
    made_table(tasks, "dev", seed=1, unscored=unscored, shuffled=True).save(run.table("dev_shuffled"))
    made_alone(made_table(tasks, "dev", unscored=unscored)).save(run.table("dev_alone"))
    return run


def serve_tables(run: Run, patch: Any) -> None:
    """Let `evaluate` read the made tables instead of running episodes."""

    async def stored(of: Run, split: str) -> RoutingTable:
        return RoutingTable.load(of.table(split))

    async def stored_shuffled(of: Run, split: str) -> RoutingTable:
        return RoutingTable.load(of.table(f"{split}_shuffled"))

    async def stored_alone(of: Run, split: str) -> RoutingTable:
        return RoutingTable.load(of.table(f"{split}_alone"))

    patch.setattr(replay, "run_alone", stored_alone)
    patch.setattr(replay, "run_arms", stored)
    patch.setattr(replay, "run_arms_shuffled", stored_shuffled)


def add_rewards(run: Run) -> None:
    bins = {"decisions": 400, "unscored": 6, "zero": 20, "mean": 0.47, "bins": [20, 14, 30, 52, 80, 77, 60, 35, 20, 6]}
    judged = {"relevance": [20, 30, 80, 120, 100, 44], "noise": [200, 90, 60, 30, 10, 4]}
    summary = {
        "tasks": 210,
        "positive": "mean",
        "correct_by_provider": {name: 0.1 + 0.05 * place for place, name in enumerate(("none", *PROVIDERS))},
        "empty_by_provider": dict.fromkeys(PROVIDERS, 0.1),
        "success_sets": {"proper": 120, "all": 12, "none": 78},
        "discriminability": 0.61,
        "begin": {**bins, "dimensions": judged},
        "in_query": {**bins, "dimensions": {"progress": [10, 20, 50, 60, 40, 20]}},
        "in_no_op": {**bins, "dimensions": {"missed_opportunity": [90, 40, 30, 20, 10, 4]}},
        "end": {**bins, "dimensions": {}},
        "reuse": {"counts": "", "by_provider": {name: [90, 40, 20, 10, 6, 12] for name in PROVIDERS}, "unscored": 30},
    }
    write_atomically(run.rewards, json.dumps(summary))


def add_training(run: Run, steps: int = 120) -> None:
    draw = random.Random(0)
    lines = [
        {"stage": "train", "step": step, "loss": 0.35 + 0.4 * math.exp(-step / 30) + draw.gauss(0, 0.04), "lr": 5e-4}
        for step in range(1, steps + 1)
    ]
    lines.append(
        {
            "stage": "train",
            "step": steps,
            "validation_loss": 0.41,
            "agreement": 0.58,
            "agreement_begin": 0.44,
            "agreement_in": 0.71,
        }
    )
    write_atomically(run.metrics, "".join(json.dumps(line) + "\n" for line in lines))
    card = {
        "hash": "0123456789abcdef",
        "settings": "x",
        "rows": {"train": {"begin": 110, "in": 360, "end": 200}, "validation": {"begin": 12, "in": 40, "end": 21}},
        "labels": {},
        "dropped": {"begin: no provider succeeded": 78, "in: reward below eps_in": 310},
    }
    write_atomically(run.dataset / "card.json", json.dumps(card))
