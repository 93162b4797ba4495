"""A provider's own commands, asked for outside any manager: they are how a person sets up what can't run yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from hermes_core.manager.call import CallResult
from hermes_core.manager.health import ManagerConfig
from hermes_core.manager.held import ProviderHandle
from hermes_core.manager.registry import Registry
from hermes_core.safety.redact import redact_value


def register_commands(make: Callable[[], object], name: str, group: object) -> CallResult:
    """Let the provider that `make` constructs add its commands to `group`, a `click.Group`; it is not initialized."""
    terms = ManagerConfig(time.monotonic, time.time, redact_value, {}, 0.0, _unheard)
    provider = ProviderHandle(make, Registry(), terms, name=name).first
    made = provider.construct()
    try:
        return provider.call("register_cli", {"group": group}) if made.ok else made
    finally:
        provider.close_idle()


def _unheard(kind: str, data: Mapping[str, Any]) -> None:
    """Nobody observes a command line that only asks for its commands."""
