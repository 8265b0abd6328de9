"""What a check works with: bank files in one folder, the provider over them, and a distiller that is watched."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from providers.bank import MemoryBank
from providers.base import Distiller, MemoryProvider, ProviderCard
from providers.distill.rules import RuleDistiller
from providers.embedder import Hashing
from providers.errors import ModelError, ProviderError
from providers.registry import load_provider, provider_class
from providers.space import Space
from providers.types import Outcome, Query, Record, StoreReceipt, Trajectory

ENCODER = Hashing()
ALL_STATES = ("candidate", "provisional", "active", "guard", "archived", "rejected")


class NotConforming(ProviderError):
    """A provider lacks a property that every provider must have."""


def expect(condition: object, sentence: str) -> None:
    """Raise NotConforming with `sentence` unless `condition` holds."""
    if not condition:
        raise NotConforming(sentence)


class WatchedDistiller:
    """Rule-made artefacts; counts the calls, and fails each of them as an unreachable model would while `broken`."""

    def __init__(self) -> None:
        self._rules = RuleDistiller()
        self.calls = 0
        self.broken = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._rules, name)

        async def watched(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.broken:
                raise ModelError("The model cannot be reached: this check took it away.", retryable=True)
            return await method(*arguments, **named)

        return watched


@dataclass
class Bench:
    """One provider, by registry name or dotted path, and a folder for its banks."""

    name: str
    folder: Path
    distiller: WatchedDistiller = field(default_factory=WatchedDistiller)

    @property
    def card(self) -> ProviderCard:
        return cast(ProviderCard, provider_class(self.name).CARD)

    def bank(self, file: str = "bank.sqlite") -> MemoryBank:
        return MemoryBank.open(self.folder / file, ENCODER)

    def space(self, bank: MemoryBank, namespace: str = "default") -> Space:
        return bank.space(self.card.name, namespace)

    def provider(self, bank: MemoryBank, namespace: str = "default") -> MemoryProvider:
        return load_provider(self.name, self.space(bank, namespace), cast(Distiller, self.distiller))

    async def filled(
        self, bank: MemoryBank, runs: Iterable[tuple[Trajectory, Outcome]]
    ) -> tuple[MemoryProvider, list[StoreReceipt]]:
        """The provider after it was offered `runs` in order, and its receipts."""
        provider = self.provider(bank)
        receipts = [await provider.store(trajectory, outcome) for trajectory, outcome in runs]
        for receipt in receipts:
            expect(receipt.status != "failed", f"it could not store a plain run: {receipt.reason}")
        return provider, receipts

    def records(self, bank: MemoryBank, namespace: str = "default") -> list[Record]:
        """All records in every state, without the clock."""
        found = self.space(bank, namespace).records(state=ALL_STATES)
        return [record.model_copy(update={"created": 0.0}) for record in found]


def query_of(text: str, namespace: str = "default") -> Query:
    return Query(text=text, embedding=ENCODER.encode([text])[0], namespace=namespace)


def rows(bank: MemoryBank) -> list[str]:
    """Everything that is committed to the bank's file, as SQL."""
    with closing(sqlite3.connect(f"file:{bank.path}?mode=ro", uri=True)) as connection:
        return list(connection.iterdump())
