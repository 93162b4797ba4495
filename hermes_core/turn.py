"""A turn of a session: recall for the person's message, tools, and the storage of what was said."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from hermes_core.contract.values import Message, Origin, Query, Session, ToolCall, Turn
from hermes_core.curated.tool import MEMORY_SCHEMA, call_memory_tool
from hermes_core.lifecycle import MemorySessions
from hermes_core.origins import is_said, message_origin, session_turn
from hermes_core.outbox.rows import NewRow, with_turn_number
from hermes_core.safety.fence import Contexts, clean_message, without_context, without_recall
from hermes_core.safety.origin import current_reading, in_scope, lowest, may_command
from hermes_core.safety.parts import foreign_origins
from hermes_core.sessions.records import (
    SYSTEM_ROLES,
    Content,
    epoch_seconds,
    in_text,
    sqlite_text,
    text_of,
)
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA
from hermes_core.sessions.turn_records import TurnRecord, record_statements
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.storage.engine import Statement
from hermes_core.tracing import traced
from hermes_core.turn_recall import BegunTurn, RecallOptions, RecallReport, TurnRecall


class MemoryTurns(MemorySessions):
    """The part of `Memory` that begins a turn with recall, runs tools, and stores the turn."""

    def begin_turn(
        self,
        session: Session,
        text: Content,
        *,
        recent: Sequence[Mapping[str, Any]] = (),
        author: str = "",
        origin: Origin | None = None,
        at: float | None = None,
        shows_line: bool = False,
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
            shows_line: True if the host shows `TurnRecall.noted` to the person, see `Conversation.turn`.

        Raises:
            SessionError: There is no such origin.
        """
        recaller = self.internals.recaller
        return recaller.collect(
            recaller.ask(
                session, text, recent=recent, author=author, origin=origin, at=at, shows_line=shows_line
            )
        )

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
        resolver, origins, recaller = self.internals.resolver, self.internals.origins, self.internals.recaller
        session = resolver.with_owner(session)
        if context is None:
            context = self.sessions.turns.context(session.id, session.owner, origin=True)
        session = resolver.with_id(session, context.session_id)
        author = str(author or "")
        speaker = message_origin(session, author, origin, {"role": "user", "content": user})
        begun = origins.begun(session) or BegunTurn(Query(text_of(user)), session, speaker=speaker)
        speaker = lowest([speaker, begun.speaker])
        user, assistant, messages = self._without_injected(
            user, assistant, messages, begun.contexts, is_said(message_origin(session, author, origin))
        )
        question, answer = text_of(user), text_of(assistant)
        both = Message(role="user", content=question), Message(role="assistant", content=answer)
        held = foreign_origins({"content": user}) + foreign_origins({"content": assistant})
        if session.parent_id:  # its turn may be open, and holds what its model has read so far
            held.append(origins.reading_of(session, context.origin).origin)
        read = lowest([begun.origin, recalled_origin, context.origin, *held], owner=session.owner)
        notes = begun.notes or self.internals.prompts.notes_at(session, None)
        # A host may give the number of its chat, or half a surrogate pair, which SQLite does not take.
        turn_id = sqlite_text(str(turn_id or "")) or uuid.uuid4().hex
        turns = [turn_id, session_turn(session)]
        if begun.stored is None or begun.stored.id == turn_id:
            turns.append(begun.turn)
        waiting = notes.data_with_origins(turns)
        stored = origins.with_origins(
            session, tuple(messages) or both, speaker, read, waiting, author=author, asked=question
        )
        moment = epoch_seconds(at)
        if moment is not None:
            resolver.set_clock(session, moment)
        answered_at = time.time() if moment is None else moment
        own = next((m.get("timestamp") for m in stored if m["role"] == "user"), None)
        asked_at = epoch_seconds(user_at) or epoch_seconds(own) or begun.said_at or answered_at
        asked_at = min(asked_at, answered_at)
        turn = Turn(
            id=turn_id,
            number=context.last_number + 1,
            user=question,
            assistant=answer,
            messages=in_text(_for_provider(message, session.owner) for message in stored),
            author=author,
            at=answered_at,
            origin=in_scope(lowest((m["origin"] for m in stored), owner=session.owner), session.owner),
            user_at=asked_at,
        )
        # A host may know the time of each message.
        timed = [
            {**m, "timestamp": asked_at} if m["role"] == "user" and m.get("timestamp") is None else m
            for m in stored
        ]
        turn = self._store_turn(session, turn, timed, begun.record)
        recaller.updates.remember(session, begun.updates)
        origins.settle(session, turns, stored, read)
        origins.finish(session, stored)  # a turn that could not be stored may be stored by another call
        if not self.sessions.database.shared:
            self.internals.inventory.add(self.home.state_db)
        if warm and self.manager.prefetch.prepares:
            self.manager.prefetch.warm(recaller.query(question, stored, resolver.now(session)), session)
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

    def _without_injected(
        self,
        user: Content,
        assistant: Content,
        messages: Sequence[Mapping[str, Any]],
        contexts: Contexts,
        is_said: bool,
    ) -> tuple[Content, Content, Sequence[Mapping[str, Any]]]:
        """Return what `end_turn` got without recall and system prompts, and let `problems` report what was removed."""
        in_text(messages)  # raises for a value that is no message
        turn = (user, assistant, list(messages))
        clean = (
            without_context(user, is_said=is_said),
            without_recall(assistant, contexts),
            [
                clean_message(message, contexts, is_said=is_said)
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

    def tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of all tools as `{"name", "description", "parameters"}`.

        These are `memory`, `session_search` and the tools of the provider.
        """
        schemas = self.manager.get_all_tool_schemas()
        return [*schemas, self.internals.search.schema] if self.config.sessions.search_enabled else schemas

    @traced
    def call_tool(
        self, session: Session, name: str, arguments: Any, call_id: str = "", *, turn_id: str = ""
    ) -> str:
        """Run a tool that the model called, and return the text for the model.

        Errors are returned as text, not raised.

        Providers that have not started yet are started.

        Args:
            name: Name of the tool.
            arguments: The arguments as a dict, or as JSON text.
            call_id: Id that the model gave the call.
            turn_id: Id of the open turn; default: the last one that began in the session. A note waits until its turn has
                ended well.
        """
        return self._call_tool(session, name, arguments, call_id, turn_id)

    def _call_tool(
        self,
        session: Session,
        name: str,
        arguments: Any,
        call_id: str,
        turn_id: str,
        *,
        by_model: bool = True,
    ) -> str:
        resolver, origins, reading = self.internals.resolver, self.internals.origins, current_reading()
        session, is_exact = resolver.with_owner(session), reading is not None
        context = resolver.context(session, "origins", origin=reading is None)
        session = resolver.with_id(session, context.session_id)
        if reading is None:
            reading = origins.reading_of(session, context.origin, turn_id)
            if not by_model and reading.turn == session_turn(session):
                reading.turn = ""  # a program writes outside of turns
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        # An error that names nothing stored is our own text.
        own = name in (MEMORY_SCHEMA["name"], SESSION_SEARCH_SCHEMA["name"])
        earlier, reading.result = reading.result, "assistant" if own else "provider"
        with reading.active():
            if name == SESSION_SEARCH_SCHEMA["name"]:
                answer = self.internals.search.call(arguments, session, resolver.now(session))
            elif name == MEMORY_SCHEMA["name"] and not self.curated.enabled_targets:
                answer = call_memory_tool(None, arguments, session)
            else:
                self.manager.initialize_all(session)
                answer = self.manager.handle_tool_call(ToolCall(name, arguments, call_id), session)
        if name == MEMORY_SCHEMA["name"]:
            origins.note_write(reading, call_id, answer, is_exact=is_exact)
            if self.home.state_db.exists():
                self.internals.inventory.add(self.home.state_db)
        origins.add_answer(session, answer, reading.result)
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
        """Change the notes with the `memory` tool for a program, and return its result.

        Calls of a model go through `call_tool`, so that its note waits until the turn has ended well.

        Args:
            session: The session of the change; default: `local_session`.
            by_person: True if a person wrote the text and not a model. Such a note always stands in the system prompt.
        """
        arguments = {"action": action, "target": target, "content": content, "old_text": old_text}
        arguments = {name: value for name, value in arguments.items() if value}
        session = self.internals.resolver.complete(session or self.local_session)
        if by_person:
            answer = call_memory_tool(self.curated.of(session), arguments, session)
            if self.home.state_db.exists():
                self.internals.inventory.add(self.home.state_db)
        else:
            answer = self._call_tool(session, "memory", arguments, "", "", by_model=False)
        result: dict[str, Any] = json.loads(answer)
        return result

    def recall(
        self,
        text: Content,
        *,
        session: Session | None = None,
        everybody: bool = False,
        **options: Unpack[RecallOptions],
    ) -> RecallReport:
        """Return a report of the recall that a turn with this message would get, and of a search in past sessions.

        Until the next turn of the session is finished, its model counts as having read the results.

        Args:
            limit: Largest number of results from the search, and from each provider; default: 10, or 30 for a question
                about a list or a count. Results after the tenth keep to `recall.budget` then.
            session: The session of the message, whose user's past sessions are searched; default: `local_session`, while
                nobody but the person at home has sessions.
            everybody: True to search the past sessions of all users.
            read_your_writes: Wait until the provider has taken what was said before, at most the deadline of `prefetch`.
            after: Search only messages of past sessions from this time on: seconds since the epoch, an ISO date or time, or
                words such as "last week", "March", "3 days ago".
            before: Search only messages before this time.
            at: Time of the message in seconds since the epoch, from which "last week" counts; default: now.
            why: Return an `ExplainedReport`: what brought each result, and what the gate of a turn decided on.
            absent: Ids of messages of which an `ExplainedReport` says why they are not in the recall.

        Raises:
            SessionError: `after` or `before` names no time, or users from outside have sessions, and neither `session` nor
                `everybody` says whose to search.
        """
        recaller = self.internals.recaller
        return recaller.report(recaller.ask_report(text, session=session, everybody=everybody, **options))


def _for_provider(message: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    """Return a message with its origin only if nobody of the session's scope said it."""
    if may_command(in_scope(message["origin"], owner)):
        return {key: value for key, value in message.items() if key != "origin"}
    return message
