"""The right to deliver: one process has it, and says beside it which row it is sending."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import BinaryIO

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
        self._row_file: BinaryIO | None = None
        self._row_lock = threading.Lock()
        self._file = FileLock(str(path), timeout=0, mode=PRIVATE_FILE, thread_local=False)
        self._taken = False

    @property
    def held(self) -> bool:
        """Whether this process has it."""
        return self._file.is_locked

    def acquire(self) -> bool:
        """Take it if nobody else has it. Raises `OSError` when the file can't be made."""
        if self.held:
            return True
        ensure_folder(self.path.parent)
        try:
            self._file.acquire()
        except Timeout:
            return False
        self._taken = True
        with self._row_lock, contextlib.suppress(OSError):
            handle = os.open(self._row, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            self._row_file = os.fdopen(handle, "r+b", buffering=0)
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
        with self._row_lock, contextlib.suppress(OSError):
            if self._row_file is not None:
                self._row_file.seek(0)
                self._row_file.write(b"%020d" % number)

    def release(self) -> None:
        """Let another process have it."""
        with self._row_lock:
            if self._row_file is not None:
                self._row_file.close()
                self._row_file = None
        self._file.release(force=True)
