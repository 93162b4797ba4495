"""The mark beside state.db: the highest message id that was ever acknowledged.

SQLite can't tell a store that was closed from one whose write-ahead log was deleted, nor an empty file from a new one.
This file can: sixteen bytes, written after each commit and never before. They may lag behind (nobody waits for the
disk), so that they never accuse a whole store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from pathlib import Path

from hermes_core.storage.files import PRIVATE_FILE

log = logging.getLogger(__name__)

_FORMAT = struct.Struct("<QQ")
"""The id twice: a mark that was half written is none."""


class Mark:
    """The mark of the store at `path`, in `<path>.mark`. Without a right to write it, there simply is none."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.mark")
        self._handle: int | None = None
        self._known = 0
        self._lock = threading.Lock()

    def read(self) -> int:
        """The highest id that was acknowledged, 0 when nothing is known."""
        try:
            first, second = _FORMAT.unpack(self.path.read_bytes())
        except (OSError, struct.error):
            return 0
        return int(first) if first == second else 0

    def raise_to(self, message_id: int) -> None:
        """Note that messages up to this one are stored."""
        with self._lock:
            if message_id <= self._known:
                return
            try:
                if self._handle is None:
                    self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
                    if message_id <= (
                        higher := self.read()
                    ):  # the store lost some, and that is to be told still
                        self._known = higher
                        return
                os.lseek(self._handle, 0, os.SEEK_SET)
                os.write(self._handle, _FORMAT.pack(message_id, message_id))
            except OSError as exc:
                log.debug("no mark beside the sessions: %s", exc)
            self._known = message_id

    def forget(self) -> None:
        """Take the mark away: the store begins anew."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._handle is not None:
                os.close(self._handle)
            self._handle, self._known = None, 0
