"""SessionDB: sessions, their messages and their completed turns, searchable from the moment they are stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hermes_core.errors import SessionError
from hermes_core.recall.query import analyse
from hermes_core.sessions import lineage, reads, records, writes
from hermes_core.sessions.file import reading
from hermes_core.sessions.filters import Filters, Order
from hermes_core.sessions.meta import key_of
from hermes_core.sessions.records import (
    CompletedTurn,
    SearchHit,
    StoredMessage,
    Window,
)
from hermes_core.sessions.rows import SessionRows
from hermes_core.sessions.search import everything, known_names, search, snippet_of
from hermes_core.sessions.times import epoch_seconds
from hermes_core.sessions.transcript import StoredTranscript

log = logging.getLogger(__name__)


class SessionDB(SessionRows):
    """The store at `path`. Safe to share between threads, and between processes that open the same file.

    Each writing method is one transaction; when it returns, what it wrote is on disk and can be found. Methods raise
    `SessionError` for sessions and messages that are not there, `DatabaseCorrupt` and `DatabaseUnavailable` for the
    file. With `semantic` it also searches by meaning, when the extra `[semantic]` is installed: `meaning` then is what
    makes the vectors, in the background from the first message on.
    """

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
        carried: bool = False,
    ) -> int:
        """Store one message and return its id. `ref` is its own id elsewhere: a second one with it adds nothing.

        One that is `carried` along by a compression is found in the session before, and not here again.
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
            "carried": carried,
        }
        with self._database.transaction() as connection:
            key = writes.key_of(connection, session_id)
            message_id = writes.append(connection, key, message, self._clock())
        self._stored(message_id)
        return message_id

    def append_turn(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any]],
        turn_id: str,
        number: int,
        *,
        author: str = "",
        at: float | None = None,
    ) -> list[int]:
        """Store the messages of a completed turn and mark it complete, in one transaction; returns their ids.

        Messages are in chat form, with `speaker`, `ref`, `timestamp` and `reasoning` where known. A turn whose id is
        here already is left as it is, and its message ids are returned; so an import may run twice. Raises
        `SessionError` for one that was taken back, or belongs to another session.
        """
        if not messages:
            raise SessionError(f"turn {turn_id!r} has no messages", "store a turn once it is complete")
        at = self._clock() if (given := epoch_seconds(at)) is None else given
        with self._database.transaction() as connection:
            key = writes.key_of(connection, session_id)
            ids = writes.append_turn(connection, key, messages, turn_id, number, author, at, self._clock())
        self._stored(max(ids, default=0))
        return ids

    @reading
    def get_message(self, message_id: int) -> StoredMessage | None:
        """One message, None when there is no such or it was rewound."""
        row = self._database.execute(
            f"{reads.MESSAGES} WHERE m.id = ? AND m.position IS NOT NULL", (message_id,)
        ).fetchone()
        return records.message_of(row) if row else None

    @reading
    def get_messages(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        offset: int = 0,
        last_message_id: int | None = None,
    ) -> list[StoredMessage]:
        """The messages of a session, oldest first, without rewound ones."""
        rows = self._database.execute(
            # Positions have no gaps, so that a part is reached without walking through what stands before it.
            f"{reads.MESSAGES} WHERE s.id = ? AND m.position >= ? AND m.id <= ? ORDER BY m.position LIMIT ?",
            (
                records.storable(session_id),
                offset,
                2**62 if last_message_id is None else last_message_id,
                -1 if limit is None else limit,
            ),
        )
        return [records.message_of(row) for row in rows]

    def beginnings(self, source: str, most: int) -> Iterator[StoredMessage]:
        """The first messages, `most` at most, of each session of a source, one session after the other."""
        return reads.beginnings(self._database, source, most)

    def get_messages_as_conversation(
        self, session_id: str, *, include_ancestors: bool = False
    ) -> list[dict[str, Any]]:
        """The live messages in chat form, as a model is given them; with those of the sessions it was compressed
        from, oldest first, when `include_ancestors`.
        """
        chain = [session_id]
        if include_ancestors:
            chain = lineage.compressed_from(self._database, session_id)
        return [
            m.as_chat()
            for one in chain
            for m in self.get_messages(one)
            if not (m.compacted or (m.carried and one != chain[0]))
        ]

    def in_context(self, session_id: str) -> frozenset[str]:
        """Ids of its `lineage` without the sessions whose messages a compression took out of the model's context, nor this
        one, where it took some out of that without a summary.
        """
        gone = set(lineage.left_behind(self._database, session_id))
        if self.get_meta(key_of("left_out", session_id)):
            gone.add(session_id)
        return self.lineage(session_id) - gone

    @reading
    def around(self, message_id: int, window: int = 5, *, roles: Sequence[str] = ()) -> Window | None:
        """Up to `window` messages before and after this one, which is always there; None when it is not shown."""
        return reads.around(self._database, message_id, window, roles)

    def transcript(self, session_id: str, last_message_id: int | None = None) -> StoredTranscript:
        """A reader of the session up to a message (all of it for None), for who learns from it: without what a
        compression carried along, and without turns that an agent began and that did not end, or kept from memory.
        """

        def read() -> list[StoredMessage]:
            messages = self.get_messages(session_id, last_message_id=last_message_id)
            return reads.ended(self._database, session_id, messages)

        return StoredTranscript(read)

    def rewind(self, session_id: str, message_id: int) -> list[str]:
        """Take back this message and all after it in the session; returns the ids of the turns that go with them.

        They stay in the file and are shown nowhere again.
        """
        with self._database.transaction() as connection:
            return writes.rewind(connection, writes.key_of(connection, session_id), message_id)

    def withdraw(self, session_id: str, message_id: int) -> None:
        """Take back this one message, which is in no completed turn, as one that goes on in another session."""
        with self._database.transaction() as connection:
            writes.withdraw(connection, writes.key_of(connection, session_id), message_id)

    def drop_carried(self, session_id: str, ref: str) -> None:
        """Delete the copy of this message that a compression carried along: the message itself comes to this session."""
        with self._database.transaction() as connection:
            writes.drop_carried(connection, writes.key_of(connection, session_id), ref)

    def compact(self, session_id: str, last_message_id: int) -> int:
        """Mark the live messages up to this one as compacted: out of the conversation, still found. Returns how many."""
        with self._database.transaction() as connection:
            return connection.execute(
                "UPDATE messages SET state = 1 WHERE session_key = ? AND id <= ? AND state = 0",
                (writes.key_of(connection, session_id), last_message_id),
            ).rowcount

    def has_turn(self, turn_id: str) -> bool:
        """Whether this turn was stored, also if it was taken back since."""
        return self._database.execute("SELECT 1 FROM turns WHERE id = ?", (turn_id,)).fetchone() is not None

    def turns_among(self, turn_ids: Iterable[str]) -> set[str]:
        """Those of these turns that were stored, as `has_turn` says; and "", which names none."""
        sql = "SELECT id FROM turns WHERE id IN (SELECT value FROM json_each(?))"
        return {"", *(row[0] for row in self._database.execute(sql, (json.dumps([*turn_ids]),)))}

    def keys_of_turns(self, turn_ids: Iterable[str]) -> list[int]:
        """The keys of those of these turns that were stored, oldest first, also if they were taken back since."""
        sql = "SELECT key FROM turns WHERE id IN (SELECT value FROM json_each(?)) ORDER BY key"
        return [int(row[0]) for row in self._database.execute(sql, (json.dumps([*turn_ids]),))]

    def said_in_turn(self, turn_id: str) -> list[tuple[str, str]]:
        """Role and text of each message stored with a turn, also if it was taken back since; none when it is not here."""
        # The plus: by their ids, not through the whole session.
        sql = """SELECT m.role, m.content FROM turns t JOIN messages m ON +m.session_key = t.session_key
                 AND m.id BETWEEN t.first_message_id AND t.last_message_id WHERE t.id = ? ORDER BY m.id"""
        return [(row[0], row[1]) for row in self._database.execute(sql, (turn_id,))]

    def has_message(self, session_id: str, ref: str) -> bool:
        """Whether the session holds a message with this `ref`, also if it was taken back since."""
        sql = "SELECT 1 FROM messages WHERE session_key = (SELECT key FROM sessions WHERE id = ?) AND ref = ? AND ref <> ''"
        found = self._database.execute(sql, (records.storable(session_id), records.storable(ref)))
        return found.fetchone() is not None

    def turn_count(self, session_id: str) -> int:
        """How many completed turns the session has, without those taken back."""
        sql = "SELECT count(*) FROM turns t JOIN sessions s ON s.key = t.session_key WHERE s.id = ? AND t.state = 0"
        return int(self._database.execute(sql, (records.storable(session_id),)).fetchone()[0])

    def last_message_id(self, session_id: str) -> int | None:
        """The id of the session's newest message that is not rewound; None when it has none."""
        sql = (
            "SELECT m.id FROM messages m JOIN sessions s ON s.key = m.session_key"
            " WHERE s.id = ? AND m.position IS NOT NULL ORDER BY m.position DESC LIMIT 1"
        )
        found = self._database.execute(sql, (records.storable(session_id),)).fetchone()
        return None if found is None else int(found[0])

    def last_turn_key(self) -> int:
        """The key of the newest completed turn, 0 when there is none."""
        return int(self._database.execute("SELECT coalesce(max(key), 0) FROM turns").fetchone()[0])

    def counts(self) -> dict[str, int]:
        """How many sessions, and how many messages that are not rewound, there are."""
        row = self._database.execute(
            "SELECT count(*), coalesce(sum(message_count), 0) FROM sessions"
        ).fetchone()
        return {"sessions": row[0], "messages": row[1]}

    def complete_turns(
        self,
        since: int = 0,
        *,
        session_id: str | None = None,
        stored_after: float = 0.0,
        unless: Callable[[str], bool] | None = None,
    ) -> Iterator[CompletedTurn]:
        """Completed turns whose key is higher than `since`, oldest first, without those taken back.

        Only those stored after a moment (epoch seconds), and for whose id `unless` says no.
        """
        return reads.completed(self._database, since, session_id, stored_after, unless)

    # ------------------------------------------------------------------ search

    @reading
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
    ) -> list[SearchHit]:
        """The messages that answer `query` best, best first (or by time with `sort`). No text raises.

        A question is read as people type it: any punctuation, any script; "quoted phrases", `prefix*` and AND, OR, NOT
        in capitals are demands. `since` and `until` are epoch seconds, `user` is compared with the session's own.
        `proactive` is for recall that nobody asked for: it finds only messages likely enough to answer for their length.
        Without `snippets` those of the hits are empty; `snippet_of` makes one.
        """
        filters = Filters(
            roles=_several(role),
            sources=_several(source),
            sessions=_several(session),
            exclude_sources=tuple(exclude_sources),
            exclude_sessions=tuple(exclude_sessions),
            since=since,
            until=until,
            user=user and records.storable(user),
        )
        now, zone = self._clock(), self._zone
        assert zone is not None
        query = records.storable(query)
        names = known_names(self._database, query, filters)
        return search(
            self._database,
            analyse(query, now=now, names=names, zone=zone),
            filters,
            limit=max(limit, 0),
            order=sort,
            now=now,
            zone=zone,
            meaning=self.meaning,
            proactive=proactive,
            snippets=snippets,
        )

    @reading
    def everything(
        self, size: int, *, user: str | None = None, exclude_sessions: Sequence[str] = ()
    ) -> list[SearchHit] | None:
        """All messages with text, oldest first; None when together they have more than `size` characters."""
        filters = Filters(user=user and records.storable(user), exclude_sessions=tuple(exclude_sessions))
        return everything(self._database, filters, size)

    @reading
    def snippet_of(self, message_id: int, query: str) -> str:
        """The part of a message that answers `query`, marked as in a `SearchHit`; "" when the message is not shown."""
        zone = self._zone
        assert zone is not None
        analysis = analyse(records.storable(query), now=self._clock(), zone=zone)
        return snippet_of(self._database, analysis, message_id)

    # ------------------------------------------------------------------ beside them

    def get_meta(self, key: str) -> str | None:
        """A value kept beside the sessions, None when it was never set."""
        row = self._database.execute("SELECT value FROM state_meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def set_meta(self, key: str, value: str) -> None:
        """Keep a value beside the sessions."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO state_meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (key, value),
            )


def _several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
