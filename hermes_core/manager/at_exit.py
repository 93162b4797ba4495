"""What is still open when the program ends is closed then, within the seconds that a SIGTERM usually leaves.

A program that is killed, or that takes the default of SIGTERM, runs none of this: nothing that was acknowledged is lost,
and providers hear of it at the next start.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import Protocol

SECONDS = 15.0
"""For all together."""


class Open(Protocol):
    """What can be closed in a number of seconds."""

    def close(self, timeout: float) -> None:
        """Close it; a second time does nothing."""
        ...


_open: weakref.WeakKeyDictionary[Open, int] = weakref.WeakKeyDictionary()
"""What is open, and the process that opened it: a fork must not close what is its parent's."""


def note(this: Open) -> None:
    """Close this at the end of the program, unless it is forgotten or collected before."""
    if not _open:
        atexit.unregister(_close)
        atexit.register(_close)
    _open[this] = os.getpid()


def forget(this: Open) -> None:
    """It is closed by who opened it."""
    _open.pop(this, None)


def _close() -> None:
    until = time.monotonic() + SECONDS
    for this, process in reversed(list(_open.items())):
        if process == os.getpid():
            this.close(max(until - time.monotonic(), 0.1))
