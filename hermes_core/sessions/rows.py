"""The sessions of state.db as rows: made, named, ended, listed, traced to one another, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_core.errors import SessionError
from hermes_core.sessions import lineage, records, upkeep, writes
from hermes_core.sessions.file import SessionFile, reading
from hermes_core.sessions.records import ListedSession, Relation, StoredSession
from hermes_core.sessions.times import epoch_seconds


class SessionRows(SessionFile):
    """What `SessionDB` knows of sessions as such; what was said in them is its own business."""

    def create_session(
        self,
        session_id: str,
        source: str = "cli",
        *,
        user: str = "",
        parent_id: str = "",
        relation: Relation = "",
        title: str = "",
        model: str = "",
        model_config: Mapping[str, Any] | None = None,
        system_prompt: str = "",
        cwd: str = "",
        identity: Mapping[str, Any] | None = None,
        started_at: float | None = None,
    ) -> str:
        """Make a session, or fill what an existing one of that id leaves open; returns the id.

        `user` says whose session it is and is what `search(user=...)` compares; `identity` is the contract's `Session`
        as data, for who goes on with it. A `title` that the user has in use gets a number.
        Raises `SessionError` when the id belongs to another user.
        """
        session_id = records.storable(session_id)
        if not session_id:
            raise SessionError("a session needs an id, not ''", "give any text that is unique")
        at = self._clock() if (given := epoch_seconds(started_at)) is None else given
        details = {
            "user": user,
            "parent_id": parent_id,
            "relation": relation,
            "title": title,
            "model": model,
            "model_config": records.as_json(dict(model_config or {})),
            "system_prompt": system_prompt,
            "cwd": cwd,
            "identity": records.as_json(dict(identity or {})),
        }
        with self._database.transaction() as connection:
            writes.create_session(connection, session_id, source, at, details)
        return session_id

    @reading
    def get_session(self, session_id: str) -> StoredSession | None:
        """The session, None when there is no such."""
        sql = f"SELECT {records.SESSION_COLUMNS} FROM sessions s WHERE s.id = ?"
        row = self._database.execute(sql, (records.storable(session_id),)).fetchone()
        return records.session_of(row) if row else None

    def system_prompt(self, session_id: str) -> str:
        """The system prompt that was stored with the session, "" when none was."""
        sql = "SELECT system_prompt FROM sessions WHERE id = ?"
        row = self._database.execute(sql, (records.storable(session_id),)).fetchone()
        return str(row[0]) if row else ""

    def set_system_prompt(self, session_id: str, prompt: str) -> None:
        """Store the system prompt, so that a resumed session sends the same bytes."""
        with self._database.transaction() as connection:
            key = writes.key_of(connection, session_id)
            connection.execute(
                "UPDATE sessions SET system_prompt = ? WHERE key = ?", (records.storable(prompt), key)
            )

    def find_session(self, text: str, *, user: str | None = None) -> StoredSession | None:
        """The session that `text` names, for `user` among their own: its id, the only one that begins so, or its title."""
        found = lineage.resolve(self._database, records.storable(text), user and records.storable(user))
        return self.get_session(found) if found else None

    def find_titled(self, title: str, *, user: str | None = None) -> StoredSession | None:
        """The session of this title (the newest "#N"), for `user` among their own; None when there is no such."""
        found = lineage.titled(self._database, title, user and records.storable(user))
        return self.get_session(found) if found else None

    def end_session(self, session_id: str, reason: str, *, at: float | None = None) -> None:
        """Mark it as ended; the first reason stays."""
        with self._database.transaction() as connection:
            writes.key_of(connection, session_id)
            connection.execute(
                "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ? AND ended_at IS NULL",
                (self._clock() if at is None else at, reason, session_id),
            )

    def remove_unused(self, session_id: str) -> bool:
        """Delete a session in which nothing was ever said, that has no title, and that none came from; whether it was so."""
        with self._database.transaction() as connection:
            return writes.remove_unused(connection, session_id)

    def reopen_session(self, session_id: str) -> None:
        """Let an ended session go on."""
        with self._database.transaction() as connection:
            writes.key_of(connection, session_id)
            connection.execute(
                "UPDATE sessions SET ended_at = NULL, end_reason = '' WHERE id = ?", (session_id,)
            )

    def set_title(self, session_id: str, title: str) -> str:
        """Name a session; returns the title as kept. "" takes the name away.

        Raises `SessionError` when another conversation of its user has it; an ancestor in the same one gives it up.
        """
        with self._database.transaction() as connection:
            writes.key_of(connection, session_id)
            return lineage.set_title(connection, session_id, title)

    def next_title(self, title: str, *, user: str = "") -> str:
        """`title` if it is free among the sessions of this user, else "title #2" and so on."""
        return lineage.next_title(self._database, title, records.storable(user))

    def add_usage(self, session_id: str, **amounts: float) -> None:
        """Add to the session's counters: input, output, cache_read, cache_write, reasoning `_tokens`, `cost_usd`."""
        unknown = sorted(set(amounts) - set(writes.USAGE))
        if unknown:
            raise SessionError(f"there are no counters {unknown!r}", f"known are {', '.join(writes.USAGE)}")
        with self._database.transaction() as connection:
            key = writes.key_of(connection, session_id)
            for column, amount in amounts.items():
                connection.execute(
                    f"UPDATE sessions SET {column} = {column} + ? WHERE key = ?",
                    (amount, key),
                )

    @reading
    def list_sessions(
        self,
        *,
        source: str | None = None,
        exclude_sources: Sequence[str] = (),
        exclude_sessions: Sequence[str] = (),
        user: str | None = None,
        limit: int = 20,
        offset: int = 0,
    ) -> list[ListedSession]:
        """Conversations, the last active first. A compression chain is one entry, its newest session; delegated
        sessions and those in which nothing is said are left out, branches are entries of their own.
        """
        return lineage.listed(
            self._database,
            sources=(source,) if source is not None else (),
            exclude_sources=exclude_sources,
            exclude_sessions=exclude_sessions,
            user=user and records.storable(user),
            limit=limit,
            offset=offset,
        )

    def compression_tip(self, session_id: str) -> str:
        """The newest session of the compression chain that goes through this one; itself when there is none."""
        return lineage.tip(self._database, session_id)

    def lineage(self, session_id: str) -> frozenset[str]:
        """Ids of all ancestors and descendants of this session, and of itself."""
        return lineage.family(self._database, session_id)

    def delegated(self, session_id: str) -> list[str]:
        """Ids of this session and of those that it, or they in turn, delegated: `delete_session` takes them all."""
        return lineage.delegated(self._database, session_id)

    def lineage_root(self, session_id: str) -> str:
        """The oldest ancestor of this session; itself when it has no parent."""
        return lineage.root(self._database, session_id)

    def delete_session(self, session_id: str) -> list[str]:
        """Delete a session with its messages and turns; returns the ids of the turns, for what still waits to be sent.

        Sessions that it delegated go with it; other children stay, without a parent.
        """
        with self._database.transaction() as connection:
            writes.key_of(connection, session_id)
            return writes.delete_session(connection, session_id)

    def idle_sessions(self, before: float, sources: Sequence[str] = ()) -> list[str]:
        """Ids of sessions whose whole conversation was silent since `before` (epoch seconds), oldest first."""
        return upkeep.idle_sessions(self._database, before, sources)
