"""Entry module of the extension `eval`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `eval`."""
    summary = "Measure recall on your own past sessions; nothing is sent."
    commands.add(CommandEntry("eval", summary, "hermes_memory_eval.command:eval_command"))
