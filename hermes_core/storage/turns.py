"""Writers of one database take turns, so that a busy one leaves room for the others.

SQLite lets a writer that finds the file locked sleep, up to a tenth of a second, and try again; a busy process then
keeps the others waiting for seconds. Here one waiter at a time watches the lock closely, and the others queue behind
it. This is about waiting only: what keeps the file whole is SQLite's own lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from hermes_core.storage.files import PRIVATE_FILE

log = logging.getLogger(__name__)

WATCH = 0.00005
"""Seconds between two looks of the one that is next; a transaction of ours lasts as long."""

QUEUE = 0.0005
"""Seconds between two looks of those behind it. They look, because the system's own queue would hold them up for as long as
the process before them is suspended (Ctrl-Z, a paused container)."""


class Turns:
    """The queue for the database at `path`, in `<path>.queue` and `<path>.turn`. One for each `Database`.

    Where the system has no such locks there is no queue, and SQLite's own way of waiting remains.
    """

    def __init__(self, path: Path) -> None:
        self._paths = [path.with_name(f"{path.name}.{name}") for name in ("queue", "turn")]
        self._files: list[int] | None = None
        self._works = os.name != "nt"
        _all.add(self)

    @contextlib.contextmanager
    def wait(self, timeout: float) -> Iterator[bool]:
        """Hold the turn; after `timeout` seconds go on without it and leave it to SQLite to say that it is locked.

        Whether it did not wait in vain.
        """
        if not self._take(timeout):
            yield not self._works
            return
        import fcntl

        try:
            yield True
        finally:
            for file in self._files or ():
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files; the system drops the locks with them."""
        for file in self._files or ():
            os.close(file)
        self._files = None

    def _take(self, timeout: float) -> bool:
        if not self._works:
            return False
        import fcntl

        end = time.monotonic() + timeout
        try:
            if self._files is None:
                self._files = [os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE) for path in self._paths]
            queue, turn = self._files
            if not _watched(queue, end, QUEUE):
                return False
            try:
                return _watched(turn, end)
            finally:
                fcntl.flock(queue, fcntl.LOCK_UN)
        except OSError as exc:
            log.debug("no queue for writers beside %s: %s", self._paths[0], exc)
            self._works = False
            return False


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a process just forked: what a parent that is killed had locked stays locked for as long as a fork has the file open."""
    for turns in list(_all):
        turns.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _watched(file: int, end: float, every: float = WATCH) -> bool:
    """Take the lock as soon as it is free; False when it is not by then."""
    import fcntl

    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(every)
        else:
            return True
