"""The files of all notes of a home: their keys in the database, and their views on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from msgspec import structs

from hermes_core.contract.values import MemoryTarget, parse_outside_id
from hermes_core.curated.document import split_entries
from hermes_core.curated.origins import UNKNOWN, Note
from hermes_core.curated.rows import NoteRows, StoredFile
from hermes_core.curated.view import NoteView
from hermes_core.errors import SessionError
from hermes_core.home import HermesHome, file_name_of

_TARGETS: dict[str, MemoryTarget] = {"MEMORY.md": "memory", "USER.md": "user", "PROJECT.md": "project"}

# Views and stores of users that are remembered.
MAX_REMEMBERED = 256


class NotePlaces:
    """The files of all notes of a home. A key is the path of a view below the folder of the notes."""

    def __init__(self, home: HermesHome, rows: NoteRows) -> None:
        self._home, self._rows = home, rows
        self.view = lru_cache(MAX_REMEMBERED)(self._view)
        """View of a file by its key, which remembers what it has read."""

    def of_owner(self, owner: str) -> dict[MemoryTarget, StoredFile]:
        """Return MEMORY.md and USER.md of a `Session.owner`, not read yet."""
        folder = f"users/{file_name_of(owner)}/" if owner else ""
        return {
            "memory": StoredFile(f"{folder}MEMORY.md", owner, "memory"),
            "user": StoredFile(f"{folder}USER.md", owner, "user"),
        }

    def of_project(self, repository: str) -> StoredFile:
        """Return the notes on a repository, by its `Repository.key`, not read yet."""
        return StoredFile(f"projects/{repository}/PROJECT.md", "", "project")

    def _view(self, key: str) -> NoteView:
        return NoteView(self._home.memories / key)

    def repositories(self) -> list[str]:
        """Return the `Repository.key` of each repository on which there are notes.

        Raises:
            StorageError: The database can't be read.
        """
        keys = {file.key.split("/")[1] for file in self._rows.files("owner = '' AND target = 'project'")}
        return sorted(keys | {path.parent.name for path in self._home.memories.glob("projects/*/PROJECT.md")})

    def owners(self) -> list[str]:
        """Return the `Session.owner` of each user who has notes or skills of their own.

        Raises:
            StorageError: The database can't be read.
        """
        owners = {file.owner for file in self._rows.files("owner > ''")}
        return sorted(owners | set(self._owners_with_folders()))

    def _owners_with_folders(self) -> Iterator[str]:
        for folder in self._home.memories.glob("users/*"):
            if folder.is_dir() and (owner := owner_of_folder(folder.name)):
                yield owner


def owner_of_folder(name: str) -> str:
    """Return the `Session.owner` whose folder below `users` has this name; "" if no owner's has."""
    owner = unquote(name[:-17])
    if file_name_of(owner) == name:
        with contextlib.suppress(SessionError):  # a folder that another program made
            parse_outside_id(owner)
            return owner
    return ""


def repair_notes(rows: NoteRows, *, is_damaged: bool) -> bool:
    """Make notes whole of which a repair could not read all rows. Return True if some lack a row.

    The newest change of a file says which entries it has. An entry without its row comes from nobody knows where.

    Args:
        is_damaged: True if rows are known to be lost.
    """
    stored = {file.key: file for file in rows.read(rows.files())}
    keys = "SELECT file FROM note_entries UNION SELECT file FROM note_changes"
    last = 'SELECT "after" FROM note_changes WHERE file = ? ORDER BY id DESC LIMIT 1'
    for row in rows.database.execute(keys).fetchall():
        folder, _, name = row["file"].rpartition("/")
        if name not in _TARGETS:
            continue  # of a skill
        file = stored.get(row["file"])
        if file is None:
            is_damaged, owner = True, owner_of_folder(folder.removeprefix("users/"))
            rows.database.execute(*rows.claim(StoredFile(row["file"], owner, _TARGETS[name])))
            [file] = rows.read([StoredFile(row["file"], owner, _TARGETS[name])])
        change = rows.database.execute(last, (file.key,)).fetchone()
        entries = file.entries if change is None else split_entries(change["after"])
        is_damaged = is_damaged or entries != file.entries
        # All rows, since the positions of those that are left may have gaps.
        rows.database.execute("DELETE FROM note_entries WHERE file = ?", (file.key,))
        notes = [file.note(entry) or Note(entry, UNKNOWN) for entry in entries]
        rows.database.batch(rows.replace(structs.replace(file, notes=()), notes))
    if is_damaged:  # an entry that only a view has is found in it, if no view counts as seen
        rows.database.execute("DELETE FROM note_views")
    return is_damaged
