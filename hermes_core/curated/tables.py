"""The tables of the notes. A file is MEMORY.md, USER.md or PROJECT.md of one owner, known by the path of its view."""

from __future__ import annotations

TABLES = (
    "CREATE TABLE notes (file TEXT PRIMARY KEY, owner TEXT NOT NULL, target TEXT NOT NULL, version INTEGER NOT NULL, changed_at REAL NOT NULL) STRICT",
    "CREATE INDEX notes_by_owner ON notes (owner)",
    """CREATE TABLE note_entries (file TEXT NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, origin TEXT NOT NULL, at REAL NOT NULL,
    session TEXT NOT NULL, confirmed TEXT NOT NULL, pinned INTEGER NOT NULL, change INTEGER NOT NULL, PRIMARY KEY (file, position)) STRICT""",
    """CREATE TABLE note_changes (id INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL, target TEXT NOT NULL, action TEXT NOT NULL, at REAL NOT NULL,
    before TEXT NOT NULL, after TEXT NOT NULL, gone TEXT NOT NULL, session TEXT NOT NULL, writes TEXT NOT NULL, undoes INTEGER, undone INTEGER NOT NULL DEFAULT 0, provider TEXT NOT NULL DEFAULT '') STRICT""",
    "CREATE INDEX note_changes_by_file ON note_changes (file, id)",
    "CREATE INDEX note_changes_by_provider ON note_changes (provider, id)",
    "CREATE TABLE note_events (id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, change INTEGER, subject TEXT NOT NULL, details TEXT, digest TEXT NOT NULL, hash TEXT NOT NULL) STRICT",
    "CREATE TABLE note_views (place TEXT NOT NULL, file TEXT NOT NULL, bytes_hash TEXT NOT NULL, text_hash TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (place, file)) STRICT",
    "CREATE TABLE project_keys (machine TEXT NOT NULL, place TEXT NOT NULL, key TEXT NOT NULL, git TEXT NOT NULL DEFAULT '', earlier TEXT NOT NULL DEFAULT '', PRIMARY KEY (machine, place)) STRICT",
)


def create_notes(connection: object) -> None:
    """Create the tables of the notes."""
    for statement in TABLES:
        connection.execute(statement)
