"""Entry module of the extension `hermes-agent`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory plugins`."""
    commands.add(
        CommandEntry(
            "plugins",
            "Install, update, remove and list plugin folders; hand a provider to Hermes Agent.",
            "hermes_memory_foreign.command:plugins",
        )
    )


@hookimpl
def load_foreign(host: str) -> Any:
    """Return the loader of providers written for Hermes Agent."""
    if host != "hermes_agent":
        return None
    # Imported here: most homes have no such provider.
    from hermes_memory_foreign.loader import HermesAgentLoader

    return HermesAgentLoader()
