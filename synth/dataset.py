"""The dataset that routers are trained on: a folder of rows that Hugging Face `datasets` loads as it stands, with a
data card made from the run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from providers.base import ProviderCard
from providers.errors import ConfigError
from providers.files import write_atomically
from providers.registry import provider_cards
from providers.types import content_hash
from router.codec import template_hash
from synth.data_card import CARD_VERSION, card_of, render_card
from synth.judge.load import load_judge
from synth.rewards import rewards_signature
from synth.rows import PARTS, dataset_hash, load_rows
from synth.runs import Run
from synth.selection import Scored, Selection, select


def build(run: Run) -> None:
    """Write `train.jsonl`, `validation.jsonl`, `README.md` and `card.json` of `run.dataset` from the scored decisions.

    Raises:
        ConfigError: the decisions are not scored with these settings.
    """
    cards = provider_cards(run.config.providers)
    settings = _settings(run, cards)
    if _standing(run) == settings:
        print("build: done already", file=sys.stderr)
        return
    selection = selected(run)
    for part in PARTS:
        lines = [row.model_dump_json() for row in selection.rows if row.split == part]
        write_atomically(run.dataset / f"{part}.jsonl", "".join(f"{line}\n" for line in lines))
    card = card_of(run, selection, settings)
    write_atomically(run.dataset / "README.md", render_card(card, load_judge(run).says, "jsonl"))
    write_atomically(run.dataset / "card.json", json.dumps(card, indent=2) + "\n")
    _tell(card)


def selected(run: Run) -> Selection:
    """What the filter makes of the run's scored decisions.

    Raises:
        ConfigError: they are not scored with these settings.
    """
    if run.facts.mark("rewards") != rewards_signature(run):
        raise ConfigError(
            "the decisions are not scored with these settings: run `memroute score` with this config first"
        )
    return select(Scored.of_run(run, provider_cards(run.config.providers)))


def load_card(run: Run) -> dict[str, Any]:
    """The card of the dataset that stands in the run's folder."""
    path = run.dataset / "card.json"
    if not path.exists():
        raise ConfigError(f"{path} does not exist: run `memroute build` with this config first")
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return card


def _settings(run: Run, cards: tuple[ProviderCard, ...]) -> str:
    config = run.config
    # Defaults are left out, so that datasets made before these settings existed stand.
    described = () if config.train.descriptors is None else (config.train.descriptors,)
    ordered = () if config.train.candidate_order == "config" else (config.train.candidate_order,)
    return content_hash(
        CARD_VERSION,
        rewards_signature(run),
        config.seed,
        config.rewards.model_dump(mode="json"),
        config.dataset.model_dump(mode="json"),
        config.train.codec,
        template_hash(config.train.codec, cards),
        *described,
        *ordered,
    )


def _standing(run: Run) -> str | None:
    """The settings of the dataset that stands whole in the folder; None where none does, or it was changed."""
    names = ("card.json", "README.md", *(f"{part}.jsonl" for part in PARTS))
    if not all((run.dataset / name).exists() for name in names):
        return None
    card = load_card(run)
    rows = [row for part in PARTS for row in load_rows(run, part)]
    return str(card["settings"]) if card.get("hash") == dataset_hash(rows) else None


def _tell(card: Mapping[str, Any]) -> None:
    rows = card["rows"]
    parts = (
        f"{part} {', '.join(f'{phase} {count}' for phase, count in rows[part].items()) or 'none'}" for part in PARTS
    )
    print(f"build: rows: {'; '.join(parts)}; hash {card['hash']}", file=sys.stderr)
    for reason, count in card["dropped"].items():
        print(f"build: dropped {count}: {reason}", file=sys.stderr)
