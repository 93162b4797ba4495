"""The turns of stored sessions: what a turn needs when it begins or ends, and the completed ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from hermes_core.contract.values import Message, Origin
from hermes_core.errors import SessionError
from hermes_core.safety.origin import lowest
from hermes_core.safety.terminal import counted
from hermes_core.sessions.lineage import (
    FAMILY,
    ID_COLUMNS,
    composed_id,
    family_from,
    id_among,
    require_scope,
)
from hermes_core.sessions.records import (
    MESSAGES,
    CompletedTurn,
    StoredMessage,
    StoredOpenTurn,
    message_of,
    messages_statement,
    open_turn_of,
    open_turn_statement,
    sqlite_text,
    stored_origin,
    turn_from_row,
)
from hermes_core.sessions.schema import MAY_BE_LOWER
from hermes_core.sessions.search.protocol import MessageIndex
from hermes_core.storage.engine import Engine, Statement, detecting_damage

TURNS_PER_QUERY = 200

_OF_LIVE_TURNS = "FROM turns WHERE session_key = (SELECT key FROM sessions WHERE id = ?) AND state = 0"
_TURN_COUNT = f"SELECT count(*) {_OF_LIVE_TURNS}"
LAST_NUMBER = f"SELECT coalesce(max(number), 0) {_OF_LIVE_TURNS}"

# A session with all that a turn needs of its row. The ids of `id_among` stand first.
_CONTEXT = f"""
    SELECT {ID_COLUMNS},
        (SELECT coalesce(max(number), 0) FROM turns WHERE session_key = s.key AND state = 0) AS last_number,
        s.memory_prompt, s.identity, s.parent_id, s.relation, s.title,
        (SELECT value FROM state_meta WHERE key = ?) AS setting,
        EXISTS (SELECT 1 FROM open_turns WHERE updated_at < ?) AS has_expired_turns
    FROM sessions s WHERE s.id IN (?, ?)
"""

# A host that names a parent may give its messages to the model. A compression or a branch has copies of those with their
# origins. The condition has to be that of the partial index, word for word.
_ORIGINS = f"""WITH RECURSIVE up (key, parent_id, relation) AS (
        SELECT key, parent_id, relation FROM sessions WHERE id = ?
        UNION
        SELECT p.key, p.parent_id, p.relation FROM up JOIN sessions p ON p.id = up.parent_id
        WHERE up.parent_id <> '' AND up.relation NOT IN ('compression', 'branch'))
    SELECT DISTINCT role, origin, tool_name FROM messages
    WHERE session_key IN (SELECT key FROM up) AND {MAY_BE_LOWER} AND state IN (0, 3)"""


class TurnContext(Struct, frozen=True):
    """The facts of a session that a turn needs.

    Attributes:
        session_id: The id under which the session is stored, or would be stored; see `lineage.id_for`.
        row: The identity, parent, relation and title of the session; empty if it is not stored.
        last_number: Number of the last finished turn; 0 before the first one.
        prompt: The frozen notes and provider's block; None if none are stored.
        setting: The text of the key that was asked for; None if there is none.
        has_expired_turns: True if unfinished turns of the store have expired.
        lineage: Ids of the session and of all sessions that are connected with it, if asked for.
        origin: The lowest origin of the messages that the model gets, if asked for; "person" if none is low.
        recent: The latest messages, oldest first, as many as were asked for.
        open_turn: The unfinished turn that was asked for; None if there is none.
        further: The rows of each further statement; none if nothing was ever stored.
    """

    session_id: str
    row: Mapping[str, str] = {}
    last_number: int = 0
    prompt: str | None = None
    setting: str | None = None
    has_expired_turns: bool = False
    lineage: frozenset[str] = frozenset()
    origin: Origin = "person"
    recent: tuple[StoredMessage, ...] = ()
    open_turn: StoredOpenTurn | None = None
    further: Sequence[list[Any]] = ()


class TurnStore:
    """The turns of the sessions of a store, as `SessionStore.turns`. `SessionStore.append_turn` adds one."""

    def __init__(self, database: Engine, index: MessageIndex) -> None:
        self._database, self._index = database, index

    def context(
        self,
        session_id: str,
        user: str,
        *,
        lineage: bool = False,
        origin: bool = False,
        recent: int = 0,
        setting: str = "",
        expired_before: float = 0.0,
        turn_id: str = "",
        further: Sequence[Statement] = (),
    ) -> TurnContext:
        """Return what a turn of a user's session needs, read in one round trip as a rule.

        Args:
            lineage: True to return `TurnContext.lineage`.
            origin: True to return `TurnContext.origin`.
            recent: Number of latest messages to return.
            setting: Key of a text of `SessionMeta.get` to return.
            expired_before: Time in epoch seconds before which an unfinished turn has expired.
            turn_id: Id of an unfinished turn to return.
            further: Statements whose rows are read with these facts.
        """
        session_id, user = sqlite_text(session_id), sqlite_text(user)
        if not self._database.exists:
            return TurnContext(session_id, lineage=frozenset([session_id]))
        other = session_id
        while True:  # a second time if another user has a session of this id
            own = other
            rows = self._database.read(
                [
                    (_CONTEXT, (setting, expired_before, own, composed_id(own, user))),
                    *([(FAMILY, (own, own))] if lineage else []),
                    *([messages_statement(own, last=recent)] if recent else []),
                    *([(_ORIGINS, (own,))] if origin else []),
                    *([open_turn_statement(turn_id)] if turn_id else []),
                    *further,
                ]
            )
            if own == session_id:
                other = id_among(self._database, rows[0], session_id, user)
            if own == other:
                break
        facts = iter(rows[1:])
        family = family_from(self._database, own, next(facts)) if lineage else frozenset[str]()
        latest = tuple(map(message_of, next(facts))) if recent else ()
        stored = [stored_origin(row[0], row[1], row[2]) for row in next(facts)] if origin else []
        read = lowest(stored, owner=user)
        open_turn = open_turn_of(turn_id, next(facts)) if turn_id else None
        for row in rows[0]:
            if row["id"] == own and row["user"] == user:
                return TurnContext(
                    own,
                    {name: row[name] for name in ("identity", "parent_id", "relation", "title")},
                    row["last_number"],
                    row["memory_prompt"],
                    row["setting"],
                    bool(row["has_expired_turns"]),
                    family,
                    read,
                    latest,
                    open_turn,
                    tuple(facts),
                )
        return TurnContext(
            own, lineage=family, origin=read, recent=latest, open_turn=open_turn, further=tuple(facts)
        )

    def messages(self, turn_id: str) -> list[tuple[str, str]]:
        """Return role and text of each message of a stored turn, even if the turn was rewound later."""
        # The plus keeps SQLite from using the index over sessions, which would read the whole session.
        sql = """SELECT m.role, m.content FROM turns t JOIN messages m ON +m.session_key = t.session_key
                 AND m.id BETWEEN t.first_message_id AND t.last_message_id WHERE t.id = ? ORDER BY m.id"""
        return [(row[0], row[1]) for row in self._database.execute(sql, (turn_id,))]

    def first_message(self, session_id: str, turns: int) -> int:
        """Return the id of the first message of the last `turns` turns of a session.

        Raises:
            SessionError: The session has fewer turns, or `turns` is no number of turns.
        """
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise SessionError(f"{turns!r} turns can't be undone", "give a whole number, 1 or more")
        row = self._database.execute(
            """SELECT t.first_message_id FROM turns t JOIN sessions s ON s.key = t.session_key
               WHERE s.id = ? AND t.state = 0 ORDER BY t.last_message_id DESC LIMIT 1 OFFSET ?""",
            (sqlite_text(session_id), turns - 1),
        ).fetchone()
        if row is None:
            raise SessionError(
                f"session {session_id!r} has fewer than {counted(turns, 'turn')}",
                "undo only turns that are stored",
            )
        return int(row[0])

    def conversation(self, turn_id: str) -> list[Message]:
        """Return the messages that the model had at the end of a turn, as text; [] for a turn that is not stored."""
        row = self._database.execute(
            "SELECT s.id, t.last_message_id FROM turns t JOIN sessions s ON s.key = t.session_key WHERE t.id = ?",
            (sqlite_text(turn_id),),
        ).fetchone()
        if row is None:
            return []
        rows = self._database.execute(*messages_statement(row[0], last_message_id=row[1]))
        return [message_of(row).as_text() for row in rows]

    def count(self, session_id: str) -> int:
        """Return the number of completed turns of the session, without rewound turns."""
        return int(self._database.execute(_TURN_COUNT, (sqlite_text(session_id),)).fetchone()[0])

    def last_number(self, session_id: str) -> int:
        """Return the highest number of a completed turn of the session, without rewound turns; 0 if it has none."""
        return int(self._database.execute(LAST_NUMBER, (sqlite_text(session_id),)).fetchone()[0])

    def complete(
        self,
        since: int = 0,
        *,
        session_id: str | None = None,
        everybody: bool = False,
    ) -> Iterator[CompletedTurn]:
        """Yield completed turns, oldest first, without rewound turns.

        The messages of a turn are read when the turn is yielded.

        Args:
            since: Yield only turns whose `CompletedTurn.key` is higher.
            session_id: Yield only turns of this session.
            everybody: True to yield the turns of all owners, if `session_id` is None.

        Raises:
            SessionError: Users from outside have sessions, and neither `session_id` nor `everybody` says whose turns to yield.
        """
        require_scope(self._database, session_id, everybody=everybody)
        condition, parameters = "", tuple[str, ...]()
        if session_id is not None:
            condition = "AND t.session_key = (SELECT key FROM sessions WHERE id = ?)"
            parameters = (session_id,)
        # The plus keeps a server from reading the whole index of turns with this state.
        sql = f"""SELECT t.*, s.id AS session_id, s.identity FROM turns t JOIN sessions s ON s.key = t.session_key
            WHERE t.key > ? AND +t.state = 0 {condition} ORDER BY t.key LIMIT {TURNS_PER_QUERY}"""
        while rows := self._database.execute(sql, (since, *parameters)).fetchall():
            for row in rows:
                yield self._completed(row)
            since = rows[-1]["key"]

    def _completed(self, row: Any) -> CompletedTurn:
        with detecting_damage(self._database):
            messages = self._database.execute(
                # The plus keeps SQLite from using the index over sessions, which would read the whole session.
                f"{MESSAGES} WHERE +m.session_key = ? AND m.state < 2 AND m.id BETWEEN ? AND ? ORDER BY m.id",
                (row["session_key"], row["first_message_id"], row["last_message_id"]),
            )
            turn = turn_from_row(row, [message_of(message) for message in messages])
            return CompletedTurn(row["key"], row["session_id"], turn, json.loads(row["identity"] or "{}"))

    def has_message(self, session_id: str, ref: str) -> bool:
        """Return True if the session has a message with this `ref`, even if the message was rewound."""
        sql = "SELECT 1 FROM messages WHERE session_key = (SELECT key FROM sessions WHERE id = ?) AND ref = ? AND ref <> ''"
        return self._database.execute(sql, (sqlite_text(session_id), sqlite_text(ref))).fetchone() is not None
