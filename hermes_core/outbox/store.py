"""The tables of the outbox: calls that a provider has not taken yet, and the ids of those that it has.

They stand in state.db, so that an event and its row are one commit. A row stays until the provider took it or a person
dropped it. Its id is remembered for longer, so that no later start sends it again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hermes_core.errors import OutboxFull
from hermes_core.outbox.rows import NewRow, Row, RowState, names_rewound_turns
from hermes_core.storage.sqlite import Database

MAX_ROWS = 100_000
MAX_BYTES = 256 * 1024 * 1024

REMEMBERED_S = 30 * 86400.0
"""Seconds for which the id of a settled row is kept."""

ANY_ACCOUNT = "*"
"""Fingerprint of a row that a person asked to send to whatever account is in use."""

UNKNOWN_ACCOUNT = "?"
"""Fingerprint of a row that was written while its provider was not loaded, so that nothing could tell its account or hooks."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The rows of one provider: how many wait, the age of the oldest in seconds, and how many are dead letters.

    `error` is why a try of the oldest row that was tried failed; "" if none failed.
    """

    depth: int
    oldest_age: float | None
    dead_letters: int
    error: str = ""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of the outbox, as a migration."""
    for statement in _TABLES:
        connection.execute(statement)


_TABLES = (
    """
    CREATE TABLE outbox_rows (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        provider TEXT NOT NULL,
        session_id TEXT NOT NULL,
        hook TEXT NOT NULL,
        event TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dead letter')),
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        created_at REAL NOT NULL,
        fingerprint TEXT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (provider, hook, event)
    ) STRICT
    """,
    "CREATE INDEX outbox_rows_in_order ON outbox_rows (provider, state, number)",
    # A deletion or rewind of one session does not read what all the others have waiting.
    "CREATE INDEX outbox_rows_by_session ON outbox_rows (session_id, provider, state)",
    """
    CREATE TABLE outbox_settled (
        provider TEXT NOT NULL,
        hook TEXT NOT NULL,
        event TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        settled_at REAL NOT NULL,
        PRIMARY KEY (provider, hook, event)
    ) STRICT
    """,
    "CREATE INDEX outbox_settled_by_age ON outbox_settled (settled_at)",
    # A rewind asks which providers had a turn, whatever their names.
    "CREATE INDEX outbox_settled_by_event ON outbox_settled (event)",
    """
    CREATE TABLE outbox_refused (
        provider TEXT PRIMARY KEY, count INTEGER NOT NULL, refused_at REAL NOT NULL
    ) STRICT
    """,
    # Triggers keep the totals, so that a full outbox is known without counting a hundred thousand rows in each turn.
    "CREATE TABLE outbox_totals (count INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT",
    "INSERT INTO outbox_totals VALUES (0, 0)",
    """
    CREATE TRIGGER outbox_row_added AFTER INSERT ON outbox_rows BEGIN
        UPDATE outbox_totals SET count = count + 1, bytes = bytes + length(new.body);
    END
    """,
    """
    CREATE TRIGGER outbox_row_removed AFTER DELETE ON outbox_rows BEGIN
        UPDATE outbox_totals SET count = count - 1, bytes = bytes - length(old.body);
    END
    """,
)

_ROW = (
    "SELECT number, provider, session_id, hook, event, state, attempts, error, created_at, fingerprint, body"
    " FROM outbox_rows"
)
"""By name: a later version, which may run beside this one, may have added a column."""

_SETTLE = "INSERT OR REPLACE INTO outbox_settled (provider, hook, event, fingerprint, settled_at) VALUES (?, ?, ?, ?, ?)"

_BACKLOG = """
    SELECT state, count(*), (
        SELECT created_at FROM outbox_rows WHERE provider = r.provider AND state = r.state ORDER BY number LIMIT 1
    ), (
        SELECT error FROM outbox_rows
        WHERE provider = r.provider AND state = r.state AND error <> '' ORDER BY number LIMIT 1
    ) FROM outbox_rows AS r WHERE provider = ? GROUP BY state
"""


class Outbox:
    """The outbox in one database. Any process adds rows.

    `wall` returns the time of a row in seconds since the epoch. `on_row` is called with the provider's name after the
    commit of a new row. Methods raise `DatabaseUnavailable` and `DatabaseCorrupt` for the file.
    """

    def __init__(
        self,
        database: Database,
        *,
        wall: Callable[[], float] = time.time,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.database = database
        self.on_row: Callable[[str], None] = lambda _provider: None
        self.held_back = ""
        """Why no row may be sent: older rows could not be read, and must go first."""
        self._wall = wall
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self.database.path

    def transaction(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Make the writes of a `with` block one commit. Nests within a thread, also in a transaction of the sessions."""
        return self.database.transaction()

    def close(self) -> None:
        """Close a database that nobody else uses. A file that is mostly free, as after an outage, is made small."""
        self.database.give_back()
        self.database.close()

    # --------------------------------------------------------------------- add

    def put(
        self,
        provider: str,
        row: NewRow,
        fingerprint: str = "",
        *,
        bounded: bool = True,
        at: float | None = None,
    ) -> bool:
        """Store a row, and return False if its event is known already. It is on disk when the transaction commits.

        Args:
            fingerprint: Account of the provider that the row is for.
            bounded: False stores the row also in a full outbox.
            at: When the event happened, in seconds since the epoch; default: now.

        Raises:
            OutboxFull: There is no room. Nothing older is thrown away for the new row.
        """
        with self.transaction() as connection:
            if self.knows(provider, row.hook, row.event):
                return False
            count, size = connection.execute("SELECT count, bytes FROM outbox_totals").fetchone()
            full = bounded and (count >= self._max_rows or size + len(row.body) > self._max_bytes)
            if full:
                connection.execute(
                    "INSERT INTO outbox_refused VALUES (?, 1, ?) ON CONFLICT (provider)"
                    " DO UPDATE SET count = count + 1, refused_at = excluded.refused_at",
                    (provider, self._wall()),
                )
            else:
                connection.execute(
                    "INSERT INTO outbox_rows (provider, session_id, hook, event, created_at, fingerprint, body)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        provider,
                        row.session_id,
                        row.hook,
                        row.event,
                        self._wall() if at is None else at,
                        fingerprint,
                        row.body,
                    ),
                )
                # After the commit: a worker that looks before it sees nothing, and sleeps for seconds.
                self.database.after_commit(partial(self.on_row, provider))
        if full:  # raised here, so that the count of what was refused is committed
            raise OutboxFull(
                f"the outbox in {str(self.path)!r} is full: {count} writes, {size} bytes wait for a provider",
                "see what is wrong with `hermes-memory providers`, then `hermes-memory outbox list`; this write was not accepted",
            )
        return True

    def knows(self, provider: str, hook: str, event: str) -> bool:
        """Return True if this event waits, is a dead letter, or was settled within the last 30 days."""
        key = (provider, hook, event)
        return any(
            self.database.execute(
                f"SELECT 1 FROM {table} WHERE provider = ? AND hook = ? AND event = ?",  # noqa: S608  two constants
                key,
            ).fetchone()
            for table in ("outbox_rows", "outbox_settled")
        )

    # ----------------------------------------------------------------- deliver

    def next(self, provider: str, skip_sessions: Iterable[str] = ()) -> Row | None:
        """Return the oldest waiting row of `provider` whose session is not in `skip_sessions`."""
        skipped = tuple(skip_sessions)
        marks = ", ".join("?" * len(skipped))
        rows = self._select(
            f"provider = ? AND state = 'pending' AND session_id NOT IN ({marks}) ORDER BY number LIMIT 1",
            (provider, *skipped),
        )
        return rows[0] if rows else None

    def pending_row(self, number: int) -> Row | None:
        """Return the row of this number if it waits."""
        rows = self._select("number = ? AND state = 'pending'", (number,))
        return rows[0] if rows else None

    def delivered(self, row: Row) -> None:
        """Delete a row that the provider took, and remember its id."""
        with self.transaction() as connection:
            self._settle(connection, [row])
            self._forget(connection, self._wall() - REMEMBERED_S)

    def failed(self, row: Row, error: str, *, counted: bool) -> None:
        """Note a failed try on the row. Only a `counted` one brings it nearer to being a dead letter."""
        statement = "UPDATE outbox_rows SET attempts = attempts + ?, error = ? WHERE number = ?"
        with self.transaction() as connection:
            connection.execute(statement, (int(counted), error, row.number))

    def bury(self, row: Row, error: str) -> None:
        """Make the row a dead letter: it holds its session no longer, and waits for a person."""
        statement = "UPDATE outbox_rows SET state = 'dead letter', attempts = attempts + 1, error = ? WHERE number = ?"
        with self.transaction() as connection:
            connection.execute(statement, (error, row.number))

    def waits(self, provider: str, session_id: str | None = None) -> bool:
        """Return True if a row of this provider, or of one session of it, waits."""
        of_session = "" if session_id is None else "AND session_id = :session"
        query = (
            f"SELECT 1 FROM outbox_rows WHERE provider = :provider AND state = 'pending' {of_session} LIMIT 1"  # noqa: S608
        )
        values = {"provider": provider, "session": session_id}
        return self.database.execute(query, values).fetchone() is not None

    # ------------------------------------------------------------------ people

    def pending(self, provider: str | None = None, limit: int | None = None) -> list[Row]:
        """Return at most `limit` rows that wait, oldest first."""
        return self._rows("pending", provider, limit)

    def dead_letters(self, provider: str | None = None, limit: int | None = None) -> list[Row]:
        """Return at most `limit` dead letters, oldest first; `error` says why."""
        return self._rows("dead letter", provider, limit)

    def retry(self, numbers: Sequence[int] | None = None) -> int:
        """Let dead letters (None: all) wait again, for whatever account is in use. Return how many there were."""
        with self.transaction() as connection:
            rows = self._chosen(self.dead_letters(), numbers)
            connection.executemany(
                "UPDATE outbox_rows SET state = 'pending', attempts = 0, error = '', fingerprint = ? WHERE number = ?",
                [(ANY_ACCOUNT, row.number) for row in rows],
            )
            for provider in {row.provider for row in rows}:
                self.database.after_commit(partial(self.on_row, provider))
            return len(rows)

    def drop(self, numbers: Sequence[int] | None = None) -> int:
        """Delete rows (None: all dead letters), also those that wait, and return how many.

        They are never sent. A row that is on its way just now may arrive.
        """
        with self.transaction() as connection:
            rows = self.dead_letters() if numbers is None else [*self.pending(), *self.dead_letters()]
            return self._settle(connection, self._chosen(rows, numbers))

    # --------------------------------------------------------- rewind and delete

    def providers_of(self, turns: Iterable[str]) -> dict[str, str]:
        """Return the providers that wait for any of these turns, or took one in the last 30 days.

        Each comes with the fingerprint of the account that its row was written for.
        """
        found: dict[str, str] = {}
        for turn in turns:
            for table in ("outbox_settled", "outbox_rows"):
                query = f"SELECT provider, fingerprint FROM {table} WHERE hook = 'sync_turn' AND event = ?"  # noqa: S608
                found.update((row[0], row[1]) for row in self.database.execute(query, (turn,)))
        return found

    def drop_turns(self, provider: str, turns: Iterable[str]) -> list[str]:
        """Delete unsent rows of rewound turns, and return the turns that the provider may have.

        Those are the turns that do not wait any more, were tried before, or stand first in their session and so may be
        on their way in some process.
        """
        with self.transaction() as connection:
            rows = {
                turn: self._select("provider = ? AND hook = 'sync_turn' AND event = ?", (provider, turn))
                for turn in turns
            }
            # Decided before any row is deleted: the next row would stand first then.
            sent = [
                turn
                for turn, found in rows.items()
                if not found or found[0].attempts or self._is_first(connection, found[0])
            ]
            for found in rows.values():
                self._settle(connection, found)
        return sent

    def drop_session(self, session_id: str) -> int:
        """Delete the rows of a deleted session, and return how many there were.

        Rows that ask a provider to forget rewound turns stay: it still has those turns.
        """
        with self.transaction() as connection:
            rows = self._select("session_id = ?", (session_id,))
            return self._settle(connection, [row for row in rows if not names_rewound_turns(row)])

    # ------------------------------------------------------------------ report

    @property
    def depth(self) -> int:
        """Number of rows that wait, of all providers."""
        query = "SELECT count(*) FROM outbox_rows WHERE state = 'pending'"
        return int(self.database.execute(query).fetchone()[0])

    @property
    def oldest_age(self) -> float | None:
        """Age in seconds of the oldest row that waits; None if none does."""
        query = "SELECT min(created_at) FROM outbox_rows WHERE state = 'pending'"
        oldest = self.database.execute(query).fetchone()[0]
        return None if oldest is None else max(0.0, self._wall() - oldest)

    def backlog(self, provider: str) -> Backlog:
        """Return what waits and what is a dead letter for one provider."""
        found = {row[0]: row[1:] for row in self.database.execute(_BACKLOG, (provider,))}
        depth, oldest, error = found.get("pending", (0, None, None))
        age = None if oldest is None else max(0.0, self._wall() - oldest)
        return Backlog(depth, age, found.get("dead letter", (0,))[0], error or "")

    def refused(self, provider: str) -> int:
        """Return how many rows of this provider a full outbox did not take in the last 30 days."""
        query = "SELECT count FROM outbox_refused WHERE provider = ? AND refused_at >= ?"
        row = self.database.execute(query, (provider, self._wall() - REMEMBERED_S)).fetchone()
        return int(row[0]) if row else 0

    def backlogs(self) -> dict[str, Backlog]:
        """Return the backlog of each provider that has one, also of those that are not active."""
        query = "SELECT provider FROM outbox_rows UNION SELECT provider FROM outbox_refused ORDER BY provider"
        return {row[0]: self.backlog(row[0]) for row in self.database.execute(query)}

    def last_settled(self, provider: str) -> float | None:
        """Return when a row of this provider was last settled, in seconds since the epoch; None if none is remembered."""
        query = "SELECT max(settled_at) FROM outbox_settled WHERE provider = ?"
        found = self.database.execute(query, (provider,)).fetchone()[0]
        return None if found is None else float(found)

    # ----------------------------------------------------------------- private

    def _select(self, condition: str, values: Sequence[Any]) -> list[Row]:
        return [Row(**row) for row in self.database.execute(f"{_ROW} WHERE {condition}", values)]

    def _rows(self, state: RowState, provider: str | None, limit: int | None) -> list[Row]:
        condition = "state = ? AND provider = coalesce(?, provider) ORDER BY number LIMIT ?"
        return self._select(condition, (state, provider, -1 if limit is None else limit))

    def _chosen(self, rows: Sequence[Row], numbers: Sequence[int] | None) -> list[Row]:
        return [row for row in rows if numbers is None or row.number in numbers]

    def _settle(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        now = self._wall()
        connection.executemany(
            _SETTLE, [(row.provider, row.hook, row.event, row.fingerprint, now) for row in rows]
        )
        connection.executemany("DELETE FROM outbox_rows WHERE number = ?", [(row.number,) for row in rows])
        return len(rows)

    def _forget(self, connection: sqlite3.Connection, before: float) -> None:
        connection.execute("DELETE FROM outbox_settled WHERE settled_at < ?", (before,))
        connection.execute("DELETE FROM outbox_refused WHERE refused_at < ?", (before,))

    def _is_first(self, connection: sqlite3.Connection, row: Row) -> bool:
        query = (
            "SELECT min(number) FROM outbox_rows WHERE provider = ? AND session_id = ? AND state = 'pending'"
        )
        return bool(connection.execute(query, (row.provider, row.session_id)).fetchone()[0] == row.number)
