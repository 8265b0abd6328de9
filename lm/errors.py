"""The errors that every room shares. Each names the thing that failed and the mend."""


class MemrouteError(Exception):
    """Base of all errors that memroute raises on purpose; its text is one sentence a user can act on."""


class ModelError(MemrouteError):
    """A chat model failed or answered something unreadable; `retryable` says whether asking again may help."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class AnswerError(ModelError):
    """The model answers, but not in the form that was asked for, even when told what is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)
