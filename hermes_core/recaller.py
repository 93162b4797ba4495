"""The recall of turns: what the providers, the notes and past sessions have for a message."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from hermes_core.contract.values import Origin, Query, Recall, Session
from hermes_core.curated.stored import DataNote, StoredNotes
from hermes_core.errors import StorageError
from hermes_core.noted import NotedLine
from hermes_core.origins import OriginLedger, is_said, message_origin
from hermes_core.recall.amounts import result_count
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.fence import without_context
from hermes_core.safety.origin import lowest
from hermes_core.safety.parts import UNKNOWN_ORIGIN, foreign_origins
from hermes_core.session_facts import SHARED_NOTES_KEY, MemoryStores, SessionPrompts, SessionResolver
from hermes_core.sessions.lineage import require_scope
from hermes_core.sessions.records import (
    SYSTEM_ROLES,
    Content,
    StoredMessage,
    epoch_seconds,
    in_text,
    sqlite_text,
    text_of,
)
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.tracing import traced
from hermes_core.turn_recall import (
    NOTES_LABEL,
    UPDATES_LABEL,
    BegunTurn,
    NoteUpdates,
    RecallHit,
    RecallReport,
    RecallTrace,
    ReportOptions,
    SeenTexts,
    SessionRecall,
    TurnRecall,
    provider_hits,
    recall_record,
    render_notes,
    render_updates,
)

# Latest stored messages of a session with which a history that a host passes is compared.
_COMPARED_MESSAGES = 200

SESSIONS_LABEL = "sessions"
"""Label of the recall from past sessions in the fence."""


class Recaller:
    """Recall for turns and for reports. Each is asked for first and collected then, so that a program may do other work.

    Attributes:
        updates: The changes of notes that running sessions have got beside their frozen prompts.
    """

    def __init__(
        self, memory: MemoryStores, origins: OriginLedger, resolver: SessionResolver, prompts: SessionPrompts
    ) -> None:
        self._memory, self._tracer = memory, memory._tracer
        self._origins, self._resolver, self._prompts = origins, resolver, prompts
        self.updates = NoteUpdates()
        self._noted = NotedLine(memory.curated, memory.config.memory.waiting_days)
        self._past = SessionRecall(memory.sessions, memory.config, memory.manager.observers.filter_recall)

    def read_start(
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
        session = self._resolver.with_owner(session)
        try:
            start = self._memory.sessions.turns.context(
                session.id,
                session.owner,
                lineage=True,
                recent=recent,
                setting=SHARED_NOTES_KEY,
                expired_before=expired_before,
                turn_id=turn_id,
                further=[self._memory.curated.of(session).files.statement()],
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
            or (session.owner and (start.setting == "1") == self._memory.config.memory.per_user)
        ):
            return session, None
        return self._resolver.with_id(session, session.id), start

    @traced
    def ask(
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
        shows_line: bool = False,
    ) -> BegunTurn:
        """Begin a turn as `begin_turn` does, and do not wait for the recall of the providers.

        Args:
            begins_turn: False to ask for recall alone, without a turn of which the providers are notified.
            at: Time of the message in seconds since the epoch; default: now.
            start: What `read_start` returned for this turn; None to read it.
            shows_line: True if the host shows `TurnRecall.noted` to the person.
        """
        session, at = self._resolver.with_owner(session), epoch_seconds(at)
        from_host = start is None
        if start is None:
            further = [self._memory.curated.of(session).files.statement()]
            start = self._resolver.context(session, "turns so far", lineage=True, further=further)
            session = self._resolver.with_id(session, start.session_id)
        if begins_turn and at is not None:
            self._resolver.set_clock(session, at)
        message = {"role": "user", "content": text}
        speaker = message_origin(session, author, origin, message)
        read = foreign_origins(message)
        if from_host and recent:
            read = [*read, self.history_origin(session, recent)]
        query = self.query(text_of(text), recent, self._resolver.now(session) if at is None else at)
        number = start.last_number + 1 if begins_turn else None
        pending = self._memory.manager.prefetch.ask(query, session, turn_number=number, author=author)
        return BegunTurn(
            *(query, session, pending, not start.last_number, time.time(), speaker, start.lineage),
            origin=lowest(read),
            notes=self._prompts.notes_at(session, start),
            said_at=time.time() if at is None else at,
            shows_line=shows_line,
        )

    def history_origin(
        self, session: Session, recent: Sequence[Mapping[str, Any]], held: Iterable[Mapping[str, Any]] = ()
    ) -> Origin:
        """Return the lowest origin of messages that a host passes as history, beside those that the session holds.

        A host may name roles in its own way, and shorten a message.

        Args:
            held: Messages of the session that are not stored yet.
        """
        memory, last = self._memory, _COMPARED_MESSAGES + len(recent)
        read = partial(memory.sessions.get_messages, session.id, last=last)
        stored = [m.as_chat() for m in memory.problem_log.read("messages", read, list[StoredMessage]())]
        known = "\n".join(text for message in (*stored, *held) for text in _texts_of(message))
        texts = [text for m in recent if m["role"] not in SYSTEM_ROLES for text in _texts_of(m)]
        return "person" if all(text in known for text in texts) else UNKNOWN_ORIGIN

    @traced
    def collect(self, pending: BegunTurn) -> TurnRecall:
        """Wait for the recall that `ask` asked for, at most until the deadline, and return it."""
        query, session = pending.query, pending.session
        stored = pending.notes or self._prompts.notes_at(session, None)
        answered = self._memory.manager.prefetch.collect(pending.take_calls())
        prompt = self._memory.manager.prompts.get(session) or ""
        notes, updates, pending.updates = self._notes_of_turn(pending, stored)
        seen = SeenTexts(
            [prompt, *map(itemgetter("content"), query.recent), *map(attrgetter("entry"), notes)]
        )
        recall = seen.without_repeats(answered)
        past = self._memory.problem_log.read(
            "past sessions", partial(self._past.for_turn, query, session, seen, pending.lineage), Recall()
        )
        recalled = recall.contexts
        parts = (
            (NOTES_LABEL, render_notes(notes)),
            (UPDATES_LABEL, updates),
            *recalled,
            (SESSIONS_LABEL, past.render()),
        )
        pending.contexts = tuple(filter(itemgetter(1), parts))
        # Notes that wait lower only what follows from them: see `Reading.waiting`.
        origins = [pending.origin, *(item.origin for item in past.items)]
        pending.origin = lowest([*origins, "provider"] if recalled else origins, owner=session.owner)
        pending.record = recall_record(prompt, answered, recall, notes, past, seen.left_out)
        self._origins.begin(pending)
        noted = self._noted_of(pending, stored) if pending.shows_line else ""
        # In the first turn of a session only: it looks through the home, or asks a server.
        sharing = self._memory.problem_log.of_first_turn(session) if pending.is_first else []
        problems = (*self._memory.problem_log.of_turn(stored, session.owner, seen.left_out), *sharing)
        return TurnRecall(recall, pending.contexts, problems, pending.origin, noted, is_said(pending.speaker))

    def _noted_of(self, pending: BegunTurn, notes: StoredNotes) -> str:
        """Return the line that names notes of the session that wait, and let the message answer the line before."""
        session = pending.session
        text = pending.query.text if is_said(pending.speaker) else ""
        line = partial(
            self._noted.of_turn,
            *(session, text, notes, lambda: self._origins.reading_of(session).origin),
            is_first=pending.is_first,
        )
        return self._memory.problem_log.read("the notes that wait", line, "")

    def _notes_of_turn(
        self, pending: BegunTurn, notes: StoredNotes
    ) -> tuple[list[DataNote], str, frozenset[str]]:
        """Return the notes that a turn gets as data, the changes that its frozen prompt does not show, and all their texts."""
        session = pending.session
        if self._memory.config.memory.refresh == "session":
            return (notes.recalled_notes() if pending.is_first else []), "", frozenset()
        data = notes.recalled_notes()
        frozen = None if pending.is_first else self._prompts.current(session)
        added, removed = notes.changes_since(frozen) if frozen is not None else ([], [])
        due = self.updates.due(
            session, [*(note.entry for note in data), *added, *removed], pending.query.text
        )
        updates = render_updates(
            *([entry for entry in entries if entry in due] for entries in (added, removed))
        )
        return [note for note in data if note.entry in due], updates, frozenset(due)

    def ask_report(
        self,
        text: Content,
        *,
        session: Session | None = None,
        read_your_writes: bool = False,
        at: float | None = None,
        **options: Any,
    ) -> BegunTurn:
        """Ask for the recall of `Memory.recall`, and do not wait for the providers; `report` does.

        Args:
            options: Fields of `ReportOptions`.
        """
        report_options = ReportOptions(**options)
        database = self._memory.sessions.database
        scoped = partial(require_scope, database, session, everybody=report_options.everybody)
        self._memory.problem_log.read("owners of past sessions", scoped, None)
        session = self._resolver.complete(session or self._memory.local_session)
        if read_your_writes:
            self._memory.manager.flush(self._memory.config.recall.deadline)
        self._memory.manager.initialize_all(session)
        pending = self.ask(session, text, begins_turn=False, at=at)
        pending.options = report_options
        return pending

    @traced
    def report(self, pending: BegunTurn) -> RecallReport:
        """Wait for the recall that `ask_report` asked for, and return the report of it; see `Memory.recall`."""
        report_options = pending.options or ReportOptions()
        limit = report_options.limit
        query, session, calls = pending.query, pending.session, pending.take_calls()
        since, until = (
            self._moment(bound, query.now) for bound in (report_options.after, report_options.before)
        )
        notes = self._memory.curated.of(session).read()
        entries, data = notes.shown_entries(), notes.recalled_notes()
        seen = SeenTexts([*entries, *(note.entry for note in data)])
        hits = [RecallHit("memory", True, entry) for entry in entries]
        hits += [RecallHit("memory", True, note.entry, origin=note.origin.origin) for note in data]
        most = result_count(query.text) if limit is None else limit
        hits += provider_hits(seen.without_repeats(self._memory.manager.prefetch.collect(calls)), most)
        trace = RecallTrace()
        if self._memory.config.sessions.search_enabled:
            owner = None if report_options.everybody else session.owner
            find = partial(self._past.hits, query, session, owner, limit, seen, since, until, trace)
            hits += self._memory.problem_log.read("past sessions", find, [])
        unread = self._memory.problem_log.read(
            "messages without vectors", self._memory.sessions.past.unread, 0
        )
        tokens = sum(count_tokens(hit.text) for hit in hits if hit.injected)
        elapsed = round((time.monotonic() - calls.began) * 1000, 3)
        problems = tuple(self._memory.problem_log.of_turn(notes, session.owner, seen.left_out))
        report = RecallReport(query.text, tuple(hits), tokens, elapsed, problems, unread)
        if report_options.why or report_options.absent:
            report = self._past.explain(report, trace, report_options.absent)
        # A host may give it to the model, which then has read it.
        self._origins.note_read(session, report.origin)
        return report

    def _moment(self, bound: str | float | None, now: float) -> float | None:
        """Return a bound of a search in epoch seconds; raise `SessionError` for a text that names no time."""
        if isinstance(bound, str):
            return self._memory.sessions.past.read_moment(bound, now=now) if bound.strip() else None
        return epoch_seconds(bound)

    def query(self, text: str, recent: Sequence[Mapping[str, Any]], now: float) -> Query:
        """Return a message and the ones before it as the query of the providers."""
        messages = in_text(recent)
        if messages:
            messages = in_text(without_context(m) for m in messages if m["role"] not in SYSTEM_ROLES)
        return Query(without_context(text), self._memory.config.recall.budget, messages, now)


def _texts_of(message: Mapping[str, Any]) -> list[str]:
    """Return the text of a message, and the arguments of its calls, as the store has them."""
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    functions = [call["function"] if isinstance(call.get("function"), Mapping) else call for call in calls]
    arguments = [function.get("arguments") for function in functions]
    return [
        sqlite_text(str(text)).strip()
        for text in (text_of(without_context(message.get("content"))), *arguments)
        if text
    ]
