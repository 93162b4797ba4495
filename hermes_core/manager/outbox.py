"""`outbox.db`: writes that a provider has not taken yet, and the ids of those that it has.

A write is acknowledged when `append` returns: it is on disk then. A row stays until the provider took it or a person
dropped it; its id is remembered for longer, so that a recovery after a crash does not send it again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hermes_core.errors import OutboxFull
from hermes_core.home import HermesHome
from hermes_core.manager.payload import Write, takes_back
from hermes_core.storage.sqlite import Database

MAX_ROWS = 100_000
MAX_BYTES = 256 * 1024 * 1024

REMEMBERED = 30 * 86400.0
"""Seconds for which the id of a settled row is kept. Recovery looks no further back (`recover_since`)."""

LEASE = 0.01
"""Share of the bounds that a process appends before it counts all rows again; several at once may pass them by so much each."""

ANY_ACCOUNT = "*"
"""Fingerprint of a row that a person asked to send to whatever account is in use."""

RowState = Literal["pending", "parked"]


@dataclass(frozen=True, slots=True)
class Row:
    """One write that waits, or is parked until a person decides. `attempts` counts tries that failed."""

    number: int
    provider: str
    session_id: str
    hook: str
    event: str
    state: RowState
    attempts: int
    error: str
    created_at: float
    fingerprint: str
    body: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one provider has waiting: rows, age of the oldest in seconds, and parked rows.

    `error` is why a try of the oldest of those that were tried failed; "" when none that waits was.
    """

    depth: int
    oldest_age: float | None
    parked: int
    error: str = ""


def _first_tables(connection: sqlite3.Connection) -> None:
    for statement in _FIRST_TABLES:
        connection.execute(statement)


_FIRST_TABLES = (
    """
    CREATE TABLE rows (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        provider TEXT NOT NULL,
        session_id TEXT NOT NULL,
        hook TEXT NOT NULL,
        event TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'parked')),
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        created_at REAL NOT NULL,
        fingerprint TEXT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (provider, hook, event)
    ) STRICT
    """,
    "CREATE INDEX rows_in_order ON rows (provider, state, number)",
    """
    CREATE TABLE settled (
        provider TEXT NOT NULL,
        hook TEXT NOT NULL,
        event TEXT NOT NULL,
        settled_at REAL NOT NULL,
        PRIMARY KEY (provider, hook, event)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX settled_by_age ON settled (settled_at)",
    "CREATE TABLE providers (name TEXT PRIMARY KEY, since REAL NOT NULL) STRICT, WITHOUT ROWID",
    # Kept by triggers, so that a full outbox is known without counting it at each write.
    "CREATE TABLE totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT",
    "INSERT INTO totals VALUES (0, 0)",
    """
    CREATE TRIGGER row_added AFTER INSERT ON rows BEGIN
        UPDATE totals SET count = count + 1, bytes = bytes + length(new.body);
    END
    """,
    """
    CREATE TRIGGER row_removed AFTER DELETE ON rows BEGIN
        UPDATE totals SET count = count - 1, bytes = bytes - length(old.body);
    END
    """,
)

_ARRIVED = "provider, session_id, hook, event, created_at, fingerprint, body"
_PUT = f"INSERT INTO arrived ({_ARRIVED}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  a constant
_SORT_IN = f"""
    INSERT OR IGNORE INTO rows ({_ARRIVED})
    SELECT {_ARRIVED} FROM arrived AS new WHERE NOT EXISTS
        (SELECT 1 FROM settled WHERE provider = new.provider AND hook = new.hook AND event = new.event)
    ORDER BY number
"""  # noqa: S608  a constant

_LAST_OF_EACH = "SELECT max(settled_at), provider FROM settled WHERE settled_at < ? GROUP BY provider"
# A clock that was ahead and is set right counts from then: it would be a long time until any turn is recovered.
_SINCE = """
    INSERT INTO providers VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET since = excluded.since WHERE excluded.since < since
"""

_NOT_TO_COME = "INSERT OR IGNORE INTO settled SELECT name, 'sync_turn', ?, ? FROM providers"

_ROW = "SELECT number, provider, session_id, hook, event, state, attempts, error, created_at, fingerprint, body FROM rows"
"""By name: a newer version, which may run beside this one, may have added a column."""

_WAITS = """
    SELECT 1 FROM rows WHERE provider = :provider AND state = 'pending' {of_session}
    UNION ALL SELECT 1 FROM arrived WHERE provider = :provider {of_session} LIMIT 1
"""

_BACKLOG = """
    SELECT state, count(*), (
        SELECT created_at FROM rows WHERE provider = told.provider AND state = told.state ORDER BY number LIMIT 1
    ), (
        SELECT error FROM rows
        WHERE provider = told.provider AND state = told.state AND error <> '' ORDER BY number LIMIT 1
    ) FROM rows AS told WHERE provider = ? GROUP BY state
"""


def _count_when_asked(connection: sqlite3.Connection) -> None:
    """Rows are counted now and then, from an index that knows their lengths: a page less in each commit.

    A program of the first version that still runs beside us finds in `totals` that there is room.
    """
    for statement in (
        "DROP TRIGGER row_added",
        "DROP TRIGGER row_removed",
        "UPDATE totals SET count = 0, bytes = 0",
        "DROP INDEX rows_in_order",
        "CREATE INDEX rows_in_order ON rows (provider, state, number, length(body))",
    ):
        connection.execute(statement)


def _arrivals(connection: sqlite3.Connection) -> None:
    """A table without any index, for the one write that a host waits for; the others have it in line when they look."""
    connection.execute(
        """
        CREATE TABLE arrived (
            number INTEGER PRIMARY KEY,
            provider TEXT NOT NULL,
            session_id TEXT NOT NULL,
            hook TEXT NOT NULL,
            event TEXT NOT NULL,
            created_at REAL NOT NULL,
            fingerprint TEXT NOT NULL,
            body TEXT NOT NULL
        ) STRICT
        """
    )


def _by_session(connection: sqlite3.Connection) -> None:
    """Who deletes or rewinds a session does not walk through what all the others have waiting."""
    connection.execute("CREATE INDEX rows_by_session ON rows (session_id, provider, state)")


MIGRATIONS = (
    ("0001 rows, settled ids, totals", _first_tables),
    ("0002 lengths in the index, no totals", _count_when_asked),
    ("0003 arrivals", _arrivals),
    ("0004 rows by session", _by_session),
)


class Outbox:
    """The outbox of one home. Any process appends; `wall` dates rows in seconds since the epoch."""

    def __init__(
        self,
        home: HermesHome,
        *,
        wall: Callable[[], float] = time.time,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = home.outbox_db
        self._db = Database(self.path, MIGRATIONS, synchronous="FULL", secure_delete=True)
        self._wall = wall
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._rows_left = self._bytes_left = 0

    # ------------------------------------------------------------------ append

    def put(self, provider: str, write: Write, fingerprint: str = "") -> None:
        """Store one write; if the outbox knows it, it is left out later. It is on disk when this returns.

        Raises `OutboxFull` with nothing stored, or `DatabaseUnavailable`. It is what a host waits for in each turn.
        """
        self._rows_left -= 1
        self._bytes_left -= len(write.body)
        if self._rows_left < 0 or self._bytes_left < 0:
            self.append(provider, [write], fingerprint)  # there may be room; it is counted
        else:
            hook, event = write.hook, write.event
            values = (provider, write.session_id, hook, event, self._wall(), fingerprint, write.body)
            with self._db.transaction() as connection:
                connection.execute(_PUT, values)

    def append(
        self, provider: str, writes: Sequence[Write], fingerprint: str = "", at: float | None = None
    ) -> int:
        """Store `writes`, made now or `at` a time before, in one transaction; those that the outbox knows are left out. Returns
        how many were new.

        They are on disk when this returns. Raises `OutboxFull` with nothing stored, or `DatabaseUnavailable`.
        """
        at = self._wall() if at is None else at
        with self._changes() as connection:
            new = [
                write for write in writes if not self._known(connection, provider, write.hook, write.event)
            ]
            self._refuse_overflow(connection, new)
            # One id may come twice in one call: the second is ignored.
            added = connection.executemany(
                f"INSERT OR IGNORE INTO rows ({_ARRIVED}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  a constant
                [(provider, w.session_id, w.hook, w.event, at, fingerprint, w.body) for w in new],
            )
            return added.rowcount if new else 0

    def knows(self, provider: str, hook: str, event: str) -> bool:
        """Whether this event waits, is parked, or was settled within the time that ids are remembered."""
        self._sort_in()
        return self._known(self._db, provider, hook, event)

    def attach(self, provider: str) -> float:
        """Note that `provider` is in use; returns since when it has been, in seconds since the epoch."""
        with self._db.transaction() as connection:
            connection.execute(_SINCE, (provider, self._wall()))
            query = "SELECT since FROM providers WHERE name = ?"
            return float(connection.execute(query, (provider,)).fetchone()[0])

    def recover_since(self, provider: str) -> float:
        """The time from which on `knows` is complete for this provider: turns before it must not be recovered."""
        return max(self.attach(provider), self._wall() - REMEMBERED)

    # ----------------------------------------------------------------- deliver

    def next(self, provider: str, skip_sessions: Iterable[str] = ()) -> Row | None:
        """The oldest waiting row of `provider` whose session is not among those to skip."""
        skipped = tuple(skip_sessions)
        marks = ", ".join("?" * len(skipped))
        query = (
            f"{_ROW} WHERE provider = ? AND state = 'pending' AND session_id NOT IN ({marks})"
            " ORDER BY number LIMIT 1"
        )
        found = self._ask(query, (provider, *skipped)).fetchone()
        return Row(**found) if found else None

    def waiting(self, number: int) -> Row | None:
        """The row of this number, if it waits."""
        found = self._ask(f"{_ROW} WHERE number = ? AND state = 'pending'", (number,)).fetchone()
        return Row(**found) if found else None

    def delivered(self, row: Row) -> None:
        """The provider took the row: it is deleted, and its id remembered."""
        with self._changes() as connection:
            self._settle(connection, [row])
            self._forget(connection, self._wall() - REMEMBERED)

    def failed(self, row: Row, error: str, *, counted: bool) -> None:
        """A try failed: noted on the row, and `counted` towards parking it."""
        statement = "UPDATE rows SET attempts = attempts + ?, error = ? WHERE number = ?"
        with self._changes() as connection:
            connection.execute(statement, (int(counted), error, row.number))

    def park(self, row: Row, error: str) -> None:
        """Take the row out of the line until a person decides."""
        statement = "UPDATE rows SET state = 'parked', attempts = attempts + 1, error = ? WHERE number = ?"
        with self._changes() as connection:
            connection.execute(statement, (error, row.number))

    def waits(self, provider: str, session_id: str | None = None) -> bool:
        """Whether any row of this provider, or of one session of it, waits to be sent or has arrived."""
        query = _WAITS.format(of_session="" if session_id is None else "AND session_id = :session")
        return self._db.execute(query, {"provider": provider, "session": session_id}).fetchone() is not None

    # ------------------------------------------------------------------ people

    def pending(self, provider: str | None = None, limit: int | None = None) -> list[Row]:
        """Rows that wait, oldest first, at most `limit` of them."""
        return self._rows("pending", provider, limit)

    def parked(self, provider: str | None = None, limit: int | None = None) -> list[Row]:
        """Rows that were taken out of the line, oldest first, at most `limit` of them; `error` says why."""
        return self._rows("parked", provider, limit)

    def retry(self, numbers: Sequence[int] | None = None) -> int:
        """Put parked rows (None: all) back in line, for whatever account is in use. Returns how many there were."""
        with self._changes() as connection:
            chosen = self._chosen(self.parked(), numbers)
            connection.executemany(
                "UPDATE rows SET state = 'pending', attempts = 0, error = '', fingerprint = ? WHERE number = ?",
                [(ANY_ACCOUNT, row.number) for row in chosen],
            )
            return len(chosen)

    def drop(self, numbers: Sequence[int] | None = None) -> int:
        """Throw rows away (None: all that are parked), also those that wait; they are never sent, also not by a recovery.

        Returns how many. One that is on its way just now may arrive.
        """
        with self._changes() as connection:
            rows = self.parked() if numbers is None else [*self.pending(), *self.parked()]
            return self._settle(connection, self._chosen(rows, numbers))

    def drop_turns(
        self,
        provider: str,
        turns: Iterable[str],
        then: Callable[[list[str]], Write] | None = None,
        fingerprint: str = "",
        at: float | None = None,
    ) -> None:
        """Drop unsent rows of turns that were taken back, and append `then(sent)` in the same transaction. One whose row comes
        only now, since another thread or process stored the turn, is not taken.

        `sent` are the turns that the provider may have: not waiting any more, tried before, or first in their
        session's line and so perhaps on their way in some process.
        """
        with self._changes() as connection:
            found = {turn: self._find(connection, provider, "sync_turn", turn) for turn in turns}
            sent = [turn for turn, row in found.items() if row is None or self._may_be_out(connection, row)]
            self._settle(connection, [row for row in found.values() if row is not None])
            connection.executemany(
                "INSERT OR REPLACE INTO settled VALUES (?, 'sync_turn', ?, ?)",
                [(provider, turn, self._wall()) for turn, row in found.items() if row is None],
            )
            if then is not None:
                self.append(provider, [then(sent)], fingerprint, at)

    def drop_session(self, session_id: str, turns: Iterable[str] = ()) -> int:
        """Drop what a session that is deleted has waiting, but not the word to forget turns that were taken back in it.
        Returns how many rows that were. One of its `turns` whose row comes only now, since another thread or process
        stored the turn, is not taken, for whatever provider.
        """
        with self._changes() as connection:
            connection.executemany(_NOT_TO_COME, [(turn, self._wall()) for turn in turns])
            found = connection.execute(f"{_ROW} WHERE session_id = ?", (session_id,)).fetchall()
            gone = [Row(**row) for row in found if not takes_back(row["hook"], row["body"])]
            return self._settle(connection, gone)

    # ------------------------------------------------------------------ report

    @property
    def depth(self) -> int:
        """How many rows wait, of all providers."""
        return int(self._ask("SELECT count(*) FROM rows WHERE state = 'pending'").fetchone()[0])

    @property
    def oldest_age(self) -> float | None:
        """Age in seconds of the oldest row that waits; None when none does."""
        oldest = self._ask("SELECT min(created_at) FROM rows WHERE state = 'pending'").fetchone()[0]
        return None if oldest is None else max(0.0, self._wall() - oldest)

    def backlog(self, provider: str) -> Backlog:
        """What waits and what is parked for one provider."""
        found = {row[0]: row[1:] for row in self._ask(_BACKLOG, (provider,))}
        depth, oldest, error = found.get("pending", (0, None, None))
        age = None if oldest is None else max(0.0, self._wall() - oldest)
        return Backlog(depth, age, found.get("parked", (0,))[0], error or "")

    def last_settled(self, provider: str) -> float | None:
        """When a write of this provider was last settled, in seconds since the epoch; None when none is remembered."""
        query = "SELECT max(settled_at) FROM settled WHERE provider = ?"
        found = self._ask(query, (provider,)).fetchone()[0]
        return None if found is None else float(found)

    def backlogs(self) -> dict[str, Backlog]:
        """What waits and what is parked, by provider, also of those that are not active."""
        names = [row[0] for row in self._ask("SELECT DISTINCT provider FROM rows ORDER BY provider")]
        return {name: self.backlog(name) for name in names}

    def hurry(self) -> None:
        """Wait for other processes only shortly from now on: the program ends."""
        self._db.shorten_waits()

    def close(self) -> None:
        """Close the file, made small if it is mostly free, as after an outage; what waits is there at the next start."""
        self._db.give_back()
        self._db.close()

    # ----------------------------------------------------------------- private

    @contextlib.contextmanager
    def _changes(self) -> Iterator[sqlite3.Connection]:
        """A transaction in which what arrived is in line."""
        with self._db.transaction() as connection:
            self._sort_in()
            yield connection

    def _ask(self, query: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """A question to which what arrived is in line."""
        self._sort_in()
        return self._db.execute(query, values)

    def _sort_in(self) -> None:
        if self._db.execute("SELECT 1 FROM arrived LIMIT 1").fetchone():
            with self._db.transaction() as connection:
                connection.execute(_SORT_IN)
                connection.execute("DELETE FROM arrived")

    def _known(self, reader: sqlite3.Connection | Database, provider: str, hook: str, event: str) -> bool:
        return any(
            reader.execute(
                f"SELECT 1 FROM {table} WHERE provider = ? AND hook = ? AND event = ?",  # noqa: S608  two constants
                (provider, hook, event),
            ).fetchone()
            for table in ("rows", "settled")
        )

    def _refuse_overflow(self, connection: sqlite3.Connection, new: Sequence[Write]) -> None:
        query = "SELECT count(*), coalesce(sum(length(body)), 0) FROM rows INDEXED BY rows_in_order"
        count, size = connection.execute(query).fetchone()
        rows_left = self._max_rows - count - len(new)
        bytes_left = self._max_bytes - size - sum(len(write.body) for write in new)
        if new and (rows_left < 0 or bytes_left < 0):
            raise OutboxFull(
                f"{str(self.path)!r} is full: {count} writes, {size} bytes wait for a provider",
                "see what is wrong with `hermes-memory providers`, then `hermes-memory outbox list`; this write was not accepted",
            )
        self._rows_left = min(rows_left, int(self._max_rows * LEASE))
        self._bytes_left = min(bytes_left, int(self._max_bytes * LEASE))

    def _settle(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        now = self._wall()
        connection.executemany(
            "INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?)",
            [(row.provider, row.hook, row.event, now) for row in rows],
        )
        connection.executemany("DELETE FROM rows WHERE number = ?", [(row.number,) for row in rows])
        return len(rows)

    def _forget(self, connection: sqlite3.Connection, before: float) -> None:
        """Drop the ids of rows that were settled `before` this; recovery never asks for them again, whatever the clock does."""
        last = connection.execute(_LAST_OF_EACH, (before,)).fetchall()
        if last:
            connection.executemany("UPDATE providers SET since = max(since, ?) WHERE name = ?", last)
            connection.execute("DELETE FROM settled WHERE settled_at < ?", (before,))

    def _rows(self, state: RowState, provider: str | None, limit: int | None) -> list[Row]:
        query = f"{_ROW} WHERE state = ? AND provider = coalesce(?, provider) ORDER BY number LIMIT ?"
        return [Row(**row) for row in self._ask(query, (state, provider, -1 if limit is None else limit))]

    def _chosen(self, rows: Sequence[Row], numbers: Sequence[int] | None) -> list[Row]:
        return [row for row in rows if numbers is None or row.number in numbers]

    def _find(self, connection: sqlite3.Connection, provider: str, hook: str, event: str) -> Row | None:
        query = f"{_ROW} WHERE provider = ? AND hook = ? AND event = ?"
        found = connection.execute(query, (provider, hook, event)).fetchone()
        return Row(**found) if found else None

    def _may_be_out(self, connection: sqlite3.Connection, row: Row) -> bool:
        query = "SELECT min(number) FROM rows WHERE provider = ? AND session_id = ? AND state = 'pending'"
        head = connection.execute(query, (row.provider, row.session_id)).fetchone()[0]
        return bool(row.attempts) or bool(head == row.number)
