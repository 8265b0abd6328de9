"""A finished run, opened to be served: its bank's copy, its memories, and the policy that decides."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from evaluation.replay import policy_material, recommended_on_dev
from providers.embedder import Encoder, load_encoder
from providers.errors import ConfigError
from router.policies.fuse import Fuser, ModelFuser, RuleFuser
from router.policies.registry import PolicyMaterial, build_policy
from router.table import RoutingTable
from serve.database import ServeDatabase
from serve.memories import Memories, served_bank
from serve.sessions import Sessions
from synth.config import RunConfig
from synth.plugins import load_distiller, load_governor
from synth.runs import Run


def bank_path(run: Run) -> Path:
    """The server's own copy of the run's bank."""
    return run.root / "serve.bank.sqlite"


def database_path(run: Run) -> Path:
    """Sessions, answers kept for retries, and the audit log."""
    return run.root / "serve.sqlite"


@asynccontextmanager
async def open_sessions(config: RunConfig) -> AsyncIterator[Sessions]:
    """The service over a run, started; `config.serve` says who decides.

    Raises ConfigError where the run has no bank or no router yet, or another process works in it.
    """
    with Run.open(config) as run:
        # Queries stay in memory: encodings of what callers ask are not written to the run's cache.
        encoder = load_encoder(config.encoder.name, config.encoder.options, None)
        material = served_material(run, encoder)
        settings = config.serve
        router = build_policy(router_name(run), material)
        fallback = build_policy(settings.fallback, material)
        acting = build_policy(settings.shadow, material) if settings.shadow else None
        with served_bank(run.bank, bank_path(run), encoder) as bank:
            distiller = load_distiller(config.distiller, run.models)
            sessions = Sessions(
                Memories(config, bank, distiller, load_governor(config, run.models)),
                ServeDatabase(database_path(run)),
                settings,
                router=router,
                fallback=fallback,
                acting=acting,
                fuser=_fuser(run),
            )
            try:
                await sessions.start()
                yield sessions
            finally:
                await sessions.close()


def router_name(run: Run) -> str:
    """The policy that the config names; else heads where they are trained; else what the evaluation recommends."""
    if run.config.serve.router is not None:
        return run.config.serve.router
    if run.heads.exists():
        return "heads"
    recommended = recommended_on_dev(run)
    if recommended is None:
        raise ConfigError(
            f"The run {run.config.name!r} has no trained router to serve: run `memroute train` with this config first, "
            "or name a policy with --router."
        )
    return recommended


def served_material(run: Run, encoder: Encoder) -> PolicyMaterial:
    """What the run's policies are built from, with the server's own encoder."""
    from providers.registry import provider_cards

    explored = run.table("explore")
    table = RoutingTable.load(explored) if explored.exists() else None
    material = policy_material(run, table, provider_cards(run.config.providers))
    return dataclasses.replace(material, encoder=encoder)


def _fuser(run: Run) -> Fuser:
    """Writes fused notes for policies that fuse providers."""
    return ModelFuser(run.models.get("router")) if run.config.models.router is not None else RuleFuser()
