"""Places where the text of MEMORY.md, USER.md or PROJECT.md stands: a file, or a row on a server.

`NoteFile` is the file of one home. An engine that several machines share has rows in place of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

from msgspec import Struct

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


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of the bytes of a file. The journal identifies a version of the file by it."""
    return hashlib.sha256(data).hexdigest()


class NotesChanged(StorageError):
    """Notes that another program changed since they were read. The change has to be planned anew."""


class NoteText(Struct, frozen=True, dict=True):
    """The text of one place as it was read.

    Attributes:
        data: The bytes of the text.
        version: Number of changes of the row; 0 for a file, which is known by its fingerprint.
    """

    data: bytes = b""
    version: int = 0

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the bytes."""
        return fingerprint(self.data)


class NotePlace(Protocol):
    """The place where the text of one target of one owner stands.

    Attributes:
        path: The file, or the file of the read-only copy of a row.
        name: Name of the file, for people.
        key: Name of the place in the journal, the path of the file below the folder of the notes.
        in_database: True if the text stands in the database of the journal, so that a change is one commit. False if the
            journal has to say beforehand what is about to be written.
    """

    path: Path
    name: str
    key: str
    in_database: bool

    @property
    def label(self) -> str:
        """The place as messages name it."""

    def locked(self, timeout: float) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that keeps other programs from writing, if the place needs that."""

    def load(self) -> NoteText:
        """Return the text and its version. Raises `MemoryConflict` if it can't be read."""

    def read(self) -> bytes:
        """Return the bytes of the text; b"" if there is none. Raises `MemoryConflict` if it can't be read."""

    def replace(self, text: str, expected: NoteText, *, versions: int = 1) -> None:
        """Write the whole text, if it is still `expected`.

        Args:
            versions: Number by which the version of a row grows.

        Raises:
            NotesChanged: Another program changed the row since it was read. Nothing was written.
            StorageError: The text can't be written, or another program changed the file just now.
        """

    def try_back_up(self, data: bytes) -> str:
        """Keep a copy of `data` and return where it is; "" if the history is the copy."""

    def drop_backups(self) -> int:
        """Delete all copies and return their number."""

    def unreadable(self, reason: str, remedy: str) -> MemoryConflict:
        """Return the error for a text that can't be read."""


class NoteFile:
    """MEMORY.md or USER.md on disk. The caller has to hold the lock of the file while it writes.

    `key` is the name of the file in the journal. The USER.md of each user has a different key.
    """

    in_database = False

    def __init__(self, path: Path, key: str = "") -> None:
        self.path = path
        self.name = path.name
        self.key = key or path.name
        self._bytes = FileValue[bytes]()

    @property
    def label(self) -> str:
        """The path of the file."""
        return repr(str(self.path))

    @property
    def locked_path(self) -> Path:
        """Path that has to be locked: the target of a symbolic link, because two homes may link to the same file."""
        try:
            return self.path.resolve() if self.path.is_symlink() else self.path
        except (OSError, RuntimeError):  # a link to itself; `read` reports it
            return self.path

    def locked(self, timeout: float) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that holds the lock of the file."""
        return locked(self.locked_path, timeout)

    def load(self) -> NoteText:
        """Return the bytes of the file; see `read`."""
        return NoteText(self.read())

    def read(self) -> bytes:
        """Return the bytes of the file; b"" if it does not exist.

        Raises:
            MemoryConflict: The file exists and can't be read. It must not be taken for an empty file.
        """
        return self._bytes.get(self.path, self._read, missing=b"")

    def _read(self) -> bytes:
        # The type and the size are checked on the open file, since the path may be replaced in between.
        try:
            with open(self.path, "rb", opener=open_at_once) as file:
                data, status = file.read(MAX_FILE_BYTES + 1), os.fstat(file.fileno())
        except FileNotFoundError:
            return b""
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

    def replace(self, text: str, expected: NoteText, *, versions: int = 1) -> None:  # noqa: ARG002  of rows
        """Write the whole file atomically, with its old mode, if its bytes are still `expected`.

        Raises:
            StorageError: The file was changed meanwhile or can't be written. The old file is untouched.
        """

        # An editor does not take our lock. The check runs when the new bytes are on disk, directly before the rename,
        # so that a version that the editor has saved before this moment is not overwritten.
        def check() -> None:
            if self._read() != expected.data:
                raise StorageError(f"{self.name} was changed by another program just now", "try again")

        try:
            mode = stat.S_IMODE(self.path.stat().st_mode)
        except OSError:
            mode = PRIVATE_FILE
        write_checked(self.path, text.encode("utf-8"), mode, check)

    def back_up(self, data: bytes) -> Path:
        """Write a backup copy of `data` beside the file, delete the oldest copies, and return the path.

        If a copy with the same bytes exists, return its path.

        Raises:
            StorageError: The copy can't be written.
        """
        digest = fingerprint(data)[:16]
        # A refused write is often retried. One copy for equal bytes keeps the retries from deleting older copies.
        for copy in self._backups():
            if copy.name.endswith(digest):
                return copy
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        copy = self.path.with_name(f"{self.name}.bak.{moment}-{digest}")
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
        """Return the error for a file that exists and can't be read."""
        return MemoryConflict(f"{str(self.path)!r} can't be read: {reason}", remedy)

    def _backups(self) -> list[Path]:
        """Return the backup copies that this class wrote, oldest first, and no `.bak` files of other programs."""
        ours = re.compile(re.escape(self.name) + r"\.bak\.\d{8}T\d{12}-[0-9a-f]{16}")
        return sorted(path for path in self.path.parent.iterdir() if ours.fullmatch(path.name))
