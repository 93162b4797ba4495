"""Notes on a server that several machines share: the text and the origins of each note in rows.

Nobody holds a lock while a change is planned. A write names the version of the row that it has read, and is planned anew
if another program was quicker.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.journal import CHANGES
from hermes_core.curated.note_places import NotePlaces
from hermes_core.curated.origins import (
    UNKNOWN,
    NoteOrigin,
    NoteOrigins,
    OriginTable,
    entry_hash,
    newest_origins,
)
from hermes_core.curated.places import NoteFile, NotePlace, NotesChanged, NoteText
from hermes_core.curated.project import FolderKey, KnownKeys, Repository
from hermes_core.errors import MemoryConflict, StorageError
from hermes_core.kit import write_atomic
from hermes_core.safety.origin import as_origin
from hermes_core.storage.engine import Engine, Statement
from hermes_core.storage.inventory import ORIGINS

log = logging.getLogger(__name__)

# Mode of the copies in `memories/`: read-only also for their owner, so that an editor warns whoever opens them.
MIRROR_MODE = 0o400

_UPSERT_ORIGIN = """
    INSERT INTO note_origins (folder, hash, origin, at, session, confirmed, pinned)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (folder, hash) DO UPDATE SET origin = excluded.origin, at = excluded.at,
        session = excluded.session, confirmed = excluded.confirmed, pinned = excluded.pinned
"""


_UPSERT_KEY = """
    INSERT INTO project_keys (machine, place, key, git, earlier) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (machine, place) DO UPDATE SET key = excluded.key, git = excluded.git, earlier = excluded.earlier
"""


class NoteRow:
    """MEMORY.md, USER.md or PROJECT.md of one owner as a row on a server.

    Args:
        path: The file that the notes would be in a home without a server: where the read-only copy is written.
        key: Name of the row, the path of that file below the folder of the notes.
        owner: `Session.owner` of the notes.
        mirror: True to write the copy after each change.
    """

    in_database = True

    def __init__(
        self,
        database: Engine,
        path: Path,
        key: str,
        owner: str,
        target: MemoryTarget,
        *,
        mirror: bool = False,
        reads: SharedReads | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.name, self.key = path, path.name, key
        self._database, self._owner, self._target = database, owner, target
        self._mirrors, self._reads, self._clock = mirror, reads, clock
        self._mirrored = 0  # version of the copy that this process has written

    @property
    def label(self) -> str:
        """The key of the row and the address of its server."""
        return f"{self.key!r} on {self._database.label!r}"

    @contextlib.contextmanager
    def locked(self, timeout: float) -> Iterator[None]:  # noqa: ARG002  of files
        """Hold no lock: `replace` finds out whether another program has written meanwhile."""
        yield

    @property
    def query(self) -> Statement:
        """The statement that reads the row."""
        return "SELECT version, text FROM notes WHERE file = ?", (self.key,)

    def load(self) -> NoteText:
        """Return the text and the version of the row; an empty text of version 0 if there is none.

        Raises:
            MemoryConflict: The server can't be reached. The notes must not be taken for empty.
        """
        rows = self._reads.rows_of(self.key) if self._reads is not None else None
        if rows is None:
            try:
                rows = self._database.execute(*self.query).fetchall()
            except StorageError as exc:
                raise self.unreadable(exc.message, exc.remedy) from exc
        stored = NoteText(rows[0]["text"].encode("utf-8"), rows[0]["version"]) if rows else NoteText()
        if self._mirrors and stored.version > self._mirrored:
            self._write_mirror(stored.data, stored.version)
        return stored

    def read(self) -> bytes:
        """Return the bytes of the text; b"" if there is none."""
        return self.load().data

    def replace(self, text: str, expected: NoteText, *, versions: int = 1) -> None:
        """Write the whole text, if the row still has the version that was read. Call it within a transaction.

        Raises:
            NotesChanged: Another program changed the row since it was read.
        """
        if self._reads is not None:
            self._reads.forget()  # also if another program was quicker: the next look has to ask the server
        version, now = expected.version + versions, self._clock()
        if expected.version:
            rows = self._database.execute(
                "UPDATE notes SET version = ?, text = ?, changed_at = ? WHERE file = ? AND version = ?",
                (version, text, now, self.key, expected.version),
            )
        else:
            rows = self._database.execute(
                "INSERT INTO notes (file, owner, target, version, text, changed_at) VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (file) DO NOTHING",
                (self.key, self._owner, self._target, version, text, now),
            )
        if not rows.rowcount:
            raise NotesChanged(f"{self.name} was changed by another program just now", "try again")
        if self._mirrors:
            self._database.after_commit(partial(self._write_mirror, text.encode("utf-8"), version))

    def try_back_up(self, data: bytes) -> str:  # noqa: ARG002  of files
        """Return "": the history keeps each version."""
        return ""

    def drop_backups(self) -> int:
        """Return 0: there are no copies but the mirror, which holds what is there now."""
        return 0

    def unreadable(self, reason: str, remedy: str) -> MemoryConflict:
        """Return the error for a row that can't be read."""
        return MemoryConflict(f"the notes {self.key!r} can't be read: {reason}", remedy)

    def _write_mirror(self, data: bytes, version: int) -> None:
        """Write the read-only copy. A file of the same name that is no such copy is kept as a backup copy."""
        self._mirrored = version
        try:
            if self.path.exists() and not is_mirror(self.path):
                file = NoteFile(self.path)
                file.back_up(file.read())
            write_atomic(self.path, data, MIRROR_MODE)
        except (StorageError, MemoryConflict, OSError) as exc:
            # `doctor` compares the copy with the row. The change itself is stored.
            log.warning("the copy %s of the notes can't be written: %s", self.path, exc)


def is_mirror(path: Path) -> bool:
    """Return True if a file has the mode of a read-only copy of the notes."""
    return not stat.S_IMODE(path.stat().st_mode) & 0o222


class RowOrigins(NoteOrigins):
    """The origins of the notes of one folder as rows on a server.

    Args:
        folder: Path below the folder of the notes, "" for the notes of the home.
    """

    def __init__(
        self,
        database: Engine,
        folder: str,
        path: Path,
        clock: Callable[[], float] = time.time,
        *,
        reads: SharedReads | None = None,
    ) -> None:
        super().__init__(path, clock)
        self._database, self._folder, self._reads = database, folder, reads

    @property
    def query(self) -> Statement:
        """The statement that reads the rows."""
        return "SELECT hash, origin, at, session, confirmed, pinned FROM note_origins WHERE folder = ?", (
            self._folder,
        )

    def read(self) -> OriginTable:
        """Read the rows. If the server can't be reached, no entry counts as a person's."""
        rows = self._reads.rows_of(self._folder, origins=True) if self._reads is not None else None
        if rows is None:
            try:
                rows = self._database.execute(*self.query).fetchall()
            except StorageError as exc:
                return OriginTable(fault=f"the origins of the notes can't be read: {exc}")
        return OriginTable({row["hash"]: _origin_of(row) for row in rows})

    def rebuild(self, entries: Iterable[str]) -> None:
        """Replace all origins: every entry waits for a person."""

        def change(table: dict[str, NoteOrigin]) -> None:
            table.clear()
            table.update({entry_hash(entry): UNKNOWN for entry in entries})

        self._change(change)

    def _change(self, change: Callable[[dict[str, NoteOrigin]], None]) -> None:
        def write() -> None:
            with self._database.transaction() as connection:
                # The origin of a text is only ever lowered, which needs the one that is stored now.
                self._database.serialize(f"note_origins {self._folder}")
                before = {row["hash"]: _origin_of(row) for row in connection.execute(*self.query)}
                after = dict(before)
                change(after)
                if after != before:
                    self._store(before, newest_origins(after))

        self._database.retry(write, idempotent=True)
        if self._reads is not None:
            self._reads.forget()

    def _store(self, before: Mapping[str, NoteOrigin], after: Mapping[str, NoteOrigin]) -> None:
        rows = [
            (self._folder, key, new.origin, new.at, new.session, new.confirmed, new.pinned)
            for key, new in after.items()
            if before.get(key) != new
        ]
        dropped = [(self._folder, key) for key in before if key not in after]
        self._database.batch(
            [
                *((_UPSERT_ORIGIN, row) for row in rows),
                *(("DELETE FROM note_origins WHERE folder = ? AND hash = ?", row) for row in dropped),
            ]
        )


def _origin_of(row: Any) -> NoteOrigin:
    return NoteOrigin(as_origin(row["origin"]), row["at"], row["session"], row["confirmed"], row["pinned"])


class KeyRows:
    """The keys of the notes on repositories as rows on a server, which several machines share.

    A repository has the same identity on each machine. Its folders, and the numbers of their `.git`, are of one machine.
    """

    is_shared = True

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._machine = socket.gethostname()

    def read(self, repository: Repository | None = None) -> KnownKeys:
        """Return the stored keys of this machine's folders, and of one identity or of all."""
        identity = "" if repository is None else "AND place = ?"
        present = () if repository is None else (_storable(repository.identity),)
        keys, folders, notes = self._database.read(
            [
                (
                    f"SELECT place, key FROM project_keys WHERE machine = '' {identity}",
                    present,
                ),
                ("SELECT place, key, git, earlier FROM project_keys WHERE machine = ?", (self._machine,)),
                ("SELECT file FROM notes WHERE owner = '' AND target = 'project'", ()),
            ]
        )
        files = {row["file"] for row in notes}
        return KnownKeys(
            {row["place"] if repository is None else repository.identity: row["key"] for row in keys},
            {
                row["place"]: FolderKey(row["key"], row["git"], tuple(row["earlier"].split()))
                for row in folders
            },
            lambda key: f"projects/{key}/PROJECT.md" in files,
        )

    def store(self, repository: Repository, entry_of: Callable[[KnownKeys], FolderKey]) -> None:
        """Store the key of a repository for its identity and its folder."""
        known = self.read(repository)
        self.merge({repository.identity: repository.key}, {repository.top: entry_of(known)})

    def merge(self, identities: Mapping[str, str], folders: Mapping[str, FolderKey]) -> None:
        """Store keys by identity and by folder of this machine, in place of those that these have."""
        rows = [("", _storable(name), key, "", "") for name, key in identities.items()]
        rows += [
            (self._machine, _storable(top), entry.key, entry.git, " ".join(entry.earlier))
            for top, entry in folders.items()
        ]
        # In one order, so that two machines do not wait for one another.
        if rows:
            self._database.batch([(_UPSERT_KEY, row) for row in sorted(rows)])


def _storable(place: str) -> str:
    """Return a path or an address as text that a server takes: without NUL, and with odd bytes of a path escaped."""
    return place.replace("\0", "").encode("utf-8", "backslashreplace").decode("utf-8")


class RowPlaces(NotePlaces):
    """The places of the notes of a home in rows of a database that several machines share.

    Args:
        mirror: True to write a read-only copy of each row into the folder of the notes.
    """

    def __init__(
        self,
        home: HermesHome,
        database: Engine,
        *,
        mirror: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(home, clock=clock)
        self._database, self._mirror = database, mirror
        self._reads = SharedReads(database)

    @property
    def project_keys(self) -> KeyRows:
        """The keys of the notes on repositories."""
        return KeyRows(self._database)

    @property
    def journal(self) -> Engine:
        """The database with the tables of the journal."""
        return self._database

    def of_projects(self) -> list[NotePlace]:
        """Return the places of the notes on all repositories.

        Raises:
            StorageError: The database can't be read.
        """
        query = "SELECT file FROM notes WHERE owner = '' AND target = 'project' ORDER BY file"
        paths = [self.home.memories / row["file"] for row in self._database.execute(query)]
        return [self.place(path, "", "project") for path in paths]

    def place(self, path: Path, owner: str, target: MemoryTarget) -> NoteRow:
        """Return the row of the notes that a home without a server has in the file `path`."""
        return NoteRow(
            self._database,
            path,
            self.key(path),
            owner,
            target,
            mirror=self._mirror,
            reads=self._reads,
            clock=self._clock,
        )

    def origins(self, folder: Path) -> RowOrigins:
        """Return the origins of the notes in a folder of the home."""
        return RowOrigins(self._database, self.key(folder), folder / ORIGINS, self._clock, reads=self._reads)

    def owners(self) -> list[str]:
        """Return the `Session.owner` of each user who has notes or skills of their own.

        Raises:
            StorageError: The database can't be read.
        """
        rows = self._database.execute("SELECT DISTINCT owner FROM notes WHERE owner <> ''")
        return sorted({*super().owners(), *(row["owner"] for row in rows)})

    def delete(self, places: Iterable[NotePlace], folder: Path) -> None:
        """Delete the rows of these places, their history as far as it is in the outbox, and the origins of a folder."""
        names = [place.key for place in places]
        self._database.batch(
            [
                (f"DELETE FROM {CHANGES} WHERE file = ANY (?) AND enqueued", (names,)),
                # The versions of changes that are left must not begin anew.
                (
                    "DELETE FROM notes WHERE file = ANY (?)"
                    f" AND NOT EXISTS (SELECT 1 FROM {CHANGES} c WHERE c.file = notes.file)",
                    (names,),
                ),
                ("DELETE FROM note_origins WHERE folder = ?", (self.key(folder),)),
            ]
        )

    def keys(self) -> list[str]:
        """Return the keys of all notes that the database has, or had.

        Raises:
            StorageError: The database can't be read.
        """
        rows = self._database.execute("SELECT file FROM notes ORDER BY file")
        return [row["file"] for row in rows]

    def reading(self, places: Iterable[NotePlace], folder: Path) -> contextlib.AbstractContextManager[None]:
        """Return a context manager within which the notes are read at most once."""
        return self._reads.block([place.key for place in places], self.key(folder))


class SharedReads:
    """One read of all notes and origins of an owner, in one round trip, that a block of calls shares.

    A turn looks at the notes a dozen times, and each look would be a round trip of its own.
    """

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._local = threading.local()

    @contextlib.contextmanager
    def block(self, keys: Iterable[str], folder: str) -> Iterator[None]:
        """Read notes and origins once in the block, with the first other read. An inner block joins the outer one.

        Args:
            keys: The keys of the notes.
            folder: The folder of their origins.
        """
        if getattr(self._local, "request", None) is not None:
            yield
            return
        self._local.request = tuple(keys), folder
        self.forget()
        try:
            yield
        finally:
            self._local.request = self._local.rows = None

    def rows_of(self, name: str, *, origins: bool = False) -> list[Any] | None:
        """Return the rows of a note or of a folder of origins; None outside of a block, or if they can't be read."""
        request: tuple[tuple[str, ...], str] | None = getattr(self._local, "request", None)
        if request is None or (name != request[1] if origins else name not in request[0]):
            return None
        try:
            rows, table_rows = self._local.rows()
        except StorageError:  # the look of its own reports it
            return None
        return list(table_rows) if origins else [row for row in rows if row["file"] == name]

    def forget(self) -> None:
        """Read anew at the next look, because this program has changed something."""
        request: tuple[tuple[str, ...], str] | None = getattr(self._local, "request", None)
        if request is None:
            return
        keys, folder = request
        self._local.rows = self._database.ask(
            [
                ("SELECT file, version, text FROM notes WHERE file = ANY (?)", (list(keys),)),
                (
                    "SELECT hash, origin, at, session, confirmed, pinned FROM note_origins WHERE folder = ?",
                    (folder,),
                ),
            ]
        )
