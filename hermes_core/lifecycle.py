"""The sessions of a memory: their begin, their prompt and their end."""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Unpack, get_args

from hermes_core.config import Config
from hermes_core.contract.values import AgentContext, EndReason, Session, SessionFields, SessionSwitch
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import StoredNotes
from hermes_core.errors import OutboxError, SessionError, StorageError
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.origins import OriginLedger, remember
from hermes_core.problems import ProblemLog
from hermes_core.sessions import lineage
from hermes_core.sessions.owners import give_to_home
from hermes_core.sessions.records import epoch_seconds
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.tracing import MemoryTracer, traced

log = logging.getLogger(__name__)

# Seconds between two looks for conversations that are older than `sessions.retention`, and how many are deleted at a time:
# a session waits for it at its start, some milliseconds for each.
PRUNE_INTERVAL_S = 3600.0
MAX_PRUNED = 50

# Key in `state_meta`: "1" if users' prompts may hold the notes of the home, because `memory.per_user` was off.
SHARED_NOTES_KEY = "shared_notes"


class MemorySessions:
    """The part of `Memory` that begins, continues and ends sessions, and builds their prompts."""

    home: HermesHome
    config: Config
    sessions: SessionStore
    curated: Notes
    manager: MemoryManager
    origins: OriginLedger
    problem_log: ProblemLog
    at_session_start: list[Callable[[], object]]
    tracer: MemoryTracer | None

    def __init__(self) -> None:
        self._adopted: set[str] = set()  # owners whose earlier sessions are the home's now
        self._pruned_at = 0.0
        # Seconds between the clock of a session and that of the machine.
        self._clock_offsets: OrderedDict[str, float] = OrderedDict()

    def session(self, session_id: str = "", **fields: Unpack[SessionFields]) -> Session:
        """Return a complete `Session` of this home, without storing it.

        If `identity.owners` of config.yaml lists its `outside_id`, it is a session of the person at home.

        Args:
            session_id: Id of the session; default: a new one.
            fields: Fields of `Session`. The default of `identity` is the profile of this home.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        fields["identity"] = fields.get("identity") or self.home.profile
        session = Session(session_id or uuid.uuid4().hex, home=str(self.home.path), **fields)
        if session.agent_context not in (kinds := get_args(AgentContext)):
            raise SessionError(
                f"{session.agent_context!r} is no agent_context: nothing would reach a provider",
                f"use one of {', '.join(kinds)}",
            )
        return self._with_owner(session)

    def complete(self, session: Session) -> Session:
        """Return a session that the host made, as all methods use it: with this home, its owner, and an id of its own.

        This is the only place that decides whether a session is of the person at home. Call it before a session is
        passed to `curated` or `manager`; methods of `Memory` do it themselves.

        Raises:
            SessionError: `session` is not a `Session` but a session id, for instance.
        """
        session = self._with_owner(session)
        id_for = partial(lineage.id_for, self.sessions.database, session.id, session.owner)
        own = self.problem_log.read("sessions", id_for, session.id)
        return self._with_id(session, own)

    def _with_id(self, session: Session, own: str) -> Session:
        """Return the session with the id under which it is stored, and with this home."""
        if session.home and session.id == own:
            return session
        return dataclasses.replace(session, id=own, home=session.home or str(self.home.path))

    def _with_owner(self, session: Session) -> Session:
        """Return the session with `is_owner`, whatever the host wrote there.

        A session from outside that names neither a user nor a chat has a memory of its own: strangers without a name must
        not share one.
        """
        if not isinstance(session, Session):
            raise SessionError(
                f"session must be a Session, got {type(session).__name__}", "pass the result of start_session"
            )
        if session.is_anonymous:
            session = dataclasses.replace(session, gateway_session_key=session.id)
        outside = session.outside_id
        is_owner = outside in self.config.identity.owners
        if is_owner and outside not in self._adopted:
            # What this person stored before config.yaml listed the id.
            self.problem_log.read("sessions of an owner", lambda: give_to_home(self.sessions, outside), 0)
            self._adopted.add(outside)
        return session if session.is_owner == is_owner else dataclasses.replace(session, is_owner=is_owner)

    def start_session(
        self,
        session_id: str = "",
        *,
        source: str = "",
        title: str = "",
        started_at: float | None = None,
        **fields: Unpack[SessionFields],
    ) -> Session:
        """Begin a session, or continue a stored one, and start the providers for it.

        Args:
            session_id: Id of the session; default: a new one. If another user has a session with this id, the
                user is appended to the id of the returned session.
            source: Name of the program in which the conversation takes place; default: the platform, or the
                agent_context if no person takes part.
            title: Title of a new session.
            started_at: Start of a new session in seconds since the epoch; default: now.
            fields: Fields of `Session`, as in `session`.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        session = self.session(session_id, **fields)
        return self.begin_session(session, source=source, title=title, started_at=started_at)

    def begin_session(
        self, session: Session, *, source: str = "", title: str = "", started_at: float | None = None
    ) -> Session:
        """Store a session, if it is new, and start the providers for it; see `start_session`. Return it as stored."""
        chosen = self.complete(session)
        moment = epoch_seconds(started_at)
        if moment is not None and self.sessions.get_session(chosen.id) is None:
            self._set_clock(chosen, moment)

        def create(session: Session) -> Session:
            self.sessions.create_session(
                session.id,
                source or (session.platform if session.primary else session.agent_context),
                user=session.owner,
                parent_id=session.parent_id,
                relation="delegation" if session.parent_id and session.agent_context == "subagent" else "",
                title=title,
                started_at=started_at,
                identity=session.to_dict(),
            )
            return session

        try:
            session = create(chosen)
        except SessionError:
            # Another user may have begun a session of this id since it was found to be free.
            again = self.complete(session)
            if again.id == chosen.id:
                raise
            session = create(again)
        if session.owner:
            self._drop_shared_prompts()
        return self.continue_session(session)

    def continue_session(self, session: Session) -> Session:
        """Start the providers for a stored session, and what is due of the work on the home. Return the session."""
        self._prune_idle()
        for start in self.at_session_start:
            start()
        self.manager.initialize_all(session)
        return session

    def commit_session(self, session: Session) -> None:
        """Let the provider learn from the session so far, as at its end. The session stays open.

        If this is called again without a new message in the session, the provider is not notified again.
        """
        session = self.complete(session)
        with self.sessions.transaction():
            last = self.sessions.last_message_id(session.id)
            if last is not None:
                self.problem_log.enqueue(partial(self.manager.on_session_end, session, "cadence", last))

    def end_idle(self, older_than: timedelta | float, *, sources: Sequence[str] = ()) -> list[str]:
        """End the sessions without a message for `older_than`, and let the provider learn from them. Return their ids.

        For hosts whose framework does not say when a conversation is over. Call this now and then. A later turn opens
        such a session again.

        Args:
            older_than: Least time since the last message, as a timedelta or in seconds.
            sources: Only sessions of these sources; default: all.
        """
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        if not seconds >= 0:
            raise SessionError(
                f"older_than is {older_than!r}", "give the least time since the last message, 0 or more"
            )
        before = self.sessions.database.now() - seconds
        ids = []
        for stored in lineage.idle_since(self.sessions.database, before, sources):
            data = self.sessions.meta.identity(stored.id)
            session = Session.from_dict({**data, "id": stored.id, "home": str(self.home.path)})
            if session.owner != stored.user:  # `identity.owners` has changed; the store says whose it is
                session = dataclasses.replace(session, is_owner=not stored.user)
            with self.sessions.transaction():
                current = self.sessions.get_session(stored.id)
                # Another process may have continued the session meanwhile.
                if current is None or current.last_active >= before or current.ended_at is not None:
                    continue
                self._end_session(session, "evict")
            ids.append(stored.id)
        return ids

    def end_session(self, session: Session, reason: EndReason = "close") -> None:
        """Mark the session as ended, and store its end in the outbox, so that the provider learns from all of it.

        If this is called again without a new message in the session, the provider is not notified again.
        """
        self._end_session(self.complete(session), reason)

    def _end_session(self, session: Session, reason: EndReason) -> None:
        with self.sessions.transaction():
            last = self.sessions.last_message_id(session.id)
            if last is not None:
                self.problem_log.enqueue(partial(self.manager.on_session_end, session, reason, last))
            self.sessions.end_session(session.id, reason)

    def switch_session(self, switch: SessionSwitch) -> None:
        """Continue under another session id.

        The provider is notified after it has got the writes of the old session.
        """
        self.problem_log.enqueue(partial(self.manager.on_session_switch, switch))

    @traced
    def rewind(self, session: Session, message_id: int) -> list[str]:
        """Undo the message with this id and all later messages of the session. Return the ids of the rewound turns.

        Rewound turns that were not sent yet never reach the provider. It is asked to forget the others.
        """
        session = self.complete(session)

        def undo() -> list[str]:
            with self.sessions.transaction():
                turns = self.sessions.rewind(session.id, message_id)
                switch = SessionSwitch(
                    uuid.uuid4().hex, session, session, "rewind", rewound_turns=tuple(turns)
                )
                self.manager.on_session_switch(switch)
            return turns

        return self.sessions.with_index(undo)

    @traced
    def delete_session(self, session_id: str) -> None:
        """Delete a session, the sessions of its subagents, and the pending writes of all these sessions.

        The provider keeps the turns that were delivered to it. It is still asked to forget turns that were rewound
        before.
        """
        if not isinstance(session_id, str):
            raise SessionError(f"a {type(session_id).__name__} is no id", "give session.id")

        def delete() -> None:
            with self.sessions.transaction():
                for deleted in lineage.delegated(self.sessions.database, session_id):
                    self.manager.forget_session(deleted)
                self.sessions.delete_session(session_id)

        self.sessions.with_index(delete)

    def system_prompt(self, session: Session) -> str:
        """Return the notes and the provider's block for the system prompt.

        As long as this memory is open, the text is the same for the whole session. Only if the origin of a note in it
        was lowered, `memory.trust` was changed, or notes could not be read when it was built, it is built anew.
        """
        session = self.complete(session)
        prompt = self.manager.build_system_prompt(session)
        if self.is_outdated(session, prompt):
            prompt = self.manager.rebuild_system_prompt(session)
        return prompt

    def notes_at(self, session: Session, start: TurnContext | None) -> StoredNotes:
        """Return the notes of the owner of a session as they were read with the start of a turn, or else now."""
        notes = self.curated.of(session)
        return notes.read(start.further[0] if start is not None and start.further else None)

    def is_outdated(self, session: Session, prompt: str, start: TurnContext | None = None) -> bool:
        """Return True if a stored prompt of a session has to be built anew.

        The origin of a note in it was lowered, it holds notes on another repository than that of the working folder, or it
        was built while notes on a server could not be read. What the model wrote so far may follow a note of low origin,
        so that the session counts as having read it.
        """
        notes = self.notes_at(session, start)
        origin = notes.outdated_origin(prompt)
        if origin is not None:
            self.origins.note_read(session, origin)
        return origin is not None or notes.is_of_another_project(prompt) or notes.is_renewable(prompt)

    def frozen_prompt(self, session: Session, start: TurnContext | None = None) -> str:
        """Return the text of `system_prompt` as it was when the session began, also in another process.

        The first call for a stored session stores the text. A text with a note that may not stand in a system prompt any
        more is replaced.

        Args:
            start: What `read_turn_start` returned for this turn; None to read it.
        """
        if start is None:
            session = self.complete(session)
            stored = self.sessions.meta.memory_prompt(session.id)
        else:
            stored = start.prompt
        prompt = stored
        if prompt is None or self.is_outdated(session, prompt, start):
            # A framework may ask for the prompt before the first turn; the provider's block must stand in it.
            self.manager.initialize_all(session)
            prompt = self.system_prompt(session)
            if self.sessions.get_session(session.id) is not None:
                prompt = self.sessions.meta.freeze_memory_prompt(session.id, prompt, replaces=stored)
        return self.manager.prompts.freeze(session, prompt)

    def _prompt_of(self, session: Session) -> str | None:
        """Return the frozen prompt of a session, of this process or as it is stored; None if there is none."""
        if (frozen := self.manager.prompts.get(session)) is not None:
            return frozen
        stored = self.problem_log.read("prompts", lambda: self.sessions.meta.memory_prompt(session.id), None)
        if stored is not None:
            return stored
        return (
            self.problem_log.read("prompts", lambda: self.sessions.meta.system_prompt(session.id), "") or None
        )

    def _prune_idle(self) -> None:
        """Delete the conversations that are older than `sessions.retention`, at most once in some hours.

        A session begins after it, so that only some are deleted at a time.
        """
        days = self.config.sessions.retention
        if days is None or (self._pruned_at and time.monotonic() - self._pruned_at < PRUNE_INTERVAL_S):
            return
        from hermes_core.sessions.maintenance import idle_sessions  # few homes have this setting

        self._pruned_at, now = time.monotonic(), self.sessions.database.now()
        try:
            for session_id in idle_sessions(self.sessions, now - days * 86_400.0, limit=MAX_PRUNED):
                if (
                    self.sessions.get_session(session_id) is not None
                ):  # else deleted with one that delegated it
                    self.delete_session(session_id)
                    log.info("session %s was deleted: no message for %d days", session_id, days)
        except (SessionError, StorageError, OutboxError) as exc:
            log.error("old sessions can't be deleted: %s", exc)
            self.problem_log.failures["retention"] = f"old sessions can't be deleted: {exc}"
        else:
            self.problem_log.failures.pop("retention", None)

    def _drop_shared_prompts(self) -> None:
        """Drop prompts of users that hold the notes of the home, if they were shared before and no longer are."""
        shared, before = not self.config.memory.per_user, self.sessions.meta.get(SHARED_NOTES_KEY)
        if shared and before != "1":
            self.sessions.meta.set(SHARED_NOTES_KEY, "1")
        elif not shared and before == "1":
            with self.sessions.transaction() as connection:
                sql = "UPDATE sessions SET system_prompt = '', memory_prompt = NULL WHERE \"user\" <> ''"
                connection.execute(sql)
                self.sessions.meta.set(SHARED_NOTES_KEY, "0")

    def _set_clock(self, session: Session, at: float) -> None:
        """Let the clock of a session go on from `at`, if the host gave a time: it may replay a conversation of last year."""
        remember(self._clock_offsets, session.id, at - time.time())

    def _now(self, session: Session) -> float:
        """Return the time of the session in epoch seconds: the machine's, unless the host gave another one."""
        return time.time() + self._clock_offsets.get(session.id, 0.0)
