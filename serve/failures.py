"""What goes wrong between the service and its engine, typed so that the service can act on it."""

from __future__ import annotations

from typing import Literal

from providers.errors import EngineError

FailureKind = Literal["down", "slow", "invalid", "cut", "refused"]
"""`down`: not running, starting or unreachable; `slow`: no answer in time; `invalid`: an answer that is no decision;
`cut`: one that ended at the token limit; `refused`: the engine says no, or is not the one that the router needs."""


class EngineFailure(EngineError):
    """A decision that the engine did not give. All but `refused` may pass by themselves."""

    def __init__(self, message: str, *, kind: FailureKind) -> None:
        super().__init__(message)
        self.kind = kind
