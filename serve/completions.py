"""Requests to an OpenAI-compatible engine: the log-odds at marks, and answers under a JSON schema."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from lm.types import Completion
from lm.wire import BadBody, read_body, said_in
from router.marks import Encoded
from serve.failures import EngineFailure

if TYPE_CHECKING:
    import httpx

MOST_PROMPTS = 64
"""Prompts of one request; an engine computes what they share once."""


class _Logprobs(BaseModel):
    top_logprobs: list[dict[str, float] | None] = Field(min_length=1)


class _Choice(BaseModel):
    index: int
    logprobs: _Logprobs | None = None


class _Scored(BaseModel):
    choices: list[_Choice]


class EngineClient:
    """Asks one model of one engine. Every method raises `EngineFailure`.

    `timeout` is the time in seconds of one request to its last byte. A client may be used from several event loops,
    one after another, and from threads.
    """

    def __init__(self, base_url: str, model: str, *, key: str = "", timeout: float = 10.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.timeout = timeout
        self.key = key
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    async def log_odds(self, prompts: Sequence[Encoded], yes: int, no: int) -> list[list[float]]:
        """logit(yes) - logit(no) after every mark, prompt by prompt."""
        found: list[float] = []
        for request in self._mark_requests(prompts, yes, no):
            found += self._read_odds(await self._post("completions", request), len(request["prompt"]), yes, no)
        return _by_prompt(prompts, found)

    def log_odds_now(self, prompts: Sequence[Encoded], yes: int, no: int) -> list[list[float]]:
        """As `log_odds`, for callers without an event loop."""
        found: list[float] = []
        for request in self._mark_requests(prompts, yes, no):
            found += self._read_odds(self._post_now("completions", request), len(request["prompt"]), yes, no)
        return _by_prompt(prompts, found)

    async def answer(self, prompt: str, schema: Mapping[str, Any], *, max_tokens: int) -> Completion:
        """The greedy answer to a prompt as a user turn, under a grammar made from `schema`.

        Raises `EngineFailure` (cut) where it did not end within `max_tokens`.
        """
        request = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0.0,
            "max_tokens": max_tokens,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "decision", "schema": dict(schema), "strict": True},
            },
            "chat_template_kwargs": {"enable_thinking": False},
        }
        text = await self._post("chat/completions", request)
        try:
            completion = read_body(text)
        except BadBody as error:
            raise self._failed("invalid", f"sent no answer ({error})") from error
        if completion.finish_reason == "length":
            raise self._failed("cut", f"did not end its answer within {max_tokens} tokens: {completion.text[:80]!r}")
        return completion

    async def models(self) -> list[str]:
        """The names of the models that the engine serves; says at the same time that it is there."""
        text = await self._send("GET", "models", None)
        try:
            return [str(model["id"]) for model in json.loads(text)["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise self._failed("refused", "lists no models: check that its address ends in /v1") from error

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _mark_requests(self, prompts: Sequence[Encoded], yes: int, no: int) -> list[dict[str, Any]]:
        """One short prompt per mark: the tokens up to it. Each is the beginning of the next, so an engine that caches
        prefixes computes every token once."""
        starts = [list(prompt.tokens[: mark + 1]) for prompt in prompts for mark in prompt.marks]
        return [
            {
                "model": self.model,
                "prompt": starts[first : first + MOST_PROMPTS],
                "max_tokens": 1,
                "temperature": 0.0,
                "logprobs": 1,
                "logprob_token_ids": [yes, no],
                "return_tokens_as_token_ids": True,
            }
            for first in range(0, len(starts), MOST_PROMPTS)
        ]

    def _read_odds(self, text: str, asked: int, yes: int, no: int) -> list[float]:
        try:
            choices = sorted(_Scored.model_validate_json(text).choices, key=lambda choice: choice.index)
        except ValidationError as error:
            raise self._failed("invalid", "sent no log-probabilities that can be read") from error
        if [choice.index for choice in choices] != list(range(asked)):
            raise self._failed("invalid", f"sent {len(choices)} choices for {asked} prompts")
        return [self._odds(choice, yes, no) for choice in choices]

    def _odds(self, choice: _Choice, yes: int, no: int) -> float:
        given = choice.logprobs.top_logprobs[0] if choice.logprobs is not None else None
        found = [(given or {}).get(f"token_id:{token}") for token in (yes, no)]
        if found[0] is None or found[1] is None:
            raise self._failed(
                "refused",
                "does not give the log-probabilities of the tokens that were asked for (logprob_token_ids): "
                "serve the router with the vLLM that scripts/setup_engine installs",
            )
        odds = found[0] - found[1]
        if not math.isfinite(odds):
            raise self._failed("invalid", f"gave the log-probabilities {found[0]} and {found[1]}")
        return odds

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    async def _post(self, path: str, request: Mapping[str, Any]) -> str:
        return await self._send("POST", path, request)

    async def _send(self, method: str, path: str, request: Mapping[str, Any] | None) -> str:
        import httpx

        try:
            async with asyncio.timeout(self.timeout):
                response = await self._connect().request(
                    method, f"{self.base_url}/{path}", json=request, headers=self._headers
                )
            return self._body(response)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise self._failed("slow", f"gave no answer within {self.timeout:g} s") from error
        except httpx.HTTPError as error:
            raise self._failed("down", f"cannot be reached ({str(error) or type(error).__name__})") from error

    def _post_now(self, path: str, request: Mapping[str, Any]) -> str:
        import httpx

        try:
            url = f"{self.base_url}/{path}"
            return self._body(httpx.post(url, json=request, headers=self._headers, timeout=self.timeout))
        except httpx.TimeoutException as error:
            raise self._failed("slow", f"gave no answer within {self.timeout:g} s") from error
        except httpx.HTTPError as error:
            raise self._failed("down", f"cannot be reached ({str(error) or type(error).__name__})") from error

    def _body(self, response: httpx.Response) -> str:
        if response.is_success:
            return response.text
        said = " ".join(said_in(response.text).split())[:300]
        kind: Any = "down" if response.status_code >= 500 or response.status_code in (408, 429) else "refused"
        raise self._failed(kind, f"answered {response.status_code} ({said})")

    def _connect(self) -> httpx.AsyncClient:
        """The client of the running event loop."""
        import httpx

        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients = {known: client for known, client in self._clients.items() if not known.is_closed()}
            self._clients[loop] = httpx.AsyncClient(timeout=None)
        return self._clients[loop]

    def _failed(self, kind: Any, what: str) -> EngineFailure:
        """Without the key, whatever the engine echoed."""
        hidden = what.replace(self.key, "[key]") if self.key else what
        return EngineFailure(f"The engine at {self.base_url} {hidden}.", kind=kind)


def _by_prompt(prompts: Sequence[Encoded], flat: Sequence[float]) -> list[list[float]]:
    values = iter(flat)
    return [[next(values) for _ in prompt.marks] for prompt in prompts]
