"""Rights to send rows of the outbox: one process for a provider, or leases on sessions.

In a home with files, one process at a time delivers to a provider. It holds a lock file, which the system releases when
the process dies. On a server that several machines share there is no such lock, so a worker takes a lease on a line: the
rows of one provider and session. A lease ends some time after its holder stopped to extend it, and a worker whose lease
has passed to another one settles nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from filelock import FileLock, Timeout

from hermes_core.errors import HermesError, OutboxError
from hermes_core.outbox.rows import Row
from hermes_core.outbox.store import Outbox
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder

log = logging.getLogger(__name__)

# Seconds after which a line passes to another worker if its holder has died or is suspended. The longest call of a
# provider may take more: the holder extends its leases meanwhile.
LEASE_S = 90.0

# The holder extends its leases this often, so that a lost try or two do not end them.
HEARTBEATS_PER_LEASE = 3


class LeaseLost(OutboxError):
    """Lease that passed to another worker. Its result is not stored: the other worker sends the row again."""


class Lines(Protocol):
    """The right to send the rows of one provider.

    Attributes:
        key: Name of the right, by which a stopped worker of this process says that it still holds it.
        shared: True if other workers may send rows of other sessions at the same time.
    """

    key: str
    shared: bool

    @property
    def held(self) -> bool:
        """True if this worker may send rows."""

    def acquire(self) -> bool:
        """Take the right to send, if no other worker has it."""

    def next(self, skip: Collection[str], last_failed: str = "") -> Row | None:
        """Return the next row to send, of a session that is not in `skip`; None if there is none.

        Args:
            last_failed: A session whose rows should come after those of all others; "" for none.
        """

    def row_of_dead_holder(self) -> int:
        """Return the number of the row that the last holder was sending when it died; 0 if there is none."""

    def note_row(self, row: Row | None) -> None:
        """Note the row that is being sent now; None for none. Raises `LeaseLost` if this worker may no longer send it."""

    def holding(self, row: Row) -> contextlib.AbstractContextManager[object]:
        """Return a transaction for the result of a row. It raises `LeaseLost` if the row is another worker's now."""

    def tries(self, session_id: str) -> int:
        """Return how often rows of this session failed in a row."""

    def postpone(self, session_id: str, delay: float, tries: int) -> None:
        """Let the rows of a session wait for `delay` seconds. `tries` is the number of failed tries so far."""

    def succeeded(self, session_id: str) -> None:
        """Forget the failed tries of a session."""

    def wait(self) -> float | None:
        """Return the seconds until a postponed session may be tried again; None if there is none."""

    def use(self, outbox: Outbox) -> None:
        """Go on with another connection to the same outbox."""

    def release(self) -> None:
        """Let other workers send rows."""


class ProviderLines:
    """The rows of a provider in a home with files. The holder of the lock file sends the rows of all sessions."""

    shared = False

    def __init__(self, outbox: Outbox, folder: Path, provider: str, clock: Callable[[], float]) -> None:
        self._outbox, self._provider, self._clock = outbox, provider, clock
        self._lock = DeliveryLock.of(folder, provider)
        self._retry_at: dict[str, tuple[float, int]] = {}
        self.key = str(self._lock.path)

    @property
    def held(self) -> bool:
        """True if this process has the lock."""
        return self._lock.held

    def acquire(self) -> bool:
        """Take the lock if no other process has it."""
        return self._lock.acquire()

    def next(self, skip: Collection[str], last_failed: str = "") -> Row | None:
        """Return the oldest row of a session that may be sent now."""
        now = self._clock()
        waiting = [session for session, (retry_at, _) in self._retry_at.items() if retry_at > now]
        skipped = {*waiting, *skip}
        if last_failed and last_failed not in skipped:
            other = self._outbox.next(self._provider, [*skipped, last_failed])
            if other is not None:
                return other
        return self._outbox.next(self._provider, skipped)

    def row_of_dead_holder(self) -> int:
        """Return the number of the row that the last holder of the lock was sending when it died."""
        return self._lock.row_of_dead_holder()

    def note_row(self, row: Row | None) -> None:
        """Write the number of the row beside the lock."""
        self._lock.note_row(0 if row is None else row.number)

    def holding(self, row: Row) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002  the protocol's
        """Return a transaction. No other process sends rows while this one has the lock."""
        return contextlib.nullcontext()

    def tries(self, session_id: str) -> int:
        """Return how often rows of this session failed in a row."""
        return self._retry_at.get(session_id, (0.0, 0))[1]

    def postpone(self, session_id: str, delay: float, tries: int) -> None:
        """Let the rows of a session wait, as long as this process delivers."""
        self._retry_at[session_id] = (self._clock() + delay, tries)

    def succeeded(self, session_id: str) -> None:
        """Forget the failed tries of a session."""
        self._retry_at.pop(session_id, None)

    def wait(self) -> float | None:
        """Return the seconds until a postponed session may be tried again."""
        now = self._clock()
        return min(
            (retry_at - now for retry_at, _ in self._retry_at.values() if retry_at > now), default=None
        )

    def use(self, outbox: Outbox) -> None:
        """Go on with another connection to the same outbox."""
        self._outbox = outbox

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()


_TAKE = """
    UPDATE outbox_lines SET holder = :holder, until = now() + make_interval(secs => :lease)
    WHERE (provider, session_id) = (
        SELECT l.provider, l.session_id FROM outbox_lines l
        WHERE l.provider = :provider AND l.pending > 0 AND l.ready_at <= now()
            AND (l.holder = '' OR l.until < now()) AND NOT l.session_id = ANY (:skip)
        ORDER BY l.session_id = :last_failed, l.ready_at LIMIT 1 FOR UPDATE SKIP LOCKED
    ) RETURNING session_id, tries, sending
"""
_EXTEND = """
    UPDATE outbox_lines SET until = now() + make_interval(secs => :lease)
    WHERE provider = :provider AND session_id = ANY (:sessions) AND holder = :holder
"""
_SEND = """
    UPDATE outbox_lines SET sending = :number, until = now() + make_interval(secs => :lease)
    WHERE provider = :provider AND session_id = :session AND holder = :holder RETURNING 1
"""
# A row lock, so that the line can't pass to another worker before the result is committed.
_HOLD = """
    SELECT 1 FROM outbox_lines
    WHERE provider = :provider AND session_id = :session AND holder = :holder FOR UPDATE
"""
_RELEASE = """
    UPDATE outbox_lines SET holder = '', until = NULL, sending = 0, tries = :tries,
        ready_at = now() + make_interval(secs => :delay)
    WHERE provider = :provider AND session_id = :session AND holder = :holder
"""
_REMOVE_EMPTY = """
    DELETE FROM outbox_lines WHERE provider = :provider AND session_id = :session AND holder = '' AND count = 0
"""
_NEXT_TIME = """
    SELECT extract(epoch FROM min(greatest(ready_at, coalesce(until, ready_at))) - now())::double precision
    FROM outbox_lines WHERE provider = ? AND pending > 0
"""


class LeasedLines:
    """The rows of a provider on a server. A worker leases one line after the other, and sends the rows of each in order.

    The pauses after failed tries stand in the lines, so that all machines keep them.
    """

    shared = True

    def __init__(self, outbox: Outbox, provider: str, lease: float = LEASE_S) -> None:
        self._outbox, self._provider, self._lease = outbox, provider, lease
        self._database = outbox.database
        self._holder = uuid.uuid4().hex
        self.key = f"{self._database.location} {provider}"
        self._tries: dict[str, int] = {}  # by session of the lines that this worker holds
        self._current = ""
        self._dead_row = 0
        self._heart: threading.Thread | None = None
        self._released = threading.Event()

    @property
    def held(self) -> bool:
        """True if this worker has a lease."""
        return bool(self._tries)

    def acquire(self) -> bool:
        """Return True: the lease is taken with the next row."""
        return True

    def next(self, skip: Collection[str], last_failed: str = "") -> Row | None:
        """Return the oldest row of a line that this worker holds, or of another one, which it takes.

        A line may be held without being the current one: its provider had not started, or its result was in doubt.
        """
        for own_line in [self._current, *self._tries]:
            if own_line not in self._tries or own_line in skip:
                continue
            if own_line != last_failed and (row := self._head(own_line)) is not None:
                self._current = own_line
                return row
            self._release(own_line, 0.0, self._tries[own_line])
        values = {"last_failed": last_failed, "skip": [*skip, *self._tries], **self._mine()}
        taken = self._database.execute(_TAKE, values).fetchone()
        if taken is None:
            self._current = ""
            return None
        session_id: str = taken["session_id"]
        self._current, self._tries[session_id] = session_id, int(taken["tries"])
        self._dead_row = int(taken["sending"])
        self._beat()
        return self._head(session_id)

    def row_of_dead_holder(self) -> int:
        """Return the number of the row that the last holder of the current line was sending when its lease ended."""
        number, self._dead_row = self._dead_row, 0
        return number

    def note_row(self, row: Row | None) -> None:
        """Note the row in its line, and extend the lease."""
        if row is None:
            return  # the end of the lease clears it
        values = {"number": row.number, **self._mine(row.session_id)}
        if self._database.execute(_SEND, values).fetchone() is None:
            self._tries.pop(row.session_id, None)
            raise self._lost(row.session_id)

    @contextlib.contextmanager
    def holding(self, row: Row) -> Iterator[None]:
        """Make the block a transaction in which the lease can't pass to another worker."""
        with self._database.transaction() as connection:
            if connection.execute(_HOLD, self._mine(row.session_id)).fetchone() is None:
                self._tries.pop(row.session_id, None)
                raise self._lost(row.session_id)
            yield

    def tries(self, session_id: str) -> int:
        """Return how often rows of this session failed in a row, on any machine."""
        return self._tries.get(session_id, 0)

    def postpone(self, session_id: str, delay: float, tries: int) -> None:
        """Give the line back. No machine takes it before `delay` seconds have passed."""
        self._release(session_id, delay, tries)

    def succeeded(self, session_id: str) -> None:
        """Forget the failed tries of a session."""
        if session_id in self._tries:
            self._tries[session_id] = 0

    def wait(self) -> float | None:
        """Return the seconds until a line is free for some worker."""
        seconds = self._database.execute(_NEXT_TIME, (self._provider,)).fetchone()[0]
        return None if seconds is None else max(float(seconds), 0.0)

    def use(self, outbox: Outbox) -> None:
        """Go on with another connection to the same outbox, also in the thread that extends the leases."""
        self._outbox, self._database = outbox, outbox.database

    def release(self) -> None:
        """Give all lines back."""
        try:
            for session_id in list(self._tries):
                self._release(session_id, 0.0, self._tries[session_id])
        except HermesError as exc:
            log.warning("%s: leases end by time only: %s", self._provider, exc)
            self._tries.clear()
        self._current = ""
        self._released.set()
        self._heart = None

    def _head(self, session_id: str) -> Row | None:
        return self._outbox.next_of_session(self._provider, session_id)

    def _mine(self, session_id: str = "") -> dict[str, object]:
        values: dict[str, object] = {"provider": self._provider, "holder": self._holder, "lease": self._lease}
        return {**values, "session": session_id} if session_id else values

    def _lost(self, session_id: str) -> LeaseLost:
        return LeaseLost(
            f"{self._provider}: the lease on session {session_id!r} passed to another worker",
            "nothing is to be done: the other worker sends its rows",
        )

    def _release(self, session_id: str, delay: float, tries: int) -> None:
        self._tries.pop(session_id, None)
        values = {"delay": delay, "tries": tries, **self._mine(session_id)}
        self._database.batch([(_RELEASE, values), (_REMOVE_EMPTY, values)])

    def _beat(self) -> None:
        """Start the thread that extends the leases while a provider takes its time."""
        if self._heart is None or not self._heart.is_alive():
            self._released = threading.Event()
            name = f"hermes-{self._provider}-lease"
            self._heart = threading.Thread(
                target=self._extend, args=(self._released,), name=name, daemon=True
            )
            self._heart.start()

    def _extend(self, released: threading.Event) -> None:
        while not released.wait(self._lease / HEARTBEATS_PER_LEASE):
            try:
                # Only those: a line that could not be given back in an outage is free when its lease has ended.
                self._database.execute(_EXTEND, {"sessions": list(self._tries), **self._mine()})
            except HermesError as exc:
                log.warning("%s: the leases can't be extended: %s", self._provider, exc)


class DeliveryLock:
    """Lock file of the one process that may deliver to a provider. The system releases it when the process dies.

    A file of the same name with the suffix `.row` holds the number of the row that is being sent. It is not synced
    to disk, because it has to survive a crash of the process only, not of the machine. If it can't be written,
    delivery works without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._row_path = path.with_suffix(".row")
        self._row_file: BinaryIO | None = None
        # A stop notes "no row" from another thread than the worker's, which may close the file meanwhile.
        self._row_lock = threading.Lock()
        self._file = FileLock(str(path), timeout=0, mode=PRIVATE_FILE, thread_local=False)
        self._just_acquired = False

    @classmethod
    def of(cls, folder: Path, provider: str) -> DeliveryLock:
        """Return the lock for the provider of this name in the home at `folder`."""
        return cls(folder / f"outbox.{quote(provider, safe='')}.lock")

    @property
    def held(self) -> bool:
        """True if this process has the lock."""
        return self._file.is_locked

    def acquire(self) -> bool:
        """Take the lock if no other process has it. Raises `OSError` if the file can't be made."""
        if self.held:
            return True
        ensure_folder(self.path.parent)
        try:
            self._file.acquire()
        except Timeout:
            return False
        self._just_acquired = True
        with self._row_lock, contextlib.suppress(OSError):
            handle = os.open(self._row_path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            self._row_file = os.fdopen(handle, "r+b", buffering=0)
        return True

    def row_of_dead_holder(self) -> int:
        """Return the number of the row that the last holder of the lock was sending when it died; 0 if there is none.

        Only the first call after each `acquire` returns the number.
        """
        if not self._just_acquired:
            return 0
        self._just_acquired = False
        try:
            number = int(self._row_path.read_text("ascii"))
        except (OSError, ValueError):
            return 0
        self.note_row(0)
        return number

    def note_row(self, number: int) -> None:
        """Write the number of the row that is being sent into the `.row` file; 0 for none."""
        with self._row_lock, contextlib.suppress(OSError):
            if self._row_file is not None:
                self._row_file.seek(0)
                self._row_file.write(b"%020d" % number)

    def release(self) -> None:
        """Release the lock, so that another process can take it."""
        with self._row_lock:
            if self._row_file is not None:
                self._row_file.close()
                self._row_file = None
        self._file.release(force=True)
