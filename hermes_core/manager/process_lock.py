"""The right to deliver: one process has it, and says beside it which row it is sending."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from filelock import FileLock, Timeout

from hermes_core.storage.files import PRIVATE_FILE, ensure_folder


class ProcessLock:
    """A lock file that one process holds; the system drops it when the process dies.

    The file of the same name in `.row` keeps the number that `sends` was told last, without waiting for the disk: it is for
    processes that die, not for machines. Where it can't be written there simply is none.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._row = path.with_suffix(".row")
        self._file = FileLock(str(path), timeout=0, mode=PRIVATE_FILE, thread_local=False)
        self._taken = False

    def acquire(self) -> bool:
        """Take it if nobody else has it. Raises `OSError` when the file can't be made."""
        if self._file.is_locked:
            return True
        ensure_folder(self.path.parent)
        try:
            self._file.acquire()
        except Timeout:
            return False
        self._taken = True
        return True

    def died_of(self) -> int:
        """The row that the holder before us was sending when it died, told once after each taking; 0 for none."""
        if not self._taken:
            return 0
        self._taken = False
        try:
            number = int(self._row.read_text("ascii"))
        except (OSError, ValueError):
            return 0
        self.sends(0)
        return number

    def sends(self, number: int) -> None:
        """Note which row is being sent, 0 for none any more."""
        if not self._file.is_locked:
            return
        with contextlib.suppress(OSError):
            handle = os.open(self._row, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
            try:
                os.write(handle, b"%020d" % number)
            finally:
                os.close(handle)

    def release(self) -> None:
        """Let another process have it."""
        self._file.release(force=True)
