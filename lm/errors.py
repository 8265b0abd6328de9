"""The errors that every room shares. Each names the thing that failed and the mend."""


class MemrouteError(Exception):
    """Base of all errors that memroute raises on purpose; its text is one sentence a user can act on."""


class ModelError(MemrouteError):
    """A chat model failed or answered something unreadable; `retryable` says whether asking again may help."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable
