"""The tables of `memroute bench drift`, numbered as in MemGuard."""

from __future__ import annotations

from evaluation.drift.bench import DriftBench, Interval, Row
from evaluation.drift.variants import DIRICHLET_DRAWS, NO_MEMORY, SWITCHES
from evaluation.text_tables import Rows


def tables_of(bench: DriftBench) -> list[Rows]:
    """Noise (table 12), the switches as one table, then what became of the banks and what it cost."""
    tables = [_noise(bench), _course(bench)]
    last = f"{bench.settings.noise[-1]:g}"
    rows = bench.rows[last]
    if any(name in rows for name in SWITCHES if name != NO_MEMORY):
        tables.append(_switches(last, rows))
    return [*tables, _health(bench), _false_accepts(bench), _views(last, rows), _cost(last, rows)]


def _noise(bench: DriftBench) -> Rows:
    cells = [
        [
            level,
            name,
            *(percent(row.solved), f"{row.steps.mean:.2f}"),
            difference(row.solved_minus_verifier_only),
            more_steps(row.steps_minus_verifier_only),
            "-" if row.label_right is None else f"{100 * row.label_right:.1f}",
        ]
        for level, rows in bench.rows.items()
        for name, row in rows.items()
        if name in bench.settings.variants
    ]
    n = max(row.solved.n for rows in bench.rows.values() for row in rows.values())
    title = f"Solved in percent, {n} tasks, {bench.settings.seeds} seeds (table 12)"
    columns = ("noise", "bank", "solved", "steps", "solved - verifier_only", "steps - verifier_only", "labels right")
    return Rows(title, columns, cells)


def _course(bench: DriftBench) -> Rows:
    cells = [
        [level, name, *(f"{100 * share:.1f}" for share in row.solved_by_window)]
        for level, rows in bench.rows.items()
        for name, row in rows.items()
        if name in bench.settings.variants
    ]
    width = len(cells[0]) - 2
    columns = ("noise", "bank", *(f"{100 * (n + 1) // width}%" for n in range(width)))
    return Rows("Solved in percent, part by part of the stream (figure 3)", columns, cells)


def _switches(level: str, rows: dict[str, Row]) -> Rows:
    cells = [
        [
            *(name, percent(row.solved), f"{row.steps.mean:.2f}"),
            *(difference(row.solved_minus_governed), more_steps(row.steps_minus_governed), str(row.health.active)),
        ]
        for name, row in rows.items()
        if not name.startswith("random_weights")
    ]
    draws = [row for name, row in rows.items() if name.startswith("random_weights")]
    if len(draws) == DIRICHLET_DRAWS:
        solved, steps = (
            sum(each) / len(draws) for each in ([d.solved.mean for d in draws], [d.steps.mean for d in draws])
        )
        cells.append([f"random_weights, mean of {len(draws)}", f"{100 * solved:.1f}", f"{steps:.2f}", "-", "-", "-"])
    columns = ("bank", "solved", "steps", "solved - governed", "steps - governed", "active")
    return Rows(f"Switches at noise {level} (tables 13 to 15, 17, 18, 20, 24)", columns, cells)


def _health(bench: DriftBench) -> Rows:
    cells = []
    for level, rows in bench.rows.items():
        for name, row in rows.items():
            if name not in bench.settings.variants:
                continue
            health = row.health
            shares = (health.rejected, health.merged, health.archived, health.uncertain, health.conflicts)
            kinds = [f"{100 * row.kinds.get(kind, 0.0):.0f}" for kind in ("procedural", "failure", "tool", "summary")]
            counts = [str(health.candidates), str(health.active), str(health.waiting)]
            cells.append([level, name, *counts, *(f"{100 * share:.1f}" for share in shares), *kinds])
    counted = ("candidates", "active", "waiting", "rejected", "merged", "archived", "uncertain", "conflicts")
    columns = ("noise", "bank", *counted, "procedural", "failure", "tool", "summary")
    return Rows(
        "Health of the banks, percent of candidates (table 22), and kinds shown, percent (table 23)", columns, cells
    )


def _false_accepts(bench: DriftBench) -> Rows:
    cells = [
        [level, name, *(str(count) for count in row.false_accepts.model_dump().values())]
        for level, rows in bench.rows.items()
        for name, row in rows.items()
        if name in bench.settings.variants
    ]
    columns = ("noise", "bank", "runs", "records", "blocked", "active", "retrieved", "followed", "failures")
    return Rows("False accepts: runs taken for successes that were none, and their records (table 11)", columns, cells)


def _views(level: str, rows: dict[str, Row]) -> Rows:
    cells = [
        [name, *(f"{100 * row.views[part]:.1f}" for part in ("boundary", "full_evidence", "full_risk", "all"))]
        for name, row in rows.items()
        if name in ("governed", "masked_status")
    ]
    columns = ("bank", "boundary", "full / evidence", "full / risk", "all views")
    return Rows(f"Agreement of the verifier's views at noise {level}, percent of runs (table 16)", columns, cells)


def _cost(level: str, rows: dict[str, Row]) -> Rows:
    cells = [
        [
            name,
            f"{row.steps.mean:.2f}",
            *(f"{row.agent_tokens:.0f}", f"{row.injected_tokens:.0f}", f"{row.looks:.2f}", f"{row.seconds:.2f}"),
            *(f"{row.storage_mb:.2f}", "-" if row.retrieve_ms is None else f"{row.retrieve_ms:.2f}"),
        ]
        for name, row in rows.items()
    ]
    columns = (
        "bank",
        "steps",
        "agent tokens",
        "of them injected",
        "verifier views",
        "seconds",
        "storage MB",
        "retrieve ms",
    )
    return Rows(f"Cost per task at noise {level} (table 9; ms for table 24)", columns, cells)


def percent(interval: Interval) -> str:
    """A share in percent with its interval."""
    return f"{100 * interval.mean:.1f} ({100 * interval.low:.0f} to {100 * interval.high:.0f})"


def difference(interval: Interval | None) -> str:
    """A difference of shares in points with its interval."""
    if interval is None:
        return "-"
    return f"{100 * interval.mean:+.1f} ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"


def more_steps(interval: Interval | None) -> str:
    """A difference of steps with its interval."""
    return "-" if interval is None else f"{interval.mean:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"
