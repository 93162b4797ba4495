"""The owners of the sessions of a store: the person at home, "", and users of other platforms."""

from __future__ import annotations

from hermes_core.sessions import lineage, records
from hermes_core.sessions.daily_usage import give_daily_usage
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine


def stored_users(database: Engine, limit: int = 100, after: str = "") -> list[str]:
    """Return the owners of stored sessions in order, at most `limit` behind `after`, without the person at home."""
    users = [after]
    # One step in the index for each owner: DISTINCT would read a row of the index for each session.
    sql = "SELECT s.user FROM sessions s WHERE s.user > ? ORDER BY s.user LIMIT 1"
    while len(users) <= limit and database.exists:
        row = database.execute(sql, (users[-1],)).fetchone()
        if row is None:
            break
        users.append(row["user"])
    return users[1:]


def give_to_home(sessions: SessionStore, user: str) -> int:
    """Make the sessions of an owner those of the person at home, and return their number.

    If sessions at home have the same titles, numbers are added.
    """
    user = records.sqlite_text(user)
    sql = 'SELECT id, title, identity FROM sessions WHERE "user" = ? ORDER BY last_active'
    # Asked before the transaction, which waits for other writers.
    if not user or not sessions.database.exists or sessions.database.execute(sql, (user,)).fetchone() is None:
        return 0
    with sessions.transaction() as connection:
        rows = connection.execute(sql, (user,)).fetchall()
        for row in rows:
            # Taken off first: the index forbids the same title twice.
            lineage.set_title(connection, row["id"], "")
            # A repair of the store reads the owner from the identity.
            connection.execute(
                """UPDATE messages SET origin = 'owner' WHERE origin = 'user'
                   AND session_key = (SELECT key FROM sessions WHERE id = ?)""",
                (row["id"],),
            )
            connection.execute(
                "UPDATE sessions SET \"user\" = '', identity = ? WHERE id = ?",
                (records.with_owner(row["identity"]), row["id"]),
            )
            if row["title"]:
                lineage.set_free_title(connection, row["id"], row["title"], "")
        # What the home has stored under the same key stays.
        connection.execute(
            """UPDATE host_state SET owner = '' WHERE scope = 'user' AND owner = ? AND NOT EXISTS (
                   SELECT 1 FROM host_state h WHERE h.scope = 'user' AND h.owner = '' AND h.key = host_state.key)""",
            (user,),
        )
        give_daily_usage(connection, user)
        sessions.index.change_owner(connection)
    return len(rows)
