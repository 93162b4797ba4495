"""The two search indexes, kept equal to the rows: each change of a row is followed here, in its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

from hermes_core.recall.tokens import grams, without_dense_runs

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
    _add(connection, _read(connection, "id = ?", (message_id,)))


def remove(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> None:
    """Take rows out, before they are deleted or hidden: FTS5 needs the very text that was put in."""
    rows = _read(connection, condition, parameters)
    connection.executemany(_WORDS_OUT, map(_word_row, rows))
    connection.executemany(_GRAMS_OUT, _gram_rows(rows))


def rebuild(connection: sqlite3.Connection, progress: Callable[[int], None] | None = None) -> int:
    """Make both indexes anew from the rows; returns how many rows are in them. `progress` is told the count so far.

    FTS5's own "rebuild" would read the rows as they are, without the cuts that `tokens` makes.
    """
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')")
    connection.execute("INSERT INTO messages_grams (messages_grams) VALUES ('delete-all')")
    last = done = 0
    while rows := _read(connection, "id > ? ORDER BY id LIMIT ?", (last, BATCH)):
        _add(connection, rows)
        last, done = rows[-1][0], done + len(rows)
        if progress is not None:
            progress(done)
    return done


def recut(connection: sqlite3.Connection) -> None:
    """Make both indexes anew, as a migration when `tokens` cuts differently."""
    rebuild(connection)


def faults(connection: sqlite3.Connection) -> list[str]:
    """Where the indexes differ from the rows or from themselves, a line each."""
    found = []
    for table in ("messages_fts", "messages_grams"):
        try:
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
        except sqlite3.DatabaseError as exc:
            found.append(f"the search index {table} is damaged ({exc}): rebuild it")
    for difference in ("indexed EXCEPT SELECT id FROM rows", "rows EXCEPT SELECT id FROM indexed"):
        (count,) = connection.execute(
            f"""WITH rows AS (SELECT id FROM indexed_messages), indexed AS (SELECT id FROM messages_fts_docsize)
                SELECT count(*) FROM (SELECT id FROM {difference})"""
        ).fetchone()
        if count:
            found.append(f"the search index differs from the messages in {count} rows: rebuild it")
    return found


def _read(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[IndexedRow]:
    sql = f"SELECT id, content, calls FROM indexed_messages WHERE {condition}"
    return [tuple(row) for row in connection.execute(sql, parameters)]


def _add(connection: sqlite3.Connection, rows: Sequence[IndexedRow]) -> None:
    connection.executemany(_WORDS, map(_word_row, rows))
    connection.executemany(_GRAMS, _gram_rows(rows))


def _word_row(row: IndexedRow) -> IndexedRow:
    message_id, content, calls = row
    return message_id, without_dense_runs(content), without_dense_runs(calls)


def _gram_rows(rows: Iterable[IndexedRow]) -> list[tuple[int, str, str]]:
    """Rows of the gram index; text without dense runs has none."""
    found = []
    for message_id, content, calls in rows:
        ones, pairs = grams(f"{content}\n{calls}")
        if ones:
            found.append((message_id, " ".join(ones), " ".join(pairs)))
    return found
