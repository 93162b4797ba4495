"""Entry module of the extension `postgresql`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry

_COMMANDS = "hermes_memory_postgresql.commands"


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `storage move` and `storage unmark`."""
    commands.add(
        CommandEntry(
            "storage move", "Move sessions, outbox and notes to a server, or back.", f"{_COMMANDS}:move"
        )
    )
    commands.add(
        CommandEntry(
            "storage unmark", "Use a store that was moved, or is being moved.", f"{_COMMANDS}:unmark"
        )
    )


@hookimpl
def open_engine(url: str) -> str | None:
    """Return the factory for an address of PostgreSQL, as a URL or in the form `host=... dbname=...`."""
    scheme, is_url, _ = url.partition("://")
    if is_url and scheme not in ("postgresql", "postgres"):
        return None
    return "hermes_memory_postgresql.engine:open_engine"


@hookimpl
def on_home_opened(memory: Any) -> None:
    """Let the index of a server find out that the tables which held the data of this home are gone."""
    if memory.sessions.database.shared:
        memory.sessions.index.inventory = memory.internals.inventory


@hookimpl
def examine(home: Path, config: Any, trial: bool) -> Iterable[Any]:
    """Return findings about the server and the files that it replaces, for `doctor` in a home with a server."""
    if not (trial and config.storage.url):
        return []
    # Imported here: only a home with a server needs it.
    from hermes_memory_postgresql.doctor import examine_home

    return examine_home(home, config)
