"""A chat model behind any OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lm.cache import ResponseCache, cache_key
from lm.cost import Ledger, Price
from lm.errors import AnswerError, ModelError
from lm.structured import Shape, complaint, read, response_format
from lm.types import Completion, Message, TokenLogprob, Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

log = logging.getLogger(__name__)

TOP_LOGPROBS = 20
"""Alternatives per token that endpoints agree to give."""


class ChatModel:
    """Asks one model. Answers are cached, retried where that may help, and counted by purpose.

    The key is read from the environment variable `key_env` at every call (local endpoints need none) and appears in
    no error, log or cache. `temperature` None leaves the endpoint's own. Every method raises `ModelError`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        key_env: str = "OPENAI_API_KEY",
        *,
        temperature: float | None = 0.0,
        options: Mapping[str, Any] | None = None,
        timeout: float = 120.0,
        retries: int = 4,
        concurrency: int = 8,
        cache: ResponseCache | None = None,
        ledger: Ledger | None = None,
        price: Price | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.ledger = ledger if ledger is not None else Ledger()
        self._key_env = key_env
        self._temperature = temperature
        self._options = dict(options or {})
        self._timeout = timeout
        self._retries = retries
        self._concurrency = concurrency
        self._cache = cache
        self._price = price
        self._loop: asyncio.AbstractEventLoop | None = None

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        purpose: str,
        temperature: float | None = None,
        max_tokens: int = 1024,
        sample: int = 0,
        top_logprobs: int | None = None,
        response_format: Mapping[str, Any] | None = None,
    ) -> Completion:
        """One answer. `sample` tells apart several answers to the same question; it is the seed where sampling is on.

        `top_logprobs` asks for log-probabilities with so many alternatives per token.
        """
        warmth = self._temperature if temperature is None else temperature
        request: dict[str, Any] = {
            "model": self.model,
            "messages": [message.model_dump() for message in messages],
            self._limit_name: max_tokens,
        }
        if warmth is not None:
            request["temperature"] = warmth
        if warmth != 0:
            request["seed"] = sample
        if top_logprobs is not None:
            request |= {"logprobs": True, "top_logprobs": top_logprobs}
        if response_format is not None:
            request["response_format"] = dict(response_format)
        if self._options:
            request["extra_body"] = self._options
        key = cache_key({"base_url": self.base_url, "sample": sample, **request})
        if self._cache is not None and (known := self._cache.get(key)) is not None:
            self.ledger.cache_hit(purpose)
            return known
        answer = await self._ask(request)
        self.ledger.call(purpose, answer.usage, self._price)
        if self._cache is not None:
            self._cache.put(key, answer)
        return answer

    async def structured(
        self,
        messages: Sequence[Message],
        shape: type[Shape],
        *,
        purpose: str,
        temperature: float | None = None,
        max_tokens: int = 1024,
        sample: int = 0,
    ) -> Shape:
        """One answer as `shape`; an unreadable one is sent back once with what is wrong with it, then `AnswerError`."""
        turns = list(messages)
        for attempt in ("first", "repaired"):
            answer = await self.complete(
                turns,
                purpose=purpose,
                temperature=temperature,
                max_tokens=max_tokens,
                sample=sample,
                response_format=response_format(shape),
            )
            try:
                return read(answer.text, shape)
            except ValueError as error:
                log.info("%s: the %s answer is no %s", self.model, attempt, shape.__name__)
                turns += [
                    Message(role="assistant", content=answer.text),
                    Message(role="user", content=complaint(error)),
                ]
        reason = " (it was cut off: allow more tokens)" if answer.finish_reason == "length" else ""
        raise AnswerError(
            f"{self.model} gave no readable {shape.__name__} in two answers{reason}: "
            "use a model that follows a JSON schema."
        )

    async def label_logprobs(
        self, messages: Sequence[Message], labels: Sequence[str], *, purpose: str
    ) -> dict[str, float]:
        """The natural-log probability that the answer starts with each label; -inf where it is not among the likeliest.

        No grammar is set: under one, labels are spelt in odd tokens. Labels must differ in their first token.
        """
        answer = await self.complete(
            messages, purpose=purpose, temperature=0.0, max_tokens=1, top_logprobs=TOP_LOGPROBS
        )
        if not answer.logprobs:
            raise ModelError(
                f"{self.model} at {self.base_url} gives no log-probabilities: use an endpoint that does.",
                retryable=False,
            )
        first = answer.logprobs[0]
        mass = dict.fromkeys(labels, 0.0)
        for token, logprob in {first.token: first.logprob, **first.top}.items():
            meant = [label for label in labels if token.strip() and label.startswith(token.strip())]
            if len(meant) > 1:
                raise ModelError(
                    f"The labels {' and '.join(meant)} start with the same token: use labels such as A and B.",
                    retryable=False,
                )
            if meant:
                mass[meant[0]] += math.exp(logprob)
        return {label: math.log(share) if share > 0 else -math.inf for label, share in mass.items()}

    @property
    def _limit_name(self) -> str:
        """OpenAI's own models refuse the name that all others know."""
        return "max_completion_tokens" if "api.openai.com" in self.base_url else "max_tokens"

    async def _ask(self, request: Mapping[str, Any]) -> Completion:
        import openai

        key = os.environ.get(self._key_env, "")
        client, gate = self._connect()
        try:
            async with gate:
                response = await client.chat.completions.create(
                    **request, extra_headers={"Authorization": f"Bearer {key or 'none'}"}
                )
        except openai.APIStatusError as error:
            raise self._failed(error.status_code, error.message, key) from None
        except openai.APIConnectionError as error:
            raise self._failed(None, f"{error.message} {error.__cause__ or ''}", key) from None
        except openai.OpenAIError as error:
            raise self._failed(200, str(error), key) from None
        return self._completion(response, key)

    def _connect(self) -> tuple[AsyncOpenAI, asyncio.Semaphore]:
        """The client and the concurrency gate of the running event loop."""
        import openai

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._gate = asyncio.Semaphore(self._concurrency)
            self._client = openai.AsyncOpenAI(
                base_url=self.base_url, api_key="none", timeout=self._timeout, max_retries=self._retries
            )
        return self._client, self._gate

    def _completion(self, response: ChatCompletion, key: str) -> Completion:
        """Read a response of status 200, which may still hold an error or no answer."""
        body = getattr(response, "model_extra", None) or {}
        if problem := body.get("error"):
            status = problem.get("code") if isinstance(problem, dict) else None
            message = problem.get("message", problem) if isinstance(problem, dict) else problem
            raise self._failed(status if isinstance(status, int) else 200, str(message), key)
        if not getattr(response, "choices", None):
            raise self._failed(200, "the response holds no choices", key)
        choice = response.choices[0]
        usage = response.usage
        return Completion(
            text=choice.message.content or "",
            finish_reason=choice.finish_reason or "",
            logprobs=tuple(
                TokenLogprob(
                    token=each.token,
                    logprob=each.logprob,
                    top={other.token: other.logprob for other in each.top_logprobs or ()},
                )
                for each in choice.logprobs.content
            )
            if choice.logprobs is not None and choice.logprobs.content
            else None,
            usage=Usage(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
            if usage is not None
            else None,
        )

    def _failed(self, status: int | None, message: str, key: str) -> ModelError:
        """A typed error without the key, whatever the endpoint echoed."""
        said = " ".join((message.replace(key, "[key]") if key else message).split())[:300]
        retryable = status is None or status in (408, 409, 429) or status >= 500
        mend = {
            401: f"set {self._key_env} to a valid key",
            403: f"set {self._key_env} to a key that may use this model",
            404: "check base_url and model",
            429: "wait, or lower the concurrency",
        }.get(status or 0, "check that the endpoint runs" if retryable else "check the request and the model")
        return ModelError(
            f"{self.model} at {self.base_url} failed ({status or 'no connection'}: {said}): {mend}.",
            retryable=retryable,
        )
