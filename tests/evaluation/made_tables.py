"""Routing tables made up for tests and for looking at the report: structure that a router could use, noise, gaps."""

from __future__ import annotations

import functools
import random

import numpy as np

from providers.embedder import load_encoder
from providers.types import Preview
from router.decisions import NONE, Arm
from router.table import Cell, RoutingTable, TableRow

PROVIDERS = ("expel", "awm", "skillweaver", "voyager", "insight_graph")
FAMILIES = ("lookup", "extremum", "count", "bridge", "compare", "trap", "stale")
STRENGTH = {
    NONE: (0.17, 0.02, 0.04, 0.13, 0.24, 0.21, 0.08),
    "expel": (0.48, 0.12, 0.10, 0.43, 0.58, 0.16, 0.80),
    "awm": (0.22, 0.30, 0.08, 0.33, 0.43, 0.25, 0.12),
    "skillweaver": (0.18, 0.05, 0.55, 0.12, 0.48, 0.28, 0.14),
    "voyager": (0.40, 0.08, 0.07, 0.28, 0.66, 0.33, 0.51),
    "insight_graph": (0.56, 0.19, 0.12, 0.42, 0.25, 0.17, 0.71),
}
QUESTIONS = (
    "What is the infant mortality rate of {0}?",
    "Which of the countries that border {0} has the longest coastline?",
    "How many of the countries that border {0} have more than {1} million inhabitants?",
    "Which currency is used in the country whose highest point is Mount {0}?",
    "Which has the larger labour force: {0}, Norland or Eastmark?",
    "What is the literacy rate of {0} among women, not of the whole population?",
    "According to the newest edition, how long is the railway network of {0}?",
)


def strength(arm: str, family: int) -> float:
    """Chance that an arm solves a task of a family; further providers are weaker mixtures."""
    if arm in STRENGTH:
        return STRENGTH[arm][family]
    return 0.15 + 0.3 * random.Random(f"{arm} {family}").random()


@functools.cache
def made_table(
    tasks: int,
    split: str = "dev",
    *,
    seed: int = 0,
    providers: tuple[str, ...] = PROVIDERS,
    repeats: int = 2,
    in_modes: tuple[str, ...] = ("query",),
    unscored: float = 0.0,
    empty: float = 0.1,
    shuffled: bool = False,
) -> RoutingTable:
    """A table in which families decide which provider helps, and previews give the family away."""
    draw = random.Random(f"{seed} {split} {tasks}")
    encoder = load_encoder("hashing", {}, None)
    rows = []
    for index in range(tasks):
        family = index % len(FAMILIES)
        name = "".join(draw.choice(["ka", "lo", "mi", "ru", "ten", "vas"]) for _ in range(3)).title()
        question = QUESTIONS[family].format(name, draw.randint(2, 90))
        bare = {provider: draw.random() < empty for provider in providers}
        cells = []
        ease = draw.gauss(0, 0.25)
        for arm in (NONE, *providers):
            helps = arm != NONE and not bare[arm] and not shuffled
            chance = min(1.0, max(0.0, strength(arm if helps else NONE, family) + (ease if helps else ease / 4)))
            always = draw.random()
            for in_mode in in_modes:
                for repeat in range(repeats):
                    luck = always if draw.random() < 0.85 else draw.random()
                    gap = draw.random() < unscored
                    cells.append(
                        Cell(
                            arm=Arm(provider=arm, in_mode=in_mode, repeat=repeat),
                            correct=None if gap else float(luck < chance),
                            steps=draw.randint(4, 12),
                            injected=0.0 if arm == NONE or bare[arm] else draw.randint(200, 1800),
                            begin_chars=0.0 if arm == NONE or bare[arm] else 200.0,
                            empty=arm != NONE and bare[arm],
                        )
                    )
        previews = tuple(
            Preview(provider=p, text="" if bare[p] else f"{p}: {FAMILIES[family]} notes on {name} <b>&</b> others")
            for p in providers
        )
        rows.append(
            TableRow(
                task_id=f"{split}-{index:04d}",
                question=question,
                family=FAMILIES[family],
                previews=previews,
                embedding=_rounded(encoder.encode([question])[0]),
                preview_embeddings=tuple(
                    _rounded(vector) if preview.text else (0.0,) * encoder.dimension
                    for preview, vector in zip(previews, encoder.encode([p.text for p in previews]), strict=True)
                ),
                cells=tuple(cells),
            )
        )
    return RoutingTable(suite="factbook", split=split, providers=providers, rows=tuple(rows))


def made_alone(table: RoutingTable, *, draws: int = 6, working: float = 0.3, seed: int = 0) -> RoutingTable:
    """The same tasks without long-term memory: `draws` bare runs each, and two with working memory."""
    draw = random.Random(f"alone {seed}")
    rows = []
    for row in table.rows:
        chance = 0.15 + 0.2 * draw.random()
        bare = [
            Cell(
                arm=Arm(provider=NONE, in_mode="no_op", repeat=repeat),
                correct=float(draw.random() < chance),
                steps=9.0,
            )
            for repeat in range(draws)
        ]
        shown = [
            Cell(
                arm=Arm(provider=NONE, in_mode="query", repeat=repeat),
                correct=float(draw.random() < working),
                steps=8.0,
                injected=300.0,
            )
            for repeat in range(2)
        ]
        rows.append(row.model_copy(update={"cells": (*bare, *shown)}))
    return table.model_copy(update={"rows": tuple(rows)})


def _rounded(vector: np.ndarray) -> tuple[float, ...]:
    return tuple(round(float(value), 5) for value in vector)
