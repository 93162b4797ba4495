"""Lock files that tell which sessions a living process has open.

When a process dies, the operating system drops its lock and the lock file stays. So a file without a lock belongs to a
session whose process crashed.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from hermes_core.agent.cancel import Cancel
from hermes_core.errors import LockTimeout
from hermes_core.home import HermesHome
from hermes_core.storage.files import ensure_folder, locked

_PREFIX = "session-"
# Characters of an id in a file name. File systems allow 255 bytes, and prefix and suffix take some of them.
_MAX_NAME = 200

# Wait for another process that compresses the same session: about as long as a summary takes.
COMPRESS_LOCK_TIMEOUT_S = 60.0


class SessionLock:
    """A lock by which this process shows others that it has a session open. It holds at most one session at a time."""

    def __init__(self, home: HermesHome) -> None:
        self._folder = home.path / "locks"
        self._session_id = ""
        self._lock = contextlib.ExitStack()

    def move(self, session_id: str) -> bool:
        """Release the previous session and lock this session; return False if another process has this session open."""
        if session_id == self._session_id:
            return True
        self.release()
        with contextlib.suppress(LockTimeout):
            self._lock.enter_context(locked(self._path(session_id), timeout=0.0))
            self._session_id = session_id
        return bool(self._session_id)

    def release(self) -> None:
        """Release the lock and remove its file."""
        if self._session_id:
            # The file goes first: between an unlock and the removal another process would take it for a crash.
            path = self._path(self._session_id)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        self._lock.close()
        self._session_id = ""

    def crashed(self) -> list[str]:
        """Return the ids of sessions whose process died. Remove their lock files, so each id is returned only once."""
        ensure_folder(self._folder)
        ids = []
        for file in sorted(self._folder.glob(f"{_PREFIX}*.lock")):
            session_id = unquote(file.name.removeprefix(_PREFIX).removesuffix(".lock"))
            if session_id == self._session_id:
                continue
            # If the process lives, it holds the lock: `locked` raises at once, and the id is skipped.
            with contextlib.suppress(LockTimeout), locked(self._path(session_id), timeout=0.0):
                ids.append(session_id)
                file.unlink(missing_ok=True)
        return ids

    def _path(self, session_id: str) -> Path:
        return lock_path(self._folder, _PREFIX, session_id)


def lock_path(folder: Path, prefix: str, session_id: str) -> Path:
    """Return the path to lock for a session. It is inside `folder`, whatever characters `session_id` contains.

    If the id is too long for a file name, its hash takes its place.
    """
    name = quote(session_id, safe="")
    if len(name) > _MAX_NAME:
        name = hashlib.sha256(name.encode()).hexdigest()
    return folder / f"{prefix}{name}"


@contextlib.contextmanager
def locked_unless_cancelled(path: Path, cancel: Cancel) -> Iterator[None]:
    """Hold the lock on `path` within the block; wait for it if another process holds it.

    Raises:
        Cancelled: `cancel` was set during the wait.
        LockTimeout: the wait took more than `COMPRESS_LOCK_TIMEOUT_S` seconds.
    """
    deadline = time.monotonic() + COMPRESS_LOCK_TIMEOUT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path, timeout=0.0))
                break
            except LockTimeout:
                if time.monotonic() > deadline:
                    raise
            # Polled: a wait inside `locked` could not be cancelled.
            cancel.wait(0.05)
        yield
