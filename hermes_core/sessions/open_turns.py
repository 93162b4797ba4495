"""The store of unfinished turns, and of the state that hosts keep beside a conversation, both in state.db.

The messages of an unfinished turn stand in tables of their own, so that no search, recall, history or provider gets
them before the turn is finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal

from hermes_core.contract.values import Origin
from hermes_core.errors import SessionError
from hermes_core.sessions.records import (
    StoredMessage,
    StoredOpenTurn,
    last_turns_statement,
    message_of,
    open_turn_of,
    open_turn_statement,
    sqlite_text,
)
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Connection, Statement

# Whose values a state holds: one conversation, all conversations of a user, or all users of a platform.
StateScope = Literal["session", "user", "app"]


class OpenTurnStore:
    """The unfinished turns of a session store."""

    def __init__(self, db: SessionStore) -> None:
        self._db = db

    def create(self, turn: StoredOpenTurn, *, at: float) -> None:
        """Store a new turn.

        Raises:
            SessionError: There is an open or finished turn with this id.
        """
        turn_id, user = sqlite_text(turn.id), _json(turn.user)
        session_id, author = sqlite_text(turn.session_id), sqlite_text(turn.author)
        inserted, ((same, finished),) = self._db.database.batch(
            [
                (
                    """INSERT INTO open_turns (id, session_key, "user", author, contexts, updated_at)
                       SELECT ?, key, ?, ?, ?, ? FROM sessions
                       WHERE id = ? AND NOT EXISTS (SELECT 1 FROM turns WHERE id = ?)
                       ON CONFLICT (id) DO NOTHING RETURNING 1""",
                    (turn_id, user, author, "", at, session_id, turn_id),
                ),
                # The server may have stored the row before its connection was lost.
                (
                    """SELECT EXISTS (SELECT 1 FROM open_turns WHERE id = ? AND "user" = ? AND updated_at = ?),
                              EXISTS (SELECT 1 FROM turns WHERE id = ?)""",
                    (turn_id, user, at, turn_id),
                ),
            ]
        )
        if finished:
            raise SessionError(f"turn {turn.id!r} is finished", "give each turn an id of its own")
        if not (inserted or same):
            raise SessionError(
                f"turn {turn.id!r} is open already", "continue it, or give each turn an id of its own"
            )

    def set_contexts(self, turn_id: str, contexts: Sequence[tuple[str, str]], origin: Origin) -> None:
        """Store the recall of a turn, so that another process that continues the turn sends the same request.

        Args:
            origin: The lowest origin of the recall.
        """
        with self._db.transaction() as connection:
            connection.execute(*self._contexts_statement(turn_id, contexts, origin))

    @staticmethod
    def _contexts_statement(turn_id: str, contexts: Sequence[tuple[str, str]], origin: Origin) -> Statement:
        value = {"contexts": contexts, "origin": origin}
        return "UPDATE open_turns SET contexts = ? WHERE id = ?", (_json(value), sqlite_text(turn_id))

    def set_contexts_and_read(
        self,
        turn_id: str,
        contexts: Sequence[tuple[str, str]],
        origin: Origin,
        session_id: str,
        turns: int | None = None,
    ) -> list[StoredMessage]:
        """Store the recall of a turn as `set_contexts` does, and return the messages of its session as `earlier` does."""
        if not self._db.database.shared:  # other writers would wait while the messages are read
            self.set_contexts(turn_id, contexts, origin)
            return self.earlier(session_id, turns)
        statement = self._contexts_statement(turn_id, contexts, origin)
        _, rows = self._db.database.batch([statement, last_turns_statement(session_id, turns)])
        return [message_of(row) for row in rows]

    def earlier(self, session_id: str, turns: int | None = None) -> list[StoredMessage]:
        """Return the messages of the last turns of a session, oldest first.

        Args:
            turns: Largest number of turns; None for all.
        """
        (rows,) = self._db.database.read([last_turns_statement(session_id, turns)])
        return [message_of(row) for row in rows]

    def get(self, turn_id: str) -> StoredOpenTurn | None:
        """Return an unfinished turn with its messages; None if there is none with this id."""
        (rows,) = self._db.database.read([open_turn_statement(turn_id)])
        return open_turn_of(turn_id, rows)

    def open_in(self, session_id: str) -> list[StoredOpenTurn]:
        """Return the unfinished turns of a session."""
        rows = self._db.database.execute(
            "SELECT o.id FROM open_turns o JOIN sessions s ON s.key = o.session_key WHERE s.id = ?",
            (sqlite_text(session_id),),
        )
        return [turn for (turn_id,) in rows.fetchall() if (turn := self.get(turn_id)) is not None]

    def count(self, user: str) -> int:
        """Return the number of unfinished turns of a user."""
        sql = 'SELECT count(*) FROM open_turns o JOIN sessions s ON s.key = o.session_key WHERE s."user" = ?'
        return int(self._db.database.execute(sql, (user,)).fetchone()[0])

    def add(self, turn_id: str, messages: Sequence[Mapping[str, Any]], *, at: float) -> None:
        """Store further messages of a turn.

        Raises:
            SessionError: The turn is not open.
        """
        with self._db.transaction() as connection:
            row = connection.execute(
                "UPDATE open_turns SET updated_at = ? WHERE id = ? RETURNING key", (at, sqlite_text(turn_id))
            ).fetchone()
            if row is None:
                raise SessionError(
                    f"turn {turn_id!r} is not open: it was finished, cancelled, or expired",
                    "begin a new turn; `sessions.turn_expiry_hours` says after how long one expires",
                )
            connection.executemany(
                """INSERT INTO open_messages (turn_key, number, message)
                   SELECT :key, coalesce(max(number), -1) + 1, :message FROM open_messages WHERE turn_key = :key""",
                [{"key": row[0], "message": _json(message)} for message in messages],
            )

    def delete(self, turn_id: str) -> bool:
        """Delete an unfinished turn; return False if there was none."""
        with self._db.transaction() as connection:
            return _delete(connection, "id = ?", sqlite_text(turn_id)) > 0

    def expire(self, *, before: float) -> int:
        """Delete unfinished turns without a new message since `before` (epoch seconds); return their number."""
        sql = "SELECT 1 FROM open_turns WHERE updated_at < ? LIMIT 1"
        if self._db.database.execute(sql, (before,)).fetchone() is None:
            return 0  # as nearly always: each turn asks
        with self._db.transaction() as connection:
            return _delete(connection, "updated_at < ?", before)


def _delete(connection: Connection, condition: str, value: object) -> int:
    return connection.execute(f"DELETE FROM open_turns WHERE {condition}", (value,)).rowcount


class HostState(MutableMapping[str, Any]):
    """JSON values that a host stores for a session, a user or its platform. Each change is durable when it returns.

    A value is replaced as a whole; of two processes that set one key, the later one wins.

    Args:
        db: The store.
        scope: Whose values these are.
        owner: Returns the id of the session, the owner of the user, or the name of the platform.
        begin: Called before a value is stored. It stores the session, so that its id belongs to its user.
    """

    def __init__(
        self,
        db: SessionStore,
        scope: StateScope,
        owner: Callable[[], str],
        begin: Callable[[], object] = lambda: None,
    ) -> None:
        self._db = db
        self._scope, self._owner_of, self._begin = scope, owner, begin

    @property
    def _owner(self) -> str:
        return sqlite_text(self._owner_of())

    def __getitem__(self, key: str) -> Any:
        row = self._db.database.execute(
            "SELECT value FROM host_state WHERE scope = ? AND owner = ? AND key = ?",
            (self._scope, self._owner, sqlite_text(str(key))),
        ).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(row[0])

    def __setitem__(self, key: str, value: Any) -> None:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as exc:
            raise SessionError(
                f"the value of {key!r} is not JSON: {exc}", "store texts, numbers, lists, dicts"
            ) from exc
        self._begin()
        owner = self._owner
        with self._db.transaction() as connection:
            connection.execute(
                "INSERT INTO host_state (scope, owner, key, value) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (scope, owner, key) DO UPDATE SET value = excluded.value",
                (self._scope, owner, sqlite_text(str(key)), sqlite_text(text)),
            )

    def __delitem__(self, key: str) -> None:
        owner = self._owner
        with self._db.transaction() as connection:
            cursor = connection.execute(
                "DELETE FROM host_state WHERE scope = ? AND owner = ? AND key = ?",
                (self._scope, owner, sqlite_text(str(key))),
            )
        if not cursor.rowcount:
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        rows = self._db.database.execute(
            "SELECT key FROM host_state WHERE scope = ? AND owner = ? ORDER BY key",
            (self._scope, self._owner),
        )
        return iter([row[0] for row in rows])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _json(value: object) -> str:
    """Return a value as JSON; what JSON doesn't have, such as an SDK's enumeration, as its text."""
    return sqlite_text(json.dumps(value, ensure_ascii=False, default=str))
