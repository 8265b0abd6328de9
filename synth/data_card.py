"""The data card of a dataset, made from its run: as JSON for programs, and as the README of the dataset's folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from synth.rows import PARTS, PHASES, Phase, Row, dataset_hash
from synth.selection import Selection

if TYPE_CHECKING:
    import jinja2

    from synth.runs import Run

CARD_VERSION = 2

QUANTILES = (0.05, 0.5, 0.95, 0.99)

Format = Literal["jsonl", "parquet"]


def card_of(run: Run, selection: Selection, settings: str) -> dict[str, Any]:
    """What stands in the dataset and why the rest does not, as plain JSON.

    Lengths are characters of a row's text; entropies are bits.
    """
    rows = selection.rows
    config, phases = run.config, _present(rows)
    return {
        "hash": dataset_hash(rows),
        "settings": settings,
        "run": config.name,
        "suite": config.suite.name,
        "seed": config.seed,
        "codec": config.train.codec,
        "providers": list(config.providers),
        "rewards": config.rewards.model_dump(mode="json"),
        "positive": config.explore.positive,
        "rows": {part: dict(Counter(row.phase for row in rows if row.split == part)) for part in PARTS},
        "tasks": {part: len({row.task_id for row in rows if row.split == part}) for part in PARTS},
        "labels": _labels(rows),
        "label_entropy": {phase: _entropy(phase, rows) for phase in phases},
        "length_chars": {phase: _quantiles([len(row.text) for row in rows if row.phase == phase]) for phase in phases},
        "truncated_share": {
            phase: round(selection.shortened[phase] / sum(row.phase == phase for row in rows), 4) for phase in phases
        },
        "dropped": dict(sorted(selection.dropped.items())),
        "decisions": _decisions(selection),
    }


def _present(rows: Sequence[Row]) -> list[Phase]:
    found = {row.phase for row in rows}
    return [phase for phase in PHASES if phase in found]


def _labels(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, int]]]:
    """Per phase and candidate (or json answer): how many rows say yes, no, or nothing of it."""
    labels: dict[str, dict[str, Counter[str]]] = {}
    for row in rows:
        of_phase = labels.setdefault(row.phase, {})
        for candidate, target in zip(row.candidates, row.targets, strict=True):
            word = "none" if target is None else "yes" if target >= 0.5 else "no"
            of_phase.setdefault(candidate, Counter())[word] += 1
        if row.completion:
            of_phase.setdefault(row.completion, Counter())["yes"] += 1
    return {phase: {name: dict(count) for name, count in sorted(of.items())} for phase, of in labels.items()}


def _entropy(phase: Phase, rows: Sequence[Row]) -> dict[str, float]:
    """How evenly the positive labels spread over candidates (or json answers), beside the most that is possible; at In
    with marks, over query and no_op."""
    counts: Counter[str] = Counter()
    for row in rows:
        if row.phase == phase:
            counts.update(_positives(row))
    total = counts.total()
    bits = -math.fsum(n / total * math.log2(n / total) for n in counts.values()) if total else 0.0
    return {"bits": round(bits, 4) + 0.0, "most": round(math.log2(len(counts)), 4) if counts else 0.0}


def _positives(row: Row) -> Iterable[str]:
    if row.completion:
        return [row.completion]
    if row.phase == "in":
        return ["query" if target else "no_op" for target in row.targets]
    return [name for name, target in zip(row.candidates, row.targets, strict=True) if target and target >= 0.5]


def _quantiles(lengths: Sequence[int]) -> dict[str, int]:
    """Nearest-rank quantiles, the shortest and the longest."""
    ordered = sorted(lengths)
    found = {f"p{round(100 * share)}": ordered[math.ceil(share * len(ordered)) - 1] for share in QUANTILES}
    return {"min": ordered[0], **found, "max": ordered[-1]}


def _decisions(selection: Selection) -> dict[str, dict[str, dict[str, int]]]:
    """Per phase and provider: how many decisions met which fate."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for fate in selection.fates:
        counts.setdefault(fate.phase, {}).setdefault(fate.provider, Counter())[fate.fate] += 1
    return {
        phase: {provider: dict(sorted(fates.items())) for provider, fates in sorted(counts[phase].items())}
        for phase in PHASES
        if phase in counts
    }


def render_card(card: Mapping[str, Any], judge: str, file_format: Format) -> str:
    """The README of a dataset's folder: front matter that Hugging Face `datasets` reads, then the card in words."""
    parts = [part for part in PARTS if card["rows"][part]]
    phases = list(card["length_chars"])
    return _template().render(card=card, judge=judge, parts=parts, format=file_format, phases=phases)


@lru_cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("data_card.jinja")
