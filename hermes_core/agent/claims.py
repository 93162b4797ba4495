"""Which sessions a living process is in, so that those of a process that died can be told apart and ended in order.

A claim is a lock file of the session; the system drops the lock when the process dies and leaves the file.
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
_LONGEST = 200

LONGEST_WAIT = 60.0
"""Seconds to wait for another process that compresses the same session: about as long as a summary takes."""


class Claim:
    """This process's hold on one session at a time."""

    def __init__(self, home: HermesHome) -> None:
        self._folder = home.path / "locks"
        self._session_id = ""
        self._held = contextlib.ExitStack()

    def move(self, session_id: str) -> bool:
        """Hold this session instead of the one before; False for one that another process is in, which keeps it."""
        if session_id == self._session_id:
            return True
        self.release()
        with contextlib.suppress(LockTimeout):
            self._held.enter_context(locked(self._path(session_id), timeout=0.0))
            self._session_id = session_id
        return bool(self._session_id)

    def release(self) -> None:
        """Leave the session in order."""
        if self._session_id:
            path = self._path(self._session_id)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        self._held.close()
        self._session_id = ""

    def abandoned(self) -> list[str]:
        """Sessions whose process died; each is reported once."""
        ensure_folder(self._folder)
        found = []
        for file in sorted(self._folder.glob(f"{_PREFIX}*.lock")):
            session_id = unquote(file.name.removeprefix(_PREFIX).removesuffix(".lock"))
            if session_id == self._session_id:
                continue
            with contextlib.suppress(LockTimeout), locked(self._path(session_id), timeout=0.0):
                found.append(session_id)
                file.unlink(missing_ok=True)
        return found

    def _path(self, session_id: str) -> Path:
        return lock_path(self._folder, _PREFIX, session_id)


def lock_path(folder: Path, prefix: str, session_id: str) -> Path:
    """What to lock for a session, below `folder` whatever its id holds; an id too long for a name stands for itself
    by its hash.
    """
    name = quote(session_id, safe="")
    if len(name) > _LONGEST:
        name = hashlib.sha256(name.encode()).hexdigest()
    return folder / f"{prefix}{name}"


@contextlib.contextmanager
def locked_unless_stopped(path: Path, cancel: Cancel) -> Iterator[None]:
    """`locked`, for a wait that the person may stop: raises `Cancelled` then, and `LockTimeout` as `locked` does."""
    until = time.monotonic() + LONGEST_WAIT
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(path, timeout=0.0))
                break
            except LockTimeout:
                if time.monotonic() > until:
                    raise
            cancel.wait(0.05)
        yield
