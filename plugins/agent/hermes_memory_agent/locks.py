"""Leases that tell which sessions a living process has open, and let one process at a time compress a session.

A lease ends some time after its process was killed or suspended, so a lease of the past belongs to a session that crashed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator

from hermes_core import Memory
from hermes_core.errors import LockTimeout, StorageError
from hermes_core.storage.engine import Engine
from hermes_core.storage.leases import (
    COMPRESSION_PREFIX,
    LEASE_S,
    SESSION_PREFIX,
    Lease,
    drop_expired,
    lease_holders,
)
from hermes_memory_agent.cancel import Cancel

log = logging.getLogger(__name__)

# Wait for another process that compresses the same session: about as long as a summary takes.
COMPRESS_LOCK_TIMEOUT_S = 60.0

# Pause between two looks at a lease that another process has. Each look is a round trip.
_LEASE_POLL_S = 0.25


class SessionLock:
    """A lease by which this process shows others that it has a session open. It has at most one session at a time.

    Args:
        seconds: Time after which the session counts as free if this process does not extend the lease.
    """

    def __init__(self, database: Engine, seconds: float = LEASE_S) -> None:
        self._database, self._seconds = database, seconds
        self._lease: Lease | None = None
        self._next_look = 0.0

    def move(self, session_id: str) -> bool:
        """Release the previous session and take this one; return False if another process has this session open.

        While the database can't be used nobody can tell, and the problems of each turn say that nothing is stored.
        """
        name = f"{SESSION_PREFIX}{session_id}"
        if self._lease is not None and self._lease.name == name and not self._lease.lost:
            return True
        self.release()
        lease = Lease(self._database, name, self._seconds)
        try:
            if not lease.take():
                holder = lease_holders(self._database).get(name)
                return (
                    holder is not None and holder.has_ended
                )  # then nobody speaks there, and a later call takes it
        except StorageError as exc:
            log.warning("session %s is not locked: %s", session_id, exc)
            return True
        self._lease = lease
        return True

    def release(self) -> None:
        """Give the session back."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def crashed(self) -> list[str]:
        """Return the ids of sessions whose lease has ended. Each id is returned only once.

        The first call looks, and one that comes a lease later: a process that was killed just before the first one
        still has its lease then.
        """
        now = time.monotonic()
        if now < self._next_look:
            return []
        self._next_look = math.inf if self._next_look else now + self._seconds
        try:
            expired = drop_expired(self._database, SESSION_PREFIX)
        except StorageError as exc:
            log.warning("sessions of dead processes can't be listed: %s", exc)
            return []
        lease = self._lease
        if lease is None or (own := lease.name.removeprefix(SESSION_PREFIX)) not in expired:
            return expired
        lease.lost = True  # this process was suspended; the next `move` takes the session again
        return [session_id for session_id in expired if session_id != own]


@contextlib.contextmanager
def compression_lock(memory: Memory, session_id: str, cancel: Cancel) -> Iterator[Lease]:
    """Let only this process compress a session within the block; wait for another one that does.

    Yield the lease. Hold it in the transaction that ends the session.

    Raises:
        Cancelled: `cancel` was set during the wait.
        LockTimeout: The wait took more than `COMPRESS_LOCK_TIMEOUT_S` seconds.
    """
    lease = Lease(memory.sessions.database, f"{COMPRESSION_PREFIX}{session_id}")
    deadline = time.monotonic() + COMPRESS_LOCK_TIMEOUT_S
    while not lease.take():
        if time.monotonic() > deadline:
            raise LockTimeout(f"another process compresses session {session_id!r}", "try again later")
        cancel.wait(_LEASE_POLL_S)
    try:
        yield lease
    finally:
        lease.release()
