"""Maintenance of state.db: repair of a damaged file, free space, vectors made anew, and idle sessions.

A repair first copies the files, then writes every readable row into a new store, which takes the place of the old one in
the last step. If the repair is killed before that step, only one more copy exists; if it is killed during it, the next
repair continues with the finished store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, SessionError
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.schema import MIGRATIONS, give_to_chats
from hermes_core.sessions.search import index
from hermes_core.sessions.search.vectors import LAST_ID_KEY
from hermes_core.storage.files import PRIVATE_FOLDER, ensure_folder, locked, sync_folder
from hermes_core.storage.sqlite import Database, database_files, file_errors, repaired_copy, wal_of

TABLES = ("sessions", "messages", "turns", "state_meta", "outbox_rows", "outbox_settled", "outbox_refused")

# SQLite's default, which all our files have.
PAGE_SIZE = 4096

# Ids in a row that are tried in vain before the rest is given up: damage may have put absurd ids into the
# file.
MAX_LOST_IDS = 5_000_000

# Ids that are tried behind the last row that was read, if nothing tells the last id.
UNKNOWN_END_IDS = 100_000

# The bytes on which every SQLite connection to a file with a write-ahead log holds a shared lock (SQLite's
# `os.h`).
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510

_ORPHANS = """
    INSERT INTO sessions (key, id, source, started_at, last_active)
    SELECT session_key, 'recovered-' || session_key, 'recovered', min(timestamp), max(timestamp) FROM messages
    WHERE session_key NOT IN (SELECT key FROM sessions) GROUP BY session_key
"""
# A turn that lost messages is no longer complete: a provider would get half of it.
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

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair. `kept` holds the files as they were; `lost` counts ids that had a row, or may have."""

    kept: Path
    saved: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def repair(
    path: Path,
    *,
    progress: Progress = lambda _table, _count: None,
    clock: Callable[[], float] = time.time,
) -> Repair:
    """Save every readable row of the store at `path` into a new store in its place; keep the old files beside it.

    Args:
        progress: Called with a table and the number of rows read so far.

    Raises:
        DatabaseUnavailable: Another program has the store open, or there is no room.
        DatabaseCorrupt: No row can be read. The file stays as it is.
        SessionError: There is no store.
    """
    finished = repaired_copy(path)
    with locked(path.with_name(f"{path.name}.repair")), file_errors(path):
        if not database_files(path) and not finished.exists():
            raise SessionError(f"there is no session store {str(path)!r}", "there is nothing to repair")
        with exclusive(path):
            before = _stamps(path)
        result = Repair(_copy_aside(path, clock()))
        if not finished.exists():  # it does if a repair was killed in its last step
            _build(path, result, finished, progress)
        with exclusive(path):
            if _stamps(path) != before:
                finished.unlink()
                raise DatabaseUnavailable(
                    f"{str(path)!r} was written to meanwhile", "stop what uses it, then repair it again"
                )
            # The old log goes first: SQLite would replay it into the new file.
            for file in database_files(path):
                if file != path:
                    file.unlink()
            sync_folder(path.parent)
            finished.replace(path)
            sync_folder(path.parent)
            wal_of(path).unlink(missing_ok=True)
    return result


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Keep other processes from the database, where locks are POSIX's. Raises if one has it open.

    This process must not have it open either: closing the file here would drop its locks.
    """
    if os.name == "nt" or not path.exists():
        yield
        return
    import fcntl

    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError as exc:
            raise DatabaseUnavailable(
                f"another program has {str(path)!r} open", "stop it, then try again; nothing was changed"
            ) from exc
        yield


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of the store's files, to notice that another program writes to them."""
    return [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in database_files(path)
        if not file.name.endswith("-shm")
    ]


def _copy_aside(path: Path, now: float) -> Path:
    """Copy the database's files into a new folder beside it and sync them; on an error, remove the folder again."""
    name = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}"
    folder = path.with_name(name)
    number = 1
    while folder.exists():
        number += 1
        folder = path.with_name(f"{name}-{number}")
    with contextlib.ExitStack() as undo:
        ensure_folder(folder)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        for file in database_files(path):
            copy = folder / file.name
            shutil.copy2(file, copy)
            with copy.open("rb") as copied:
                os.fsync(copied.fileno())
        sync_folder(folder)
        undo.pop_all()
    return folder


def _build(path: Path, result: Repair, finished: Path, progress: Progress) -> None:
    """Build the new store in a folder beside the old one; move it to `finished` once it is whole and checked."""
    work = path.with_name(f".{path.name}.repairing")
    shutil.rmtree(work, ignore_errors=True)  # of a repair that was killed
    work.mkdir(mode=PRIVATE_FOLDER)
    try:
        new = Database(work / "new.db", MIGRATIONS, journal_mode="delete")
        with contextlib.closing(new), contextlib.ExitStack() as stack:
            new.integrity()  # creates the file
            old = _open_damaged(result.kept / path.name, work, new.path)
            stack.enter_context(contextlib.closing(old))
            with new.transaction() as connection:
                connection.execute("PRAGMA defer_foreign_keys = ON")  # a message may come without its session
                for table in TABLES:
                    _copy_table(old, connection, table, result, progress)
                if not any(result.saved.values()) and any(
                    result.lost.values()
                ):  # a store may be empty and whole
                    raise _nothing_readable(path, result.kept)
                for statement in (_ORPHANS, _BROKEN_TURNS, _POSITIONS, _COUNTS):
                    connection.execute(statement)
                give_to_chats(connection)  # the rows may come from an earlier version
                # Indexes and vectors are made anew, so that records of half-made ones no longer hold.
                connection.execute(
                    "DELETE FROM state_meta WHERE key = ? OR key LIKE ?",
                    (index.PROGRESS_KEY, f"{LAST_ID_KEY}%"),
                )
                index.rebuild_indexes(connection, lambda done: progress("search index", done))
            faults = new.integrity()
        if faults:
            raise DatabaseCorrupt(f"the repaired store is damaged as well: {faults[0]}", "check the disk")
        (work / "new.db").replace(finished)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _open_damaged(original: Path, work: Path, template: Path) -> sqlite3.Connection:
    """Open a copy of the damaged files that reads as much as SQLite can; invalid text is read with replacement signs.

    If SQLite can't find the tables, the first page is taken from `template`, a new store. It leads to the pages of the
    schema, which lie at the same places unless the file was vacuumed.
    """
    for first_page in (b"", template.read_bytes()[:PAGE_SIZE]):
        copy = work / f"copy-{len(first_page)}.db"
        for file in database_files(original):
            if not file.name.endswith("-shm"):
                shutil.copyfile(file, copy.with_name(file.name.replace(original.name, copy.name)))
        if first_page:
            page = bytearray(first_page)
            page[18:20] = b"\2\2"  # read the write-ahead log, which may hold the whole store
            page[92:96] = bytes(
                4
            )  # the number of pages in this header is not valid: use the size of the file
            with copy.open("r+b" if copy.exists() else "w+b") as file_copy:
                file_copy.write(page)
        connection = sqlite3.connect(copy, isolation_level=None)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        with contextlib.suppress(sqlite3.DatabaseError):
            # SQLite refuses a file that is shorter than its header says, unless its schema may be wrong.
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("PRAGMA cell_size_check = ON")
            if _columns(connection, "sessions") and _columns(connection, "messages"):
                return connection
        connection.close()
    raise _nothing_readable(original, original.parent)


def _nothing_readable(path: Path, kept: Path) -> DatabaseCorrupt:
    return DatabaseCorrupt(
        f"no row of {path.name!r} can be read",
        f"restore a backup, or move it away to begin anew; {str(kept)!r} holds a copy, "
        "of which `sqlite3 state.db .recover` may read more",
    )


def _copy_table(
    old: sqlite3.Connection, new: sqlite3.Connection, table: str, result: Repair, progress: Progress
) -> None:
    """Copy the rows of a table that can be read and that fit into the new one; count them."""
    readable = set(_columns(old, table))
    columns = [name for name in _columns(new, table) if name in readable]
    result.saved[table] = result.lost[table] = 0
    if not columns:
        result.lost[table] = max(_last_id(old, table), 1)
        return
    insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for row_id, row in readable_rows(old, table, columns):
        fits = False
        # Stored text has no NUL: a page of zeros does. Positions are counted anew once all rows are there.
        if row is not None and not any(isinstance(value, str) and "\0" in value for value in row):
            values = [None if name == "position" else value for name, value in zip(columns, row, strict=True)]
            # Damage may have made a value another type, or a second one of a unique kind.
            with contextlib.suppress(sqlite3.IntegrityError):
                new.execute(insert, values)
                fits = True
        result.saved[table] += fits
        result.lost[table] += not fits
        if row_id % index.BATCH == 0:
            progress(table, result.saved[table])


# ---------------------------------------------------------------------- reading of a damaged file


def readable_rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[object, ...] | None]]:
    """Yield row ids with the columns of the row, or with None if there may be a row that can't be read; in order.

    A damaged leaf page loses its own rows; the rows behind it are reached by seeking past it, id by id. A damaged inner
    page may hide rows without an error: those that an index knows are sought one by one.
    """
    seen: set[int] = set()
    for row_id, row in _scan(connection, table, columns):
        seen.add(row_id)
        yield row_id, row
    by_id = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid = ?"
    for row_id in sorted(_indexed_ids(connection, table) - seen):
        row = None
        with contextlib.suppress(sqlite3.DatabaseError):
            row = connection.execute(by_id, (row_id,)).fetchone()
        yield row_id, tuple(row) if row else None


def _scan(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[object, ...] | None]]:
    sql = f"SELECT rowid, {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
    end = _last_id(connection, table)
    current = last_read = 0
    while True:
        try:
            for row in connection.execute(sql, (current,)):
                if row[0] <= current:  # a page that leads back to an earlier one
                    raise sqlite3.DatabaseError(f"rows of {table} are out of order")
                current = last_read = row[0]
                yield current, tuple(row[1:])
        except sqlite3.DatabaseError:
            current += 1
            if current > (end or last_read + UNKNOWN_END_IDS) or current > last_read + MAX_LOST_IDS:
                return
            yield current, None
        else:
            return


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table, none if the table is unknown."""
    try:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return []


def _indexed_ids(connection: sqlite3.Connection, table: str) -> set[int]:
    """Return the row ids in the table's indexes, as far as these can be read."""
    ids: set[int] = set()
    with contextlib.suppress(sqlite3.DatabaseError):
        for _, name, _, _, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            if not partial:
                with contextlib.suppress(sqlite3.DatabaseError):
                    rows = connection.execute(f"SELECT rowid FROM {table} INDEXED BY {name}")
                    ids.update(row[0] for row in rows if isinstance(row[0], int))
    return ids


def _last_id(connection: sqlite3.Connection, table: str) -> int:
    """Return the highest row id that anything in the file tells, 0 if nothing does."""
    ids = [0]
    for sql in (
        f"SELECT max(rowid) FROM {table}",
        f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
    ):
        with contextlib.suppress(sqlite3.DatabaseError):
            ids += [row[0] for row in connection.execute(sql) if isinstance(row[0], int)]
    return max(ids)


# ---------------------------------------------------------------------- space, vectors, idle sessions


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """Sizes of the file in bytes, before and after. After a dry run, `after` is an upper bound."""

    before: int
    after: int


def rebuild_vectors(
    sessions: SessionDB, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> int:
    """Compute all vectors anew; return for how many messages, 0 without search by meaning.

    Answers of tools get no vector. `progress` gets the count so far and the total.
    """
    if sessions.vectors is None:
        return 0
    sessions.vectors.forget()
    total = sessions.vectors.missing()
    return sessions.vectors.build(lambda done: progress(done, total))


def vacuum(sessions: SessionDB, *, dry_run: bool = False) -> Vacuumed:
    """Return the space of deleted rows to the file system, and merge the segments of the indexes.

    Other writers wait meanwhile. A dry run changes nothing.
    """
    database = sessions.database

    def sizes() -> tuple[int, int]:
        """Return the bytes of the whole file and of its free pages."""
        size, pages, free = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        return size * pages, size * free

    before, free = sizes()
    if dry_run:
        return Vacuumed(before, before - free)
    with database.transaction() as connection:
        for table in ("messages_fts", "messages_grams"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Vacuumed(before, sizes()[0])


def idle_sessions(sessions: SessionDB, before: float, sources: Sequence[str] = ()) -> list[str]:
    """Return the ids of sessions without a message since `before` (epoch seconds), oldest first.

    A conversation counts as a whole: a session whose continuation, branch or delegation is newer is not idle.
    """
    rows = sessions.database.execute(
        "SELECT id, source FROM sessions WHERE last_active < ? ORDER BY last_active", (before,)
    ).fetchall()
    idle = {row["id"] for row in rows}
    return [
        row["id"]
        for row in rows
        if (not sources or row["source"] in sources) and sessions.lineage(row["id"]) <= idle
    ]
