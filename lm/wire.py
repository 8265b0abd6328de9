"""What endpoints send: bodies of status 200, errors and their headers, read once and validated."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from lm.types import Completion, TokenLogprob, ToolCall, Usage


class _Function(BaseModel):
    name: str
    arguments: str | dict[str, Any] = ""


class _Call(BaseModel):
    id: str | None = None
    function: _Function


class _Said(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Alternative(BaseModel):
    token: str
    logprob: float


class _Token(_Alternative):
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class BadBody(Exception):
    """A body of status 200 that is no answer; `status` is the one that it names inside, 200 where it names none."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


def read_body(text: str) -> Completion:
    """The completion in a body of status 200. Raises BadBody where it is an error, no JSON, or holds no answer."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise BadBody(f"the response is no JSON: {text[:80]!r}") from None
    problem = body.get("error") if isinstance(body, dict) else None
    if problem:
        code = problem.get("code") if isinstance(problem, dict) else None
        raise BadBody(said_in(text), int(str(code)) if str(code).isdecimal() else 200)
    try:
        return _completion(_Body.model_validate(body))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "the body"
        raise BadBody(f"the response holds no choices that can be read ({where})") from None


def said_in(text: str) -> str:
    """What an error's body says: its message where it has one, else the body itself."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return text
    problem = body.get("error", body) if isinstance(body, dict) else body
    message = problem.get("message", problem) if isinstance(problem, dict) else problem
    return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The wait in seconds that a response's headers name, as a number or a date; None where they name none."""
    milliseconds, named = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(0.0, float(milliseconds) / 1000)
        if named is None:
            return None
        if named.strip().replace(".", "", 1).isdecimal():
            return float(named)
        return max(0.0, email.utils.parsedate_to_datetime(named).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _completion(body: _Body) -> Completion:
    choice, usage = body.choices[0], body.usage
    counted = usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None
    return Completion(
        text=choice.message.content or choice.message.refusal or "",
        finish_reason=choice.finish_reason or "",
        tool_calls=tuple(
            ToolCall(id=call.id or f"call_{place}", name=call.function.name, arguments=_text(call.function.arguments))
            for place, call in enumerate(choice.message.tool_calls or ())
        ),
        logprobs=tuple(_token(token) for token in choice.logprobs.content)
        if choice.logprobs is not None and choice.logprobs.content
        else None,
        usage=Usage.model_validate(usage.model_dump()) if usage is not None and counted else None,
    )


def _text(arguments: str | dict[str, Any]) -> str:
    """Some servers send the arguments as an object instead of its JSON."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _token(token: _Token) -> TokenLogprob:
    return TokenLogprob(
        token=token.token,
        logprob=token.logprob,
        top={other.token: other.logprob for other in token.top_logprobs or ()},
    )
