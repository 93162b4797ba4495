"""The two search indexes, kept equal to the rows: each change of a row is followed here, in its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

from hermes_core.recall.tokens import grams

BATCH = 1_000
"""Rows read at once in a rebuild."""

_WORDS = "INSERT INTO messages_fts (rowid, content, calls) VALUES (?, ?, ?)"
_WORDS_OUT = "INSERT INTO messages_fts (messages_fts, rowid, content, calls) VALUES ('delete', ?, ?, ?)"
_GRAMS = "INSERT INTO messages_grams (rowid, ones, pairs) VALUES (?, ?, ?)"
_GRAMS_OUT = "INSERT INTO messages_grams (messages_grams, rowid, ones, pairs) VALUES ('delete', ?, ?, ?)"

IndexedRow = tuple[int, str, str]
"""Id, content and calls of a message, as the view `indexed_messages` shows them."""


def add(connection: sqlite3.Connection, message_id: int) -> None:
    """Make a new row searchable."""
    row = _read(connection, "id = ?", (message_id,))[0]
    connection.execute(_WORDS, row)
    _add_grams(connection, [row])


def remove(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> None:
    """Take rows out, before they are deleted or hidden: FTS5 needs the very text that was put in."""
    rows = _read(connection, condition, parameters)
    connection.executemany(_WORDS_OUT, rows)
    connection.executemany(_GRAMS_OUT, _gram_rows(rows))


def rebuild(connection: sqlite3.Connection, progress: Callable[[int], None] | None = None) -> int:
    """Make both indexes anew from the rows; returns how many rows are in them. `progress` is told the count so far."""
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('rebuild')")
    return rebuild_grams(connection, progress)


def cut_grams(connection: sqlite3.Connection) -> None:
    """Make the index of dense scripts anew, as a migration."""
    rebuild_grams(connection)


def rebuild_grams(connection: sqlite3.Connection, progress: Callable[[int], None] | None = None) -> int:
    """Make the index of dense scripts anew."""
    connection.execute("INSERT INTO messages_grams (messages_grams) VALUES ('delete-all')")
    last = done = 0
    while rows := _read(connection, "id > ? ORDER BY id LIMIT ?", (last, BATCH)):
        _add_grams(connection, rows)
        last, done = rows[-1][0], done + len(rows)
        if progress is not None:
            progress(done)
    return done


def faults(connection: sqlite3.Connection) -> list[str]:
    """Where the indexes differ from the rows or from themselves, a line each."""
    found = []
    for table, against_rows in (("messages_fts", 1), ("messages_grams", 0)):
        try:
            connection.execute(
                f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', ?)",
                (against_rows,),
            )
        except sqlite3.DatabaseError as exc:
            found.append(f"the search index {table} does not match the messages ({exc}): rebuild it")
    return found


def _read(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[IndexedRow]:
    sql = f"SELECT id, content, calls FROM indexed_messages WHERE {condition}"
    return [tuple(row) for row in connection.execute(sql, parameters)]


def _add_grams(connection: sqlite3.Connection, rows: Iterable[IndexedRow]) -> None:
    connection.executemany(_GRAMS, _gram_rows(rows))


def _gram_rows(rows: Iterable[IndexedRow]) -> list[tuple[int, str, str]]:
    """Rows of the gram index; text without dense runs has none."""
    found = []
    for message_id, content, calls in rows:
        ones, pairs = grams(f"{content}\n{calls}")
        if ones:
            found.append((message_id, " ".join(ones), " ".join(pairs)))
    return found
