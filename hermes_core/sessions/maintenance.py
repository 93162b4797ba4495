"""Maintenance of state.db: repair of a damaged file, free space, new vectors, and the search for idle sessions.

A repair first copies the damaged files into a new folder and writes every readable row into a new store. In its last
step, the new store replaces the old one. If the repair is killed before the last step, the store has not changed; if it
is killed in the last step, the next repair continues with the new store.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from hermes_core.curated.places import repair_notes
from hermes_core.curated.rows import NoteRows
from hermes_core.curated.tables import NOTE_TABLES
from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, SessionError
from hermes_core.sessions.schema import MIGRATIONS, STORED_TABLES
from hermes_core.sessions.search import index
from hermes_core.sessions.search.protocol import LAST_ID_KEY, PROGRESS_KEY
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.files import PRIVATE_FOLDER, ensure_folder, locked, sync_folder
from hermes_core.storage.inventory import Inventory
from hermes_core.storage.sqlite import Database, database_files, file_errors, repaired_copy, wal_of

# SQLite's default, which all our files have.
PAGE_SIZE = 4096

# After this many ids in a row without a readable row, the rest of the table is given up: damage may have put an absurd
# last id into the file.
MAX_LOST_IDS = 5_000_000

# Number of ids that are tried after the last readable row if the file does not show the highest id of the table: rows
# may follow behind a damaged page.
UNKNOWN_END_IDS = 100_000

# The bytes on which every SQLite connection to a file with a write-ahead log holds a shared lock (SQLite's
# `os.h`).
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510

_ORPHANS = """
    INSERT INTO sessions (key, id, source, started_at, last_active)
    SELECT session_key, 'recovered-' || session_key, 'recovered', min(timestamp), max(timestamp) FROM messages
    WHERE session_key NOT IN (SELECT key FROM sessions) GROUP BY session_key
"""
# An unfinished turn that lost its session or messages can't be continued.
_BROKEN_OPEN_TURNS = (
    """DELETE FROM open_turns WHERE session_key NOT IN (SELECT key FROM sessions) OR key IN (
           SELECT turn_key FROM open_messages GROUP BY turn_key HAVING max(number) + 1 > count(*))""",
    "DELETE FROM open_messages WHERE turn_key NOT IN (SELECT key FROM open_turns)",
)
_LOST_TURN_RECORDS = "DELETE FROM turn_records WHERE turn_key NOT IN (SELECT key FROM turns)"
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
    """The result of a repair.

    Attributes:
        kept: Folder with copies of the damaged files.
        saved: Number of saved rows by table.
        lost: Number of ids by table whose row could not be read. Some of these ids may never have had a row.
    """

    kept: Path
    saved: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def repair(
    path: Path,
    *,
    progress: Progress = lambda _table, _count: None,
    clock: Callable[[], float] = time.time,
) -> Repair:
    """Replace the damaged store at `path` by a new store with every readable row; keep the old files in a folder.

    Args:
        path: The file of the store.
        progress: Function that gets a table's name and the number of its rows saved so far.
        clock: Function that returns the current time in epoch seconds, for the name of the folder.

    Raises:
        DatabaseUnavailable: Another program has the store open, or the disk is full.
        DatabaseCorrupt: No row can be read. The file stays as it is.
        SessionError: There is no store.
    """
    finished = repaired_copy(path)
    # A statement that failed on the damage may be garbage that refers to itself. SQLite closes its connection with it, and
    # writes the log into the file then: in the middle of the repair, it would pass for another program.
    gc.collect()
    with locked(path.with_name(f"{path.name}.repair")), file_errors(path):
        if not database_files(path) and not finished.exists():
            raise SessionError(f"there is no session store {str(path)!r}", "there is nothing to repair")
        with exclusive(path):
            before = _stamps(path)
        result = Repair(_copy_aside(path, clock()))
        if not finished.exists():  # it exists if an earlier repair was killed in its last step
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
    """Within the block, keep other processes from opening the database; on Windows, only look that none has it open.

    Raises `DatabaseUnavailable` if another process has the database open. This process must not have it open either,
    because closing the file at the end of the block would drop all locks of this process on it.
    """
    if not path.exists():
        yield
        return
    try:
        import fcntl
    except ImportError:
        try:
            # Refused while the file is open; the block could not replace it then either.
            os.rename(path, path)  # noqa: PTH104  callers count their own renames, and take them back
        except OSError as exc:
            raise _in_use(path) from exc
        yield
        return
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
        except OSError as exc:
            raise _in_use(path) from exc
        yield


def _in_use(path: Path) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"another program has {str(path)!r} open", "stop it, then try again; nothing was changed"
    )


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of change of the store's files. They differ after another program has written."""
    return [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in database_files(path)
        if not file.name.endswith("-shm")
    ]


def _copy_aside(path: Path, now: float) -> Path:
    """Copy the files of the database into a new folder beside the database, sync the copies, and return the folder.

    If this fails, remove the folder. `now` (epoch seconds) becomes a part of the folder's name.
    """
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
    """Build the new store from the readable rows in a temporary folder, check it, and move it to `finished`.

    Args:
        path: The file of the damaged store.
        result: The result of the repair, in which saved and lost rows are counted.
        finished: The path of the new store.
        progress: Function that gets a table's name and the number of its rows saved so far.
    """
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
                for table in STORED_TABLES:
                    _copy_table(old, connection, table.name, result, progress)
                if not any(result.saved.values()) and any(
                    result.lost.values()
                ):  # a store may be empty and whole
                    raise _nothing_readable(path, result.kept)
                repairs = (
                    _ORPHANS,
                    _BROKEN_TURNS,
                    _LOST_TURN_RECORDS,
                    *_BROKEN_OPEN_TURNS,
                    _POSITIONS,
                    _COUNTS,
                )
                for statement in repairs:
                    connection.execute(statement)
                # Indexes and vectors are made anew, so that records of half-made ones no longer hold.
                connection.execute(
                    "DELETE FROM state_meta WHERE key = ? OR key LIKE ?",
                    (PROGRESS_KEY, f"{LAST_ID_KEY}%"),
                )
                are_lost = any(result.lost[table.name] for table in NOTE_TABLES)
                if repair_notes(NoteRows(new), is_damaged=are_lost):
                    # The origins of some texts are lost: a view or a skill of before counts as an import.
                    Inventory(path.parent).accept_loss([path.name])
                index.rebuild_index(connection, lambda done: progress("search index", done))
            faults = new.integrity()
        if faults:
            raise DatabaseCorrupt(f"the repaired store is damaged as well: {faults[0]}", "check the disk")
        (work / "new.db").replace(finished)
        sync_folder(path.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _open_damaged(original: Path, work: Path, template: Path) -> sqlite3.Connection:
    """Copy the damaged files to `work` and open the copy with settings that let SQLite read as much as possible.

    If SQLite can't find the tables, replace the first page of the copy by the first page of `template`, a new store.
    This page points to the pages of the schema, which are at the same places unless the file was vacuumed. Invalid text
    is read with replacement characters. Raises `DatabaseCorrupt` if SQLite still finds no tables.
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
        f"restore a backup, or move it away and run `hermes-memory doctor --accept-loss`; {str(kept)!r} holds a copy, "
        "of which `sqlite3 state.db .recover` may read more",
    )


def _copy_table(
    old: sqlite3.Connection, new: sqlite3.Connection, table: str, result: Repair, progress: Progress
) -> None:
    """Copy the readable and valid rows of a table from `old` to `new`; count saved and lost rows in `result`."""
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
            is_counted = table == "messages"
            values = [
                None if is_counted and name == "position" else value
                for name, value in zip(columns, row, strict=True)
            ]
            # Damage may have changed a value to another type, or to a second copy of a unique value.
            with contextlib.suppress(sqlite3.IntegrityError):
                new.execute(insert, values)
                fits = True
        result.saved[table] += fits
        result.lost[table] += not fits
        if row_id % index.STEP == 0:
            progress(table, result.saved[table])


# ---------------------------------------------------------------------- reading of a damaged file


def readable_rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[object, ...] | None]]:
    """Yield each row id with the row's columns, or with None if a row with this id may exist but can't be read.

    Rows on a damaged page of the table are lost; ids are tried one by one until a row after them can be read. Damage
    higher in the table's tree may hide rows without an error; such rows are read by the ids that an index still has.
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
    """Return the names of a table's columns; an empty list if there is no such table or it can't be read."""
    try:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return []


def _indexed_ids(connection: sqlite3.Connection, table: str) -> set[int]:
    """Return the row ids in the table's indexes, as far as the indexes can be read."""
    ids: set[int] = set()
    with contextlib.suppress(sqlite3.DatabaseError):
        for _, name, _, _, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            if not partial:
                with contextlib.suppress(sqlite3.DatabaseError):
                    rows = connection.execute(f"SELECT rowid FROM {table} INDEXED BY {name}")
                    ids.update(row[0] for row in rows if isinstance(row[0], int))
    return ids


def _last_id(connection: sqlite3.Connection, table: str) -> int:
    """Return the highest row id of the table, counting deleted rows if the database still records them; else 0."""
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
    """The result of a vacuum: sizes of the file in bytes. For a dry run, `after` is an upper bound."""

    before: int
    after: int


def rebuild_vectors(
    sessions: SessionStore, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> int:
    """Delete and make again all vectors for search by meaning; return the number of messages that got a vector.

    Return 0 if search by meaning is switched off.

    Args:
        sessions: The store.
        progress: Function that gets the number of messages so far and the total.
    """
    if sessions.past.vectors is None:
        return 0
    sessions.past.vectors.forget()
    total = sessions.past.vectors.missing()
    return sessions.past.vectors.build(lambda done: progress(done, total))


def vacuum(sessions: SessionStore, *, dry_run: bool = False) -> Vacuumed:
    """Return the space of deleted rows to the file system, and merge the segments of the search indexes.

    Other writers have to wait until this is done. With `dry_run`, only measure the space and change nothing.
    """
    database = sessions.database
    if not isinstance(database, Database):
        raise SessionError(
            f"{database.label!r} is no file", "use the tools of the server, such as pg_dump and VACUUM"
        )

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
    words = index.Fts5Index(database)
    usable = words.problem() != index.NO_FTS5
    if usable and words.is_damaged():
        words.rebuild()
    if usable:
        database.execute(f"INSERT INTO {index.TABLE} ({index.TABLE}) VALUES ('optimize')")
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return Vacuumed(before, sizes()[0])


def idle_sessions(
    sessions: SessionStore,
    before: float,
    sources: Sequence[str] = (),
    *,
    exclude_sources: Sequence[str] = (),
    user: str | None = None,
    archived: bool = False,
    max_messages: int | None = None,
    keep: int = 0,
    limit: int | None = None,
) -> list[str]:
    """Return the ids of sessions without a message since `before` (epoch seconds), oldest first.

    A session counts only if all related sessions (its parents, continuations, branches and delegations) are idle too,
    and none of them is pinned.

    Args:
        sessions: The store.
        before: Time in epoch seconds.
        sources: Sources of the sessions; empty for all.
        exclude_sources: Sources to leave out.
        user: Owner of the sessions; None for all owners.
        archived: True for archived sessions only.
        max_messages: Largest number of messages in a session; None for any number.
        keep: Number of conversations, the last active ones, to leave out.
        limit: Largest number of ids; None for all.
    """
    rows = sessions.database.execute(
        'SELECT id, source, "user", message_count FROM sessions WHERE last_active < ? ORDER BY last_active',
        (before,),
    ).fetchall()
    idle = {row["id"] for row in rows} - sessions.meta.marked("pinned")
    for listed in sessions.list_sessions(limit=keep, everybody=True) if keep else ():
        idle -= sessions.lineage(listed.session.id)
    in_archive = sessions.meta.marked("archived") if archived else idle
    fitting = (
        row["id"]
        for row in rows
        if row["id"] in idle
        and row["id"] in in_archive
        and (not sources or row["source"] in sources)
        and row["source"] not in exclude_sources
        and (user is None or row["user"] == user)
        and (max_messages is None or row["message_count"] <= max_messages)
    )
    return list(islice((name for name in fitting if sessions.lineage(name) <= idle), limit))
