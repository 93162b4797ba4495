"""Entry module of the extension `mcp`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory mcp`."""
    commands.add(
        CommandEntry("mcp", "Serve this memory to MCP clients.", "hermes_memory_mcp.command:mcp_command")
    )
