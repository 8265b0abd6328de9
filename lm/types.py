"""What goes to a chat model and what comes back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Purpose = Literal["agent", "distiller", "judge", "verifier", "router", "scorer", "vision", "audio"]
"""What a chat model is asked for; calls, tokens and money are counted by it."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Frozen):
    """A call that a model asks for. `arguments` is what it wrote: JSON, if it kept to the rules."""

    id: str
    name: str
    arguments: str


class ToolSpec(_Frozen):
    """A tool as a model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]

    def wire(self) -> dict[str, Any]:
        """As chat endpoints spell it."""
        return {"type": "function", "function": self.model_dump()}


class Media(_Frozen):
    """A picture or recording that is sent with a turn: its format (`png`, `mp3` ...) and its bytes in base64."""

    kind: Literal["image", "audio"]
    format: str
    data: str

    def wire(self) -> dict[str, Any]:
        """As chat endpoints spell it."""
        if self.kind == "image":
            return {"type": "image_url", "image_url": {"url": f"data:image/{self.format};base64,{self.data}"}}
        return {"type": "input_audio", "input_audio": {"data": self.data, "format": self.format}}


class Message(_Frozen):
    """One turn of a chat. `tool_calls` belong to an assistant's turn, `tool_call_id` to a tool's answer."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    media: tuple[Media, ...] = ()

    def wire(self) -> dict[str, Any]:
        """As chat endpoints spell it; half a surrogate pair, which no JSON body can carry, becomes "?"."""
        turn: dict[str, Any] = {"role": self.role, "content": self.content.encode("utf-8", "replace").decode()}
        if self.media:
            turn["content"] = [{"type": "text", "text": turn["content"]}, *(one.wire() for one in self.media)]
        if self.tool_calls:
            turn["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.tool_call_id:
            turn["tool_call_id"] = self.tool_call_id
        return turn


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
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    usage: Usage | None = None

    @property
    def empty(self) -> bool:
        return not self.text.strip() and not self.tool_calls
