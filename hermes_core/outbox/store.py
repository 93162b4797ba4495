"""The tables of the outbox: calls that a provider has not taken yet, and the ids of calls that it has taken.

The tables are in state.db, so that a turn and its row are stored in one commit. A row stays until the provider has
taken it or a person has dropped it. Its id is remembered for 30 days more, so that the same call is not stored and
sent again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from hermes_core.errors import OutboxFull
from hermes_core.outbox.rows import NewRow, Row, RowState, asks_to_forget
from hermes_core.safety.terminal import counted
from hermes_core.storage.engine import Connection, Engine, Statement
from hermes_core.storage.tables import Column, Index, Table, Trigger, integer, number, real, text

MAX_ROWS = 100_000
MAX_BYTES = 256 * 1024 * 1024

REMEMBERED_S = 30 * 86400.0
"""Seconds for which the id of a delivered or dropped row is kept."""

ANY_ACCOUNT = "*"
"""Fingerprint of a row that a person retried: it may be sent to any account."""

UNKNOWN_ACCOUNT = "?"
"""Fingerprint of a row that was stored while its provider was not loaded: its account and its hooks were not known."""


class Backlog(Struct, frozen=True):
    """Counts of the rows of one provider: pending rows, the age of the oldest in seconds, and dead letters.

    `error` is the error of the oldest pending row of which a try failed; "" if none failed.
    """

    depth: int
    oldest_age: float | None
    dead_letters: int
    error: str = ""


# Counting a hundred thousand rows in each turn would be too slow. On a server, the row lock of the line makes a new row
# and the removal of an empty line exclude each other.
_LINE_TRIGGERS = (
    Trigger(
        "outbox_row_added",
        "INSERT",
        """
        INSERT INTO outbox_lines (provider, session_id, count, bytes, pending, ready_at)
            VALUES (NEW.provider, NEW.session_id, 1, length(NEW.body), CASE NEW.state WHEN 'pending' THEN 1 ELSE 0 END, {now})
            ON CONFLICT (provider, session_id) DO UPDATE SET count = outbox_lines.count + 1,
                bytes = outbox_lines.bytes + excluded.bytes, pending = outbox_lines.pending + excluded.pending;
        """,
    ),
    Trigger(
        "outbox_row_removed",
        "DELETE",
        """
        UPDATE outbox_lines SET count = count - 1, bytes = bytes - length(OLD.body),
            pending = pending - CASE OLD.state WHEN 'pending' THEN 1 ELSE 0 END
            WHERE provider = OLD.provider AND session_id = OLD.session_id;
        DELETE FROM outbox_lines
            WHERE provider = OLD.provider AND session_id = OLD.session_id AND count = 0 AND holder = '';
        """,
    ),
    Trigger(
        "outbox_row_changed",
        "UPDATE OF state",
        """
        UPDATE outbox_lines SET pending = pending + CASE NEW.state WHEN 'pending' THEN 1 ELSE 0 END
            - CASE OLD.state WHEN 'pending' THEN 1 ELSE 0 END
            WHERE provider = NEW.provider AND session_id = NEW.session_id;
        """,
    ),
)

OUTBOX_TABLES = (
    Table(
        "outbox_rows",
        (
            *(number("number"), text("provider"), text("session_id"), text("hook"), text("event")),
            Column("state", "text", "'pending'", check="state IN ('pending', 'dead letter')"),
            *(
                integer("attempts", 0),
                text("error", ""),
                real("created_at"),
                text("fingerprint"),
                text("body"),
            ),
        ),
        (
            Index("outbox_rows_in_order", "provider, state, number"),
            # With this index, deleting or rewinding a session does not read the pending rows of all other sessions.
            Index("outbox_rows_by_session", "session_id, provider, state, number"),
        ),
        unique=("provider", "hook", "event"),
        triggers=_LINE_TRIGGERS,
    ),
    Table(
        "outbox_settled",
        (text("provider"), text("hook"), text("event"), text("fingerprint"), real("settled_at")),
        (
            Index("outbox_settled_by_age", "settled_at"),
            # A rewind asks which providers had a turn, whatever their names.
            Index("outbox_settled_by_event", "event"),
            Index("outbox_settled_by_provider", "provider, settled_at"),
        ),
        key=("provider", "hook", "event"),
    ),
    Table("outbox_refused", (text("provider", key=True), integer("count"), real("refused_at"))),
    # `pending` and `count` differ by the dead letters, which no worker sends. `sending` is the number of the row that
    # the holder sends at this moment, so that the next one knows of which row the holder may have died.
    Table(
        "outbox_lines",
        (
            *(text("provider"), text("session_id"), integer("count"), integer("bytes"), integer("pending")),
            *(
                real("ready_at", 0),
                text("holder", ""),
                real("until", 0),
                integer("sending", 0),
                integer("tries", 0),
            ),
        ),
        (
            Index("outbox_lines_by_time", "provider, ready_at", where="pending > 0"),
            Index("outbox_lines_held", "provider", where="holder <> ''"),
        ),
        key=("provider", "session_id"),
        fill=50,
    ),
)

# Of the lines: one row of totals would let all turns of all sessions on a server wait for one another.
_TOTALS = """(
    SELECT CAST(coalesce(sum(count), 0) AS BIGINT) AS count, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes
    FROM outbox_lines
) totals"""

_ROW = (
    "SELECT number, provider, session_id, hook, event, state, attempts, error, created_at, fingerprint, body"
    " FROM outbox_rows"
)
"""Columns by name, because a later version that uses the same file may have added a column."""

_SETTLE = """
    INSERT INTO outbox_settled (provider, hook, event, fingerprint, settled_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (provider, hook, event)
        DO UPDATE SET fingerprint = excluded.fingerprint, settled_at = excluded.settled_at
"""

# One statement, because each statement lets another thread take the interpreter, for 5 ms if that thread computes.
_KNOWN_AND_TOTALS = f"""
    SELECT EXISTS (SELECT 1 FROM outbox_rows WHERE provider = ? AND hook = ? AND event = ?)
        OR EXISTS (SELECT 1 FROM outbox_settled WHERE provider = ? AND hook = ? AND event = ?), count, bytes
    FROM {_TOTALS}
"""  # noqa: S608  our own tables

# A row that is not known yet and has room, in one statement.
_PUT = f"""
    INSERT INTO outbox_rows (provider, session_id, hook, event, created_at, fingerprint, body)
    SELECT ?, ?, ?, ?, ?, ?, ? FROM {_TOTALS} WHERE count < ? AND bytes + ? <= ?
        AND NOT EXISTS (SELECT 1 FROM outbox_rows WHERE provider = ? AND hook = ? AND event = ?)
        AND NOT EXISTS (SELECT 1 FROM outbox_settled WHERE provider = ? AND hook = ? AND event = ?)
    RETURNING number
"""  # noqa: S608  our own tables

_BACKLOG = """
    SELECT state, count(*), (
        SELECT created_at FROM outbox_rows WHERE provider = r.provider AND state = r.state ORDER BY number LIMIT 1
    ), (
        SELECT error FROM outbox_rows
        WHERE provider = r.provider AND state = r.state AND error <> '' ORDER BY number LIMIT 1
    ) FROM outbox_rows AS r WHERE provider = ? GROUP BY provider, state
"""


class Outbox:
    """The calls that providers have not taken yet, in one database. Any process may add some.

    It promises: a row that `put` has stored is on the disk with the commit of the transaction that stores its event, and
    stays until `delivered`, or until a person drops it. An event is stored once for each provider, and its id is known for
    30 days after it was settled. When the outbox is full, the new row is refused, and no older one is deleted.
    `lines` says who may send the rows.

    `wall` returns the time of a new row in seconds since the epoch. `on_row` is called with the name of the provider
    after the commit of a new row. All methods raise `DatabaseUnavailable` or `DatabaseCorrupt` if the file can't be
    used.
    """

    def __init__(
        self,
        database: Engine,
        *,
        wall: Callable[[], float] | None = None,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.database = database
        self.on_row: Callable[[str], None] = lambda _provider: None
        self.held_back = ""
        """The reason why no row may be sent: older rows, which must be sent first, can't be read. "" if rows may be sent."""
        self._wall = wall or database.now
        self._looks = threading.local()
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    @property
    def exists(self) -> bool:
        """False if nothing was ever stored."""
        return self.database.exists

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # --------------------------------------------------------------------- add

    def put(
        self,
        provider: str,
        row: NewRow,
        fingerprint: str = "",
        *,
        bounded: bool = True,
    ) -> bool:
        """Store a row; it is on disk when the transaction commits.

        Return False if the id of its event is already known.

        Args:
            provider: Name of the provider to which the row will be delivered.
            fingerprint: Fingerprint of the provider's account.
            bounded: False to store the row even if the outbox is full.

        Raises:
            OutboxFull: The outbox is full. The row is not stored, and no older row is deleted for it.
        """
        key = (provider, row.hook, row.event)
        with self.database.transaction() as connection:
            statement = self.put_statement(provider, row, fingerprint, bounded=bounded)
            if connection.execute(*statement).fetchall():
                # After the commit: a worker that is woken before would not see the row, and would sleep for seconds.
                self.database.after_commit(partial(self.on_row, provider))
                return True
            known, count, size = connection.execute(_KNOWN_AND_TOTALS, key + key).fetchone()
            if known:
                return False
            connection.execute(
                "INSERT INTO outbox_refused VALUES (?, 1, ?) ON CONFLICT (provider)"
                " DO UPDATE SET count = outbox_refused.count + 1, refused_at = excluded.refused_at",
                (provider, self._wall()),
            )
        # Raised here, so that the count of refused rows is committed.
        raise OutboxFull(
            f"the outbox in {self.database.label!r} is full: {counted(count, 'write')}, {size:,} bytes wait for a provider",
            "see what is wrong with `hermes-memory providers`, then `hermes-memory outbox list`; this write was not accepted",
        )

    def put_statement(
        self,
        provider: str,
        row: NewRow,
        fingerprint: str = "",
        *,
        bounded: bool = True,
    ) -> Statement:
        """Return the statement that stores a row as `put` does. It returns nothing if the row is known or has no room.

        Whoever runs it calls `on_row` after the commit.
        """
        key = (provider, row.hook, row.event)
        values = (provider, row.session_id, row.hook, row.event, self._wall(), fingerprint, row.body)
        most = (self._max_rows, len(row.body), self._max_bytes) if bounded else (2**62, 0, 2**62)
        return _PUT, (*values, *most, *key, *key)

    def knows(self, provider: str, hook: str, event: str) -> bool:
        """Return True if a row with this event id is stored, or was delivered or dropped in the last 30 days."""
        key = (provider, hook, event)
        return bool(self.database.execute(_KNOWN_AND_TOTALS, key + key).fetchone()[0])

    # ----------------------------------------------------------------- deliver

    def next(
        self, provider: str, session_id: str | None = None, *, skip_sessions: Iterable[str] = ()
    ) -> Row | None:
        """Return the oldest pending row of `provider`; None if there is none.

        Args:
            session_id: Only a row of this session, if it is given.
            skip_sessions: Sessions whose rows are passed over.
        """
        condition, values = self.database.dialect.among("session_id", skip_sessions)
        condition = f"NOT ({condition})"
        if session_id is not None:
            condition, values = "session_id = ?", (session_id,)
        rows = self._select(
            f"provider = ? AND state = 'pending' AND {condition} ORDER BY number LIMIT 1", (provider, *values)
        )
        return rows[0] if rows else None

    def delivered(self, row: Row) -> None:
        """Delete a row that the provider took, and remember its id."""
        with self.database.transaction() as connection:
            self._settle(connection, [row])
            self._forget(connection, self._wall() - REMEMBERED_S)

    def failed(self, row: Row, error: str, *, counted: bool) -> None:
        """Store the error of a failed try with the row. If `counted`, also add one to its `attempts`."""
        statement = "UPDATE outbox_rows SET attempts = attempts + ?, error = ? WHERE number = ?"
        with self.database.transaction() as connection:
            connection.execute(statement, (int(counted), error, row.number))

    def bury(self, row: Row, error: str) -> None:
        """Make the row a dead letter: it waits for a person, and later rows of its session are sent."""
        statement = "UPDATE outbox_rows SET state = 'dead letter', attempts = attempts + 1, error = ? WHERE number = ?"
        with self.database.transaction() as connection:
            connection.execute(statement, (error, row.number))

    def waits(self, provider: str, session_id: str | None = None) -> bool:
        """Return True if a row of this provider is pending; if `session_id` is given, a row of this session."""
        of_session = "" if session_id is None else "AND session_id = :session"
        query = (
            f"SELECT 1 FROM outbox_rows WHERE provider = :provider AND state = 'pending' {of_session} LIMIT 1"  # noqa: S608
        )
        values = {"provider": provider, "session": session_id}
        return self.database.execute(query, values).fetchone() is not None

    # ------------------------------------------------------------------ people

    def pending(self, provider: str | None = None, limit: int | None = None, *, after: int = 0) -> list[Row]:
        """Return at most `limit` pending rows with a number above `after`, oldest first."""
        return self._rows("pending", provider, limit, after)

    def dead_letters(
        self, provider: str | None = None, limit: int | None = None, *, after: int = 0
    ) -> list[Row]:
        """Return at most `limit` dead letters with a number above `after`, oldest first. Their `error` is the reason."""
        return self._rows("dead letter", provider, limit, after)

    def requests_to_forget(self) -> list[Row]:
        """Return the rows that ask a provider to forget a user, oldest first, dead letters too."""
        return self._select("hook = ? ORDER BY number", ("forget_user",))

    def rows(self, numbers: Iterable[int]) -> list[Row]:
        """Return the rows with these numbers, as far as they exist, each once."""
        return [row for number in dict.fromkeys(numbers) for row in self._select("number = ?", (number,))]

    def retry(self, numbers: Sequence[int] | None = None) -> int:
        """Make dead letters pending again, for the account in use now. Return the number of these rows.

        Args:
            numbers: Numbers of the rows; default: all dead letters.
        """
        with self.database.transaction() as connection:
            rows = self.dead_letters() if numbers is None else self.rows(numbers)
            rows = [row for row in rows if row.state == "dead letter"]
            connection.executemany(
                "UPDATE outbox_rows SET state = 'pending', attempts = 0, error = '', fingerprint = ? WHERE number = ?",
                [(ANY_ACCOUNT, row.number) for row in rows],
            )
            for provider in {row.provider for row in rows}:
                self.database.after_commit(partial(self.on_row, provider))
            return len(rows)

    def drop(self, numbers: Sequence[int] | None = None) -> int:
        """Delete dead letters or pending rows without sending them, and return their number.

        A row that is being sent at this moment may still arrive.

        Args:
            numbers: Numbers of the rows; default: all dead letters.
        """
        with self.database.transaction() as connection:
            return self._settle(connection, self.dead_letters() if numbers is None else self.rows(numbers))

    # --------------------------------------------------------- rewind and delete

    def providers_of(self, turns: Iterable[str]) -> dict[str, str]:
        """Return the providers for which one of these turns is pending or was delivered in the last 30 days.

        The value for each provider name is the fingerprint of the account for which the turn was stored.
        """
        found: dict[str, str] = {}
        for turn in turns:
            for table in ("outbox_settled", "outbox_rows"):
                query = f"SELECT provider, fingerprint FROM {table} WHERE hook = 'sync_turn' AND event = ?"  # noqa: S608
                found.update((row[0], row[1]) for row in self.database.execute(query, (turn,)))
        return found

    def drop_turns(self, provider: str, turns: Iterable[str]) -> list[str]:
        """Delete the rows of rewound turns that were not sent yet, and return the turns that the provider may have.

        The provider may have a turn if its row is not pending any more, if the row was tried before, or if it is the
        first row of its session, because some process may be sending it now.
        """
        with self.database.transaction() as connection:
            names = list(turns)
            condition = "provider = ? AND hook = 'sync_turn' AND event = ?"
            self._lock_lines(
                connection, [row for turn in names for row in self._select(condition, (provider, turn))]
            )
            rows = {turn: self._select(condition, (provider, turn)) for turn in names}
            # Decided before any row is deleted, because after that another row is the first of its session.
            sent = [
                turn
                for turn, found in rows.items()
                if not found or found[0].attempts or self._is_first(connection, found[0])
            ]
            self._settle(connection, [row for found in rows.values() for row in found])
        return sent

    def drop_session(self, session_id: str) -> int:
        """Delete the rows of a deleted session, and return their number.

        Rows that ask a provider to forget a user or rewound turns stay, because the provider still has those turns.
        """
        with self.database.transaction() as connection:
            rows = self._select("session_id = ?", (session_id,))
            return self._settle(connection, [row for row in rows if not asks_to_forget(row)])

    # ------------------------------------------------------------------ report

    @property
    def depth(self) -> int:
        """Number of rows that wait, of all providers."""
        query = "SELECT count(*) FROM outbox_rows WHERE state = 'pending'"
        return int(self.database.execute(query).fetchone()[0])

    def backlog(self, provider: str) -> Backlog:
        """Return the counts of pending rows and dead letters of one provider."""
        looks = getattr(self._looks, "rows", None) or {}
        (rows,) = looks[provider]() if provider in looks else self.database.read([(_BACKLOG, (provider,))])
        by_state = {row[0]: row[1:] for row in rows}
        depth, oldest, error = by_state.get("pending", (0, None, None))
        age = None if oldest is None else max(0.0, self._wall() - oldest)
        return Backlog(depth, age, by_state.get("dead letter", (0,))[0], error or "")

    @contextlib.contextmanager
    def reading(self, providers: Iterable[str]) -> Iterator[None]:
        """Let `backlog` look at these providers once in the block, on a server together with the first other read."""
        if getattr(self._looks, "rows", None) is not None:
            yield
            return
        self._looks.rows = {name: self.database.ask([(_BACKLOG, (name,))]) for name in providers}
        try:
            yield
        finally:
            self._looks.rows = None

    def refused(self, provider: str) -> int:
        """Return the number of rows for this provider that a full outbox refused in the last 30 days."""
        query = "SELECT count FROM outbox_refused WHERE provider = ? AND refused_at >= ?"
        row = self.database.execute(query, (provider, self._wall() - REMEMBERED_S)).fetchone()
        return int(row[0]) if row else 0

    def backlogs(self) -> dict[str, Backlog]:
        """Return the backlog of each provider that has rows, or for which a full outbox refused rows.

        Providers that are not in use are included.
        """
        query = "SELECT provider FROM outbox_rows UNION SELECT provider FROM outbox_refused ORDER BY provider"
        return {row[0]: self.backlog(row[0]) for row in self.database.execute(query)}

    def last_settled(self, provider: str) -> float | None:
        """Return the time at which a row of this provider was last delivered or dropped, in seconds since the epoch.

        Return None if no such row is remembered.
        """
        query = "SELECT max(settled_at) FROM outbox_settled WHERE provider = ?"
        found = self.database.execute(query, (provider,)).fetchone()[0]
        return None if found is None else float(found)

    # ----------------------------------------------------------------- private

    def _select(self, condition: str, values: Sequence[Any]) -> list[Row]:
        return [Row(**row) for row in self.database.execute(f"{_ROW} WHERE {condition}", values)]

    def _rows(self, state: RowState, provider: str | None, limit: int | None, after: int) -> list[Row]:
        condition = "state = ? AND provider = coalesce(?, provider) AND number > ? ORDER BY number LIMIT ?"
        return self._select(condition, (state, provider, after, 2**62 if limit is None else limit))

    def _settle(self, connection: Connection, rows: Sequence[Row]) -> int:
        self._lock_lines(connection, rows)
        now = self._wall()
        connection.executemany(
            _SETTLE, [(row.provider, row.hook, row.event, row.fingerprint, now) for row in rows]
        )
        connection.executemany("DELETE FROM outbox_rows WHERE number = ?", [(row.number,) for row in rows])
        return len(rows)

    def _lock_lines(self, connection: Connection, rows: Iterable[Row]) -> None:
        """Let the workers wait that send rows of these sessions: each locks the line of a session before its rows."""
        if lock := self.database.dialect.row_lock:
            connection.executemany(
                f"SELECT 1 FROM outbox_lines WHERE provider = ? AND session_id = ?{lock}",  # noqa: S608  our own words
                sorted({(row.provider, row.session_id) for row in rows}),
            )

    def _forget(self, connection: Connection, before: float) -> None:
        connection.execute("DELETE FROM outbox_settled WHERE settled_at < ?", (before,))
        connection.execute("DELETE FROM outbox_refused WHERE refused_at < ?", (before,))

    def _is_first(self, connection: Connection, row: Row) -> bool:
        query = (
            "SELECT min(number) FROM outbox_rows WHERE provider = ? AND session_id = ? AND state = 'pending'"
        )
        return bool(connection.execute(query, (row.provider, row.session_id)).fetchone()[0] == row.number)
