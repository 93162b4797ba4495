"""The sessions of a memory from their begin to their end, and the parts that the methods of a memory share."""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Unpack, get_args

from hermes_core.contract.values import AgentContext, EndReason, Session, SessionFields, SessionSwitch
from hermes_core.errors import ConfigError, OutboxError, SessionError, StorageError
from hermes_core.loader.extensions import Extensions
from hermes_core.loader.parts import HomeParts
from hermes_core.manager.manager import MemoryManager
from hermes_core.origins import OriginLedger
from hermes_core.recaller import Recaller
from hermes_core.selection import ProviderSelection
from hermes_core.session_facts import MemoryStores, SessionPrompts, SessionResolver
from hermes_core.sessions import lineage
from hermes_core.sessions.records import epoch_seconds
from hermes_core.sessions.tool import SessionSearchTool
from hermes_core.storage.inventory import Inventory
from hermes_core.tracing import traced

log = logging.getLogger(__name__)

# Seconds between two looks for conversations that are older than `sessions.retention`, and how many are deleted at a time:
# a session waits for it at its start, some milliseconds for each.
PRUNE_INTERVAL_S = 3600.0
MAX_PRUNED = 50


@dataclass(slots=True, eq=False)
class Internals:
    """The parts of a memory below its methods, as `Memory.internals`.

    Attributes:
        manager: The manager of the providers.
        resolver: The resolver of sessions.
        prompts: The memory in the system prompts of sessions.
        recaller: The recall of turns.
        origins: The origins of texts that are not stored yet, and the judge of notes.
        search: The tool `session_search`. Set its `summarise` to offer summaries.
        selection: The external providers.
        inventory: The stores of the home that have held data.
        extensions: The extensions that the configuration lets in.
        parts: The parts of the home that extensions keep, such as skills.
        telemetry_problem: Error that says why telemetry is on and can't work; None if it works or is off.
        at_close: Exit stack that `close` unwinds before the stores are closed.
        at_session_start: Functions that each start of a session calls. They must return at once.
    """

    manager: MemoryManager
    resolver: SessionResolver
    prompts: SessionPrompts
    recaller: Recaller
    origins: OriginLedger
    search: SessionSearchTool
    selection: ProviderSelection
    inventory: Inventory
    extensions: Extensions
    parts: HomeParts
    telemetry_problem: ConfigError | None
    at_close: ExitStack = field(default_factory=ExitStack)
    at_session_start: list[Callable[[], object]] = field(default_factory=list)

    def start(self, session: Session) -> None:
        """Start the providers for a stored session, and what is due of the work on the home."""
        for start in self.at_session_start:
            start()
        self.manager.initialize_all(session)


class MemorySessions(MemoryStores):
    """The part of `Memory` that begins and ends sessions."""

    internals: Internals

    def __init__(self) -> None:
        self._pruned_at = 0.0
        self.internals.at_session_start.append(self._prune_idle)

    def session(self, session_id: str | Session = "", **fields: Unpack[SessionFields]) -> Session:
        """Return a complete `Session` of this home, without storing it.

        If `identity.owners` of config.yaml lists its `outside_id`, it is a session of the person at home.

        Args:
            session_id: Id of the session; default: a new one. If another user has a session with this id, the user is
                appended to it. Pass a `Session` that you made here before `curated` or `manager` get it.
            fields: Fields of `Session`, if it is not one. The default of `identity` is the profile of this home.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        resolver = self.internals.resolver
        if isinstance(session_id, Session):
            return resolver.complete(session_id)
        fields["identity"] = fields.get("identity") or self.home.profile
        session = Session(session_id or uuid.uuid4().hex, home=str(self.home.path), **fields)
        if session.agent_context not in (kinds := get_args(AgentContext)):
            raise SessionError(
                f"{session.agent_context!r} is no agent_context: nothing would reach a provider",
                f"use one of {', '.join(kinds)}",
            )
        return resolver.complete(session) if session_id else resolver.with_owner(session)

    def start_session(
        self,
        session_id: str | Session = "",
        *,
        source: str = "",
        title: str = "",
        started_at: float | None = None,
        **fields: Unpack[SessionFields],
    ) -> Session:
        """Begin a session, or continue a stored one, and start the providers for it. Return it as it is stored.

        Args:
            session_id: Id of the session, or a `Session`, as in `session`.
            source: Name of the program in which the conversation takes place; default: the platform, or the
                agent_context if no person takes part.
            title: Title of a new session.
            started_at: Start of a new session in seconds since the epoch; default: now.
            fields: Fields of `Session`, as in `session`.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        chosen, resolver = self.session(session_id, **fields), self.internals.resolver
        moment = epoch_seconds(started_at)
        if moment is not None and self.sessions.get_session(chosen.id) is None:
            resolver.set_clock(chosen, moment)

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
            stored = create(chosen)
        except SessionError:
            # Another user may have begun a session of this id since it was found to be free.
            again = resolver.complete(chosen)
            if again.id == chosen.id:
                raise
            stored = create(again)
        if stored.owner:
            self.internals.prompts.drop_shared()
        self.internals.start(stored)
        return stored

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

        Args:
            reason: "cadence" to let the provider learn from the session so far, and to leave the session open.
        """
        self._end_session(self.internals.resolver.complete(session), reason)

    def _end_session(self, session: Session, reason: EndReason) -> None:
        with self.sessions.transaction():
            last = self.sessions.last_message_id(session.id)
            if last is not None:
                self.problem_log.enqueue(partial(self.manager.on_session_end, session, reason, last))
            if reason != "cadence":
                self.sessions.end_session(session.id, reason)

    @traced
    def rewind(self, session: Session, message_id: int) -> list[str]:
        """Undo the message with this id and all later messages of the session. Return the ids of the rewound turns.

        Rewound turns that were not sent yet never reach the provider. It is asked to forget the others.
        """
        session = self.internals.resolver.complete(session)

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
        """Return the notes and the provider's block for the system prompt, the same text for the whole session.

        The first call for a stored session stores the text, so that another process sends the same bytes. A text with a
        note that may not stand in a system prompt any more is replaced.
        """
        return self.internals.prompts.frozen(self.internals.resolver.complete(session))

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
