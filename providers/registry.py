"""Names -> memory providers: entry points, the built-in table, or a dotted path."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from providers.base import Distiller, MemoryProvider, ProviderCard
from providers.errors import ConfigError
from providers.long_term.base import SpaceProvider
from providers.space import Space

GROUP = "memroute.providers"

BUILT_IN = {
    "expel": "providers.long_term.expel:Expel",
    "awm": "providers.long_term.awm:Awm",
    "skillweaver": "providers.long_term.skillweaver:SkillWeaver",
    "voyager": "providers.long_term.voyager:Voyager",
    "insight_graph": "providers.long_term.insight_graph:InsightGraph",
    "generative": "providers.long_term.generative:Generative",
    "dilu": "providers.long_term.dilu:Dilu",
    "memp": "providers.long_term.memp:Memp",
    "agent_kb": "providers.long_term.agent_kb:AgentKb",
    "synapse": "providers.long_term.synapse:Synapse",
    "lightweight": "providers.long_term.lightweight:LightWeight",
    "mobile_e": "providers.long_term.mobile_e:MobileE",
    "evolver": "providers.long_term.evolver:Evolver",
    "cheatsheet": "providers.long_term.cheatsheet:Cheatsheet",
    "reasoning_bank": "providers.long_term.reasoning_bank:ReasoningBank",
    "memguard": "providers.long_term.memguard:MemGuard",
    "verifier_only": "providers.long_term.memguard:VerifierOnly",
}

METHODS = ("probe", "retrieve", "store", "apply")


class ProviderNotFound(ConfigError):
    """No provider has that name, or no class stands at that path."""


class ProviderImportFailed(ConfigError):
    """The provider's module raised while it was imported."""


class NotAProvider(ConfigError):
    """What stands at that path is not a memory provider."""


@cache
def provider_paths() -> dict[str, str]:
    """Every known name with its path `package.module:Class`; installed entry points go before the built-in table."""
    return BUILT_IN | {point.name: point.value for point in entry_points(group=GROUP)}


def load_provider(
    name: str, space: Space, distiller: Distiller, relevance_floor: float | None = None
) -> MemoryProvider:
    """Construct the provider of that name, or of a path `package.module:Class`, over `space`.

    `relevance_floor` stands in for the card's own, for providers built on `SpaceProvider`.
    Raises ProviderNotFound, ProviderImportFailed or NotAProvider (all ConfigErrors).
    """
    provider: object = provider_class(name)(space, distiller)
    if not isinstance(provider, MemoryProvider):
        raise NotAProvider(f"{name!r} is not a memory provider: it lacks the property `card`.")
    if relevance_floor is not None:
        if not isinstance(provider, SpaceProvider):
            raise ConfigError(
                f"A relevance floor is set for {name!r}, which is not built on SpaceProvider and has none: "
                "take it out of `relevance_floors`."
            )
        provider.set_relevance_floor(relevance_floor)
    return provider


def provider_cards(names: Sequence[str]) -> tuple[ProviderCard, ...]:
    """The cards of these providers, in that order; no bank is needed."""
    return tuple(provider_class(name).CARD for name in names)


def provider_class(name: str) -> Any:
    """The class behind a name or a path `package.module:Class`, checked to be a provider."""
    path = provider_paths().get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not colon:
        known = sorted(provider_paths())
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ", or give a path `package.module:Class`."
        raise ProviderNotFound(f"There is no provider {name!r}. There are {', '.join(known)}{hint}")
    found = getattr(_module(name, module_name), attribute, None)
    if found is None:
        raise ProviderNotFound(f"The provider {name!r} was not found: {module_name} has no {attribute}.")
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if not isinstance(getattr(found, "CARD", None), ProviderCard):
        missing.insert(0, "CARD")
    if missing or not inspect.isclass(found):
        raise NotAProvider(
            f"{name!r} is not a memory provider: {path} "
            + (f"lacks {', '.join(missing)}." if missing else "is not a class.")
        )
    return found


def _module(name: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ProviderNotFound(
                f"The provider {name!r} was not found: there is no module {error.name!r}; is its package installed?"
            ) from error
        raise ProviderImportFailed(f"The provider {name!r} cannot be imported: {error}.") from error
    except Exception as error:
        raise ProviderImportFailed(
            f"The provider {name!r} cannot be imported: {type(error).__name__} in {module_name}: {error}."
        ) from error
