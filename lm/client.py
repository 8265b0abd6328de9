"""A chat model behind any OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lm.cache import Question, ResponseCache
from lm.cost import Ledger, Price
from lm.errors import AnswerError, ModelError
from lm.gate import Gate
from lm.structured import Shape, complaint, read, response_format
from lm.types import Completion, Message, Purpose, ToolSpec, Usage
from lm.wire import BadBody, read_body, retry_after, said_in

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

TOP_LOGPROBS = 20
"""Alternatives per token that endpoints agree to give."""

LONGEST_WAIT = 120.0
"""An endpoint that asks to wait longer (seconds) is not waited for: the call fails, and its caller may come again."""

FIRST_BACKOFF = 0.5
"""Seconds before the first retry where the endpoint names none; doubled each time, up to `LONGEST_BACKOFF`."""
LONGEST_BACKOFF = 16.0


class ChatModel:
    """Asks one model. Answers are cached, retried where that may help, and counted by purpose.

    The key is read from the environment variable `key_env` at every call (local endpoints need none) and appears in
    no error, log or cache. `temperature` None leaves the endpoint's own, whatever a call asks for: some models have but
    one and refuse all others. `thinking_tokens` are added to every answer's limit, against which some count what the
    model thinks before. `timeout` is the time of one call to its last byte. Every method that asks raises `ModelError`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        key_env: str = "OPENAI_API_KEY",
        *,
        temperature: float | None = 0.0,
        options: Mapping[str, Any] | None = None,
        thinking_tokens: int = 0,
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
        self.thinking_tokens = thinking_tokens
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
        purpose: Purpose,
        temperature: float | None = None,
        max_tokens: int = 1024,
        sample: int = 0,
        top_logprobs: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        tool_choice: str | Mapping[str, Any] | None = None,
    ) -> Completion:
        """One answer. `sample` tells apart several answers to the same question; it is the seed where sampling is on.

        `top_logprobs` asks for log-probabilities with so many alternatives per token. An empty answer is given as it is
        and not kept.
        """
        warmth = temperature if temperature is not None and self._temperature is not None else self._temperature
        settings: dict[str, Any] = {self._limit_name: max_tokens + self.thinking_tokens}
        if warmth is not None:
            settings["temperature"] = warmth
        if warmth != 0:
            settings["seed"] = sample
        if top_logprobs is not None:
            settings |= {"logprobs": True, "top_logprobs": top_logprobs}
        if response_format is not None:
            settings["response_format"] = dict(response_format)
        if tools:
            settings["tools"] = [tool.wire() for tool in tools]
            settings["parallel_tool_calls"] = False
        if tool_choice is not None:
            settings["tool_choice"] = tool_choice
        return await self._answer([message.wire() for message in messages], settings, sample, purpose)

    async def structured(
        self,
        messages: Sequence[Message],
        shape: type[Shape],
        *,
        purpose: Purpose,
        temperature: float | None = None,
        max_tokens: int = 1024,
        sample: int = 0,
    ) -> Shape:
        """One answer as `shape`; an unreadable one is sent back once with what is wrong with it, then `AnswerError`."""
        turns, cut = list(messages), False
        for attempt in ("first", "repaired"):
            answer = await self.complete(
                turns,
                purpose=purpose,
                temperature=temperature,
                max_tokens=max_tokens,
                sample=sample,
                response_format=response_format(shape),
            )
            cut = answer.finish_reason == "length"
            try:
                return read(answer.text, shape)
            except ValueError as error:
                log.info("%s: the %s answer is no %s", self.model, attempt, shape.__name__)
                turns += [
                    Message(role="assistant", content=answer.text or "(nothing)"),
                    Message(role="user", content=complaint(error, shape)),
                ]
        reason = " (it was cut off: allow more tokens)" if cut else ""
        raise AnswerError(
            f"{self.model} gave no readable {shape.__name__} in two answers{reason}: "
            "use a model that follows a JSON schema."
        )

    async def label_logprobs(
        self, messages: Sequence[Message], labels: Sequence[str], *, purpose: Purpose
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

    async def close(self) -> None:
        """Close the connections of the running event loop; a later call opens new ones."""
        if self._loop is asyncio.get_running_loop():
            self._loop = None
            await self._client.close()

    @property
    def _limit_name(self) -> str:
        """OpenAI's own models refuse the name that all others know."""
        return "max_completion_tokens" if "api.openai.com" in self.base_url else "max_tokens"

    async def _answer(
        self, messages: list[dict[str, Any]], settings: dict[str, Any], sample: int, purpose: Purpose
    ) -> Completion:
        """From the cache, or else from the endpoint; what an answer cost is counted before it is looked at."""
        identity = {**settings, "sample": sample, **({"options": self._options} if self._options else {})}
        question = Question(self.base_url, self.model, messages, identity)
        known, miss = self._cache.get(question) if self._cache is not None else (None, "no cache")
        if known is not None:
            self.ledger.of(purpose).cached += 1
            return known
        request = {"model": self.model, "messages": messages, **settings}
        if self._options:
            request["extra_body"] = self._options
        answer = await self._ask(request, purpose)
        self._count(answer.usage, purpose, miss)
        if self._cache is not None and not answer.empty:
            self._cache.put(question, answer, purpose, miss)
        return answer

    def _count(self, usage: Usage | None, purpose: Purpose, miss: str) -> None:
        self.ledger.call(purpose, usage, self._price, miss)
        if self._cache is not None:
            cost = None if usage is None or self._price is None else self._price.of(usage)
            tokens = (usage.prompt_tokens, usage.completion_tokens) if usage is not None else (0, 0)
            self._cache.spend(purpose, self.model, *tokens, cost)

    async def _ask(self, request: Mapping[str, Any], purpose: Purpose) -> Completion:
        """Call until there is an answer, a failure that will not pass, or no retry is left."""
        spend = self.ledger.of(purpose)
        for attempt in itertools.count():
            try:
                return await self._call(request)
            except ModelError as error:
                wait = error.retry_after if error.retry_after is not None else _backoff(attempt)
                if not error.retryable or attempt >= self._retries or wait > LONGEST_WAIT:
                    spend.failed += 1
                    raise
                log.info("asked again in %.1f s: %s", wait, error)
                limited = error.rate_limited
            spend.retries += 1
            self.ledger.waiting += limited
            try:
                await asyncio.sleep(wait)
            finally:
                self.ledger.waiting -= limited
        raise AssertionError("unreachable")

    async def _call(self, request: Mapping[str, Any]) -> Completion:
        """One call through the gate, which learns from how it ends."""
        client, gate = self._connect()
        async with gate.slot() as mark:
            try:
                answer = await self._send(client, request)
            except ModelError as error:
                if error.rate_limited:
                    gate.rate_limited(mark, min(error.retry_after or FIRST_BACKOFF, LONGEST_WAIT))
                elif error.retryable:
                    gate.troubled()
                raise
            gate.answered()
            return answer

    async def _send(self, client: AsyncOpenAI, request: Mapping[str, Any]) -> Completion:
        import openai

        key = os.environ.get(self._key_env, "")
        try:
            async with asyncio.timeout(self._timeout):
                response = await client.chat.completions.with_raw_response.create(
                    **request, extra_headers={"Authorization": f"Bearer {key or 'none'}"}
                )
                return read_body(response.http_response.text)
        except (TimeoutError, openai.APITimeoutError):
            failure = self._failed(None, f"no answer within {self._timeout:g} s", key)
        except openai.APIStatusError as error:
            wait, spent = retry_after(error.response.headers), error.code == "insufficient_quota"
            failure = self._failed(error.status_code, said_in(error.response.text), key, wait=wait, spent=spent)
        except openai.APIConnectionError as error:
            failure = self._failed(None, f"{error.message} {error.__cause__ or ''}", key)
        except BadBody as error:
            failure = self._failed(error.status, str(error), key)
        except openai.OpenAIError as error:
            failure = self._failed(200, str(error), key)
        raise failure  # outside of the handlers: the error carries no request, whose headers hold the key

    def _connect(self) -> tuple[AsyncOpenAI, Gate]:
        """The client and the gate of the running event loop."""
        import openai

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._gate = Gate(self._concurrency)
            self._client = openai.AsyncOpenAI(
                base_url=self.base_url, api_key="none", timeout=self._timeout, max_retries=0
            )
        return self._client, self._gate

    def _failed(
        self, status: int | None, message: str, key: str, *, wait: float | None = None, spent: bool = False
    ) -> ModelError:
        """A typed error without the key, whatever the endpoint echoed. `spent`: the account has no money left."""
        said = " ".join((message.replace(key, "[key]") if key else message).split())[:300]
        retryable = (status is None or status in (408, 409, 429) or status >= 500) and not spent
        mend = {
            401: f"set {self._key_env} to a valid key",
            403: f"set {self._key_env} to a key that may use this model",
            404: "check base_url and model",
            429: "top up the account" if spent else "wait, or lower the concurrency",
        }.get(status or 0, "check that the endpoint runs" if retryable else "check the request and the model")
        return ModelError(
            f"{self.model} at {self.base_url} failed ({status or 'no connection'}: {said}): {mend}.",
            retryable=retryable,
            status=status,
            rate_limited=status == 429 and not spent,
            retry_after=wait,
        )


def _backoff(attempt: int) -> float:
    """Seconds before retry `attempt`, spread so that calls that failed together do not come again together."""
    grown: float = FIRST_BACKOFF * 2**attempt
    return min(LONGEST_BACKOFF, grown) * random.uniform(0.75, 1.25)
