"""State that must outlive the process: writes that wait here for Honcho, and names that were given to sessions."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_core.kit import Database
from hermes_honcho.client import Entry, Line

FILE = "honcho.db"

MAX_OWN_CONCLUSIONS = 2000
"""Newest conclusions of the tool that are remembered with their turn."""

_SCHEMA = (
    "CREATE TABLE names (session TEXT PRIMARY KEY, name TEXT NOT NULL) STRICT",
    "CREATE TABLE folders (name TEXT PRIMARY KEY, folder TEXT NOT NULL) STRICT",
    "CREATE TABLE held (number INTEGER PRIMARY KEY, turn TEXT NOT NULL UNIQUE, session TEXT NOT NULL,"
    " place TEXT NOT NULL, lines TEXT NOT NULL, held_at REAL NOT NULL, error TEXT NOT NULL DEFAULT '') STRICT",
    "CREATE INDEX held_by_session ON held (session)",
    "CREATE TABLE notes (number INTEGER PRIMARY KEY, observer TEXT NOT NULL, observed TEXT NOT NULL,"
    " text TEXT NOT NULL, error TEXT NOT NULL DEFAULT '', UNIQUE (observer, observed, text)) STRICT",
    "CREATE TABLE people (person TEXT PRIMARY KEY) STRICT",
    "CREATE TABLE rewound (number INTEGER PRIMARY KEY, session TEXT NOT NULL, since REAL NOT NULL,"
    " taken TEXT NOT NULL, kept TEXT NOT NULL, noted_at REAL NOT NULL) STRICT",
    "CREATE TABLE own_conclusions (number INTEGER PRIMARY KEY, id TEXT NOT NULL, observer TEXT NOT NULL,"
    " observed TEXT NOT NULL, session TEXT NOT NULL, turn TEXT NOT NULL DEFAULT '') STRICT",
    "CREATE INDEX own_conclusions_by_session ON own_conclusions (session, turn)",
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        connection.execute(statement)


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A turn that waits for its batch. `place` is the JSON that `hold` was given."""

    turn: str
    place: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A conclusion that waits until Honcho can store it."""

    number: int
    observer: str
    observed: str
    text: str


@dataclass(frozen=True, slots=True)
class Rewind:
    """Turns of a session in Honcho that were rewound: their texts, and texts that stayed, which may say the same."""

    number: int
    session: str
    since: float
    taken: tuple[str, ...]
    kept: tuple[str, ...]
    noted_at: float


class Ledger:
    """One small database in the home, made when something has to be kept."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._db = Database(self._path, [("create", _create)], secure_delete=True)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ----------------------------------------------------------------- names

    def name_of(self, session_id: str, make: Callable[[], str]) -> str:
        """Return the name that this session got when it was first seen; `make` makes it then."""
        found = self._db.execute("SELECT name FROM names WHERE session = ?", (session_id,)).fetchone()
        if found is None:
            self._db.execute("INSERT OR IGNORE INTO names VALUES (?, ?)", (session_id, make()))
            return self.name_of(session_id, make)
        return str(found["name"])

    def claim(self, name: str, folder: Path) -> bool:
        """Give `name` to a folder if no other folder has it; return True if the folder has it."""
        self._db.execute("INSERT OR IGNORE INTO folders VALUES (?, ?)", (name, str(folder)))
        return self.is_free(name, folder)

    def is_free(self, name: str, folder: Path) -> bool:
        """Return True if `name` belongs to this folder or to none."""
        if not self._path.exists():
            return True
        found = self._db.execute("SELECT folder FROM folders WHERE name = ?", (name,)).fetchone()
        return found is None or found["folder"] == str(folder)

    # ----------------------------------------------------------------- turns

    def hold(self, turn_id: str, session_id: str, place: str, lines: Sequence[Line]) -> int:
        """Keep a turn until its batch is sent; how many turns of the session wait now. A repeat changes nothing."""
        # Escaped: half of an emoji is a text in Python and in JSON, and none that SQLite takes.
        body = json.dumps([dataclasses.asdict(line) for line in lines])
        with self._db.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO held (turn, session, place, lines, held_at) VALUES (?, ?, ?, ?, ?)",
                (turn_id, session_id, place, body, time.time()),
            )
            found = connection.execute(
                "SELECT COUNT(*) FROM held WHERE session = ? AND error = ''", (session_id,)
            ).fetchone()
        return int(found[0])

    def held(self, session_id: str) -> list[HeldTurn]:
        """Return the waiting turns of a session, in order."""
        if not self._path.exists():
            return []
        rows = self._db.execute(
            "SELECT turn, place, lines FROM held WHERE session = ? AND error = '' ORDER BY number",
            (session_id,),
        )
        return [
            HeldTurn(row["turn"], row["place"], tuple(Line(**line) for line in json.loads(row["lines"])))
            for row in rows.fetchall()
        ]

    def idle_sessions(self, before: float) -> list[str]:
        """Return the sessions with waiting turns of which the last was held before this time."""
        if not self._path.exists():
            return []
        query = "SELECT session FROM held WHERE error = '' GROUP BY session HAVING MAX(held_at) < ? ORDER BY MIN(number)"
        return [row["session"] for row in self._db.execute(query, (before,)).fetchall()]

    def release(self, turn_ids: Sequence[str]) -> None:
        """Keep these turns no longer."""
        if self._path.exists() and turn_ids:
            with self._db.transaction() as connection:
                connection.executemany("DELETE FROM held WHERE turn = ?", [(one,) for one in turn_ids])

    def refuse_turn(self, turn_id: str, error: str) -> None:
        """Note that Honcho refuses this turn. It stays, and is not sent again."""
        self._db.execute("UPDATE held SET error = ? WHERE turn = ?", (error, turn_id))

    # ----------------------------------------------------------------- notes

    def is_known(self, person: str) -> bool:
        """Return True if it was decided whether Honcho gets the notes of this person."""
        if not self._path.exists():
            return False
        found = self._db.execute("SELECT 1 FROM people WHERE person = ?", (person,))
        return found.fetchone() is not None

    def know(self, person: str, observer: str, observed: str, texts: Iterable[str]) -> None:
        """Decide that Honcho gets these notes of a person; later calls change nothing."""
        with self._db.transaction() as connection:
            if connection.execute("INSERT OR IGNORE INTO people VALUES (?)", (person,)).rowcount:
                rows = [(observer, observed, text) for text in texts]
                connection.executemany(
                    "INSERT OR IGNORE INTO notes (observer, observed, text) VALUES (?, ?, ?)", rows
                )

    def add_note(self, observer: str, observed: str, text: str) -> None:
        """Keep a conclusion until Honcho can store it."""
        self._db.execute(
            "INSERT OR IGNORE INTO notes (observer, observed, text) VALUES (?, ?, ?)",
            (observer, observed, text),
        )

    def notes(self) -> list[Note]:
        """Return the conclusions that wait, in order."""
        if not self._path.exists():
            return []
        rows = self._db.execute(
            "SELECT number, observer, observed, text FROM notes WHERE error = '' ORDER BY number"
        )
        return [Note(*row) for row in rows.fetchall()]

    def drop_notes(self, numbers: Iterable[int]) -> None:
        """Keep these conclusions no longer."""
        with self._db.transaction() as connection:
            connection.executemany("DELETE FROM notes WHERE number = ?", [(one,) for one in numbers])

    def refuse_note(self, number: int, error: str) -> None:
        """Note that Honcho refuses this conclusion. It stays, and is not sent again."""
        self._db.execute("UPDATE notes SET error = ? WHERE number = ?", (error, number))

    # --------------------------------------------------------------- rewinds

    def add_rewind(self, session: str, since: float, taken: Sequence[str], kept: Sequence[str]) -> None:
        """Remember rewound texts until Honcho has concluded from all that it was sent."""
        self._db.execute(
            "INSERT INTO rewound (session, since, taken, kept, noted_at) VALUES (?, ?, ?, ?, ?)",
            (session, since, json.dumps([*taken]), json.dumps([*kept]), time.time()),
        )

    def rewinds(self) -> list[Rewind]:
        """Return the rewinds from which Honcho may still conclude."""
        if not self._path.exists():
            return []
        rows = self._db.execute(
            "SELECT number, session, since, taken, kept, noted_at FROM rewound ORDER BY number"
        )
        return [
            Rewind(number, session, since, tuple(json.loads(taken)), tuple(json.loads(kept)), noted_at)
            for number, session, since, taken, kept, noted_at in rows.fetchall()
        ]

    def drop_rewind(self, number: int) -> None:
        """Remember this rewind no longer."""
        self._db.execute("DELETE FROM rewound WHERE number = ?", (number,))

    def add_conclusions(self, session_id: str, conclusions: Sequence[Entry]) -> None:
        """Remember conclusions that the model kept in the turn that is under way in this session."""
        rows = [(one.id, one.who, one.about, session_id) for one in conclusions]
        with self._db.transaction() as connection:
            connection.executemany(
                "INSERT INTO own_conclusions (id, observer, observed, session) VALUES (?, ?, ?, ?)", rows
            )
            connection.execute(
                "DELETE FROM own_conclusions WHERE number <= (SELECT MAX(number) FROM own_conclusions) - ?",
                (MAX_OWN_CONCLUSIONS,),
            )

    def end_turn(self, session_id: str, turn_id: str) -> None:
        """Note in which turn the model kept its last conclusions."""
        if self._path.exists():
            self._db.execute(
                "UPDATE own_conclusions SET turn = ? WHERE session = ? AND turn = ''", (turn_id, session_id)
            )

    def take_conclusions(self, session_id: str, turn_ids: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return (observer, observed, id) of the conclusions that the model kept in these turns."""
        if not self._path.exists():
            return []
        rows = self._db.execute(
            "SELECT observer, observed, id, turn FROM own_conclusions WHERE session = ?", (session_id,)
        )
        return [(row[0], row[1], row[2]) for row in rows.fetchall() if row[3] in turn_ids]

    # --------------------------------------------------------------- erasure

    def forget(self, session_id: str, name: str, peer: str) -> None:
        """Delete all that is kept of a session, by its id and its name in Honcho, and of a peer unless it is ""."""
        if not self._path.exists():
            return
        statements = (
            ("DELETE FROM held WHERE session = ?", session_id),
            ("DELETE FROM own_conclusions WHERE session = ?", session_id),
            ("DELETE FROM names WHERE session = ?", session_id),
            ("DELETE FROM rewound WHERE session = ?", name),
            ("DELETE FROM own_conclusions WHERE observed = ?", peer),
            ("DELETE FROM notes WHERE observed = ?", peer),
        )
        with self._db.transaction() as connection:
            for statement, value in statements:
                if value:
                    connection.execute(statement, (value,))
        # What was deleted stands in the write-ahead log until its pages are written back.
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # ---------------------------------------------------------------- counts

    def waiting_turns(self) -> int:
        """Return the number of turns that wait, of all sessions."""
        return self._count("SELECT COUNT(*) FROM held WHERE error = ''")

    def waiting_notes(self) -> int:
        """Return the number of conclusions that wait."""
        return self._count("SELECT COUNT(*) FROM notes WHERE error = ''")

    def refused(self) -> int:
        """Return the number of turns and conclusions that Honcho refuses."""
        turns = self._count("SELECT COUNT(*) FROM held WHERE error <> ''")
        return turns + self._count("SELECT COUNT(*) FROM notes WHERE error <> ''")

    def _count(self, query: str) -> int:
        return int(self._db.execute(query).fetchone()[0]) if self._path.exists() else 0
