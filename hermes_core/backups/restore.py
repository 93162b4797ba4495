"""Restore of a home from a backup: checked first, put in place whole, and what was there is kept beside it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hermes_core.backups.archive import (
    HOME_FOLDER,
    OUTSIDE_FOLDER,
    BackupContent,
    database_faults,
    extract,
    opened_backup,
)
from hermes_core.backups.selection import DATABASES, KEPT_FOLDERS
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.sessions.maintenance import exclusive
from hermes_core.storage.files import PRIVATE_FOLDER, ensure_folder, remedy_for, sync_folder


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Result of a restore.

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
    return home.path.is_dir() and any(one.name not in KEPT_FOLDERS for one in home.path.iterdir())


def restore_backup(
    home: HermesHome,
    path: Path,
    *,
    force: bool = False,
    outside: bool | Collection[str] = False,
    on_file: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.time,
) -> RestoreReport:
    """Put the files of a backup into a home. The `.env` of the home stays if the backup has none.

    Args:
        force: True to move what is in the home into a folder beside it.
        outside: Places outside the home, of `BackupContent.outside`, to put files back to; what is there is moved
            aside. True for all of them.

    Raises:
        StorageError: The backup is damaged, the home is in use, it holds something and `force` is False, or a file
            can't be moved. What was there before is in place again; if it isn't, the error names the folder with it.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock()))
    staging = home.path.with_name(f".{home.path.name}.restoring-{stamp}")
    with ExitStack() as stack:
        stack.enter_context(_disk_errors(path))
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        content = _stage(path, staging, on_file)
        moves = _Moves()
        folders, put_back = dict[str, str](), dict[Path, Path]()
        for number, place in content.outside.items():
            source = staging / OUTSIDE_FOLDER / number
            if outside is True or (outside is not False and place in outside):
                target = _outside_target(home.path, place, put_back)
                put_back[target] = source / target.name if number in content.outside_files else source
            else:
                beside = Path(f"outside-{stamp}", number)
                ensure_folder(staging / HOME_FOLDER / beside.parent)
                source.replace(staging / HOME_FOLDER / beside)
                folders[str(home.path / beside)] = place
        for target in put_back:
            copy = target.with_name(f".{target.name}.restoring-{stamp}")
            ensure_folder(copy.parent)
            stack.callback(_delete, copy)
            # Another file system, as a rule: copied beside its place before anything is moved.
            shutil.move(put_back[target], copy)
            put_back[target] = copy
        for database in _databases(home.path):
            stack.enter_context(exclusive(database))
        if holds_files(home) and not force:
            raise StorageError(
                f"the home {str(home.path)!r} is not empty",
                "restore into an empty one (--home DIR), or give --force to move what is there aside",
            )
        with moves.undone_on_error(home.path):
            aside = _swap(moves, home.path, staging, stamp)
            for target, copy in put_back.items():
                if os.path.lexists(target):
                    moves.move(target, target.with_name(f"{target.name}.before-restore-{stamp}"))
                moves.move(copy, target)
    places = tuple(str(target) for target in put_back)
    return RestoreReport(home.path, len(content.files), content.created_at, aside, folders, places)


class _Moves:
    """The renames of a restore, which an error takes back."""

    def __init__(self) -> None:
        self._folders: list[Path] = []
        self._moves: list[tuple[Path, Path]] = []

    def make(self, folder: Path) -> None:
        """Make a folder where nothing is."""
        folder.mkdir(mode=PRIVATE_FOLDER)
        self._folders.append(folder)

    def move(self, source: Path, target: Path) -> None:
        """Rename a file or folder to a place where nothing is."""
        if os.path.lexists(target):
            raise StorageError(f"{str(target)!r} is in the way", "move it away, then try again")
        source.rename(target)
        self._moves.append((source, target))

    @contextmanager
    def undone_on_error(self, home: Path) -> Iterator[None]:
        """Take all renames back if the block fails."""
        complete = False
        try:
            yield
            complete = True
        except (OSError, StorageError) as exc:
            stuck = self._undo()
            fault = (
                exc.message if isinstance(exc, StorageError) else f"{exc.filename!r}: {exc.strerror or exc}"
            )
            if stuck:
                places = ", ".join(f"{str(source)!r} is now {str(target)!r}" for source, target in stuck)
                raise StorageError(
                    f"the restore of {str(home)!r} failed ({fault}), and not all files could be put back: {places}",
                    "move these back by hand",
                ) from exc
            raise StorageError(
                f"the restore of {str(home)!r} failed ({fault}); what was there is in place again",
                remedy_for(exc, "see to it, then try again")
                if isinstance(exc, OSError)
                else "see to it, then try again",
            ) from exc
        finally:
            if not complete:  # also after Ctrl-C
                self._undo()

    def _undo(self) -> list[tuple[Path, Path]]:
        """Rename everything back, the last first, and return what could not be."""
        stuck = []
        while self._moves:
            source, target = self._moves.pop()
            try:
                target.rename(source)
            except OSError:
                stuck.append((source, target))
        for folder in self._folders:
            with suppress(OSError):  # it holds what could not be renamed
                folder.rmdir()
        return stuck


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _outside_target(home: Path, place: str, others: Collection[Path]) -> Path:
    """Return the place outside the home. Raises `StorageError` if it is none that files can be put back to."""
    target = Path(place)
    overlaps = any(
        one.is_relative_to(two) or two.is_relative_to(one)
        for other in (home, *others)
        for one, two in ((Path(os.path.realpath(target)), Path(os.path.realpath(other))),)
    )
    if not target.is_absolute() or ".." in target.parts or target.parent == target or overlaps:
        raise StorageError(
            f"the backup was to put files back to {place!r}, which is no folder of its own outside the home",
            "restore it without --outside, and move these files by hand",
        )
    return target


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
            os.utime(target, (file.mtime, file.mtime))
            on_file()
    return content


def _databases(home: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(home):
        folders[:] = [
            name
            for name in folders
            if name not in ("node_modules", ".venv", "venv")
            and not (name in KEPT_FOLDERS and Path(folder) == home)
        ]
        yield from (Path(folder, name) for name in names if name.endswith(DATABASES))


def _swap(moves: _Moves, home: Path, staging: Path, stamp: str) -> Path | None:
    """Move the files of the home aside and those of the backup in. Both are renames on one file system."""
    ensure_folder(home)
    new = staging / HOME_FOLDER
    ensure_folder(new)
    if os.path.lexists(home / ".env") and not (new / ".env").exists():
        shutil.copy2(home / ".env", new / ".env", follow_symlinks=False)
    old = sorted(one for one in home.iterdir() if one.name not in KEPT_FOLDERS)
    aside = home.with_name(f"{home.name}.before-restore-{stamp}") if old else None
    if aside is not None:
        moves.make(aside)
        for one in old:
            moves.move(one, aside / one.name)
    for one in sorted(new.iterdir()):
        moves.move(one, home / one.name)
    sync_folder(home)
    sync_folder(home.parent)
    return aside


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, shutil.Error) as exc:
        fault = (exc.strerror if isinstance(exc, OSError) else "") or str(exc)
        raise StorageError(
            f"can't restore the backup {str(path)!r}: {fault}; nothing was changed",
            remedy_for(exc, "check the disk and the modes of the home and the folder that it is in")
            if isinstance(exc, OSError)
            else "don't use this file",
        ) from exc
