"""Locks that tell which sessions a living process has open: files, or leases on a server that several machines share.

When a process dies, the operating system drops its lock and the lock file stays. So a file without a lock belongs to a
session whose process crashed. A lease ends some time after its process has died or was suspended.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from hermes_core import HermesHome, Memory
from hermes_core.errors import LockTimeout, StorageError
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import ensure_folder, locked
from hermes_core.storage.leases import Lease, drop_expired
from hermes_memory_agent.cancel import Cancel

log = logging.getLogger(__name__)

_PREFIX = "session-"
# Characters of an id in a file name. File systems allow 255 bytes, and prefix and suffix take some of them.
_MAX_NAME = 200

# Wait for another process that compresses the same session: about as long as a summary takes.
COMPRESS_LOCK_TIMEOUT_S = 60.0

# Pause between two looks at a lease that another program has. Each look is a round trip.
_LEASE_POLL_S = 0.25


class SessionLock(Protocol):
    """A lock by which this process shows others that it has a session open. It holds at most one session at a time."""

    def move(self, session_id: str) -> bool:
        """Release the previous session and lock this session; return False if another process has this session open."""

    def release(self) -> None:
        """Release the lock."""

    def crashed(self) -> list[str]:
        """Return the ids of sessions whose process died, each only once."""


def session_lock(memory: Memory) -> SessionLock:
    """Return the lock for a program that talks in one session of this memory at a time."""
    database = memory.shared_database
    return SessionLockFile(memory.home) if database is None else SessionLease(database)


class SessionLockFile:
    """A lock file by which this process shows others that it has a session open. It holds at most one session at a time."""

    def __init__(self, home: HermesHome) -> None:
        self._folder = home.path / "locks"
        self._session_id = ""
        self._lock = contextlib.ExitStack()

    def move(self, session_id: str) -> bool:
        """Release the previous session and lock this session; return False if another process has this session open."""
        if session_id == self._session_id:
            return True
        self.release()
        with contextlib.suppress(LockTimeout):
            self._lock.enter_context(locked(self._path(session_id), timeout=0.0))
            self._session_id = session_id
        return bool(self._session_id)

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._session_id:
            # The file goes first: between an unlock and the removal another process would take it for a crash.
            path = self._path(self._session_id)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        self._lock.close()
        self._session_id = ""

    def crashed(self) -> list[str]:
        """Return the ids of sessions whose process died. Remove their lock files, so each id is returned only once."""
        ensure_folder(self._folder)
        ids = []
        for file in sorted(self._folder.glob(f"{_PREFIX}*.lock")):
            session_id = unquote(file.name.removeprefix(_PREFIX).removesuffix(".lock"))
            if session_id == self._session_id:
                continue
            # If the process lives, it holds the lock: `locked` raises at once, and the id is skipped.
            with contextlib.suppress(LockTimeout), locked(self._path(session_id), timeout=0.0):
                ids.append(session_id)
                file.unlink(missing_ok=True)
        return ids

    def _path(self, session_id: str) -> Path:
        return lock_path(self._folder, _PREFIX, session_id)


class SessionLease:
    """A lease by which this process shows other machines that it has a session open, as `SessionLockFile` does.

    Args:
        seconds: Time after which the session counts as free if this process does not extend the lease.
    """

    def __init__(self, database: Engine, seconds: float = 90.0) -> None:
        self._database, self._seconds = database, seconds
        self._lease: Lease | None = None

    def move(self, session_id: str) -> bool:
        """Release the previous session and take this one; return False if another process has this session open.

        While the server is down nobody can tell, and the problems of each turn say that nothing is stored.
        """
        name = f"{_PREFIX}{session_id}"
        if self._lease is not None and self._lease.name == name and not self._lease.lost:
            return True
        self.release()
        lease = Lease(self._database, name, self._seconds)
        try:
            if not lease.take():
                return False
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
        """Return the ids of sessions whose lease has ended. Each id is returned only once."""
        try:
            return drop_expired(self._database, _PREFIX)
        except StorageError as exc:
            log.warning("sessions of dead processes can't be listed: %s", exc)
            return []


def lock_path(folder: Path, prefix: str, session_id: str) -> Path:
    """Return the path to lock for a session. It is inside `folder`, whatever characters `session_id` contains.

    If the id is too long for a file name, its hash takes its place.
    """
    name = quote(session_id, safe="")
    if len(name) > _MAX_NAME:
        name = hashlib.sha256(name.encode()).hexdigest()
    return folder / f"{prefix}{name}"


@contextlib.contextmanager
def compression_lock(memory: Memory, session_id: str, cancel: Cancel) -> Iterator[Lease | None]:
    """Let only this process compress a session within the block; wait for another one that does.

    With storage that several machines share, yield the lease. Hold it in the transaction that ends the session.

    Raises:
        Cancelled: `cancel` was set during the wait.
        LockTimeout: The wait took more than `COMPRESS_LOCK_TIMEOUT_S` seconds.
    """
    if (database := memory.shared_database) is None:
        with locked_unless_cancelled(lock_path(memory.home.path / "locks", "compress-", session_id), cancel):
            yield None
        return
    lease = Lease(database, f"compress-{session_id}")
    deadline = time.monotonic() + COMPRESS_LOCK_TIMEOUT_S
    while not lease.take():
        if time.monotonic() > deadline:
            raise LockTimeout(f"another program compresses session {session_id!r}", "try again later")
        cancel.wait(_LEASE_POLL_S)
    try:
        yield lease
    finally:
        lease.release()


@contextlib.contextmanager
def locked_unless_cancelled(path: Path, cancel: Cancel) -> Iterator[None]:
    """Hold the lock on `path` within the block; wait for it if another process holds it.

    Raises:
        Cancelled: `cancel` was set during the wait.
        LockTimeout: the wait took more than `COMPRESS_LOCK_TIMEOUT_S` seconds.
    """
    deadline = time.monotonic() + COMPRESS_LOCK_TIMEOUT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path, timeout=0.0))
                break
            except LockTimeout:
                if time.monotonic() > deadline:
                    raise
            # Polled: a wait inside `locked` could not be cancelled.
            cancel.wait(0.05)
        yield
