"""Backups by the clock: made in the background by whichever program begins a session when one is due."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hermes_core import HermesHome, Memory
from hermes_core.config import Config, backup_folder
from hermes_core.errors import HermesError, LockTimeout
from hermes_core.storage.files import locked
from hermes_core.storage.output_file import check_output_file
from hermes_memory_archive.backup import BackupReport, make_backup, outside_paths

log = logging.getLogger(__name__)

_NAME = re.compile(r"hermes-backup-([0-9a-f]{12})-(\d{8}T\d{6}Z)(?:-(\d+))?\.zip")
_LOCK_TIMEOUT_S = 0.1
CLOSE_TIMEOUT_S = 30.0
"""Seconds that the end of a program waits for a backup that is being made."""


def backup_name(home: HermesHome, now: float) -> str:
    """Return the name of a backup that is made now.

    Homes and profiles may share a folder, so the name holds a hash of the path of the home.

    >>> backup_name(HermesHome(Path("/srv/none")), 0.0)
    'hermes-backup-26bfb7531776-19700101T000000Z.zip'
    """
    return f"hermes-backup-{_hash_of(home)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}.zip"


def _hash_of(home: HermesHome) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(home.path))).hexdigest()[:12]


def backups_in(folder: Path, home: HermesHome) -> list[Path]:
    """Return the backups of a home that this program named, oldest first."""
    if not folder.is_dir():
        return []
    names = [match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    own = sorted((match[2], int(match[3] or 0), match[0]) for match in names if match[1] == _hash_of(home))
    return [folder / name for _, _, name in own]


def prune_backups(folder: Path, home: HermesHome, keep: int) -> list[Path]:
    """Delete all but the newest backups of a home, and return the deleted ones. Other files are left alone."""
    old = backups_in(folder, home)[:-keep] if keep > 0 else []
    for path in old:
        path.unlink(missing_ok=True)
    return old


def _new_path(folder: Path, home: HermesHome, now: float) -> Path:
    """Return the path of a backup that is made now, beside those of the same second."""
    path = first = folder / backup_name(home, now)
    number = 1
    while path.exists():
        number += 1
        path = first.with_name(f"{first.stem}-{number}.zip")
    return path


class ScheduledBackups:
    """The backups of a home by `backup.every`, made on a thread of their own.

    Args:
        outside: Returns files and folders outside the home that a backup must hold.
        report: Gets a sentence if a backup failed, "" if it did not.
    """

    def __init__(
        self,
        home: HermesHome,
        config: Config,
        outside: Callable[[], Sequence[Path]],
        report: Callable[[str], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home, self._config, self._outside, self._clock = home, config, outside, clock
        self._report = report
        self._thread: threading.Thread | None = None

    @classmethod
    def watch(cls, memory: Memory) -> ScheduledBackups:
        """Make the backups of an open memory: looked for when a session begins, waited for when it is closed."""
        report = partial(memory.problem_log.extension_problems.__setitem__, "backup")
        backups = cls(memory.home, memory.config, partial(outside_paths, memory), report)
        memory.internals.at_session_start.append(backups.start_if_due)
        memory.internals.at_close.callback(backups.wait)
        return backups

    def start_if_due(self) -> None:
        """Begin a backup in the background if the newest one is old enough and none is being made."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self._is_due():
            self._thread = threading.Thread(target=self._run, name="hermes-backup", daemon=True)
            self._thread.start()

    def wait(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Wait for the backup that is being made."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _is_due(self) -> bool:
        hours = self._config.backup.every
        if hours is None:
            return False
        folder = backup_folder(self._home, self._config)
        ages = [self._clock() - path.stat().st_mtime for path in backups_in(folder, self._home)]
        # A clock that was wrong for a while leaves a backup of the future, which says nothing about today.
        return not any(0 <= age < hours * 3600 for age in ages)

    def _run(self) -> None:
        folder = backup_folder(self._home, self._config)
        try:
            # Several programs of one home begin sessions at once: one of them makes the backup.
            with locked(folder / f"backup-{_hash_of(self._home)}", _LOCK_TIMEOUT_S):
                if self._is_due():
                    report = make_backup(
                        self._home,
                        _new_path(folder, self._home, self._clock()),
                        outside=self._outside(),
                        excluded=(folder,),
                        config=self._config,
                        clock=self._clock,
                    )
                    prune_backups(folder, self._home, self._config.backup.keep)
                    log.info("backup %s: %d files, %d bytes", report.path, report.files, report.bytes)
        except LockTimeout:
            pass  # another program makes it
        except (HermesError, OSError) as exc:
            log.error("the scheduled backup failed: %s", exc)
            self._report(f"the scheduled backup failed: {exc}")
        except Exception as exc:  # nobody else hears of an error of this thread
            log.exception("the scheduled backup failed")
            self._report(f"the scheduled backup failed: {type(exc).__name__}: {exc}")
        else:
            self._report("")


def back_up_now(
    home: HermesHome,
    config: Config,
    path: Path | None,
    *,
    secrets: bool,
    force: bool,
    outside: Sequence[Path],
    on_file: Callable[[], object],
    program: str,
) -> BackupReport:
    """Make a backup at `path`; None is a new file in `backup.folder`, where old ones are pruned.

    Args:
        force: True to replace a file that exists at `path`.
    """
    folder = backup_folder(home, config)
    if path is not None:
        check_output_file(path, home, folder, force=force)
    target = path or _new_path(folder, home, time.time())
    report = make_backup(
        home,
        target,
        secrets=secrets,
        force=force,
        outside=outside,
        excluded=(folder,),
        config=config,
        on_file=on_file,
        program=program,
    )
    if path is None:
        prune_backups(folder, home, config.backup.keep)
    return report
