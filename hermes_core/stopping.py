"""Waits that end when the person stops what they are for. An agent says in its turn what stops it; the code that waits,
for a provider or a lock, need not know whose turn it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Protocol

SLICE = 0.05
"""Seconds after which a wait looks whether it was stopped; what comes sooner costs nothing more than the wait."""


class Stop(Protocol):
    """A switch that any thread may throw, as `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it was thrown."""
        ...


_stop: ContextVar[Stop | None] = ContextVar("hermes_stop", default=None)


@contextlib.contextmanager
def stopped_by(stop: Stop | None) -> Iterator[None]:
    """Within the block, and on threads that run in a copy of its context, waits end early when `stop` is thrown."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def what_stops() -> Stop | None:
    """What `stopped_by` was given, None outside of it."""
    return _stop.get()


def stopped() -> bool:
    """Whether what goes on here was stopped."""
    stop = _stop.get()
    return stop is not None and stop.is_set()


def waited(wait: Callable[[float], bool], seconds: float) -> bool:
    """Call `wait`, which waits so many seconds at most and says whether it came, until `seconds` are over, or stopped."""
    if wait(SLICE if seconds > SLICE else max(0.0, seconds)):
        return True
    until = time.monotonic() + seconds - SLICE
    while (left := until - time.monotonic()) > 0 and not stopped():
        if wait(min(left, SLICE)):
            return True
    return False
