"""The least that a provider written for Hermes Agent has, and the hooks that an adapter of one claims."""

from __future__ import annotations

from typing import Any

import pluggy

from hermes_core.contract.hooks import PROJECT, ProviderHooks


class Bare:
    """The least a published provider has; notes what it is called with."""

    name = "bare"

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.calls.append((session_id, kwargs))

    def get_tool_schemas(self) -> Any:
        return []


def hooks_of(provider: object) -> set[str]:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ProviderHooks)
    manager.register(provider)
    manager.check_pending()
    return {caller.name for caller in manager.get_hookcallers(provider) or []}
