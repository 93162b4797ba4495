"""Relations between sessions (compression, branch, delegation), and the titles of conversations.

A session continues its parent by compression if its `relation` is "compression", or if it began after the parent had
ended for compression. A parent without a relation only
means that the session came after it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from hermes_core.errors import SessionError
from hermes_core.sessions.records import (
    MESSAGE_COLUMNS,
    SESSION_COLUMNS,
    ListedSession,
    StoredMessage,
    StoredSession,
    message_of,
    meta_key,
    session_of,
    sqlite_text,
)
from hermes_core.storage.engine import Engine, Reader

# Largest number of sessions in a chain or under one root. Damaged rows could make an endless chain.
MAX_SESSIONS = 10_000

MAX_TITLE_CHARS = 100

# A title with a longer number, given by hand, is a title of its own.
MAX_NUMBER_DIGITS = 9
PREVIEW_CHARS = 60

# `c` is a session, `p` its parent. A session that names another owner's session as its parent is not related to it:
# two users may have sessions of one id, and a file that is imported may name any.
_CONTINUES = """
    (c.user = p.user AND (c.relation = 'compression'
     OR (c.relation = '' AND p.end_reason = 'compression' AND c.started_at >= p.ended_at
         AND c.source NOT IN ('subagent', 'tool'))))
"""
_BRANCHES = "(c.user = p.user AND (c.relation = 'branch' OR (c.relation = '' AND p.end_reason = 'branch')))"

# Other programs stored no relation: then the source or the kind of the child tells a delegation.
# A quote within a value of JSON has a backslash before it, so that no name or title can look like this field.
_IS_DELEGATED = """
    (c.parent_id <> '' AND (c.relation = 'delegation' OR (c.relation = '' AND (c.source IN ('subagent', 'tool')
         OR c.identity LIKE '%"agent_context":"subagent"%' OR c.identity LIKE '%"agent_context":"review"%'
         OR c.identity LIKE '%"agent_context":"flush"%'))))
"""
# Any other parent without a relation only means that the child came after it: two conversations.
_RELATED = f"({_CONTINUES} OR {_BRANCHES} OR {_IS_DELEGATED})"

# A session, which is the parameter, with its ancestors, and with its descendants, as common table expressions. `link` is a
# condition on a child and its parent.
_UP = """up (id) AS (
                SELECT id FROM sessions WHERE id = ?
                UNION
                SELECT p.id FROM up JOIN sessions c ON c.id = up.id JOIN sessions p ON p.id = c.parent_id
                WHERE c.user = p.user AND {link})"""
_UNDER = """under (id) AS (
                SELECT id FROM sessions WHERE id = ?
                UNION
                SELECT c.id FROM under JOIN sessions p ON p.id = under.id JOIN sessions c ON c.parent_id = p.id AND c.parent_id <> ''
                WHERE c.user = p.user AND {link})"""

FAMILY = f"""WITH RECURSIVE {_UP.format(link=_RELATED)}, {_UNDER.format(link=_RELATED)}
              SELECT 'up', id FROM (SELECT id FROM up LIMIT {MAX_SESSIONS}) above
              UNION ALL SELECT 'under', id FROM (SELECT id FROM under LIMIT {MAX_SESSIONS}) below"""
"""The statement of which `family_from` needs the rows. Its parameters are the id of the session, twice."""

# Ids of the archived sessions: a range of keys, so that the index is used; `;` is the character after `:`.
_MARKS = "SELECT substr(key, 10) AS id FROM state_meta WHERE key >= 'archived:' AND key < 'archived;'"

_JOINERS = "\u200c\u200d"  # part of correct spelling in Persian, in the scripts of India, and in many emoji
_NUMBERED = re.compile(r"^(.*?)\s+#(\d+)$")


def tip(connection: Reader, session_id: str) -> str:
    """Return the id of the newest session into which this session was compressed; `session_id` if it never was.

    If a session was compressed into several sessions, follow the one that was compressed again, else an open one, else
    the last active one.
    """
    rows = connection.execute(
        f"""WITH RECURSIVE down (id) AS (
                SELECT id FROM sessions WHERE id = ?
                UNION
                SELECT (SELECT c.id FROM sessions c JOIN sessions p ON p.id = c.parent_id
                        WHERE c.parent_id = down.id AND c.parent_id <> '' AND {_CONTINUES}
                        ORDER BY c.end_reason = 'compression' DESC, c.ended_at IS NULL DESC, c.last_active DESC LIMIT 1)
                FROM down WHERE down.id IS NOT NULL
            ) SELECT id FROM down WHERE id IS NOT NULL LIMIT {MAX_SESSIONS}""",
        (session_id,),
    )
    return str([session_id, *(row[0] for row in rows)][-1])


def root(connection: Reader, session_id: str) -> str:
    """Return the id of the session's oldest ancestor; `session_id` if the session has no parent.

    A parent without a relation, after which the session only came, is no ancestor.
    """
    return _ancestors(connection, session_id, _RELATED)[-1]


def compressed_from(connection: Reader, session_id: str) -> list[str]:
    """Return the ids of the sessions that were compressed into this session, oldest first, then `session_id`."""
    return _ancestors(connection, session_id, _CONTINUES)[::-1]


def _ancestors(connection: Reader, session_id: str, link: str) -> list[str]:
    """Return `session_id` and the ids of the session's ancestors, nearest first.

    Stop at the first ancestor for which the SQL condition `link` on child `c` and parent `p` does not hold.
    """
    sql = f"WITH RECURSIVE {_UP.format(link=link)} SELECT id FROM up LIMIT {MAX_SESSIONS}"
    return [row[0] for row in connection.execute(sql, (session_id,))] or [session_id]


def in_context(connection: Engine, session_id: str) -> frozenset[str]:
    """Return the ids of this session and related sessions whose messages the model can still see.

    Sessions that were compressed are left out, because their messages have left the context. The session itself is left
    out if a compression removed some of its messages without a summary.
    """
    removed = set(_compressed_away(connection, session_id))
    sql = "SELECT 1 FROM state_meta WHERE key = ? AND value <> ''"
    if connection.execute(sql, (meta_key("left_out", session_id),)).fetchone():
        removed.add(session_id)
    return family(connection, session_id) - removed


def _compressed_away(connection: Reader, session_id: str) -> list[str]:
    """Return the ids of the sessions that were compressed into this session, or into one that it branched from."""
    rows = connection.execute(
        f"""WITH RECURSIVE up (id, gone) AS (
                SELECT id, FALSE FROM sessions WHERE id = ?
                UNION
                SELECT p.id, {_CONTINUES} FROM up JOIN sessions c ON c.id = up.id JOIN sessions p ON p.id = c.parent_id
                WHERE {_CONTINUES} OR {_BRANCHES}
            ) SELECT id FROM up WHERE gone LIMIT {MAX_SESSIONS}""",
        (session_id,),
    )
    return [row[0] for row in rows]


def family(database: Engine, session_id: str) -> frozenset[str]:
    """Return `session_id` and the ids of all sessions that are connected with it by parents and children.

    A compression, a branch or a delegation connects two sessions.
    """
    return family_from(database, session_id, database.execute(FAMILY, (session_id, session_id)).fetchall())


def family_from(database: Engine, session_id: str, rows: Sequence[Any]) -> frozenset[str]:
    """Return `family` from the rows of `FAMILY`. Most sessions have no parent, and need no further read."""
    above, ids = list[str](), [session_id]
    for row in rows:
        (above if row[0] == "up" else ids).append(row[1])
    return frozenset(_under(database, above[-1], _RELATED) if len(above) > 1 else ids)


def delegated(connection: Reader, session_id: str) -> list[str]:
    """Return `session_id`, the ids of sessions to which it delegated tasks, and the ids of their delegations."""
    return _under(connection, session_id, f"{_IS_DELEGATED} AND NOT {_CONTINUES}")


def _under(connection: Reader, session_id: str, link: str) -> list[str]:
    """Return `session_id` and the ids of the session's descendants.

    Do not follow a child for which the SQL condition `link` on child `c` and parent `p` does not hold.
    """
    sql = f"WITH RECURSIVE {_UNDER.format(link=link)} SELECT id FROM under LIMIT {MAX_SESSIONS}"
    return [row[0] for row in connection.execute(sql, (session_id,))] or [session_id]


def children(connection: Reader, session_id: str) -> list[str]:
    """Return the ids of the sessions that have this session as their parent, also if it is not stored."""
    rows = connection.execute(
        "SELECT id FROM sessions WHERE parent_id = ? AND parent_id <> '' ORDER BY key",
        (sqlite_text(session_id),),
    )
    return [row["id"] for row in rows]


def first_messages(connection: Reader, source: str, count: int) -> Iterator[StoredMessage]:
    """Yield the first `count` messages of each session with this source, session by session.

    The source of a session is the program or platform under which it is listed.
    """
    rows = connection.execute(
        f"""SELECT {MESSAGE_COLUMNS} FROM sessions s CROSS JOIN messages m
            WHERE m.session_key = s.key AND s.source = ? AND m.position < ? ORDER BY s.key, m.position""",
        (source, count),
    )
    return map(message_of, rows)


def list_conversations(
    database: Engine,
    *,
    sources: Sequence[str],
    exclude_sources: Sequence[str],
    exclude_sessions: Sequence[str],
    user: str | None,
    archived: bool,
    limit: int,
    offset: int,
    before: str | None,
) -> list[ListedSession]:
    """Return conversations, the last active first; see `SessionStore.list_sessions`."""
    conditions = [
        # A session that a compression began may have only a summary; it still stands for the whole conversation.
        "(s.message_count > 0 OR s.relation = 'compression')",
        # Not compressed: a compressed session is listed by the session that continues it.
        f"NOT EXISTS (SELECT 1 FROM sessions c, sessions p WHERE c.parent_id = s.id AND c.parent_id <> '' AND p.id = s.id AND {_CONTINUES})",
        # Not delegated, also if the session that delegated is gone.
        f"NOT EXISTS (SELECT 1 FROM sessions c WHERE c.id = s.id AND {_IS_DELEGATED})",
    ]
    parameters: list[object] = []
    if exclude_sessions:
        conditions.append(f"s.id NOT IN ({', '.join('?' * len(exclude_sessions))})")
        parameters.extend(map(sqlite_text, exclude_sessions))
    if user is not None:
        conditions.append("s.user = ?")
        parameters.append(user)
    if before is not None:
        at = "(SELECT last_active FROM sessions WHERE id = ?)"
        key = "(SELECT key FROM sessions WHERE id = ?)"
        conditions.append(f"s.last_active <= {at} AND (s.last_active < {at} OR s.key < {key})")
        parameters.extend([sqlite_text(before)] * 3)
    if archived:
        # Few sessions are archived, so that their marks are the way to them.
        table = f"({_MARKS}) k CROSS JOIN sessions s"
        conditions.append("s.id = k.id")
    else:
        conditions.append(f"s.id NOT IN ({_MARKS})")
        # With so many conditions SQLite would read and sort all sessions, instead of an index in order up to the limit.
        by = "sessions_by_activity" if user is None else "sessions_by_user"
        table = f"sessions s {database.dialect.indexed_by.format(by)}"
    if archived or user is None or not (sources or exclude_sources):
        for column, wanted, names in (("source", "IN", sources), ("source", "NOT IN", exclude_sources)):
            if names:
                conditions.append(f"s.{column} {wanted} ({', '.join('?' * len(names))})")
                parameters.extend(map(sqlite_text, names))
        rows = _listed(database, table, conditions, parameters, limit, offset)
    else:
        # Jobs may have begun most sessions of a store. Each source is read alone, so that those are not read.
        chosen = [name for name in sources or stored_sources(database) if name not in exclude_sources]
        rows = []
        for name in dict.fromkeys(map(sqlite_text, chosen)):
            rows += _listed(
                database,
                f"sessions s {database.dialect.indexed_by.format('sessions_by_source_user')}",
                [*conditions, "s.source = ?"],
                [*parameters, name],
                limit + offset,
                0,
            )
        rows.sort(key=lambda row: (-row["last_active"], -row["key"]))
        rows = rows[offset : offset + limit]
    return [_entry(database, row) for row in rows]


def _listed(
    connection: Reader,
    table: str,
    conditions: Sequence[str],
    parameters: Sequence[object],
    limit: int,
    offset: int,
) -> list[Any]:
    """Return the rows of sessions that meet all conditions, the last active first."""
    return connection.execute(
        f"""SELECT {SESSION_COLUMNS}, s.key FROM {table} WHERE {" AND ".join(conditions)}
            ORDER BY s.last_active DESC, s.key DESC LIMIT ? OFFSET ?""",
        (*parameters, limit, offset),
    ).fetchall()


# The sources of the stored sessions as a common table expression, with NULL at the end. Each is one step in an index,
# however many sessions it has.
SOURCES = """names (source) AS (
        SELECT min(source) FROM sessions
        UNION ALL
        SELECT (SELECT min(source) FROM sessions WHERE source > names.source)
        FROM names WHERE names.source IS NOT NULL
    )"""


def stored_sources(connection: Reader) -> list[str]:
    """Return the sources of the stored sessions."""
    rows = connection.execute(f"WITH RECURSIVE {SOURCES} SELECT source FROM names WHERE source IS NOT NULL")
    return [row[0] for row in rows]


def idle_since(database: Engine, before: float, sources: Sequence[str] = ()) -> list[StoredSession]:
    """Return open sessions with messages whose last message is older than `before` (epoch seconds), oldest first.

    Args:
        sources: Only sessions of these sources; default: all.
    """
    condition, names = database.dialect.among("s.source", sources) if sources else ("TRUE", ())
    rows = database.execute(
        f"""SELECT {SESSION_COLUMNS} FROM sessions s
            WHERE s.last_active < ? AND s.ended_at IS NULL AND s.message_count > 0 AND {condition}
            ORDER BY s.last_active""",
        (before, *names),
    )
    return [session_of(row) for row in rows]


def _entry(connection: Reader, row: Any) -> ListedSession:
    session = session_of(tuple(row)[:-1])  # the last column is for the order
    root_id = compressed_from(connection, session.id)[0]
    first = connection.execute(
        """SELECT substr(m.content, 1, 200) FROM messages m JOIN sessions s ON s.key = m.session_key
           WHERE s.id = ? AND m.role = 'user' AND m.position IS NOT NULL ORDER BY m.position LIMIT 1""",
        (root_id,),
    ).fetchone()
    preview = " ".join(first[0].split()) if first else ""
    return ListedSession(
        session, root_id, preview[:PREVIEW_CHARS] + "..." if len(preview) > PREVIEW_CHARS else preview
    )


def position_of(connection: Reader, key: int, message_id: int) -> int | None:
    """Return the position of a message in its session; None if the session has no such message, or it is hidden."""
    row = connection.execute(
        "SELECT position FROM messages WHERE session_key = ? AND id = ? AND position IS NOT NULL",
        (key, message_id),
    ).fetchone()
    return None if row is None else int(row[0])


# Columns of a session `s` that `id_among` needs: it has begun if it has an identity, or ever had a message.
ID_COLUMNS = """
    s.id, s.user, s.identity <> '' OR EXISTS (SELECT 1 FROM messages m WHERE m.session_key = s.key) AS begun
"""


def composed_id(session_id: str, user: str) -> str:
    """Return the id of a user's session if another user has one with `session_id`."""
    return f"{session_id}@{quote(user, safe='') or 'home'}"


def id_for(database: Engine, session_id: str, user: str) -> str:
    """Return the id under which a session of `user` with this id is stored, or would be stored.

    If another user has a session with this id, the user is appended to the id: hosts name sessions after chats, and two
    users may have chats of one name.
    """
    session_id, user = sqlite_text(session_id), sqlite_text(user)
    if not database.exists:
        return session_id
    sql = f"SELECT {ID_COLUMNS} FROM sessions s WHERE s.id IN (?, ?)"
    rows = database.execute(sql, (session_id, composed_id(session_id, user))).fetchall()
    return id_among(database, rows, session_id, user)


def id_among(database: Engine, rows: Iterable[Any], session_id: str, user: str) -> str:
    """Return `id_for` from rows that begin with `ID_COLUMNS`."""
    composed, stored = composed_id(session_id, user), {row[0]: row for row in rows}
    # Also if the session with the first id was deleted meanwhile: the second one stays this user's.
    if composed in stored and stored[composed][1] == user:
        return composed
    # Free, if nobody has it, or if it was made without an identity and nobody has spoken: it may hold an
    # unfinished turn, state or a frozen prompt of its owner.
    row = stored.get(session_id)
    if row is None or row[1] == user or not (row[1] or row["begun"]):
        return session_id
    # Another user may have given just this id to a session.
    return composed if composed not in stored else id_for(database, composed, user)


def require_scope(database: Engine, *scopes: object, everybody: bool) -> None:
    """Raise `SessionError` for a read that names nobody, if a user from outside has a session in the store.

    The store decides, and not what this process has begun. A program that serves users and was just restarted, or has a
    second process, has the same sessions before anybody speaks to it. A home that only its person uses needs no scope.

    Args:
        database: The engine of the store.
        scopes: What may name whose sessions are read; None for what names nobody.
        everybody: True if the caller wants the sessions of all users.
    """
    if everybody or not database.exists or any(scope is not None for scope in scopes):
        return
    if database.execute("SELECT 1 FROM sessions s WHERE s.user > '' LIMIT 1").fetchone() is not None:
        raise SessionError(
            "users from outside have sessions here, and the call does not say whose it reads",
            "pass the session or the user, or call a Conversation; everybody=True reads what all of them said",
        )


def session_key(connection: Reader, session_id: str, lock: str = "") -> int:
    """Return the row key of a session. Raise `SessionError` if the session doesn't exist.

    Args:
        lock: `Dialect.row_lock`, to let other writers of the session wait until the transaction ends.
    """
    row = connection.execute(
        f"SELECT key FROM sessions WHERE id = ?{lock}", (sqlite_text(session_id),)
    ).fetchone()
    if row is None:
        raise no_session(session_id)
    return int(row[0])


def no_session(session_id: str) -> SessionError:
    """Return the error for a session that doesn't exist."""
    return SessionError(f"there is no session {session_id!r}", "create it first")


# ---------------------------------------------------------------------- titles


def clean_title(title: str) -> str:
    """Return the title on one line, without control and invisible characters, cut to 100 characters."""
    shown = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c
        for c in sqlite_text(title)
        if unicodedata.category(c) != "Cf" or c in _JOINERS
    )
    return " ".join(shown.split())[:MAX_TITLE_CHARS].rstrip()


def next_title(connection: Reader, title: str, user: str) -> str:
    """Return `title` if no session of the user has it, else `title` with the next number: "Plan #2", "Plan #3".

    A number with which a title was given by hand is a part of the title: after "Issue #5" comes "Issue #5 #2".
    """
    wanted = clean_title(title)
    base = _base(wanted)
    if base != wanted and not _taken(connection, wanted, user):
        return wanted
    if not _taken(connection, base, user):
        base = wanted
    highest = _highest_number(connection, base, user)
    return _with_number(base, highest + 1) if highest else base


def set_free_title(connection: Reader, session_id: str, title: str, user: str) -> None:
    """Set the title of a session of this user to `title`, with the next number if another session has it.

    If another program takes the same title meanwhile, the unique index refuses this one.
    """
    values = (next_title(connection, title, user), session_id)
    connection.execute("UPDATE sessions SET title = ? WHERE id = ?", values)


def set_title(connection: Reader, session_id: str, title: str) -> str:
    """Set the title of a session and return the title as stored.

    If a session that was compressed into this session has the title, it loses the title. Raises `SessionError` if
    another session of the same user has the title.
    """
    cleaned = clean_title(title)
    holder = connection.execute(
        """SELECT id FROM sessions WHERE title = :title AND title <> '' AND id <> :id
           AND "user" = (SELECT h."user" FROM sessions h WHERE h.id = :id)""",
        {"title": cleaned, "id": session_id},
    ).fetchone()
    if holder is not None:
        if holder[0] not in compressed_from(connection, session_id):
            raise SessionError(f"title {cleaned!r} is in use by session {holder[0]!r}", "choose another")
        connection.execute("UPDATE sessions SET title = '' WHERE id = ?", (holder[0],))
    connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (cleaned, session_id))
    return cleaned


def resolve(connection: Reader, text: str, user: str | None = None) -> str | None:
    """Return the id of the session that `text` names; None if there is none.

    Args:
        connection: The connection to read with.
        text: An id, the beginning of exactly one id, or a title.
        user: Owner whose sessions are searched; None for all owners.
    """
    if not text:
        return None
    of_user, owner = _of_user(user)
    exact = connection.execute(f"SELECT id FROM sessions WHERE id = ? {of_user}", (text, *owner)).fetchone()
    if exact:
        return str(exact[0])
    prefixed = connection.execute(
        f"SELECT id FROM sessions WHERE id >= ? AND id < ? {of_user} LIMIT 2",
        (text, f"{text}{chr(0x10FFFF)}", *owner),
    ).fetchall()
    if len(prefixed) == 1:
        return str(prefixed[0][0])
    return find_titled(connection, text, user)


def find_titled(connection: Reader, title: str, user: str | None = None) -> str | None:
    """Return the id of the session with this title, or with this title and the highest number; None if there is none.

    With `user`, search only sessions of this owner. Without, those of the person at home come first: numbers count
    within one owner, and a stranger's "Plan #999" must not stand for the person's "Plan".
    """
    base = clean_title(title)
    numbers = _numbers(connection, base, user or "") if base else {}
    if base and user is None and not numbers:
        numbers = _numbers(connection, base, None)
    return numbers[max(numbers)] if numbers else None


def _base(title: str) -> str:
    match = _NUMBERED.match(title)
    return match[1] if match else title


def _with_number(base: str, number: int) -> str:
    suffix = f" #{number}"
    return base[: MAX_TITLE_CHARS - len(suffix)].rstrip() + suffix


def _highest_number(connection: Reader, base: str, user: str) -> int:
    """Return the highest number of a title of this user that begins with `base`: 1 for `base` itself, 0 for none.

    Jobs make thousands of sessions of one title, and each new one asks this. So each number of digits is one look-up
    in the index: titles of one length are in the order of their numbers.
    """
    parts, parameters = [], list[object]()
    for digits in range(1, MAX_NUMBER_DIGITS + 1):
        # A long title is cut to make room for its number: with more digits, fewer characters of it are left.
        first = _with_number(base, 10 ** (digits - 1))
        prefix = first[:-digits]
        parts.append(
            """SELECT * FROM (SELECT substr(title, CAST(? AS INTEGER)) AS number FROM sessions
               WHERE title <> '' AND "user" = ? AND length(title) = ? AND title BETWEEN ? AND ?
               AND trim(substr(title, CAST(? AS INTEGER)), '0123456789') = '' ORDER BY title DESC LIMIT 1) numbered"""
        )
        start = len(prefix) + 1
        parameters += (start, user, len(first), first, prefix + "9" * digits, start)
    numbers = [int(row[0]) for row in connection.execute(" UNION ALL ".join(parts), parameters)]
    return max([int(_taken(connection, base, user)), *numbers])


def _of_user(user: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition that a session is of this owner, and its parameters; none if `user` is None."""
    return ("", ()) if user is None else ('AND "user" = ?', (user,))


def _taken(connection: Reader, title: str, user: str) -> bool:
    sql = "SELECT 1 FROM sessions WHERE title = ? AND title <> '' AND \"user\" = ?"
    return connection.execute(sql, (title, user)).fetchone() is not None


def _numbers(connection: Reader, base: str, user: str | None = None) -> dict[int, str]:
    """Return session ids by the number in their title: 1 for the title `base`, N for the title "base #N".

    With `user`, return only sessions of this owner. If sessions of two users have the same title, return the session
    of the person at home.
    """
    of_user, owner = _of_user(user)
    rows = connection.execute(
        # One range, so that the index is used; `$` is the character after `#`.
        f"""SELECT title, id FROM sessions
           WHERE title <> '' AND title >= ? AND title < ? AND (title = ? OR title >= ?) {of_user} ORDER BY "user" = ''""",
        (base, f"{base} $", base, f"{base} #", *owner),
    )
    numbers = {}
    for title, session_id in rows:
        match = _NUMBERED.match(title)
        if title == base:
            numbers[1] = session_id
        elif match and match[1] == base:
            numbers[int(match[2])] = session_id
    return numbers
