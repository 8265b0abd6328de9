"""A made exploration table in which the kind of question and the preview's words decide who succeeds."""

from __future__ import annotations

import random

from providers.embedder import Hashing
from providers.types import Preview
from router.decisions import Arm
from router.table import Cell, RoutingTable, TableRow

PROVIDERS = ("lessons", "workflows", "functions")
KINDS = (
    "What share of the people of {0} can read and write?",
    "Which neighbour of {0} has the largest area?",
    "How many harbours lie on the coast of {0}?",
)


def made_table(tasks: int, *, seed: int = 0, structure: bool = True) -> RoutingTable:
    """Kind i suits provider i, if its preview speaks of it; with `structure` off every arm is a coin."""
    draw = random.Random(f"made heads {seed}")
    encoder = Hashing()
    rows = []
    for number in range(tasks):
        kind = draw.randrange(len(KINDS))
        question = KINDS[kind].format(draw.choice(["Norland", "Eastmark", "Suthria", "Westerly"]))
        previews, cells = [], []
        for place, provider in enumerate(PROVIDERS):
            fitting = draw.random() < 0.6
            text = KINDS[kind if fitting else (kind + 1) % 3].format("Anyland") if draw.random() < 0.85 else ""
            chance = 0.15 + 0.45 * (place == kind) + 0.3 * (fitting and bool(text))
            solved = draw.random() < (chance if structure else 0.5)
            previews.append(Preview(provider=provider, text=text))
            cells.append(Cell(arm=Arm(provider=provider), correct=float(solved), empty=not text))
        vectors = encoder.encode([question, *(preview.text for preview in previews)])
        rounded = [tuple(round(float(value), 5) for value in vector) for vector in vectors]
        rows.append(
            TableRow(
                task_id=f"task-{number:03d}",
                question=question,
                family=str(kind),
                previews=tuple(previews),
                embedding=rounded[0],
                preview_embeddings=tuple(
                    vector if preview.text else (0.0,) * len(vector)
                    for vector, preview in zip(rounded[1:], previews, strict=True)
                ),
                cells=tuple(cells),
            )
        )
    return RoutingTable(suite="made", split="explore", providers=PROVIDERS, rows=tuple(rows))
