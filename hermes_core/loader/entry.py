"""The values of this room: what was found, what may be loaded, and the line that a listing shows for each provider."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hermes_core.config import ProvidersConfig, load_config
from hermes_core.contract.values import BUILTIN_NAME
from hermes_core.errors import HermesError
from hermes_core.home import HermesHome

Kind = Literal["native", "hermes_agent"]
State = Literal["active", "idle", "degraded", "failed", "blocked", "shadowed", "unavailable"]

BUNDLED: dict[str, str] = {
    "holographic": "hermes-memory-holographic",
    "honcho": "hermes-memory-honcho",
    "mem0": "hermes-memory-mem0",
    "byterover": "hermes-memory-byterover",
    "openviking": "hermes-memory-openviking",
    "hindsight": "hermes-memory-hindsight",
    "retaindb": "hermes-memory-retaindb",
    "supermemory": "hermes-memory-supermemory",
}
"""Names of our own providers and the distribution that each comes from. Nobody else may use these names."""

FOLDER_PACKAGE = "_hermes_user_memory"
"""The package that modules of plugin folders are imported below."""


def normalised(distribution: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def required(need: str) -> str:
    """The distribution that a requirement names, as package indexes compare it."""
    return normalised(re.split(r"[^\w.-]", need.strip(), maxsplit=1)[0])


def owner_of(name: str) -> str:
    """The distribution that a reserved provider name belongs to, "" for a free name."""
    folded = name.strip().casefold()
    return "hermes-memory-core" if folded == BUILTIN_NAME else BUNDLED.get(folded, "")


@dataclass(frozen=True, slots=True)
class ExternalTool:
    """A program that a provider needs beside Python: `check` is the command that works when it is there."""

    name: str
    check: str = ""
    install: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """One place that a provider of this `name` could be loaded from, known from metadata alone.

    `source` is the entry-point group or the folder below the home; `value` is the entry point's target, "" for a
    folder. `path` is the file or folder of the code, when it can be told without importing. `shadowed_by` says what
    takes precedence, "" for the place that counts.
    """

    name: str
    kind: Kind
    source: str
    value: str = ""
    distribution: str = ""
    version: str = ""
    path: Path | None = None
    description: str = ""
    requires: tuple[str, ...] = ()
    tools: tuple[ExternalTool, ...] = ()
    bundled: bool = False
    shadowed_by: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder below the home rather than an entry point."""
        return not self.value

    @property
    def where(self) -> str:
        """The place for people to read: distribution and target, and the path."""
        label = f"{self.distribution or 'entry point'} {self.value}" if self.value else ""
        return f"{label} ({self.path})" if label and self.path else label or str(self.path)

    def shadowed(self, winner: str) -> Found:
        """The same place, known to lose against `winner`."""
        return replace(self, shadowed_by=winner)


@dataclass(frozen=True, slots=True)
class LoadControl:
    """Which providers may be loaded. Each word is a provider's name or that of its distribution, in any case.

    `allow` None means all, an empty set none; `block` is stronger than `allow`.
    """

    allow: frozenset[str] | None = None
    block: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow", None if self.allow is None else _words(self.allow))
        object.__setattr__(self, "block", _words(self.block))

    @classmethod
    def of(cls, rules: ProvidersConfig) -> LoadControl:
        """What config.yaml lets load."""
        return cls(None if rules.allow is None else frozenset(rules.allow), frozenset(rules.block))

    @classmethod
    def of_home(cls, home: HermesHome) -> LoadControl:
        """What config.yaml of this home, and the environment, let load. Raises `ConfigError`."""
        return cls.of(load_config(home).providers)

    def refusal(self, found: Found) -> str:
        """Why this one may not be loaded, "" when it may."""
        return self.refuses(found.name, found.distribution)

    def refuses(self, name: str, distribution: str) -> str:
        """Why what `distribution` offers under `name` may not be loaded, "" when it may."""
        names = {name.casefold(), normalised(distribution)} - {""}
        blocked = names & self.block
        if blocked:
            return f"{min(blocked)!r} is on the block list"
        if self.allow is not None and not names & self.allow:
            return f"{name!r} is not on the allow list"
        return ""


def _words(names: Iterable[str]) -> frozenset[str]:
    folded = {name.strip().casefold() for name in names} - {""}
    return frozenset(folded | {normalised(name) for name in folded})


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One line of the listing that command line, doctor, MCP and tests read alike.

    `reason` and `remedy` say why it is not usable and what to do; both are "" for `active` and `idle`. `installed` is
    False for our own providers that are not in this environment. `notes` tell of one that is loaded what its package
    registered that has no effect here.
    """

    name: str
    distribution: str = ""
    version: str = ""
    source: str = ""
    path: str = ""
    kind: Kind = "native"
    state: State = "idle"
    reason: str = ""
    remedy: str = ""
    description: str = ""
    installed: bool = True
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Found, state: State = "idle", reason: str = "", remedy: str = "") -> ProviderEntry:
        """The line for what was found."""
        return cls(
            name=found.name,
            distribution=found.distribution,
            version=found.version,
            source=found.source,
            path=str(found.path or ""),
            kind=found.kind,
            state=state,
            reason=reason,
            remedy=remedy,
            description=found.description,
        )

    def failed(self, error: HermesError, state: State = "failed") -> ProviderEntry:
        """The same line after this error."""
        return replace(self, state=state, reason=error.message, remedy=error.remedy)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, keys as the fields."""
        return {name: getattr(self, name) for name in self.__slots__}
