"""Reading of databases of other programs: files of SQLite, and dumps of PostgreSQL as text.

The tables of a dump are copied into a file of SQLite, so that one reader serves both.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from hermes_core.errors import ImportFailed
from hermes_memory_importers import first_bytes

SQLITE_MAGIC = b"SQLite format 3\0"

DUMP_MAGIC = b"--\n-- PostgreSQL"
"""The first bytes of a dump of PostgreSQL as text."""

_ARCHIVE_MAGIC = b"PGDMP"

_COPY = re.compile(r'COPY (?:"?\w+"?\.)?"?(\w+)"? \((.+)\) FROM stdin;\s*\Z')
_NAME = re.compile(r"\w+")
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def is_database(head: bytes) -> bool:
    """Return True if these are the first bytes of a file of SQLite, or of a dump of PostgreSQL as text.

    Raises `ImportFailed` for a dump in a format that only PostgreSQL's own programs read.
    """
    if head.startswith(_ARCHIVE_MAGIC):
        raise ImportFailed(
            "it is a dump of PostgreSQL in its own format", "make it text: pg_restore --file=dump.sql FILE"
        )
    return head in (SQLITE_MAGIC, DUMP_MAGIC)


@contextlib.contextmanager
def opened_database(path: Path, tables: Collection[str] = ()) -> Iterator[sqlite3.Connection]:
    """Yield a connection that only reads; the program may be running. Raises `ImportFailed` for a damaged file.

    Args:
        tables: Tables to copy out of a dump. Each value of a dump is a text, or null.
    """
    with contextlib.ExitStack() as stack:
        try:
            if first_bytes(path) == DUMP_MAGIC:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-import-"))
                path = _copied(path, tables, Path(folder, "dump.db"))
            connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=10)
            stack.enter_context(contextlib.closing(connection))
            connection.row_factory = sqlite3.Row
            # A transcript may hold half a character; one must not stop the import.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as exc:  # SQLite quotes damaged names in its messages
            raise ImportFailed(
                f"the database can't be read: {exc}", "copy it with its program closed"
            ) from exc


def has_columns(path: Path, **tables: str) -> bool:
    """Return True if a database has these tables, each with the columns that the argument names."""
    with contextlib.suppress(ImportFailed):
        columns = table_columns(path)
        return all(set(named.split()) <= columns.get(table, set()) for table, named in tables.items())
    return False


def table_columns(path: Path) -> Mapping[str, set[str]]:
    """Return the names of the columns of each table."""
    if first_bytes(path) == DUMP_MAGIC:
        return {table: set(columns) for table, columns, _ in _blocks(path)}
    with opened_database(path) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        sql = "SELECT name FROM pragma_table_info(?)"
        return {name: {row[0] for row in connection.execute(sql, (name,))} for name in names}


def _blocks(path: Path) -> Iterator[tuple[str, list[str], Iterator[list[str | None]]]]:
    """Yield each table of a dump with its columns and its rows. The rows must be read before the next table, or not."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            if line.startswith("COPY ") and (copy := _COPY.match(line)):
                rows = _rows(lines)
                yield copy[1], _NAME.findall(copy[2]), rows
                for _ in rows:
                    pass


def _rows(lines: Iterator[str]) -> Iterator[list[str | None]]:
    """Yield the rows of one table, up to the line that ends it."""
    for line in lines:
        if line.rstrip("\n") == "\\.":
            return
        yield [
            None if value == "\\N" else _ESCAPE.sub(_unescaped, value)
            for value in line.rstrip("\n").split("\t")
        ]


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code.isdigit() else _ESCAPES.get(code, code)


def _copied(path: Path, tables: Collection[str], to: Path) -> Path:
    """Copy the tables of a dump into a file of SQLite, and return its path. A row of another length is left out."""
    with contextlib.closing(sqlite3.connect(to, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for table, columns, rows in _blocks(path):
            if table in tables:
                names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
                connection.execute("BEGIN")
                connection.execute(f'CREATE TABLE "{table}" ({names})')
                connection.executemany(
                    f'INSERT INTO "{table}" VALUES ({marks})',  # noqa: S608  (one of `tables`)
                    (row for row in rows if len(row) == len(columns)),
                )
                connection.execute("COMMIT")
    return to
