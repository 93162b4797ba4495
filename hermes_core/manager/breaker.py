"""The circuit breaker: after several failures in a row a backend is left alone, then asked once whether it is back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

BreakerState = Literal["closed", "open", "half-open"]

THRESHOLD = 5
"""Failures in a row that open it: one bad minute of a turn-by-turn conversation, not one bad answer."""

COOLDOWN = 60.0
"""Seconds that it stays open before one probe, and after which a probe that has not come back is waited for no longer."""


class Breaker:
    """Counts failures in a row; `admit` says whether the next call may go out. Safe between threads.

    Every admitted call that asks the backend ends in exactly one of `success`, `failure`, `answered` and `withdrawn`, unless
    it hangs where nobody waits for it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._probed_at: float | None = None
        self.last_error = ""
        """The last failure that was counted: hook and error."""
        self.closed = True
        """Whether calls go out freely; read without the lock, since nearly every call asks."""
        self.at_rest = True
        """Whether it is closed and counts nothing, so that a call that goes well changes nothing."""

    @property
    def state(self) -> BreakerState:
        """`half-open` means that the next call is the probe, or that it is under way."""
        with self._lock:
            return self._state()

    @property
    def remaining(self) -> float:
        """Seconds until a probe is allowed; 0 when calls may go out."""
        with self._lock:
            if self._opened_at is None:
                return 0.0
            return max(0.0, self._opened_at + COOLDOWN - self._clock())

    def admit(self) -> bool:
        """Whether a call may go out now. In half-open exactly one caller is told yes, until its call ended or hangs."""
        if self.closed:
            return True
        with self._lock:
            state = self._state()
            if state == "half-open" and not self._probe_under_way():
                self._probed_at = self._clock()
                return True
            return state == "closed"

    def success(self) -> None:
        """The call worked: closed, and the count starts again."""
        if not self.at_rest:
            with self._lock:
                self._close()

    def failure(self, *, at_once: bool = False) -> None:
        """The call failed or was late. `at_once` opens for this one alone: it made a person wait."""
        with self._lock:
            self._failures += 1
            enough = at_once or self._failures >= THRESHOLD
            if self._probed_at is not None or (self._opened_at is None and enough):
                self._opened_at = self._clock()
            self._probed_at = None
            self._tell()

    def answered(self) -> None:
        """The backend is well but refused this request, or its answer had the wrong type: no failure of the backend."""
        with self._lock:
            if self._probed_at is not None:
                self._close()

    def withdrawn(self) -> None:
        """The call never went out: it says nothing, and a probe is free again."""
        with self._lock:
            self._probed_at = None

    def _state(self) -> BreakerState:
        if self._opened_at is None:
            return "closed"
        return "open" if self._clock() - self._opened_at < COOLDOWN else "half-open"

    def _probe_under_way(self) -> bool:
        return self._probed_at is not None and self._clock() - self._probed_at < COOLDOWN

    def _close(self) -> None:
        self._failures = 0
        self._opened_at = None
        self._probed_at = None
        self._tell()

    def _tell(self) -> None:
        self.closed = self._opened_at is None
        self.at_rest = self.closed and not self._failures
