"""Reading of SQLite databases of other programs."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from hermes_core.errors import ImportFailed

SQLITE_MAGIC = b"SQLite format 3\0"


@contextlib.contextmanager
def opened_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that only reads; the program may be running. Raises `ImportFailed` for a damaged file."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=10)
        with contextlib.closing(connection):
            connection.row_factory = sqlite3.Row
            # A transcript may hold half a character; one must not stop the import.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield connection
    except sqlite3.Error as exc:
        raise ImportFailed(f"the database can't be read: {exc}", "copy it with its program closed") from exc


def has_columns(path: Path, **tables: str) -> bool:
    """Return True if a database has these tables, each with the columns that the argument names."""
    with contextlib.suppress(ImportFailed), opened_database(path) as connection:
        return all(
            set(columns.split()) <= {row["name"] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table, columns in tables.items()
        )
    return False
