"""Entry module of the extension `http`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory serve`."""
    commands.add(
        CommandEntry(
            "serve",
            "Serve this memory over HTTP to programs in any language.",
            "hermes_memory_http.command:serve",
        )
    )
