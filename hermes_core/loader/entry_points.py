"""Entry points of providers, observers and extensions, read from metadata alone, and the lists that allow and block them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Literal

import importlib_metadata
from msgspec import Struct

from hermes_core.config import ExtensionsConfig, ProvidersConfig, load_config
from hermes_core.contract.extensions import EXTENSION_GROUP
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.packages import name_and_version

logger = logging.getLogger(__name__)

ProviderKind = Literal["native", "hermes_agent"]

# This group has Hermes Agent plugins of any sort, so a memory provider in it is recognised by its source
# text.
PLUGIN_GROUP = "hermes_agent.plugins"

OBSERVER_GROUP = "hermes_core.observers"
"""The entry-point group of observers."""

# In order of precedence. Installers of published providers used all of these spellings.
GROUPS: dict[str, ProviderKind] = {
    "hermes_core.providers": "native",
    "hermes_agent.memory_providers": "hermes_agent",
    "hermes.memory_provider": "hermes_agent",
    "hermes.memory_providers": "hermes_agent",
    "hermes.memory": "hermes_agent",
    PLUGIN_GROUP: "hermes_agent",
}

# importlib_metadata reads files that any installer wrote: damaged ones raise from deep inside its parsers.
DAMAGED_METADATA = (OSError, ValueError, TypeError, LookupError, AttributeError)


class LoadControl(Struct, frozen=True):
    """An allow list and a block list of providers or extensions. A word is a name or a distribution, in any case.

    `allow` None allows all, an empty set allows none. `block` is stronger than `allow`.
    """

    allow: frozenset[str] | None = None
    block: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rules: ProvidersConfig | ExtensionsConfig) -> LoadControl:
        """Return the lists of config.yaml."""
        return cls(None if rules.allow is None else frozenset(rules.allow), frozenset(rules.block))

    @classmethod
    def of_home(cls, home: HermesHome) -> LoadControl:
        """Return the lists of this home's config.yaml and the environment. Raises `ConfigError`."""
        return cls.of(load_config(home).providers)

    def refusal(self, name: str, distribution: str) -> str:
        """Return why the provider `name` of `distribution` may not be loaded, "" if it may."""
        if self.allow is None and not self.block:
            return ""
        names = {name.casefold(), normalise(distribution)} - {""}
        if blocked := (names | {name.casefold().removeprefix(FOLDER_PREFIX)}) & _both_spellings(self.block):
            return f"{min(blocked)!r} is on the block list"
        if self.allow is not None and not names & _both_spellings(self.allow):
            return f"{name!r} is not on the allow list"
        return ""


def _both_spellings(words: Iterable[str]) -> set[str]:
    """Return the words as provider names and as distribution names."""
    folded = {word.strip().casefold() for word in words} - {""}
    return folded | set(map(normalise, folded))


def normalise(distribution: str) -> str:
    """Return a distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def installed_entry_points() -> list[importlib_metadata.EntryPoint]:
    """Return the installed entry points of providers, observers and extensions, those of each distribution once."""
    groups = (*GROUPS, OBSERVER_GROUP, EXTENSION_GROUP)
    found: dict[str, list[importlib_metadata.EntryPoint]] = {}
    for distribution in importlib_metadata.distributions():
        # One damaged distribution must not hide all others, as it would in importlib_metadata.entry_points().
        try:
            # Most packages have no provider: their entry points are not worth parsing.
            if "hermes" not in (distribution.read_text("entry_points.txt") or ""):
                continue
            points = [point for point in distribution.entry_points if point.group in groups]
            # A package that is both installed and editable appears twice; the first on sys.path is imported.
            if points:
                found.setdefault(normalise(name_and_version(distribution.read_text)[0]), points)
        except DAMAGED_METADATA as exc:
            logger.warning("left out a distribution with damaged metadata: %s: %s", type(exc).__name__, exc)
    return [point for points in found.values() for point in points]
