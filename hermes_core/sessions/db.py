"""SessionDB: the store of sessions, messages and completed turns. A stored message can be found at once."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import quote

from hermes_core.contract.values import Message, Origin
from hermes_core.errors import ConfigError, DatabaseCorrupt, DatabaseUnavailable, SessionError
from hermes_core.safety.fence import without_context
from hermes_core.safety.origin import lowest
from hermes_core.safety.terminal import counted
from hermes_core.sessions import lineage, records
from hermes_core.sessions.daily_usage import DAILY_COLUMNS, add_daily_usage, give_daily_usage
from hermes_core.sessions.records import (
    SESSION_META,
    SYSTEM_ROLES,
    AppendedTurn,
    CompletedTurn,
    ListedSession,
    Mark,
    Order,
    Relation,
    SearchHit,
    State,
    StoredMessage,
    StoredSession,
    StoredTranscript,
    TurnStart,
    Window,
    epoch_seconds,
    sqlite_text,
)
from hermes_core.sessions.schema import MAY_BE_LOWER, MIGRATIONS
from hermes_core.sessions.search.index import Fts5Index
from hermes_core.sessions.search.protocol import SearchIndex
from hermes_core.storage.engine import Connection, Engine, Reader, Statement
from hermes_core.storage.sqlite import Database, JournalMode

if TYPE_CHECKING:
    from hermes_core.sessions.search.protocol import SearchEngine, VectorIndex

log = logging.getLogger(__name__)

REPAIR = "it was left as it is: `hermes-memory sessions repair` copies it, then saves what can be read"

USAGE_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_usd",
)

TURNS_PER_QUERY = 200

# Characters of an id for people, as Git shows of its hashes.
MIN_SHORT_ID_CHARS = 12

_MESSAGES = f"SELECT {records.MESSAGE_COLUMNS} FROM messages m JOIN sessions s ON s.key = m.session_key"

_REOPEN = "UPDATE sessions SET ended_at = NULL, end_reason = '' WHERE key = ? AND ended_at IS NOT NULL"

_OF_LIVE_TURNS = "FROM turns WHERE session_key = (SELECT key FROM sessions WHERE id = ?) AND state = 0"
_TURN_COUNT = f"SELECT count(*) {_OF_LIVE_TURNS}"
_LAST_NUMBER = f"SELECT coalesce(max(number), 0) {_OF_LIVE_TURNS}"

_META = "SELECT value FROM state_meta WHERE key = ?"

# The condition has to be that of the partial index, word for word.
_ORIGINS = f"""SELECT DISTINCT role, origin, tool_name FROM messages
    WHERE session_key = (SELECT key FROM sessions WHERE id = ?) AND {MAY_BE_LOWER} AND state IN (0, 3)"""


def _composed_id(session_id: str, user: str) -> str:
    """Return the id of a user's session if another user has one with `session_id`."""
    return f"{session_id}@{quote(user, safe='') or 'home'}"


def _ids_of_user(session_id: str, user: str) -> Statement:
    """Return the statement that reads the owners of the ids which a session of `user` may have."""
    sql = "SELECT s.id, s.user FROM sessions s WHERE s.id IN (?, ?)"
    return sql, (session_id, _composed_id(session_id, user))


# Number of the last turn of a session `s`, as a column of its row.
_NUMBER_OF_ROW = "(SELECT coalesce(max(number), 0) FROM turns WHERE session_key = s.key AND state = 0)"


def _ids_and_numbers(session_id: str, user: str) -> Statement:
    """Return the statement of `_ids_of_user` with the number of the last turn of each session."""
    sql = f"SELECT s.id, s.user, {_NUMBER_OF_ROW} FROM sessions s WHERE s.id IN (?, ?)"
    return sql, (session_id, _composed_id(session_id, user))


def _number_among(rows: Iterable[Any], session_id: str) -> int:
    """Return the number of the last turn from the rows of `_ids_and_numbers`; 0 for a session that is not stored."""
    return next((int(row[2]) for row in rows if row[0] == session_id), 0)


def messages_statement(
    session_id: str,
    *,
    limit: int | None = None,
    offset: int = 0,
    last_message_id: int | None = None,
    last: int | None = None,
) -> Statement:
    """Return the statement of `SessionDB.get_messages`."""
    # Positions have no gaps, so that a part is reached without reading what stands before it.
    sql = f"""{_MESSAGES} WHERE s.id = ? AND m.position >= ? AND m.position >= s.message_count - ? AND m.id <= ?
              ORDER BY m.position LIMIT ?"""
    return sql, (
        session_id,
        offset,
        2**62 if last is None else max(last, 0),
        2**62 if last_message_id is None else last_message_id,
        2**62 if limit is None else limit,
    )


def as_conversation(messages: Iterable[StoredMessage], copied: bool = True) -> list[dict[str, Any]]:
    """Return messages of a session in chat form, as `SessionDB.get_messages_as_conversation` does.

    Args:
        copied: True to return also messages that a compression copied from the previous session.
    """
    return [
        message.as_chat() if message.role == "tool" else without_context(message.as_chat())
        for message in messages
        if not (message.compacted or (message.copied and not copied)) and message.role not in SYSTEM_ROLES
    ]


def _lowest_of(rows: Iterable[Any]) -> Origin:
    return lowest(records.stored_origin(row[0], row[1], row[2]) for row in rows)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _with_index(
    method: Callable[Concatenate[SessionDB, Parameters], Result],
) -> Callable[Concatenate[SessionDB, Parameters], Result]:
    """Decorate a method that stores or hides messages: it is tried again if the search index was damaged."""

    @functools.wraps(method)
    def wrapper(self: SessionDB, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self.with_index(lambda: method(self, *args, **kwargs))

    return wrapper


def _detecting_damage(
    method: Callable[Concatenate[SessionDB, Parameters], Result],
) -> Callable[Concatenate[SessionDB, Parameters], Result]:
    """Decorate a method that reads rows: raise `DatabaseCorrupt` if a row has a value that only damage explains."""

    @functools.wraps(method)
    def wrapper(self: SessionDB, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with self.database.detecting_damage():
            return method(self, *args, **kwargs)

    return wrapper


class SessionDB:
    """The store of sessions in the file `path`. Threads may share it, and several processes may open the same file.

    Each method that writes is one transaction: when it returns, its rows are on disk and can be found. Methods raise
    `SessionError` for sessions and messages that don't exist. They raise `DatabaseCorrupt` if the file is damaged, and
    `DatabaseUnavailable` if it can't be used.

    Args:
        path: The file, usually state.db of a home, or the database of another engine.
        journal_mode: Journal mode of SQLite, see `Database`.
        read_only: True to open an existing file without changing it.
        clock: Function that returns the current time in epoch seconds.
        zone: Time zone of dates in queries; the machine's by default.
        make_vectors: Factory of the index for search by meaning; None to search by words only.

    Attributes:
        database: The engine.
        index: The search index of this engine.
        vectors: The index for search by meaning, which makes vectors in the background; None without such a search.
        vector_problem: The reason why there is no such index although the settings ask for one; "" if there is none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Engine,
        *,
        journal_mode: JournalMode = "auto",
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        zone: tzinfo | None = None,
        make_vectors: Callable[[Engine], VectorIndex] | None = None,
    ) -> None:
        self.database: Engine
        if isinstance(path, str | os.PathLike):
            self.database = Database(
                Path(path),
                MIGRATIONS,
                journal_mode=journal_mode,
                read_only=read_only,
                repair=REPAIR,
                empty_is_damage=True,
                queue_writers=True,
            )
        else:
            self.database = path
        self.index: SearchIndex = _search_index(self.database)
        self._clock = clock
        local_zone = zone or datetime.now().astimezone().tzinfo
        assert local_zone is not None
        self._zone: tzinfo = local_zone
        self._index_resets = 0
        self.vectors: VectorIndex | None = None
        self.vector_problem = ""
        if make_vectors is not None and not read_only:
            try:
                self.vectors = make_vectors(self.database)
            except ConfigError as exc:
                self.vector_problem = f"search by meaning does not work: {exc}"

    @property
    def sqlite(self) -> Database:
        """The engine, for what only SQLite needs: repair, vacuum, copies of the file.

        Raises:
            SessionError: The store has another engine.
        """
        if not isinstance(self.database, Database):
            raise SessionError(
                f"{self.database.label!r} is no file",
                "use the tools of the server, such as pg_dump and VACUUM",
            )
        return self.database

    @property
    def path(self) -> Path:
        """The file of the store. Raises `SessionError` if the store has another engine than SQLite."""
        return self.sqlite.path

    def close(self) -> None:
        """Close every connection to the file."""
        if self.vectors is not None:
            self.vectors.close()
        if self._index_resets:
            self.index.free_lost_pages()
        self.database.close()

    def check(self) -> list[str]:
        """Check the file and its search indexes; return a line for each fault, an empty list if there is none."""
        try:
            faults = self.database.integrity()
            if self.database.kind == "sqlite":  # the errors of a server have a remedy of their own
                faults = [f"{fault}; {REPAIR}" for fault in faults]
            return faults or self.index.check()
        except DatabaseCorrupt as exc:
            return [str(exc)]

    def backup(self, target: Path) -> None:
        """Copy the whole store to `target`, even while other threads or processes write."""
        self.sqlite.backup(target)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Join all writes of a `with` block into one transaction: when the block ends, all are on disk, or none.

        If the block fails because the search index is damaged, the index is reset, so that the next block does not.
        """
        try:
            with self.database.transaction() as connection:
                yield connection
        except DatabaseCorrupt as exc:
            # Only after the whole transaction: SQLite refuses everything else in one that met damage.
            if not self.database.in_transaction:
                self._reset_index(exc)
            raise

    # ------------------------------------------------------------------ sessions

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
        """Create a session, or fill the empty fields of the existing session with this id; return the id.

        Args:
            session_id: Any unique text.
            source: Name of the program or platform under which the session is listed.
            user: The owner of the session; a search with `user` finds only sessions of that owner.
            parent_id: Id of the session that this one continues, branches from or works for; "" for none.
            relation: The relation to the parent.
            title: The title. If another session of this user has the title, a number is added.
            model: Name of the model.
            model_config: Settings of the model, as the host wants to store them.
            system_prompt: The system prompt.
            cwd: The working folder.
            identity: The contract's `Session` as data, for programs that continue the session.
            started_at: Beginning of the session in epoch seconds; now by default.

        Raises:
            SessionError: the id is empty, or belongs to a session of another user.
        """
        session_id = sqlite_text(session_id)
        if not session_id:
            raise SessionError("a session needs an id, not ''", "give any text that is unique")
        user = sqlite_text(user)
        fields = {
            "user": user,
            "parent_id": sqlite_text(parent_id),
            "relation": relation,
            "model": sqlite_text(model),
            "model_config": records.as_json(dict(model_config or {})),
            "system_prompt": sqlite_text(system_prompt),
            "cwd": sqlite_text(cwd),
            "identity": records.as_json(dict(identity or {})),
        }
        if self._has_fields(session_id, fields, title):
            return session_id
        write = partial(
            self._create, session_id, source, fields, title, bool(identity), epoch_seconds(started_at)
        )
        self.database.retry(write, idempotent=True)
        return session_id

    def _has_fields(self, session_id: str, fields: Mapping[str, str], title: str) -> bool:
        """Return True if the session exists and has a value for each of these fields, as in all of its later turns."""
        if not self.database.exists:
            return False
        names = ", ".join(f's."{name}"' for name in fields)
        sql = f"SELECT s.title, {names} FROM sessions s WHERE s.id = ?"
        row = self.database.execute(sql, (session_id,)).fetchone()
        if row is None or row["user"] != fields["user"] or (title and not row["title"]):
            return False
        return all(row[name] or not value for name, value in fields.items())

    def _create(
        self,
        session_id: str,
        source: str,
        fields: Mapping[str, str],
        title: str,
        has_identity: bool,
        at: float | None,
    ) -> None:
        """Insert a session with these fields, or fill the empty fields of the existing session."""
        user = fields["user"]
        with self.transaction() as connection:
            row = connection.execute(
                f'SELECT "user", title FROM sessions WHERE id = ?{self.database.row_lock}', (session_id,)
            ).fetchone()
            if row is None:
                at = self._clock() if at is None else at
                values = {"id": session_id, "source": source, "started_at": at, "last_active": at, **fields}
                self.database.insert("sessions", [values], "key")
            elif row["user"] != user and (
                (row["user"] and user)
                or (has_identity and (row["user"] or self._is_begun(connection, session_id)))
            ):
                raise SessionError(f"session {session_id!r} belongs to another user", "use an id of your own")
            old_user, old_title = (row["user"], row["title"]) if row else ("", "")
            gets_owner = bool(not old_user and user)
            if old_title and gets_owner:
                # Taken off first: a session of the new owner may have the same title, which the index forbids.
                lineage.set_title(connection, session_id, "")
            if row is not None:
                filled = ", ".join(
                    f'"{name}" = CASE WHEN "{name}" = \'\' THEN ? ELSE "{name}" END' for name in fields
                )
                connection.execute(
                    f"UPDATE sessions SET {filled} WHERE id = ?", (*fields.values(), session_id)
                )
                if gets_owner:
                    self.index.change_owner(connection)
            wanted = old_title or title
            if wanted and (gets_owner or not old_title):
                lineage.set_free_title(connection, session_id, wanted, old_user or user)

    @_detecting_damage
    def id_for(self, session_id: str, user: str) -> str:
        """Return the id under which a session of `user` with this id is stored, or would be stored.

        If another user has a session with this id, the user is appended to the id: hosts name sessions after chats, and
        two users may have chats of one name.
        """
        session_id, user = sqlite_text(session_id), sqlite_text(user)
        if not self.database.exists:
            return session_id
        statement = _ids_of_user(session_id, user)
        return self._id_among(self.database.execute(*statement).fetchall(), session_id, user)

    def _id_among(self, rows: Iterable[Any], session_id: str, user: str) -> str:
        """Return `id_for` from the rows of `_ids_of_user`."""
        composed, owners = _composed_id(session_id, user), {row[0]: row[1] for row in rows}
        # Also if the session with the first id was deleted meanwhile: the second one stays this user's.
        if owners.get(composed) == user:
            return composed
        # Free, if nobody has it, or if it was made without an identity and nobody has spoken: it may hold an
        # unfinished turn, state or a frozen prompt of its owner.
        owner = owners.get(session_id, user)
        if owner == user or not (owner or self._is_begun(self.database, session_id)):
            return session_id
        # Another user may have given just this id to a session.
        return composed if composed not in owners else self.id_for(composed, user)

    @_detecting_damage
    def users(self, limit: int = 100, after: str = "") -> list[str]:
        """Return the owners of stored sessions in order, at most `limit` behind `after`, without the person at home."""
        users = [after]
        # One step in the index for each owner: DISTINCT would read a row of the index for each session.
        sql = "SELECT s.user FROM sessions s WHERE s.user > ? ORDER BY s.user LIMIT 1"
        while len(users) <= limit and self.database.exists:
            row = self.database.execute(sql, (users[-1],)).fetchone()
            if row is None:
                break
            users.append(row["user"])
        return users[1:]

    def give_to_home(self, user: str) -> int:
        """Make the sessions of an owner those of the person at home, and return their number.

        If sessions at home have the same titles, numbers are added.
        """
        sql, user = (
            'SELECT id, title, identity FROM sessions WHERE "user" = ? ORDER BY last_active',
            sqlite_text(user),
        )
        # Asked before the transaction, which waits for other writers.
        if not user or not self.database.exists or self.database.execute(sql, (user,)).fetchone() is None:
            return 0
        with self.transaction() as connection:
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
            self.index.change_owner(connection)
        return len(rows)

    @staticmethod
    def _is_begun(connection: Reader, session_id: str) -> bool:
        """Return True if a session has an identity, or ever had a message, also one that was undone."""
        row = connection.execute(
            """SELECT s.identity <> '' OR EXISTS (SELECT 1 FROM messages m WHERE m.session_key = s.key)
               FROM sessions s WHERE s.id = ?""",
            (session_id,),
        ).fetchone()
        return bool(row and row[0])

    @_detecting_damage
    def get_session(self, session_id: str) -> StoredSession | None:
        """Return the session, or None if it doesn't exist."""
        sql = f"SELECT {records.SESSION_COLUMNS} FROM sessions s WHERE s.id = ?"
        row = self.database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return records.session_of(row) if row else None

    def find_session(
        self, text: str, *, user: str | None = None, title_only: bool = False
    ) -> StoredSession | None:
        """Return the session whose id, beginning of an id, or title is `text`; None if there is none.

        Args:
            text: An id, the beginning of exactly one id, or a title. If sessions are named "Plan" and "Plan #2", "Plan"
                names the session with the highest number.
            user: Owner whose sessions are searched; None for all owners.
            title_only: True to compare `text` with titles only, not with ids.
        """
        find = lineage.find_titled if title_only else lineage.resolve
        session_id = find(self.database, sqlite_text(text), user and sqlite_text(user))
        return self.get_session(session_id) if session_id else None

    def stored_sources(self, sources: Iterable[str]) -> tuple[str, ...]:
        """Return those of `sources` that a stored session has."""
        wanted = frozenset(sources)
        return tuple(name for name in lineage.stored_sources(self.database) if name in wanted)

    def short_id(self, session_id: str) -> str:
        """Return the shortest beginning of an id that begins no other id of the store, of at least 12 characters."""
        text = sqlite_text(session_id)
        row = self.database.execute(
            "SELECT (SELECT max(id) FROM sessions WHERE id < :id), (SELECT min(id) FROM sessions WHERE id > :id)",
            {"id": text},
        ).fetchone()
        shared = max(_shared_length(text, other or "") for other in row)
        return session_id[: max(shared + 1, MIN_SHORT_ID_CHARS)]

    @_detecting_damage
    def list_sessions(
        self,
        *,
        source: str | Sequence[str] | None = None,
        exclude_sources: Sequence[str] = (),
        exclude_sessions: Sequence[str] = (),
        user: str | None = None,
        archived: bool = False,
        limit: int = 20,
        offset: int = 0,
        before: str | None = None,
    ) -> list[ListedSession]:
        """Return conversations, the last active first.

        A conversation that was compressed is listed once, by its newest session. A branch is a conversation of its own.
        Sessions of subagents, and sessions without messages, are left out.

        Args:
            source: Source of the sessions, or several sources; None for all.
            exclude_sources: Sources to leave out.
            exclude_sessions: Ids of sessions to leave out.
            user: Owner of the sessions; None for all owners.
            archived: True to return archived conversations only, False to leave them out.
            limit: Largest number of conversations.
            offset: Number of conversations to skip.
            before: Id of the session after which the list goes on; None for the beginning. Unlike a large `offset` it
                costs nothing.
        """
        return lineage.list_conversations(
            self.database,
            sources=_as_tuple(source),
            exclude_sources=exclude_sources,
            exclude_sessions=exclude_sessions,
            user=user and sqlite_text(user),
            archived=archived,
            limit=limit,
            offset=offset,
            before=before,
        )

    def system_prompt(self, session_id: str) -> str:
        """Return the system prompt that is stored with the session; "" if there is no prompt or no session."""
        sql = "SELECT system_prompt FROM sessions WHERE id = ?"
        row = self.database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return str(row[0]) if row else ""

    def set_system_prompt(self, session_id: str, prompt: str) -> None:
        """Store the system prompt, so that a resumed session sends the same bytes."""
        with self.transaction() as connection:
            key = _session_key(connection, session_id)
            connection.execute(
                "UPDATE sessions SET system_prompt = ? WHERE key = ?", (sqlite_text(prompt), key)
            )

    def memory_prompt(self, session_id: str) -> str | None:
        """Return the notes and the provider's block that were frozen for the session; None if none are stored."""
        sql = "SELECT memory_prompt FROM sessions WHERE id = ?"
        row = self.database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return None if row is None or row[0] is None else str(row[0])

    def freeze_memory_prompt(self, session_id: str, prompt: str, *, replaces: str | None = None) -> str:
        """Store the notes and the provider's block of a session, unless others are stored; return what is stored.

        Args:
            replaces: The stored text that `prompt` replaces; None if none is stored.
        """
        with self.transaction() as connection:
            key = _session_key(connection, session_id)
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
        with self.transaction() as connection:
            _session_key(connection, session_id)
            return lineage.set_title(connection, session_id, title)

    def set_default_title(self, session_id: str, title: str) -> None:
        """Give a session without a title this one, with the next free number if another session of its user has it.

        If another program takes the same number meanwhile, the next one is tried.
        """

        def write() -> None:
            with self.transaction() as connection:
                query = f"SELECT s.title, s.user FROM sessions s WHERE s.id = ?{self.database.row_lock}"
                row = connection.execute(query, (session_id,)).fetchone()
                if row is not None and not row["title"]:
                    lineage.set_free_title(connection, session_id, title, row["user"])

        self.database.retry(write, idempotent=True)

    def next_title(self, title: str, *, user: str = "") -> str:
        """Return `title` if no session of this user has it, else `title` with the next free number ("title #2")."""
        return lineage.next_title(self.database, title, sqlite_text(user))

    def add_usage(self, session_id: str, **amounts: float) -> None:
        """Add amounts to the session's counters of use.

        The counters are `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`, `reasoning_tokens`
        and `cost_usd`. Raises `SessionError` for another name.
        """
        unknown = sorted(set(amounts) - set(USAGE_COLUMNS))
        if unknown:
            raise SessionError(f"there are no counters {unknown!r}", f"known are {', '.join(USAGE_COLUMNS)}")
        with self.transaction() as connection:
            key = _session_key(connection, session_id)
            if amounts:
                sums = ", ".join(f"{column} = {column} + ?" for column in amounts)
                connection.execute(f"UPDATE sessions SET {sums} WHERE key = ?", (*amounts.values(), key))
            daily = {column: amounts[column] for column in DAILY_COLUMNS if column in amounts}
            if daily:
                (owner,) = connection.execute(
                    "SELECT s.user FROM sessions s WHERE s.key = ?", (key,)
                ).fetchone()
                add_daily_usage(connection, owner, self._clock(), **daily)

    def end_session(self, session_id: str, reason: str, *, at: float | None = None) -> None:
        """Mark the session as ended for `reason` at `at` (epoch seconds, now by default).

        Do nothing if the session has ended already.
        """
        with self.transaction() as connection:
            key = _session_key(connection, session_id)
            connection.execute(
                "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE key = ? AND ended_at IS NULL",
                (self._clock() if at is None else at, reason, key),
            )

    def reopen_session(self, session_id: str) -> None:
        """Mark an ended session as open again."""
        with self.transaction() as connection:
            key = _session_key(connection, session_id)
            connection.execute(_REOPEN, (key,))

    @_with_index
    def delete_session(self, session_id: str) -> list[str]:
        """Delete a session with its messages and turns; return the ids of the deleted turns.

        Sessions of subagents to which the session gave tasks are deleted too. Other children stay, without a parent.
        """
        deleted_turns: list[str] = []
        with self.transaction() as connection:
            self._locked_key(connection, session_id)
            for doomed in lineage.delegated(connection, session_id):
                key = _session_key(connection, doomed)
                deleted_turns += _turn_ids(connection, "session_key = ?", (key,))
                self.index.remove(connection, "id IN (SELECT id FROM messages WHERE session_key = ?)", (key,))
                connection.execute("DELETE FROM sessions WHERE key = ?", (key,))
                connection.execute("DELETE FROM host_state WHERE scope = 'session' AND owner = ?", (doomed,))
                connection.executemany(
                    "DELETE FROM state_meta WHERE key = ?",
                    [(records.meta_key(kind, doomed),) for kind in SESSION_META],
                )
                connection.execute(
                    "UPDATE sessions SET parent_id = '' WHERE parent_id = ? AND parent_id <> ''", (doomed,)
                )
        return deleted_turns

    def set_mark(self, session_id: str, mark: Mark, *, on: bool = True) -> None:
        """Set or remove a mark of a session. Raises `SessionError` if there is no such session."""
        with self.transaction() as connection:
            _session_key(connection, session_id)
            key = records.meta_key(mark, session_id)
            if on:
                connection.execute(
                    "INSERT INTO state_meta VALUES (?, '1') ON CONFLICT (key) DO NOTHING", (key,)
                )
            else:
                connection.execute("DELETE FROM state_meta WHERE key = ?", (key,))

    def is_marked(self, session_id: str, mark: Mark) -> bool:
        """Return True if the session has this mark."""
        return self.get_meta(records.meta_key(mark, session_id)) is not None

    def marked(self, mark: Mark) -> frozenset[str]:
        """Return the ids of the sessions that have this mark."""
        prefix = records.meta_key(mark, "")
        # A range, so that the index is used; `;` is the character after `:`.
        rows = self.database.execute(
            "SELECT key FROM state_meta WHERE key >= ? AND key < ?", (prefix, f"{prefix[:-1]};")
        )
        return frozenset(row[0].removeprefix(prefix) for row in rows)

    def delete_if_unused(self, session_id: str) -> bool:
        """Delete the session if it never had a message, and has no title and no children; return True if deleted."""
        with self.transaction() as connection:
            sql = """DELETE FROM sessions WHERE id = :id AND title = ''
                     AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_key = sessions.key)
                     AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_id = :id AND c.parent_id <> '')"""
            return connection.execute(sql, {"id": sqlite_text(session_id)}).rowcount > 0

    def compression_tip(self, session_id: str) -> str:
        """Return the id of the newest session into which this session was compressed; `session_id` if it never was."""
        return lineage.tip(self.database, session_id)

    def lineage(self, session_id: str) -> frozenset[str]:
        """Return `session_id` and the ids of all sessions that are connected with it by parents and children."""
        return lineage.family(self.database, session_id)

    def children(self, session_id: str) -> list[str]:
        """Return the ids of the sessions that have this session as their parent, also if it is not stored."""
        rows = self.database.execute(
            "SELECT id FROM sessions WHERE parent_id = ? AND parent_id <> '' ORDER BY key",
            (sqlite_text(session_id),),
        )
        return [row["id"] for row in rows]

    # ------------------------------------------------------------------ messages

    @_with_index
    def append_message(
        self,
        session_id: str,
        role: str,
        content: str | Sequence[Any] | None = "",
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        tool_name: str = "",
        tool_call_id: str = "",
        reasoning: str = "",
        timestamp: float | None = None,
        speaker: str = "",
        ref: str = "",
        copied: bool = False,
        native: object = None,
        origin: str = "",
    ) -> int:
        """Store a message and return its id.

        Args:
            session_id: Id of the session.
            role: Role of the message: user, assistant, tool, system.
            content: Text, or content parts of a chat API, or None.
            tool_calls: The tool calls of the message.
            tool_name: Name of the tool whose result the message is.
            tool_call_id: Id of the tool call whose result the message is.
            reasoning: The model's thoughts.
            timestamp: Time in epoch seconds; now by default.
            speaker: Name of the person who wrote the message.
            ref: The message's own id in another program. If the session has a message with this `ref`, nothing is
                stored and that message's id is returned.
            copied: True if a compression copied the message from the previous session. Search finds the original only.
            native: The message as JSON in the form of a framework, which no search, model or provider gets.
            origin: Who or what the text comes from, an `Origin`; default: by the role.
        """
        message = {
            "role": role,
            "content": content,
            "tool_calls": list(tool_calls),
            "tool_name": tool_name,
            "tool_call_id": tool_call_id,
            "reasoning": reasoning,
            "timestamp": timestamp,
            "speaker": speaker,
            "ref": ref,
            "copied": copied,
            "native": native,
            "origin": origin,
        }

        def write() -> int:
            last = not self.database.in_transaction
            with self.transaction() as connection:
                key, known, position = self._begin_append(session_id, [message])[:3]
                ids, _ = self._append(connection, key, [message], self._clock(), known, position, last=last)
                return ids[0]

        # Without a `ref`, a second try could store the message twice.
        message_id = self.database.retry(write, idempotent=bool(ref))
        self._wake_vectors()
        return message_id

    @_with_index
    @_with_index
    def append_turn(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any]],
        turn_id: str,
        number: int | None = None,
        *,
        author: str = "",
        at: float | None = None,
        reopen: bool = False,
        further: Sequence[Statement] | Callable[[int], Sequence[Statement]] = (),
        then: Callable[[AppendedTurn], object] = lambda _turn: None,
    ) -> list[int]:
        """Store a completed turn with its messages in one transaction; return the ids of the messages.

        If a turn with this id is stored already, change nothing and return the ids of its messages, so that an import
        may run twice.

        Args:
            session_id: Id of the session.
            messages: Messages in chat form. They may also have `speaker`, `ref`, `timestamp`, `reasoning`, `native`
                and `origin`.
            turn_id: Id of the turn.
            number: Number of the turn in the session; default: the next one, which is read while other writers of the
                session wait, so that no two turns get the same.
            author: Name of the person.
            at: Time of the turn in epoch seconds; now by default.
            reopen: True to mark the session as open again, if it has ended.
            further: Statements to run in the same transaction after the turn is stored, if it is a new one; or a function
                that makes them from the turn's number, while other writers wait.
            then: Function that gets what was stored, after the commit.

        Raises:
            SessionError: the turn has no messages, was rewound (wholly or in part), or belongs to another session.
        """
        if not messages:
            raise SessionError(f"turn {turn_id!r} has no messages", "store a turn once it is complete")
        now = self._clock()
        time_of_turn = epoch_seconds(at)
        write = partial(
            self._append_turn,
            *(session_id, messages, turn_id, number, author),
            at=now if time_of_turn is None else time_of_turn,
            now=now,
            reopen=reopen,
            further=further,
        )
        stored = self.database.retry(write, idempotent=True)
        self._wake_vectors()
        then(stored)
        return stored.message_ids

    def _append_turn(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any]],
        turn_id: str,
        number: int | None,
        author: str,
        *,
        at: float,
        now: float,
        reopen: bool,
        further: Sequence[Statement] | Callable[[int], Sequence[Statement]],
    ) -> AppendedTurn:
        rewound = SessionError(f"turn {turn_id!r} was taken back", "mint an id for what is said in its place")
        last = not self.database.in_transaction
        with self.transaction() as connection:
            key, known, position, turn, hidden, next_number = self._begin_append(
                session_id, messages, turn_id
            )
            if turn is not None:
                if turn["session_key"] != key:
                    raise SessionError(
                        f"turn {turn_id!r} belongs to another session", "mint an id for each turn"
                    )
                if turn["state"] == State.REWOUND:
                    raise rewound
                rows = connection.execute(
                    # The plus keeps SQLite from using the index over sessions, which would read the whole session.
                    "SELECT id FROM messages WHERE +session_key = ? AND id BETWEEN ? AND ? ORDER BY id",
                    (key, turn["first_message_id"], turn["last_message_id"]),
                )
                return AppendedTurn([row[0] for row in rows], turn["number"], None)
            if hidden:
                raise rewound
            number = next_number if number is None else number
            # The ids of the new messages are higher than those of the stored ones, and are not known yet.
            first_id, last_id = (min(known.values()), max(known.values())) if known else (None, None)
            statements: list[Statement] = [
                (
                    """INSERT INTO turns (id, session_key, number, first_message_id, last_message_id, author, at, stored_at)
                       SELECT ?, ?, ?, coalesce(?, min(id)), coalesce(max(id), ?), ?, ?, ?
                       FROM messages WHERE session_key = ? AND position >= ?""",
                    (turn_id, key, number, first_id, last_id, sqlite_text(author), at, now, key, position),
                ),
                ("DELETE FROM open_turns WHERE id = ?", (turn_id,)),
            ]
            if reopen:
                statements.append((_REOPEN, (key,)))
            others = further(number) if callable(further) else further
            ids, results = self._append(
                connection, key, messages, at, known, position, [*statements, *others], last=last
            )
            return AppendedTurn(ids, number, results[len(results) - len(others) :])

    def _begin_append(
        self, session_id: str, messages: Sequence[Mapping[str, Any]], turn_id: str = ""
    ) -> tuple[int, dict[str, int], int, Any, bool, int]:
        """Lock a session for new messages, and read what decides about them, in one round trip.

        Return the row key of the session, the ids of those messages by `ref` that it has already, its next position,
        the row of the turn if the turn is stored, True if a message of the turn was rewound, and the number of the
        session's next turn, or 0 without a `turn_id`.
        """
        session_id = sqlite_text(session_id)
        refs = [ref for message in messages if (ref := sqlite_text(str(message.get("ref") or "")))]
        condition, values = self.database.among("ref", refs)
        in_session = "session_key = (SELECT key FROM sessions WHERE id = ?)"
        position = f"SELECT coalesce(max(position), -1) + 1 FROM messages WHERE {in_session}"
        # A statement of its own: a server reads what else the statement with the lock reads before it has the lock.
        statements: list[Statement] = [
            (f"SELECT key FROM sessions WHERE id = ?{self.database.row_lock}", (session_id,)),
        ]
        if turn_id:
            # Messages that were stored before the turn ended have the turn's id, a colon and a number as `ref`. The
            # range ends with a semicolon, which is the character after a colon.
            hidden = f"""SELECT 1 FROM messages
                         WHERE {in_session} AND ref >= ? AND ref < ? AND ref <> '' AND position IS NULL"""
            statements += [
                (
                    f"SELECT ({position}), EXISTS ({hidden}), ({_LAST_NUMBER})",
                    (session_id, session_id, f"{turn_id}:", f"{turn_id};", session_id),
                ),
                ("SELECT * FROM turns WHERE id = ?", (turn_id,)),
            ]
        else:
            statements += [(f"SELECT ({position}), FALSE, -1", (session_id,))]
        if refs:
            sql = f"SELECT ref, id FROM messages WHERE {in_session} AND ref <> '' AND {condition}"
            statements.append((sql, (session_id, *values)))
        session, ((next_position, is_hidden, last_number),), *others = self.database.read(statements)
        if not session:
            raise _no_session(session_id)
        turn = others.pop(0) if turn_id else []
        known = {row["ref"]: int(row["id"]) for row in others[0]} if refs else {}
        return (
            session[0][0],
            known,
            next_position,
            turn[0] if turn else None,
            bool(is_hidden),
            int(last_number) + 1,
        )

    def _append(
        self,
        connection: Connection,
        key: int,
        messages: Sequence[Mapping[str, Any]],
        now: float,
        known: Mapping[str, int],
        position: int,
        further: Sequence[Statement] = (),
        *,
        last: bool,
    ) -> tuple[list[int], list[list[Any]]]:
        """Insert messages into the session with this row key, and add them to the search index.

        Return their ids, and the rows of the further statements. A message whose `ref` is in `known` is not inserted;
        its id is there.

        Args:
            now: Time of messages without one.
            position: The next position in the session.
            further: Statements to run after the messages are stored.
            last: True if nothing follows in the transaction.
        """
        rows: list[dict[str, Any]] = []
        calls = 0
        row_numbers: dict[str, int] = {}  # by `ref`: two of these messages may have the same
        places: list[tuple[int | None, int]] = []  # the id of a stored message, else the number of a row
        for message in messages:
            values = records.columns_of(message, now)
            ref = values["ref"]
            stored, number = known.get(ref), row_numbers.get(ref, len(rows))
            places.append((stored, number))
            if stored is not None or number < len(rows):
                continue
            if ref:
                row_numbers[ref] = number
            place = {"session_key": key, "position": position + number}
            rows.append({**place, **values, **self.index.columns(values)})
            calls += len(message.get("tool_calls") or ()) if values["tool_calls"] else 0
        statements: list[Statement] = []
        if rows:
            latest = max(row["timestamp"] for row in rows)
            statements.append(
                (
                    """UPDATE sessions SET message_count = message_count + ?, tool_call_count = tool_call_count + ?,
                           last_active = CASE WHEN last_active < ? THEN ? ELSE last_active END WHERE key = ?""",
                    (len(rows), calls, latest, latest, key),
                )
            )
        new_ids, results = self.database.insert("messages", rows, "id", [*statements, *further], last=last)
        self.index.add(connection, new_ids)
        ids = [new_ids[number] if stored is None else stored for stored, number in places]
        return ids, results[len(statements) :]

    @_detecting_damage
    def lowest_origin(self, session_id: str) -> Origin:
        """Return the lowest origin of the messages that the model gets of a session; "person" if none is low."""
        return self.number_and_origin(session_id)[1]

    @_detecting_damage
    def number_and_origin(self, session_id: str) -> tuple[int, Origin]:
        """Return the number of the last turn and the `lowest_origin` of a session, in one round trip."""
        if not self.database.exists:
            return 0, "person"
        numbers, origins = self._read_standing(sqlite_text(session_id))
        return int(numbers[0][0]), _lowest_of(origins)

    @_detecting_damage
    def id_number_and_origin(self, session_id: str, user: str) -> tuple[str, int, Origin]:
        """Return `id_for`, and `number_and_origin` of the session with that id, in one round trip as a rule."""
        if not self.database.exists:
            return sqlite_text(session_id), 0, "person"
        try:
            rows = self.database.read(self.id_number_and_origin_statements(session_id, user))
        except sqlite3.OperationalError as exc:
            raise DatabaseUnavailable(f"the origins of {session_id!r} can't be read: {exc}", REPAIR) from exc
        return self.id_number_and_origin_from(rows, session_id, user)

    @staticmethod
    def id_number_and_origin_statements(session_id: str, user: str) -> list[Statement]:
        """Return the statements that `id_number_and_origin_from` needs the rows of."""
        session_id, user = sqlite_text(session_id), sqlite_text(user)
        return [_ids_and_numbers(session_id, user), (_ORIGINS, (session_id,))]

    @_detecting_damage
    def id_number_and_origin_from(
        self, rows: Sequence[list[Any]], session_id: str, user: str
    ) -> tuple[str, int, Origin]:
        """Return `id_number_and_origin` from the rows of its statements."""
        session_id, user = sqlite_text(session_id), sqlite_text(user)
        ids, origins = rows
        own = self._id_among(ids, session_id, user)
        if own != session_id:
            return own, *self.number_and_origin(own)
        return own, _number_among(ids, own), _lowest_of(origins)

    @_detecting_damage
    def id_number_and_lineage(self, session_id: str, user: str) -> tuple[str, int, frozenset[str]]:
        """Return `id_for`, and the number of the last turn and the `lineage` of the session with that id.

        This is one round trip as a rule.
        """
        session_id, user = sqlite_text(session_id), sqlite_text(user)
        if not self.database.exists:
            return session_id, 0, frozenset([session_id])
        rows, related = self.database.read(
            [_ids_and_numbers(session_id, user), lineage.family_statement(session_id)]
        )
        own = self._id_among(rows, session_id, user)
        if own != session_id:
            return own, self.last_turn_number(own), self.lineage(own)
        return own, _number_among(rows, own), lineage.family_from(self.database, session_id, related)

    @_detecting_damage
    def established_session(
        self,
        session_id: str,
        user: str,
        fields: Mapping[str, str],
        *,
        recent: int,
        expired_before: float,
        meta_key: str,
    ) -> TurnStart | None:
        """Return what a turn needs of a stored session, in one round trip as a rule.

        Return None for a session that is not stored under just this id and owner, or lacks one of the fields.

        Args:
            fields: Columns of the session that must be filled if their value here is not "".
            recent: Number of latest messages to return.
            expired_before: Time in epoch seconds before which an unfinished turn has expired.
            meta_key: Key whose value of `get_meta` is returned.
        """
        session_id, user = sqlite_text(session_id), sqlite_text(user)
        if not self.database.exists:
            return None
        names = ", ".join(f's."{name}"' for name in fields)
        composed = _composed_id(session_id, user)
        sql = f"""SELECT s.id, s.user, {_NUMBER_OF_ROW}, s.memory_prompt, ({_META}),
                    EXISTS (SELECT 1 FROM open_turns WHERE updated_at < ?), {names}
                  FROM sessions s WHERE s.id IN (?, ?)"""
        rows, latest, related = self.database.read(
            [
                (sql, (meta_key, expired_before, session_id, composed)),
                messages_statement(session_id, last=recent),
                lineage.family_statement(session_id),
            ]
        )
        stored = {row[0]: row for row in rows}
        row, second = stored.get(session_id), stored.get(composed)
        # The second id of a user goes before the first one; see `id_for`.
        if row is None or row[1] != user or (second is not None and second[1] == user):
            return None
        if not all(row[name] or not value for name, value in fields.items()):
            return None
        return TurnStart(
            last_number=_number_among(rows, session_id),
            lineage=lineage.family_from(self.database, session_id, related),
            prompt=None if row[3] is None else str(row[3]),
            recent=tuple(records.message_of(message) for message in latest),
            meta=row[4],
            has_expired_turns=bool(row[5]),
        )

    def _read_standing(self, session_id: str) -> list[list[Any]]:
        """Return the rows with the number of the last turn and with the origins of a session."""
        try:
            return self.database.read([(_LAST_NUMBER, (session_id,)), (_ORIGINS, (session_id,))])
        except sqlite3.OperationalError as exc:
            raise DatabaseUnavailable(f"the origins of {session_id!r} can't be read: {exc}", REPAIR) from exc

    @_detecting_damage
    def get_message(self, message_id: int) -> StoredMessage | None:
        """Return a message, or None if it doesn't exist or was rewound."""
        row = self.database.execute(
            f"{_MESSAGES} WHERE m.id = ? AND m.position IS NOT NULL", (message_id,)
        ).fetchone()
        return records.message_of(row) if row else None

    @_detecting_damage
    def get_messages(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        offset: int = 0,
        last_message_id: int | None = None,
        last: int | None = None,
    ) -> list[StoredMessage]:
        """Return the messages of a session, oldest first, without rewound messages.

        Args:
            session_id: Id of the session.
            last: Return only so many messages at the end of the session; None for all.
            limit: Largest number of messages; None for all.
            offset: Number of messages to skip.
            last_message_id: Id of the last message to return; None for the end of the session.
        """
        statement = messages_statement(
            sqlite_text(session_id), limit=limit, offset=offset, last_message_id=last_message_id, last=last
        )
        rows = self.database.execute(*statement)
        return [records.message_of(row) for row in rows]

    def first_messages(self, source: str, count: int) -> Iterator[StoredMessage]:
        """Yield the first `count` messages of each session with this source, session by session.

        The source of a session is the program or platform under which it is listed.
        """
        rows = self.database.execute(
            f"""SELECT {records.MESSAGE_COLUMNS} FROM sessions s CROSS JOIN messages m
                WHERE m.session_key = s.key AND s.source = ? AND m.position < ? ORDER BY s.key, m.position""",
            (source, count),
        )
        return map(records.message_of, rows)

    def get_messages_as_conversation(
        self, session_id: str, *, include_ancestors: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages of a session in chat form, as a model gets them, without compacted messages.

        Recall and system prompts that a host stored with them are left out. What a tool returned is not changed.

        With `include_ancestors`, return all messages of the conversation: first those of the sessions that were
        compressed into this session, then its own messages. No message is repeated.
        """
        chain = [session_id]
        if include_ancestors:
            chain = lineage.compressed_from(self.database, session_id)
        return [
            message
            for link in chain
            for message in as_conversation(self.get_messages(link), link == chain[0])
        ]

    @_detecting_damage
    def around(self, message_id: int, window: int = 5, *, roles: Sequence[str] = ()) -> Window | None:
        """Return a message with up to `window` messages before and after it; None if the message doesn't exist.

        With `roles`, messages of other roles are left out, except the message itself.
        """
        row = self.database.execute(
            "SELECT session_key, position FROM messages WHERE id = ? AND position IS NOT NULL", (message_id,)
        ).fetchone()
        if row is None:
            return None
        key, position = row
        rows = self.database.execute(
            f"{_MESSAGES} WHERE m.session_key = ? AND m.position BETWEEN ? AND ? ORDER BY m.position",
            (key, position - window, position + window),
        )
        newest = "SELECT max(position) FROM messages WHERE session_key = ?"
        last = self.database.execute(newest, (key,)).fetchone()[0]
        shown = [
            m for m in map(records.message_of, rows) if not roles or m.role in roles or m.id == message_id
        ]
        return Window(tuple(shown), max(position - window, 0), max(last - position - window, 0))

    def transcript(self, session_id: str, last_message_id: int | None = None) -> StoredTranscript:
        """Return a reader of a session's messages, for providers that learn from the session.

        The reader leaves out messages that a compression copied from the previous session, and messages of incomplete
        turns. With `last_message_id`, it stops at that message.
        """

        def read() -> list[StoredMessage]:
            messages = self.get_messages(session_id, last_message_id=last_message_id)
            rows = self.database.execute(
                "SELECT t.id FROM turns t JOIN sessions s ON s.key = t.session_key WHERE s.id = ? AND t.state = 0",
                (sqlite_text(session_id),),
            )
            complete = {"", *(row[0] for row in rows)}  # "" is the turn of messages that belong to none
            return [m for m in messages if not m.copied and records.turn_of_ref(m.ref) in complete]

        return StoredTranscript(read)

    @_with_index
    def rewind(self, session_id: str, message_id: int) -> list[str]:
        """Rewind a session: hide a message and all later messages; return the ids of the turns that lost messages.

        Hidden messages stay in the file, but no method returns them. Raises `SessionError` if the message is not in the
        session.
        """
        with self.transaction() as connection:
            key = self._locked_key(connection, session_id)
            position = _position(connection, key, message_id)
            if position is None:
                raise SessionError(
                    f"message {message_id!r} is not in this session", "take one from get_messages"
                )
            broken = (key, message_id)
            turns = _turn_ids(connection, "session_key = ? AND last_message_id >= ?", broken)
            self.index.remove(
                connection,
                "id IN (SELECT id FROM messages WHERE session_key = ? AND position >= ?)",
                (key, position),
            )
            connection.execute(
                "UPDATE messages SET state = ?, position = NULL WHERE session_key = ? AND position >= ?",
                (State.REWOUND, key, position),
            )
            connection.execute(
                "UPDATE turns SET state = ? WHERE session_key = ? AND last_message_id >= ?",
                (State.REWOUND, *broken),
            )
            connection.execute(
                "UPDATE sessions SET rewind_count = rewind_count + 1, message_count = ? WHERE key = ?",
                (position, key),
            )
            return turns

    def withdraw(self, session_id: str, message_id: int) -> None:
        """Hide one message of an incomplete turn, because the turn continues in another session."""
        with self.transaction() as connection:
            self._hide(connection, self._locked_key(connection, session_id), message_id)

    @_with_index
    def delete_copy(self, session_id: str, ref: str) -> None:
        """Delete the copy, made by a compression, of the message with this `ref`; do nothing if there is no copy.

        The caller stores the message itself in the session.
        """
        with self.transaction() as connection:
            key = self._locked_key(connection, session_id)
            row = connection.execute(
                "SELECT id FROM messages WHERE session_key = ? AND ref = ? AND state = ?",
                (key, sqlite_text(ref), State.COPIED),
            ).fetchone()
            if row is not None:
                self._hide(connection, key, row[0])
                connection.execute("DELETE FROM messages WHERE id = ?", (row[0],))

    @_with_index
    def compact(self, session_id: str, last_message_id: int) -> int:
        """Mark the messages up to `last_message_id` as compacted; return the number of marked messages.

        The model no longer gets compacted messages; search still finds them.
        """
        with self.transaction() as connection:
            return connection.execute(
                "UPDATE messages SET state = ? WHERE session_key = ? AND id <= ? AND state = ?",
                (State.COMPACTED, _session_key(connection, session_id), last_message_id, State.LIVE),
            ).rowcount

    def has_message(self, session_id: str, ref: str) -> bool:
        """Return True if the session has a message with this `ref`, even if the message was rewound."""
        sql = "SELECT 1 FROM messages WHERE session_key = (SELECT key FROM sessions WHERE id = ?) AND ref = ? AND ref <> ''"
        return self.database.execute(sql, (sqlite_text(session_id), sqlite_text(ref))).fetchone() is not None

    def last_message_id(self, session_id: str) -> int | None:
        """Return the id of the session's newest message, without rewound messages; None if it has no message."""
        sql = """SELECT m.id FROM messages m JOIN sessions s ON s.key = m.session_key
                 WHERE s.id = ? AND m.position IS NOT NULL ORDER BY m.position DESC LIMIT 1"""
        row = self.database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return None if row is None else int(row[0])

    def counts(self) -> dict[str, int]:
        """Return the number of sessions and the number of messages, without rewound messages."""
        sql = "SELECT count(*), coalesce(sum(message_count), 0) FROM sessions"
        row = self.database.execute(sql).fetchone()
        return {"sessions": row[0], "messages": row[1]}

    # ------------------------------------------------------------------ turns

    def has_turn(self, turn_id: str) -> bool:
        """Return True if a turn with this id was stored, even if the turn was rewound later."""
        return self.database.execute("SELECT 1 FROM turns WHERE id = ?", (turn_id,)).fetchone() is not None

    def turn_messages(self, turn_id: str) -> list[tuple[str, str]]:
        """Return role and text of each message of a stored turn, even if the turn was rewound later."""
        # The plus keeps SQLite from using the index over sessions, which would read the whole session.
        sql = """SELECT m.role, m.content FROM turns t JOIN messages m ON +m.session_key = t.session_key
                 AND m.id BETWEEN t.first_message_id AND t.last_message_id WHERE t.id = ? ORDER BY m.id"""
        return [(row[0], row[1]) for row in self.database.execute(sql, (turn_id,))]

    def turn_start(self, session_id: str, turns: int) -> int:
        """Return the id of the first message of the last `turns` turns of a session.

        Raises:
            SessionError: The session has fewer turns, or `turns` is no number of turns.
        """
        if isinstance(turns, bool) or not isinstance(turns, int) or turns < 1:
            raise SessionError(f"{turns!r} turns can't be undone", "give a whole number, 1 or more")
        row = self.database.execute(
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

    def idle_sessions(self, before: float, sources: Sequence[str] = ()) -> list[StoredSession]:
        """Return open sessions with messages whose last message is older than `before` (epoch seconds), oldest first.

        Args:
            sources: Only sessions of these sources; default: all.
        """
        condition, parameters = self.database.among("s.source", sources)
        of_sources = f"AND {condition}" if sources else ""
        rows = self.database.execute(
            f"""SELECT {records.SESSION_COLUMNS} FROM sessions s
                WHERE s.last_active < ? AND s.ended_at IS NULL AND s.message_count > 0 {of_sources}
                ORDER BY s.last_active""",
            (before, *(parameters if sources else ())),
        )
        return [records.session_of(row) for row in rows]

    def session_identity(self, session_id: str) -> dict[str, Any]:
        """Return the contract's `Session` as data, as it was stored with the session; empty if there is none."""
        sql = "SELECT identity FROM sessions WHERE id = ?"
        row = self.database.execute(sql, (sqlite_text(session_id),)).fetchone()
        return dict(json.loads(row[0])) if row and row[0] else {}

    def conversation_of(self, turn_id: str) -> list[Message]:
        """Return the messages that the model had at the end of a turn, as text; [] for a turn that is not stored."""
        row = self.database.execute(
            "SELECT s.id, t.last_message_id FROM turns t JOIN sessions s ON s.key = t.session_key WHERE t.id = ?",
            (sqlite_text(turn_id),),
        ).fetchone()
        if row is None:
            return []
        messages = self.get_messages(row[0], last_message_id=row[1])
        return [message.as_text() for message in messages if not message.compacted]

    def turn_count(self, session_id: str) -> int:
        """Return the number of completed turns of the session, without rewound turns."""
        return int(self.database.execute(_TURN_COUNT, (sqlite_text(session_id),)).fetchone()[0])

    def last_turn_number(self, session_id: str) -> int:
        """Return the highest number of a completed turn of the session, without rewound turns; 0 if it has none."""
        return int(self.database.execute(_LAST_NUMBER, (sqlite_text(session_id),)).fetchone()[0])

    def complete_turns(
        self,
        since: int = 0,
        *,
        session_id: str | None = None,
    ) -> Iterator[CompletedTurn]:
        """Yield completed turns, oldest first, without rewound turns.

        The messages of a turn are read when the turn is yielded.

        Args:
            since: Yield only turns whose `CompletedTurn.key` is higher.
            session_id: Yield only turns of this session; None for all sessions.
        """
        condition, parameters = "", tuple[str, ...]()
        if session_id is not None:
            condition = "AND t.session_key = (SELECT key FROM sessions WHERE id = ?)"
            parameters = (session_id,)
        # The plus keeps a server from reading the whole index of turns with this state.
        sql = f"""SELECT t.*, s.id AS session_id, s.identity FROM turns t JOIN sessions s ON s.key = t.session_key
            WHERE t.key > ? AND +t.state = 0 {condition} ORDER BY t.key LIMIT {TURNS_PER_QUERY}"""
        while rows := self.database.execute(sql, (since, *parameters)).fetchall():
            for row in rows:
                yield self._completed(row)
            since = rows[-1]["key"]

    # ------------------------------------------------------------------ search

    @_detecting_damage
    def search(
        self,
        query: str,
        *,
        role: str | Sequence[str] | None = None,
        source: str | Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        session: str | Sequence[str] | None = None,
        user: str | None = None,
        exclude_sources: Sequence[str] = (),
        exclude_sessions: Sequence[str] = (),
        limit: int = 10,
        sort: Order | None = None,
        proactive: bool = False,
        snippets: bool = True,
        distinct: bool = False,
        now: float | None = None,
    ) -> list[SearchHit]:
        """Return the messages that answer `query` best. No query raises an error.

        Messages of sessions that a program began (`PROGRAM_SOURCES`) come after those of persons' sessions, and only
        one of several messages with nearly the same words. Calls and results of the tools of memory, and instructions
        of a host, are found only if their role is asked for.

        A query is plain text with any punctuation, in any script. A message must fulfil the conditions in it: "quoted
        phrases", `prefix*`, and AND, OR and NOT in capitals.

        Args:
            query: The question.
            role: Search only messages with this role, or one of these roles.
            source: Search only sessions with this source, or one of these sources.
            since: Search only messages at or after this time, in epoch seconds.
            until: Search only messages before this time, in epoch seconds.
            session: Search only the session with this id, or one of these ids.
            user: Search only sessions of this owner.
            exclude_sources: Sources to leave out.
            exclude_sessions: Ids of sessions to leave out.
            limit: Largest number of messages.
            sort: Order of the result by time; None orders by relevance.
            proactive: True for recall that the person did not ask for. A message is then returned only if it probably
                answers; a long message must be more probable than a short one.
            snippets: True to fill `SearchHit.snippet`. The method `snippet` makes the snippet of one message.
            distinct: True to return each text once.
            now: Time in epoch seconds from which "last week" in the query counts; the store's clock by default.
        """
        # Imported here, so that commands which count or list sessions start 80 ms sooner.
        from hermes_core.recall.query import analyse
        from hermes_core.sessions.search import candidates
        from hermes_core.sessions.search.filters import Filters

        filters = Filters(
            roles=_as_tuple(role),
            sources=_as_tuple(source),
            sessions=_as_tuple(session),
            exclude_sources=tuple(exclude_sources),
            exclude_sessions=tuple(exclude_sessions),
            since=since,
            until=until,
            user=user and sqlite_text(user),
        )
        now = self._clock() if now is None else now
        query = sqlite_text(query)
        covered = self.vectors.ask_coverage(query, filters.user) if self.vectors and sort is None else None
        facts = self.index.scope_facts(query, filters, {*exclude_sources, *records.PROGRAM_SOURCES})
        # A source that is not stored would only make the search read the session of each message.
        filters = replace(
            filters, exclude_sources=tuple(source for source in exclude_sources if source in facts.sources)
        )
        analysis = analyse(query, now=now, names=facts.names, zone=self._zone)
        limit = max(limit, 0)

        def search_in(filters: Filters, count: int, distinct: candidates.Distinct) -> list[SearchHit]:
            plainly = partial(
                candidates.search_plainly,
                self.database,
                analysis,
                filters,
                limit=count,
                order=sort,
                proactive=proactive,
            )
            if not self.index.is_usable():
                return plainly()
            try:
                return candidates.search(
                    self.index,
                    analysis,
                    filters,
                    limit=count,
                    order=sort,
                    now=now,
                    zone=self._zone,
                    vectors=self.vectors,
                    question=self.vectors.question(query, analysis.text) if self.vectors else "",
                    covered=covered,
                    proactive=proactive,
                    snippets=snippets,
                    distinct=distinct,
                )
            except (DatabaseCorrupt, sqlite3.OperationalError) as exc:
                hits = plainly()
                # A store that is opened for reading only, or that another program writes, can't be reset.
                with contextlib.suppress(DatabaseUnavailable):
                    self._reset_index(exc)
                return hits

        once: candidates.Distinct = "text" if distinct else ""
        programs: tuple[str, ...] = ()
        if not (filters.sources or filters.sessions):
            programs = tuple(
                source
                for source in facts.sources
                if source in records.PROGRAM_SOURCES and source not in exclude_sources
            )
        hits = search_in(filters.without_sources(programs), limit, once)
        if programs and len(hits) < limit:
            hits += search_in(replace(filters, sources=programs), limit - len(hits), "words")
            if sort:
                hits.sort(key=lambda hit: (hit.timestamp, hit.message_id), reverse=sort == "newest")
        return hits

    def read_moment(
        self, text: str, *, now: float | None = None, zone: tzinfo | None = None, end: bool = False
    ) -> float:
        """Return a time in epoch seconds from an ISO date or time, or from words such as "last week" or "March".

        Args:
            text: The time.
            now: The time in epoch seconds from which the words count; the store's clock by default.
            zone: Time zone of a text that names none; the store's by default.
            end: True to return the end of a day, week or month that the text names, False for its beginning.

        Raises:
            SessionError: The text names no time.
        """
        from hermes_core.recall.dates import read_moment

        try:
            return read_moment(text, self._clock() if now is None else now, zone or self._zone, end=end)
        except ValueError as exc:
            remedy = "write it as 2026-01-31 or 2026-01-31T12:00, or as in: yesterday, last week, March 2026"
            raise SessionError(str(exc), remedy) from exc

    def with_index(self, write: Callable[[], Result]) -> Result:
        """Call `write`, which stores or hides messages. If the search index is damaged, reset it and call `write` again.

        Messages count and the index is made from them, so no write may fail because of the index.
        """

        def write_once() -> Result:
            resets = self._index_resets
            try:
                return write()
            except DatabaseCorrupt:
                if self.database.in_transaction or self._index_resets == resets:
                    raise
                return write()

        # Two programs may lock the same rows in another order.
        return self.database.retry(write_once, idempotent=False)

    def _reset_index(self, exc: Exception) -> None:
        """Make the search index anew if it is damaged, else raise `exc`."""
        self.index.reset(exc)
        self._index_resets += 1

    @property
    def vector_fault(self) -> str:
        """The reason why searches are by words only although search by meaning is configured; "" if they are not."""
        return self.vector_problem or (self.vectors.fault if self.vectors is not None else "")

    @property
    def search_problem(self) -> str:
        """A sentence if searches do not use the search index fully, with what to do; "" if they do."""
        return self.index.problem() if self.database.exists else ""

    @_detecting_damage
    def snippet(self, message_id: int, query: str) -> str:
        """Return the part of a message that answers `query`, with matches marked as >>>this<<<.

        Return "" if the message doesn't exist.
        """
        from hermes_core.recall.query import analyse
        from hermes_core.sessions.search import candidates

        analysis = analyse(sqlite_text(query), now=self._clock(), zone=self._zone)
        if not self.index.is_usable():
            message = self.get_message(message_id)
            return candidates.around_first(message.content, analysis) if message else ""
        return candidates.snippet_of(self.database, analysis, message_id)

    # ------------------------------------------------------------------ values beside the sessions

    def get_meta(self, key: str) -> str | None:
        """Return the value that `set_meta` stored under `key`; None if there is none."""
        row = self.database.execute(_META, (key,)).fetchone()
        return row[0] if row else None

    def set_meta(self, key: str, value: str) -> None:
        """Store a text under `key`, independent of the sessions; replace an earlier value."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO state_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )

    def _locked_key(self, connection: Connection, session_id: str) -> int:
        """Return the row key of a session, and let other writers of the session wait until the transaction ends."""
        sql = f"SELECT key FROM sessions WHERE id = ?{self.database.row_lock}"
        row = connection.execute(sql, (sqlite_text(session_id),)).fetchone()
        if row is None:
            raise _no_session(session_id)
        return int(row[0])

    def _hide(self, connection: Connection, key: int, message_id: int) -> None:
        """Hide one message. Later messages of the session move up by one, because positions have no gaps."""
        position = _position(connection, key, message_id)
        if position is None:
            return
        self.index.remove(connection, "id = ?", (message_id,))
        connection.execute(
            "UPDATE messages SET state = ?, position = NULL WHERE id = ?", (State.REWOUND, message_id)
        )
        later = connection.execute(
            "SELECT id FROM messages WHERE session_key = ? AND position > ? ORDER BY position",
            (key, position),
        )
        # Updated one by one, in order, because the unique index over positions must hold after each update.
        connection.executemany("UPDATE messages SET position = position - 1 WHERE id = ?", later.fetchall())
        connection.execute("UPDATE sessions SET message_count = message_count - 1 WHERE key = ?", (key,))

    def _wake_vectors(self) -> None:
        if self.vectors is None:
            return
        if self.database.in_transaction:  # its thread would not see the messages before the commit
            self.database.after_commit(self.vectors.wake)
        else:
            self.vectors.wake()

    def _completed(self, row: Any) -> CompletedTurn:
        with self.database.detecting_damage():
            messages = self.database.execute(
                # The plus keeps SQLite from using the index over sessions, which would read the whole session.
                f"{_MESSAGES} WHERE +m.session_key = ? AND m.state < 2 AND m.id BETWEEN ? AND ? ORDER BY m.id",
                (row["session_key"], row["first_message_id"], row["last_message_id"]),
            )
            turn = records.turn_from_row(row, [records.message_of(message) for message in messages])
            return CompletedTurn(row["key"], row["session_id"], turn, json.loads(row["identity"] or "{}"))


def _search_index(database: Engine) -> SearchIndex:
    """Return the search index of an engine."""
    if isinstance(database, Database):
        return Fts5Index(database)
    return cast("SearchEngine", database).search_index()


def _session_key(connection: Reader, session_id: str) -> int:
    """Return the row key of a session. Raise `SessionError` if the session doesn't exist."""
    row = connection.execute("SELECT key FROM sessions WHERE id = ?", (sqlite_text(session_id),)).fetchone()
    if row is None:
        raise _no_session(session_id)
    return int(row[0])


def _no_session(session_id: str) -> SessionError:
    return SessionError(f"there is no session {session_id!r}", "create it first")


def _position(connection: Reader, key: int, message_id: int) -> int | None:
    """Return the position of a message in its session; None if the session has no such message, or it is hidden."""
    row = connection.execute(
        "SELECT position FROM messages WHERE session_key = ? AND id = ? AND position IS NOT NULL",
        (key, message_id),
    ).fetchone()
    return None if row is None else int(row[0])


def _turn_ids(connection: Reader, condition: str, parameters: tuple[object, ...]) -> list[str]:
    sql = f"SELECT id FROM turns WHERE {condition} AND state = 0 ORDER BY key"
    return [row[0] for row in connection.execute(sql, parameters)]


def _shared_length(text: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    pairs = zip(text, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))


def _as_tuple(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
