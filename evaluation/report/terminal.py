"""The table after a run, on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluation.result import Evaluation, PolicyResult
from evaluation.words import GROUPS, findings, name_of, number, ordered, percent, points, straddles

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


WIDE = 100
"""Columns of the terminal from which intervals have a decimal."""


def print_table(evaluation: Evaluation, console: Console | None = None) -> None:
    """Policies with intervals, then what was found, then what is missing or to be wary of."""
    from rich.console import Console
    from rich.markup import escape

    console = console or Console()
    console.print(_table(evaluation, wide=console.width >= WIDE))
    for sentence in findings(evaluation):
        console.print(escape(sentence), highlight=False)
    for warning in evaluation.warnings:
        console.print(f"[bold]Note:[/bold] {escape(warning)}", highlight=False)
    for name, reason in evaluation.missing.items():
        label = name_of(name, evaluation.titles)
        console.print(f"[bold]Not evaluated:[/bold] {escape(f'{label}: {reason}')}", highlight=False)


def _table(evaluation: Evaluation, *, wide: bool) -> Table:
    from rich import box
    from rich.table import Table

    best = evaluation.best_single
    tasks = f"{evaluation.n} {evaluation.split} tasks of {evaluation.suite}"
    table = Table(
        title=f"{evaluation.run}: {tasks}, {evaluation.repeats} runs per arm (95% intervals)",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("policy", no_wrap=True)
    table.add_column("% solved", justify="right", no_wrap=True)
    table.add_column(f"vs {name_of(best, evaluation.titles)}" if best else "vs best", justify="right", no_wrap=True)
    for heading in ("steps", "chars"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("way", style="dim", no_wrap=True)
    for kind, members in ordered(evaluation):
        table.add_row(f"[dim]{GROUPS[kind]}[/dim]")
        for name, result in members:
            row = _row(name, result, evaluation, digits=1 if wide else 0)
            table.add_row(*row, style="bold" if name == evaluation.recommended else "")
    return table


def _row(name: str, result: PolicyResult, evaluation: Evaluation, digits: int) -> list[str]:
    from rich.markup import escape

    low, high = (percent(bound, digits)[:-1] for bound in (result.ci_low, result.ci_high))
    delta_low, delta_high = (points(bound, digits) for bound in (result.delta_ci_low, result.delta_ci_high))
    delta = f"{points(result.delta_vs_best_single)} [dim]({delta_low}, {delta_high})[/dim]"
    if not straddles(result.delta_ci_low, result.delta_ci_high):
        delta = f"[bold]{delta}[/bold]"
    return [
        "  " + escape(name_of(name, evaluation.titles)),
        f"{percent(result.accuracy)[:-1]} [dim]({low}, {high})[/dim]",
        "" if name == evaluation.best_single else delta,
        number(result.steps),
        number(result.injected_chars, 0),
        result.way,
    ]
