"""Repair of a damaged state.db: the files are copied first, then what can be read goes into a new store.

The new store takes the place of the old one in the last step. Killed before that, nothing has changed but a copy more;
killed within it, the next repair goes on from the finished store.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, SessionError
from hermes_core.sessions import index, meaning
from hermes_core.sessions.mark import Mark
from hermes_core.sessions.migrations import MIGRATIONS, give_to_chats
from hermes_core.storage.faults import file_errors
from hermes_core.storage.files import PRIVATE_FOLDER, locked, sync_folder
from hermes_core.storage.salvage import (
    copy_parts,
    graft_header,
    last_row,
    open_damaged,
    parts_of,
    readable_columns,
    readable_rows,
    unused,
)
from hermes_core.storage.sqlite import Database, wal_of

TABLES = ("sessions", "messages", "turns", "state_meta")

_ORPHANS = """
    INSERT INTO sessions (key, id, source, started_at, last_active)
    SELECT session_key, 'recovered-' || session_key, 'recovered', min(timestamp), max(timestamp) FROM messages
    WHERE session_key NOT IN (SELECT key FROM sessions) GROUP BY session_key
"""
# A turn is whole or it is none: a provider would be given half of it.
_BROKEN_TURNS = """
    DELETE FROM turns WHERE session_key NOT IN (SELECT key FROM sessions)
        OR first_message_id NOT IN (SELECT id FROM messages) OR last_message_id NOT IN (SELECT id FROM messages)
"""
_POSITIONS = """
    UPDATE messages SET position = numbered.position FROM (
        SELECT id, row_number() OVER (PARTITION BY session_key ORDER BY id) - 1 AS position
        FROM messages WHERE state <> 2
    ) AS numbered WHERE messages.id = numbered.id
"""
_COUNTS = """
    UPDATE sessions SET message_count =
        (SELECT count(*) FROM messages WHERE session_key = sessions.key AND position IS NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair did. `kept` holds the files as they were; `lost` counts ids that held a row, or may have."""

    kept: Path
    saved: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def repair(
    path: Path, *, progress: Callable[[str, int], None] | None = None, clock: Callable[[], float] = time.time
) -> Repair:
    """Save what can be read of the store at `path` into a new one in its place; the old files are kept beside it.

    `progress` is told the table and how many of its rows were read. No other program may have the store open. Raises
    `DatabaseUnavailable` when one has, or there is no room, `DatabaseCorrupt` when no row can be read (the file then
    stays as it is), and `SessionError` when there is no store.
    """
    finished = path.with_name(f"{path.name}.repaired")
    with locked(path.with_name(f"{path.name}.repair")), file_errors(path):
        if not parts_of(path) and not finished.exists():
            raise SessionError(f"there is no session store {str(path)!r}", "there is nothing to repair")
        with unused(path):
            before = _stamps(path)
        kept = _keep(path, clock())
        result = Repair(kept)
        if not finished.exists():  # else a repair was killed in its last step
            _make(path, result, finished, progress or _tell_nobody)
        with unused(path):
            if _stamps(path) != before:
                finished.unlink()
                raise DatabaseUnavailable(
                    f"{str(path)!r} was written to meanwhile", "stop what uses it, then repair it again"
                )
            _swap(path, finished)
    return result


def _make(path: Path, result: Repair, finished: Path, progress: Callable[[str, int], None]) -> None:
    """Build the new store beside the old one, under its final name once it is whole and checked."""
    work = path.with_name(f".{path.name}.repairing")
    shutil.rmtree(work, ignore_errors=True)  # of a repair that was killed
    work.mkdir(mode=PRIVATE_FOLDER)
    try:
        new = Database(work / "new.db", MIGRATIONS, journal_mode="delete")
        with contextlib.closing(new), contextlib.closing(_open(result.kept / path.name, work)) as damaged:
            with new.transaction() as connection:
                _fill(connection, damaged, result, progress)
                _put_right(connection, Mark(path).read())
                index.rebuild(connection, lambda done: progress("search index", done))
            faults = new.integrity()
        if faults:
            raise DatabaseCorrupt(f"the repaired store is damaged as well: {faults[0]}", "check the disk")
        (work / "new.db").replace(finished)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fill(
    connection: sqlite3.Connection,
    damaged: sqlite3.Connection,
    result: Repair,
    progress: Callable[[str, int], None],
) -> None:
    """Copy every row that can be read; there must be one."""
    connection.execute("PRAGMA defer_foreign_keys = ON")  # a message may come without its session
    for table in TABLES:
        _copy(damaged, connection, table, result, progress)
    if not any(result.saved.values()) and any(result.lost.values()):  # a store may be empty and whole
        raise DatabaseCorrupt(
            "no row of the session store can be read",
            f"restore a backup, or move it away to begin anew; {str(result.kept)!r} holds a copy",
        )


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """The store's files with their sizes and times, to see whether anyone writes to them."""
    return [
        (part.name, part.stat().st_size, part.stat().st_mtime_ns)
        for part in parts_of(path)
        if not part.name.endswith("-shm")
    ]


def _keep(path: Path, now: float) -> Path:
    """Copy the files as they are into a folder of their own."""
    name = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}"
    folder = path.with_name(name)
    number = 1
    while folder.exists():
        number += 1
        folder = path.with_name(f"{name}-{number}")
    copy_parts(path, folder)
    return folder


def _open(original: Path, work: Path) -> sqlite3.Connection:
    """A readable copy: as it is, or with the first page of a new store when that one is gone, or all of its schema."""
    found: sqlite3.Connection | None = None
    for graft in ("", "header", "schema"):
        copy = work / f"copy-{graft}.db"
        for part in parts_of(original):
            if not part.name.endswith("-shm"):
                shutil.copyfile(part, copy.with_name(part.name.replace(original.name, copy.name)))
        if graft:
            graft_header(copy, _donor(work), schema=graft == "schema")
        if not copy.exists() or not copy.stat().st_size:
            continue
        connection = _opened(copy)
        if connection is None:
            continue
        if found is not None and not _roots(found).items() <= _roots(connection).items():
            connection.close()  # its tables lie elsewhere
            continue
        if found is not None:
            found.close()
        found = connection
        if all(readable_columns(found, table) for table in TABLES):
            break
    if found is not None:
        return found
    raise DatabaseCorrupt(
        f"nothing of {original.name!r} can be read",
        f"restore a backup, or move it away to begin anew; {str(original.parent)!r} holds a copy",
    )


def _opened(copy: Path) -> sqlite3.Connection | None:
    """A connection, unless not even the names of the tables can be read."""
    with contextlib.ExitStack() as stack:
        try:
            connection = open_damaged(copy)
            stack.callback(connection.close)
            if readable_columns(connection, "sessions") and readable_columns(connection, "messages"):
                stack.pop_all()
                return connection
        except sqlite3.DatabaseError:
            pass
    return None


def _roots(connection: sqlite3.Connection) -> dict[str, int]:
    """The pages at which our tables begin, as far as that is known."""
    roots: dict[str, int] = {}
    with contextlib.suppress(sqlite3.DatabaseError):
        for name, page in connection.execute("SELECT name, rootpage FROM sqlite_master"):
            if name in TABLES:
                roots[name] = page
    return roots


def _donor(work: Path) -> Path:
    """A new, empty store in a mode that goes with a write-ahead log."""
    donor = Database(work / "donor.db", MIGRATIONS, journal_mode="wal")
    with contextlib.closing(donor):
        _ = donor.connection
    return donor.path


def _copy(
    damaged: sqlite3.Connection,
    connection: sqlite3.Connection,
    table: str,
    result: Repair,
    progress: Callable[[str, int], None],
) -> None:
    """Copy the rows of a table that can be read and fit."""
    there = set(readable_columns(damaged, table))
    columns = [name for name in readable_columns(connection, table) if name in there]
    result.saved[table] = result.lost[table] = 0
    if not columns:
        result.lost[table] = max(last_row(damaged, table), 1)
        return
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for row_id, row in readable_rows(damaged, table, columns):
        if row is None or not _inserted(connection, insert, _freed(columns, row)):
            result.lost[table] += 1
        else:
            result.saved[table] += 1
        if row_id % index.BATCH == 0:
            progress(table, result.saved[table])


def _inserted(connection: sqlite3.Connection, insert: str, row: Sequence[object]) -> bool:
    if any(
        isinstance(value, str) and "\0" in value for value in row
    ):  # `storable` lets none in: pages of nothing
        return False
    try:
        connection.execute(insert, row)
    except sqlite3.IntegrityError:  # damage made it another type, or a second one of its kind
        return False
    return True


def _freed(columns: Sequence[str], row: tuple[object, ...]) -> list[object]:
    """The row without its position, which is counted anew when all rows are there."""
    return [None if name == "position" else value for name, value in zip(columns, row, strict=True)]


def _put_right(connection: sqlite3.Connection, mark: int) -> None:
    """Make the rows fit together, and let no id that was ever given out be given again."""
    for statement in (_ORPHANS, _BROKEN_TURNS, _POSITIONS, _COUNTS):
        connection.execute(statement)
    give_to_chats(connection)  # the rows may come from an earlier version
    connection.execute("DELETE FROM state_meta WHERE key = ?", (index.UNFINISHED,))
    connection.execute(
        "DELETE FROM state_meta WHERE key LIKE ?", (f"{meaning.DONE}%",)
    )  # vectors are made anew
    connection.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'messages'", (mark,))
    connection.execute(
        "INSERT INTO sqlite_sequence SELECT 'messages', ? WHERE 'messages' NOT IN (SELECT name FROM sqlite_sequence)",
        (mark,),
    )


def _swap(path: Path, finished: Path) -> None:
    """Put the finished store in place. Its old log goes first: SQLite would play it into the new file."""
    for part in parts_of(path):
        if part != path:
            part.unlink()
    sync_folder(path.parent)
    finished.replace(path)
    sync_folder(path.parent)
    wal_of(path).unlink(missing_ok=True)


def _tell_nobody(_table: str, _count: int) -> None:
    pass
