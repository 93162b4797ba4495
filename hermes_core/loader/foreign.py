"""Providers written for Hermes Agent, and ours inside of it: the extension that knows that host, or how to get it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from hermes_core.config import Config, load_config
from hermes_core.contract.extensions import ForeignLoader
from hermes_core.errors import ConfigError, ProviderUnavailable
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import Extensions, extension_remedy, load_extensions
from hermes_core.packages import KNOWN_EXTENSIONS

EXTENSION = "hermes-agent"
"""The extension of this project that loads providers written for Hermes Agent."""


class ForeignHost:
    """The loader of providers written for Hermes Agent. It is looked up when the first such provider is met.

    Args:
        home: The home whose config.yaml says which extensions may be used.
        extensions: The extensions of an open memory, used in place of those of the home.
    """

    def __init__(self, home: HermesHome, extensions: Extensions | None = None) -> None:
        self._home, self._active = home, extensions

    @cached_property
    def _extensions(self) -> Extensions:
        if self._active is not None:
            return self._active
        try:
            config = load_config(self._home)
        except ConfigError:  # whoever reads the configuration itself reports it
            config = Config()
        return load_extensions(config)

    @cached_property
    def loader(self) -> ForeignLoader | None:
        """The loader, None if no active extension has one."""
        loader: ForeignLoader | None = self._extensions.first("load_foreign", host="hermes_agent")
        return loader

    def require(self, name: str) -> ForeignLoader:
        """Return the loader. Raises `ProviderUnavailable` for the provider `name` if there is none."""
        if self.loader is None:
            raise self.unavailable(f"provider {name!r}")
        return self.loader

    def unavailable(self, what: str = "it") -> ProviderUnavailable:
        """Return the error for a provider that needs the loader, which is missing."""
        state = next((one for one in self._extensions.found if one.name == EXTENSION), None)
        needs = f"the package {KNOWN_EXTENSIONS[EXTENSION].distribution}"
        if state is not None:
            needs = f"the extension {EXTENSION!r}, which is {state.state}: {state.reason}"
        return ProviderUnavailable(
            f"{what} was written for Hermes Agent and needs {needs}",
            extension_remedy(self._extensions, EXTENSION),
        )


def register_in_hermes_agent(ctx: Any, name: str, *, host_name: str = "") -> None:
    """Register a provider of ours as Hermes Agent's memory provider, from the `register(ctx)` of a plugin.

    Nothing of the provider is loaded before Hermes Agent asks for something.

    Args:
        ctx: The object that Hermes Agent passes.
        name: The provider's name here.
        host_name: Its name in Hermes Agent, the value of `memory.provider` in its config.yaml; `core-<name>` by default.

    Raises:
        ProviderUnavailable: The package hermes-memory-hermes-agent is not installed in this environment.
    """
    inside_hermes_agent(name).register(ctx, name, host_name)


def inside_hermes_agent(name: str) -> ForeignLoader:
    """Return the loader in a process of Hermes Agent, whose config.yaml has none of our lists of extensions.

    Raises `ProviderUnavailable` for the provider `name` of ours if the package is not installed.
    """
    extensions = load_extensions(Config())
    loader: ForeignLoader | None = extensions.first("load_foreign", host="hermes_agent")
    if loader is None:
        raise ProviderUnavailable(
            f"provider {name!r} needs the package {KNOWN_EXTENSIONS[EXTENSION].distribution} inside Hermes Agent",
            extension_remedy(extensions, EXTENSION),
        )
    return loader
