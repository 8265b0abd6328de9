"""Episodes on a Ray cluster: worker processes run them over a snapshot of the wave's bank, one process writes.

A worker that dies takes nothing with it: what it had not handed over is run again on another one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lm.cost import Spend
from lm.types import Purpose
from providers.bank import MemoryBank
from providers.embedder import load_encoder
from providers.errors import ConfigError, EngineError
from providers.skills import SkillRunner
from router.decisions import Arm
from synth.config import RunConfig
from synth.episode import Prepared, run_episode
from synth.facts import Episode, EpisodeKey
from synth.models import Models
from synth.plugins import load_agent, load_distiller, load_governor, load_suite
from synth.workbench import Workbench, providers_over

GRACE_SECONDS = 10.0
"""What a worker may take beyond an episode's limit before it is taken for stuck and replaced."""
LIVES = 5
"""Workers that one episode may lose before its failure is taken for its own."""

Spending = dict[Purpose, Spend]


class EpisodeWorker:
    """One process of the cluster: its own suite, agent and models, and a copy of the wave's bank that is only read."""

    def __init__(self, config: str) -> None:
        self.config = RunConfig.model_validate_json(config)
        self._models = Models(self.config.models, base=self.config.train.base)
        suite = self.config.suite
        self.suite = load_suite(suite.name, self.config.seed, suite.options, self._models)
        self.agent = load_agent(self.config.agent.name, self.config.agent.options, self._models)
        self.skill_runner = SkillRunner()
        self._folder = tempfile.TemporaryDirectory(prefix="memroute-")
        self._bank: MemoryBank | None = None
        self._opened = False

    async def freeze(self, wave: int, snapshot: bytes) -> None:
        """Take the bank of the next wave."""
        if not self._opened:
            await self.suite.__aenter__()
            self._opened = True
        if self._bank is not None:
            self._bank.close()
        path = Path(self._folder.name) / f"bank{wave}.sqlite"
        path.write_bytes(snapshot)
        encoder = load_encoder(self.config.encoder.name, self.config.encoder.options)
        self._bank = MemoryBank.open(path, encoder)
        distiller = load_distiller(self.config.distiller, self._models)
        governor = load_governor(self.config, self._models)
        self.providers = providers_over(self.config, self._bank, distiller, governor)

    async def run(self, prepared: Prepared, arm: Arm, key: EpisodeKey, max_steps: int) -> tuple[Episode, Spending]:
        """One episode, and what models took in this process since the last one was handed over."""
        episode = await run_episode(self, prepared, arm, key, max_steps)
        spent = dict(self._models.ledger.by_purpose)
        self._models.ledger.by_purpose.clear()
        return episode, spent

    def process(self) -> int:
        """The worker's process id on its machine."""
        return os.getpid()


class RayEngine:
    """An async context manager: inside it the workers stand, and `execute` runs an episode on the least busy one.

    Call `freeze` before every wave: it ships the bank as it is then.

    Raises:
        ConfigError: Ray is not installed, or the cluster cannot be reached.
        EngineError: an episode's worker died again and again.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._settings = bench.config.explore
        self._workers: list[Any] = []
        self._busy: list[int] = []
        self._frozen: list[asyncio.Task[None]] = []
        """Per worker, its taking of the wave's bank."""
        self._wave = 0
        self._snapshot: Any = None
        self._owns_cluster = False

    async def __aenter__(self) -> Self:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise ConfigError(
                "explore.engine is ray, but the package is not installed: pip install 'memroute[ray]'"
            ) from error
        self._ray: Any = ray
        if not ray.is_initialized():
            await asyncio.to_thread(self._connect)
            self._owns_cluster = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        if self._owns_cluster:
            await asyncio.to_thread(self._ray.shutdown)

    async def freeze(self) -> None:
        """Ship the bank as it stands; workers are started with the first one."""
        self._wave += 1
        with tempfile.TemporaryDirectory(prefix="memroute-") as folder:
            path = Path(folder) / "bank.sqlite"
            (await asyncio.to_thread(self._bench.bank.fork, path)).close()
            self._snapshot = self._ray.put(path.read_bytes())
        if not self._workers:
            self._workers = [self._start() for _ in range(self._settings.ray_workers)]
            self._busy = [0] * len(self._workers)
        self._frozen = [asyncio.create_task(self._prepare(place)) for place in range(len(self._workers))]
        await asyncio.gather(*self._frozen)

    async def execute(self, prepared: Prepared, arm: Arm, key: EpisodeKey, max_steps: int) -> Episode:
        """Run an episode on a worker; on another one where that dies."""
        for _ in range(LIVES):
            place = self._busy.index(min(self._busy))
            self._busy[place] += 1
            try:
                await asyncio.shield(self._frozen[place])
                worker = self._workers[place]
                work = worker.run.remote(prepared, arm, key, max_steps)
                found = await asyncio.wait_for(work, self._settings.episode_seconds + GRACE_SECONDS)
            except TimeoutError:
                self._replace(place, worker)
                reason = f"its worker did not answer within {self._settings.episode_seconds + GRACE_SECONDS:g} s"
                return Episode(
                    key=key, status="timeout", error=reason, retryable=True, seconds=self._settings.episode_seconds
                )
            except self._ray.exceptions.RayActorError:
                self._replace(place, worker)
                continue
            finally:
                self._busy[place] -= 1
            episode: Episode = found[0]
            self._book(found[1])
            return episode
        raise EngineError(
            f"{LIVES} workers died under one episode (task {key.task_id}, arm {arm.provider}): see the cluster's logs, "
            "likely they lack memory"
        )

    def worker_processes(self) -> list[int]:
        """The workers' process ids, each on its machine."""
        found: list[int] = self._ray.get([worker.process.remote() for worker in self._workers])
        return found

    def _connect(self) -> None:
        address = self._settings.ray_address or os.environ.get("RAY_ADDRESS")
        if address is None:
            self._ray.init(
                num_cpus=self._settings.ray_workers,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
                runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}},
            )
            return
        try:
            self._ray.init(address=address, log_to_driver=False)
        except ConnectionError as error:
            raise ConfigError(
                f"there is no Ray cluster at {address} ({error}): start one, or unset explore.ray_address"
            ) from error

    def _start(self) -> Any:
        remote = self._ray.remote(num_cpus=1, max_concurrency=self._settings.concurrency + 1)(EpisodeWorker)
        return remote.remote(self._bench.config.model_dump_json())

    async def _prepare(self, place: int) -> None:
        """Give a worker the wave's bank; another worker where it dies meanwhile."""
        cause = ""
        for _ in range(LIVES):
            try:
                await self._workers[place].freeze.remote(self._wave, self._snapshot)
                return
            except self._ray.exceptions.RayActorError as error:
                cause = str(error).strip().splitlines()[-1]
                self._workers[place] = self._start()
        raise EngineError(f"{LIVES} Ray workers died while they started, the last one with: {cause}")

    def _replace(self, place: int, worker: Any) -> None:
        """Put a new worker in the place of one that died or is stuck, unless that was done already."""
        if self._workers[place] is not worker:
            return
        self._ray.kill(worker)
        self._workers[place] = self._start()
        self._frozen[place] = asyncio.create_task(self._prepare(place))

    def _book(self, spent: Mapping[Purpose, Spend]) -> None:
        ledger = self._bench.run.models.ledger
        for purpose, spend in spent.items():
            ledger.of(purpose).add(spend)
