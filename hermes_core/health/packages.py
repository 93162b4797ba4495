"""Distributions that are installed more than once: which one an import gets is then a matter of luck."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hermes_core.health.finding import Finding
from hermes_core.loader.discover import GROUPS, normalise

CORE = "hermes-memory-core"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError)


@dataclass(frozen=True, slots=True)
class Installed:
    """One place where a distribution is installed."""

    version: str
    path: str


def examine_packages(requires: Iterable[str] = ()) -> Iterator[Finding]:
    """Providers, this package, and what `requires` names (requirements), found in two versions or more."""
    wanted = {CORE, *(normalise(match[0]) for need in requires if (match := _NAME.match(need)))}
    for distribution in importlib.metadata.distributions():
        with contextlib.suppress(*_BROKEN):  # the loader names damaged metadata
            if any(point.group in GROUPS for point in distribution.entry_points):
                wanted.add(normalise(distribution.metadata["Name"]))
    for name in sorted(wanted):
        installed = list(dict.fromkeys(_places(name)))
        if len({one.version for one in installed}) > 1:
            yield Finding(
                f"package {name}",
                "warning",
                f"{len(installed)} versions are installed: "
                + ", ".join(f"{one.version} in {one.path}" for one in installed),
                f"python -m pip uninstall {name} until it says that nothing is installed, then install it once",
            )


def _places(name: str) -> Iterator[Installed]:
    """Where it is installed, also in a version that was no provider yet."""
    for distribution in importlib.metadata.distributions(name=name):
        with contextlib.suppress(*_BROKEN):
            yield Installed(distribution.version, str(distribution.locate_file("")))
