"""One run's folder: its settings, its facts, its artefacts and its lock."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from providers.embedder import Encoder, load_encoder
from providers.errors import ConfigError
from providers.files import write_atomically
from synth.config import RunConfig
from synth.facts import Facts
from synth.models import Models
from synth.plugins import load_suite
from synth.tasks.base import TaskSuite

_GOVERNANCE = ("governance", "verifier", "budget", "descriptors")
"""Binding settings that folders of older versions do not name."""
_ANSWERING = ("agent", "distiller", "verifier", "scorer", "vision", "audio")
"""Purposes of models whose answers went into what stands in a folder: a judge scores again, a router is asked again."""
_BINDING = (
    "seed",
    "suite.name",
    "suite.warmup",
    "suite.explore",
    "suite.options",
    "agent.name",
    "agent.max_steps",
    "agent.warmup_max_steps",
    "agent.options",
    "providers",
    "relevance_floors",
    "encoder.name",
    "encoder.options",
    "distiller",
    *(f"models.{user}.{key}" for user in _ANSWERING for key in ("model", "temperature", "options")),
    "warmup.tries",
    "warmup.passes",
    "explore.waves",
    "explore.in_modes",
    "explore.repeats",
    "explore.budget",
    *_GOVERNANCE,
)
"""Settings that what stands in a run folder depends on; all others are only read by stages that can be run again."""

_PACKAGES = (
    "memroute",
    "numpy",
    "torch",
    "transformers",
    "trl",
    "peft",
    "sentence-transformers",
    "faiss-cpu",
    "scikit-learn",
)


class RunInUse(ConfigError):
    """Another process works in the run's folder."""


class Run:
    """A run's folder, held by this process alone until `close`.

    Raises:
        ConfigError: the folder was made with other settings.
        RunInUse: another process works in it.
        BankError: `run.sqlite` is damaged.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.root = config.runs_dir / config.name
        self._make_folder()
        self._lock = self._take_lock()
        try:
            self._check_settings()
            write_atomically(self.root / "config.yaml", dump_config(config))
            self._record_manifest()
            self.facts = Facts(self.database)
        except BaseException:
            os.close(self._lock)
            raise

    @classmethod
    def open(cls, config: RunConfig) -> Run:
        """Make or continue the run that `config` names."""
        return cls(config)

    @property
    def suite(self) -> TaskSuite:
        """The run's task suite."""
        return load_suite(self.config.suite.name, self.config.seed, self.config.suite.options, self.models)

    @cached_property
    def encoder(self) -> Encoder:
        """The run's sentence encoder over its cache."""
        return load_encoder(self.config.encoder.name, self.config.encoder.options, self.cache)

    @cached_property
    def models(self) -> Models:
        """The run's chat models by purpose, their answers kept in its cache."""
        return Models(self.config.models, self.cache, self.config.train.base)

    @property
    def database(self) -> Path:
        return self.root / "run.sqlite"

    @property
    def bank(self) -> Path:
        return self.root / "bank.sqlite"

    @property
    def cache(self) -> Path:
        return self.root / "cache.sqlite"

    @property
    def dataset(self) -> Path:
        return self.root / "dataset"

    @property
    def adapter(self) -> Path:
        return self.root / "adapter"

    @property
    def merged(self) -> Path:
        return self.root / "merged"

    @property
    def heads(self) -> Path:
        return self.root / "heads.json"

    @property
    def evaluation(self) -> Path:
        return self.root / "evaluation"

    @property
    def rewards(self) -> Path:
        """Summary of the rewards, written by `synth.rewards.score`."""
        return self.root / "rewards.json"

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    def table(self, split: str) -> Path:
        """The routing table of a split (`explore`, `dev`, `test`) or of a control (`dev_shuffled`, `dev_alone`)."""
        return self.root / "tables" / f"{split}.json"

    def close(self) -> None:
        self.facts.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make_folder(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigError(
                f"{error.filename} cannot be made, a file is in the way: move the file, or choose another --name or "
                "--runs-dir"
            ) from error

    def _take_lock(self) -> int:
        handle = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        if int(os.environ.get("RANK", "0")) > 0:
            return handle  # one of several processes that train together; the first holds the lock for all
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip()
            os.close(handle)
            raise RunInUse(
                f"{self.root} is in use by another process{f' (pid {holder})' if holder else ''}: "
                "wait until it ends, or give this run another name"
            ) from None
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode("ascii"), 0)
        return handle

    def _check_settings(self) -> None:
        path = self.root / "config.yaml"
        if not path.exists():
            return
        try:
            recorded = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            recorded = None
        if not isinstance(recorded, dict):
            raise ConfigError(f"{path} is not readable: remove the folder {self.root}, or give the run another name")
        current = self.config.model_dump(mode="json")
        differing = [
            f"{key} was {_at(recorded, key)!r}, is {_at(current, key)!r}"
            for key in _BINDING
            if _at(recorded, key) != _at(current, key) and not (key in _GOVERNANCE and key not in recorded)
        ]
        if differing:
            raise ConfigError(
                f"{self.root} was made with other settings ({'; '.join(differing)}): "
                f"give the run another name (--name), or remove the folder {self.root}"
            )

    def _record_manifest(self) -> None:
        path = self.root / "manifest.json"
        now = _environment(self.config.seed)
        try:
            opened: list[dict[str, Any]] = (
                json.loads(path.read_text(encoding="utf-8"))["opened"] if path.exists() else []
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path} is not readable: remove it, a new one is written") from error
        if not opened or {**opened[-1], "time": None} != {**now, "time": None}:
            write_atomically(path, json.dumps({"opened": [*opened, now]}, indent=2) + "\n")


def dump_config(config: RunConfig) -> str:
    """The resolved config as YAML, in the order of the schema."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _at(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _environment(seed: int) -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seed": seed,
        "git": _git_revision(),
        "python": sys.version.split()[0],
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "hardware": {
            "machine": platform.machine(),
            "system": platform.platform(),
            "cpus": os.cpu_count(),
            "memory_gb": _memory(),
        },
    }


def own_version() -> str:
    """memroute's version; `unknown` where it runs from a checkout that was never installed."""
    return _version("memroute") or "unknown"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _git_revision() -> str | None:
    """The commit of this checkout, with `+` where tracked files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    try:
        revision = _git(root, "rev-parse", "HEAD")
        return revision + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
