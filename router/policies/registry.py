"""Policies by name. Heavy ones are imported only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from providers.base import ProviderCard
from providers.errors import ConfigError
from router.codec import CodecName
from router.decisions import Policy, ScoringPolicy
from router.policies.changed import FIVE, NoProbe, Phases, Pool, ScoresShown
from router.policies.fixed import Concat, InOnly, Single
from router.policies.fuse import Fuse
from router.policies.none import NoMemory
from router.policies.overlap import Cosine, Overlap
from router.policies.random import RandomPolicy
from router.table import RoutingTable

if TYPE_CHECKING:
    from lm.client import ChatModel
    from providers.embedder import Encoder
    from router.policies.heads import Heads
    from router.policies.knowledge import KnowledgeBase


RouterName = Literal["trained", "heads", "average"]
"""Trained routers, each of which can take Begin where a policy builds on "the router"."""


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
    constrained: bool = False
    """Whether illegal answers of the json codec are asked for again among legal ones alone."""
    chat: ChatModel | None = None
    """The frozen model of `prompt_route`; without one the untrained base model scores the provider names."""
    router: RouterName = "trained"
    """Who takes Begin in policies that change something about the router; In and End are the trained LM's."""
    loaded: dict[str, Policy] = field(default_factory=dict, compare=False)
    """Language models that were loaded already, so that policies which share one load it once."""

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


def _loaded(material: PolicyMaterial, adapter: Path | None) -> Policy:
    """The language model, trained with an adapter."""
    from router.policies.learned import Learned

    return Learned.load(
        material.base,
        adapter,
        material.codec,
        material.cards,
        seed=material.seed,
        constrained=material.constrained,
        heads=partial(load_heads, material),
    )


def _untrained(material: PolicyMaterial) -> Policy:
    return _loaded(material, None)


def _trained(material: PolicyMaterial) -> Policy:
    adapter = material.need_trained(material.adapter_path, "adapter")
    if "trained" not in material.loaded:
        material.loaded["trained"] = _loaded(material, adapter)
    return material.loaded["trained"]


def _average(material: PolicyMaterial) -> Policy:
    from router.policies.average import Average

    return Average(_scoring("trained", material), _scoring("heads", material))


def _scoring(name: str, material: PolicyMaterial) -> ScoringPolicy:
    policy = build_policy(name, material)
    if not isinstance(policy, ScoringPolicy):
        raise MissingMaterial(f"{name} answers in words with train.codec {material.codec}, without scores.")
    return policy


def _phased(name: str, *, step: Policy | None = None, end: Policy | None = None) -> Callable[[PolicyMaterial], Policy]:
    """The router with In or End taken by another policy; without either, the whole router: Begin, In and End."""

    def build(material: PolicyMaterial) -> Policy:
        language_model = build_policy("trained", material)
        begin = build_policy(material.router, material)
        return Phases(name, begin=begin, step=step or language_model, end=end or language_model)

    return build


def _five(material: PolicyMaterial) -> Policy:
    names = {card.name for card in material.cards}
    if not names > set(FIVE):
        raise MissingMaterial(f"It needs a run with {', '.join(FIVE)} and at least one further provider.")
    return Pool("five", _scoring(material.router, material), FIVE)


def load_heads(material: PolicyMaterial) -> Heads:
    """The run's heads; `MissingMaterial` where they have not been trained."""
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
    "heads": load_heads,
    "overlap": lambda material: Overlap(),
    "cosine": lambda material: Cosine(material.need_encoder()),
    "knn": _knn,
    "prompt_route": _prompt_route,
    "prompt_route_rules": _prompt_route_rules,
    "average": _average,
    "five": _five,
    "no_probe": lambda material: NoProbe(build_policy(material.router, material)),
    "scores_shown": lambda material: ScoresShown(build_policy(material.router, material), material.need_encoder()),
    "concat": lambda material: Concat(),
    "fuse": lambda material: Fuse(),
    "router": _phased("router"),
    "in_always": _phased("in_always", step=InOnly()),
    "in_never": _phased("in_never", step=NoMemory()),
    "store_all": _phased("store_all", end=Concat()),
    "store_none": _phased("store_none", end=NoMemory()),
    "in_only": lambda material: InOnly(),
}

POLICY_NAMES = tuple(_BUILDERS)
"""All but the single providers, which go by their own names."""

AVERAGE = "average"
"""The trained language model and the heads, their log-odds averaged."""

ONLINE_ONLY = ("router", "in_always", "in_never", "store_all", "store_none", "concat", "fuse")
"""Policies that a routing table says nothing about: they change what later tasks see, or run an arm that it lacks."""

ABLATIONS = ("five", "no_probe", "scores_shown")
"""The router with something about Begin changed, without training it again; replayed like every Begin policy."""
