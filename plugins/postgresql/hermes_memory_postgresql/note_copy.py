"""Copy of all notes of a home, with their history, origins and record of events, between files and rows on a server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import structs

from hermes_core import HermesHome
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.document import join_entries, split_entries
from hermes_core.curated.journal import CHANGES, EVENTS, NoteJournal, journal_database
from hermes_core.curated.note_places import owner_of_folder
from hermes_core.curated.origins import NoteOrigin, NoteOrigins
from hermes_core.curated.places import NoteFile, fingerprint
from hermes_core.curated.project import KeyFile
from hermes_core.errors import LockTimeout, StorageError
from hermes_core.kit import write_atomic
from hermes_core.safety.origin import as_origin
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import PRIVATE_FILE
from hermes_core.storage.inventory import ORIGINS, Inventory, remove_from_inventory
from hermes_core.storage.moved import StoreMark, read_mark
from hermes_core.storage.sqlite import database_files
from hermes_memory_postgresql.marks import write_mark
from hermes_memory_postgresql.notes import KeyRows, is_mirror

ROW_TABLES = ("notes", CHANGES, EVENTS, "note_origins")
FILE_TABLES = ("changes", "events")

ROWS_PER_PAGE = 200

# Times that a mark waits for changes of other programs that are on their way.
MAX_SETTLINGS = 20

# Columns of a change that both sides have with one meaning. The fingerprint is that of a file's bytes.
CHANGE_COLUMNS = (
    *("id", "file", "target", "action", "state", "at", "before", "after", "session", "writes", "enqueued"),
    *("undoes", "undone", "provider"),
)
EVENT_COLUMNS = ("id", "at", "kind", "change", "subject", "details", "digest", "hash")
_BOOLEANS = ("enqueued", "undone")

# All of them, so that none is left behind that a later version adds.
ORIGIN_COLUMNS = ("folder", "hash", *NoteOrigin.__struct_fields__)

# The values of `ORIGIN_COLUMNS`.
OriginRow = tuple[Any, ...]

_TARGETS: dict[str, MemoryTarget] = {"MEMORY.md": "memory", "USER.md": "user", "PROJECT.md": "project"}


class StoredNotes(Protocol):
    """All notes of a home on one side of a copy."""

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the text of each place, by key."""

    def changes(self, *, with_fingerprint: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield the history, oldest first, some changes at a time."""

    def events(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the record of events, oldest first, some at a time."""

    def origins(self) -> Iterator[OriginRow]:
        """Yield the origins of texts, by folder and hash."""

    @property
    def project_keys(self) -> KeyFile | KeyRows:
        """The keys of the notes on repositories."""


def digest_notes(stored: StoredNotes) -> tuple[str, dict[str, int]]:
    """Return a hash over all notes, their history, origins and events, and the numbers of each."""
    hasher = hashlib.sha256()
    counts = dict.fromkeys(ROW_TABLES, 0)
    parts: list[tuple[str, Iterator[list[Any]]]] = [
        ("notes", ([note] for note in stored.notes() if note[1])),
        (CHANGES, stored.changes()),
        (EVENTS, stored.events()),
        ("note_origins", ([row] for row in stored.origins())),
    ]
    for name, pages in parts:
        for page in pages:
            counts[name] += len(page)
            for row in page:
                hasher.update(json.dumps([name, row], sort_keys=True).encode() + b"\n")
    return hasher.hexdigest(), counts


class NoteRows:
    """The notes of a home in the tables of a server."""

    def __init__(self, database: Engine) -> None:
        self._database = database

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the text of each row, by key."""
        for row in self._database.execute("SELECT file, text FROM notes ORDER BY file"):
            yield row["file"], row["text"]

    def changes(self, *, with_fingerprint: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield the history, oldest first, some changes at a time."""
        columns = (*CHANGE_COLUMNS, *(["fingerprint"] if with_fingerprint else []))
        return _pages(self._database, CHANGES, columns)

    def events(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the record of events, oldest first, some at a time."""
        return _pages(self._database, EVENTS, EVENT_COLUMNS)

    def origins(self) -> Iterator[OriginRow]:
        """Yield the origins of texts, by folder and hash."""
        columns = ", ".join(ORIGIN_COLUMNS)
        for row in self._database.execute(f"SELECT {columns} FROM note_origins ORDER BY folder, hash"):
            yield tuple(row)

    def counts(self) -> dict[str, int]:
        """Return the number of notes with text, of changes, of events and of origins."""
        conditions = ("text <> ''", "state = 'done'", "1 = 1", "1 = 1")
        rows = self._database.read(
            [
                (f"SELECT count(*) FROM {table} WHERE {condition}", ())
                for table, condition in zip(ROW_TABLES, conditions, strict=True)
            ]
        )
        return {table: int(row[0][0]) for table, row in zip(ROW_TABLES, rows, strict=True)}

    @property
    def project_keys(self) -> KeyRows:
        """The keys of the notes on repositories."""
        return KeyRows(self._database)

    def replace(self, source: StoredNotes) -> None:
        """Put the notes of the other side in the place of what is there, in one commit."""
        database, now = self._database, time.time()
        versions: dict[str, int] = {}
        newest: dict[str, float] = {}
        with database.transaction() as connection:
            for table in (*ROW_TABLES, "project_keys"):
                connection.execute(f"DELETE FROM {table}")
            last = 0
            for page in source.changes(with_fingerprint=True):
                for row in page:
                    versions[row["file"]] = row["version"] = versions.get(row["file"], 0) + 1
                    newest[row["file"]], last = row["at"], row["id"]
                    row.update({name: bool(row[name]) for name in _BOOLEANS})
                database.insert(CHANGES, page, "id")
            for page in source.events():
                database.insert(EVENTS, page, "id")
            texts = dict(source.notes())
            rows = [
                {
                    "file": key,
                    "owner": owner_of_key(key),
                    "target": _TARGETS[Path(key).name],
                    "version": versions.get(key, 1),
                    "text": texts.get(key, ""),
                    "changed_at": newest.get(key, now),
                }
                for key in sorted({*texts, *versions})
            ]
            database.insert("notes", rows, "file")
            origins = [dict(zip(ORIGIN_COLUMNS, row, strict=True)) for row in source.origins()]
            database.insert("note_origins", origins, "hash")
            known = source.project_keys.read()
            self.project_keys.merge(known.identities, known.folders)
            if last:
                connection.execute(
                    "SELECT setval(pg_get_serial_sequence(?, 'id')::regclass, ?)", (CHANGES, last)
                )


class NoteFiles:
    """The notes of a home in its files, with the journal open. Use it in a `with` block.

    Args:
        stamp: Text for the names of files that are put aside.
    """

    def __init__(self, home: HermesHome, stamp: str = "") -> None:
        self._home, self._stamp = home, stamp
        self._journal = journal_database(home.journal_db, marked=True)

    def __enter__(self) -> NoteFiles:
        return self

    def __exit__(self, *exc: object) -> None:
        self._journal.close()

    def counts(self) -> dict[str, int]:
        """Return the number of notes with text, of changes, of events and of origins."""
        notes = sum(bool(place.read().strip()) for place in self._places())
        pages = (self.changes(), self.events())
        changes, events = (sum(map(len, page)) for page in pages)
        return dict(zip(ROW_TABLES, (notes, changes, events, sum(1 for _ in self.origins())), strict=True))

    def put_aside(self) -> None:
        """Rename the journal, so that a new one takes its place."""
        path = self._home.journal_db
        if path.exists():
            # The log goes into the file, so that one file is all there is.
            self._journal.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._journal.close()
            remove_from_inventory(path)
            for file in database_files(path):
                file.replace(
                    file.with_name(f"{path.name}.moved-{self._stamp}{file.name.removeprefix(path.name)}")
                )
            self._journal = journal_database(path, marked=True)

    @property
    def mark(self) -> StoreMark | None:
        """The mark of the journal; None if it has none."""
        return read_mark(self._journal)

    def write_mark(self, mark: StoreMark | None) -> None:
        """Replace the mark of the journal, without which no program changes notes."""
        if mark is not None or self._home.journal_db.exists():
            write_mark(self._journal, mark, FILE_TABLES)

    def settle_and_mark(self, mark: StoreMark) -> None:
        """Write the mark when no program is in the middle of a change, whose file would be without its history else.

        Raises:
            MemoryConflict: A file can't be read as notes.
            LockTimeout: A program changes notes all the time.
        """
        for _ in range(MAX_SETTLINGS):
            self.settle()
            with self._journal.transaction() as connection:
                # No other program begins a change before the commit, and none after it.
                if connection.execute("SELECT 1 FROM changes WHERE state = 'intent'").fetchone() is None:
                    self.write_mark(mark)
                    return
        raise LockTimeout(
            f"another program changes the notes of {str(self._home.path)!r}", "stop it, then run this again"
        )

    def settle(self) -> None:
        """Complete changes that a crash interrupted, and take edits by hand into the history.

        Raises:
            MemoryConflict: A file can't be read as notes.
        """
        intents = "SELECT DISTINCT file FROM changes WHERE state = 'intent'"
        keys = [row[0] for row in self._journal.execute(intents)] if self._journal.exists else []
        session = Session(f"move-{self._home.profile}", home=str(self._home.path))
        with contextlib.closing(NoteJournal(self._home.journal_db, lock_timeout=10.0)) as journal:
            for place in self._places():
                with journal.opened(_TARGETS[place.name], place, session):
                    pass
            for key in keys:  # a crash may have come before the file was there
                journal.settle(NoteFile(self._home.memories / key, key))

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the text of each file, by key."""
        for place in self._places():
            yield place.key, join_entries(split_entries(place.read().decode("utf-8")))

    def changes(self, *, with_fingerprint: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Yield the history, oldest first, some changes at a time."""
        if not self._journal.exists:
            return iter(())
        columns = (*CHANGE_COLUMNS, *(["fingerprint"] if with_fingerprint else []))
        return _pages(self._journal, "changes", columns)

    def events(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the record of events, oldest first, some at a time."""
        return _pages(self._journal, "events", EVENT_COLUMNS) if self._journal.exists else iter(())

    def origins(self) -> Iterator[OriginRow]:
        """Yield the origins of texts, by folder and hash.

        Raises:
            StorageError: A file of origins can't be used.
        """
        for folder in self._folders():
            table = NoteOrigins(self._home.memories / folder / ORIGINS).read()
            if table.fault:
                raise StorageError(table.fault, "repair it first; nothing was changed")
            for key, origin in sorted(table.entries.items()):
                yield folder, key, *structs.astuple(origin)

    @property
    def project_keys(self) -> KeyFile:
        """The keys of the notes on repositories."""
        return KeyFile(self._home.memories / "projects")

    def replace(self, source: StoredNotes) -> None:
        """Put the notes of a server in the place of what is there. Older texts and origins are kept beside the files."""
        last_of: dict[str, int] = {}
        with self._journal.transaction() as connection:
            for table in FILE_TABLES:
                connection.execute(f"DELETE FROM {table}")
            for page in source.changes():
                for row in page:
                    last_of[row["file"]] = row["id"]
                    row.update({name: int(row[name]) for name in _BOOLEANS})
                    row["fingerprint"] = fingerprint(row["after"].encode("utf-8"))
                self._journal.insert("changes", page, "id")
            for page in source.events():
                self._journal.insert("events", page, "id")
        texts = dict(source.notes())
        for key in sorted({*texts, *(place.key for place in self._places())}):
            self._write(
                self._home.memories / key, key, texts.get(key, "").encode("utf-8"), last_of.get(key, 0)
            )
        self._write_origins(source)
        known = source.project_keys.read()
        if known.identities or known.folders:
            self.project_keys.write(known.identities, known.folders)

    def _write(self, path: Path, key: str, data: bytes, change: int) -> None:
        place = NoteFile(path, key)
        present = place.read()
        # A read-only copy of the row that is moved is no text of a person, and must not stay read-only.
        mirror = path.exists() and is_mirror(path)
        if present != data or mirror:
            if present and not mirror:
                place.back_up(present)
            remove_from_inventory(path)
            write_atomic(path, data, PRIVATE_FILE)
        if change:
            # Else the next program would take the file for one that was edited by hand.
            self._journal.execute(
                "UPDATE changes SET fingerprint = ? WHERE id = ?", (fingerprint(data), change)
            )

    def _write_origins(self, source: StoredNotes) -> None:
        by_folder: dict[str, dict[str, NoteOrigin]] = {folder: {} for folder in self._folders()}
        for folder, key, origin, *others in source.origins():
            by_folder.setdefault(folder, {})[key] = NoteOrigin(as_origin(origin), *others)
        inventory = Inventory(self._home.path)
        for folder, entries in by_folder.items():
            file = NoteOrigins(self._home.memories / folder / ORIGINS, inventory=inventory)
            if file.read().entries == entries:
                continue
            if file.path.exists():
                remove_from_inventory(file.path)
                file.path.replace(file.path.with_name(f"{ORIGINS}.moved-{self._stamp}"))
            if entries:
                file.merge(entries)

    def _places(self) -> Iterator[NoteFile]:
        """Yield the files of notes that exist, by key."""
        memories = self._home.memories
        patterns = ("MEMORY.md", "USER.md", "users/*/MEMORY.md", "users/*/USER.md", "projects/*/PROJECT.md")
        keys = sorted(
            path.relative_to(memories).as_posix() for pattern in patterns for path in memories.glob(pattern)
        )
        for key in keys:
            if not key.startswith("users/") or owner_of_key(key):
                yield NoteFile(memories / key, key)

    def _folders(self) -> list[str]:
        memories = self._home.memories
        folders = [
            path.parent.relative_to(memories).as_posix() for path in memories.glob(f"users/*/{ORIGINS}")
        ]
        return ["", *sorted(folder for folder in folders if owner_of_key(f"{folder}/MEMORY.md"))]


def owner_of_key(key: str) -> str:
    """Return the `Session.owner` of the notes with this key; "" for the person at home and for projects."""
    parts = key.split("/")
    return owner_of_folder(parts[1]) if parts[0] == "users" and len(parts) > 1 else ""


def _pages(database: Engine, table: str, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a table by id, some at a time, with truth as 0 and 1."""
    condition = "AND state = 'done'" if "state" in columns else ""
    names = ", ".join(columns)
    last = -1
    while True:
        rows: list[Mapping[str, Any]] = database.execute(
            f"SELECT {names} FROM {table} WHERE id > ? {condition} ORDER BY id LIMIT {ROWS_PER_PAGE}", (last,)
        ).fetchall()
        if not rows:
            return
        last = rows[-1]["id"]
        yield [{name: int(row[name]) if name in _BOOLEANS else row[name] for name in columns} for row in rows]
