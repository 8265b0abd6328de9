"""What a language-model agent is shown at a step: the task, its memory, and as much of its steps as has room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lm.types import Message


@dataclass(frozen=True)
class Exchange:
    """One step as the model sees it: its own turn, and what came back."""

    said: Message
    observation: str

    def turns(self, observation: str) -> tuple[Message, Message]:
        """Both turns, with `observation` in the place of what came back."""
        if self.said.tool_calls:
            call = self.said.tool_calls[0]
            return self.said, Message(role="tool", content=observation, tool_call_id=call.id)
        return self.said, Message(role="user", content=f"Observation:\n{observation}")

    @property
    def said_chars(self) -> int:
        return len(self.said.content) + sum(len(call.arguments) for call in self.said.tool_calls)


def transcript(
    system: str,
    opening: Callable[[int], str],
    exchanges: Sequence[Exchange],
    note: str,
    *,
    limit: int,
    latest: int,
) -> list[Message]:
    """The messages of the next step, at most `limit` characters where that can be.

    System prompt, task with memory, the `latest` steps and `note` (working memory, a last call) always stand whole.
    Of earlier steps first the observations are left out, oldest first, then the steps. `opening` is given how many.
    """
    room = limit - len(system) - len(opening(0)) - len(note)
    shown, left_out = _fit(exchanges, room, latest)
    messages = [Message(role="system", content=system), Message(role="user", content=opening(left_out))]
    for exchange, observation in zip(exchanges[left_out:], shown, strict=True):
        messages += exchange.turns(observation)
    if not note:
        return messages
    if messages[-1].role == "user":
        return [*messages[:-1], Message(role="user", content=f"{messages[-1].content}\n\n{note}")]
    return [*messages, Message(role="user", content=note)]


def _fit(exchanges: Sequence[Exchange], room: int, latest: int) -> tuple[list[str], int]:
    """The observations to show, and how many of the first steps to leave out with them."""
    shown = [exchange.observation for exchange in exchanges]
    used = sum(exchange.said_chars for exchange in exchanges) + sum(map(len, shown))
    old = max(0, len(exchanges) - latest)
    for place in range(old):
        if used <= room:
            break
        brief = f"({len(shown[place])} characters, left out here)"
        if len(brief) < len(shown[place]):
            used -= len(shown[place]) - len(brief)
            shown[place] = brief
    left_out = 0
    while used > room and left_out < old:
        used -= exchanges[left_out].said_chars + len(shown[left_out])
        left_out += 1
    return shown[left_out:], left_out
