"""Entry module of the extension `testing`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory providers new` and `hermes-memory extensions new`."""
    summary = "Make a package for a provider of your own."
    commands.add(CommandEntry("providers new", summary, "hermes_memory_testing.template:new"))
    summary = "Make a package for an extension of your own."
    commands.add(CommandEntry("extensions new", summary, "hermes_memory_testing.template:new_extension"))
