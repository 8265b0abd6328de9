"""Tables of text: on a terminal, and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Rows:
    """One table: a title, its columns, its cells as text."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[str]]


def print_tables(tables: Sequence[Rows], console: Console | None = None) -> None:
    """All tables on the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    for rows in tables:
        table = Table(title=rows.title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
        for place, column in enumerate(rows.columns):
            table.add_column(column, justify="right" if place else "left")
        for cells in rows.cells:
            table.add_row(*cells)
        console.print(table)


def markdown(tables: Sequence[Rows]) -> str:
    """All tables as Markdown."""
    parts = []
    for rows in tables:
        head = f"| {' | '.join(rows.columns)} |\n|{'---|' * len(rows.columns)}"
        parts.append("\n".join([f"{rows.title}:\n", head, *(f"| {' | '.join(cells)} |" for cells in rows.cells)]))
    return "\n\n".join(parts)
