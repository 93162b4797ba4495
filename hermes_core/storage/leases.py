"""Leases on names in a database that several machines share: one program at a time has a name.

A lease ends some time after its holder stopped to extend it, because a machine may die or be suspended. So a holder that
was suspended may go on when the name is another program's: what must not happen twice is stored in a transaction that
calls `Lease.hold`, which refuses then.
"""

from __future__ import annotations

import logging
import threading
import uuid

from hermes_core.errors import HermesError, LockTimeout
from hermes_core.storage.engine import Connection, Engine

log = logging.getLogger(__name__)

# Seconds after which another program may take a name whose holder has died or is suspended.
LEASE_S = 90.0

# The holder extends its lease this often, so that a lost try or two do not end it.
HEARTBEATS_PER_LEASE = 3

_TABLE = """
    CREATE TABLE session_claims (
        name TEXT COLLATE "C" PRIMARY KEY, holder TEXT COLLATE "C" NOT NULL, until TIMESTAMPTZ NOT NULL
    ) WITH (fillfactor = 50)
"""
_TAKE = """
    INSERT INTO session_claims (name, holder, until) VALUES (:name, :holder, now() + make_interval(secs => :lease))
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
        WHERE session_claims.until < now() OR session_claims.holder = excluded.holder
    RETURNING name
"""
_EXTEND = """
    UPDATE session_claims SET until = now() + make_interval(secs => :lease)
    WHERE name = :name AND holder = :holder RETURNING name
"""
# A row lock, so that the name can't pass to another program before the transaction is committed.
_HOLD = "SELECT name FROM session_claims WHERE name = :name AND holder = :holder FOR UPDATE"
_RELEASE = "DELETE FROM session_claims WHERE name = :name AND holder = :holder"
_EXPIRED = """
    DELETE FROM session_claims WHERE name >= :first AND name < :last AND until < now() RETURNING name
"""


def create_claims(connection: Connection) -> None:
    """Create the table of leases, as a migration."""
    connection.execute(_TABLE)


def drop_expired(database: Engine, prefix: str) -> list[str]:
    """Delete the leases whose holder has died, and return their names without the prefix. Each is returned only once."""
    # As a range, since an index in byte order finds it.
    values = {"first": prefix, "last": prefix[:-1] + chr(ord(prefix[-1]) + 1)}
    return [row["name"].removeprefix(prefix) for row in database.execute(_EXPIRED, values)]


class Lease:
    """The right of this program to a name, extended by a thread of its own until it is released.

    Args:
        seconds: Time after which another program may take the name if this one does not extend the lease.
    """

    def __init__(self, database: Engine, name: str, seconds: float = LEASE_S) -> None:
        self.name = name
        self.lost = False
        """True if another program has taken the name, because this one was suspended for too long."""
        self._database, self._seconds = database, seconds
        self._values = {"name": name, "holder": uuid.uuid4().hex, "lease": seconds}
        self._released = threading.Event()

    def take(self) -> bool:
        """Take the name if no other program has it, and begin to extend the lease."""
        if self._database.retry(self._take, idempotent=True):
            threading.Thread(target=self._extend, name="hermes-session-lease", daemon=True).start()
            return True
        return False

    def hold(self) -> None:
        """Within a transaction, keep the name from passing to another program until the commit.

        Raises:
            LockTimeout: The name is another program's now.
        """
        if self._database.execute(_HOLD, self._values).fetchone() is None:
            self.lost = True
            raise LockTimeout(
                f"another program has taken over {self.name!r}, because this one stood still for more than "
                f"{self._seconds:g} s",
                "nothing was changed: go on with what the other program has stored",
            )

    def release(self) -> None:
        """Give the name back. If the server can't be reached, the lease ends by time."""
        self._released.set()
        try:
            self._database.execute(_RELEASE, self._values)
        except HermesError as exc:
            log.warning("the lease on %r ends by time only: %s", self.name, exc)

    def _take(self) -> bool:
        return self._database.execute(_TAKE, self._values).fetchone() is not None

    def _extend(self) -> None:
        while not self._released.wait(self._seconds / HEARTBEATS_PER_LEASE):
            try:
                if self._database.execute(_EXTEND, self._values).fetchone() is None:
                    self.lost = True
                    return
            except HermesError as exc:
                log.warning("the lease on %r can't be extended: %s", self.name, exc)
