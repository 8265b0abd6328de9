"""Who may call: bearer keys with a namespace and rights. Keys are kept as hashes, and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field, ValidationError

from providers.errors import ConfigError
from providers.files import write_atomically
from providers.namespaces import DEFAULT, checked_namespace, within
from providers.types import Flow
from serve.errors import Refusal

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")
"""`read`: begin, step and route. `write`: end and outcome, which store. `admin`: both, forget, audit and metrics."""

LEAST_CHARACTERS = 16
"""Of a key that is given in the environment."""
ANYWHERE = "*"
"""In a key file: all namespaces."""


class Key(Flow):
    """One line of a key file."""

    name: str = Field(min_length=1, max_length=100)
    """Stands in the audit log and in counts; the key itself nowhere."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    namespace: str
    """The namespace that it reaches, with those below it; `*` reaches all."""
    rights: tuple[Right, ...] = ("read", "write")


class KeyFile(Flow):
    """The keys of a server."""

    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Caller:
    """Who sent a request, and what they may do."""

    key: str
    scope: str
    rights: frozenset[str]

    def need(self, right: Right) -> None:
        """Raises Refusal 403 without that right; `admin` includes the others."""
        if right not in self.rights and "admin" not in self.rights:
            raise Refusal(403, f"The key {self.key!r} has no right to {right}.")

    def reaches(self, namespace: str) -> bool:
        return self.scope == ANYWHERE or within(namespace, self.scope)

    def namespace(self, asked: str | None) -> str:
        """The namespace that is asked for, or the caller's own. Raises Refusal 422 for none, 403 for others'."""
        namespace = asked if asked is not None else DEFAULT if self.scope == ANYWHERE else self.scope
        try:
            checked_namespace(namespace)
        except ConfigError as error:
            raise Refusal(422, str(error)) from error
        if not self.reaches(namespace):
            raise Refusal(403, f"The key {self.key!r} does not reach the namespace {namespace!r}.")
        return namespace


ANONYMOUS = Caller("anonymous", ANYWHERE, frozenset(RIGHTS))
"""Whoever calls a server on loopback that has no keys."""


class Keys:
    """All keys of a server; without any, only a server on loopback answers, and everyone may do everything there."""

    def __init__(self, keys: Sequence[Key]) -> None:
        names = [key.name for key in keys]
        if len(set(names)) < len(names):
            raise ConfigError(
                "Two keys of the server have one name; give each its own, the audit log tells them apart."
            )
        for key in keys:
            if key.namespace != ANYWHERE:
                checked_namespace(key.namespace)
        self._keys = tuple(keys)

    @classmethod
    def load(cls, path: Path | None, variable: str) -> Keys:
        """The keys of a file and of an environment variable. Raises ConfigError where either cannot be used."""
        keys = list(read_keys(path)) if path is not None else []
        given = os.environ.get(variable, "")
        if given:
            if len(given) < LEAST_CHARACTERS:
                raise ConfigError(
                    f"The key in {variable} is too short: give it at least {LEAST_CHARACTERS} characters."
                )
            keys.append(Key(name=variable, sha256=hash_of(given), namespace=ANYWHERE, rights=RIGHTS))
        return cls(keys)

    @property
    def anonymous(self) -> bool:
        """Whether there is no key, so that everyone who reaches the server may do everything."""
        return not self._keys

    def check_host(self, host: str) -> None:
        """Raises ConfigError where a server without keys would listen on more than loopback."""
        if self.anonymous and not is_loopback(host):
            raise ConfigError(
                f"The server would listen on {host} without keys: make one with `memroute serve CONFIG --new-key NAME` "
                "and set serve.keys_file, or listen on 127.0.0.1."
            )

    def caller(self, authorization: str | None) -> Caller:
        """Whose key the header `Authorization: Bearer KEY` holds. Raises Refusal 401 where it is none of ours."""
        if self.anonymous:
            return ANONYMOUS
        scheme, _, presented = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not presented.strip():
            raise Refusal(401, "A key is needed: send it as `Authorization: Bearer KEY`.")
        sent = hash_of(presented.strip())
        found = None
        for key in self._keys:  # all of them, whichever fits, so that the time tells nothing
            if hmac.compare_digest(key.sha256, sent):
                found = key
        if found is None:
            raise Refusal(401, "The key is none of this server's.")
        return Caller(found.name, found.namespace, frozenset(found.rights))


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether an address, or the host of a `Host` header, is this machine's own."""
    if host.strip("[]").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file. Raises ConfigError where it is missing or not as it should be."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return KeyFile.model_validate(values or {}).keys
    except FileNotFoundError as error:
        raise ConfigError(f"There is no key file {path}; `memroute serve CONFIG --new-key NAME` makes one.") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(
            f"The key file {path} cannot be used: it holds `keys:`, each with name, sha256, namespace and rights."
        ) from error


def add_key(path: Path, name: str, namespace: str, rights: Sequence[str]) -> str:
    """Make a key, add its hash to the file, and return the key: it stands nowhere else."""
    present = read_keys(path) if path.exists() else ()
    key = "mr-" + secrets.token_urlsafe(32)
    try:
        added = Key.model_validate({"name": name, "sha256": hash_of(key), "namespace": namespace, "rights": rights})
    except ValidationError as error:
        raise ConfigError(f"A key has a name, a namespace and rights among {', '.join(RIGHTS)}.") from error
    keys = (*present, added)
    Keys(keys)
    content = yaml.safe_dump(KeyFile(keys=keys).model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_atomically(path, content)
    path.chmod(0o600)
    return key
