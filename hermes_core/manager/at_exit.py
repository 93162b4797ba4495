"""What is still open when the program ends is closed then, within the seconds that a SIGTERM usually leaves.

A program that is killed, or that takes the default of SIGTERM, runs none of this: nothing that was acknowledged is lost,
and providers hear of it at the next start.
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

SECONDS = 15.0
"""For all together."""


class Open(Protocol):
    """What can be closed in a number of seconds."""

    def close(self, timeout: float) -> None:
        """Close it; a second time does nothing."""
        ...


_open: weakref.WeakKeyDictionary[Open, tuple[int, Open | None]] = weakref.WeakKeyDictionary()
"""What is open, the process that opened it, since a fork must not close what is its parent's, and what it stands on."""


def note(this: Open, on: Open | None = None) -> None:
    """Close this at the end of the program, or of what it stands on, unless it is forgotten or dropped before."""
    if not _open:
        atexit.unregister(_close)
        atexit.register(_close)
    _open[this] = os.getpid(), on


def forget(this: Open) -> None:
    """It is closed by who opened it."""
    _open.pop(this, None)


def close_all_on(this: Open | None, until: float) -> None:
    """Close what stands on this and was not dropped, the newest first, until then by the monotonic clock."""
    if this is not None and _on(this):
        gc.collect()  # what was dropped may not be collected yet
    for one in _on(this):
        _, failure = attempt(partial(one.close, max(until - time.monotonic(), 0.1)))
        if failure is not None:
            log.warning("%s was not closed in order: %r", type(one).__name__, failure)


def _on(this: Open | None) -> list[Open]:
    here = (os.getpid(), this)
    return [one for ref in reversed(_open.keyrefs()) if (one := ref()) is not None and _open.get(one) == here]


def _close() -> None:
    close_all_on(None, time.monotonic() + SECONDS)
