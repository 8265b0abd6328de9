"""The card beside a trained model, made from its record."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from router.adapter import AdapterRecord
from router.base_model import WHEEL_BASE, WHEEL_MODULE

TEMPLATES = Path(__file__).parent


def model_card(record: AdapterRecord, *, merged: bool) -> str:
    """Markdown with the front matter that model hubs read."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("model_card.jinja").render(
        record=record, settings=record.settings, merged=merged, licence=base_licence(record.base)
    )


def base_licence(base: str) -> str | None:
    """The licence that the base model states: its wheel's, or that of the card in its folder; None where none is."""
    if base == WHEEL_BASE:
        try:
            found = metadata.metadata(WHEEL_MODULE.replace("_", "-"))
        except metadata.PackageNotFoundError:
            return None
        return next((found[key] for key in ("License-Expression", "License") if key in found), None)
    card = Path(base).expanduser() / "README.md"
    if not card.is_file():
        return None
    stated = re.search(r"^license:\s*(\S+)\s*$", card.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return stated[1] if stated else None
