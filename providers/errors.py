"""Typed errors of all rooms (DESIGN section 8), raised with the thing's name and the mend."""

from lm.errors import MemrouteError, ModelError


class ConfigError(MemrouteError):
    """The call or the config is wrong (exit code 2)."""


class ProviderError(MemrouteError):
    """A memory provider failed; never to be read as "nothing found"."""


class BankError(MemrouteError):
    """The bank file is damaged, locked, full or of another kind."""


class AgentError(MemrouteError):
    """A task agent failed; the episode ends with this as its error."""


class JudgeError(MemrouteError):
    """A judge gave no readable verdict; the decision stays unscored."""


class SuiteError(MemrouteError):
    """A task suite cannot give its tasks, serve its tools or score an answer."""


class EngineError(MemrouteError):
    """The model engine (training or serving) cannot run."""


__all__ = [
    "AgentError",
    "BankError",
    "ConfigError",
    "EngineError",
    "JudgeError",
    "MemrouteError",
    "ModelError",
    "ProviderError",
    "SuiteError",
]
