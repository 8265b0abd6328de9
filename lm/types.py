"""What goes to a chat model and what comes back."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(_Frozen):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(_Frozen):
    """Tokens of one call, as the endpoint counts them."""

    prompt_tokens: int
    completion_tokens: int


class TokenLogprob(_Frozen):
    """A generated token, its natural-log probability, and the likeliest tokens at its place."""

    token: str
    logprob: float
    top: dict[str, float]


class Completion(_Frozen):
    """An answer. `logprobs` is None where they were not asked for, `usage` None where the endpoint gave none."""

    text: str
    finish_reason: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    usage: Usage | None = None
