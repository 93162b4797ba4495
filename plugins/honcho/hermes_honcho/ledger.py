"""State that must outlive the process: turns that wait for their batch, and the Honcho session of each session."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from hermes_core.kit import Database
from hermes_honcho.client import Line

FILE = "honcho.db"


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE names (session TEXT PRIMARY KEY, name TEXT NOT NULL) STRICT")
    connection.execute(
        "CREATE TABLE held (number INTEGER PRIMARY KEY, turn TEXT NOT NULL UNIQUE, session TEXT NOT NULL,"
        " lines TEXT NOT NULL) STRICT"
    )
    connection.execute("CREATE INDEX held_by_session ON held (session)")


class Ledger:
    """One small database in the home, made when something has to be kept."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._db = Database(self._path, [("create", _create)], secure_delete=True)

    def name_of(self, session_id: str, make: Callable[[], str]) -> str:
        """Return the name that this session got when it was first seen; `make` makes it then."""
        found = self._db.execute("SELECT name FROM names WHERE session = ?", (session_id,)).fetchone()
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO names VALUES (?, ?)", (session_id, make()))
            return self.name_of(session_id, make)
        return str(found["name"])

    def hold(self, turn_id: str, session_id: str, lines: Sequence[Line]) -> int:
        """Keep a turn until its batch is sent; how many turns of the session are kept now. A repeat changes nothing."""
        # Escaped: half of an emoji is a text in Python and in JSON, and none that SQLite takes.
        body = json.dumps([dataclasses.asdict(line) for line in lines])
        with self._db.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO held (turn, session, lines) VALUES (?, ?, ?)",
                (turn_id, session_id, body),
            )
            found = connection.execute(
                "SELECT COUNT(*) FROM held WHERE session = ?", (session_id,)
            ).fetchone()
        return int(found[0])

    def held(self, session_id: str) -> list[Line]:
        """Return the waiting messages of a session, in order."""
        if not self._path.exists():
            return []
        rows = self._db.execute("SELECT lines FROM held WHERE session = ? ORDER BY number", (session_id,))
        return [Line(**line) for row in rows.fetchall() for line in json.loads(row["lines"])]

    def waiting(self) -> int:
        """Return the number of waiting turns of all sessions."""
        if not self._path.exists():
            return 0
        return int(self._db.execute("SELECT COUNT(*) FROM held").fetchone()[0])

    def release(self, turn_ids: Sequence[str]) -> None:
        """Keep these turns no longer."""
        if self._path.exists() and turn_ids:
            with self._db.transaction() as connection:
                connection.executemany("DELETE FROM held WHERE turn = ?", [(one,) for one in turn_ids])

    def close(self) -> None:
        """Close the file."""
        self._db.close()
