"""The two full-text indexes over messages: words, and grams of scripts without spaces between words.

Each change of a message updates both indexes in the same transaction. The messages are what counts: a write never fails
because of an index. A damaged index is dropped, and made again from the messages, a part with each further message; an
SQLite without FTS5 leaves the messages out until one with FTS5 opens the file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.recall.tokens import grams, index_text
from hermes_core.safety.terminal import counted
from hermes_core.sessions.records import Order
from hermes_core.sessions.search.protocol import CHANGES_KEY, PROGRESS_KEY
from hermes_core.sessions.search.texts import readable_calls
from hermes_core.storage.engine import Connection
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    from hermes_core.sessions.search.filters import Filters
    from hermes_core.sessions.search.reader import IndexReader, ScopeFacts

# A rebuild in one transaction reads this many rows at once: fewer cost more queries, more cost memory.
BATCH = 1_000

# Rows in one transaction of a rebuild while other processes write: a writer waits for some ten milliseconds only.
STEP = 200

# Seconds between the steps of a rebuild, so that other processes get the write lock.
PAUSE_S = 0.002

# Key in `state_meta` while pages of a damaged index are in the file that nothing uses.
LOST_PAGES_KEY = "search_index_lost_pages"

TABLES = {
    # The word index reads its text from a view of the messages.
    "messages_fts": """
        CREATE VIRTUAL TABLE messages_fts USING fts5(
            content, calls, content='indexed_messages', content_rowid='id',
            tokenize='porter unicode61 remove_diacritics 2'
        )
    """,
    # `ascii` keeps every character beyond ASCII as part of a token: a gram is one token whatever its script.
    "messages_grams": "CREATE VIRTUAL TABLE messages_grams USING fts5(ones, pairs, content='', tokenize='ascii')",
}

NO_FTS5 = "this SQLite has no FTS5: past sessions are searched word by word, slower and less exact"

log = logging.getLogger(__name__)

_PROGRESS = "SELECT value FROM state_meta WHERE key = ?"
_TABLE_COUNT = "SELECT count(*) FROM sqlite_schema WHERE name IN ('messages_fts', 'messages_grams')"
_WORDS = "INSERT INTO messages_fts (rowid, content, calls) VALUES (?, ?, ?)"
_WORDS_OUT = "INSERT INTO messages_fts (messages_fts, rowid, content, calls) VALUES ('delete', ?, ?, ?)"
_GRAMS = "INSERT INTO messages_grams (rowid, ones, pairs) VALUES (?, ?, ?)"
_GRAMS_OUT = "INSERT INTO messages_grams (messages_grams, rowid, ones, pairs) VALUES ('delete', ?, ?, ?)"

# Id, content and calls of a message, as the view `indexed_messages` shows them.
IndexedRow = tuple[int, str, str]


class Fts5Index:
    """Both full-text indexes of a state.db, as a `SearchIndex`. `resets` counts the calls of `reset` that made them anew."""

    def __init__(self, database: Database) -> None:
        self._database, self.resets = database, 0

    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  the protocol's
        """Return no columns: the indexes are tables of their own."""
        return {}

    def add(self, connection: Connection, message_ids: Sequence[int]) -> None:
        """Add new messages to both indexes, and the next messages of a rebuild that is not finished."""
        connection = cast(sqlite3.Connection, connection)
        rows = connection.execute(
            f"""SELECT id, content, calls, ({_PROGRESS}) FROM indexed_messages
                WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id""",
            (PROGRESS_KEY, json.dumps(message_ids)),
        ).fetchall()
        for message_id, content, calls, rebuilt in rows:
            with _derived(connection, message_id):
                if rebuilt is not None and (progress := _progress(connection)):
                    _index_next(connection, *progress)
                _add(connection, [(message_id, content, readable_calls(calls))])

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove the messages that fulfil an SQL condition from both indexes, and their vectors.

        Call this before the rows are deleted or hidden, because FTS5 needs the text that was indexed.
        """
        connection = cast(sqlite3.Connection, connection)
        with _derived(connection):
            done, last = _progress(connection) or (
                0,
                0,
            )  # rows that a rebuild has yet to index are in no index
            rows = _read(connection, f"{condition} AND NOT (id > ? AND id <= ?)", (*parameters, done, last))
            connection.executemany(_WORDS_OUT, map(_word_row, rows))
            connection.executemany(_GRAMS_OUT, _gram_rows(rows))
        sql = f"DELETE FROM vectors WHERE message_id IN (SELECT id FROM messages WHERE {condition})"
        if connection.execute(sql, parameters).rowcount:
            note_change(connection)

    def change_owner(self, connection: Connection) -> None:
        """Let all processes read the vectors of each owner again."""
        if connection.execute("SELECT 1 FROM vectors LIMIT 1").fetchone():
            note_change(connection)

    def scope_facts(self, query: str, filters: Filters, sources: Collection[str]) -> ScopeFacts:
        """Return whom a question names, which of these sources are stored, and the newest message."""
        from hermes_core.sessions.search.fts5 import scope_facts

        return scope_facts(self._database, query, filters, sources)

    def reader(self, filters: Filters, order: Order | None, limit: int, newest: int) -> IndexReader:
        """Return a reader for one search that ranks at most `limit` messages."""
        from hermes_core.sessions.search.fts5 import Fts5Reader

        return Fts5Reader(self._database, filters, order, limit, newest)

    def is_usable(self) -> bool:
        """Return False if an index is missing, or is being built again."""
        return not self.problem()

    def problem(self) -> str:
        """Return a sentence if a search does not find all messages by the index; "" if it does."""
        value, tables = self._database.execute(
            f"SELECT ({_PROGRESS}), ({_TABLE_COUNT})", (PROGRESS_KEY,)
        ).fetchone()
        if value is None:
            return "" if tables == len(TABLES) else NO_FTS5
        if not self._can_be_read():
            return NO_FTS5
        done, last = map(int, value.split())
        return (
            f"the search index was damaged and is being built again, {done:,} of {last:,} messages so far; until then "
            "searches are less exact: `hermes-memory sessions rebuild` finishes it now"
        )

    def check(self) -> list[str]:
        """Return a line for each damage and for each difference from the messages.

        Each check is a separate transaction, because other processes can't write during a check: half a second for
        100,000 messages.
        """
        differences = (
            "SELECT id FROM indexed EXCEPT SELECT id FROM rows",
            "SELECT id FROM rows EXCEPT SELECT id FROM indexed",
        )
        if self.problem() == NO_FTS5:
            return [NO_FTS5]
        faults: list[str] = []
        for subject in ("messages_fts", "messages_grams", *differences):
            try:
                with self._database.transaction() as connection:
                    if (progress := _progress(connection)) is not None:
                        done, last = progress
                        return [
                            f"the search index was made anew up to message {done} of {last} only: rebuild it"
                        ]
                    if subject not in differences:
                        connection.execute(f"INSERT INTO {subject} ({subject}) VALUES ('integrity-check')")
                        continue
                    (count,) = connection.execute(
                        f"""WITH rows AS (SELECT id FROM indexed_messages), indexed AS (SELECT id FROM messages_fts_docsize)
                            SELECT count(*) FROM ({subject})"""
                    ).fetchone()
                    if count:
                        faults.append(
                            f"the search index differs from the messages in {counted(count, 'row')}: rebuild it"
                        )
            except DatabaseCorrupt as exc:
                if subject in differences:
                    return [str(exc)]
                faults.append(f"the search index {subject} is damaged ({exc.__cause__}): rebuild it")
        return faults

    def rebuild(self, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Rebuild both indexes in short transactions; return the number of indexed messages."""
        lossy = self.is_damaged()
        with self._database.transaction() as connection:
            reset_indexes(connection, damaged=lossy)
            if not _has_tables(connection):
                raise DatabaseUnavailable(NO_FTS5, "use a Python whose SQLite has FTS5")
        done = 0
        while True:
            with self._database.transaction() as connection:
                progress_now = _progress(connection)
                if (
                    progress_now is None
                ):  # also if another process, which stores messages, indexed the last ones
                    break
                done += _index_next(connection, *progress_now)
            progress(done)
            time.sleep(PAUSE_S)
        self.free_lost_pages()
        return done

    def reset(self, exc: Exception) -> None:
        """Make both indexes anew if one is damaged, else raise `exc`."""
        if not self.is_damaged():
            cause = exc.__cause__
            if getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_CORRUPT_VTAB:
                fact = f"can't read the search index of {self._database.label!r}, which is whole: {cause}"
                raise DatabaseUnavailable(fact, "see that the disk works, then try again") from exc
            raise exc
        log.warning("the search index of %s is damaged and is built again: %s", self._database.label, exc)
        with self._database.transaction() as connection:
            reset_indexes(connection, damaged=True)
        self.resets += 1

    def free_lost_pages(self) -> None:
        """Free the pages of an index that was too damaged to be dropped.

        Do nothing if there are none, or if another program uses the file.
        """
        with contextlib.suppress(sqlite3.Error, StorageError):
            if self._database.execute("SELECT 1 FROM state_meta WHERE key = ?", (LOST_PAGES_KEY,)).fetchone():
                self._database.connection.execute("VACUUM")
                self._database.execute("DELETE FROM state_meta WHERE key = ?", (LOST_PAGES_KEY,))

    def is_damaged(self) -> bool:
        """Return True if FTS5's own check finds damage in an index. It takes half a second for 100,000 messages."""
        try:
            with self._database.transaction() as connection:
                for table in TABLES:
                    connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
        except (DatabaseCorrupt, sqlite3.OperationalError):
            return True
        return False

    def _can_be_read(self) -> bool:
        """Return True if both indexes can be read and hold all messages that no rebuild has yet to index."""
        try:
            for table in TABLES:
                self._database.connection.execute(f"SELECT rowid FROM {table} LIMIT 1").fetchone()
        except sqlite3.DatabaseError:
            return False
        return True


def create_indexes(connection: sqlite3.Connection) -> None:
    """Create both indexes. Do nothing if this SQLite has no FTS5."""
    try:
        for statement in TABLES.values():
            connection.execute(statement)
    except sqlite3.OperationalError as exc:
        if not _lacks_fts5(exc):
            raise


def reset_indexes(connection: sqlite3.Connection, *, damaged: bool = False) -> None:
    """Remove both indexes, create them empty, and let further messages build them again.

    Args:
        damaged: True if the tables may be too damaged to be dropped. Then only their entries in the schema are deleted,
            and their pages stay in the file until `VACUUM`. The transaction must not have used the indexes before:
            after the first error of a damaged page, SQLite refuses everything else in it.
    """
    if damaged:
        connection.execute("PRAGMA writable_schema = ON")
        for table in TABLES:
            connection.execute(
                "DELETE FROM sqlite_schema WHERE name = ? OR name GLOB ?", (table, f"{table}_*")
            )
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute("INSERT OR REPLACE INTO state_meta VALUES (?, '')", (LOST_PAGES_KEY,))
    else:
        for table in TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
    create_indexes(connection)
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    _set_progress(connection, 0, last)


@contextlib.contextmanager
def _derived(connection: sqlite3.Connection, message_id: int | None = None) -> Iterator[None]:
    """Create an index that is missing; if there is no FTS5, leave the message of the block for later.

    Args:
        message_id: Id of the message that the block adds.
    """
    try:
        yield
    except sqlite3.DatabaseError as exc:
        if _lacks_fts5(exc) or (_lacks_table(exc) and not _can_create(connection)):
            if message_id is not None:
                done, _ = _progress(connection) or (message_id - 1, 0)
                _set_progress(connection, done, message_id)
        elif _lacks_table(exc):
            reset_indexes(connection)
        else:
            raise  # a damaged page: SQLite refuses the rest of this transaction, see `SessionStore.with_index`


def _can_create(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.fts5_probe USING fts5(x)")
    except sqlite3.DatabaseError:
        return False
    connection.execute("DROP TABLE temp.fts5_probe")
    return True


def _has_tables(connection: sqlite3.Connection | Database) -> bool:
    return bool(connection.execute(_TABLE_COUNT).fetchone()[0] == len(TABLES))


def _lacks_fts5(exc: sqlite3.DatabaseError) -> bool:
    return "no such module: fts5" in str(exc)


def _lacks_table(exc: sqlite3.DatabaseError) -> bool:
    return "no such table: messages_" in str(exc)


def _index_next(connection: sqlite3.Connection, start: int, end: int) -> int:
    """Index the next `STEP` messages of a rebuild; return their number. Without any, the rebuild has ended."""
    rows = _read(connection, "id > ? AND id <= ? ORDER BY id LIMIT ?", (start, end, STEP))
    _add(connection, rows)
    if len(rows) < STEP:
        connection.execute("DELETE FROM state_meta WHERE key = ?", (PROGRESS_KEY,))
    else:
        _set_progress(connection, rows[-1][0], end)
    return len(rows)


def rebuild_indexes(
    connection: sqlite3.Connection, progress: Callable[[int], None] = lambda _count: None
) -> int:
    """Rebuild both indexes from the messages, in the caller's transaction; return the number of indexed messages.

    FTS5's own command "rebuild" can't be used: it would index the text without the changes that `recall.tokens` makes.
    `progress` gets the number of messages so far.
    """
    if not _has_tables(connection):  # an SQLite without FTS5
        return 0
    for table in TABLES:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
    last = done = 0
    while rows := _read(connection, "id > ? ORDER BY id LIMIT ?", (last, BATCH)):
        _add(connection, rows)
        last, done = rows[-1][0], done + len(rows)
        progress(done)
    return done


def _progress(connection: sqlite3.Connection | Database) -> tuple[int, int] | None:
    """Return the progress of `Fts5Index.rebuild`: the last message id that is indexed, and the last id to index.

    Return None if no such rebuild is unfinished.
    """
    row = connection.execute(_PROGRESS, (PROGRESS_KEY,)).fetchone()
    if row is None:
        return None
    done, last = row[0].split()
    return int(done), int(last)


def _set_progress(connection: sqlite3.Connection, done: int, last: int) -> None:
    connection.execute("INSERT OR REPLACE INTO state_meta VALUES (?, ?)", (PROGRESS_KEY, f"{done} {last}"))


def _read(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[IndexedRow]:
    sql = f"SELECT id, content, calls FROM indexed_messages WHERE {condition}"
    return [(row[0], row[1], readable_calls(row[2])) for row in connection.execute(sql, parameters)]


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


def note_change(connection: Connection | sqlite3.Connection) -> None:
    """Let all processes read the vectors of a state.db again, because some were removed or have another owner now."""
    connection.execute(
        """INSERT INTO state_meta SELECT ?, '1' WHERE true
           ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)""",
        (CHANGES_KEY,),
    )
