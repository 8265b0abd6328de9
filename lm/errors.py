"""The errors that every room shares. Each names the thing that failed and the mend."""


class MemrouteError(Exception):
    """Base of all errors that memroute raises on purpose; its text is one sentence a user can act on."""


class ModelError(MemrouteError):
    """A chat model failed or answered something unreadable; `retryable` says whether asking again may help.

    `status` is the HTTP status where there was one, `rate_limited` marks an endpoint that asks for fewer calls, and
    `retry_after` is the wait in seconds that it names.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        status: int | None = None,
        rate_limited: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.status = status
        self.rate_limited = rate_limited
        self.retry_after = retry_after


class AnswerError(ModelError):
    """The model answers, but not in the form that was asked for, even when told what is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)
