"""Entry module of the extension `ui`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory ui`."""
    commands.add(
        CommandEntry(
            "ui", "Show this memory in a browser, and change it there.", "hermes_memory_ui.command:ui_command"
        )
    )
