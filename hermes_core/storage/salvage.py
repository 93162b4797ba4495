"""Saving rows from a damaged database: copies first, reads what can be read, never writes to the original."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes_core.errors import DatabaseUnavailable
from hermes_core.storage.files import ensure_folder, sync_folder

_HEADER = 100
_INTERIOR = 5
_PAGE_SIZE_AT, _CHANGES_AT, _PAGES_AT, _VALID_FOR_AT = 16, 24, 28, 92
"""Fields of the header. https://www.sqlite.org/fileformat2.html#the_database_header"""

_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
"""The bytes that every connection of a write-ahead database keeps a shared lock on (`os.h` of SQLite)."""

_GAP = 100_000
"""How far behind the last row that was read rows are looked for, when nothing tells what the last one is."""


_MOST_LOST = 5_000_000
"""Ids in a row that are tried in vain before the rest is given up: some of the file's own numbers may be damaged."""


def parts_of(path: Path) -> list[Path]:
    """The files that together are the database at `path`, as far as they exist."""
    beside = (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")))
    return [part for part in beside if part.exists()]


def copy_parts(path: Path, folder: Path) -> None:
    """Copy the database's files into a new `folder`; they are on disk when this returns, or the folder is gone again."""
    with contextlib.ExitStack() as undo:
        ensure_folder(folder)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        for part in parts_of(path):
            target = folder / part.name
            shutil.copy2(part, target)
            with target.open("rb") as copied:
                os.fsync(copied.fileno())
        sync_folder(folder)
        undo.pop_all()


@contextlib.contextmanager
def unused(path: Path) -> Iterator[None]:
    """Make sure that no other process has the database open, and keep them out meanwhile (where locks are POSIX's).

    Raises `DatabaseUnavailable`. This process must not have it open either: its locks would be dropped.
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


def graft_header(path: Path, donor: Path, *, schema: bool) -> None:
    """Put the first page of `donor`, a new database of the same schema, in place of this file's; and with `schema`
    those that it leads to, which tell the tables.

    Tables made by the same statements in the same order lie at the same pages, unless the file was vacuumed since.
    """
    given = donor.read_bytes()
    page = bytearray(given[: _page_size(donor)])
    length = path.stat().st_size if path.exists() else 0
    pages = max(length // len(page), 1)
    page[_PAGES_AT : _PAGES_AT + 4] = pages.to_bytes(4, "big")
    page[_VALID_FOR_AT : _VALID_FOR_AT + 4] = page[_CHANGES_AT : _CHANGES_AT + 4]
    with path.open("r+b" if length else "w+b") as file:
        file.write(page)
        for number in _children(page) if schema else ():
            at = (number - 1) * len(page)
            file.seek(at)
            file.write(given[at : at + len(page)])


def _children(page: bytearray) -> list[int]:
    """The pages that a database's first page leads to, when it does not hold the whole schema itself."""
    if page[_HEADER] != _INTERIOR:
        return []
    cells = int.from_bytes(page[_HEADER + 3 : _HEADER + 5], "big")
    places = [_HEADER + 8] + [
        int.from_bytes(page[at : at + 2], "big") for at in range(_HEADER + 12, _HEADER + 12 + 2 * cells, 2)
    ]
    return [int.from_bytes(page[at : at + 4], "big") for at in places]


def open_damaged(path: Path) -> sqlite3.Connection:
    """A connection that reads as much of a damaged file as SQLite can; text that is none is read with signs for it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    # SQLite refuses a file that is shorter than its header says, unless told that its schema may be wrong.
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def readable_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table, none when it is not known."""
    try:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return []


def readable_rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[object, ...] | None]]:
    """Row ids with the columns of the row, or with None where a row may have been and can't be read; in order.

    A page that is damaged takes its rows with it; those behind it are reached by seeking past it, id by id. A damaged
    page that only leads to others may leave rows out without an error: those that an index knows are sought one by one.
    """
    seen: set[int] = set()
    for row_id, row in _walk(connection, table, columns):
        seen.add(row_id)
        yield row_id, row
    one = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid = ?"  # noqa: S608
    for row_id in sorted(_indexed(connection, table) - seen):
        found: tuple[object, ...] | None = None
        with contextlib.suppress(sqlite3.DatabaseError):
            found = connection.execute(one, (row_id,)).fetchone()
        yield row_id, tuple(found) if found else None


def _walk(
    connection: sqlite3.Connection, table: str, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[object, ...] | None]]:
    sql = f"SELECT rowid, {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid"  # noqa: S608  # the caller's own names
    end = last_row(connection, table)
    at = last_read = 0
    while True:
        try:
            for row in connection.execute(sql, (at,)):
                if row[0] <= at:  # a circle of pages
                    raise sqlite3.DatabaseError(f"rows of {table} are out of order")
                at = last_read = row[0]
                yield at, tuple(row[1:])
        except sqlite3.DatabaseError:
            at += 1
            if at > (end or last_read + _GAP) or at > last_read + _MOST_LOST:
                return
            yield at, None
        else:
            return


def _indexed(connection: sqlite3.Connection, table: str) -> set[int]:
    """The row ids that the table's indexes hold, as far as these can be read."""
    ids: set[int] = set()
    with contextlib.suppress(sqlite3.DatabaseError):
        for _, name, _, _, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            if not partial:
                with contextlib.suppress(sqlite3.DatabaseError):
                    rows = connection.execute(f"SELECT rowid FROM {table} INDEXED BY {name}")  # noqa: S608
                    ids.update(row[0] for row in rows if isinstance(row[0], int))
    return ids


def last_row(connection: sqlite3.Connection, table: str) -> int:
    """The highest id that is known of, 0 when none is."""
    found = [0]
    for sql in (
        f"SELECT max(rowid) FROM {table}",  # noqa: S608  # the caller's own name
        f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",  # noqa: S608
    ):
        with contextlib.suppress(sqlite3.DatabaseError):
            found += [row[0] for row in connection.execute(sql) if isinstance(row[0], int)]
    return max(found)


def _page_size(path: Path) -> int:
    size = int.from_bytes(path.read_bytes()[_PAGE_SIZE_AT : _PAGE_SIZE_AT + 2], "big")
    return 65_536 if size == 1 else size
