"""Temporary folder of the suite: in memory if this machine has such a file system with room, else where it always is.

A test that makes a home waits for the disk at each commit: one with 52 seconds on a disk takes 9 in memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

MEMORY = Path("/dev/shm")
MIN_FREE_BYTES = 1 << 30
"""The suite needs a third of it: what a test wrote is deleted when it has passed."""

PREFIX = "hermes-tests-"

DISK = "HERMES_TEST_DISK"
"""Environment variable: the folder for temporary files on the disk, if those of the suite are in memory."""


def is_memory_with_room(folder: Path) -> bool:
    """Return True if a folder is a tmpfs where programs may run, with room for the suite."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
        state = os.statvfs(folder)
    except OSError:
        return False
    return (
        [str(folder), "tmpfs"] in mounts
        and os.access(folder, os.W_OK)
        and not state.f_flag & os.ST_NOEXEC  # tests write programs and libraries, and run them
        and state.f_bavail * state.f_frsize >= MIN_FREE_BYTES
    )


def put_temp_folders_in_memory() -> Path | None:
    """Put the temporary folders of this process and of all that it starts in memory.

    Returns:
        The folder to delete at the end. None if the caller chose a folder with TMPDIR, as the main process of the suite
        does for its workers, or if this machine has no such file system.
    """
    if "TMPDIR" in os.environ or not is_memory_with_room(MEMORY):
        return None
    delete_folders_of_dead_runs()
    os.environ[DISK] = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=MEMORY))
    if os.getuid() == 0:
        folder.chmod(0o711)  # a server runs as another user, in a folder below
    _lock(folder)  # until this process ends
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # pytest has asked for it already
    return folder


def delete_folders_of_dead_runs() -> None:
    """Delete what killed runs of this user left behind, since it takes memory."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            state = folder.stat()
            # A run that has just made its folder locks it a moment later.
            if state.st_uid == os.getuid() and time.time() - state.st_mtime > 60 and _lock(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> bool:
    """Lock a folder for as long as this process lives, and return True; False if another process has it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    return True
