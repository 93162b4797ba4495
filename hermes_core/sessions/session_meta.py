"""Data of a session beside its messages: prompts, title, marks, counters and values of the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hermes_core.errors import SessionError
from hermes_core.sessions import lineage
from hermes_core.sessions.daily_usage import DAILY_COLUMNS, add_daily_usage
from hermes_core.sessions.lineage import session_key
from hermes_core.sessions.records import Mark, meta_key, sqlite_text
from hermes_core.storage.engine import Engine

USAGE_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
)

# Characters of an id for people, as Git shows of its hashes.
MIN_SHORT_ID_CHARS = 12


class SessionMeta:
    """The prompts, titles, marks and counters of sessions, and texts by key, as `SessionStore.meta`.

    Each change is durable when it returns. Changes of a session that doesn't exist raise `SessionError`.
    """

    def __init__(self, database: Engine, clock: Callable[[], float]) -> None:
        self._database, self._clock = database, clock

    def system_prompt(self, session_id: str) -> str:
        """Return the system prompt that is stored with the session; "" if there is no prompt or no session."""
        sql = "SELECT system_prompt FROM sessions WHERE id = ?"
        row = self._database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return str(row[0]) if row else ""

    def set_system_prompt(self, session_id: str, prompt: str) -> None:
        """Store the system prompt, so that a resumed session sends the same bytes."""
        with self._database.transaction() as connection:
            key = session_key(connection, session_id)
            connection.execute(
                "UPDATE sessions SET system_prompt = ? WHERE key = ?", (sqlite_text(prompt), key)
            )

    def memory_prompt(self, session_id: str) -> str | None:
        """Return the notes and the provider's block that were frozen for the session; None if none are stored."""
        sql = "SELECT memory_prompt FROM sessions WHERE id = ?"
        row = self._database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def freeze_memory_prompt(self, session_id: str, prompt: str, *, replaces: str | None = None) -> str:
        """Store the notes and the provider's block of a session, unless others are stored; return what is stored.

        Args:
            replaces: The stored text that `prompt` replaces; None if none is stored.
        """
        with self._database.transaction() as connection:
            key = session_key(connection, session_id)
            same, replaced = (" IS NULL", []) if replaces is None else (" = ?", [replaces])
            sql = f"""UPDATE sessions
                SET memory_prompt = CASE WHEN memory_prompt{same} THEN ? ELSE memory_prompt END
                WHERE key = ? RETURNING memory_prompt"""
            values = (*replaced, sqlite_text(prompt), key)
            return str(connection.execute(sql, values).fetchone()[0])

    def set_title(self, session_id: str, title: str) -> str:
        """Set the title of a session and return the title as stored; "" removes the title.

        If an earlier session of the same conversation, before a compression, has the title, it loses the title. Raises
        `SessionError` if another conversation of the same user has the title.
        """
        with self._database.transaction() as connection:
            session_key(connection, session_id)
            return lineage.set_title(connection, session_id, title)

    def set_default_title(self, session_id: str, title: str) -> None:
        """Give a session without a title this one, with the next free number if another session of its user has it.

        If another program takes the same number meanwhile, the next one is tried.
        """

        def write() -> None:
            with self._database.transaction() as connection:
                query = (
                    f"SELECT s.title, s.user FROM sessions s WHERE s.id = ?{self._database.dialect.row_lock}"
                )
                row = connection.execute(query, (session_id,)).fetchone()
                if row is not None and not row["title"]:
                    lineage.set_free_title(connection, session_id, title, row["user"])

        self._database.retry(write, idempotent=True)

    def next_title(self, title: str, *, user: str = "") -> str:
        """Return `title` if no session of this user has it, else `title` with the next free number ("title #2")."""
        return lineage.next_title(self._database, title, sqlite_text(user))

    def short_id(self, session_id: str) -> str:
        """Return the shortest beginning of an id that begins no other id of the store, of at least 12 characters."""
        text = sqlite_text(session_id)
        row = self._database.execute(
            "SELECT (SELECT max(id) FROM sessions WHERE id < :id), (SELECT min(id) FROM sessions WHERE id > :id)",
            {"id": text},
        ).fetchone()
        shared = max(_shared_length(text, other or "") for other in row)
        return session_id[: max(shared + 1, MIN_SHORT_ID_CHARS)]

    def add_usage(self, session_id: str, **amounts: float) -> None:
        """Add amounts to the session's counters of use.

        The counters are `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `reasoning_tokens`
        and `cost_usd`. Raises `SessionError` for another name.
        """
        unknown = sorted(set(amounts) - set(USAGE_COLUMNS))
        if unknown:
            raise SessionError(f"there are no counters {unknown!r}", f"known are {', '.join(USAGE_COLUMNS)}")
        with self._database.transaction() as connection:
            key = session_key(connection, session_id)
            if amounts:
                sums = ", ".join(f"{column} = {column} + ?" for column in amounts)
                connection.execute(f"UPDATE sessions SET {sums} WHERE key = ?", (*amounts.values(), key))
            daily = {column: amounts[column] for column in DAILY_COLUMNS if column in amounts}
            if daily:
                (owner,) = connection.execute(
                    "SELECT s.user FROM sessions s WHERE s.key = ?", (key,)
                ).fetchone()
                add_daily_usage(connection, owner, self._clock(), **daily)

    def set_mark(self, session_id: str, mark: Mark, *, on: bool = True) -> None:
        """Set or remove a mark of a session. Raises `SessionError` if there is no such session."""
        with self._database.transaction() as connection:
            session_key(connection, session_id)
            key = meta_key(mark, session_id)
            if on:
                connection.execute(
                    "INSERT INTO state_meta VALUES (?, '1') ON CONFLICT (key) DO NOTHING", (key,)
                )
            else:
                connection.execute("DELETE FROM state_meta WHERE key = ?", (key,))

    def is_marked(self, session_id: str, mark: Mark) -> bool:
        """Return True if the session has this mark."""
        return self.get(meta_key(mark, session_id)) is not None

    def marked(self, mark: Mark) -> frozenset[str]:
        """Return the ids of the sessions that have this mark."""
        prefix = meta_key(mark, "")
        # A range, so that the index is used; `;` is the character after `:`.
        rows = self._database.execute(
            "SELECT key FROM state_meta WHERE key >= ? AND key < ?", (prefix, f"{prefix[:-1]};")
        )
        return frozenset(row[0].removeprefix(prefix) for row in rows)

    def identity(self, session_id: str) -> dict[str, Any]:
        """Return the contract's `Session` as data, as it was stored with the session; empty if there is none."""
        sql = "SELECT identity FROM sessions WHERE id = ?"
        row = self._database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return dict(json.loads(row[0])) if row and row[0] else {}

    def get(self, key: str) -> str | None:
        """Return the value that `set` stored under `key`; None if there is none."""
        row = self._database.execute("SELECT value FROM state_meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set(self, key: str, value: str) -> None:
        """Store a text under `key`, independent of the sessions; replace an earlier value."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO state_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )


def _shared_length(text: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    pairs = zip(text, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))
