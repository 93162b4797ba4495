"""The rows of messages that a compression takes out of a session, or copies into the next one."""

from __future__ import annotations

from hermes_core.sessions.records import State, sqlite_text
from hermes_core.sessions.session_store import SessionStore

_OF_SESSION = "FROM messages m JOIN sessions s ON s.key = m.session_key WHERE s.id = ?"


def hide_message(db: SessionStore, session_id: str, message_id: int) -> None:
    """Hide one message of an incomplete turn, because the turn continues in another session.

    Later messages of the session move up by one, because positions have no gaps.
    """
    with db.database.transaction() as connection:
        # Other writers of the session wait, since positions change.
        sql = f"SELECT m.session_key, m.position {_OF_SESSION} AND m.id = ? AND m.position IS NOT NULL"
        values = (sqlite_text(session_id), message_id)
        row = connection.execute(f"{sql}{db.database.dialect.row_lock}", values).fetchone()
        if row is None:
            return
        db.index.remove(connection, "id = ?", (message_id,))
        connection.execute(
            "UPDATE messages SET state = ?, position = NULL WHERE id = ?", (State.REWOUND, message_id)
        )
        later = connection.execute(
            "SELECT id FROM messages WHERE session_key = ? AND position > ? ORDER BY position", tuple(row)
        )
        # Updated one by one, in order, because the unique index over positions must hold after each update.
        connection.executemany("UPDATE messages SET position = position - 1 WHERE id = ?", later.fetchall())
        connection.execute("UPDATE sessions SET message_count = message_count - 1 WHERE key = ?", (row[0],))


def delete_copy(db: SessionStore, session_id: str, ref: str) -> None:
    """Delete the copy, made by a compression, of the message with this `ref`; do nothing if there is no copy.

    The caller stores the message itself in the session.
    """
    with db.database.transaction() as connection:
        values = (sqlite_text(session_id), sqlite_text(ref), State.COPIED)
        sql = f"SELECT m.id {_OF_SESSION} AND m.ref = ? AND m.state = ?"
        row = connection.execute(sql, values).fetchone()
        if row is not None:
            hide_message(db, session_id, row[0])
            connection.execute("DELETE FROM messages WHERE id = ?", (row[0],))
