"""The two full-text indexes over messages: words, and grams of scripts without spaces between words.

Each change of a message updates both indexes in the same transaction.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence

from hermes_core.errors import DatabaseCorrupt
from hermes_core.recall.tokens import grams, index_text
from hermes_core.sessions.records import sqlite_text
from hermes_core.storage.sqlite import Database

# A rebuild in one transaction reads this many rows at once: fewer cost more queries, more cost memory.
BATCH = 1_000

# Rows in one transaction of a rebuild while other processes write: a writer waits for some ten milliseconds only.
STEP = 200

# Seconds between the steps of a rebuild, so that other processes get the write lock.
PAUSE_S = 0.002

# Key in `state_meta` during a rebuild in steps: the last message id that is indexed again, and the last id to
# index.
PROGRESS_KEY = "search_index_rebuilt_to"

_WORDS = "INSERT INTO messages_fts (rowid, content, calls) VALUES (?, ?, ?)"
_WORDS_OUT = "INSERT INTO messages_fts (messages_fts, rowid, content, calls) VALUES ('delete', ?, ?, ?)"
_GRAMS = "INSERT INTO messages_grams (rowid, ones, pairs) VALUES (?, ?, ?)"
_GRAMS_OUT = "INSERT INTO messages_grams (messages_grams, rowid, ones, pairs) VALUES ('delete', ?, ?, ?)"

_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")

# Id, content and calls of a message, as the view `indexed_messages` shows them.
IndexedRow = tuple[int, str, str]


def add_message(connection: sqlite3.Connection, message_id: int) -> None:
    """Add a new message to both indexes."""
    _add(connection, _read(connection, "id = ?", (message_id,)))


def remove_messages(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> None:
    """Remove the messages that fulfil an SQL condition from both indexes.

    Call this before the rows are deleted or hidden, because FTS5 needs the text that was indexed.
    """
    done, last = _progress(connection) or (0, 0)  # rows that a rebuild has yet to index are in no index
    rows = _read(connection, f"{condition} AND NOT (id > ? AND id <= ?)", (*parameters, done, last))
    connection.executemany(_WORDS_OUT, map(_word_row, rows))
    connection.executemany(_GRAMS_OUT, _gram_rows(rows))


def rebuild_indexes(
    connection: sqlite3.Connection, progress: Callable[[int], None] = lambda _count: None
) -> int:
    """Rebuild both indexes from the messages, in the caller's transaction; return the number of indexed messages.

    FTS5's own command "rebuild" can't be used: it would index the text without the changes that `recall.tokens` makes.
    `progress` gets the number of messages so far.
    """
    _clear(connection)
    last = done = 0
    while rows := _read(connection, "id > ? ORDER BY id LIMIT ?", (last, BATCH)):
        _add(connection, rows)
        last, done = rows[-1][0], done + len(rows)
        progress(done)
    return done


def rebuild_in_steps(database: Database, progress: Callable[[int], None] = lambda _count: None) -> int:
    """Rebuild both indexes in short transactions, while other processes write; return the number of indexed messages.

    `progress` gets the number of messages so far.
    """
    with database.transaction() as connection:
        _clear(connection)
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
        _set_progress(connection, 0, last)
    done = 0
    while True:
        with database.transaction() as connection:
            start, end = _progress(connection) or (0, 0)
            rows = _read(connection, "id > ? AND id <= ? ORDER BY id LIMIT ?", (start, end, STEP))
            if not rows:
                connection.execute("DELETE FROM state_meta WHERE key = ?", (PROGRESS_KEY,))
                return done
            _add(connection, rows)
            _set_progress(connection, rows[-1][0], end)
        done += len(rows)
        progress(done)
        time.sleep(PAUSE_S)


def check_indexes(database: Database) -> list[str]:
    """Check both indexes; return a line for each damage and for each difference from the messages.

    Each check is a separate transaction, because other processes can't write during a check: half a second for 100,000
    messages.
    """
    differences = (
        "SELECT id FROM indexed EXCEPT SELECT id FROM rows",
        "SELECT id FROM rows EXCEPT SELECT id FROM indexed",
    )
    faults: list[str] = []
    for subject in ("messages_fts", "messages_grams", *differences):
        try:
            with database.transaction() as connection:
                if (progress := _progress(connection)) is not None:
                    done, last = progress
                    return [f"the search index was made anew up to message {done} of {last} only: rebuild it"]
                if subject not in differences:
                    connection.execute(f"INSERT INTO {subject} ({subject}) VALUES ('integrity-check')")
                    continue
                (count,) = connection.execute(
                    f"""WITH rows AS (SELECT id FROM indexed_messages), indexed AS (SELECT id FROM messages_fts_docsize)
                        SELECT count(*) FROM ({subject})"""
                ).fetchone()
                if count:
                    faults.append(f"the search index differs from the messages in {count} rows: rebuild it")
        except DatabaseCorrupt as exc:
            if subject in differences:
                return [str(exc)]
            faults.append(f"the search index {subject} is damaged ({exc.__cause__}): rebuild it")
    return faults


def _clear(connection: sqlite3.Connection) -> None:
    for table in ("messages_fts", "messages_grams"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")


def _progress(connection: sqlite3.Connection) -> tuple[int, int] | None:
    """Return the progress of `rebuild_in_steps`: the last message id that is indexed, and the last id to index.

    Return None if no such rebuild is unfinished.
    """
    row = connection.execute("SELECT value FROM state_meta WHERE key = ?", (PROGRESS_KEY,)).fetchone()
    if row is None:
        return None
    done, last = row[0].split()
    return int(done), int(last)


def _set_progress(connection: sqlite3.Connection, done: int, last: int) -> None:
    connection.execute("INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (PROGRESS_KEY, f"{done} {last}"))


def _read(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[IndexedRow]:
    sql = f"SELECT id, content, calls FROM indexed_messages WHERE {condition}"
    return [(row[0], row[1], _unescaped(row[2])) for row in connection.execute(sql, parameters)]


def _unescaped(calls: str) -> str:
    r"""Return the JSON of tool calls with \uXXXX escapes replaced by their letters, so that a search finds them."""
    if "\\u" not in calls:
        return calls
    return sqlite_text(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), calls))


def _add(connection: sqlite3.Connection, rows: Sequence[IndexedRow]) -> None:
    connection.executemany(_WORDS, map(_word_row, rows))
    connection.executemany(_GRAMS, _gram_rows(rows))


def _word_row(row: IndexedRow) -> IndexedRow:
    message_id, content, calls = row
    return message_id, index_text(content), index_text(calls)


def _gram_rows(rows: Iterable[IndexedRow]) -> list[tuple[int, str, str]]:
    """Return the rows of messages for the gram index, which holds characters of scripts without spaces between words.

    A message without such characters has no row.
    """
    gram_rows = []
    for message_id, content, calls in rows:
        ones, pairs = grams(f"{content}\n{calls}")
        if ones:
            gram_rows.append((message_id, " ".join(ones), " ".join(pairs)))
    return gram_rows
