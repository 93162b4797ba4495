"""The view of the notes on disk: MEMORY.md, USER.md or PROJECT.md, which people read and edit."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

from hermes_core.curated.rows import digest
from hermes_core.errors import MemoryConflict, StorageError
from hermes_core.storage.files import (
    PRIVATE_FILE,
    FileValue,
    locked,
    open_at_once,
    write_atomic,
    write_checked,
)

log = logging.getLogger(__name__)

MAX_BACKUPS = 10
"""Number of backup copies beside each file. The oldest are deleted first."""

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Size of the largest file that is read; a larger file does not hold notes."""

HERMES_AGENT_TIMEOUT_S = 2.0
"""Seconds to wait for Hermes Agent, which holds its lock for one write. The view is written at the next look otherwise."""


class EditedMeanwhile(StorageError):
    """View that another program changed between a look and the write. It was left as it is."""


class NoteView:
    """One file that shows notes. Threads may share an instance."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self._warning = ""
        self._bytes = FileValue[bytes | None]()

    def read(self) -> bytes | None:
        """Return the bytes of the file; None if it does not exist.

        Raises:
            MemoryConflict: The file exists and can't be read. It must not be taken for an empty file.
        """
        return self._bytes.get(self.path, self._read)

    def _read(self) -> bytes | None:
        # The type and the size are checked on the open file, since the path may be replaced in between.
        try:
            handle = open_at_once(str(self.path), os.O_RDONLY)
            try:
                status = os.fstat(handle)
                data = b"" if not stat.S_ISREG(status.st_mode) else os.read(handle, MAX_FILE_BYTES + 1)
            finally:
                os.close(handle)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self.unreadable(exc.strerror or str(exc), "check its owner, its mode and the disk") from exc
        if not stat.S_ISREG(status.st_mode):
            raise self.unreadable("it is not a regular file", "move it away")
        if len(data) > MAX_FILE_BYTES:
            raise self.unreadable(f"it holds {status.st_size:,} bytes", "move it away or shorten it by hand")
        if len(data) < status.st_size:
            reason = f"only {len(data):,} of {status.st_size:,} bytes were read"
            raise self.unreadable(reason, "check the disk")
        return data

    def written_at(self) -> float:
        """Return the time of the last change of the file in epoch seconds; that of now if it is gone."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return time.time()

    def write(self, text: str, expected: bytes | None) -> bytes:
        """Replace the file atomically, with its old mode, if its bytes are still `expected`. Return the new bytes.

        Raises:
            EditedMeanwhile: The file has other bytes.
            StorageError: The file can't be written. The old one is untouched.
        """
        data = text.encode("utf-8")

        # An editor does not take our lock. The check runs when the new bytes are on disk, directly before the rename,
        # so that a version that the editor has saved before this moment is not overwritten.
        def check() -> None:
            if self._read() != expected:
                raise EditedMeanwhile(f"{self.name} was changed by another program just now", "try again")

        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            mode = PRIVATE_FILE
        with self._locked_for_hermes_agent():
            write_checked(self.path, data, mode, check)
        self._warning = ""
        return data

    def _locked_for_hermes_agent(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that holds the lock of Hermes Agent, if this program ever wrote the file.

        It reads the file and writes it anew while it holds this lock, so that a view which we write in between is gone.
        """
        is_shared = os.access(f"{self.path}.lock", os.F_OK)
        return locked(self.path, HERMES_AGENT_TIMEOUT_S) if is_shared else contextlib.nullcontext()

    def warn(self, problem: str, reason: object) -> None:
        """Log a problem with the file, once until it was written again or has another problem."""
        if (
            problem != self._warning
        ):  # each look finds it, with the name of another temporary file in the reason
            self._warning = problem
            log.warning("%s %s: %s", self.path, problem, reason)

    def back_up(self, data: bytes) -> Path:
        """Write a backup copy of `data` beside the file, delete the oldest copies, and return the path.

        If a copy with the same bytes exists, return its path.

        Raises:
            StorageError: The copy can't be written.
        """
        name = digest(data)[:16]
        # A refused write is often retried. One copy for equal bytes keeps the retries from deleting older copies.
        for copy in self._backups():
            if copy.name.endswith(name):
                return copy
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        copy = self.path.with_name(f"{self.name}.bak.{moment}-{name}")
        write_atomic(copy, data, PRIVATE_FILE)
        for old in self._backups()[:-MAX_BACKUPS]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        return copy

    def try_back_up(self, data: bytes) -> str:
        """Back up `data` and return the path of the copy. If that fails, return a sentence that there is no copy."""
        try:
            return str(self.back_up(data))
        except StorageError as exc:
            log.warning("no backup of %s: %s", self.path, exc)
            return f"{self.path} (BACKUP FAILED — file unchanged on disk)"

    def drop_backups(self) -> int:
        """Delete all backup copies beside the file and the temporary files of killed writes. Return their number."""
        # Two homes may link to the same file.
        target = Path(os.path.realpath(self.path)) if self.path.is_symlink() else self.path
        copies = self._backups() if self.path.parent.exists() else []
        copies += [
            path
            for name, folder in {(self.name, self.path.parent), (target.name, target.parent)}
            if folder.exists()
            for path in folder.iterdir()
            if re.fullmatch(rf"\.{re.escape(name)}\.(?:bak\..+\.)?\w+\.tmp", path.name)
        ]
        for copy in copies:
            copy.unlink(missing_ok=True)
        return len(copies)

    def unreadable(self, reason: str, remedy: str) -> MemoryConflict:
        """Return the error for a file that exists and can't be read."""
        return MemoryConflict(f"{str(self.path)!r} can't be read: {reason}", remedy)

    def _backups(self) -> list[Path]:
        """Return the backup copies that this class wrote, oldest first, and no `.bak` files of other programs."""
        ours = re.compile(re.escape(self.name) + r"\.bak\.\d{8}T\d{12}-[0-9a-f]{16}")
        if not self.path.parent.is_dir():
            return []
        return sorted(path for path in self.path.parent.iterdir() if ours.fullmatch(path.name))
