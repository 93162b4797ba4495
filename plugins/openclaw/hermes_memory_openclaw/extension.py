"""Entry module of the extension `openclaw`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory claw`."""
    commands.add(CommandEntry("claw", "Move over from OpenClaw.", "hermes_memory_openclaw.command:claw"))
