"""Entry module of the extension `capture`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory capture`."""
    commands.add(
        CommandEntry(
            "capture",
            "Take the sessions of coding agents in as they happen, and give these agents recall.",
            "hermes_memory_capture.command:capture",
        )
    )


@hookimpl
def examine(home: Path, config: Any, trial: bool) -> Iterable[Any]:  # noqa: ARG001  (the arguments of the hook)
    """Return findings about the programs whose sessions are captured."""
    if not (home / "capture" / "installs.json").exists():
        return []
    # Imported here: most homes capture nothing.
    from hermes_memory_capture.status import examine_home

    return examine_home(home, trial=trial)
