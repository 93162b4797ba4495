"""The store of sessions, messages and completed turns. A stored message can be found at once."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_core.contract.hooks import TranscriptReader
from hermes_core.contract.values import Message
from hermes_core.errors import DatabaseCorrupt, SessionError
from hermes_core.outbox.rows import Transcript
from hermes_core.safety.fence import without_context
from hermes_core.sessions import lineage, records
from hermes_core.sessions.lineage import ID_COLUMNS, no_session, position_of, require_scope, session_key
from hermes_core.sessions.past_sessions import PastSessions
from hermes_core.sessions.records import (
    SESSION_META,
    SYSTEM_ROLES,
    AppendedTurn,
    ListedSession,
    Relation,
    State,
    StoredMessage,
    StoredSession,
    as_tuple,
    epoch_seconds,
    sqlite_text,
)
from hermes_core.sessions.schema import open_file
from hermes_core.sessions.search.index import search_index
from hermes_core.sessions.session_meta import SessionMeta
from hermes_core.sessions.turn_store import LAST_NUMBER, TurnStore
from hermes_core.storage.engine import REPAIR, Connection, Engine, Reader, Statement, detecting_damage
from hermes_core.storage.sqlite import JournalMode

if TYPE_CHECKING:
    from hermes_core.sessions.search.protocol import VectorIndex

log = logging.getLogger(__name__)

_REOPEN = "UPDATE sessions SET ended_at = NULL, end_reason = '' WHERE key = ? AND ended_at IS NOT NULL"


def as_conversation(messages: Iterable[StoredMessage], copied: bool = True) -> list[dict[str, Any]]:
    """Return messages of a session in chat form, as `SessionStore.get_messages_as_conversation` does.

    Args:
        copied: True to return also messages that a compression copied from the previous session.
    """
    return [
        message.as_chat() if message.role == "tool" else without_context(message.as_chat())
        for message in messages
        if (copied or not message.copied) and message.role not in SYSTEM_ROLES
    ]


Result = TypeVar("Result")


class SessionStore:
    """The sessions of a home and their messages. Threads may share a store, and several processes may open it.

    Each method that writes is one transaction: when it returns, its rows are on disk and can be found. In a block of
    `transaction`, this holds at the end of the block. The messages of a session have one order. A turn, or a message
    with a `ref`, is stored once, even if it is appended twice. If a write meets a damaged search index, the index is made
    again from the messages and the write is repeated.

    Methods raise `SessionError` for sessions and messages that don't exist. They raise `DatabaseCorrupt` if the database
    is damaged, and `DatabaseUnavailable` if it can't be used.

    Args:
        path: The file, usually state.db of a home, or the engine of another database.
        journal_mode: Journal mode of SQLite, see `Database`.
        read_only: True to open an existing file without changing it.
        clock: Function that returns the current time in epoch seconds.
        zone: Time zone of dates in queries; the machine's by default.
        make_vectors: Factory of the index for search by meaning; None to search by words only.

    Attributes:
        database: The engine.
        index: The search index of this engine.
        past: The search in past sessions.
        turns: The turns of the sessions.
        meta: What is stored with a session beside its messages: prompts, title, marks, counters.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Engine,
        *,
        journal_mode: JournalMode = "auto",
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        zone: tzinfo | None = None,
        make_vectors: Callable[[Engine], VectorIndex | None] | None = None,
    ) -> None:
        self._remedy = ""  # the errors of a server have a remedy of their own
        if isinstance(path, str | os.PathLike):
            path, self._remedy = open_file(Path(path), journal_mode, read_only), f"; {REPAIR}"
        self.database: Engine = path
        self.index = search_index(self.database)
        self._clock = clock
        self._makes_vectors = True
        self.past = PastSessions(self.database, self.index, None if read_only else make_vectors, clock, zone)
        self.turns = TurnStore(self.database, self.index)
        self.meta = SessionMeta(self.database, clock)

    def close(self) -> None:
        """Close every connection to the file."""
        self.past.proof.close()
        if self.past.made_vectors is not None:
            self.past.made_vectors.close()
        if self.index.resets:
            self.index.free_lost_pages()
        self.database.close()

    def check(self) -> list[str]:
        """Check the file and its search indexes; return a line for each fault, an empty list if there is none."""
        try:
            faults = [f"{fault}{self._remedy}" for fault in self.database.integrity()]
            return faults or self.index.check()
        except DatabaseCorrupt as exc:
            return [str(exc)]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Join all writes of a `with` block into one transaction: when the block ends, all are on disk, or none.

        If the block fails because the search index is damaged, the index is reset, so that the next block does not.
        """
        try:
            with self.database.transaction() as connection:
                yield connection
        except DatabaseCorrupt as exc:
            self.index.reset(exc)
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
        write = functools.partial(
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
                f"SELECT {ID_COLUMNS}, s.title FROM sessions s WHERE s.id = ?{self.database.dialect.row_lock}",
                (session_id,),
            ).fetchone()
            if row is None:
                at = self._clock() if at is None else at
                values = {"id": session_id, "source": source, "started_at": at, "last_active": at, **fields}
                self.database.insert("sessions", [values], "key")
            elif row["user"] != user and (
                (row["user"] and user) or (has_identity and (row["user"] or row["begun"]))
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

    def get_session(self, session_id: str) -> StoredSession | None:
        """Return the session, or None if it doesn't exist."""
        sql = f"SELECT {records.SESSION_COLUMNS} FROM sessions s WHERE s.id = ?"
        with detecting_damage(self.database):
            row = self.database.execute(sql, (sqlite_text(session_id),)).fetchone()
            return records.session_of(row) if row else None

    def find_session(
        self, text: str, *, user: str | None = None, everybody: bool = False, title_only: bool = False
    ) -> StoredSession | None:
        """Return the session whose id, beginning of an id, or title is `text`; None if there is none.

        Args:
            text: An id, the beginning of exactly one id, or a title. If sessions are named "Plan" and "Plan #2", "Plan"
                names the session with the highest number.
            user: Owner whose sessions are searched, "" for the person at home.
            everybody: True to search the sessions of all owners, if `user` is None.
            title_only: True to compare `text` with titles only, not with ids.

        Raises:
            SessionError: Users from outside have sessions, and neither `user` nor `everybody` says whose to search.
        """
        require_scope(self.database, user, everybody=everybody)
        find = lineage.find_titled if title_only else lineage.resolve
        session_id = find(self.database, sqlite_text(text), user and sqlite_text(user))
        return self.get_session(session_id) if session_id else None

    def list_sessions(
        self,
        *,
        source: str | Sequence[str] | None = None,
        exclude_sources: Sequence[str] = (),
        exclude_sessions: Sequence[str] = (),
        user: str | None = None,
        everybody: bool = False,
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
            user: Owner of the sessions, "" for the person at home.
            everybody: True to return the sessions of all owners, if `user` is None.
            archived: True to return archived conversations only, False to leave them out.
            limit: Largest number of conversations.
            offset: Number of conversations to skip.
            before: Id of the session after which the list goes on; None for the beginning. Unlike a large `offset` it
                costs nothing.

        Raises:
            SessionError: Users from outside have sessions, and neither `user` nor `everybody` says whose to return.
        """
        require_scope(self.database, user, everybody=everybody)
        with detecting_damage(self.database):
            return lineage.list_conversations(
                self.database,
                sources=as_tuple(source),
                exclude_sources=exclude_sources,
                exclude_sessions=exclude_sessions,
                user=user and sqlite_text(user),
                archived=archived,
                limit=limit,
                offset=offset,
                before=before,
            )

    def end_session(self, session_id: str, reason: str, *, at: float | None = None) -> None:
        """Mark the session as ended for `reason` at `at` (epoch seconds, now by default).

        Do nothing if the session has ended already.
        """
        with self.transaction() as connection:
            key = session_key(connection, session_id)
            connection.execute(
                "UPDATE sessions SET ended_at = ?, end_reason = ? WHERE key = ? AND ended_at IS NULL",
                (self._clock() if at is None else at, reason, key),
            )

    def reopen_session(self, session_id: str) -> None:
        """Mark an ended session as open again."""
        with self.transaction() as connection:
            key = session_key(connection, session_id)
            connection.execute(_REOPEN, (key,))

    def delete_session(self, session_id: str) -> list[str]:
        """Delete a session with its messages and turns; return the ids of the deleted turns.

        Sessions of subagents to which the session gave tasks are deleted too. Other children stay, without a parent.
        """
        return self.with_index(functools.partial(self._delete, session_id))

    def _delete(self, session_id: str) -> list[str]:
        deleted_turns: list[str] = []
        with self.transaction() as connection:
            session_key(connection, session_id, self.database.dialect.row_lock)
            for doomed in lineage.delegated(connection, session_id):
                key = session_key(connection, doomed)
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

    # ------------------------------------------------------------------ messages

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
            with self.transaction() as connection:
                key, known, position = self._begin_append(session_id, [message])[:3]
                ids, _ = self._append(connection, key, [message], self._clock(), known, position)
                return ids[0]

        # Without a `ref`, a second try could store the message twice.
        message_id = self.with_index(write, idempotent=bool(ref))
        self._wake_vectors()
        return message_id

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
    ) -> AppendedTurn:
        """Store a completed turn with its messages in one transaction, and return it as stored.

        If a turn with this id is stored already, change nothing and return that turn, so that an import may run twice.

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

        Raises:
            SessionError: the turn has no messages, was rewound (wholly or in part), or belongs to another session.
        """
        if not messages:
            raise SessionError(f"turn {turn_id!r} has no messages", "store a turn once it is complete")
        now = self._clock()
        time_of_turn = epoch_seconds(at)
        write = functools.partial(
            self._append_turn,
            *(session_id, messages, turn_id, number, author),
            at=now if time_of_turn is None else time_of_turn,
            now=now,
            reopen=reopen,
            further=further,
        )
        stored = self.with_index(write, idempotent=True)
        self._wake_vectors()
        return stored

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
        with self.transaction() as connection:
            key, known, position, turn, hidden, next_number, is_open = self._begin_append(
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
            # No INSERT from a SELECT, and no DELETE without need: SQLite opens a savepoint for them, at which FTS5 writes
            # the words of this transaction so far into a segment of their own.
            added, place = (
                "SELECT {}(id) FROM messages WHERE session_key = ? AND position >= ?",
                (key, position),
            )
            # The ids of the new messages are higher than those of the stored ones, and are not known yet.
            first_id, last_id = (min(known.values()), max(known.values())) if known else (None, None)
            statements: list[Statement] = [
                (
                    f"""INSERT INTO turns (id, session_key, number, first_message_id, last_message_id, author, at, stored_at)
                        VALUES (?, ?, ?, coalesce(?, ({added.format("min")})), coalesce(({added.format("max")}), ?), ?, ?, ?)""",
                    (turn_id, key, number, first_id, *place, *place, last_id, sqlite_text(author), at, now),
                ),
            ]
            if is_open:
                statements.append(("DELETE FROM open_turns WHERE id = ?", (turn_id,)))
            others = further(number) if callable(further) else further
            ids, results = self._append(
                connection,
                key,
                messages,
                at,
                known,
                position,
                [*statements, *others],
                reopen=reopen,
            )
            return AppendedTurn(ids, number, results[len(results) - len(others) :])

    def _begin_append(
        self, session_id: str, messages: Sequence[Mapping[str, Any]], turn_id: str = ""
    ) -> tuple[int, dict[str, int], int, Any, bool, int, bool]:
        """Lock a session for new messages, and read what decides about them, in one round trip.

        Return the row key of the session, the ids of those messages by `ref` that it has already, its next position,
        the row of the turn if the turn is stored, True if a message of the turn was rewound, the number of the
        session's next turn, or 0 without a `turn_id`, and True if the turn is stored as an unfinished one.
        """
        session_id = sqlite_text(session_id)
        refs = [ref for message in messages if (ref := sqlite_text(str(message.get("ref") or "")))]
        condition, values = self.database.dialect.among("ref", refs)
        in_session = "session_key = (SELECT key FROM sessions WHERE id = ?)"
        position = f"SELECT coalesce(max(position), -1) + 1 FROM messages WHERE {in_session}"
        # A statement of its own: a server reads what else the statement with the lock reads before it has the lock.
        statements: list[Statement] = [
            (f"SELECT key FROM sessions WHERE id = ?{self.database.dialect.row_lock}", (session_id,)),
        ]
        if turn_id:
            # Messages that were stored before the turn ended have the turn's id, a colon and a number as `ref`. The
            # range ends with a semicolon, which is the character after a colon.
            hidden = f"""SELECT 1 FROM messages
                         WHERE {in_session} AND ref >= ? AND ref < ? AND ref <> '' AND position IS NULL"""
            statements += [
                (
                    f"""SELECT ({position}), EXISTS ({hidden}), ({LAST_NUMBER}),
                            EXISTS (SELECT 1 FROM open_turns WHERE id = ?), t.id, t.session_key, t.state, t.number, t.first_message_id, t.last_message_id
                        FROM (SELECT 1 AS one) o LEFT JOIN turns t ON t.id = ?""",
                    (session_id, session_id, f"{turn_id}:", f"{turn_id};", session_id, turn_id, turn_id),
                ),
            ]
        else:
            statements += [(f"SELECT ({position}), FALSE, -1, FALSE", (session_id,))]
        if refs:
            sql = f"SELECT ref, id FROM messages WHERE {in_session} AND ref <> '' AND {condition}"
            statements.append((sql, (session_id, *values)))
        session, (facts,), *others = self.database.read(statements)
        if not session:
            raise no_session(session_id)
        known = {row["ref"]: int(row["id"]) for row in others[0]} if refs else {}
        return (
            session[0][0],
            known,
            facts[0],
            facts if turn_id and facts["id"] is not None else None,
            bool(facts[1]),
            int(facts[2]) + 1,
            bool(facts[3]),
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
        reopen: bool = False,
    ) -> tuple[list[int], list[list[Any]]]:
        """Insert messages into the session with this row key, as the last thing in the `transaction` of the caller.

        Return their ids, and the rows of the further statements. A message whose `ref` is in `known` is not inserted;
        its id is there.

        Args:
            now: Time of messages without one.
            position: The next position in the session.
            further: Statements to run after the messages are stored.
            reopen: True to mark the session as open again, if it has ended.
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
        statements: list[Statement] = [(_REOPEN, (key,))] if reopen and not rows else []
        if rows:
            latest = max(row["timestamp"] for row in rows)
            opened = ", ended_at = NULL, end_reason = ''" if reopen else ""
            statements.append(
                (
                    f"""UPDATE sessions SET message_count = message_count + ?, tool_call_count = tool_call_count + ?,
                            last_active = CASE WHEN last_active < ? THEN ? ELSE last_active END{opened} WHERE key = ?""",
                    (len(rows), calls, latest, latest, key),
                )
            )
        new_ids, results = self.database.insert("messages", rows, "id", [*statements, *further], last=True)
        self.index.add(connection, new_ids, rows)
        ids = [new_ids[number] if stored is None else stored for stored, number in places]
        return ids, results[len(statements) :]

    def get_message(self, message_id: int) -> StoredMessage | None:
        """Return a message, or None if it doesn't exist or was rewound."""
        sql = f"{records.MESSAGES} WHERE m.id = ? AND m.position IS NOT NULL"
        with detecting_damage(self.database):
            row = self.database.execute(sql, (message_id,)).fetchone()
            return records.message_of(row) if row else None

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
        statement = records.messages_statement(
            sqlite_text(session_id), limit=limit, offset=offset, last_message_id=last_message_id, last=last
        )
        with detecting_damage(self.database):
            return [records.message_of(row) for row in self.database.execute(*statement)]

    def get_messages_as_conversation(
        self, session_id: str, *, include_ancestors: bool = False
    ) -> list[dict[str, Any]]:
        """Return the messages of a session in chat form, as a model gets them.

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

    def transcript(self, session_id: str, last_message_id: int | None = None) -> TranscriptReader:
        """Return a reader of a session's messages, for providers that learn from the session.

        The reader leaves out messages that a compression copied from the previous session, and messages of incomplete
        turns. With `last_message_id`, it stops at that message.
        """

        def read() -> list[Message]:
            messages = self.get_messages(session_id, last_message_id=last_message_id)
            rows = self.database.execute(
                "SELECT t.id FROM turns t JOIN sessions s ON s.key = t.session_key WHERE s.id = ? AND t.state = 0",
                (sqlite_text(session_id),),
            )
            complete = {"", *(row[0] for row in rows)}  # "" is the turn of messages that belong to none
            whole = (m for m in messages if not m.copied and records.turn_of_ref(m.ref) in complete)
            return [message.as_text() for message in whole]

        return Transcript(read)

    def rewind(self, session_id: str, message_id: int) -> list[str]:
        """Rewind a session: hide a message and all later messages; return the ids of the turns that lost messages.

        Hidden messages stay in the file, but no method returns them. Raises `SessionError` if the message is not in the
        session.
        """
        return self.with_index(functools.partial(self._rewind, session_id, message_id))

    def _rewind(self, session_id: str, message_id: int) -> list[str]:
        with self.transaction() as connection:
            key = session_key(connection, session_id, self.database.dialect.row_lock)
            position = position_of(connection, key, message_id)
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

    # ------------------------------------------------------------------ search

    @contextlib.contextmanager
    def vectors_later(self) -> Iterator[None]:
        """Make no vectors of new messages until the end, since the model would slow down many writes in a row."""
        before, self._makes_vectors = self._makes_vectors, False
        try:
            yield
        finally:
            self._makes_vectors = before
            self._wake_vectors()

    def _wake_vectors(self) -> None:
        if self._makes_vectors and self.past.vectors is not None:
            # Before the commit, its thread would not see the messages.
            self.database.after_commit(self.past.vectors.wake)

    def with_index(self, write: Callable[[], Result], *, idempotent: bool = False) -> Result:
        """Call `write`, which stores or hides messages. If the search index is damaged, reset it and call `write` again.

        Messages count and the index is made from them, so no write may fail because of the index.

        Args:
            idempotent: True if a second call stores nothing twice, so that it may follow a commit in doubt.
        """

        def write_once() -> Result:
            resets = self.index.resets
            try:
                return write()
            except DatabaseCorrupt:
                if self.index.resets == resets:
                    raise
                return write()

        # Two programs may lock the same rows in another order.
        return self.database.retry(write_once, idempotent=idempotent)


def _turn_ids(connection: Reader, condition: str, parameters: tuple[object, ...]) -> list[str]:
    sql = f"SELECT id FROM turns WHERE {condition} AND state = 0 ORDER BY key"
    return [row[0] for row in connection.execute(sql, parameters)]
