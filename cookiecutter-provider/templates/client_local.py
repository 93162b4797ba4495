"""The notes in one SQLite file, found by their words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes_core.kit import Database
from hermes_core.recall import analyse, grams, words


{% include ["note.py", "templates/note.py"] %}

class Client:
    """The file at `path`. Safe for two threads: each has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._db = Database(path, MIGRATIONS)
        self._db.execute("SELECT 1")  # opened here, so that a file that can't be is known at the start

    def put(self, note: Note) -> None:
        """Store a note, in place of the one with its key."""
        with self._db.transaction() as connection:
            _delete(connection, note.key)
            cursor = connection.execute(
                "INSERT INTO notes (key, owner, text, at) VALUES (?, ?, ?, ?)",
                (note.key, note.owner, note.text, note.at),
            )
            connection.execute(
                "INSERT INTO tokens (rowid, text) VALUES (?, ?)",
                (cursor.lastrowid, " ".join(_tokens(note.text))),
            )

    def search(self, question: str, owner: str | None, limit: int) -> list[Note]:
        """Notes that share a word with the question, best first; None as `owner` means everybody's."""
        asked = [form for term in analyse(question).terms for form in (term.text, *term.forms)]
        if not asked:
            return []
        rows = self._db.execute(
            """
            SELECT key, owner, notes.text AS text, at, -bm25(tokens) AS score
            FROM tokens JOIN notes ON notes.id = tokens.rowid
            WHERE tokens MATCH ? AND (? IS NULL OR owner = ?)
            ORDER BY score DESC, at DESC
            LIMIT ?
            """,
            (" OR ".join(map(_quoted, asked)), owner, owner, limit),
        )
        return [Note(**dict(row)) for row in rows]

    def forget(self, key: str) -> None:
        """Delete the note with this key; none is as well."""
        with self._db.transaction() as connection:
            _delete(connection, key)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _create_notes(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE notes (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL,
            text TEXT NOT NULL,
            at REAL NOT NULL
        ) STRICT
        """
    )
    connection.execute("CREATE VIRTUAL TABLE tokens USING fts5(text)")


# Add a migration for each change to come, and leave those that were released as they are.
MIGRATIONS = (("create notes", _create_notes),)


def _delete(connection: sqlite3.Connection, key: str) -> None:
    connection.execute("DELETE FROM tokens WHERE rowid IN (SELECT id FROM notes WHERE key = ?)", (key,))
    connection.execute("DELETE FROM notes WHERE key = ?", (key,))


def _tokens(text: str) -> Iterator[str]:
    """Words, and for scripts without spaces characters and pairs: what `analyse` makes of a question."""
    yield from words(text)
    for some in grams(text):
        yield from some


def _quoted(word: str) -> str:
    """A word as FTS5 takes it, whatever signs it holds."""
    return '"' + word.replace('"', '""') + '"'
