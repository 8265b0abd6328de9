"""Policies by name. Heavy ones are imported only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from providers.base import ProviderCard
from providers.errors import ConfigError
from router.codec import CodecName
from router.decisions import Policy
from router.policies.fixed import Concat, InOnly, Single, StoreAll
from router.policies.none import NoMemory
from router.policies.overlap import Cosine, Overlap
from router.policies.random import RandomPolicy
from router.table import RoutingTable

if TYPE_CHECKING:
    from lm.client import ChatModel
    from providers.embedder import Encoder
    from router.policies.knowledge import KnowledgeBase


class MissingMaterial(ConfigError):
    """A policy cannot be built yet; the message names what makes it possible."""


@dataclass(frozen=True)
class PolicyMaterial:
    """What policies are built from; None where a stage has not made it yet."""

    cards: tuple[ProviderCard, ...]
    """In the order of the config."""
    seed: int = 0
    encoder: Encoder | None = None
    explore_table: RoutingTable | None = None
    heads_path: Path | None = None
    adapter_path: Path | None = None
    base: str = "smollm2-135m"
    codec: CodecName = "marks"
    chat: ChatModel | None = None
    """The frozen model of `prompt_route`; without one the untrained base model scores the provider names."""

    def knowledge(self) -> KnowledgeBase:
        """The decision knowledge base mined from the exploration table."""
        table = self.need_explore_table()
        from router.policies.knowledge import KnowledgeBase

        return KnowledgeBase.from_table(table, self.cards)

    def need_explore_table(self) -> RoutingTable:
        if self.explore_table is None:
            raise MissingMaterial("There is no exploration table yet; run `memroute explore` with this config first.")
        return self.explore_table

    def need_encoder(self) -> Encoder:
        if self.encoder is None:
            raise MissingMaterial("There is no encoder; open the run with its encoder.")
        return self.encoder

    def need_trained(self, path: Path | None, what: str) -> Path:
        if path is None or not path.exists():
            raise MissingMaterial(f"There is no {what} yet; run `memroute train` with this config first.")
        return path


def build_policy(name: str, material: PolicyMaterial) -> Policy:
    """The policy of that name, or of that provider alone.

    Raises `MissingMaterial` where a stage has to run first, `ConfigError` where nobody has the name.
    """
    if name in _BUILDERS:
        return _BUILDERS[name](material)
    if name in (providers := [card.name for card in material.cards]):
        return Single(name)
    raise ConfigError(f"There is no policy {name!r}; there are {', '.join([*POLICY_NAMES, *providers])}.")


def build_policies(names: Sequence[str], material: PolicyMaterial) -> tuple[dict[str, Policy], dict[str, str]]:
    """The policies that can be built, and for each of the others the reason, in the order of `names`."""
    built: dict[str, Policy] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            built[name] = build_policy(name, material)
        except MissingMaterial as error:
            missing[name] = str(error)
    return built, missing


def _untrained(material: PolicyMaterial) -> Policy:
    from router.policies.learned import Learned

    return Learned.load(material.base, None, material.codec, material.cards, seed=material.seed)


def _trained(material: PolicyMaterial) -> Policy:
    adapter = material.need_trained(material.adapter_path, "adapter")
    from router.policies.learned import Learned

    return Learned.load(material.base, adapter, material.codec, material.cards, seed=material.seed)


def _heads(material: PolicyMaterial) -> Policy:
    from router.policies.heads import Heads

    return Heads.load(material.need_trained(material.heads_path, "heads file"), material.need_encoder())


def _knn(material: PolicyMaterial) -> Policy:
    from router.policies.knn import NearestTasks

    return NearestTasks(material.need_explore_table(), material.need_encoder())


def _prompt_route(material: PolicyMaterial) -> Policy:
    base = material.knowledge()
    from router.policies.prompt_route import PromptRoute

    if material.chat is not None:
        return PromptRoute(base, material.chat)
    from router.policies.learned import LocalScorer

    return PromptRoute(base, LocalScorer.load(material.base))


def _prompt_route_rules(material: PolicyMaterial) -> Policy:
    base = material.knowledge()
    from router.policies.knowledge import KnowledgeRules

    return KnowledgeRules(base)


_BUILDERS: dict[str, Callable[[PolicyMaterial], Policy]] = {
    "none": lambda material: NoMemory(),
    "random": lambda material: RandomPolicy(material.seed),
    "untrained": _untrained,
    "trained": _trained,
    "heads": _heads,
    "overlap": lambda material: Overlap(),
    "cosine": lambda material: Cosine(material.need_encoder()),
    "knn": _knn,
    "prompt_route": _prompt_route,
    "prompt_route_rules": _prompt_route_rules,
    "concat": lambda material: Concat(),
    "store_all": lambda material: StoreAll(_trained(material)),
    "in_only": lambda material: InOnly(),
}

POLICY_NAMES = tuple(_BUILDERS)
"""All but the single providers, which go by their own names."""

AVERAGE = "average"
"""The trained language model and the heads, their log-odds averaged; evaluation makes it of the two."""

ONLINE_ONLY = frozenset({"concat", "store_all", "in_only"})
"""Policies that a routing table says nothing about: they change what later tasks see, or run an arm that it lacks."""
