"""Restore of a home from a backup: checked first, put in place whole, and what was there is kept beside it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hermes_core.backups.archive import (
    DATABASES,
    HOME_FOLDER,
    OUTSIDE_FOLDER,
    BackupContent,
    database_faults,
    extract,
    opened_backup,
)
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.sessions.maintenance import exclusive
from hermes_core.storage.files import PRIVATE_FOLDER, ensure_folder, sync_folder

STAYS = frozenset({"profiles", "backups", "logs", "locks"})
"""Folders of a home that no backup holds and a restore leaves in place."""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did.

    Attributes:
        aside: Folder with what was in the home before; None if it was empty.
        outside: Folder in the home with the files from outside the home -> the place that they were copied from.
        put_back: The places outside the home that were replaced.
    """

    home: Path
    files: int
    created_at: float
    aside: Path | None = None
    outside: dict[str, str] = field(default_factory=dict)
    put_back: tuple[str, ...] = ()


def holds_files(home: HermesHome) -> bool:
    """Return True if a restore would have something to move aside."""
    return home.path.is_dir() and any(one.name not in STAYS for one in home.path.iterdir())


def restore_backup(
    home: HermesHome,
    path: Path,
    *,
    force: bool = False,
    outside: bool = False,
    on_file: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.time,
) -> RestoreReport:
    """Put the files of a backup into a home. The `.env` of the home stays if the backup has none.

    Args:
        force: True to move what is in the home into a folder beside it.
        outside: True to put files from outside the home back where they were, and move aside what is there.

    Raises:
        StorageError: The backup is damaged, the home is in use, or it holds something and `force` is False. Nothing was changed.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock()))
    staging = home.path.with_name(f".{home.path.name}.restoring-{stamp}")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        content = _stage(path, staging, on_file)
        with ExitStack() as held:
            for database in _databases(home.path):
                held.enter_context(exclusive(database))
            if holds_files(home) and not force:
                raise StorageError(
                    f"the home {str(home.path)!r} is not empty",
                    "restore into an empty one (--home DIR), or give --force to move what is there aside",
                )
            aside = _swap(home.path, staging, stamp)
        folders, put_back = _place_outside(home.path, staging, content, stamp, outside=outside)
    return RestoreReport(home.path, len(content.files), content.created_at, aside, folders, put_back)


def _stage(path: Path, staging: Path, on_file: Callable[[], object]) -> BackupContent:
    """Extract and check all files beside the home."""
    ensure_folder(staging, PRIVATE_FOLDER)
    with opened_backup(path) as (archive, content):
        for name, file in content.files.items():
            target = staging.joinpath(*PurePosixPath(name).parts)
            extract(archive, name, file, target)
            if file.database and (faults := database_faults(target)):
                raise StorageError(f"{name!r} in the backup is damaged: {faults}", "take another backup")
            # Never more than the owner may do, whatever the archive says.
            target.chmod((file.mode & 0o700) | 0o600)
            os.utime(target, (max(0.0, file.mtime), max(0.0, file.mtime)))
            on_file()
    return content


def _databases(home: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(home):
        folders[:] = [
            name for name in folders if name not in STAYS and name not in ("node_modules", ".venv", "venv")
        ]
        yield from (Path(folder, name) for name in names if name.endswith(DATABASES))


def _swap(home: Path, staging: Path, stamp: str) -> Path | None:
    """Move the files of the home aside and those of the backup in. Both are renames on one file system."""
    ensure_folder(home)
    old = [one for one in home.iterdir() if one.name not in STAYS]
    aside = home.with_name(f"{home.name}.before-restore-{stamp}") if old else None
    if aside is not None:
        ensure_folder(aside, PRIVATE_FOLDER)
        for one in old:
            one.replace(aside / one.name)
    new = staging / HOME_FOLDER
    for one in new.iterdir() if new.is_dir() else ():
        one.replace(home / one.name)
    if aside is not None and (aside / ".env").exists() and not (home / ".env").exists():
        shutil.copy2(aside / ".env", home / ".env")
    sync_folder(home)
    sync_folder(home.parent)
    return aside


def _place_outside(
    home: Path, staging: Path, content: BackupContent, stamp: str, *, outside: bool
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Put what was outside the home back, or into a folder of the home."""
    folders, put_back = dict[str, str](), list[str]()
    for number, place in content.outside.items():
        source, target = staging / OUTSIDE_FOLDER / number, Path(place)
        if not source.is_dir():
            continue
        if not outside or not target.is_absolute() or ".." in target.parts:
            kept = home / f"outside-{stamp}" / number
            ensure_folder(kept.parent)
            source.replace(kept)
            folders[str(kept)] = place
            continue
        if target.exists():
            target.replace(target.with_name(f"{target.name}.before-restore-{stamp}"))
        ensure_folder(target.parent)
        single = source / target.name
        # A single file was stored under its own name; a folder, with all that is in it.
        moved = single if [*source.iterdir()] == [single] and single.is_file() else source
        shutil.move(moved, target)
        put_back.append(place)
    return folders, tuple(put_back)
