"""Leases on names: one program at a time has a name, on one machine or on several.

A lease ends some time after its holder stopped to extend it, because a program may be killed or suspended. So a holder that
was suspended may go on when the name is another program's: what must not happen twice is stored in a transaction that
calls `Lease.hold`, which refuses then.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from typing import NamedTuple

from hermes_core.errors import HermesError, LockTimeout
from hermes_core.storage.engine import Engine

log = logging.getLogger(__name__)

# Seconds after which another program may take a name whose holder was killed or is suspended.
LEASE_S = 10.0

# A lease that seems to last longer is from before the clock was set back. Its holder, if it lives, extends it soon.
LONGEST_LEASE_S = 60.0

SESSION_PREFIX = "session-"
"""Beginning of the names of leases on sessions that a program has open."""

COMPRESSION_PREFIX = "compress-"
"""Beginning of the names of leases on sessions that a program compresses."""

# The holder extends its lease this often, so that a lost try or two do not end it.
HEARTBEATS_PER_LEASE = 4


class Holder(NamedTuple):
    """A program that holds a lease.

    Attributes:
        host: Name of its machine.
        process: Its id on that machine.
        seconds: Seconds until the lease ends, if the program does not extend it.
    """

    host: str
    process: int
    seconds: float

    @property
    def is_own(self) -> bool:
        """True if it is this process."""
        return self.process == os.getpid() and self.host == socket.gethostname()

    @property
    def has_ended(self) -> bool:
        """True if the process is known to have ended. Of other machines, and on Windows, it is not known."""
        if self.host != socket.gethostname() or os.name == "nt":  # there, signal 0 would end the process
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:  # the process of another user
            return False
        return False

    def __str__(self) -> str:
        left = f"{max(self.seconds, 0.0):.0f} s"
        if self.has_ended:
            return f"waits for the lease of process {self.process}, which has ended, at most {left}"
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"process {self.process}{where} has the lease, for {left} more unless it extends it"


def new_holder() -> str:
    """Return a name for a holder of leases in this process, with which `holder_of` finds the process."""
    return f"{uuid.uuid4().hex} {os.getpid()} {socket.gethostname()}"


def holder_of(holder: str, seconds: float) -> Holder:
    """Return the program that `new_holder` named; `seconds` is the time until its lease ends."""
    _, process, host = holder.split(" ", 2)
    return Holder(host, int(process), seconds)


class Heartbeat:
    """Thread that extends leases until it is stopped, also while the program waits for something else.

    Args:
        extend: Extends the leases; returns False if there is nothing to extend any more.
        seconds: Seconds for which a lease is taken.
        what: Name of what is leased, for the thread and for messages.
    """

    def __init__(self, extend: Callable[[], bool], seconds: float, what: str) -> None:
        self._extend, self._seconds, self._what = extend, seconds, what
        self._stopped = threading.Event()
        try:
            threading.Thread(target=self._run, name=f"hermes-lease {what}", daemon=True).start()
        except RuntimeError as exc:  # the system has no thread left, or the interpreter is ending
            log.warning("the lease on %s is not extended: no thread can be started (%s)", what, exc)

    def stop(self) -> None:
        """Let the thread end. A heartbeat that has begun is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        warned = False
        while not self._stopped.wait(self._seconds / HEARTBEATS_PER_LEASE):
            try:
                if not self._extend():
                    return
                warned = False
            except HermesError as exc:
                if not (warned or self._stopped.is_set()):
                    log.warning("the lease on %s can't be extended: %s", self._what, exc)
                warned = True


_TAKE = """
    INSERT INTO leases (name, holder, until) VALUES (:name, :holder, {now} + :seconds)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
        WHERE leases.until NOT BETWEEN {now} AND {now} + {longest} OR leases.holder = excluded.holder
    RETURNING name
"""
_EXTEND = "UPDATE leases SET until = {now} + :seconds WHERE name = :name AND holder = :holder RETURNING name"
# A row lock, so that the name can't pass to another program before the transaction is committed.
_HOLD = "SELECT name FROM leases WHERE name = :name AND holder = :holder{row_lock}"
_RELEASE = "DELETE FROM leases WHERE name = :name AND holder = :holder RETURNING name"
# As a range, since an index in byte order finds it.
_PAST = "FROM leases WHERE name >= :first AND name < :last AND until NOT BETWEEN {now} AND {now} + {longest}"
_HOLDERS = """
    SELECT name, holder, until - {now} AS seconds FROM leases WHERE until BETWEEN {now} AND {now} + {longest} ORDER BY name
"""


def lease_sql(database: Engine, sql: str) -> str:
    """Return a statement about leases with the words of the database, and with the longest time of a lease."""
    dialect = database.dialect
    return sql.format(
        now=dialect.now,
        longest=LONGEST_LEASE_S,
        row_lock=dialect.row_lock,
        skip_locked=dialect.skip_locked,
    )


def drop_expired(database: Engine, prefix: str) -> list[str]:
    """Delete the leases whose holder has died, and return their names without the prefix. Each is returned only once."""
    values = {"first": prefix, "last": prefix[:-1] + chr(ord(prefix[-1]) + 1)}
    past = lease_sql(database, _PAST)
    if database.execute(f"SELECT 1 {past} LIMIT 1", values).fetchone() is None:
        return []  # as nearly always, and without the lock of a writer
    (rows,) = database.batch([(f"DELETE {past} RETURNING name", values)], durable=False)
    return [row["name"].removeprefix(prefix) for row in rows]


def lease_holders(database: Engine) -> dict[str, Holder]:
    """Return who holds a lease on a name, by name."""
    rows = database.execute(lease_sql(database, _HOLDERS))
    return {row["name"]: holder_of(row["holder"], row["seconds"]) for row in rows}


class Lease:
    """The right of this program to a name, extended by a thread of its own until it is released.

    Args:
        seconds: Time after which another program may take the name if this one does not extend the lease.
    """

    def __init__(self, database: Engine, name: str, seconds: float | None = None) -> None:
        self.name = name
        self.lost = False
        """True if another program has taken the name, because this one was suspended for too long."""
        self._database, self._seconds = database, LEASE_S if seconds is None else seconds
        self._values = {"name": name, "holder": new_holder(), "seconds": self._seconds}
        self._heartbeat: Heartbeat | None = None

    def take(self) -> bool:
        """Take the name if no other program has it, and begin to extend the lease."""
        if not self._change(_TAKE):
            return False
        self._heartbeat = Heartbeat(self._extend, self._seconds, self.name)
        return True

    def hold(self) -> None:
        """Within a transaction, keep the name from passing to another program until the commit.

        Raises:
            LockTimeout: The name is another program's now.
        """
        if self._database.execute(lease_sql(self._database, _HOLD), self._values).fetchone() is None:
            self.lost = True
            raise LockTimeout(
                f"another program has taken over {self.name!r}, because this one stood still for more than "
                f"{self._seconds:g} s",
                "nothing was changed: go on with what the other program has stored",
            )

    def release(self) -> None:
        """Give the name back. If the database can't be reached, the lease ends by time."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        try:
            self._change(_RELEASE)
        except HermesError as exc:
            log.warning("the lease on %r ends by time only: %s", self.name, exc)

    def _extend(self) -> bool:
        self.lost = not self._change(_EXTEND)
        return not self.lost

    def _change(self, sql: str) -> bool:
        """Run one of the statements. After a loss of power no lease has a holder, so it need not be on the disk."""
        (rows,) = self._database.batch([(lease_sql(self._database, sql), self._values)], durable=False)
        return bool(rows)
