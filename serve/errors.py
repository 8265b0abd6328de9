"""What a caller is told when a request is not served: a status and one sentence."""

from __future__ import annotations

import errno
import sqlite3

from providers.errors import BankError, ConfigError, MemrouteError, ProviderError


class Refusal(MemrouteError):
    """A request that is not served, with its HTTP status; `retry_after` is in seconds."""

    def __init__(self, status: int, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after


DISK_FULL = "The disk of the server is full: nothing of this request was acknowledged; send it again later."


def refusal_of(error: MemrouteError | OSError | sqlite3.Error) -> Refusal:
    """The refusal for an error of the layers below; its words name no path of the server."""
    if isinstance(error, Refusal):
        return error
    if is_disk_full(error):
        return Refusal(507, DISK_FULL, retry_after=30.0)
    if isinstance(error, ConfigError):
        return Refusal(422, str(error))
    if isinstance(error, BankError | sqlite3.Error | OSError):
        return Refusal(503, "The memories cannot be used at the moment; send the request again later.", retry_after=5.0)
    if isinstance(error, ProviderError):
        return Refusal(503, "A memory failed; send the request again later.", retry_after=5.0)
    return Refusal(503, "The server cannot do this at the moment; send the request again later.", retry_after=5.0)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is a full disk."""
    while error is not None:
        if isinstance(error, sqlite3.Error) and (getattr(error, "sqlite_errorname", "") or "").startswith(
            ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC")
        ):
            return True
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False
