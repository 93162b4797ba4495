"""Files that a person names for an export or a backup: private, and never written over a file by mistake."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO

from hermes_core.errors import StorageError
from hermes_core.home import HermesHome

# The rest of the name is for people who look for a file of a run that was killed. File systems allow 255 bytes.
_MAX_NAME_CHARS = 40


def check_output_file(path: Path, home: HermesHome, folder: Path, *, force: bool = False) -> None:
    """Raise `StorageError` if no export or backup may be written at `path`.

    A file that exists needs `force`. Files of the home are never replaced, since each may be a database in use.

    Args:
        folder: The folder of backups, which may lie in the home.
        force: True to replace a file that exists.
    """
    # A link is judged by its own place and by its target.
    for place in (Path(os.path.realpath(path.parent)) / path.name, Path(os.path.realpath(path))):
        root = home.path.parent.parent if home.profile != "default" else home.path
        is_backup = _is_within(place, folder) and not _is_within(home.path / "x", folder)
        if _is_within(place, root) and not is_backup:
            raise StorageError(
                f"{str(path)!r} lies in the home {str(root)!r}, whose files must not be replaced",
                f"name a file outside the home, or one in {str(folder)!r}",
            )
    refuse_existing(path, "replace it with --force", force=force)


def refuse_existing(path: Path, way: str, *, force: bool) -> None:
    """Raise `StorageError` if something is at `path` and `force` is False, or if it is no regular file.

    Args:
        way: How the caller is told to replace it.
    """
    if os.path.lexists(path) and not force:
        raise StorageError(f"{str(path)!r} exists", f"name another file, or {way}")
    if path.exists() and not path.is_file():
        raise StorageError(f"{str(path)!r} is no regular file", "name another file")


def open_partial(path: Path) -> tuple[Path, IO[bytes]]:
    """Create a private file beside `path`, to be renamed to it when it is whole. Return its path and the open file.

    Its name is new each time, and a link is not followed: in a folder that others can write to, a file of a known name
    may be a link to any file of the person.
    """
    prefix = f".{path.name[:_MAX_NAME_CHARS]}."
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=".partial", dir=path.parent)
    return Path(name), os.fdopen(handle, "w+b")


def _is_within(path: Path, folder: Path) -> bool:
    """Return True if a folder contains a path, also by another spelling that the file system takes for the same."""
    real = Path(os.path.realpath(folder))
    return any(
        parent == real or (parent.exists() and real.exists() and parent.samefile(real))
        for parent in path.parents
    )
