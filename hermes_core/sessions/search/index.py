"""The full-text index over the terms of messages, which are cut by `recall.tokens`.

Each change of a message updates the index in the same transaction. The messages are what counts: a write never fails
because of the index. A damaged index is dropped, and made again from the messages, a part with each further message; an
SQLite without FTS5 leaves the messages out until one with FTS5 opens the file.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hermes_core.errors import DatabaseCorrupt, DatabaseUnavailable, StorageError
from hermes_core.safety.terminal import counted
from hermes_core.sessions.records import Order
from hermes_core.sessions.search.protocol import CHANGES_KEY, INDEX_LOST, PROGRESS_KEY, MessageIndex
from hermes_core.sessions.search.texts import terms_of, terms_of_row
from hermes_core.storage.engine import Connection, Engine
from hermes_core.storage.sqlite import Database

if TYPE_CHECKING:
    from hermes_core.recall.query import Analysis
    from hermes_core.sessions.records import SearchHit
    from hermes_core.sessions.search.filters import Filters
    from hermes_core.sessions.search.fts5 import KnownSpeakers
    from hermes_core.sessions.search.protocol import SearchEngine
    from hermes_core.sessions.search.reader import IndexReader, ScopeFacts

# Rows in one transaction of a rebuild while other processes write: a writer waits for some ten milliseconds only.
STEP = 200

# Messages whose terms a check compares, and of each its first terms: 0.2 s.
SAMPLE = 200
SAMPLE_TERMS = 8

# Key in `state_meta` while pages of a damaged index are in the file that nothing uses.
LOST_PAGES_KEY = "search_index_lost_pages"

TABLE = "messages_fts"

# The index has no text of its own: a row is removed by the terms that it was added with. `ascii` cuts at spaces only, as
# a term has no punctuation, and keeps all letters beyond ASCII.
_CREATE = f"CREATE VIRTUAL TABLE {TABLE} USING fts5(words, calls, grams, content='', tokenize='ascii')"

NO_FTS5 = "this SQLite has no FTS5: past sessions are searched word by word, slower and less exact"

log = logging.getLogger(__name__)

_PROGRESS = "SELECT value FROM state_meta WHERE key = ?"
_EXISTS = f"SELECT count(*) FROM sqlite_schema WHERE name = '{TABLE}'"
_INSERT = f"INSERT INTO {TABLE} (rowid, words, calls, grams) VALUES (?, ?, ?, ?)"
_DELETE = f"INSERT INTO {TABLE} ({TABLE}, rowid, words, calls, grams) VALUES ('delete', ?, ?, ?, ?)"
_CHECK = f"INSERT INTO {TABLE} ({TABLE}) VALUES ('integrity-check')"
# The check of FTS5 does not read the table of the numbers of terms.
_CHECK_SIZES = f"SELECT count(*), max(length(sz)) FROM {TABLE}_docsize"

# Id, text, tool and calls of a message.
IndexedRow = tuple[int, str, str, str]


class Fts5Index(MessageIndex):
    """The full-text index of a state.db, as a `MessageIndex`."""

    _database: Database
    _may_lack = True  # False after a look that found no unfinished rebuild
    _speakers: KnownSpeakers | None = None

    def add(
        self, connection: Connection, message_ids: Sequence[int], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Add new messages to the index, and for each the next messages of a rebuild that is not finished."""
        connection = cast(sqlite3.Connection, connection)
        for message_id, values in zip(message_ids, rows, strict=True):
            if (terms := terms_of_row(values)) is None:
                continue
            try:
                if self._may_lack and (progress := _progress(connection)):
                    _index_next(connection, *progress)
                else:
                    self._may_lack = False
                connection.execute(_INSERT, (message_id, *terms))
            except sqlite3.DatabaseError as exc:
                self._replace(connection, exc, message_id)

    def remove(self, connection: Connection, condition: str, parameters: tuple[object, ...]) -> None:
        """Remove the messages that fulfil an SQL condition from the index, and their vectors.

        Call this before the rows are deleted or hidden, because FTS5 needs the terms that were indexed.
        """
        connection = cast(sqlite3.Connection, connection)
        # Rows that a rebuild has yet to index are in no index.
        done, last = _progress(connection) or (0, 0)
        try:
            rows = _read(connection, f"{condition} AND NOT (id > ? AND id <= ?)", (*parameters, done, last))
            connection.executemany(_DELETE, map(_terms, rows))
        except sqlite3.DatabaseError as exc:
            self._replace(connection, exc)
        sql = f"DELETE FROM vectors WHERE message_id IN (SELECT id FROM messages WHERE {condition})"
        if connection.execute(sql, parameters).rowcount:
            note_change(connection)

    def change_owner(self, connection: Connection) -> None:
        """Let all processes read the vectors of each owner again."""
        if connection.execute("SELECT 1 FROM vectors LIMIT 1").fetchone():
            note_change(connection)

    def scope_facts(self, query: str, filters: Filters, sources: Collection[str]) -> ScopeFacts:
        """Return whom a question names, which of these sources are stored, and the newest message."""
        from hermes_core.sessions.search.fts5 import KnownSpeakers, scope_facts

        known = self._speakers or KnownSpeakers()
        facts, self._speakers = scope_facts(self._database, query, filters, sources, known)
        return facts

    def reader(self, filters: Filters, order: Order | None, limit: int, newest: int) -> IndexReader:
        """Return a reader for one search that ranks at most `limit` messages."""
        from hermes_core.sessions.search.fts5 import Fts5Reader

        return Fts5Reader(self._database, filters, order, limit, newest)

    def ask_proof(self) -> Callable[[], bool]:
        """Return a function that returns True if the index finds messages by their own words, and knows the newest one."""
        from hermes_core.sessions.search.fts5 import finds_samples

        return functools.partial(finds_samples, self._database)

    def misses(self, hits: Sequence[SearchHit], analysis: Analysis) -> bool:
        """Return True if the index does not find these messages by the words of the question that they have."""
        from hermes_core.sessions.search.fts5 import misses

        return misses(self._database, hits, analysis)

    def problem(self) -> str:
        """Return a sentence if a search does not find all messages by the index; "" if it does."""
        value, exists = self._database.execute(
            f"SELECT ({_PROGRESS}), ({_EXISTS})", (PROGRESS_KEY,)
        ).fetchone()
        if value is None:
            return "" if exists else INDEX_LOST
        if not self._can_be_read():
            return NO_FTS5
        done, last = map(int, value.split())
        return (
            f"{INDEX_LOST}, {done:,} of {last:,} messages so far; until then "
            "searches are less exact: `hermes-memory sessions rebuild` finishes it now"
        )

    def check(self) -> list[str]:
        """Return a line for each damage and for each difference from the messages.

        Each check is a separate transaction, because other processes can't write during a check: half a second for
        100,000 messages.
        """
        if self.problem() == NO_FTS5:
            return [NO_FTS5]
        if (unfinished := _progress(self._database)) is not None:
            return [
                "the search index was made anew up to message {} of {} only: rebuild it".format(*unfinished)
            ]
        if damage := self._damage():
            return [f"the search index is damaged ({damage}): rebuild it"]
        faults = []
        for more, fewer in itertools.permutations(("messages WHERE state < 2", f"{TABLE}_docsize")):
            with self._database.transaction() as connection:
                (count,) = connection.execute(
                    f"SELECT count(*) FROM (SELECT id FROM {more} EXCEPT SELECT id FROM {fewer})"
                ).fetchone()
            if count:
                faults.append(
                    f"the search index differs from the messages in {counted(count, 'row')}: rebuild it"
                )
        with self._database.transaction() as connection:
            part = "id % (SELECT max(id) / ? + 1 FROM messages) = 0"
            rows = _read(connection, part, (SAMPLE,))
            differing = sum(not _is_indexed(connection, row) for row in rows)
        if differing:
            faults.append(
                f"the search index differs from {differing} of {len(rows)} messages that were compared: rebuild it"
            )
        return faults

    def rebuild(self, progress: Callable[[int], None] = lambda _count: None) -> int:
        """Make the index anew while other processes write; return the number of indexed messages."""
        lossy = self.is_damaged()
        with self._database.transaction() as connection:
            reset_index(connection, damaged=lossy)
            if not _exists(connection):
                raise DatabaseUnavailable(NO_FTS5, "use a Python whose SQLite has FTS5")
        done = super().rebuild(progress)
        self.free_lost_pages()
        return done

    def _rebuild_next(self, connection: Connection) -> int:
        connection = cast(sqlite3.Connection, connection)
        if not _exists(connection):
            reset_index(connection)
            if not _exists(connection):
                return 0  # no FTS5
        # None also if another process, which stores messages, indexed the last ones.
        unfinished = _progress(connection)
        return 0 if unfinished is None else _index_next(connection, *unfinished)

    def reset(self, exc: Exception) -> None:
        """Make the index anew if it is damaged, else raise `exc`."""
        # SQLite refuses everything else in a transaction that met damage.
        if self._database.in_transaction:
            raise exc
        if not self.is_damaged():
            cause = exc.__cause__
            if getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_CORRUPT_VTAB:
                fact = f"can't read the search index of {self._database.label!r}, which is whole: {cause}"
                raise DatabaseUnavailable(fact, "see that the disk works, then try again") from exc
            raise exc
        log.warning("the search index of %s is damaged and is built again: %s", self._database.label, exc)
        self._drop(damaged=True)

    def renew(self) -> None:
        """Drop the index, and let further messages make it anew, a part each."""
        try:
            self._drop()
        except (DatabaseCorrupt, sqlite3.OperationalError):
            self._drop(damaged=True)

    def _drop(self, *, damaged: bool = False) -> None:
        with self._database.transaction() as connection:
            reset_index(connection, damaged=damaged)
        self.resets += damaged
        self._may_lack = True

    def free_lost_pages(self) -> None:
        """Free the pages of an index that was too damaged to be dropped.

        Do nothing if there are none, or if another program uses the file.
        """
        with contextlib.suppress(sqlite3.Error, StorageError):
            if self._database.execute("SELECT 1 FROM state_meta WHERE key = ?", (LOST_PAGES_KEY,)).fetchone():
                self._database.connection.execute("VACUUM")
                self._database.execute("DELETE FROM state_meta WHERE key = ?", (LOST_PAGES_KEY,))

    def _replace(
        self, connection: sqlite3.Connection, exc: sqlite3.DatabaseError, message_id: int | None = None
    ) -> None:
        """Create the index if `exc` says that it is missing; if there is no FTS5, leave a message for later.

        Args:
            connection: The connection of the transaction in which `exc` was raised.
            exc: The error.
            message_id: Id of the message that was to be added, if any.
        """
        self._may_lack = True
        if f"no such table: {TABLE}" in str(exc):
            reset_index(connection)
        elif not _lacks_fts5(exc):
            raise exc  # a damaged page: SQLite refuses the rest of this transaction, see `SessionStore.with_index`
        elif message_id is not None:
            done, _ = _progress(connection) or (message_id - 1, 0)
            _set_progress(connection, done, message_id)

    def is_damaged(self) -> bool:
        """Return True if the index has damage. It takes half a second for 100,000 messages."""
        return bool(self._damage())

    def _damage(self) -> str:
        """Return what FTS5 says of damage in the index; "" if there is none."""
        try:
            with self._database.transaction() as connection:
                connection.execute(_CHECK)
                connection.execute(_CHECK_SIZES)
        except (DatabaseCorrupt, sqlite3.OperationalError) as exc:
            return str(exc.__cause__ or exc)
        return ""

    def _can_be_read(self) -> bool:
        """Return True if the index can be read."""
        try:
            self._database.connection.execute(f"SELECT rowid FROM {TABLE} LIMIT 1").fetchone()
        except sqlite3.DatabaseError:
            return False
        return True


def reset_index(connection: sqlite3.Connection, *, damaged: bool = False) -> None:
    """Remove the index, create it empty, and let further messages build it again. Without FTS5 there is none then.

    Args:
        damaged: True if the index may be too damaged to be dropped. Then only its entries in the schema are deleted,
            and its pages stay in the file until `VACUUM`. The transaction must not have used the index before:
            after the first error of a damaged page, SQLite refuses everything else in it.
    """
    if damaged:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = ? OR name GLOB ?", (TABLE, f"{TABLE}_*"))
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute("INSERT OR REPLACE INTO state_meta VALUES (?, '')", (LOST_PAGES_KEY,))
    else:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    try:
        connection.execute(_CREATE)
    except sqlite3.OperationalError as exc:
        if not _lacks_fts5(exc):
            raise
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    _set_progress(connection, 0, last)


def _exists(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(_EXISTS).fetchone()[0])


def _lacks_fts5(exc: sqlite3.DatabaseError) -> bool:
    return "no such module: fts5" in str(exc)


def _index_next(connection: sqlite3.Connection, start: int, end: int) -> int:
    """Index the next `STEP` messages of a rebuild; return their number. Without any, the rebuild has ended."""
    rows = _read(connection, "id > ? AND id <= ? ORDER BY id LIMIT ?", (start, end, STEP))
    connection.executemany(_INSERT, map(_terms, rows))
    if len(rows) < STEP:
        connection.execute("DELETE FROM state_meta WHERE key = ?", (PROGRESS_KEY,))
    else:
        _set_progress(connection, rows[-1][0], end)
    return len(rows)


def rebuild_index(
    connection: sqlite3.Connection, progress: Callable[[int], None] = lambda _count: None
) -> int:
    """Rebuild the index from the messages, in the caller's transaction; return the number of indexed messages.

    `progress` gets the number of messages so far.
    """
    reset_index(connection)
    done = 0
    while _exists(connection) and (unfinished := _progress(connection)):  # not with an SQLite without FTS5
        done += _index_next(connection, *unfinished)
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
    sql = f"SELECT id, content, tool_name, tool_calls FROM messages WHERE state < 2 AND {condition}"
    return connection.execute(sql, parameters).fetchall()


def _terms(row: Sequence[Any]) -> tuple[object, ...]:
    message_id, *texts = row
    return message_id, *terms_of(*texts)


def _is_indexed(connection: Connection, row: IndexedRow) -> bool:
    """Return True if the index has the first terms of a message, side by side."""
    message_id, *terms = _terms(row)
    query = " AND ".join(
        f'{column} : "{" ".join(str(part).split()[:SAMPLE_TERMS])}"'
        for column, part in zip(("words", "calls", "grams"), terms, strict=True)
        if part
    )
    sql = f"SELECT 1 FROM {TABLE} WHERE {TABLE} MATCH ? AND rowid = ?"
    return not query or connection.execute(sql, (query, message_id)).fetchone() is not None


def note_change(connection: Connection | sqlite3.Connection) -> None:
    """Let all processes read the vectors of a state.db again, because some were removed or have another owner now."""
    connection.execute(
        """INSERT INTO state_meta SELECT ?, '1' WHERE true
           ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)""",
        (CHANGES_KEY,),
    )


def search_index(database: Engine) -> MessageIndex:
    """Return the search index of an engine."""
    if isinstance(database, Database):
        return Fts5Index(database)
    return cast("SearchEngine", database).search_index()
