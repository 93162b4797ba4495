"""The shared base of the notes: a file, or the notes of another home, with which every prompt begins."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from hermes_core.config import load_config
from hermes_core.curated.document import parse_note_file
from hermes_core.curated.origins import NoteOrigin, entry_hash, read_origins
from hermes_core.curated.rows import NoteRows, StoredFile
from hermes_core.curated.view import NoteView
from hermes_core.errors import ConfigError, MemoryConflict, StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.origin import may_command
from hermes_core.storage.sqlite import Database


class SharedBase(Struct, frozen=True):
    """The shared base as it was read.

    Attributes:
        entries: Its entries that may stand in a prompt, before the safety scan.
        origins: Origin of each entry, if the base is the notes of another home.
        fault: Why it can't be read; "" if it can.
    """

    entries: tuple[str, ...] = ()
    origins: dict[str, NoteOrigin] = {}
    fault: str = ""


def read_base(path: Path, own: Path) -> SharedBase:
    """Read a shared base.

    Args:
        path: A file of notes, or a folder with a MEMORY.md.
        own: MEMORY.md of the owner of the notes, who sees these once, and writes them.
    """
    file = path / "MEMORY.md" if path.is_dir() else path
    if file == own:
        return SharedBase()
    try:
        if not path.exists():
            return SharedBase(fault="nothing is there")
        notes = parse_note_file(NoteView(file).read() or b"")
        origins = _origins_of(file, notes.entries)
    except (ConfigError, MemoryConflict, StorageError) as exc:
        return SharedBase(fault=exc.message)
    entries = tuple(
        entry
        for entry in notes.entries
        if entry not in notes.waiting and may_command(origins.get(entry, NoteOrigin()).origin)
    )
    return SharedBase(entries, origins, notes.conflict)


def _origins_of(file: Path, entries: Sequence[str]) -> dict[str, NoteOrigin]:
    """Return the origins of the notes in a file: from the database of its home, or from the file of an export beside it.

    Raises `StorageError` for a home on a server. What came from a page there must not pass for a person's words.
    """
    home = HermesHome(file.parent.parent)
    if file != home.memory_md:
        known = read_origins(file.parent)
        return {entry: known[key] for entry in entries if (key := entry_hash(entry)) in known}
    if load_config(home).storage.url:
        raise StorageError(
            "the notes of that home are on a server, which alone knows where they come from; name the folder of an export "
            "(hermes-memory memory export DIR)"
        )
    return origins_in_file(home, file.name)


def origins_in_file(home: HermesHome, key: str) -> dict[str, NoteOrigin]:
    """Return the origins of the notes of a file, by their text, from the state.db of a home; none without a database.

    Raises:
        StorageError: The database can't be read.
    """
    if not home.state_db.exists():
        return {}
    with contextlib.closing(Database(home.state_db, read_only=True)) as database:
        [stored] = NoteRows(database).read([StoredFile(key, "", "memory")])
    return {note.text: note.origin for note in stored.notes}
