"""Closing at exit: objects that are still open when the program ends are closed by an `atexit` handler.

The handler takes no longer than the seconds that usually pass between SIGTERM and SIGKILL. A program that is killed,
or that has no handler for SIGTERM, does not run it. Acknowledged writes are not lost then: they are in the outbox,
and the next start delivers them.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import time
import weakref
from functools import partial
from typing import Protocol

from hermes_core.manager.call import attempt

log = logging.getLogger(__name__)

# For all objects together, so that several hung providers can't hold up the exit one after the other.
EXIT_TIMEOUT_S = 15.0


class Closable(Protocol):
    """Object with a `close` method that takes a timeout."""

    def close(self, timeout: float) -> None:
        """Close the object within `timeout` seconds. Another call does nothing."""
        ...


# Each open object -> the process that opened it, since a fork must not close its parent's, and the object
# it uses.
_open: weakref.WeakKeyDictionary[Closable, tuple[int, Closable | None]] = weakref.WeakKeyDictionary()


def register(opened: Closable, user_of: Closable | None = None) -> None:
    """Close `opened` when the program ends, unless it is unregistered or garbage-collected before.

    Args:
        user_of: An object that `opened` uses. `opened` is closed before this object.
    """
    if not _open:
        # Registered anew, because atexit runs the last handler first: libraries that a provider imported meanwhile
        # must still work when it is closed.
        atexit.unregister(_close_at_exit)
        atexit.register(_close_at_exit)
    _open[opened] = os.getpid(), user_of


def unregister(closed: Closable) -> None:
    """Remove an object from the objects to close at exit, because the caller closes it."""
    _open.pop(closed, None)


def close_users_of(used: Closable | None, deadline: float) -> None:
    """Close the objects that were registered as users of `used`, the newest first.

    Args:
        deadline: The time on the monotonic clock at which all of them should be closed.
    """
    if used is not None and _users_of(used):
        gc.collect()  # objects that were dropped may not be collected yet, and need not be closed
    for user in _users_of(used):
        _, failure = attempt(partial(user.close, max(deadline - time.monotonic(), 0.1)))
        if failure is not None:
            log.warning("%s was not closed in order: %r", type(user).__name__, failure)


def _users_of(used: Closable | None) -> list[Closable]:
    here = (os.getpid(), used)
    return [
        user for ref in reversed(_open.keyrefs()) if (user := ref()) is not None and _open.get(user) == here
    ]


def _close_at_exit() -> None:
    close_users_of(None, time.monotonic() + EXIT_TIMEOUT_S)
