"""The facts of sessions beside their messages: whose they are, their ids, their clocks and their prompts."""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from functools import partial
from typing import Any

from hermes_core.config import Config
from hermes_core.contract.values import Session
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import StoredNotes
from hermes_core.errors import SessionError
from hermes_core.home import HermesHome
from hermes_core.manager.manager import MemoryManager
from hermes_core.origins import OriginLedger, remember
from hermes_core.problems import ProblemLog
from hermes_core.sessions import lineage
from hermes_core.sessions.owners import give_to_home
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.tracing import MemoryTracer

# Key in `state_meta`: "1" if users' prompts may hold the notes of the home, because `memory.per_user` was off.
SHARED_NOTES_KEY = "shared_notes"


class MemoryStores:
    """The attributes of a memory that its parts share."""

    home: HermesHome
    config: Config
    sessions: SessionStore
    curated: Notes
    manager: MemoryManager
    problem_log: ProblemLog
    local_session: Session
    _tracer: MemoryTracer | None


class SessionResolver:
    """Resolver of the sessions that hosts pass. Nothing else decides whether a session is of the person at home."""

    def __init__(self, memory: MemoryStores) -> None:
        self._memory = memory
        self._adopted: set[str] = set()  # owners whose earlier sessions are the home's now
        # Seconds between the clock of a session and that of the machine.
        self._clock_offsets: OrderedDict[str, float] = OrderedDict()

    def complete(self, session: Session) -> Session:
        """Return a session as all methods use it: with this home, its owner, and the id under which it is stored."""
        session = self.with_owner(session)
        id_for = partial(lineage.id_for, self._memory.sessions.database, session.id, session.owner)
        own = self._memory.problem_log.read("sessions", id_for, session.id)
        return self.with_id(session, own)

    def with_id(self, session: Session, own: str) -> Session:
        """Return the session with the id under which it is stored, and with this home."""
        if session.home and session.id == own:
            return session
        return dataclasses.replace(session, id=own, home=session.home or str(self._memory.home.path))

    def with_owner(self, session: Session) -> Session:
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
        is_owner = outside in self._memory.config.identity.owners
        if is_owner and outside not in self._adopted:
            # What this person stored before config.yaml listed the id.
            self._memory.problem_log.read(
                "sessions of an owner", lambda: give_to_home(self._memory.sessions, outside), 0
            )
            self._adopted.add(outside)
        return session if session.is_owner == is_owner else dataclasses.replace(session, is_owner=is_owner)

    def context(self, session: Session, what: str, **wanted: Any) -> TurnContext:
        """Return what `TurnStore.context` returns; what can't be read counts as the least that is safe.

        Args:
            what: Name of the data, for the log.
            wanted: Arguments of `TurnStore.context`.
        """
        read = partial(self._memory.sessions.turns.context, session.id, session.owner, **wanted)
        unread = TurnContext(session.id, lineage=frozenset([session.id]), origin="import")
        return self._memory.problem_log.read(what, read, unread)

    def set_clock(self, session: Session, at: float) -> None:
        """Let the clock of a session go on from `at`, if the host gave a time: it may replay a conversation of last year."""
        remember(self._clock_offsets, session.id, at - time.time())

    def now(self, session: Session) -> float:
        """Return the time of the session in epoch seconds: the machine's, unless the host gave another one."""
        return time.time() + self._clock_offsets.get(session.id, 0.0)


class SessionPrompts:
    """The notes and the provider's block for the system prompts of sessions, which a `SessionResolver` has returned."""

    def __init__(self, memory: MemoryStores, origins: OriginLedger) -> None:
        self._memory, self._origins = memory, origins

    def build(self, session: Session) -> str:
        """Return the notes and the provider's block, which stay the same while this memory is open.

        Only if the origin of a note in them was lowered, `memory.trust` was changed, or notes could not be read when they
        were built, they are built anew.
        """
        prompt = self._memory.manager.build_system_prompt(session)
        if self.is_outdated(session, prompt):
            prompt = self._memory.manager.rebuild_system_prompt(session)
        return prompt

    def notes_at(self, session: Session, start: TurnContext | None) -> StoredNotes:
        """Return the notes of the owner of a session as they were read with the start of a turn, or else now."""
        notes = self._memory.curated.of(session)
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
            self._origins.note_read(session, origin)
        return origin is not None or notes.is_of_another_project(prompt) or notes.is_renewable(prompt)

    def frozen(self, session: Session, start: TurnContext | None = None) -> str:
        """Return the stored text of a session, which the first call for a stored session stores.

        While the store can't be read, it is the text that this process had before, or one without what can't be read.

        Args:
            start: What `Recaller.read_start` returned for this turn; None to read it.
        """
        read, meta = self._memory.problem_log.read, self._memory.sessions.meta
        if start is None:
            shown = self._memory.manager.prompts.get(session)
            stored = read("prompts", lambda: meta.memory_prompt(session.id), shown)
        else:
            stored = start.prompt
        prompt = stored
        if prompt is None or self.is_outdated(session, prompt, start):
            # A framework may ask for the prompt before the first turn; the provider's block must stand in it.
            self._memory.manager.initialize_all(session)
            built = self.build(session)

            def freeze() -> str:
                if self._memory.sessions.get_session(session.id) is None:
                    return built
                return meta.freeze_memory_prompt(session.id, built, replaces=stored)

            prompt = read("prompts", freeze, built)
        return self._memory.manager.prompts.freeze(session, prompt)

    def current(self, session: Session) -> str | None:
        """Return the frozen prompt of a session, of this process or as it is stored; None if there is none."""
        if (frozen := self._memory.manager.prompts.get(session)) is not None:
            return frozen
        stored = self._memory.problem_log.read(
            "prompts", lambda: self._memory.sessions.meta.memory_prompt(session.id), None
        )
        if stored is not None:
            return stored
        return (
            self._memory.problem_log.read(
                "prompts", lambda: self._memory.sessions.meta.system_prompt(session.id), ""
            )
            or None
        )

    def drop_shared(self) -> None:
        """Drop prompts of users that hold the notes of the home, if they were shared before and no longer are."""
        shared, before = (
            not self._memory.config.memory.per_user,
            self._memory.sessions.meta.get(SHARED_NOTES_KEY),
        )
        if shared and before != "1":
            self._memory.sessions.meta.set(SHARED_NOTES_KEY, "1")
        elif not shared and before == "1":
            with self._memory.sessions.transaction() as connection:
                sql = "UPDATE sessions SET system_prompt = '', memory_prompt = NULL WHERE \"user\" <> ''"
                connection.execute(sql)
                self._memory.sessions.meta.set(SHARED_NOTES_KEY, "0")
