"""The memories that a server serves: its own copy of the run's bank, and the providers over each namespace."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from providers.bank import MemoryBank
from providers.base import Distiller, MemoryProvider, ProviderCard
from providers.embedder import Encoder
from providers.errors import BankError, ConfigError
from providers.forgetting import Forgotten, Selection, remove, scrub
from providers.governance.lifecycle import Governor
from providers.registry import provider_cards
from providers.types import Effect, Outcome, Trajectory
from router.session import apply_effects
from serve.attended import words
from serve.messages import Item
from synth.config import RunConfig
from synth.workbench import providers_over

APPLIED = "memroute_serve"
"""The space whose counters say which sessions' effects a namespace has taken in."""
SOURCES_NAMED = 5
NAMESPACES = 500
"""Whose indexes are in memory at a time; others are read again when they are asked for."""
SCRUB_TRIES, SCRUB_SECONDS = 20, 0.1


log = structlog.get_logger("memroute.serve")


class Memories:
    """The bank and its providers by namespace. What touches the bank is to be called off the event loop."""

    def __init__(
        self, config: RunConfig, bank: MemoryBank, distiller: Distiller, governor: Governor | None = None
    ) -> None:
        self.bank = bank
        self.cards: tuple[ProviderCard, ...] = provider_cards(config.providers)
        self._config, self._distiller, self._governor = config, distiller, governor
        self._by_namespace: OrderedDict[str, dict[str, MemoryProvider]] = OrderedDict()
        self._opened: set[str] = set()
        self._lock = threading.Lock()

    @property
    def encoder(self) -> Encoder:
        return self.bank.encoder

    async def describe(self, trajectory: Trajectory) -> str:
        """What End decisions are told of a finished run; empty where memories are not governed."""
        return "" if self._governor is None else await self._governor.says_of_run(trajectory)

    def of(self, namespace: str) -> Mapping[str, MemoryProvider]:
        """The providers of a namespace, by name, in the order of the config; ConfigError for what is no namespace."""
        with self._lock:
            if namespace not in self._by_namespace:
                self._by_namespace[namespace] = providers_over(
                    self._config, self.bank, self._distiller, self._governor, namespace
                )
            self._by_namespace.move_to_end(namespace)
            while len(self._by_namespace) > NAMESPACES:
                oldest, _ = self._by_namespace.popitem(last=False)
                self._opened.discard(oldest)
                self.bank.release(oldest)
            return self._by_namespace[namespace]

    def is_open(self, namespace: str) -> bool:
        """Whether the indexes of a namespace are in memory, as far as `opened` was told."""
        return namespace in self._opened

    def opened(self, namespace: str) -> None:
        """Take note that every memory of a namespace was asked once, so that its indexes are in memory."""
        with self._lock:
            if namespace in self._by_namespace:
                self._opened.add(namespace)

    def items(self, provider: str, namespace: str, item_ids: Sequence[str]) -> tuple[Item, ...]:
        """Where these items come from; an item that the bank does not know has no origin."""
        space = self.bank.space(provider, namespace)
        found = []
        for item_id in item_ids:
            record = space.get(item_id)
            origins = record.origins if record is not None else ()
            sources = dict.fromkeys(source for origin in origins for source in origin.sources)
            found.append(
                Item(
                    id=item_id,
                    tasks=tuple(dict.fromkeys(origin.task_id for origin in origins)),
                    sources=tuple(sources)[:SOURCES_NAMED],
                )
            )
        return tuple(found)

    def apply_once(
        self, session_id: str, namespace: str, effects: Sequence[Effect], outcome: Outcome
    ) -> tuple[str, ...]:
        """Apply a session's effects, each provider's with the note that they are in one transaction.

        A repetition changes nothing. Names of providers that refused theirs are returned; these are given up.
        """
        noted, failed = self.bank.space(APPLIED, namespace), []
        for name, provider in self.of(namespace).items():
            own = tuple(effect for effect in effects if effect.provider == name)
            mark = f"{session_id}/{name}"
            if not own or noted.counter(mark):
                continue
            try:
                with self.bank.transaction():
                    apply_effects(own, outcome, {name: provider})
                    noted.set_counter(mark, 1)
            except BankError:
                raise
            except Exception as error:  # noqa: BLE001  (a provider may be a stranger's code; it is named in the answer)
                log.warning("trouble", stage="store", name=name, reason="failed", error=words(error))
                failed.append(name)
        return tuple(failed)

    def forget(self, selection: Selection) -> Forgotten:
        """Remove what is selected with everything made of it; see `providers.forgetting`.

        The rows are gone at once. Their bytes go as soon as no request is reading, at the latest when the bank is next
        opened.
        """
        forgotten = remove(self.bank, selection)
        for _ in range(SCRUB_TRIES if forgotten.spaces else 0):
            with suppress(BankError):
                scrub(self.bank)
                break
            time.sleep(SCRUB_SECONDS)
        return forgotten


def served_bank(trained: Path, served: Path, encoder: Encoder) -> MemoryBank:
    """The server's bank: at first a copy of the run's, which stays as it was evaluated.

    Raises ConfigError where the run has no bank yet.
    """
    if not served.exists():
        if not trained.exists():
            raise ConfigError(f"There is no bank {trained} to serve yet; run `memroute run` with this config first.")
        with MemoryBank.open(trained, encoder) as bank:
            bank.fork(served).close()
    return MemoryBank.open(served, encoder)
