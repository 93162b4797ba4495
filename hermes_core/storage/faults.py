"""Errors of SQLite and of the system about a database's file, as ours, with what to do."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable

RESTORE = "it was left as it is: restore a backup, or move it away to begin anew"
"""What to do about a damaged file, where its room has no better advice."""


class TranslatedErrors:
    """Turns SQLite's errors about the file into ours, with what to do; errors in SQL pass as they are.

    One object does for all blocks and threads: each statement and each row read stands in one.
    """

    __slots__ = ("_path", "_repair")

    def __init__(self, path: Path, repair: str = RESTORE) -> None:
        self._path = path
        self._repair = repair

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if not isinstance(exc, sqlite3.DatabaseError):
            return
        text = str(exc).lower()
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF in _DAMAGE or any(sign in text for sign in _DAMAGED):
            raise DatabaseCorrupt(f"{str(self._path)!r} is damaged ({exc})", self._repair) from exc
        for sign, remedy in _UNAVAILABLE.items():
            if sign in text:
                raise DatabaseUnavailable(f"can't use {str(self._path)!r}: {exc}", remedy) from exc


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system about opening the file into ours, and what Python can't read of SQLite's into one that it can."""
    try:
        yield
    except UnicodeDecodeError as exc:
        raise sqlite3.DatabaseError(f"malformed database schema: {exc}") from exc
    except OSError as exc:
        remedy = _TOO_MANY if exc.errno == errno.EMFILE else "check the folder's owner, mode and free space"
        raise DatabaseUnavailable(f"can't open {str(path)!r}: {exc.strerror or exc}", remedy) from exc


_TOO_MANY = (
    "close what this program has open, such as memories that are opened again and again, or raise `ulimit -n`"
)


def refuse_others(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    """Leave a database alone that another program made, or a newer version of this one changed.

    The names of our files are no secret of ours. Newer is a file whose last migration is unknown here, and that has all of
    ours; earlier ones may be unknown, since a version may have given theirs up.
    """
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if not tables:
        return
    if "schema_migrations" not in tables:
        raise DatabaseUnavailable(
            f"{str(path)!r} was made by another program (it holds {tables[0]!r})",
            "give this one a home of its own with --home DIR or HERMES_HOME; nothing was changed",
        )
    done = [row[0] for row in connection.execute("SELECT name FROM schema_migrations ORDER BY rowid")]
    if done and done[-1] not in migrations and set(done).issuperset(migrations):
        raise DatabaseUnavailable(
            f"{str(path)!r} was changed by a newer version of the package (it has {done[-1]!r})",
            "upgrade the package again, or put a backup of the home in its place; nothing was changed",
        )


@contextlib.contextmanager
def misfits(connection: sqlite3.Connection, path: Path, repair: str) -> Iterator[None]:
    """Tell a record of migrations that does not fit the tables as damage: one that lacks a row does again what was done.

    In a new file the migration itself is wrong, which stays the error that it is.
    """
    new = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    try:
        yield
    except sqlite3.OperationalError as exc:
        if new or exc.sqlite_errorcode != sqlite3.SQLITE_ERROR or "no such module" in str(exc):
            raise
        raise DatabaseCorrupt(
            f"{str(path)!r} is damaged: its record of migrations does not fit its tables ({exc})", repair
        ) from exc


_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Told without one of these codes. The last two: a size in the header that can't be, and a byte that made text no longer text.
_DAMAGED = ("malformed", "not a database", "corrupt", "unsupported file format", "could not decode to utf-8")

_UNAVAILABLE = {
    "database or disk is full": "free disk space, then try again; nothing was written",
    "disk i/o error": "see that the disk has room and works; nothing was written",
    "readonly database": "check owner and mode of this file and of those beside it (-wal, -shm)",
    "unable to open": "check that the folder exists, who owns it, and that this program has not too many files open",
    "database is locked": "another program holds the file: stop it, then try again",
    "authorization denied": "check the file's owner and mode",
}
