"""Every change of curated memory, written before it happens, for history and undo.

A change is first an *intent*, then the file is replaced, then the intent is *done*. A process that dies in between
leaves an intent, and so does a disk that fails: who opens the file next compares it with the file's fingerprint and
knows which of the two happened. All writing here happens under the file's lock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_core.contract.values import MemoryTarget, MemoryWrite, Session
from hermes_core.curated.document import split
from hermes_core.errors import DatabaseCorrupt
from hermes_core.storage.followed import Followed
from hermes_core.storage.sqlite import Database

VERSIONS_KEPT = 1000
"""Changes kept for each file. Older ones can't be undone any more."""

_TABLE = """
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL,
    target TEXT NOT NULL,
    action TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intent', 'done')),
    at REAL NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    session TEXT NOT NULL,
    writes TEXT NOT NULL,
    mirrored INTEGER NOT NULL,
    undoes INTEGER,
    undone INTEGER NOT NULL DEFAULT 0
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Version:
    """One change that happened: `action` is add, replace, remove, batch, reset, undo or edit (by hand).

    `before` and `after` are all entries of the file; `undoes` is the id of the change that this one took back.
    """

    id: int
    target: MemoryTarget
    action: str
    at: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    session_id: str = ""
    undoes: int | None = None
    undone: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """Entries that came, counting equal ones."""
        return tuple((Counter(self.after) - Counter(self.before)).elements())

    @property
    def removed(self) -> tuple[str, ...]:
        """Entries that went, counting equal ones."""
        return tuple((Counter(self.before) - Counter(self.after)).elements())


@dataclass(frozen=True, slots=True)
class Known:
    """A state of a file: the fingerprint of its bytes, and its entries."""

    fingerprint: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A change about to be written: texts of the whole file, the fingerprint that the file will have, and why."""

    file: str
    target: MemoryTarget
    action: str
    before: str
    after: str
    fingerprint: str
    session: Session
    writes: Sequence[MemoryWrite] = ()
    undoes: int | None = None


class Journal:
    """The changes of one home's memory files, in `journal.db`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        migrations = [("changes", _create), ("changes by file", _index), ("who took a change", _takers)]
        self._file = Followed(lambda: Database(path, migrations, secure_delete=True))
        self._clock = clock

    def settle(self, file: str, fingerprint: str) -> None:
        """Decide the intents that a dead process left: done when the file has their fingerprint, else never happened."""
        rows = self._execute(
            "SELECT id, fingerprint FROM changes WHERE file = ? AND state = 'intent'", (file,)
        ).fetchall()
        for row in rows:
            if row["fingerprint"] == fingerprint:
                self.finish(row["id"], mirrored=False)
            else:
                self._execute("DELETE FROM changes WHERE id = ?", (row["id"],))

    def last_known(self, file: str) -> Known | None:
        """What the file held after its last change that we know of."""
        row = self._execute(
            "SELECT fingerprint, after FROM changes WHERE file = ? AND state = 'done' ORDER BY id DESC LIMIT 1",
            (file,),
        ).fetchone()
        return Known(row["fingerprint"], split(row["after"])) if row else None

    def begin(self, step: Step, taker: str = "") -> int:
        """Record the intent, which the provider `taker` is to be told of, on disk when this returns; gives its id, which no
        other process gets.
        """
        return self._insert(step, "intent", taker)

    def record(self, step: Step) -> int:
        """Record what happened without us: a hand edit."""
        return self._insert(step, "done", "")

    def finish(self, change: int, *, mirrored: bool, taker: str | None = None) -> None:
        """Mark a change done, taken by the provider `taker` (None: by whom it was meant for), and the one that it takes back
        as undone.

        What is older than the bound is dropped.
        """
        with _remedied(), self._unhurried(), self._database.transaction() as connection:
            connection.execute(
                "UPDATE changes SET state = 'done', mirrored = mirrored OR ?, taker = coalesce(?, taker)"
                " WHERE id = ?",
                (mirrored, taker, change),
            )
            row = connection.execute("SELECT file, undoes FROM changes WHERE id = ?", (change,)).fetchone()
            if row is None:  # another process was first, and a prune after it
                return
            if row["undoes"] is not None:
                _mark_undone(connection, row["undoes"])
            connection.execute(
                "DELETE FROM changes WHERE file = ? AND mirrored AND id <= "
                "(SELECT id FROM changes WHERE file = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (row["file"], row["file"], VERSIONS_KEPT),
            )

    def unmirrored(self, taker: str) -> list[tuple[int, Session, list[MemoryWrite]]]:
        """Changes that happened and whose writes nobody has taken yet, oldest first: those meant for the provider `taker`, or
        for nobody knows whom.
        """
        rows = self._execute(
            "SELECT id, session, writes FROM changes"
            " WHERE state = 'done' AND NOT mirrored AND taker IN ('', ?) ORDER BY id",
            (taker,),
        )
        return [
            (
                row["id"],
                Session.from_dict(json.loads(row["session"])),
                [_write(data) for data in json.loads(row["writes"])],
            )
            for row in rows
        ]

    def writer_of(self, entry: str, change: int) -> Session | None:
        """Who had this entry written that a change took away; None when it came by hand, or that is forgotten."""
        row = self._origin(entry, change)
        return Session.from_dict(json.loads(row["session"])) if row else None

    def last_taken(self, taker: str) -> int:
        """The newest change that the provider `taker` took; 0 when none is known."""
        query = "SELECT coalesce(max(id), 0) FROM changes WHERE taker = ? AND mirrored"
        return int(self._execute(query, (taker,)).fetchone()[0])

    def gone(self, taker: str, since: int) -> Iterator[tuple[int, Session, MemoryWrite]]:
        """What took entries away after the change `since` that `taker` was told of, and that are not back, oldest first."""
        rows = self._execute(
            "SELECT id, file, session, writes FROM changes"
            " WHERE id > ? AND state = 'done' AND (mirrored OR taker <> '') AND taker <> ? ORDER BY id",
            (since, taker),
        )
        for row in rows.fetchall():
            for write in map(_write, json.loads(row["writes"])):
                origin = self._origin(write.previous, row["id"]) if write.previous else None
                now = self.last_known(row["file"])
                if origin and origin["taker"] == taker and now and write.previous not in now.entries:
                    yield row["id"], Session.from_dict(json.loads(row["session"])), write

    def versions(self, files: Sequence[str]) -> Iterator[Version]:
        """The changes of these files that happened, newest first."""
        marks = ", ".join("?" * len(files))
        query = f"SELECT * FROM changes WHERE state = 'done' AND file IN ({marks}) ORDER BY id DESC"  # noqa: S608  only question marks
        for row in self._execute(query, files):
            yield _version(row)

    def prune(self, file: str, fingerprint: str) -> int:
        """Delete what this file held before, but for changes that the provider was not told yet; how many changes went.

        What stays is the newest change, if the file has its fingerprint still, without what was before it.
        """
        with _remedied(), self._database.transaction() as connection:
            newest = "(SELECT max(id) FROM changes WHERE file = :file AND state = 'done')"
            connection.execute(
                f"UPDATE changes SET before = after, writes = '[]', undoes = NULL WHERE id = {newest} AND mirrored",  # noqa: S608  a constant
                {"file": file},
            )
            gone = connection.execute(
                f"DELETE FROM changes WHERE file = :file AND mirrored"  # noqa: S608  a constant
                f" AND NOT (id = {newest} AND fingerprint = :fingerprint)",
                {"file": file, "fingerprint": fingerprint},
            ).rowcount
        # The write-ahead log holds the old pages until it is folded in.
        self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return gone

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    @property
    def _database(self) -> Database:
        return self._file.now

    def _origin(self, entry: str, change: int) -> sqlite3.Row | None:
        """The change that brought this entry, which another took away; None when it came by hand, or that is forgotten."""
        rows = self._execute(
            "SELECT before, after, session, taker FROM changes"
            " WHERE file = (SELECT file FROM changes WHERE id = ?)"
            " AND id < ? AND action <> 'edit' AND instr(after, ?) > 0 ORDER BY id DESC",
            (change, change, entry),
        )
        brought = (row for row in rows if entry in split(row["after"]) and entry not in split(row["before"]))
        return next(brought, None)

    def _execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        with _remedied():
            return self._database.execute(sql, parameters)

    @contextlib.contextmanager
    def _unhurried(self) -> Iterator[None]:
        """Commit without waiting for the disk: a mark that a power cut takes is set again by `settle`."""
        self._execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._execute("PRAGMA synchronous = FULL")

    def _insert(self, step: Step, state: str, taker: str) -> int:
        cursor = self._execute(
            "INSERT INTO changes (file, target, action, state, at, before, after, fingerprint, session, writes,"
            " mirrored, undoes, taker) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                step.file,
                step.target,
                step.action,
                state,
                self._clock(),
                step.before,
                step.after,
                step.fingerprint,
                json.dumps(step.session.to_dict()),
                json.dumps([_plain(write) for write in step.writes]),
                not step.writes,
                step.undoes,
                taker,
            ),
        )
        return int(cursor.lastrowid or 0)


@contextlib.contextmanager
def _remedied() -> Iterator[None]:
    """Say what damage here means: the notes themselves lie in files of their own."""
    try:
        yield
    except DatabaseCorrupt as exc:
        remedy = "move it away: only history and undo are lost, MEMORY.md and USER.md are whole"
        raise DatabaseCorrupt(exc.message, remedy) from exc


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)


def _index(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE INDEX changes_by_file ON changes (file, id)")


def _takers(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE changes ADD COLUMN taker TEXT NOT NULL DEFAULT ''")


def _mark_undone(connection: sqlite3.Connection, change: int) -> None:
    """Undoing an undo brings the first change back."""
    connection.execute("UPDATE changes SET undone = 1 WHERE id = ?", (change,))
    connection.execute(
        "UPDATE changes SET undone = 0 WHERE id = (SELECT undoes FROM changes WHERE id = ?)", (change,)
    )


def _plain(write: MemoryWrite) -> dict[str, object]:
    return {field.name: getattr(write, field.name) for field in dataclasses.fields(write)} | {
        "metadata": dict(write.metadata)
    }


def _write(data: dict[str, Any]) -> MemoryWrite:
    known = {field.name for field in dataclasses.fields(MemoryWrite)}
    return MemoryWrite(**{key: value for key, value in data.items() if key in known})


def _version(row: sqlite3.Row) -> Version:
    return Version(
        id=row["id"],
        target=row["target"],
        action=row["action"],
        at=row["at"],
        before=split(row["before"]),
        after=split(row["after"]),
        session_id=json.loads(row["session"])["id"],
        undoes=row["undoes"],
        undone=bool(row["undone"]),
    )
