"""What the stages that run episodes share: suite, agent, encoder, bank and providers of one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from providers.bank import MemoryBank, replace_bank
from providers.base import Distiller, MemoryProvider
from providers.errors import ConfigError, SuiteError
from providers.files import write_atomically
from providers.governance.lifecycle import Governor
from providers.long_term.base import SpaceProvider
from providers.namespaces import DEFAULT, STAGES
from providers.registry import load_provider, provider_cards
from providers.skills import SkillRunner
from providers.types import Record, Split, Task, Trajectory, content_hash
from synth.config import RunConfig
from synth.plugins import load_agent, load_distiller, load_governor
from synth.runs import Run


class Workbench:
    """An async context manager: inside it the suite's servers run and the bank is open.

    The bank is frozen but for `take_in`, which changes a copy and puts it in the bank's place whole.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.config = config = run.config
        self.suite, self.encoder = run.suite, run.encoder
        self.agent = load_agent(config.agent.name, config.agent.options, run.models)
        self.distiller = load_distiller(config.distiller, run.models)
        self.governor = load_governor(config, run.models)
        self.skill_runner = SkillRunner()
        self.bank = MemoryBank.open(run.bank, self.encoder)
        self.providers = providers_over(self.config, self.bank, self.distiller, self.governor)

    async def __aenter__(self) -> Self:
        await self.suite.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.suite.__aexit__(kind, error, trace)

    def close(self) -> None:
        """Close the bank; all that is to be done where nothing of the suite was used."""
        self.run.facts.flush()
        self.bank.close()
        self.skill_runner.close()

    def tasks(self, split: Split) -> list[Task]:
        """The run's tasks of a split: as many as the config says, in the suite's order.

        Raises:
            SuiteError: an id is used twice, or tasks that this run already worked on are others now.
        """
        tasks = self.suite.tasks(split, getattr(self.run.config.suite, split.value))
        seen: set[str] = set()
        for task in tasks:
            if task.id in seen:
                raise SuiteError(
                    f"the suite {self.suite.name!r} uses the task id {task.id!r} twice in {split.value}: "
                    "give every task an id of its own"
                )
            seen.add(task.id)
        if any(task.meta.get("sealed") for task in tasks):
            write_atomically(self.run.root / ".gitignore", "*\n")  # their plain text stays out of repositories
        if split in (Split.WARMUP, Split.EXPLORE):
            self._check_same(split, tasks)
        return tasks

    def _check_same(self, split: Split, tasks: Sequence[Task]) -> None:
        """Warm-up and exploration continue by task id, so an id must still stand for what it stood for."""
        mark, now = f"tasks/{split.value}", content_hash([_identity(task) for task in tasks])
        before = self.run.facts.mark(mark)
        if before is None:
            self.run.facts.set_mark(mark, now)
        elif before != now:
            raise SuiteError(
                f"the {split.value} tasks of the suite {self.suite.name!r} are not those that this run was made with, "
                f"though its settings are: give the run another name (--name), or remove the folder {self.run.root}"
            )

    async def describe(self, trajectory: Trajectory) -> str:
        """What End decisions are told of a finished run; empty where no descriptors are asked for."""
        return "" if self.governor is None else await self.governor.says_of_run(trajectory)

    def has_taken_in(self, label: str) -> bool:
        """Whether the bank file contains the batch `label`."""
        return self.bank.space(STAGES).counter(label) > 0

    async def take_in(self, label: str, change: Callable[[Mapping[str, MemoryProvider]], Awaitable[None]]) -> None:
        """Apply `change` to a copy of the bank, note `label` in it, and replace the bank by it: all or nothing."""
        following = self.run.bank.with_name("bank.next.sqlite")
        remove_database(following)
        bank = self.bank.fork(following)
        try:
            with bank.batch():
                await change(providers_over(self.config, bank, self.distiller, self.governor))
                bank.space(STAGES).set_counter(label, 1)
        finally:
            bank.close()
        self.run.facts.settle()
        self.bank.close()
        replace_bank(following, self.run.bank)
        self.bank = MemoryBank.open(self.run.bank, self.encoder)
        self.providers = providers_over(self.config, self.bank, self.distiller, self.governor)

    @contextmanager
    def forked(self, path: Path) -> Iterator[Mapping[str, MemoryProvider]]:
        """Providers over a copy of the bank at `path`, which is removed before and after."""
        remove_database(path)
        bank = self.bank.fork(path)
        try:
            yield providers_over(self.config, bank, self.distiller, self.governor)
        finally:
            bank.close()
            remove_database(path)

    def record(self, provider: str, record_id: str) -> Record | None:
        """A stored record of a provider, None where the id names none."""
        return self.bank.space(provider).get(record_id)

    def record_counts(self) -> dict[str, int]:
        """Stored records per provider."""
        return {name: len(self.bank.space(name).records()) for name in self.providers}


def providers_over(
    config: RunConfig,
    bank: MemoryBank,
    distiller: Distiller,
    governor: Governor | None = None,
    namespace: str = DEFAULT,
) -> dict[str, MemoryProvider]:
    """The config's providers over a namespace of a bank, by the names of their cards; `governor` governs them as the
    config says.

    Raises ConfigError where a provider that is not built on SpaceProvider is to be governed.
    """
    names, floors = config.providers, config.relevance_floors
    providers = {
        card.name: load_provider(name, bank.space(card.name, namespace), distiller, floors.get(name))
        for name, card in zip(names, provider_cards(names), strict=True)
    }
    if governor is not None:
        for provider in providers.values():
            _govern(provider, governor, everything=config.governance != "off")
    return providers


def _govern(provider: MemoryProvider, governor: Governor, *, everything: bool) -> None:
    """Give a provider the governor; one that governs itself keeps its own mode, as the others without `everything`."""
    if not isinstance(provider, SpaceProvider):
        if everything:
            raise ConfigError(
                f"governance is on and {provider.card.name!r} is not built on SpaceProvider, so it cannot be governed: "
                "set governance to off, or take it out of `providers`."
            )
    elif provider.governor is not None:
        provider.governor = replace(governor, mode=provider.governor.mode)
    elif everything:
        provider.governor = governor


def _identity(task: Task) -> list[object]:
    """What a task is, as far as it can be written down the same way twice."""
    gold = task.gold if isinstance(task.gold, str | int | float | list | None) else None
    return [task.id, task.question, task.family, task.attachments, gold]


def remove_database(database: Path) -> None:
    """Remove an SQLite file with its log, where there is one."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            database.with_name(database.name + suffix).unlink()
