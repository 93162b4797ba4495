"""A zip of a home before it is changed: files as they are, databases as SQLite copies them."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder
from hermes_core.storage.sqlite import Database

_LEFT_OUT = frozenset({"migration", "logs", "profiles"})
_TRANSIENT = (".lock", "-wal", "-shm", "-journal", ".tmp", ".partial")
_SQLITE = b"SQLite format 3\0"


def back_up_home(home: HermesHome, target: Path) -> None:
    """Write the zip, private; other profiles, logs and earlier migrations are not in it.

    Raises `StorageError` (`DatabaseCorrupt` for a database that can't be copied), and there is no zip then.
    """
    ensure_folder(target.parent)
    try:
        handle = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE_FILE
        )
        with (
            os.fdopen(handle, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
            tempfile.TemporaryDirectory(dir=target.parent) as scratch,
        ):
            for path in _files(home.path):
                name = os.fsencode(path.relative_to(home.path).as_posix())
                archive.write(_copy(path, Path(scratch)), name.decode(errors="backslashreplace"))
    except (OSError, sqlite3.Error, StorageError) as exc:
        target.unlink(missing_ok=True)
        remedy = "see to it, or go on without a backup: --no-backup"
        raise StorageError(f"the backup of {str(home.path)!r} failed: {exc}", remedy) from exc


def _files(root: Path) -> Iterator[Path]:
    """Regular files of the home, links left aside."""
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink() and not name.endswith(_TRANSIENT):
                yield path


def _copy(path: Path, scratch: Path) -> Path:
    """The file itself; for a database a consistent copy, also while others write."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            return path
    copy = scratch / "database"
    database = Database(path, read_only=True)
    try:
        database.backup(copy)
    finally:
        database.close()
    return copy
