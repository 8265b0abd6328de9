"""What an ablation changes about a training: what routers see of a task, which labels they learn, which providers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from evaluation.retrained import CHANGES, UNCHANGED
from providers.base import ProviderCard
from providers.errors import ConfigError
from providers.governance.words import FIELDS, places
from providers.types import content_hash
from router.policies.changed import FIVE, with_score
from router.table import RoutingTable, TableRow

HIDDEN = "(not shown)"
"""Stands for every preview where there is no probe: no text, so no provider is known to be empty either."""

Phase = Literal["begin", "in", "end"]


@dataclass(frozen=True)
class Change:
    """One thing that differs from the training of the config."""

    name: str
    phase: Phase = "begin"
    """Who has to be evaluated: Begin by replay, In and End by fresh runs of the language model."""
    shown: Callable[[RoutingTable], RoutingTable] = lambda table: table
    """What routers see of tasks, in training and when asked."""
    rewards: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the config's rewards."""

    @property
    def relabels(self) -> bool:
        return bool(self.rewards)


def changes_for(
    names: tuple[str, ...] | None, explore: RoutingTable, cards: tuple[ProviderCard, ...], seed: int
) -> tuple[list[Change], dict[str, str]]:
    """The unchanged training, then the changes of these names (None: all), and why some cannot be made here.

    Raises `ConfigError` for a name that nobody knows.
    """
    known = _known(explore, cards, seed)
    unknown = [name for name in names or () if name not in CHANGES]
    if unknown:
        raise ConfigError(f"there is no change {unknown[0]!r}; there are {', '.join(CHANGES)}")
    wanted = [UNCHANGED, *(name for name in names or CHANGES if name != UNCHANGED)]
    missing = {name: _reason(name) for name in wanted if name not in known}
    return [known[name] for name in wanted if name in known], missing


def _known(explore: RoutingTable, cards: tuple[ProviderCard, ...], seed: int) -> dict[str, Change]:
    by_name = {card.name: card for card in cards}
    found = [
        Change(UNCHANGED),
        Change("no_probe", shown=partial(_each_row, change=_without_previews)),
        Change("scores_shown", shown=partial(_each_row, change=partial(_with_scores, cards=by_name))),
        Change("begin_by_judge", rewards={"begin_requires_correct": False}),
        Change("in_no_threshold", phase="in", rewards={"eps_in": 0.0}),
        Change("in_no_correctness", phase="in", rewards={"in_requires_correct": False}),
        Change("end_by_judge", phase="end", rewards={"end": "judge"}),
    ]
    if set(by_name) > set(FIVE):
        found.append(Change("five", shown=lambda table: table.only(FIVE)))
    if said := _said(explore):
        shuffled = partial(_each_row, change=partial(_with_other_descriptors, seed=seed))
        found.append(Change("descriptors_hidden", shown=lambda table: table.told(())))
        found.append(Change("descriptors_shuffled", shown=shuffled))
        for name in said:
            others = tuple(other for other in FIELDS if other != name)
            found.append(Change(f"without_{name}", shown=partial(_told, fields=others)))
    return {change.name: change for change in found}


def _reason(name: str) -> str:
    if name == "five":
        return f"it needs a run with {', '.join(FIVE)} and at least one further provider"
    return "previews of this exploration do not say it; explore with governance: full and descriptors"


def _said(table: RoutingTable) -> tuple[str, ...]:
    """The fields that any preview's descriptor has."""
    found = {name for row in table.rows for preview in row.previews for name in places(preview.descriptor)}
    return tuple(name for name in FIELDS if name in found)


def _told(table: RoutingTable, fields: tuple[str, ...]) -> RoutingTable:
    return table.told(fields)


def _each_row(table: RoutingTable, change: Callable[[TableRow], TableRow]) -> RoutingTable:
    return table.model_copy(update={"rows": tuple(change(row) for row in table.rows)})


def _without_previews(row: TableRow) -> TableRow:
    previews = tuple(p.model_copy(update={"text": HIDDEN, "descriptor": "", "item_id": None}) for p in row.previews)
    nothing = tuple((0.0,) * len(vector) for vector in row.preview_embeddings)
    return row.model_copy(update={"previews": previews, "preview_embeddings": nothing})


def _with_scores(row: TableRow, cards: Mapping[str, ProviderCard]) -> TableRow:
    cosines = np.asarray(row.preview_embeddings) @ np.asarray(row.embedding)
    previews = tuple(
        with_score(preview, cards[preview.provider], row.question, cosine)
        for preview, cosine in zip(row.previews, cosines.tolist(), strict=True)
    )
    return row.model_copy(update={"previews": previews})


def _with_other_descriptors(row: TableRow, seed: int) -> TableRow:
    """The task's descriptors dealt anew to the providers that show something."""
    shown = [place for place, preview in enumerate(row.previews) if preview.text]
    dealt = [row.previews[place].descriptor for place in shown]
    random.Random(content_hash("descriptors", seed, row.task_id)).shuffle(dealt)
    previews = list(row.previews)
    for place, descriptor in zip(shown, dealt, strict=True):
        previews[place] = previews[place].model_copy(update={"descriptor": descriptor})
    return row.model_copy(update={"previews": tuple(previews)})
