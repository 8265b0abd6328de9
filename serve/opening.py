"""A finished run, opened to be served: its bank's copy, its memories, and the policy that decides."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from evaluation.replay import policy_material, recommended_on_dev
from providers.embedder import CachedEncoder, Encoder, load_encoder
from providers.errors import ConfigError
from router.policies.fuse import Fuser, ModelFuser, RuleFuser
from router.policies.registry import ABLATIONS, AVERAGE, PolicyMaterial, build_policy, load_heads
from router.table import RoutingTable
from serve.database import ServeDatabase
from serve.engine import Engine
from serve.memories import Memories, served_bank
from serve.sessions import Sessions
from synth.config import RunConfig
from synth.plugins import load_distiller, load_governor
from synth.runs import Run

ASKS_THE_MODEL = ("trained", AVERAGE, "router", "in_always", "in_never", "store_all", "store_none", *ABLATIONS)
"""Policies in which the trained language model decides something."""


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
        encoder = served_encoder(run)
        material = served_material(run, encoder)
        settings = config.serve
        names = (router_name(run), settings.fallback, settings.shadow)
        async with served_engine(run, material, names) as engine, AsyncExitStack() as held:
            router = build_policy(router_name(run), material)
            fallback = build_policy(settings.fallback, material)
            acting = build_policy(settings.shadow, material) if settings.shadow else None
            bank = held.enter_context(served_bank(run.bank, bank_path(run), encoder))
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
            if engine is not None:
                sessions.readiness["engine"] = engine.missing
            try:
                await sessions.start()
                yield sessions
            finally:
                await sessions.close()


@asynccontextmanager
async def served_engine(
    run: Run, material: PolicyMaterial, names: Sequence[str | None]
) -> AsyncIterator[Engine | None]:
    """The engine of the language-model router, put into `material`; None where no policy of `names` asks one."""
    if not any(name in ASKS_THE_MODEL for name in names):
        yield None
        return
    material.need_trained(material.adapter_path, "adapter")
    engine = Engine(run, material.cards, partial(load_heads, material))
    await engine.start()
    material.loaded["trained"] = engine.policy
    try:
        yield engine
    finally:
        await engine.close()


def served_encoder(run: Run) -> Encoder:
    """The run's encoder over a cache in memory, which starts with what the run has encoded.

    Nothing is written: encodings of what callers ask leave no trace, and a full disk stops no decision.
    """
    encoder = load_encoder(run.config.encoder.name, run.config.encoder.options)
    if isinstance(encoder, CachedEncoder) and run.cache.exists():
        encoder.read_from(run.cache)
    return encoder


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
