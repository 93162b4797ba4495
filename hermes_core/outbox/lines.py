"""Leases on lines of the outbox: a line holds the rows of one provider and session, which are sent in order.

A worker leases one line after the other, and extends its leases while a provider takes its time. A lease ends some time
after its holder stopped to extend it: it was killed, or is suspended. Then another worker takes the line, and the first one
settles nothing any more.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from collections.abc import Collection, Iterator
from typing import Any

from hermes_core.errors import HermesError, OutboxError
from hermes_core.outbox.rows import Row
from hermes_core.outbox.store import Outbox
from hermes_core.storage import leases
from hermes_core.storage.engine import Parameters
from hermes_core.storage.leases import Holder

log = logging.getLogger(__name__)

# A line whose pause seems to last longer is from before the clock was set back.
LONGEST_PAUSE_S = 3600.0

# Seconds between two looks for a line that another worker has. It may give the line back at any moment.
HELD_POLL_S = 0.5


class LeaseLost(OutboxError):
    """Lease that passed to another worker. Its result is not stored: the other worker sends the row again."""


# The line that waits longest of those that nobody has.
_TAKE = """
    UPDATE outbox_lines SET holder = ?, until = {now} + ? WHERE provider = ? AND session_id = (
        SELECT l.session_id FROM outbox_lines l
        WHERE l.provider = ? AND l.pending > 0 AND (l.ready_at <= {now} OR l.ready_at > {now} + {longest_pause})
            AND (l.holder IN ('', ?) OR l.until NOT BETWEEN {now} AND {now} + {longest}) AND NOT ({skipped}){alone}
        ORDER BY l.ready_at LIMIT 1{skip_locked}
    ) RETURNING session_id, tries, sending
"""
_ALONE = """ AND NOT EXISTS (
    SELECT 1 FROM outbox_lines o WHERE o.provider = ? AND o.holder <> '' AND o.holder <> ?
        AND o.until BETWEEN {now} AND {now} + {longest})
"""
# What a killed worker left empty.
_REMOVE_ABANDONED = """
    DELETE FROM outbox_lines WHERE provider = ? AND holder <> '' AND count = 0
        AND until NOT BETWEEN {now} AND {now} + {longest}
"""
_EXTEND = (
    "UPDATE outbox_lines SET until = {now} + ? WHERE provider = ? AND holder = ? AND {sessions} RETURNING 1"
)
_SEND = """
    UPDATE outbox_lines SET sending = :number, until = {now} + :lease
    WHERE provider = :provider AND session_id = :session AND holder = :holder RETURNING 1
"""
# Locks the row, so that the line can't pass to another worker before the result is committed.
_HOLD = """
    UPDATE outbox_lines SET sending = :number
    WHERE provider = :provider AND session_id = :session AND holder = :holder RETURNING 1
"""
_RELEASE = """
    UPDATE outbox_lines SET holder = '', until = 0, sending = 0, tries = :tries, ready_at = {now} + :delay
    WHERE provider = :provider AND session_id = :session AND holder = :holder
"""
_REMOVE_EMPTY = """
    DELETE FROM outbox_lines WHERE provider = :provider AND session_id = :session AND holder = '' AND count = 0
"""
_NEXT_TIME = """
    SELECT min(ready_at) - {now}, EXISTS (
        SELECT 1 FROM outbox_lines WHERE provider = :provider AND holder <> '' AND holder <> :holder
            AND until BETWEEN {now} AND {now} + {longest}
    ) FROM outbox_lines WHERE provider = :provider AND pending > 0 AND ready_at > {now}
"""

_HOLDERS = """
    SELECT provider, holder, until - {now} AS seconds FROM outbox_lines
    WHERE holder <> '' AND until BETWEEN {now} AND {now} + {longest} ORDER BY provider, until
"""


def delivery_holders(outbox: Outbox) -> dict[str, list[Holder]]:
    """Return the programs that have leases on rows, by provider. Of each, `seconds` is that of its longest lease."""
    found: dict[str, dict[tuple[str, int], Holder]] = {}
    sql = leases.lease_sql(outbox.database, _HOLDERS)
    for row in outbox.database.execute(sql) if outbox.exists else ():
        holder = leases.holder_of(row["holder"], row["seconds"])
        found.setdefault(row["provider"], {})[holder.host, holder.process] = holder
    return {provider: list(holders.values()) for provider, holders in found.items()}


class DeliveryLines:
    """The lines of a provider. One worker has a line at a time.

    If the store is this machine's own, one worker has all lines of the provider: a provider may keep files that only one
    process may write. On storage that several machines share, each worker takes lines that no other worker has.

    The pauses after failed tries stand in the lines, so that all processes keep them.

    Args:
        lease: Seconds after which a line passes to another worker if this one does not extend its lease.
    """

    def __init__(self, outbox: Outbox, provider: str, lease: float | None = None) -> None:
        self._provider = provider
        self._lease = leases.LEASE_S if lease is None else lease
        self._holder = leases.new_holder()
        self._tries: dict[str, int] = {}  # by session of the lines that this worker holds
        self._current, self._taken_at = "", 0.0
        self._dead_row = 0
        self._heartbeat: leases.Heartbeat | None = None
        self.use(outbox)
        self.key = f"{self._database.label} {provider}"
        """Name of the lines, by which a stopped worker of this process says that it still holds some."""

    def use(self, outbox: Outbox) -> None:
        """Go on with another connection to the same outbox, also in the thread that extends the leases."""
        self._outbox, self._database = outbox, outbox.database

    @property
    def held(self) -> bool:
        """True if this worker has a lease."""
        return bool(self._tries)

    def next(self, skip: Collection[str], last_failed: str = "") -> Row | None:
        """Return the next row to send, of a session that is not in `skip`; None if there is none.

        It is of a line that this worker holds, or of another one, which it takes. A line may be held without being the
        current one: its provider had not started, or its result was in doubt.

        Args:
            last_failed: A session whose rows should come after those of all others; "" for none.
        """
        # So that a session whose rows never end does not keep those of other sessions waiting.
        done = {last_failed, self._current if time.monotonic() > self._taken_at + self._lease else ""}
        for own_line in [self._current, *self._tries]:
            if own_line not in self._tries or own_line in skip:
                continue
            if own_line not in done and (row := self._outbox.next(self._provider, own_line)) is not None:
                self._current = own_line
                return row
            self._release({own_line: self._tries[own_line]})
        skip = [*skip, *self._tries]
        taken = self._take([*skip, last_failed]) if last_failed else None
        taken = taken or self._take(skip)
        if taken is None:
            self._current = ""
            return None
        self._current, tries, self._dead_row = taken
        self._tries[self._current], self._taken_at = tries, time.monotonic()
        if self._heartbeat is None:
            self._heartbeat = leases.Heartbeat(self._extend, self._lease, f"{self._provider} rows")
        return self._outbox.next(self._provider, self._current)

    def row_of_dead_holder(self) -> int:
        """Return the number of the row that the last holder of the current line was sending when its lease ended.

        Return 0 if there is none. Only the first call after the line was taken returns the number.
        """
        number, self._dead_row = self._dead_row, 0
        return number

    def note_row(self, row: Row) -> None:
        """Note in its line that the row is sent now, and extend the lease.

        Raises:
            LeaseLost: Another worker has the line.
        """
        # The note has to survive a crash of the process, not of the machine.
        (mine,) = self._change((_SEND, {**self._mine(row.session_id), "number": row.number}))
        self._refuse_lost(row.session_id, mine)

    def note_stop(self) -> None:
        """Note that no row is sent: a stop is no death of the process in the middle of a row."""
        with contextlib.suppress(HermesError, sqlite3.Error):  # the next worker then counts a try too many
            self._change(*((_HOLD, {**self._mine(session), "number": 0}) for session in list(self._tries)))

    @contextlib.contextmanager
    def holding(self, row: Row, *, in_doubt: bool = False) -> Iterator[None]:
        """Make the block a transaction for the result of a row, in which its line can't pass to another worker.

        Args:
            in_doubt: True if the provider may still take the row.

        Raises:
            LeaseLost: Another worker has the line.
        """
        values = {**self._mine(row.session_id), "number": row.number if in_doubt else 0}
        with self._database.transaction() as connection:
            self._refuse_lost(row.session_id, connection.execute(_HOLD, values).fetchall())
            yield

    def tries(self, session_id: str) -> int:
        """Return how often rows of this session failed in a row, in any process."""
        return self._tries.get(session_id, 0)

    def postpone(self, session_id: str, delay: float, tries: int) -> None:
        """Give the line back. Nobody takes it before `delay` seconds have passed; `tries` have failed so far."""
        self._release({session_id: tries}, delay)

    def succeeded(self, session_id: str) -> None:
        """Forget the failed tries of a session."""
        if session_id in self._tries:
            self._tries[session_id] = 0

    def wait(self) -> float | None:
        """Return the seconds until a line may be free for this worker; None if no line waits for its time."""
        values = {"provider": self._provider, "holder": self._holder}
        seconds, has_others = self._database.execute(self._sql(_NEXT_TIME), values).fetchone()
        return min(filter(None, (seconds, HELD_POLL_S if has_others else None)), default=None)

    def release(self) -> None:
        """Give all lines back."""
        try:
            if self._outbox.exists:  # its folder may be deleted: then no lease is left
                self._release(dict(self._tries))
        except (HermesError, sqlite3.Error) as exc:
            log.warning("%s: leases end by time only: %s", self._provider, exc)
        self._tries.clear()
        self._current = ""
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def _take(self, skip: Collection[str]) -> tuple[str, int, int] | None:
        """Take a line; return its session, its failed tries, and the row that a dead holder was sending, 0 for none."""
        provider, holder = self._provider, self._holder
        skipped, sessions = self._database.dialect.among("l.session_id", skip)
        alone, others = ("", ()) if self._database.shared else (_ALONE, (provider, holder))
        sql = _TAKE.replace("{alone}", alone).replace("{skipped}", skipped)
        values = (holder, self._lease, provider, provider, holder, *sessions, *others)
        rows, _ = self._change((sql, values), (_REMOVE_ABANDONED, (provider,)))
        return (rows[0]["session_id"], int(rows[0]["tries"]), int(rows[0]["sending"])) if rows else None

    def _release(self, sessions: dict[str, int], delay: float = 0.0) -> None:
        """Give the lines of sessions back, each with the number of its failed tries."""
        statements: list[tuple[str, Parameters]] = []
        for session, tries in sessions.items():
            self._tries.pop(session, None)
            values = {**self._mine(session), "tries": tries, "delay": delay}
            statements += [(_RELEASE, values), (_REMOVE_EMPTY, values)]
        self._change(*statements)

    def _extend(self) -> bool:
        # Only those: a line that could not be given back in an outage is free when its lease has ended.
        if (sessions := list(self._tries)) and self._outbox.exists:
            condition, values = self._database.dialect.among("session_id", sessions)
            sql = _EXTEND.replace("{sessions}", condition)
            self._change((sql, (self._lease, self._provider, self._holder, *values)))
        return True

    def _change(self, *statements: tuple[str, Parameters]) -> list[list[Any]]:
        """Run statements about leases. After a loss of power nobody holds one, so they need not be on the disk."""
        if not statements:
            return []
        return self._database.batch([(self._sql(sql), values) for sql, values in statements], durable=False)

    def _sql(self, sql: str) -> str:
        return leases.lease_sql(self._database, sql.replace("{longest_pause}", str(LONGEST_PAUSE_S)))

    def _mine(self, session_id: str) -> dict[str, object]:
        return {
            "provider": self._provider,
            "holder": self._holder,
            "lease": self._lease,
            "session": session_id,
        }

    def _refuse_lost(self, session_id: str, mine: list[Any]) -> None:
        if not mine:
            self._tries.pop(session_id, None)
            raise LeaseLost(
                f"{self._provider}: the lease on session {session_id!r} passed to another worker",
                "nothing is to be done: the other worker sends its rows",
            )
