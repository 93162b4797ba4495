"""Journal of every change that the agent makes to a skill, for history and undo.

A change is first an intent, then the file is replaced, then the change is done. After a crash, the content of the file
tells whether the change happened. All writing happens under the lock of the skills.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hermes_core.errors import SkillError
from hermes_core.skills.document import normalize_lines
from hermes_core.storage.sqlite import Database

MAX_CHANGES = 1000
"""Changes kept; an older change can't be undone."""

_TABLE = """
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL,
    action TEXT NOT NULL,
    at REAL NOT NULL,
    before TEXT,
    after TEXT,
    session_id TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
) STRICT
"""
_SELECT = "SELECT id, path, action, at, before, after, session_id FROM changes"


@dataclass(frozen=True, slots=True)
class SkillChange:
    """Change of one file: its exact text before and after, None if there was or is no file."""

    id: int
    path: str
    action: str
    at: float
    before: str | None
    after: str | None
    session_id: str


class SkillJournal:
    """Journal of the skills under one folder."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, (("skill-changes", _create),), reopen_moved=True)
        self._clock = clock

    def begin(self, path: str, action: str, before: str | None, after: str | None, session_id: str) -> int:
        """Record a change that is about to happen, and return its id."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "INSERT INTO changes (path, action, at, before, after, session_id) VALUES (?, ?, ?, ?, ?, ?)",
                (path, action, self._clock(), before, after, session_id),
            )
            # The oldest changes go in the same transaction, so that the journal never grows beyond its limit.
            connection.execute("DELETE FROM changes WHERE id <= ?", ((row.lastrowid or 0) - MAX_CHANGES,))
            return row.lastrowid or 0

    def finish(self, change: int) -> None:
        """Mark a change as done."""
        self._database.execute("UPDATE changes SET done = 1 WHERE id = ?", (change,))

    def settle(self, read: Callable[[str], str | None]) -> None:
        """Decide the intents that a crash left: done if the file has their text, otherwise the change never happened."""
        rows = self._database.execute(_SELECT + " WHERE done = 0").fetchall()
        for row in rows:
            try:
                now = read(row["path"])
            except SkillError:  # not readable now: decided at a later call
                continue
            if same_text(now, row["after"]):
                self.finish(row["id"])
            else:
                self._database.execute("DELETE FROM changes WHERE id = ?", (row["id"],))

    def changes(self, limit: int = 50) -> list[SkillChange]:
        """Return the changes that happened, newest first."""
        sql = _SELECT + " WHERE done = 1 ORDER BY id DESC LIMIT ?"
        return [SkillChange(*row) for row in self._database.execute(sql, (limit,))]

    def last_standing(self) -> SkillChange | None:
        """Return the newest change that no later change took back, or None."""
        standing: list[SkillChange] = []
        for change in reversed(self.changes(MAX_CHANGES)):
            last = next((earlier for earlier in reversed(standing) if earlier.path == change.path), None)
            if (
                change.action == "undo"
                and last
                and same_text(last.before, change.after)
                and same_text(last.after, change.before)
            ):
                standing.remove(last)
            else:
                standing.append(change)
        return standing[-1] if standing else None

    def find(self, change: int) -> SkillChange | None:
        """Return the change of this id if it happened, else None."""
        # As a text, which SQLite compares as a number: it refuses an int that is too large for an id.
        row = self._database.execute(_SELECT + " WHERE id = ? AND done = 1", (str(change),)).fetchone()
        return SkillChange(*row) if row else None

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def same_text(left: str | None, right: str | None) -> bool:
    """Compare two texts of a file without regard to line ends and a byte order mark. None is no file."""
    return left == right or (
        left is not None and right is not None and normalize_lines(left) == normalize_lines(right)
    )


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)
