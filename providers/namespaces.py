"""Namespaces: whose memories these are, as `tenant`, `tenant/user` or `tenant/user/project`."""

from __future__ import annotations

import unicodedata

from providers.errors import ConfigError

DEFAULT = "default"
HOUSE = "memroute_"
"""How the names of spaces begin that hold no memories, only what memroute itself notes in a bank."""
STAGES = f"{HOUSE}stages"
"""The space that notes which batches of runs a bank has taken in; it outlives forgetting, or a run that is continued
would take them in anew."""
LEVELS = 3
PART_CHARACTERS = 64


def checked_namespace(namespace: str) -> str:
    """The namespace as it was given. Raises ConfigError where it is none.

    It has one to three parts of printable characters in composed Unicode form (NFC), so that two names that look the
    same are the same; `.` and `..`, backslashes and outer blanks are refused.
    """
    parts = namespace.split("/")
    if not namespace:
        raise ConfigError("A namespace is needed: give tenant, tenant/user or tenant/user/project.")
    if len(parts) > LEVELS or not all(_is_part(part) for part in parts):
        raise ConfigError(
            f"{namespace!r} is not a namespace: give tenant, tenant/user or tenant/user/project, each of at most "
            f"{PART_CHARACTERS} printable characters, without backslashes and not dots alone."
        )
    return namespace


def within(namespace: str, scope: str) -> bool:
    """Whether `namespace` is `scope` or lies below it: `acme/ann/trip` is within `acme/ann` and `acme`."""
    return namespace == scope or namespace.startswith(scope + "/")


def _is_part(part: str) -> bool:
    return (
        0 < len(part) <= PART_CHARACTERS
        and part == part.strip()
        and part.isprintable()
        and "\\" not in part
        and part.strip(".") != ""
        and unicodedata.is_normalized("NFC", part)
    )
