"""A turn of a session: recall for the person's message, tools, and the storage of what was said."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from hermes_core.contract.values import Message, Origin, Query, Recall, Session, ToolCall, Turn
from hermes_core.curated.stored import DataNote, StoredNotes
from hermes_core.curated.tool import MEMORY_SCHEMA, call_memory_tool
from hermes_core.errors import StorageError
from hermes_core.lifecycle import SHARED_NOTES_KEY, MemorySessions
from hermes_core.origins import calls_memory, is_said, message_origin
from hermes_core.outbox.rows import NewRow, with_turn_number
from hermes_core.recall.amounts import result_count
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.fence import without_context
from hermes_core.safety.origin import Reading, current_reading, in_scope, lowest, may_command
from hermes_core.sessions.records import (
    SYSTEM_ROLES,
    Content,
    epoch_seconds,
    in_text,
    sqlite_text,
    text_of,
)
from hermes_core.sessions.summaries import Summarise
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA, SessionSearchTool
from hermes_core.sessions.turn_records import TurnRecord, record_statements
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.storage.engine import Statement
from hermes_core.storage.inventory import Inventory
from hermes_core.tracing import traced
from hermes_core.turn_recall import (
    NOTES_LABEL,
    UPDATES_LABEL,
    BegunTurn,
    NoteUpdates,
    RecallHit,
    RecallReport,
    RecallTrace,
    SeenTexts,
    SessionRecall,
    TurnRecall,
    provider_hits,
    recall_record,
    render_notes,
    render_updates,
)

SESSIONS_LABEL = "sessions"
"""Label of the recall from past sessions in the fence."""


class MemoryTurns(MemorySessions):
    """The part of `Memory` that begins a turn with recall, runs tools, and stores the turn."""

    inventory: Inventory
    local_session: Session

    def __init__(self) -> None:
        super().__init__()
        self._updates = NoteUpdates()
        self._past = SessionRecall(self.sessions, self.config, self.manager.observers.filter_recall)
        self._search = SessionSearchTool(self.sessions if self.config.sessions.search_enabled else None)

    def read_turn_start(
        self, session: Session, *, title: str, recent: int, expired_before: float, turn_id: str
    ) -> tuple[Session, TurnContext | None]:
        """Return the session with its owner, and what a turn needs of it; None if something of it must be stored first.

        All of it is one round trip, with the notes and what waits for the providers if the caller is within their `reading`.

        Args:
            title: Title that the session must have; "" for any.
            recent: Number of latest messages to read.
            expired_before: Time in epoch seconds before which an unfinished turn has expired.
            turn_id: Id of an unfinished turn that may be continued; "" for none.
        """
        session = self._with_owner(session)
        try:
            start = self.sessions.turns.context(
                session.id,
                session.owner,
                lineage=True,
                recent=recent,
                setting=SHARED_NOTES_KEY,
                expired_before=expired_before,
                turn_id=turn_id,
                further=[self.curated.of(session).files.statement()],
            )
        except StorageError:  # each of the reads of its own reports what can't be read
            return session, None
        fields = {
            "identity": session.id,
            "parent_id": session.parent_id,
            "relation": session.parent_id if session.agent_context == "subagent" else "",
            "title": title,
        }
        if (
            start.session_id != session.id
            or not start.row
            or not all(start.row[name] or not value for name, value in fields.items())
            or (session.owner and (start.setting == "1") == self.config.memory.per_user)
        ):
            return session, None
        return self._with_id(session, session.id), start

    def _context(self, session: Session, what: str, **wanted: Any) -> TurnContext:
        """Return what `TurnStore.context` returns; what can't be read counts as the least that is safe.

        Args:
            what: Name of the data, for the log.
            wanted: Arguments of `TurnStore.context`.
        """
        read = partial(self.sessions.turns.context, session.id, session.owner, **wanted)
        unread = TurnContext(session.id, lineage=frozenset([session.id]), origin="import")
        return self.problem_log.read(what, read, unread)

    def begin_turn(
        self,
        session: Session,
        text: Content,
        *,
        recent: Sequence[Mapping[str, Any]] = (),
        author: str = "",
        origin: Origin | None = None,
        at: float | None = None,
    ) -> TurnRecall:
        """Return the recall for the person's message, and notify providers of the turn.

        Call this once at the start of a turn.

        Each provider has to answer before the deadline of `prefetch`.

        Args:
            text: The message: a text, or a list of content parts.
            recent: The last messages before this one, which the providers get with the query.
            author: Name of the person, if several speak in the session. `bot:NAME` and `plugin:NAME` are programs.
            origin: Origin of a message that no person of the session wrote, such as "tool" for a mail or a webhook's text.
            at: Time of the message in seconds since the epoch, from which "last week" counts; default: now.

        Raises:
            SessionError: There is no such origin.
        """
        return self.collect_recall(
            self.ask_recall(session, text, recent=recent, author=author, origin=origin, at=at)
        )

    @traced
    def ask_recall(
        self,
        session: Session,
        text: Content,
        *,
        recent: Sequence[Mapping[str, Any]] = (),
        author: str = "",
        origin: Origin | None = None,
        begins_turn: bool = True,
        at: float | None = None,
        start: TurnContext | None = None,
    ) -> BegunTurn:
        """Begin a turn as `begin_turn` does, and do not wait for the recall of the providers.

        Args:
            begins_turn: False to ask for recall alone, without a turn of which the providers are notified.
            at: Time of the message in seconds since the epoch; default: now.
            start: What `read_turn_start` returned for this turn; None to read it.
        """
        session, at = self._with_owner(session), epoch_seconds(at)
        if start is None:
            further = [self.curated.of(session).files.statement()]
            start = self._context(session, "turns so far", lineage=True, further=further)
            session = self._with_id(session, start.session_id)
        if begins_turn and at is not None:
            self._set_clock(session, at)
        speaker = message_origin(session, author, origin)
        query = self._query(text_of(text), recent, self._now(session) if at is None else at)
        number = start.last_number + 1 if begins_turn else None
        pending = self.manager.prefetch.ask(query, session, turn_number=number, author=author)
        return BegunTurn(
            *(query, session, pending, not start.last_number, time.time(), speaker, start.lineage),
            notes=self.notes_at(session, start),
            said_at=time.time() if at is None else at,
        )

    @traced
    def collect_recall(self, pending: BegunTurn) -> TurnRecall:
        """Wait for the recall that `ask_recall` asked for, at most until the deadline, and return it."""
        query, session = pending.query, pending.session
        stored = pending.notes or self.notes_at(session, None)
        answered = self.manager.prefetch.collect(pending.take_calls())
        prompt = self.manager.prompts.get(session) or ""
        notes, updates, pending.updates = self._notes_of_turn(pending, stored)
        seen = SeenTexts(
            [prompt, *map(itemgetter("content"), query.recent), *map(attrgetter("entry"), notes)]
        )
        recall = seen.without_repeats(answered)
        past = self.problem_log.read(
            "past sessions", partial(self._past.for_turn, query, session, seen, pending.lineage), Recall()
        )
        recalled = recall.contexts
        parts = [
            (NOTES_LABEL, render_notes(notes)),
            (UPDATES_LABEL, updates),
            *recalled,
            (SESSIONS_LABEL, past.render()),
        ]
        origins = [note.origin.origin for note in notes] + [item.origin for item in past.items]
        pending.origin = lowest([*origins, "provider"] if recalled else origins)
        pending.record = recall_record(prompt, answered, recall, notes, past, seen.left_out)
        self.origins.begin(pending)
        # In the first turn of a session only: it looks through the home, or asks a server.
        sharing = self.problem_log.of_first_turn(session) if pending.is_first else []
        problems = (*self.problem_log.of_turn(stored, session.owner, seen.left_out), *sharing)
        return TurnRecall(recall, tuple(filter(itemgetter(1), parts)), problems, pending.origin)

    def _notes_of_turn(
        self, pending: BegunTurn, notes: StoredNotes
    ) -> tuple[list[DataNote], str, frozenset[str]]:
        """Return the notes that a turn gets as data, the changes that its frozen prompt does not show, and all their texts."""
        session = pending.session
        if self.config.memory.refresh == "session":
            return (notes.recalled_notes() if pending.is_first else []), "", frozenset()
        data = notes.recalled_notes()
        frozen = None if pending.is_first else self._prompt_of(session)
        added, removed = notes.changes_since(frozen) if frozen is not None else ([], [])
        due = self._updates.due(
            session, [*(note.entry for note in data), *added, *removed], pending.query.text
        )
        updates = render_updates(
            *([entry for entry in entries if entry in due] for entries in (added, removed))
        )
        return [note for note in data if note.entry in due], updates, frozenset(due)

    @traced
    def end_turn(
        self,
        session: Session,
        user: Content,
        assistant: Content,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        turn_id: str = "",
        at: float | None = None,
        user_at: float | None = None,
        warm: bool = True,
        author: str = "",
        origin: Origin | None = None,
        recalled_origin: Origin = "person",
        context: TurnContext | None = None,
    ) -> Turn:
        """Store a completed turn and its outbox row in one commit. A search finds the turn as soon as this returns.

        Args:
            user: The message of the person: a text, or a list of content parts.
            assistant: The answer of the agent.
            messages: All messages of the turn; default: `user` and `assistant`. Injected recall and system messages
                are removed, and `problems` says so.
            turn_id: Id of the turn; default: a new one. A second call with the same id stores nothing.
            at: Time of the answer in seconds since the epoch; default: now.
            user_at: Time of the person's message; default: as `begin_turn` got it, else `at`. It is at most `at`.
            warm: True to let providers prepare the recall of the next turn.
            author: Name of the person, if several people speak in the session.
            origin: Origin of the message, if no person of the session wrote it; default: as `begin_turn` got it.
            recalled_origin: The lowest origin of the turn's recall, if another process began the turn.
            context: Result of `TurnStore.context` with the origin for this turn; None to read it.

        Raises:
            SessionError: A turn with this id belongs to another session, or was rewound.
            DatabaseUnavailable: The turn could not be stored.
        """
        session = self._with_owner(session)
        if context is None:
            context = self.sessions.turns.context(session.id, session.owner, origin=True)
        session = self._with_id(session, context.session_id)
        user, assistant, messages = self._without_injected(user, assistant, messages)
        question, answer, author = text_of(user), text_of(assistant), str(author or "")
        both = Message(role="user", content=question), Message(role="assistant", content=answer)
        speaker = message_origin(session, author, origin)
        begun = self.origins.begun(session) or BegunTurn(Query(question), session, speaker=speaker)
        speaker = lowest([speaker, begun.speaker])
        read = lowest([begun.origin, recalled_origin, context.origin])
        stored = self.origins.with_origins(session, tuple(messages) or both, speaker, read)
        self._lower_notes(session, stored, begun)
        moment = epoch_seconds(at)
        if moment is not None:
            self._set_clock(session, moment)
        answered_at = time.time() if moment is None else moment
        own = next((m.get("timestamp") for m in stored if m["role"] == "user"), None)
        asked_at = epoch_seconds(user_at) or epoch_seconds(own) or begun.said_at or answered_at
        asked_at = min(asked_at, answered_at)
        turn = Turn(
            # A host may give the number of its chat, or half a surrogate pair, which SQLite does not take.
            id=sqlite_text(str(turn_id or "")) or uuid.uuid4().hex,
            number=context.last_number + 1,
            user=question,
            assistant=answer,
            messages=in_text(_for_provider(message, session.owner) for message in stored),
            author=author,
            at=answered_at,
            origin=in_scope(lowest(message["origin"] for message in stored), session.owner),
            user_at=asked_at,
        )
        # A host may know the time of each message.
        timed = [
            {**m, "timestamp": asked_at} if m["role"] == "user" and m.get("timestamp") is None else m
            for m in stored
        ]
        turn = self._store_turn(session, turn, timed, begun.record)
        self._updates.remember(session, begun.updates)
        self.origins.finish(session, stored)  # a turn that could not be stored may be stored by another call
        if not self.sessions.database.shared:
            self.inventory.add(self.home.state_db)
        if warm and self.manager.prefetch.prepares:
            self.manager.prefetch.warm(self._query(question, stored, self._now(session)), session)
        return turn

    def _store_turn(
        self, session: Session, turn: Turn, messages: Sequence[Mapping[str, Any]], record: TurnRecord | None
    ) -> Turn:
        """Store a turn with its outbox row and its record in one commit; return the turn with the number that it got.

        If the turn was stored before, return it with its number of then.
        """
        # Before the transaction: redaction takes time, and other writers wait for the lock.
        row = self.manager.writes.turn_row(turn, session)
        puts: dict[str, Statement] = {}

        def statements_of(number: int) -> list[Statement]:
            nonlocal puts
            if row is not None:
                puts = self.manager.writes.put_statements(session, numbered(row, number))
            if record is None:
                return [*puts.values()]
            return [*puts.values(), *record_statements(turn.id, session.owner, turn.at, record)]

        def numbered(row: NewRow, number: int) -> NewRow:
            # Another program may have stored a turn of this session since its last number was read.
            return row if number == turn.number else with_turn_number(row, number)

        stored = self.sessions.append_turn(
            session.id,
            messages,
            turn.id,
            author=turn.author,
            at=turn.at,
            # Or the provider would not be notified of the end of what follows the first end.
            reopen=True,
            further=statements_of,
        )
        if stored.results is not None and all(stored.results[: len(puts)]):
            self.problem_log.failures.pop("outbox", None)
            for provider in puts:
                # An import stores several turns in one commit.
                self.sessions.database.after_commit(partial(self.manager.outbox.on_row, provider))
        elif row is not None:  # the turn or its row was stored before, or the outbox is full
            row = numbered(row, stored.number)
            self.problem_log.enqueue(partial(self.manager.writes.put, session, row))
        return dataclasses.replace(turn, number=stored.number)

    def _lower_notes(self, session: Session, messages: Sequence[Mapping[str, Any]], begun: BegunTurn) -> None:
        """Lower the origin of notes of a turn if the model had read more before it wrote them than was known then."""
        calls = [place for place, message in enumerate(messages) if calls_memory(message)]
        before = messages[: calls[-1]] if calls else ()
        origin = in_scope(lowest(message["origin"] for message in before), session.owner)
        if may_command(origin):
            return
        said = [text_of(m.get("content")) for m in before if m["role"] == "user" and is_said(m["origin"])]
        notes = self.curated.of(session)
        self.problem_log.read(
            "origins of notes", lambda: notes.lower(session, begun.at, Reading(origin, lambda: said)), None
        )

    def _without_injected(
        self, user: Content, assistant: Content, messages: Sequence[Mapping[str, Any]]
    ) -> tuple[Content, Content, Sequence[Mapping[str, Any]]]:
        """Return what `end_turn` got without recall and system prompts, and let `problems` report what was removed."""
        in_text(messages)  # raises for a value that is no message
        turn = (user, assistant, list(messages))
        clean = (
            without_context(user),
            without_context(assistant),
            [
                # What a tool answered is stored as it was; it is cleaned when a model or a provider gets it.
                message if message["role"] == "tool" else without_context(message)
                for message in messages
                if message["role"] not in SYSTEM_ROLES
            ],
        )
        self.problem_log.failures.pop("turn", None)
        if clean != turn:
            self.problem_log.failures["turn"] = (
                "the last turn was stored without the recall or system prompt in it: give end_turn the person's own "
                "words and the model's answer, not the copy from inject()"
            )
        return clean

    def _query(self, text: str, recent: Sequence[Mapping[str, Any]], now: float) -> Query:
        messages = in_text(recent)
        if messages:
            messages = in_text(without_context(m) for m in messages if m["role"] not in SYSTEM_ROLES)
        return Query(without_context(text), self.config.recall.budget, messages, now)

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of all tools as `{"name", "description", "parameters"}`.

        These are `memory`, `session_search` and the tools of the provider.
        """
        schemas = self.manager.get_all_tool_schemas()
        return [*schemas, self._search.schema] if self.config.sessions.search_enabled else schemas

    def summarise_with(self, summarise: Summarise | None) -> None:
        """Set the function with which `session_search` summarises past sessions; None to offer no summaries.

        Args:
            summarise: Returns a summary for (text, question). Called on any thread.
        """
        self._search.summarise = summarise

    @traced
    def call_tool(self, session: Session, name: str, arguments: Any, call_id: str = "") -> str:
        """Run a tool that the model called, and return the text for the model.

        Errors are returned as text, not raised.

        Providers that have not started yet are started.

        Args:
            name: Name of the tool.
            arguments: The arguments as a dict, or as JSON text.
            call_id: Id that the model gave the call.
        """
        session, reading = self._with_owner(session), current_reading()
        context = self._context(session, "origins", origin=reading is None)
        session = self._with_id(session, context.session_id)
        if reading is None:
            reading = self.origins.reading_of(session, context.origin)
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        # An error that names nothing stored is our own text.
        own = name in (MEMORY_SCHEMA["name"], SESSION_SEARCH_SCHEMA["name"])
        earlier, reading.result = reading.result, "assistant" if own else "provider"
        with reading.active():
            if name == SESSION_SEARCH_SCHEMA["name"]:
                answer = self._search.call(arguments, session, self._now(session))
            elif name == MEMORY_SCHEMA["name"] and not self.curated.enabled_targets:
                answer = call_memory_tool(None, arguments, session)
            else:
                self.manager.initialize_all(session)
                answer = self.manager.handle_tool_call(ToolCall(name, arguments, call_id), session)
        if name == MEMORY_SCHEMA["name"] and self.home.state_db.exists():
            self.inventory.add(self.home.state_db)
        self.origins.add_answer(session, answer, reading.result)
        reading.result = lowest([reading.result, *([] if earlier is None else [earlier])])
        return answer

    def change_memory(
        self,
        action: str,
        target: str = "memory",
        content: str = "",
        old_text: str = "",
        *,
        session: Session | None = None,
        by_person: bool = False,
    ) -> dict[str, Any]:
        """Change the notes with the `memory` tool, and return its result.

        Args:
            session: The session of the change; default: `local_session`.
            by_person: True if a person wrote the text and not a model. Such a note always stands in the system prompt.
        """
        arguments = {"action": action, "target": target, "content": content, "old_text": old_text}
        arguments = {name: value for name, value in arguments.items() if value}
        session = self.complete(session or self.local_session)
        if by_person:
            answer = call_memory_tool(self.curated.of(session), arguments, session)
            if self.home.state_db.exists():
                self.inventory.add(self.home.state_db)
        else:
            answer = self.call_tool(session, "memory", arguments)
        result: dict[str, Any] = json.loads(answer)
        return result

    def recall(
        self,
        text: Content,
        *,
        limit: int | None = None,
        session: Session | None = None,
        read_your_writes: bool = False,
        after: str | float | None = None,
        before: str | float | None = None,
        at: float | None = None,
        why: bool = False,
        absent: Sequence[int] = (),
    ) -> RecallReport:
        """Return a report of the recall that a turn with this message would get, and of a search in past sessions.

        Until the next turn of the session is finished, its model counts as having read the results.

        Args:
            limit: Largest number of results from the search, and from each provider; default: 10, or 30 for a question
                about a list or a count. Results after the tenth keep to `recall.budget` then.
            session: The session of the message; default: `local_session`.
            read_your_writes: Wait until the provider has taken what was said before, at most the deadline of `prefetch`.
            after: Search only messages of past sessions from this time on: seconds since the epoch, an ISO date or time, or
                words such as "last week", "March", "3 days ago".
            before: Search only messages before this time.
            at: Time of the message in seconds since the epoch, from which "last week" counts; default: now.
            why: Return an `ExplainedReport`: what brought each result, and what the gate of a turn decided on.
            absent: Ids of messages of which an `ExplainedReport` says why they are not in the recall.

        Raises:
            SessionError: `after` or `before` names no time.
        """
        session = self.complete(session or self.local_session)
        if read_your_writes:
            self.manager.flush(self.config.recall.deadline)
        self.manager.initialize_all(session)
        pending = self.ask_recall(session, text, begins_turn=False, at=at)
        return self.report(pending, limit=limit, after=after, before=before, why=why, absent=absent)

    @traced
    def report(
        self,
        pending: BegunTurn,
        *,
        limit: int | None = None,
        after: str | float | None = None,
        before: str | float | None = None,
        why: bool = False,
        absent: Sequence[int] = (),
    ) -> RecallReport:
        """Wait for the recall that `ask_recall` asked for, and return the report of it; see `recall`."""
        query, session, calls = pending.query, pending.session, pending.take_calls()
        since, until = (self._moment(bound, query.now) for bound in (after, before))
        notes = self.curated.of(session).read()
        entries, data = notes.shown_entries(), notes.recalled_notes()
        seen = SeenTexts([*entries, *(note.entry for note in data)])
        hits = [RecallHit("memory", True, entry) for entry in entries]
        hits += [RecallHit("memory", True, note.entry, origin=note.origin.origin) for note in data]
        most = result_count(query.text) if limit is None else limit
        hits += provider_hits(seen.without_repeats(self.manager.prefetch.collect(calls)), most)
        trace = RecallTrace()
        if self.config.sessions.search_enabled:
            find = partial(self._past.hits, query, session, limit, seen, since, until, trace)
            hits += self.problem_log.read("past sessions", find, [])
        tokens = sum(count_tokens(hit.text) for hit in hits if hit.injected)
        elapsed = round((time.monotonic() - calls.began) * 1000, 3)
        problems = tuple(self.problem_log.of_turn(notes, session.owner, seen.left_out))
        report = RecallReport(query.text, tuple(hits), tokens, elapsed, problems)
        if why or absent:
            report = self._past.explain(report, trace, absent)
        # A host may give it to the model, which then has read it.
        self.origins.note_read(session, report.origin)
        return report

    def _moment(self, bound: str | float | None, now: float) -> float | None:
        """Return a bound of a search in epoch seconds; raise `SessionError` for a text that names no time."""
        if isinstance(bound, str):
            return self.sessions.past.read_moment(bound, now=now) if bound.strip() else None
        return epoch_seconds(bound)


def _for_provider(message: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    """Return a message with its origin only if nobody of the session's scope said it."""
    if may_command(in_scope(message["origin"], owner)):
        return {key: value for key, value in message.items() if key != "origin"}
    return message
