"""The circuit breaker: it stops calls to a backend after several failures in a row, and allows a probe later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]

# Failures in a row that open the breaker: one bad minute of a conversation, not one bad answer.
MAX_FAILURES = 5

# Seconds that the breaker stays open before one probe, and after which a probe that hangs counts no longer.
COOLDOWN_S = 60.0


class Breaker:
    """Counter of failures in a row that decides whether the next call may go out. Safe to share between threads.

    After `admit`, report the end of the call by exactly one of `success`, `failure`, `answered` and `withdrawn`. A
    call that hangs may stay unreported.

    Attributes:
        last_error: Hook and error of the last failure that was counted.
        closed: True if calls may go out. Read without the lock, because nearly every call reads this attribute.
        at_rest: True if the breaker is closed and its count is 0, so that a success need not be reported.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._probed_at: float | None = None
        self.last_error = ""
        self.closed = True
        self.at_rest = True

    @property
    def state(self) -> BreakerState:
        """State of the breaker. "half-open" means that the next call is the probe, or that the probe is running."""
        with self._lock:
            return self._state()

    @property
    def remaining(self) -> float:
        """Seconds until a probe is allowed; 0 if calls may go out."""
        with self._lock:
            if self._opened_at is None:
                return 0.0
            return max(0.0, self._opened_at + COOLDOWN_S - self._clock())

    def admit(self) -> bool:
        """Return True if a call may go out now.

        A half-open breaker returns True to one caller: the probe. The others get False until the probe ends or hangs.
        """
        if self.closed:
            return True
        with self._lock:
            state = self._state()
            if state != "half-open":
                return state == "closed"
            # A probe that never returns must not keep the breaker open for ever.
            if self._probed_at is not None and self._clock() - self._probed_at < COOLDOWN_S:
                return False
            self._probed_at = self._clock()
            return True

    def success(self) -> None:
        """Report a call that succeeded: close the breaker and set its count to 0."""
        if not self.at_rest:
            with self._lock:
                self._close()

    def failure(self) -> None:
        """Report a call that failed or was late: count it, and open the breaker at the limit."""
        with self._lock:
            self._failures += 1
            enough = self._failures >= MAX_FAILURES
            if self._probed_at is not None or (self._opened_at is None and enough):
                self._opened_at = self._clock()
            self._probed_at = None
            self._publish()

    def answered(self) -> None:
        """Report a call that the backend refused or answered with a wrong type.

        If the call was a probe, close the breaker: a backend that refuses is reachable.
        """
        with self._lock:
            if self._probed_at is not None:
                self._close()

    def withdrawn(self) -> None:
        """Report a call that was never made. If the call was the probe, the next call becomes the probe."""
        with self._lock:
            self._probed_at = None

    def _state(self) -> BreakerState:
        if self._opened_at is None:
            return "closed"
        return "open" if self._clock() - self._opened_at < COOLDOWN_S else "half-open"

    def _close(self) -> None:
        self._failures = 0
        self._opened_at = None
        self._probed_at = None
        self._publish()

    def _publish(self) -> None:
        self.closed = self._opened_at is None
        self.at_rest = self.closed and not self._failures
