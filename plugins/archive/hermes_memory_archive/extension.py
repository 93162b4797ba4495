"""Entry module of the extension `archive`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import IMPORT_ARCHIVE, CommandEntry

_PLACE = "hermes_memory_archive"


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `backup`, `restore`, `export`, `migrate`, the import of an export, and sessions and notes as files."""
    for name, summary, target in (
        (
            "backup",
            "Copy the whole home into one archive, also while programs write.",
            "backup_command:backup",
        ),
        ("restore", "Put a home back as a backup has it.", "backup_command:restore"),
        ("export", "Write everything that is remembered into one archive.", "export_command:export"),
        (
            "migrate",
            "Copy all memories from one provider to another, and choose that one.",
            "migrate_command:migrate",
        ),
        (
            "memory export",
            "Write the notes as files into a folder, for Git or another home.",
            "note_files:export_files",
        ),
        ("memory import", "Make the notes what the files of a folder say.", "note_files:import_files"),
        ("sessions export", "Write whole conversations as JSON Lines.", "session_files:export_sessions"),
        (
            "sessions import",
            "Bring back sessions that `sessions export` wrote.",
            "session_files:import_sessions",
        ),
        (IMPORT_ARCHIVE, "Merge an archive that export wrote.", "export_command:import_exported"),
    ):
        commands.add(CommandEntry(name, summary, f"{_PLACE}.{target}"))


@hookimpl
def on_home_opened(memory: Any) -> None:
    """Make backups by `backup.every`, in the background of the sessions that begin."""
    if memory.config.backup.every is None:
        return
    # Imported here: most homes have no scheduled backups.
    from hermes_memory_archive.schedule import ScheduledBackups

    ScheduledBackups.watch(memory)
