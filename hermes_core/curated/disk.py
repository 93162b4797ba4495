"""One memory file on disk: read it or say why not, replace it whole, copy it aside before anything is lost."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

from hermes_core.errors import MemoryConflict, StorageError
from hermes_core.storage.files import PRIVATE_FILE, open_at_once, write_atomic, write_checked

BACKUPS_KEPT = 10
"""Copies beside each file; the oldest go first."""

FILE_BOUND = 4 * 1024 * 1024
"""Bytes of a file that is still read; what is larger was not written as notes."""


class MemoryFile:
    """MEMORY.md or USER.md. Callers hold the lock while they write.

    `key` is its name in the journal, where several files of a name have one each.
    """

    def __init__(self, path: Path, key: str = "") -> None:
        self.path = path
        self.key = key or path.name

    @property
    def name(self) -> str:
        """The file's name, as messages give it."""
        return self.path.name

    @property
    def locked_path(self) -> Path:
        """The file that the lock stands for: what a symbolic link points to, since two homes may share it."""
        try:
            return self.path.resolve()
        except (OSError, RuntimeError):  # a link to itself; reading it says so
            return self.path

    def read(self) -> bytes:
        """All bytes; none when there is no file yet.

        Raises `MemoryConflict` when there is one and it can't be read: never to be taken for an empty store.
        """
        try:
            with open(self.path, "rb", opener=open_at_once) as file:
                return self._content(file.fileno(), file.read(FILE_BOUND + 1))
        except FileNotFoundError:
            return b""
        except OSError as exc:
            raise self.unreadable(exc.strerror or str(exc), "check its owner, its mode and the disk") from exc

    def replace(self, text: str, mark: str) -> None:
        """Write the whole file, atomically, keeping its mode, if what it holds has the fingerprint `mark` still.

        An editor does not know our lock: what it saves until the last moment, also while the new bytes go to the disk,
        is not overwritten. Raises `StorageError`, with the old file untouched.
        """

        def check() -> None:
            if fingerprint(self.read()) != mark:
                raise StorageError(f"{self.name} was changed by another program just now", "try again")

        write_checked(self.path, text.encode("utf-8"), self._mode(), check)

    def back_up(self, data: bytes) -> Path:
        """Copy `data` beside the file, once for equal bytes, and drop the oldest copies. Raises `StorageError`."""
        digest = fingerprint(data)[:16]
        for copy in self._backups():
            if copy.name.endswith(digest):
                return copy
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        copy = self.path.with_name(f"{self.name}.bak.{moment}-{digest}")
        write_atomic(copy, data, PRIVATE_FILE)
        for old in self._backups()[:-BACKUPS_KEPT]:
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
        return copy

    def drop_backups(self) -> int:
        """Delete all copies beside the file, also those that a killed write left; how many there were."""
        target = self.locked_path
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
        """The error for a file that is there and can't be read."""
        return MemoryConflict(f"{str(self.path)!r} can't be read: {reason}", remedy)

    def _content(self, handle: int, data: bytes) -> bytes:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise self.unreadable("it is not a regular file", "move it away")
        if len(data) > FILE_BOUND:
            raise self.unreadable(f"it holds {found.st_size:,} bytes", "move it away or shorten it by hand")
        if len(data) < found.st_size:
            raise self.unreadable(
                f"only {len(data):,} of {found.st_size:,} bytes were read", "check the disk"
            )
        return data

    def _mode(self) -> int:
        try:
            return stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            return PRIVATE_FILE

    def _backups(self) -> list[Path]:
        """Copies of ours, oldest first; another program's `.bak` files are left alone."""
        ours = re.compile(re.escape(self.name) + r"\.bak\.\d{8}T\d{12}-[0-9a-f]{16}")
        return sorted(path for path in self.path.parent.iterdir() if ours.fullmatch(path.name))


def fingerprint(data: bytes) -> str:
    """SHA-256 of a file's bytes, by which the journal knows a version again."""
    return hashlib.sha256(data).hexdigest()
