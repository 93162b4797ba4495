"""Reading messages and turns in the order in which they stand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence

from hermes_core.sessions import records
from hermes_core.sessions.records import CompletedTurn, Window
from hermes_core.storage.sqlite import Database

AT_ONCE = 200
"""Turns that are looked up together."""

MESSAGES = f"""
    SELECT {records.MESSAGE_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key
"""


def around(database: Database, message_id: int, window: int, roles: Sequence[str]) -> Window | None:
    """Up to `window` messages on each side of one, by their positions; None when it is not shown."""
    row = database.execute(
        "SELECT session_key, position FROM messages WHERE id = ? AND position IS NOT NULL", (message_id,)
    ).fetchone()
    if row is None:
        return None
    key, position = row
    rows = database.execute(
        f"{MESSAGES} WHERE m.session_key = ? AND m.position BETWEEN ? AND ? ORDER BY m.position",
        (key, position - window, position + window),
    )
    last = database.execute("SELECT max(position) FROM messages WHERE session_key = ?", (key,)).fetchone()[0]
    shown = [m for m in map(records.message_of, rows) if not roles or m.role in roles or m.id == message_id]
    return Window(tuple(shown), max(position - window, 0), max(last - position - window, 0))


def beginnings(database: Database, source: str, most: int) -> Iterator[records.StoredMessage]:
    """The first messages, `most` at most, of each session of a source, one session after the other."""
    rows = database.execute(
        f"""SELECT {records.MESSAGE_COLUMNS} FROM sessions s CROSS JOIN messages m ON m.session_key = s.key
            WHERE s.source = ? AND m.position < ? ORDER BY s.key, m.position""",
        (source, most),
    )
    return map(records.message_of, rows)


def ended(
    database: Database, session_id: str, messages: Sequence[records.StoredMessage]
) -> list[records.StoredMessage]:
    """Those of a session's messages that were said there, in no turn or in a completed one."""
    rows = database.execute(
        "SELECT t.id FROM turns t JOIN sessions s ON s.key = t.session_key WHERE s.id = ? AND t.state = 0",
        (records.storable(session_id),),
    )
    known = {"", *(row[0] for row in rows)}
    return [m for m in messages if not m.carried and records.turn_of_ref(m.ref) in known]


def completed(
    database: Database,
    since: int,
    session_id: str | None,
    stored_after: float,
    unless: Callable[[str], bool] | None,
) -> Iterator[CompletedTurn]:
    """Turns that were stored whole and not taken back, oldest first; the messages of each are read when it comes."""
    within, whose = "", tuple[str, ...]()
    if session_id is not None:
        within, whose = "AND t.session_key = (SELECT key FROM sessions WHERE id = ?)", (session_id,)
    sql = f"""SELECT t.*, s.id AS session_id, s.identity FROM turns t JOIN sessions s ON s.key = t.session_key
        WHERE t.key > ? AND t.state = 0 AND t.stored_at >= ? {within} ORDER BY t.key LIMIT {AT_ONCE}"""
    while rows := database.execute(sql, (since, stored_after, *whose)).fetchall():
        for row in rows:
            if unless is None or not unless(row["id"]):
                yield _completed(database, row)
        since = rows[-1]["key"]


def _completed(database: Database, row: sqlite3.Row) -> CompletedTurn:
    with database.sound():
        found = database.execute(
            # The plus: by their ids, not through the whole session.
            f"{MESSAGES} WHERE +m.session_key = ? AND m.state < 2 AND m.id BETWEEN ? AND ? ORDER BY m.id",
            (row["session_key"], row["first_message_id"], row["last_message_id"]),
        )
        turn = records.turn_of(row, [records.message_of(message) for message in found])
        return CompletedTurn(row["key"], row["session_id"], turn, json.loads(row["identity"] or "{}"))
