"""Reading messages and turns in the order in which they stand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from hermes_core.sessions import records
from hermes_core.sessions.records import CompletedTurn, Window
from hermes_core.storage.sqlite import Database

MESSAGES = f"""
    SELECT {records.MESSAGE_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key
"""


def around(database: Database, message_id: int, window: int, roles: Sequence[str]) -> Window | None:
    """Up to `window` messages on each side of one, by their positions; None when it is not shown."""
    row = database.execute(
        "SELECT session_key, position FROM messages WHERE id = ? AND state < 2", (message_id,)
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


def completed(
    database: Database,
    since: int,
    session_id: str | None,
    stored_after: float,
    unless: Callable[[str], bool] | None,
) -> Iterator[CompletedTurn]:
    """Turns that were stored whole and not taken back, oldest first; the messages of each are read when it comes."""
    rows = database.execute(
        "SELECT t.*, s.id AS session_id, s.identity FROM turns t JOIN sessions s ON s.key = t.session_key"
        " WHERE t.key > ? AND t.state = 0 AND (?2 IS NULL OR s.id = ?2) AND t.stored_at >= ?3 ORDER BY t.key",
        (since, session_id, stored_after),
    ).fetchall()
    for row in rows:
        if unless is not None and unless(row["id"]):
            continue
        found = database.execute(
            f"{MESSAGES} WHERE m.session_key = ? AND m.state < 2 AND m.id BETWEEN ? AND ? ORDER BY m.id",
            (row["session_key"], row["first_message_id"], row["last_message_id"]),
        )
        turn = records.turn_of(row, [records.message_of(message) for message in found])
        yield CompletedTurn(row["key"], row["session_id"], turn, json.loads(row["identity"] or "{}"))
