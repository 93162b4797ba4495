"""Waits that end early when the person stops the turn.

An agent names the switch that stops its turn (`stopped_by`). The code that waits, for a provider or a lock, need not
know whose turn it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Protocol

# Seconds after which a wait looks at the switch. A shorter wait never looks.
STOP_POLL_S = 0.05


class Stop(Protocol):
    """Switch that any thread may set, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether it was set."""
        ...


_stop: ContextVar[Stop | None] = ContextVar("hermes_stop", default=None)


@contextlib.contextmanager
def stopped_by(stop: Stop | None) -> Iterator[None]:
    """End waits early when `stop` is set: in the block, and on threads that run in a copy of its context."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def current_stop() -> Stop | None:
    """Return the switch of the surrounding `stopped_by`; None outside of one."""
    return _stop.get()


def stopped() -> bool:
    """Return whether the switch of the surrounding `stopped_by` is set."""
    stop = _stop.get()
    return stop is not None and stop.is_set()


def wait_unless_stopped(wait: Callable[[float], bool], seconds: float) -> bool:
    """Call `wait` in short slices, for `seconds` in all or until the turn is stopped. Return whether it succeeded.

    Args:
        wait: Waits at most the given number of seconds and returns whether the awaited thing has come.
    """
    # Most waits end within the first slice; they don't even read the clock.
    if wait(STOP_POLL_S if seconds > STOP_POLL_S else max(0.0, seconds)):
        return True
    until = time.monotonic() + seconds - STOP_POLL_S
    while (left := until - time.monotonic()) > 0 and not stopped():
        if wait(min(left, STOP_POLL_S)):
            return True
    return False
