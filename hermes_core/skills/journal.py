"""Every change that the agent makes to a skill, written before it happens, for history and undo.

A change is first an intent, then the file is replaced, then the change is done. After a crash the file itself says
which of the two happened. All writing here happens under the skills' lock.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hermes_core.errors import SkillError
from hermes_core.skills.document import normal
from hermes_core.storage.sqlite import Database

CHANGES_KEPT = 1000

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
class Change:
    """One change of one file: its text before and after, line ends and all; None where there was or is no file."""

    id: int
    path: str
    action: str
    at: float
    before: str | None
    after: str | None
    session_id: str


class Journal:
    """The changes, newest first, of the skills under one folder."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, (("skill-changes", _create),), reopen_moved=True)
        self._clock = clock

    def begin(self, path: str, action: str, before: str | None, after: str | None, session_id: str) -> int:
        """Say what is about to happen; returns the change's id."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "INSERT INTO changes (path, action, at, before, after, session_id) VALUES (?, ?, ?, ?, ?, ?)",
                (path, action, self._clock(), before, after, session_id),
            )
            connection.execute("DELETE FROM changes WHERE id <= ?", ((row.lastrowid or 0) - CHANGES_KEPT,))
            return row.lastrowid or 0

    def finish(self, change: int) -> None:
        """It happened."""
        self._database.execute("UPDATE changes SET done = 1 WHERE id = ?", (change,))

    def settle(self, read: Callable[[str], str | None]) -> None:
        """Decide about changes that a crash cut short, by what their files hold now."""
        rows = self._database.execute(_SELECT + " WHERE done = 0").fetchall()
        for row in rows:
            try:
                now = read(row["path"])
            except SkillError:  # decided when it can be read again
                continue
            if same(now, row["after"]):
                self.finish(row["id"])
            else:
                self._database.execute("DELETE FROM changes WHERE id = ?", (row["id"],))

    def changes(self, limit: int = 50) -> list[Change]:
        """What happened, newest first."""
        sql = _SELECT + " WHERE done = 1 ORDER BY id DESC LIMIT ?"
        return [Change(*row) for row in self._database.execute(sql, (limit,))]

    def standing(self) -> Change | None:
        """The newest change that no later one took back; only the last change of a file can be taken back."""
        standing: list[Change] = []
        for change in reversed(self.changes(CHANGES_KEPT)):
            last = next((one for one in reversed(standing) if one.path == change.path), None)
            if (
                change.action == "undo"
                and last
                and same(last.before, change.after)
                and same(last.after, change.before)
            ):
                standing.remove(last)
            else:
                standing.append(change)
        return standing[-1] if standing else None

    def find(self, change: int) -> Change | None:
        """One change that happened."""
        # As a text, which SQLite compares as a number: it takes no number that is too large for an id.
        row = self._database.execute(_SELECT + " WHERE id = ? AND done = 1", (str(change),)).fetchone()
        return Change(*row) if row else None

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def same(one: str | None, other: str | None) -> bool:
    """Whether two texts of a file say the same, whoever saved them; None is no file."""
    return one == other or (one is not None and other is not None and normal(one) == normal(other))


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)
