"""Restore of a home from a backup: checked first, put in place whole, and what was there is kept beside it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath

from hermes_core import HermesHome
from hermes_core.errors import StorageError
from hermes_core.sessions.maintenance import exclusive
from hermes_core.storage.files import PRIVATE_FOLDER, ensure_folder, remedy_for, sync_folder
from hermes_memory_archive.backup import (
    HOME_FOLDER,
    OUTSIDE_FOLDER,
    BackupContent,
    database_faults,
    extract,
    opened_backup,
)
from hermes_memory_archive.selection import (
    ASIDE,
    DATABASES,
    MAX_SETTINGS_BYTES,
    STAGING,
    files_below,
    may_be_settings,
    may_hold_keys,
    stays_in_place,
    store_folders,
    with_secrets,
    without_secrets,
)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Result of a restore.

    Attributes:
        local_secrets: Files with keys, and secrets in files, that stayed in the home, because the backup has none.
        unmerged_secrets: Files whose secrets are in `aside` alone, because the file itself has changed.
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
    local_secrets: tuple[str, ...] = ()
    unmerged_secrets: tuple[str, ...] = ()


def holds_files(home: HermesHome) -> bool:
    """Return True if a restore would have something to move aside."""
    return home.path.is_dir() and any(not stays_in_place(one.name) for one in home.path.iterdir())


def restore_backup(
    home: HermesHome,
    path: Path,
    *,
    force: bool = False,
    outside: bool | Collection[str] = False,
    on_file: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.time,
) -> RestoreReport:
    """Put the files of a backup into a home. Keys and secrets of the home stay if the backup has none.

    Args:
        force: True to move what is in the home into a folder beside it, or in it if nothing can be moved out of it.
        outside: Places outside the home, of `BackupContent.outside`, to put files back to; what is there is moved
            aside. True for all of them.

    Raises:
        StorageError: The backup is damaged, the home is in use, it holds something and `force` is False, or a file
            can't be moved. What was there before is in place again; if it isn't, the error names the folder with it.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock()))
    root = Path(os.path.realpath(home.path))
    with ExitStack() as stack:
        stack.enter_context(_disk_errors(path))
        staging, aside = _working_folders(root, stamp)
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
        copies = {target: _working_folders(target, stamp) for target in put_back}
        for target, (copy, _) in copies.items():
            ensure_folder(copy.parent)
            stack.callback(_delete, copy)
            # Another file system, as a rule: copied beside its place before anything is moved.
            shutil.move(put_back[target], copy)
        for database in _databases(home.path):
            stack.enter_context(exclusive(database))
        if holds_files(home) and not force:
            raise StorageError(
                f"the home {str(home.path)!r} is not empty",
                "restore into an empty one (--home DIR), or give --force to move what is there aside",
            )
        ensure_folder(root)
        ensure_folder(staging / HOME_FOLDER)
        local, unmerged = _keep_secrets(root, staging / HOME_FOLDER)
        with moves.undone_on_error(home.path):
            _exchange(moves, root, staging / HOME_FOLDER, aside, [staging])
            for target, (copy, old) in copies.items():
                if copy.parent == target:
                    _exchange(moves, target, copy, old, [copy])
                    continue
                if os.path.lexists(target):
                    moves.move(target, old)
                moves.move(copy, target)
            sync_folder(root)
            sync_folder(root.parent)
    return RestoreReport(
        home.path,
        len(content.files),
        content.created_at,
        aside if aside.is_dir() else None,
        folders,
        tuple(str(target) for target in put_back),
        tuple(local),
        tuple(unmerged),
    )


def _working_folders(target: Path, stamp: str) -> tuple[Path, Path]:
    """Return where the new files of a folder are made ready, and where the old ones go.

    Both are beside the folder. They are in it if nothing can be renamed out of it: it is a mount point, as in a container,
    or nobody may write to its parent.
    """
    if target.is_dir() and not target.is_symlink() and not _can_be_left(target):
        return target / f"{STAGING}{stamp}", target / f"{ASIDE}{stamp}"
    return target.with_name(f".{target.name}{STAGING}{stamp}"), target.with_name(
        f"{target.name}.{ASIDE}{stamp}"
    )


def _can_be_left(folder: Path) -> bool:
    """Return True if a file of a folder can be renamed to a place beside the folder.

    It is tried, because a mount of the same device looks like any other folder.
    """
    probe = Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))
    beside = folder.with_name(f".{folder.name}{probe.name}")
    try:
        os.rename(probe, beside)  # noqa: PTH104  the other renames are counted, and taken back
    except OSError:
        probe.rmdir()
        return False
    beside.rmdir()
    return True


def _keep_secrets(home: Path, new: Path) -> tuple[list[str], list[str]]:
    """Copy keys and secrets of a home to the files of a backup that has none.

    Returns:
        What was copied, and the files whose secrets could not be.
    """
    local, unmerged = list[str](), list[str]()
    stores = (
        home / name
        for name in store_folders(home)
        if (home / name).is_dir() and not (home / name).is_symlink()
    )
    for path in [
        *files_below(home, lambda _: None, is_home=True),
        *chain.from_iterable(map(_files_of, stores)),
    ]:
        name = path.relative_to(home)
        copy = new / name
        if may_hold_keys(path.name):
            # A backup may have a file where the home has a folder.
            if not os.path.lexists(copy) and not any((new / one).is_file() for one in name.parents):
                ensure_folder(copy.parent)
                shutil.copy2(path, copy, follow_symlinks=False)
                local.append(repr(name.as_posix()))
        elif may_be_settings(path.name) and copy.is_file() and not path.is_symlink():
            if max(path.stat().st_size, copy.stat().st_size) > MAX_SETTINGS_BYTES:
                continue
            data, old = copy.read_bytes(), path.read_bytes()
            whole = with_secrets(path, data, old)
            if whole != data:
                copy.write_bytes(whole)
                local.append(f"the secrets in {name.as_posix()!r}")
            elif data != old and without_secrets(path, old) != old and without_secrets(path, data) == data:
                unmerged.append(repr(name.as_posix()))
    return local, unmerged


def _files_of(folder: Path) -> Iterator[Path]:
    return files_below(folder, lambda _: None)


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
            and not (stays_in_place(name) and Path(folder) == home)
        ]
        yield from (Path(folder, name) for name in names if name.endswith(DATABASES))


def _exchange(moves: _Moves, folder: Path, new: Path, aside: Path, others: Collection[Path]) -> None:
    """Move what is in a folder aside, and what is in another one in. All are renames on one file system."""
    old = sorted(one for one in folder.iterdir() if one not in others and not stays_in_place(one.name))
    if old:
        moves.make(aside)
        for one in old:
            moves.move(one, aside / one.name)
    for one in sorted(new.iterdir()):
        moves.move(one, folder / one.name)


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
