"""What a dotted name `package.module:name` of a config stands for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from providers.errors import ConfigError


def load_named(kind: str, name: str, setting: str = "") -> Callable[..., Any]:
    """The class or function `name`. `kind` says in errors what it is for, `setting` where it is asked for.

    Raises:
        ConfigError: it is no dotted name, or there is nothing of this name that can be called.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"the {kind} needs {setting or 'a dotted name'} as package.module:name, not {name!r}")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"the {kind} {name!r} cannot be imported ({error}): install its package or mend the path"
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ConfigError(f"the {kind} {name!r} cannot be used: {module_name} has no {attribute} that can be called")
    return found  # type: ignore[no-any-return]
