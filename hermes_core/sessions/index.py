"""The two search indexes, kept equal to the rows: each change of a row is followed here, in its transaction."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from hermes_core.recall.tokens import for_words, grams
from hermes_core.sessions.records import storable

BATCH = 1_000
"""Rows read at once in a rebuild."""

STEP = 200
"""Rows of one transaction when others write meanwhile; some ten milliseconds."""

UNFINISHED = "search_index_rebuilt_to"
"""Key in state_meta while a rebuild in steps is under way: the last id that is in again, and the last of the old ones."""

_WORDS = "INSERT INTO messages_fts (rowid, content, calls) VALUES (?, ?, ?)"
_WORDS_OUT = "INSERT INTO messages_fts (messages_fts, rowid, content, calls) VALUES ('delete', ?, ?, ?)"
_GRAMS = "INSERT INTO messages_grams (rowid, ones, pairs) VALUES (?, ?, ?)"
_GRAMS_OUT = "INSERT INTO messages_grams (messages_grams, rowid, ones, pairs) VALUES ('delete', ?, ?, ?)"

_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")

IndexedRow = tuple[int, str, str]
"""Id, content and calls of a message, as the view `indexed_messages` shows them."""


def add(connection: sqlite3.Connection, message_id: int) -> None:
    """Make a new row searchable."""
    _add(connection, _read(connection, "id = ?", (message_id,)))


def remove(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> None:
    """Take rows out, before they are deleted or hidden: FTS5 needs the very text that was put in."""
    done, old = _progress(connection) or (0, 0)
    rows = _read(connection, f"{condition} AND NOT (id > ? AND id <= ?)", (*parameters, done, old))
    connection.executemany(_WORDS_OUT, map(_word_row, rows))
    connection.executemany(_GRAMS_OUT, _gram_rows(rows))


def rebuild(connection: sqlite3.Connection, progress: Callable[[int], None] | None = None) -> int:
    """Make both indexes anew from the rows; returns how many rows are in them. `progress` is told the count so far.

    FTS5's own "rebuild" would read the rows as they are, without the cuts that `tokens` makes.
    """
    _clear(connection)
    last = done = 0
    while rows := _read(connection, "id > ? ORDER BY id LIMIT ?", (last, BATCH)):
        _add(connection, rows)
        last, done = rows[-1][0], done + len(rows)
        if progress is not None:
            progress(done)
    return done


def begin(connection: sqlite3.Connection) -> None:
    """Empty both indexes, to be filled by `go_on` in transactions of their own while others write."""
    _clear(connection)
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    _note(connection, 0, last)


def go_on(connection: sqlite3.Connection) -> int:
    """Index the next `STEP` rows of a rebuild; returns how many they were, 0 at its end."""
    done, old = _progress(connection) or (0, 0)
    rows = _read(connection, "id > ? AND id <= ? ORDER BY id LIMIT ?", (done, old, STEP))
    if rows:
        _add(connection, rows)
        _note(connection, rows[-1][0], old)
    else:
        connection.execute("DELETE FROM state_meta WHERE key = ?", (UNFINISHED,))
    return len(rows)


def recut(connection: sqlite3.Connection) -> None:
    """Make both indexes anew, as a migration when `tokens` cuts differently."""
    rebuild(connection)


def faults(transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> list[str]:
    """Where the indexes differ from the rows or from themselves, a line each.

    Each look is a transaction of its own, since others can't write meanwhile: half a second in 100,000 messages.
    """
    found: list[str] = []
    for look, what in (
        (_damage, "messages_fts"),
        (_damage, "messages_grams"),
        (_difference, "indexed EXCEPT SELECT id FROM rows"),
        (_difference, "rows EXCEPT SELECT id FROM indexed"),
    ):
        with transaction() as connection:
            if (progress := _progress(connection)) is not None:
                done, old = progress
                return [f"the search index was made anew up to message {done} of {old} only: rebuild it"]
            found += look(connection, what)
    return found


def _damage(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    try:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as exc:
        yield f"the search index {table} is damaged ({exc}): rebuild it"


def _difference(connection: sqlite3.Connection, difference: str) -> Iterator[str]:
    (count,) = connection.execute(
        f"""WITH rows AS (SELECT id FROM indexed_messages), indexed AS (SELECT id FROM messages_fts_docsize)
            SELECT count(*) FROM (SELECT id FROM {difference})"""
    ).fetchone()
    if count:
        yield f"the search index differs from the messages in {count} rows: rebuild it"


def _clear(connection: sqlite3.Connection) -> None:
    for table in ("messages_fts", "messages_grams"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")


def _progress(connection: sqlite3.Connection) -> tuple[int, int] | None:
    """How far a rebuild in steps has come, None when none is under way."""
    row = connection.execute("SELECT value FROM state_meta WHERE key = ?", (UNFINISHED,)).fetchone()
    if row is None:
        return None
    done, old = row[0].split()
    return int(done), int(old)


def _note(connection: sqlite3.Connection, done: int, old: int) -> None:
    connection.execute("INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (UNFINISHED, f"{done} {old}"))


def _read(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[IndexedRow]:
    sql = f"SELECT id, content, calls FROM indexed_messages WHERE {condition}"
    return [(row[0], row[1], _unescaped(row[2])) for row in connection.execute(sql, parameters)]


def _unescaped(calls: str) -> str:
    """Tool calls with the letters that JSON within JSON hides, as in an argument that was dumped as ASCII."""
    if "\\u" not in calls:
        return calls
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), calls)
    return storable(plain)


def _add(connection: sqlite3.Connection, rows: Sequence[IndexedRow]) -> None:
    connection.executemany(_WORDS, map(_word_row, rows))
    connection.executemany(_GRAMS, _gram_rows(rows))


def _word_row(row: IndexedRow) -> IndexedRow:
    message_id, content, calls = row
    return message_id, for_words(content), for_words(calls)


def _gram_rows(rows: Iterable[IndexedRow]) -> list[tuple[int, str, str]]:
    """Rows of the gram index; text without dense runs has none."""
    found = []
    for message_id, content, calls in rows:
        ones, pairs = grams(f"{content}\n{calls}")
        if ones:
            found.append((message_id, " ".join(ones), " ".join(pairs)))
    return found
