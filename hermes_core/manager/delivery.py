"""Delivery: the rows of the outbox go to one provider, in order per session, at least once.

One process at a time drains a provider of a home: whoever holds the lock file, which the system releases when that
process dies. How a row fares:

    taken             deleted, its id remembered
    failed            its session waits, longer each time; the other sessions go on
    failed often      while the breaker is closed and the backend has answered since the start, so it is well and the row
                      is not: parked, and shown
    not back in time  in doubt: its lane sends nothing more until the call returns (a late success counts) or the process
                      ends, and with it the lock; so it is also after the manager was shut down
    death             the process ended in the midst of it: a failed try, told by the next one
    not noted         a full disk kept what became of it from being stored: in doubt as well, until that is on disk
    breaker open      nothing is sent until it may be probed, then with another session's row first
    another account   parked: it was recorded for settings that are no longer in use; one that is newer than ours
                      is left to the process that has them
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import random
import sqlite3
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from urllib.parse import quote

from hermes_core.errors import HermesError, OutboxError
from hermes_core.home import HermesHome
from hermes_core.manager.call import CallResult, attempt, describe
from hermes_core.manager.outbox import ANY_ACCOUNT, Outbox, Row
from hermes_core.manager.payload import Transcripts, unpack
from hermes_core.manager.process_lock import ProcessLock
from hermes_core.manager.providers import ProviderHandle
from hermes_core.manager.stats import ManagerConfig
from hermes_core.stopping import stopped_by

log = logging.getLogger(__name__)

IDLE_POLL = 5.0
"""Seconds between looks for rows that other processes appended; ours announce themselves."""

LINGER = 0.1
"""Seconds for which the lock is kept after the last row: more of a turn may follow, and to take it costs more than to send."""

LOCK_POLL = 0.5
"""Seconds between tries for the lock while rows wait and another process has it."""

PARK_AFTER = 5
"""Failed tries after which a row, not the backend, is taken to be at fault."""

BACKOFF = 1.0
MAX_BACKOFF = 60.0

_DISK = (HermesError, sqlite3.Error, OSError)
"""What a full disk or a lost file raises."""

LONGEST_ASKED = 3600.0
"""Seconds of a backend's Retry-After that are kept to; a clock gone wrong asks for years."""

ANOTHER_ACCOUNT = "recorded for another account; `hermes-memory outbox retry` sends it to the one in use now"

_LEFT: dict[Path, str] = {}
"""Lock files that drainers of this process hold after their end, and for which row."""


class OutboxWorker:
    """Sends the rows of one provider, on one daemon thread that starts with the first of them.

    `context` holds the contextvars that the hooks see: the same on every try, whoever made the write.
    """

    def __init__(
        self,
        held: ProviderHandle,
        outbox: Outbox,
        terms: ManagerConfig,
        folder: Path,
        transcripts: Transcripts | None,
        context: contextvars.Context,
    ) -> None:
        self._held = held
        self._outbox = outbox
        self._terms = terms
        self._transcripts = transcripts
        self._context = context.copy()
        self._breaker = held.stats.breakers["write"]
        self._folder = folder
        self._lock = ProcessLock(folder / f"outbox.{quote(held.name, safe='')}.lock")
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._bell = threading.Event()
        self._moved = threading.Event()
        self._retry_at: dict[str, tuple[float, int]] = {}
        self._unready: frozenset[str] = frozenset()
        self._doubts: dict[int, Row] = {}
        self._returned: deque[tuple[Row, CallResult]] = deque()
        self._last_failed = ""
        self.trouble = ""
        """What the last step failed with."""
        self._answered = False

    # ------------------------------------------------------------------ others

    def wake(self) -> None:
        """Look at the outbox now."""
        if self._thread is None:
            self._start()
        self._bell.set()

    def provider_started(self) -> None:
        """An `initialize` has ended: rows that waited for it are looked at."""
        self._unready = frozenset()
        self._bell.set()

    def flush(self, timeout: float) -> bool:
        """Wait until no row waits. False after `timeout` seconds, or as soon as nothing can be sent: the backend is left
        alone, or all that waits is of sessions that can't be started."""
        until = time.monotonic() + timeout
        while self._outbox.waits(self._held.name) or self._doubts:
            self.wake()
            if self._left_alone() or self._none_starts() or time.monotonic() >= until:
                return False
            self._moved.wait(0.05)
            self._moved.clear()
        return True

    def stop(self, timeout: float) -> bool:
        """Send nothing more; wait for the row under way. Whether the thread ended within `timeout` seconds."""
        with self._start_lock:
            self._stopping = True
            self._lock.sends(0)  # an end that was asked for is no death of a row
            thread = self._thread
        self._bell.set()
        if thread is None:
            return True
        thread.join(0.0 if self._doubts else max(0.0, timeout))
        return not thread.is_alive()

    def stuck(self) -> str:
        """Why no row can be sent for now; "" when some can."""
        if self._doubts and not self._held.per_session:
            row = next(iter(self._doubts.values()))
            why = (
                "what became of it can't be stored"
                if self._returned
                else "it has not returned since its deadline"
            )
            return f"{row.hook} of session {row.session_id!r} is in doubt: {why}"
        return self._left_alone()

    def sending(self, session_id: str) -> bool:
        """Whether a row of this session waits or is in doubt; of an outbox that can't be read none is sent."""
        if any(row.session_id == session_id for row in list(self._doubts.values())):
            return True
        try:
            return self._outbox.waits(self._held.name, session_id)
        except _DISK as exc:
            log.error("%s: the outbox can't be read: %s", self._held.name, exc)
            return False

    # -------------------------------------------------------------------- loop

    def _left_alone(self) -> str:
        if left := _LEFT.get(self._lock.path):
            return left
        if self._breaker.state == "open":
            return f"write breaker open for {self._breaker.remaining:.0f} s more"
        if self._held.first.phase == "failed" and not self._held.per_session:
            return self._held.first.reason
        return ""

    def _none_starts(self) -> bool:
        """Whether all rows that wait are of sessions that can't be started."""
        name, given_up = self._held.name, self._held.given_up()
        if not given_up or self._doubts or self._outbox.next(name, given_up) is not None:
            return False
        return self._outbox.waits(name)  # else the last of the others was taken just now

    def _start(self) -> None:
        name = f"hermes-{self._held.name}-outbox"
        thread = threading.Thread(target=self._context.run, args=(self._run,), name=name, daemon=True)
        with self._start_lock:
            if self._thread is not None or self._stopping:
                return
            try:
                thread.start()
            except RuntimeError as exc:  # as in a lane; the rows stay where they are
                log.warning("%s: nothing is sent: no thread can be started (%s)", self._held.name, exc)
            else:
                self._thread = thread

    @stopped_by(None)  # a turn's end is not its end, also where the memory was opened in a turn
    def _run(self) -> None:
        while not self._stopping:
            self._bell.clear()
            pause = self._safe_step()
            if not pause:
                # Only where a row moved: `flush` looks again at once, and wakes us for it.
                if not self._unready:
                    self._moved.set()
            else:
                lingered = min(pause, LINGER) if self._lock.held else 0.0
                if lingered and self._bell.wait(lingered):
                    continue
                if not self._doubts:
                    self._lock.release()
                self._bell.wait(pause - lingered)
        if self._doubts:
            self._outlive()
        self._lock.release()

    def _outlive(self) -> None:
        """Stopped with a call under way: nobody sends its row until it returns, and what became of it is noted then."""
        row = next(iter(self._doubts.values()))
        _LEFT[self._lock.path] = (
            f"{row.hook} of session {row.session_id!r} has not returned since this was last closed"
        )
        while self._doubts and self._outbox.path.exists():
            if not self._returned:
                self._bell.wait(IDLE_POLL)
                self._bell.clear()
                continue
            try:
                with contextlib.closing(Outbox(HermesHome(self._folder), wall=self._terms.wall)) as outbox:
                    self._outbox = outbox
                    self._note_returned()
            except _DISK as exc:
                log.error("%s: the outbox can't be written: %s", self._held.name, exc)
                self._bell.wait(IDLE_POLL)
        _LEFT.pop(self._lock.path, None)

    def _safe_step(self) -> float:
        """One step; a full disk, a lost file or a fault of ours is told once and waited for, not died of."""
        pause, error = attempt(self._step)
        before, self.trouble = self.trouble, "" if error is None else describe(error, self._terms.redact)
        if self.trouble not in ("", before) and not self._stopping:
            log.error("%s: the outbox can't be worked off: %s", self._held.name, self.trouble)
        return IDLE_POLL if pause is None else pause

    def _step(self) -> float:
        """Send at most one row. Returns how many seconds to wait for the next step."""
        self._note_returned()
        if not self._outbox.waits(self._held.name):
            return IDLE_POLL
        if not self._lock.acquire():
            return LOCK_POLL
        self._note_death()
        row_or_none = self._choose()
        return self._pause() if row_or_none is None else self._send(row_or_none)

    def _note_returned(self) -> None:
        while self._returned:
            row, outcome = self._returned.popleft()
            self._doubts.pop(row.number, None)
            self._settle(row, outcome)

    def _choose(self) -> Row | None:
        """The next row to send; None when all that wait have to wait."""
        if self.stuck():
            # Nobody else may ask for this provider again, in a process whose person is silent.
            self._held.first.start_again()
            return None
        now = self._terms.clock()
        waiting = {session for session, (retry_at, _) in self._retry_at.items() if retry_at > now}
        skip = {*waiting, *self._unready, *(row.session_id for row in self._doubts.values())}
        if self._breaker.state == "half-open" and self._last_failed not in skip:
            # If it was that row and not the backend, another session's row shows it.
            other = self._outbox.next(self._held.name, [*skip, self._last_failed])
            if other is not None:
                return other
        return self._outbox.next(self._held.name, skip)

    def _pause(self) -> float:
        now = self._terms.clock()
        waits = [retry_at - now for retry_at, _ in self._retry_at.values() if retry_at > now]
        self._unready = frozenset()
        return max(0.01, min([IDLE_POLL, *waits, self._breaker.remaining or IDLE_POLL]))

    # --------------------------------------------------------------------- row

    def _send(self, row: Row) -> float:
        if not self._held.implements(row.hook):
            return self._park(row, f"{self._held.name} has no {row.hook}()")
        read, error = attempt(lambda: unpack(row.hook, row.body, self._transcripts, self._terms.redact))
        if read is None:
            assert error is not None
            text = describe(error, self._terms.redact)
            return self._park(row, text) if isinstance(error, OutboxError) else self._failed(row, text)
        session, arguments = read
        instance = self._held.instance(session)
        instance.start(session)
        if instance.phase != "ready":
            if instance.phase == "failed" and row.error != instance.reason:
                self._outbox.failed(
                    row, instance.reason, counted=False
                )  # for the person who lists what waits
            self._unready |= {row.session_id}
            return 0.0 if self._held.per_session else IDLE_POLL
        if row.fingerprint not in (self._held.fingerprint, ANY_ACCOUNT):  # that of its start
            if self._held.account_since < row.created_at <= self._terms.wall():
                self._unready |= {row.session_id}  # of a process that lives, and has that account
                return 0.0
            return self._park(row, ANOTHER_ACCOUNT)
        self._lock.sends(row.number)
        outcome = self._held.call(row.hook, arguments, session, partial(self._came_back, row))
        if outcome.in_doubt:
            return self._doubt(row, outcome)
        return self._settle(row, outcome)

    def _came_back(self, row: Row, outcome: CallResult) -> None:
        """A call that was in doubt returned, on the write lane."""
        self._returned.append((row, outcome))
        self._bell.set()

    def _settle(self, row: Row, outcome: CallResult) -> float:
        try:
            pause = self._note(row, outcome)
            self._lock.sends(0)
            return pause
        except _DISK:
            self._doubts[row.number] = row
            self._returned.appendleft((row, outcome))
            raise

    def _note(self, row: Row, outcome: CallResult) -> float:
        if outcome.ok or (outcome.status == "failed" and not outcome.counts):
            self._answered = True
        if outcome.ok:
            self._outbox.delivered(row)
            self._retry_at.pop(row.session_id, None)
            if row.hook == "on_session_switch" and self._held.per_session:
                switch = unpack(row.hook, row.body, None, self._terms.redact)[1]["switch"]
                if switch.new.id != switch.old.id:  # a rewind goes on where it is
                    self._held.retire(row.session_id)
            return 0.0
        if outcome.status in ("open", "skipped"):
            return LOCK_POLL
        return self._failed(row, outcome.error, outcome.retry_after or 0.0)

    def _failed(self, row: Row, error: str, asked: float = 0.0) -> float:
        """Hold the row's session for a while; park the row when the backend is well and the row still fails.

        `asked` is how many seconds the backend wants to be left alone.
        """
        # A backend that asks for time says nothing against the row.
        counted = self._breaker.state == "closed" and not asked
        self._last_failed = row.session_id
        # Nor does one that has answered nothing yet: each process of an outage begins with a closed breaker.
        if counted and self._answered and row.attempts + 1 >= PARK_AFTER:
            return self._park(row, error)
        self._outbox.failed(row, error, counted=counted)
        tries = self._retry_at.get(row.session_id, (0.0, 0))[1] + 1
        delay = min(MAX_BACKOFF, BACKOFF * 2 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)
        delay = max(delay, min(asked, LONGEST_ASKED))
        self._retry_at[row.session_id] = (self._terms.clock() + delay, tries)
        return 0.0

    def _park(self, row: Row, error: str) -> float:
        log.error(
            "%s: %s of session %r is parked: %s",
            self._held.name,
            row.hook,
            row.session_id,
            error,
            extra={"event": "outbox.parked"},
        )
        self._outbox.park(row, error)
        self._retry_at.pop(row.session_id, None)
        data = {"provider": self._held.name, "hook": row.hook, "row": row.number, "error": error}
        self._terms.emit("outbox.parked", data)
        return 0.0

    def _note_death(self) -> None:
        """A process that ended in the midst of a row may have died of it, and the next would as well: that is a failed try.
        From the second on it is told, and the row left alone long enough for a person to see it.
        """
        number = self._lock.died_of()
        row = self._outbox.waiting(number) if number else None
        if row is None:
            return
        error = "the process ended while the provider took it"
        if row.attempts + 1 >= PARK_AFTER:
            self._park(row, error)
            return
        self._outbox.failed(row, error if row.attempts else row.error, counted=True)
        if row.attempts:
            self._retry_at[row.session_id] = (self._terms.clock() + MAX_BACKOFF, row.attempts)

    def _doubt(self, row: Row, outcome: CallResult) -> float:
        self._doubts[row.number] = row
        self._outbox.failed(row, f"in doubt: {outcome.error}", counted=False)
        return 0.0
