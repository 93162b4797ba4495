"""What changes rows, each function inside the caller's transaction and with the indexes kept in step."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.errors import SessionError
from hermes_core.sessions import index, lineage
from hermes_core.sessions.meta import OF_A_SESSION
from hermes_core.sessions.meta import key_of as key_of_meta
from hermes_core.sessions.records import State, columns_of, storable

USAGE = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
)
"""Counters of a session."""

_INSERT_MESSAGE = """
    INSERT INTO messages (session_key, position, state, size, timestamp, role, speaker, ref, tool_name, tool_call_id,
                          content, tool_calls, reasoning, parts)
    VALUES (:session_key, (SELECT coalesce(max(position), -1) + 1 FROM messages WHERE session_key = :session_key),
            :state, :size, :timestamp, :role, :speaker, :ref, :tool_name, :tool_call_id,
            :content, :tool_calls, :reasoning, :parts)
"""
_COUNT_MESSAGE = """
    UPDATE sessions SET message_count = message_count + 1, tool_call_count = tool_call_count + ?,
                        last_active = max(last_active, ?)
    WHERE key = ?
"""


def key_of(connection: sqlite3.Connection, session_id: str) -> int:
    """The row key of a session. Raises `SessionError` when there is no such."""
    row = connection.execute("SELECT key FROM sessions WHERE id = ?", (storable(session_id),)).fetchone()
    if row is None:
        raise SessionError(f"there is no session {session_id!r}", "create it first")
    return int(row[0])


def create_session(
    connection: sqlite3.Connection, session_id: str, source: str, at: float, details: Mapping[str, str]
) -> None:
    """Insert a session unless it is there, and fill those of its `details` that are still empty."""
    row = connection.execute(
        "SELECT user, title, message_count FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO sessions (id, source, started_at, last_active) VALUES (?, ?, ?, ?)",
            (session_id, source, at, at),
        )
    elif row["user"] != storable(details["user"]) and (
        (row["user"] and details["user"]) or (row["message_count"] and details["identity"])
    ):
        raise SessionError(f"session {session_id!r} belongs to another user", "use an id of your own")
    user, title = (row["user"], row["title"]) if row else ("", "")
    moved = not user and details["user"]
    if title and moved:  # it may be in use among the user's
        lineage.set_title(connection, session_id, "")
    for column, value in details.items():
        if column == "title":
            continue
        connection.execute(
            f"UPDATE sessions SET {column} = ? WHERE id = ? AND {column} = ''", (storable(value), session_id)
        )
    wanted = title or details["title"]
    if wanted and (moved or not title):
        free = lineage.next_title(connection, wanted, user or storable(details["user"]))
        lineage.set_title(connection, session_id, free)


def append(connection: sqlite3.Connection, key: int, message: Mapping[str, Any], now: float) -> int:
    """Insert a message and make it searchable; one whose `ref` the session has already is left as it is."""
    values = columns_of(message, now)
    if values["ref"]:
        known = connection.execute(
            "SELECT id FROM messages WHERE session_key = ? AND ref = ?", (key, values["ref"])
        ).fetchone()
        if known is not None:
            return int(known[0])
    cursor = connection.execute(_INSERT_MESSAGE, {"session_key": key, **values})
    message_id = int(cursor.lastrowid or 0)
    index.add(connection, message_id)
    calls = len(message.get("tool_calls") or ()) if values["tool_calls"] else 0
    connection.execute(_COUNT_MESSAGE, (calls, values["timestamp"], key))
    return message_id


def append_turn(
    connection: sqlite3.Connection,
    key: int,
    messages: Sequence[Mapping[str, Any]],
    turn_id: str,
    number: int,
    author: str,
    at: float,
    stored_at: float,
) -> list[int]:
    """Insert a turn's messages and its mark of completeness, unless the turn is there already. One that was
    stored as it went on and of which a message was taken back meanwhile is refused, as one that was taken back whole.
    """
    known = connection.execute("SELECT * FROM turns WHERE id = ?", (turn_id,)).fetchone()
    if known is None:
        begun = "SELECT 1 FROM messages WHERE session_key = ? AND ref >= ? AND ref < ? AND ref <> '' AND position IS NULL"
        # Their refs are the turn's id, a colon and a number; a semicolon comes next to a colon.
        if connection.execute(begun, (key, f"{turn_id}:", f"{turn_id};")).fetchone():
            raise _refused(turn_id)
        ids = [append(connection, key, message, at) for message in messages]
        connection.execute(
            "INSERT INTO turns (id, session_key, number, first_message_id, last_message_id, author, at, stored_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (turn_id, key, number, min(ids), max(ids), storable(author), at, stored_at),
        )
        return ids
    if known["session_key"] != key:
        raise SessionError(f"turn {turn_id!r} belongs to another session", "mint an id for each turn")
    if known["state"] == State.REWOUND:
        raise _refused(turn_id)
    rows = connection.execute(
        # The plus: by their ids, not through the whole session.
        "SELECT id FROM messages WHERE +session_key = ? AND id BETWEEN ? AND ? ORDER BY id",
        (key, known["first_message_id"], known["last_message_id"]),
    )
    return [row[0] for row in rows]


def _refused(turn_id: str) -> SessionError:
    return SessionError(f"turn {turn_id!r} was taken back", "mint an id for what is said in its place")


def rewind(connection: sqlite3.Connection, key: int, message_id: int) -> list[str]:
    """Hide a visible message and all after it; returns the ids of the turns that are no longer whole."""
    row = connection.execute(
        "SELECT position FROM messages WHERE session_key = ? AND id = ? AND position IS NOT NULL",
        (key, message_id),
    ).fetchone()
    if row is None:
        raise SessionError(f"message {message_id!r} is not in this session", "take one from get_messages")
    turns = turn_ids(connection, "session_key = ? AND last_message_id >= ?", (key, message_id))
    index.remove(
        connection, "id IN (SELECT id FROM messages WHERE session_key = ? AND position >= ?)", (key, row[0])
    )
    connection.execute(
        "UPDATE messages SET state = ?, position = NULL WHERE session_key = ? AND position >= ?",
        (State.REWOUND, key, row[0]),
    )
    connection.execute(
        "UPDATE turns SET state = ? WHERE session_key = ? AND last_message_id >= ?",
        (State.REWOUND, key, message_id),
    )
    connection.execute(
        "UPDATE sessions SET rewind_count = rewind_count + 1, message_count = ? WHERE key = ?", (row[0], key)
    )
    return turns


def withdraw(connection: sqlite3.Connection, key: int, message_id: int) -> None:
    """Hide one visible message, in no completed turn; those after it move up."""
    row = connection.execute(
        "SELECT position FROM messages WHERE session_key = ? AND id = ? AND position IS NOT NULL",
        (key, message_id),
    ).fetchone()
    if row is None:
        return
    index.remove(connection, "id = ?", (message_id,))
    connection.execute(
        "UPDATE messages SET state = ?, position = NULL WHERE id = ?", (State.REWOUND, message_id)
    )
    later = connection.execute(
        "SELECT id FROM messages WHERE session_key = ? AND position > ? ORDER BY position", (key, row[0])
    )
    connection.executemany("UPDATE messages SET position = position - 1 WHERE id = ?", later.fetchall())
    connection.execute("UPDATE sessions SET message_count = message_count - 1 WHERE key = ?", (key,))


def drop_carried(connection: sqlite3.Connection, key: int, ref: str) -> None:
    """Delete the copy of a message that stands in the session before; those after it move up."""
    row = connection.execute(
        "SELECT id FROM messages WHERE session_key = ? AND ref = ? AND state = ?",
        (key, storable(ref), State.CARRIED),
    ).fetchone()
    if row is not None:
        withdraw(connection, key, row[0])
        connection.execute("DELETE FROM messages WHERE id = ?", (row[0],))


def remove_unused(connection: sqlite3.Connection, session_id: str) -> bool:
    """Delete a session that holds nothing, not even what was taken back; whether it was one."""
    sql = """DELETE FROM sessions WHERE id = :id AND title = ''
             AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_key = sessions.key)
             AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_id = :id AND c.parent_id <> '')"""
    return connection.execute(sql, {"id": storable(session_id)}).rowcount > 0


def delete_session(connection: sqlite3.Connection, session_id: str) -> list[str]:
    """Delete a session and those it delegated; returns the ids of their turns."""
    turns: list[str] = []
    for doomed in lineage.delegated(connection, session_id):
        key = key_of(connection, doomed)
        turns += turn_ids(connection, "session_key = ?", (key,))
        index.remove(connection, "id IN (SELECT id FROM messages WHERE session_key = ?)", (key,))
        connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
        kept = [(key_of_meta(what, doomed),) for what in OF_A_SESSION]
        connection.executemany("DELETE FROM state_meta WHERE key = ?", kept)
        connection.execute(
            "UPDATE sessions SET parent_id = '' WHERE parent_id = ? AND parent_id <> ''", (doomed,)
        )
    return turns


def turn_ids(connection: sqlite3.Connection, condition: str, parameters: tuple[object, ...]) -> list[str]:
    """Ids of complete turns, in order."""
    sql = f"SELECT id FROM turns WHERE {condition} AND state = 0 ORDER BY key"
    return [row[0] for row in connection.execute(sql, parameters)]
