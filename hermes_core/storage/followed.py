"""A database at a path, also after somebody deleted or moved its file under a running program."""

from __future__ import annotations

from collections.abc import Callable

from hermes_core.storage.sqlite import Database


class Followed:
    """What `open_at_path` opens; opened anew where another file, or none, stands at the path by now."""

    def __init__(self, open_at_path: Callable[[], Database]) -> None:
        self._open = open_at_path
        self._opened = [open_at_path()]

    @property
    def now(self) -> Database:
        """The database that stands at the path now."""
        if self._opened[-1].moved:
            self._opened.append(self._open())  # the old one stays, since a thread may be reading it
        return self._opened[-1]

    def close(self) -> None:
        """Close all that were opened."""
        for database in self._opened:
            database.close()
