"""Closing at exit: objects that are still open when the program ends are closed then.

They have the seconds that a SIGTERM usually leaves. A program that is killed, or that takes the default action of
SIGTERM, runs none of this: nothing that was acknowledged is lost, and providers hear of it at the next start.
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

# Seconds for all objects together.
EXIT_TIMEOUT_S = 15.0


class Closable(Protocol):
    """Object that can be closed in a number of seconds."""

    def close(self, timeout: float) -> None:
        """Close it; a second time does nothing."""
        ...


# Each open object -> the process that opened it, since a fork must not close its parent's, and the object
# it uses.
_open: weakref.WeakKeyDictionary[Closable, tuple[int, Closable | None]] = weakref.WeakKeyDictionary()


def register(opened: Closable, user_of: Closable | None = None) -> None:
    """Close `opened` at the end of the program, unless it is unregistered or garbage-collected before.

    Args:
        user_of: An object that `opened` uses; closing that one closes `opened` before.
    """
    if not _open:
        # Registered anew, because atexit runs the last handler first: libraries that a provider imported meanwhile
        # must still work when it is closed.
        atexit.unregister(_close_at_exit)
        atexit.register(_close_at_exit)
    _open[opened] = os.getpid(), user_of


def unregister(closed: Closable) -> None:
    """Forget an object that its owner closes."""
    _open.pop(closed, None)


def close_users_of(used: Closable | None, deadline: float) -> None:
    """Close the objects that use `used`, the newest first.

    Args:
        deadline: The time on the monotonic clock at which they should be closed.
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
