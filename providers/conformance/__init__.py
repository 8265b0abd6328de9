"""The kit that every memory provider must pass, ours and those of other packages.

From a test of another package:

    from providers.conformance import PROPERTIES, require

    @pytest.mark.parametrize("name", PROPERTIES)
    def test_conformance(name, tmp_path):
        require("my_package.memory:MyProvider", name, tmp_path)

From the command line: `memroute providers check my_package.memory:MyProvider`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from providers.conformance.bench import Bench, NotConforming
from providers.conformance.properties import PROPERTIES
from providers.errors import ConfigError
from providers.registry import provider_class
from providers.types import Flow

__all__ = ["PROPERTIES", "Check", "NotConforming", "check_providers", "print_checks", "properties_list", "require"]


class Check(Flow):
    """One property of one provider: whether it holds, why not, or what was seen."""

    provider: str
    property: str
    passed: bool
    detail: str
    seconds: float


def require(provider: str, property_name: str, folder: Path) -> str:
    """Check one property in an empty folder; gives what was seen, raises NotConforming or the provider's own error."""
    _known([property_name])
    return asyncio.run(PROPERTIES[property_name](Bench(provider, folder))) or ""  # type: ignore[arg-type]


def check_providers(providers: Sequence[str], properties: Sequence[str] = tuple(PROPERTIES)) -> Iterator[Check]:
    """Check every property of every provider, each in a folder of its own that is removed afterwards.

    Whatever a provider raises is a failed check with its reason; ConfigError where a name is no provider's or no
    property's.
    """
    _known(properties)
    for name in providers:
        provider_class(name)
    for name in providers:
        for property_name in properties:
            yield _check(name, property_name)


def properties_list() -> str:
    """A Markdown list of the properties, as `docs/providers.md` holds it."""
    lines = []
    for name, check in PROPERTIES.items():
        lines.append(f"- `{name}`: {' '.join((check.__doc__ or '').split())}")
    return "\n".join(lines) + "\n"


def _known(properties: Sequence[str]) -> None:
    for name in properties:
        if name not in PROPERTIES:
            raise ConfigError(f"There is no property {name!r}: there are {', '.join(PROPERTIES)}.")


def _check(provider: str, property_name: str) -> Check:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="memroute-check-") as folder:
        try:
            detail, passed = require(provider, property_name, Path(folder)), True
        except NotConforming as failure:
            detail, passed = str(failure), False
        except Exception as error:  # noqa: BLE001 - a provider under test may raise anything; its row says what
            detail, passed = f"{type(error).__name__}: {error}", False
    return Check(
        provider=provider,
        property=property_name,
        passed=passed,
        detail=detail,
        seconds=round(time.monotonic() - began, 3),
    )


def print_checks(checks: Iterable[Check]) -> list[Check]:
    """Print each check as it ends, one line each, and give them all."""
    seen = []
    for check in checks:
        seen.append(check)
        mark = "ok" if check.passed else "FAILED"
        print(f"{check.provider:<16} {check.property:<22} {mark:<7} {check.detail}", flush=True)
    failed = sum(not check.passed for check in seen)
    print(f"{failed} of {len(seen)} checks failed." if failed else f"All {len(seen)} checks passed.")
    return seen
