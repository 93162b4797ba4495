"""The contract for a provider that is installed here: what `pytest --hermes-provider NAME` runs."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from typing import Any

from hermes_core import HermesHome, load_provider
from hermes_core.loader.discover import ProviderCandidate, discover, select
from hermes_core.loader.load import LoadedProvider
from hermes_memory_testing.contract import ProviderContract

PROVIDER = "--hermes-provider"

_PERSONS = HermesHome.resolve()
"""The home of the person who runs the tests, which each of them has one in place of."""


class TestInstalled(ProviderContract):
    """The provider that the command line names, ours or one written for Hermes Agent, loaded as the host loads it."""

    def label(self) -> str:
        return self._name

    def furnish(self, home: HermesHome, settings: Mapping[str, Any]) -> None:
        """Make the home as for others, and copy a provider that is a folder of the person's home into it."""
        super().furnish(home, settings)
        for place in _places(self._name):
            if place.is_folder and place.path:
                to = home.path / place.source / place.path.name
                unneeded = shutil.ignore_patterns(".git", "__pycache__")
                shutil.copytree(place.path, to, ignore=unneeded, ignore_dangling_symlinks=True)

    def make_provider(self) -> object:
        return self.make_in(self.home)

    def make_in(self, home: HermesHome) -> object:
        """A new provider, through the loader."""
        return self._loaded(home).factory()

    @property
    def foreign(self) -> bool:  # type: ignore[override]
        """Return True if the loader found a provider of Hermes Agent."""
        return self.run.provider is not None and self._loaded(self.home).entry.kind == "hermes_agent"

    @property
    def distribution(self) -> str:  # type: ignore[override]
        """Return the distribution of the provider, or "" for a folder."""
        return self._loaded(self.home).entry.distribution if self.run.provider is not None else ""

    @property
    def _name(self) -> str:
        return str(self._request.config.getoption(PROVIDER))

    def _loaded(self, home: HermesHome) -> LoadedProvider:
        known: dict[Any, LoadedProvider] = self.__dict__.setdefault("_known", {})
        if home not in known:
            known[home] = load_provider(self._name, home)
        return known[home]


@functools.cache
def _places(name: str) -> list[ProviderCandidate]:
    return select(discover(_PERSONS), name)
