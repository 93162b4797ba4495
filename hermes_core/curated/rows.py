"""The notes in the database: the entries of each file with their origins, and what the last view of each file was.

The database is the truth. MEMORY.md, USER.md and PROJECT.md are views that people read and edit. So it is stored which
bytes this program has last seen in each view: other bytes are an edit by a person, or by another program.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import join_entries, with_waiting_line
from hermes_core.curated.origins import Note, NoteOrigin, normal_form
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.safety.origin import as_origin, may_command
from hermes_core.safety.parts import UNKNOWN_ORIGIN
from hermes_core.storage.engine import Engine, Statement

# Begins the origin of a note whose turn has not ended well; the id of the turn follows. A version that does not know it
# reads the origin as an import.
_OPEN = "open:"

_READ = """
    SELECT n.file, n.version, n.changed_at, v.bytes_hash, v.text_hash,
        e.text, e.origin, e.at, e.session, e.confirmed, e.pinned, e.change
    FROM notes n
    LEFT JOIN note_views v ON v.file = n.file AND v.place = ?
    LEFT JOIN note_entries e ON e.file = n.file
    WHERE n.file IN ({}) ORDER BY n.file, e.position
"""
_ADD_ENTRY = """
    INSERT INTO note_entries (file, position, text, origin, at, session, confirmed, pinned, change)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SET_VIEW = """
    INSERT INTO note_views (place, file, bytes_hash, text_hash, text) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (place, file) DO UPDATE
        SET bytes_hash = excluded.bytes_hash, text_hash = excluded.text_hash, text = excluded.text
"""


class NotesChanged(StorageError):
    """Notes that another program changed since they were read. The change has to be planned anew."""


def digest(data: bytes | str) -> str:
    """Return the SHA-256 of the bytes of a view, or of the text of a file."""
    return hashlib.sha256(
        data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    ).hexdigest()


def place_of(home: HermesHome, *, shared: bool) -> str:
    """Return the name of this machine and home in a database that machines share; "" for one that they do not."""
    return f"{socket.gethostname()}:{home.path}" if shared else ""


class StoredFile(Struct, frozen=True, dict=True):
    """The notes of one file as they were read.

    Attributes:
        key: Path of the file below the folder of the notes.
        owner: `Session.owner` of the notes.
        version: Number of writes; 0 if nothing was ever stored.
        seen: Hash of the bytes of the last view on this machine; "" if there was none.
        seen_text: Hash of the text of its entries.
        changed_at: Time of the last write in epoch seconds.
    """

    key: str
    owner: str
    target: MemoryTarget
    notes: tuple[Note, ...] = ()
    version: int = 0
    seen: str = ""
    seen_text: str = ""
    changed_at: float = 0.0

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The texts of the notes."""
        return tuple(note.text for note in self.notes)

    @cached_property
    def text(self) -> str:
        """The texts of the notes as one text."""
        return join_entries(self.entries)

    @cached_property
    def view_text(self) -> str:
        """The text of the view, with a line for the notes that wait if there are any."""
        waiting = [note.text for note in self.notes if not may_command(note.origin.origin)]
        return with_waiting_line(self.text, waiting)

    def note(self, entry: str) -> Note | None:
        """Return the note with this text, or with one that differs in form only; None if there is none."""
        same = (note for note in self.notes if note.text == entry)
        form = normal_form(entry)
        return next(same, None) or next((note for note in self.notes if normal_form(note.text) == form), None)

    def is_shown_by(self, data: bytes | None) -> bool:
        """Return True if these bytes of the view are those that were seen last, and show the notes as they are."""
        if not self.version:
            return not (data or b"").strip()
        if data is None:
            return not self.notes
        return self.was_shown_by(data) and digest(self.text) == self.seen_text

    def was_shown_by(self, data: bytes) -> bool:
        """Return True if these bytes of the view are those that were seen last."""
        return digest(data) == self.seen


class NoteRows:
    """The tables `notes`, `note_entries` and `note_views` of a home.

    Args:
        place: Name of the machine and home whose views these are; "" if no other machine uses the database.
    """

    def __init__(self, database: Engine, clock: Callable[[], float] = time.time, place: str = "") -> None:
        self.database = database
        self._clock, self._place = clock, place

    def read(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Return these files as they are stored now, in one read.

        Raises:
            StorageError: The database can't be read.
        """
        [rows] = self.database.read([self.statement(files)]) if files and self.database.exists else [[]]
        return self.stored(files, rows)

    def statement(self, files: Sequence[StoredFile]) -> Statement:
        """Return the statement that reads these files; `stored` takes its rows."""
        return _READ.format(", ".join("?" * len(files))), (self._place, *(file.key for file in files))

    def stored(self, files: Sequence[StoredFile], rows: Iterable[Any]) -> list[StoredFile]:
        """Return these files as their rows say."""
        by_file: dict[str, list[Any]] = {}
        for row in rows:
            by_file.setdefault(row["file"], []).append(row)
        return [_stored(file, by_file.get(file.key, [])) for file in files]

    def claim(self, file: StoredFile) -> Statement:
        """Return the statement that begins each write. It returns a row only if the file is as it was read."""
        now = self._clock()
        if file.version:
            return (
                "UPDATE notes SET version = version + 1, changed_at = ? WHERE file = ? AND version = ? RETURNING version",
                (now, file.key, file.version),
            )
        return (
            "INSERT INTO notes (file, owner, target, version, changed_at) VALUES (?, ?, ?, 1, ?)"
            " ON CONFLICT (file) DO NOTHING RETURNING version",
            (file.key, file.owner, file.target, now),
        )

    def replace(self, file: StoredFile, notes: Sequence[Note]) -> list[Statement]:
        """Return the statements that make `notes` the notes of a file."""
        same = 0  # most changes add a note at the end
        for before, after in zip(file.notes, notes, strict=False):
            if before != after:
                break
            same += 1
        statements: list[Statement] = []
        if same < len(file.notes):
            statements.append(("DELETE FROM note_entries WHERE file = ? AND position >= ?", (file.key, same)))
        for position, note in enumerate(notes[same:], same):
            known = note.origin
            origin = f"{_OPEN}{known.turn}" if known.turn else known.origin
            values = (origin, known.at, known.session, known.confirmed, int(known.pinned), note.change)
            statements.append((_ADD_ENTRY, (file.key, position, note.text, *values)))
        return statements

    def lock(self, file: StoredFile) -> bool:
        """Within a transaction, keep other programs from changing a file. Return False if one has changed it since."""
        query = f"SELECT version FROM notes WHERE file = ?{self.database.dialect.row_lock}"
        row = self.database.execute(query, (file.key,)).fetchone()
        return row is not None and row["version"] == file.version

    def set_view(self, file: StoredFile, data: bytes, text: str) -> Statement:
        """Return the statement that stores which bytes of the view were seen last, and the text of their entries."""
        return _SET_VIEW, (self._place, file.key, digest(data), digest(text), text)

    def text_of_view(self, file: StoredFile) -> str:
        """Return the text of the entries of a view when it was seen last; "" if it never was."""
        query = "SELECT text FROM note_views WHERE place = ? AND file = ?"
        row = self.database.execute(query, (self._place, file.key)).fetchone()
        return "" if row is None else str(row["text"])

    def files(self, condition: str = "1 = 1", *values: object) -> list[StoredFile]:
        """Return the key, the owner and the target of all files that are or were there.

        Raises:
            StorageError: The database can't be read.
        """
        if not self.database.exists:
            return []
        query = f"SELECT file, owner, target FROM notes WHERE {condition} ORDER BY file"
        return [
            StoredFile(row["file"], row["owner"], row["target"])
            for row in self.database.execute(query, values)
        ]

    def delete(self, keys: Iterable[str]) -> None:
        """Delete all rows of files: their notes, their history and what was seen of their views."""
        tables = ("note_entries", "note_changes", "note_views", "notes")
        self.database.batch(
            [(f"DELETE FROM {table} WHERE file = ?", (key,)) for key in keys for table in tables]
        )


def _origin_of(row: Any) -> NoteOrigin:
    is_open = row["origin"].startswith(_OPEN)
    return NoteOrigin(
        UNKNOWN_ORIGIN if is_open else as_origin(row["origin"]),
        row["at"],
        row["session"],
        row["confirmed"],
        bool(row["pinned"]),
        row["origin"].removeprefix(_OPEN) if is_open else "",
    )


def _stored(file: StoredFile, rows: Sequence[Any]) -> StoredFile:
    if not rows:
        return StoredFile(file.key, file.owner, file.target)
    first = rows[0]
    notes = tuple(
        Note(
            row["text"],
            _origin_of(row),
            row["change"],
        )
        for row in rows
        if row["text"] is not None
    )
    return StoredFile(
        file.key,
        file.owner,
        file.target,
        notes,
        first["version"],
        first["bytes_hash"] or "",
        first["text_hash"] or "",
        first["changed_at"],
    )
