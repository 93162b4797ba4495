"""Delivery: sends the rows of the outbox to one provider, in order within each session, at least once.

A worker sends the rows of the lines on which it has a lease (`lines`). A try to deliver a row ends in one of these ways:

    taken           The row is deleted and its id is remembered.
    failed          The rows of its session wait, longer after each try. Rows of other sessions are sent.
    failed often    The row becomes a dead letter, if the breaker is closed and the backend has answered other calls
                    since the start: then the fault is in the row, not in the backend.
    in doubt        The call did not return by its deadline. Nothing more is sent until it returns, and a late success
                    counts. The lease is extended until then, even after the manager was shut down, or until the process
                    ends.
    killed          The process ended during the call. When its lease has ended, the next one counts a failed try.
    not stored      The result could not be stored because the disk is full. The row is in doubt until it is stored.
    breaker open    Nothing is sent until the breaker allows a probe. The probe is a row of another session, if there
                    is one.
    other account   The row was stored for an account that is no longer in use. It becomes a dead letter.
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
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from hermes_core.errors import HermesError
from hermes_core.outbox.lines import LONGEST_PAUSE_S, DeliveryLines, LeaseLost
from hermes_core.outbox.rows import Row
from hermes_core.outbox.store import Outbox
from hermes_core.stopping import stopped_by

log = logging.getLogger(__name__)

IDLE_POLL_S = 5.0
"""Seconds between two searches for rows that other processes stored. Rows of this process wake the worker at once."""

# More of a turn may follow, and a lease costs two writes.
LINGER_S = 0.1
"""Seconds for which the leases are kept after the last row."""

BUSY_POLL_S = 0.5
"""Seconds until the next try of a row that was not sent, because the worker of its provider was busy."""

MAX_ATTEMPTS = 5
"""Failed tries after which the row becomes a dead letter, because the fault is in the row and not in the backend."""

BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0

# A backend whose clock is wrong asks for years.
MAX_RETRY_AFTER_S = LONGEST_PAUSE_S
"""Longest pause that a backend is granted."""

DISK_ERRORS = (HermesError, sqlite3.Error, OSError)
"""Errors that a full disk or a lost file raises."""

FLUSH_START_PAUSE_S = 0.25
"""Seconds before `flush` retries the start of a provider a second time. Each further pause is twice as long."""

MAX_SESSION_STARTS = 3
"""Retries of `flush` if the provider starts for some sessions only."""

_HELD_AFTER_STOP: dict[str, str] = {}
"""Keys of the lines that stopped workers of this process still hold because a call has not returned, each with a
sentence about this call."""


class Delivery(NamedTuple):
    """Result of one try to deliver a row. `status` is one of:

    taken       The provider took the row.
    failed      The call failed. `answered` is True if the backend itself refused the row, and so is reachable.
    in doubt    The call still runs; its final result is passed to `on_late`.
    unready     The provider instance of the session has not started yet, or the row is for another account.
    not sent    The call was not made, because the breaker is open or the worker is busy.
    dead        No further try can succeed; `error` is the reason.
    needless    The provider does not implement the hook of the row.

    `retry_after` is the number of seconds that the backend asks callers to wait before the next call.
    """

    status: Literal["taken", "failed", "in doubt", "unready", "not sent", "dead", "needless"]
    error: str = ""
    answered: bool = False
    retry_after: float = 0.0


class BreakerState(Protocol):
    """The breaker of the provider's writes, as a worker sees it."""

    @property
    def state(self) -> str:
        """Return "closed", "open" or "half-open"."""

    @property
    def remaining(self) -> float:
        """Return the seconds until the backend may be probed; 0 if calls may go out."""


class Receiver(Protocol):
    """Protocol of the provider to which an outbox worker delivers rows."""

    @property
    def name(self) -> str:
        """Return the name of the provider. Rows are stored under this name."""

    @property
    def breaker(self) -> BreakerState:
        """Return the breaker of the provider's writes."""

    @property
    def per_session(self) -> bool:
        """Return True if each session has a separate instance.

        Then rows of one session can wait while others are sent.
        """

    def deliver(
        self, row: Row, before_call: Callable[[], None], on_late: Callable[[Delivery], None]
    ) -> Delivery:
        """Call the hook of the row, wait until its deadline, and return the result of this try.

        Args:
            before_call: Called directly before the hook. Not called if the hook is not called.
            on_late: Called with the final result if the returned one is "in doubt".
        """

    def start_failure(self) -> str:
        """Return the reason why the provider's only instance failed to start; "" if it did not fail.

        For a provider with an instance for each session, return "".
        """

    def start_again(self, *, at_once: bool = False) -> None:
        """Retry the start of the provider if the last one failed long enough ago, or in any case if `at_once`."""

    def unstartable_sessions(self) -> list[str]:
        """Return the ids of sessions whose instance failed to start and is not started again yet."""

    def describe(self, error: BaseException) -> str:
        """Return `error` as one line without secrets."""


class OutboxWorker:
    """Delivery of the rows of one provider, on a daemon thread that starts with the first row.

    Args:
        receiver: The provider.
        outbox: The outbox that holds the rows.
        emit: Sends an event (kind, data) to the observers, and returns at once.
        context: Context variables of the thread, in which all hooks run. The context of the write is not used.
        lease: Seconds after which another worker sends the rows of a session if this one was killed or is suspended.
    """

    def __init__(
        self,
        receiver: Receiver,
        outbox: Outbox,
        *,
        emit: Callable[[str, Mapping[str, Any]], None] = lambda _kind, _data: None,
        context: contextvars.Context | None = None,
        lease: float | None = None,
    ) -> None:
        self._receiver = receiver
        self._name = receiver.name
        self._outbox = outbox
        self._emit = emit
        self._context = (context or contextvars.Context()).copy()
        self._lines = DeliveryLines(outbox, self._name, lease)
        self._start_lock = threading.Lock()  # any thread may wake the worker first, or stop it meanwhile
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._wake_up = threading.Event()
        self._moved = threading.Event()
        self._unready: frozenset[str] = frozenset()
        self._in_doubt: dict[int, Row] = {}
        # A deque: the provider's thread appends while this worker's thread takes.
        self._late: deque[tuple[Row, Delivery]] = deque()
        self._last_failed = ""
        self._answered = False
        self.trouble = ""
        """The error of the last step of the thread; "" if there was none."""

    # ----------------------------------------------------------- other threads

    def wake(self) -> None:
        """Let the thread look for rows now. Start the thread if it does not run."""
        if self._thread is None:
            self._start()
        self._wake_up.set()

    def provider_started(self) -> None:
        """Try again the rows that waited for a provider instance to start. Called when an `initialize` has ended."""
        self._unready = frozenset()
        self._wake_up.set()

    def flush(self, timeout: float, *, retry_start: bool = True) -> bool:
        """Wait until all rows are delivered, and return True.

        Return False after `timeout` seconds, or as soon as no row can be sent now: the breaker is open, or all
        pending rows belong to sessions whose provider instance failed to start.

        Args:
            retry_start: Retry such a start at once, and again after pauses until `timeout`. The backend may be back.
        """
        until = time.monotonic() + timeout
        retry_at, pause = time.monotonic(), FLUSH_START_PAUSE_S
        while self._outbox.waits(self._name) or self._in_doubt:
            self.wake()
            now, failed = time.monotonic(), bool(self._receiver.start_failure())
            # A start that fails for some sessions, and not for others, is no outage, so few tries are enough.
            some_failed = not failed and self._only_unstartable()
            given_up = (failed or some_failed) and not retry_start
            given_up |= (
                some_failed and now >= retry_at and pause > FLUSH_START_PAUSE_S * 2**MAX_SESSION_STARTS
            )
            if now >= until or given_up or self._blocked_now():
                return False
            if (failed or some_failed) and now >= retry_at:
                self._receiver.start_again(at_once=True)
                retry_at, pause = now + pause, 2 * pause
            self._moved.wait(0.05)
            self._moved.clear()
        return True

    def stop(self, timeout: float) -> bool:
        """Send no further rows, and wait for the row that is being sent.

        Return True if the thread ended in `timeout` seconds.
        """
        with self._start_lock:
            self._stopping = True
            self._lines.note_stop()
            thread = self._thread
        self._wake_up.set()
        if thread is None:
            return True
        thread.join(0.0 if self._in_doubt else max(0.0, timeout))
        return not thread.is_alive()

    def stuck(self) -> str:
        """Return the reason why no row can be sent now; "" if rows can be sent."""
        # A result that has come and that nothing keeps from being stored is stored with the next step.
        storable = bool(self._late) and not self.trouble
        if self._in_doubt and not self._receiver.per_session and not storable:
            return self._doubt("its deadline")
        return self._blocked()

    def _doubt(self, since: str) -> str:
        row = next(iter(self._in_doubt.values()))
        unstored = ": ".join(filter(None, ("its result can't be stored", self.trouble)))
        why = unstored if self._late else f"it has not returned since {since}"
        return f"{row.hook} of session {row.session_id!r} is in doubt: {why}"

    def sending(self, session_id: str) -> bool:
        """Return True if a row of this session is pending or in doubt."""
        if any(row.session_id == session_id for row in list(self._in_doubt.values())):
            return True
        try:
            return self._outbox.waits(self._name, session_id)
        except DISK_ERRORS as exc:
            log.error("%s: the outbox can't be read: %s", self._name, exc)
            return False

    # -------------------------------------------------------------------- loop

    def _blocked(self) -> str:
        return self._blocked_now() or self._receiver.start_failure()

    def _blocked_now(self) -> str:
        """Return the reason why no row can be sent although the provider may have started; "" if there is none."""
        if self._outbox.held_back:
            return self._outbox.held_back
        if held := _HELD_AFTER_STOP.get(self._lines.key):
            return held
        if self._receiver.breaker.state == "open":
            return f"write breaker open for {self._receiver.breaker.remaining:.0f} s more"
        return ""

    def _only_unstartable(self) -> bool:
        sessions = self._receiver.unstartable_sessions()
        if (
            not sessions
            or self._in_doubt
            or self._outbox.next(self._name, skip_sessions=sessions) is not None
        ):
            return False
        return self._outbox.waits(self._name)  # False if the last row of another session was taken just now

    def _start(self) -> None:
        name = f"hermes-{self._name}-outbox"
        thread = threading.Thread(target=self._context.run, args=(self._run,), name=name, daemon=True)
        with self._start_lock:
            if self._thread is not None or self._stopping:
                return
            try:
                thread.start()
            except RuntimeError as exc:  # the system has no thread left; the rows stay where they are
                log.warning("%s: nothing is sent: no thread can be started (%s)", self._name, exc)
            else:
                self._thread = thread

    @stopped_by(None)  # the end of a turn does not end this thread, also if the memory was opened in the turn
    def _run(self) -> None:
        while not self._stopping:
            self._wake_up.clear()
            pause = self._guarded_step()
            if not pause:
                # Set only if rows moved: `flush` wakes this thread each time it is set, and would loop without pause.
                if not self._unready:
                    self._moved.set()
            else:
                lingered = min(pause, LINGER_S) if self._lines.held else 0.0
                if lingered and self._wake_up.wait(lingered):
                    continue
                if not self._in_doubt:
                    self._lines.release()
                self._wake_up.wait(pause - lingered)
        if self._in_doubt:
            self._wait_for_late_result()
        else:
            self._lines.release()

    def _wait_for_late_result(self) -> None:
        """Keep the leases after a stop until the call in doubt returns, and store its result.

        The manager closes its database meanwhile.
        """
        _HELD_AFTER_STOP[self._lines.key] = self._doubt("this was last closed")
        with contextlib.closing(self._outbox.database.reopen()) as database:
            self._outbox = Outbox(database)
            self._lines.use(self._outbox)
            while self._in_doubt and self._outbox.exists:
                try:
                    self._note_late_results()
                except DISK_ERRORS as exc:
                    log.error("%s: the outbox can't be written: %s", self._name, exc)
                if self._in_doubt:
                    self._wake_up.wait(IDLE_POLL_S)
                    self._wake_up.clear()
            # While this connection is open: a lease that is not given back lasts until its end.
            self._lines.release()
        _HELD_AFTER_STOP.pop(self._lines.key, None)

    def _guarded_step(self) -> float:
        """Run one step, and return how many seconds to wait before the next one.

        An error (a full disk, a lost file, a bug) is logged once and the step is repeated after a pause, because
        without this thread no row would be delivered any more.
        """
        before, pause = self.trouble, IDLE_POLL_S
        try:
            pause, self.trouble = self._step(), ""
        except Exception as exc:  # noqa: BLE001  named in the architecture test
            self.trouble = self._receiver.describe(exc)
        if self.trouble not in ("", before) and not self._stopping:
            log.error("%s: the outbox can't be delivered: %s", self._name, self.trouble)
        return pause

    def _step(self) -> float:
        """Send at most one row, and return how many seconds to wait before the next step."""
        self._note_late_results()
        if not self._outbox.waits(self._name):
            return IDLE_POLL_S
        row = self._choose()
        if row is None:
            return self._pause()
        # Only the call itself is noted: a process that dies while the provider starts did not die of the row.
        note_row = partial(self._lines.note_row, row)
        try:
            if self._note_death():
                return 0.0
            delivery = self._receiver.deliver(row, note_row, partial(self._returned_late, row))
        except LeaseLost as exc:
            log.warning("%s", exc)
            return 0.0
        return self._settle(row, delivery)

    def _note_late_results(self) -> None:
        while self._late:
            row, delivery = self._late.popleft()
            self._in_doubt.pop(row.number, None)
            self._settle(row, delivery)

    def _choose(self) -> Row | None:
        """Return the next row to send; None if no pending row may be sent now."""
        if self.stuck():
            # Retried here, because without new turns nothing else would start the provider again.
            self._receiver.start_again()
            return None
        skip = {*self._unready, *(row.session_id for row in self._in_doubt.values())}
        # A row of another session is the better probe: the row that failed last may itself be the fault.
        probing = self._receiver.breaker.state == "half-open"
        return self._lines.next(skip, self._last_failed if probing else "")

    def _pause(self) -> float:
        retry = self._lines.wait()
        self._unready = frozenset()
        return max(
            0.01,
            min(
                IDLE_POLL_S,
                IDLE_POLL_S if retry is None else retry,
                self._receiver.breaker.remaining or IDLE_POLL_S,
            ),
        )

    # --------------------------------------------------------------------- row

    def _returned_late(self, row: Row, delivery: Delivery) -> None:
        """Keep the final result of a call in doubt for the worker's thread. Runs on the thread that made the call."""
        self._late.append((row, delivery))
        self._wake_up.set()

    def _settle(self, row: Row, delivery: Delivery) -> float:
        """Store the result of a try in the outbox, and return how many seconds to wait before the next row."""
        try:
            with self._lines.holding(row, in_doubt=delivery.status == "in doubt"):
                pause = self._store(row, delivery)
        except LeaseLost as exc:
            log.warning("%s; the result of a call is not stored: %s", exc.message, delivery.status)
            return 0.0
        except DISK_ERRORS:
            if delivery.status in ("taken", "failed"):
                # The provider took or refused the row. The row is not sent again, and its result is stored later.
                self._in_doubt[row.number] = row
                self._late.appendleft((row, delivery))
            raise
        return pause

    def _store(self, row: Row, delivery: Delivery) -> float:
        status = delivery.status
        if status == "taken" or (status == "failed" and delivery.answered):
            self._answered = True
        if status in ("taken", "needless"):
            self._outbox.delivered(row)
            self._lines.succeeded(row.session_id)
            return 0.0
        if status == "in doubt":
            self._in_doubt[row.number] = row
            self._outbox.failed(row, f"in doubt: {delivery.error}", counted=False)
            return 0.0
        if status == "unready":
            if delivery.error and delivery.error != row.error:
                self._outbox.failed(
                    row, delivery.error, counted=False
                )  # `hermes-memory outbox list` shows the error
            self._unready |= {row.session_id}
            return 0.0 if self._receiver.per_session else IDLE_POLL_S
        if status == "not sent":
            return BUSY_POLL_S
        if status == "dead":
            return self._bury(row, delivery.error)
        return self._failed(row, delivery)

    def _failed(self, row: Row, delivery: Delivery) -> float:
        """Store a failed try, and let the rows of the same session wait before the next one.

        If the row failed `MAX_ATTEMPTS` times while the backend answered other calls, make it a dead letter.
        """
        # A try is not counted against the row if the backend asked to wait.
        counted = self._receiver.breaker.state == "closed" and not delivery.retry_after
        self._last_failed = row.session_id
        # `_answered` is needed as well: during an outage, each new process begins with a closed breaker.
        if counted and self._answered and row.attempts + 1 >= MAX_ATTEMPTS:
            return self._bury(row, delivery.error)
        self._outbox.failed(row, delivery.error, counted=counted)
        tries = self._lines.tries(row.session_id) + 1
        # Random, so that the sessions of an outage do not all come back in the same moment.
        delay = min(MAX_BACKOFF_S, BACKOFF_S * 2 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)
        delay = max(delay, min(delivery.retry_after, MAX_RETRY_AFTER_S))
        self._lines.postpone(row.session_id, delay, tries)
        return 0.0

    def _bury(self, row: Row, error: str) -> float:
        log.error(
            "%s: %s of session %r is a dead letter: %s",
            self._name,
            row.hook,
            row.session_id,
            error,
            extra={"event": "outbox.dead_letter"},
        )
        self._outbox.bury(row, error)
        self._lines.succeeded(row.session_id)
        data = {"provider": self._name, "hook": row.hook, "row": row.number, "error": error}
        self._emit("outbox.dead_letter", data)
        return 0.0

    def _note_death(self) -> bool:
        """If the last holder of the line died while it sent a row, count a failed try of that row.

        Return True if there is such a row.

        The row may have crashed that process, and may crash this one too. From the second crash on, the reason is
        stored with the row, and the row waits `MAX_BACKOFF_S` seconds, so that a person can see the reason.
        """
        number = self._lines.row_of_dead_holder()
        if not number:  # as nearly always
            return False
        row = next((row for row in self._outbox.rows([number]) if row.state == "pending"), None)
        if row is None:
            return False
        error = "the process ended while the provider took it"
        with self._lines.holding(row):
            if row.attempts + 1 >= MAX_ATTEMPTS:
                self._bury(row, error)
            else:
                self._outbox.failed(row, error if row.attempts else row.error, counted=True)
                if row.attempts:
                    self._lines.postpone(row.session_id, MAX_BACKOFF_S, row.attempts)
        return True
