"""How sessions come from one another: compression chains, branches, delegations, and the titles along a chain.

A session continues its parent by compression when it says so, or when it began after its parent had ended for
compression; a session that began while its parent lived was delegated by it.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import unicodedata
from collections.abc import Sequence

from hermes_core.errors import SessionError
from hermes_core.sessions.records import SESSION_COLUMNS, ListedSession, session_of, storable
from hermes_core.storage.sqlite import Database

Reads = sqlite3.Connection | Database
"""A transaction, or the store outside one."""

MOST = 10_000
"""Sessions of a chain, or under one root; a longer chain is cut here."""

MAX_TITLE = 100
PREVIEW = 60

# `c` is a session, `p` its parent.
_CONTINUES = """
    (c.relation = 'compression'
     OR (c.relation = '' AND p.end_reason = 'compression' AND c.started_at >= p.ended_at
         AND c.source NOT IN ('subagent', 'tool')))
"""
_BRANCHES = "(c.relation = 'branch' OR (c.relation = '' AND p.end_reason = 'branch'))"

_JOINERS = "\u200c\u200d"  # part of correct spelling in Persian and the scripts of India, and of many emoji
_NUMBERED = re.compile(r"^(.*?)\s+#(\d+)$")


def tip(connection: Reads, session_id: str) -> str:
    """Follow the compression chain forward: a child that was compressed in turn, then one that lives, then the newest."""
    rows = connection.execute(
        f"""WITH RECURSIVE down (id) AS (
                VALUES (?)
                UNION
                SELECT (SELECT c.id FROM sessions c JOIN sessions p ON p.id = c.parent_id
                        WHERE c.parent_id = down.id AND c.parent_id <> '' AND {_CONTINUES}
                        ORDER BY c.end_reason = 'compression' DESC, c.ended_at IS NULL DESC, c.last_active DESC LIMIT 1)
                FROM down WHERE down.id IS NOT NULL
            ) SELECT id FROM down WHERE id IS NOT NULL LIMIT {MOST}""",
        (session_id,),
    )
    return str([row[0] for row in rows][-1])


def root(connection: Reads, session_id: str) -> str:
    """Follow the parents to the first session."""
    return _ancestors(connection, session_id, "1")[-1]


def compressed_from(connection: Reads, session_id: str) -> list[str]:
    """The sessions that were compressed into this one, oldest first, and itself."""
    return _ancestors(connection, session_id, _CONTINUES)[::-1]


def _ancestors(connection: Reads, session_id: str, link: str) -> list[str]:
    """This session and its parents while `link` holds between child and parent, nearest first."""
    rows = connection.execute(
        f"""WITH RECURSIVE up (id) AS (
                VALUES (?)
                UNION
                SELECT p.id FROM up JOIN sessions c ON c.id = up.id JOIN sessions p ON p.id = c.parent_id WHERE {link}
            ) SELECT id FROM up LIMIT {MOST}""",
        (session_id,),
    )
    return [row[0] for row in rows]


def left_behind(connection: Reads, session_id: str) -> list[str]:
    """The sessions whose messages left the context when this one, or one that it was branched from, was compressed."""
    rows = connection.execute(
        f"""WITH RECURSIVE up (id, gone) AS (
                VALUES (?, 0)
                UNION
                SELECT p.id, {_CONTINUES} FROM up JOIN sessions c ON c.id = up.id JOIN sessions p ON p.id = c.parent_id
                WHERE {_CONTINUES} OR {_BRANCHES}
            ) SELECT id FROM up WHERE gone LIMIT {MOST}""",
        (session_id,),
    )
    return [row[0] for row in rows]


def family(connection: Reads, session_id: str) -> frozenset[str]:
    """All sessions under the same root."""
    return frozenset(_under(connection, root(connection, session_id), "1"))


def delegated(connection: Reads, session_id: str) -> list[str]:
    """This session and those that it, or they in turn, delegated."""
    return _under(
        connection,
        session_id,
        f"NOT {_CONTINUES} AND NOT {_BRANCHES} AND p.ended_at IS NULL OR c.relation = 'delegation'",
    )


def _under(connection: Reads, session_id: str, link: str) -> list[str]:
    rows = connection.execute(
        f"""WITH RECURSIVE under (id) AS (
                VALUES (?)
                UNION
                SELECT c.id FROM under JOIN sessions p ON p.id = under.id JOIN sessions c ON c.parent_id = p.id AND c.parent_id <> ''
                WHERE {link}
            ) SELECT id FROM under LIMIT {MOST}""",
        (session_id,),
    )
    return [row[0] for row in rows]


def listed(
    connection: Reads,
    *,
    sources: Sequence[str],
    exclude_sources: Sequence[str],
    exclude_sessions: Sequence[str],
    user: str | None,
    limit: int,
    offset: int,
) -> list[ListedSession]:
    """Conversations by their last activity: tips of chains, roots and branches."""
    conditions = [
        # A summary alone may be empty, and stands for all that was said before it.
        "(s.message_count > 0 OR s.relation = 'compression')",
        # Not continued: its continuation is the entry.
        f"NOT EXISTS (SELECT 1 FROM sessions c, sessions p WHERE c.parent_id = s.id AND c.parent_id <> '' AND p.id = s.id AND {_CONTINUES})",
        # Not delegated: a root, a continuation or a branch.
        f"""(s.parent_id = '' OR NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_id) OR EXISTS (
             SELECT 1 FROM sessions c JOIN sessions p ON p.id = c.parent_id
             WHERE c.id = s.id AND ({_CONTINUES} OR {_BRANCHES})))""",
    ]
    parameters: list[object] = []
    for column, wanted, values in (
        ("source", "IN", sources),
        ("source", "NOT IN", exclude_sources),
        ("id", "NOT IN", exclude_sessions),
    ):
        if values:
            conditions.append(f"s.{column} {wanted} ({', '.join('?' * len(values))})")
            parameters.extend(map(storable, values))
    if user is not None:
        conditions.append("s.user = ?")
        parameters.append(user)
    rows = connection.execute(
        f"""SELECT {SESSION_COLUMNS} FROM sessions s WHERE {" AND ".join(conditions)}
            ORDER BY s.last_active DESC, s.key DESC LIMIT ? OFFSET ?""",
        (*parameters, limit, offset),
    ).fetchall()
    return [_entry(connection, row) for row in rows]


def _entry(connection: Reads, row: sqlite3.Row) -> ListedSession:
    session = session_of(row)
    began = compressed_from(connection, session.id)[0]
    first = connection.execute(
        """SELECT substr(m.content, 1, 200) FROM messages m JOIN sessions s ON s.key = m.session_key
           WHERE s.id = ? AND m.role = 'user' AND m.position IS NOT NULL ORDER BY m.position LIMIT 1""",
        (began,),
    ).fetchone()
    preview = " ".join(first[0].split()) if first else ""
    return ListedSession(session, began, preview[:PREVIEW] + "..." if len(preview) > PREVIEW else preview)


# ---------------------------------------------------------------------- titles


def clean_title(title: str) -> str:
    """On one line, without control and invisible characters, at most 100 characters."""
    shown = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c
        for c in storable(title)
        if unicodedata.category(c) != "Cf" or c in _JOINERS
    )
    return " ".join(shown.split())[:MAX_TITLE].rstrip()


def next_title(connection: Reads, title: str, user: str) -> str:
    """`title` if no session of the user has it or a number of it, else the next number: "Plan", "Plan #2", "Plan #3".

    A number that the title has of its own is a part of it: "Issue #5" goes on as "Issue #5 #2".
    """
    wanted = clean_title(title)
    base = _base(wanted)
    if base != wanted and not _taken(connection, wanted, user):
        return wanted
    if not _taken(connection, base, user):
        base = wanted
    numbers = _numbers(connection, base, user)
    if not numbers:
        return base
    for number in itertools.count(max(numbers) + 1):
        suffix = f" #{number}"
        found = base[: MAX_TITLE - len(suffix)].rstrip() + suffix
        if not _taken(connection, found, user):  # a long title is cut, and another may begin like it
            break
    return found


def set_title(connection: Reads, session_id: str, title: str) -> str:
    """Give the session this title, which no other of its user may have; one that a session it was compressed from holds
    moves on to it.
    """
    cleaned = clean_title(title)
    holder = connection.execute(
        """SELECT id FROM sessions WHERE title = :title AND title <> '' AND id <> :id
           AND user = (SELECT user FROM sessions WHERE id = :id)""",
        {"title": cleaned, "id": session_id},
    ).fetchone()
    if holder is not None:
        if holder[0] not in compressed_from(connection, session_id):
            raise SessionError(f"title {cleaned!r} is in use by session {holder[0]!r}", "choose another")
        connection.execute("UPDATE sessions SET title = '' WHERE id = ?", (holder[0],))
    connection.execute("UPDATE sessions SET title = ? WHERE id = ?", (cleaned, session_id))
    return cleaned


def resolve(connection: Reads, text: str, user: str | None = None) -> str | None:
    """The id that `text` names, for a `user` among their own: an id, the only one that begins so, or a title with its
    highest number.
    """
    if not text:
        return None
    whose, asked = "AND (:user IS NULL OR user = :user)", {"text": text, "user": user}
    exact = connection.execute(f"SELECT id FROM sessions WHERE id = :text {whose}", asked).fetchone()
    if exact:
        return str(exact[0])
    begun = connection.execute(
        f"SELECT id FROM sessions WHERE id >= :text AND id < :text || char(0x10ffff) {whose} LIMIT 2", asked
    ).fetchall()
    if len(begun) == 1:
        return str(begun[0][0])
    return titled(connection, text, user)


def titled(connection: Reads, title: str, user: str | None = None) -> str | None:
    """The session of this title, the one with the highest number when there are several; `user` as for `resolve`."""
    base = clean_title(title)
    numbers = _numbers(connection, base, user) if base else {}
    return numbers[max(numbers)] if numbers else None


def _base(title: str) -> str:
    match = _NUMBERED.match(title)
    return match[1] if match else title


def _taken(connection: Reads, title: str, user: str) -> bool:
    sql = "SELECT 1 FROM sessions WHERE title = ? AND title <> '' AND user = ?"
    return connection.execute(sql, (title, user)).fetchone() is not None


def _numbers(connection: Reads, base: str, user: str | None = None) -> dict[int, str]:
    """Ids of the sessions titled `base` (1) or "base #N" (N), of one user, or of all: of two then the home's own."""
    rows = connection.execute(
        # `$` is the sign behind `#`. As a range, so that the index is used.
        """SELECT title, id FROM sessions
           WHERE title <> '' AND (title = :base OR title >= :base || ' #' AND title < :base || ' $')
           AND (:user IS NULL OR user = :user) ORDER BY user = ''""",
        {"base": base, "user": user},
    )
    numbers = {}
    for title, session_id in rows:
        match = _NUMBERED.match(title)
        if title == base:
            numbers[1] = session_id
        elif match and match[1] == base:
            numbers[int(match[2])] = session_id
    return numbers
