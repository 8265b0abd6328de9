"""The tables of `memroute bench harm`."""

from __future__ import annotations

from evaluation.drift.tables import difference, more_steps, percent
from evaluation.harm.bench import FALSE, FALSE_GATED, HarmBench, Kept
from evaluation.text_tables import Rows


def tables_of(bench: HarmBench) -> list[Rows]:
    """The arms, what their banks made of the offers, and what the gate keeps of the harm."""
    return [_arms(bench), _banks(bench), _gate(bench)]


def _arms(bench: HarmBench) -> Rows:
    cells = [
        [
            *(name, percent(arm.solved), difference(arm.solved_minus_none)),
            *(f"{arm.steps.mean:.2f}", more_steps(arm.steps_minus_none)),
            *(f"{100 * arm.shown:.0f}", f"{100 * arm.followed:.0f}", str(arm.harmed), str(arm.helped)),
        ]
        for name, arm in bench.arms.items()
    ]
    n = max(arm.solved.n for arm in bench.arms.values())
    columns = ("memory", "solved", "solved - none", "steps", "steps - none", "shown", "followed", "harmed", "helped")
    return Rows(f"Solved in percent, {n} tasks", columns, cells)


def _banks(bench: HarmBench) -> Rows:
    cells = [[name, *(str(count) for count in arm.kept.model_dump().values())] for name, arm in bench.arms.items()]
    title = f"Records made of {bench.wrong_sources} wrong and {bench.right_sources} right runs"
    return Rows(f"{title}, each told by {bench.settings.copies} agents", ("memory", *Kept.model_fields), cells)


def _gate(bench: HarmBench) -> Rows:
    cells = [[f"{FALSE_GATED} - {FALSE}", difference(bench.false_gated_minus_false)]]
    return Rows("What the gate changes, in points", ("arms", "solved"), cells)
