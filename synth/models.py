"""The chat models of a run, one per purpose that its config names an endpoint for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lm.cost import Ledger, Price
from providers.errors import ConfigError
from synth.config import EndpointConfig, ModelsConfig, Purpose

if TYPE_CHECKING:
    from lm.cache import ResponseCache
    from lm.client import ChatModel


class Models:
    """Makes a purpose's model when it is first asked for; nothing is opened or sent before a model is called.

    Purposes with equal endpoints share one model and so its concurrency. `ledger` counts all of them.
    """

    def __init__(self, config: ModelsConfig, cache: Path | None = None, base: str = "") -> None:
        """`cache` is the file that keeps answers; None keeps none. `base` is what the router is trained from."""
        self.ledger = Ledger()
        self._config = config
        self._base = base
        self._path = cache
        self._cache: ResponseCache | None = None
        self._models: dict[str, ChatModel] = {}

    def get(self, purpose: Purpose) -> ChatModel:
        """The model that answers for `purpose`. Raises ConfigError where the config names none."""
        endpoint: EndpointConfig | None = getattr(self._config, purpose)
        if endpoint is None:
            raise ConfigError(f"models.{purpose} is not set: name an endpoint there, or in models.default.")
        identity = endpoint.model_dump_json()
        if identity not in self._models:
            self._models[identity] = self._make(endpoint)
        return self._models[identity]

    def has(self, purpose: Purpose) -> bool:
        """Whether the config names an endpoint for `purpose`."""
        return getattr(self._config, purpose) is not None

    def scorer(self, *, same_model: bool = False) -> ChatModel:
        """The model that scores answers, independent of those that it scores (MemAgent A.4).

        Raises ConfigError where it is the agent's or the router's, unless `same_model` allows that.
        """
        model = self.get("scorer")
        others = {
            "models.agent": self._config.agent.model if self._config.agent else "",
            "models.router": self._config.router.model if self._config.router else "",
            "train.base": self._base,
        }
        for key, name in others.items():
            if name and not same_model and _same_model(name, model.model):
                raise ConfigError(
                    f"models.scorer is {model.model}, as {key} is, so a model would score its own work: name another "
                    "one for the scorer, or say `scorer: {name: judge, same_model: true}` in the suite's options."
                )
        return model

    def _make(self, endpoint: EndpointConfig) -> ChatModel:
        from lm.client import ChatModel

        return ChatModel(
            endpoint.base_url,
            endpoint.model,
            endpoint.key_env,
            temperature=endpoint.temperature,
            options=endpoint.options,
            thinking_tokens=endpoint.thinking_tokens,
            timeout=endpoint.timeout,
            retries=endpoint.retries,
            concurrency=endpoint.concurrency,
            cache=self._answers(),
            ledger=self.ledger,
            price=price_of(endpoint),
        )

    def _answers(self) -> ResponseCache | None:
        from lm.cache import ResponseCache

        if self._cache is None and self._path is not None:
            self._cache = ResponseCache(self._path)
        return self._cache


def price_of(endpoint: EndpointConfig) -> Price | None:
    """The endpoint's price; None unless both of its parts are known."""
    if endpoint.prompt_price is None or endpoint.completion_price is None:
        return None
    return Price(prompt=endpoint.prompt_price, completion=endpoint.completion_price)


def _same_model(one: str, other: str) -> bool:
    """Whether two names are one model, whoever serves it: `openai/gpt-5-mini` and `gpt-5-mini`."""
    return one.rstrip("/").rpartition("/")[2].casefold() == other.rstrip("/").rpartition("/")[2].casefold()
