"""Everything put together in one place: config, loader, manager, curated memory and sessions of one home.

The agent, the command line, the MCP server and a host of your own all start here, with `open_memory`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self, TypeVar, get_args

from hermes_core.config import Config, load_config
from hermes_core.contract.values import (
    AgentContext,
    EndReason,
    Field,
    Message,
    Query,
    Recall,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.curated.store import MemoryStore
from hermes_core.curated.tool import MEMORY_SCHEMA, CuratedProvider, call_memory_tool
from hermes_core.errors import OutboxError, ProviderError, ProviderUnavailable, SessionError, StorageError
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import (
    LoadControl,
    ProviderEntry,
    ProviderState,
    installed_entry_points,
)
from hermes_core.loader.load import LoadedProvider, declared_settings, load_observers, load_provider
from hermes_core.logs import LogFile
from hermes_core.manager import at_exit
from hermes_core.manager.manager import MemoryManager
from hermes_core.recall.tokens import count_tokens
from hermes_core.recalled import (
    SESSIONS_LABEL,
    PastSessions,
    RecallHit,
    RecallReport,
    SeenTexts,
    TurnRecall,
    of_providers,
)
from hermes_core.safety.redact import redact, redact_value
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.lineage import delegated
from hermes_core.sessions.records import Content, epoch_seconds, in_text, text_of
from hermes_core.sessions.summaries import Summarise
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA, SessionSearchTool
from hermes_core.upgrade import delete_backup, outbox_of_home

log = logging.getLogger(__name__)

Read = TypeVar("Read")


def open_memory(
    home: str | os.PathLike[str] | HermesHome | None = None,
    *,
    profile: str | None = None,
    provider: object = None,
    deadlines: Mapping[str, float] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Memory:
    """Open the memory of a home (default: HERMES_HOME, else ~/.hermes); use it in a `with` block or close it.

    `provider` stands in for `memory.provider` of config.yaml: a name, "" for built-in memory only, or a provider
    object, class or factory of your own. `deadlines` are seconds by hook name, in place of the policy's; `clock`
    measures ages, pauses and cooldowns. Raises `ConfigError` for a config.yaml that is wrong; a provider that does not
    load is no error here but one of `Memory.problems()`.
    """
    where = home if isinstance(home, HermesHome) else HermesHome.resolve(home, profile)
    return Memory(where, load_config(where), provider=provider, deadlines=deadlines, clock=clock)


def _checked(session: object) -> None:
    """Raises `SessionError` for what is no session, as its id is, or the text of a turn in its place."""
    if not isinstance(session, Session):
        raise SessionError(f"a {type(session).__name__} is no session", "give what start_session returned")


def known_context(session: Session) -> Session:
    """The session. Raises `SessionError` for an `agent_context` that there is not."""
    if session.agent_context not in (kinds := get_args(AgentContext)):
        raise SessionError(
            f"{session.agent_context!r} is no agent_context: nothing would reach a provider",
            f"use one of {', '.join(kinds)}",
        )
    return session


def account_of(settings: Sequence[Field], name: str, home: HermesHome) -> Callable[[], str]:
    """Whose data the provider holds, told by those of its settings that say so; what `add_provider` takes."""

    def fingerprint() -> str:
        if not any(field.identity for field in settings):
            return ""
        return load_settings(settings, home.path, name).fingerprint

    return fingerprint


class Memory:
    """The memory of one home. Safe to share between threads, agents and sessions; lives as long as the process.

    `sessions` is its `SessionDB`, `curated` its `MemoryStore`, `manager` its `MemoryManager`; `home` and `config` are what
    it was opened with. `at_close` ends before they do.
    """

    def __init__(
        self,
        home: HermesHome,
        config: Config,
        *,
        provider: object = None,
        deadlines: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.home, self.config, self.at_close = home, config, ExitStack()
        self.sessions = SessionDB(
            home.state_db,
            journal_mode=config.sessions.journal_mode,
            semantic=config.recall.semantic == "auto" and config.sessions.search_enabled,
        )
        chosen = config.memory.provider if provider is None else provider
        self._selected = chosen if isinstance(chosen, str) else str(getattr(chosen, "name", ""))
        self._control = LoadControl.of(config.providers)
        # Scanning the installed packages takes longer than all else here, so it is done once.
        self._entry_points = list(installed_entry_points())
        observers, self._observer_problems = load_observers(
            self._control, self._entry_points, MemoryManager.vet_observer
        )
        self.manager = MemoryManager(
            home,
            deadlines={"prefetch": config.recall.deadline, **(deadlines or {})},
            clock=clock,
            outbox=outbox_of_home(home, self.sessions, redact_value),
            selected=self._selected,
            transcripts=self.sessions.transcript,
            observers=observers,
            on_event=LogFile(home).on_event,
        )
        self.curated = MemoryStore(
            home,
            memory_char_limit=config.memory.memory_char_limit,
            user_char_limit=config.memory.user_char_limit,
            memory_enabled=config.memory.memory_enabled,
            user_profile_enabled=config.memory.user_profile_enabled,
            per_user=config.memory.per_user,
            filter_write=self.manager.filter_write,
            suppresses=self.manager.suppresses_local_writes,
            on_write=self.manager.on_memory_write,
            provider=lambda: self._external if self._taken else self._selected,
        )
        self._past = PastSessions(self.sessions, config)
        self._search = SessionSearchTool(self.sessions if config.sessions.search_enabled else None)
        self._external = ""
        self._taken = False
        self._unread: dict[str, str] = {}
        self._load_error: ProviderError | None = None
        self.loaded: LoadedProvider | None = None
        self.manager.add_provider(CuratedProvider(self.curated), builtin=True)
        with ExitStack() as undo:
            undo.callback(self.manager.shutdown_all, 1.0)
            if not isinstance(chosen, str):
                self._hold(chosen, self._selected, declared_settings(chosen))
            elif chosen:
                self._load(chosen)
            undo.pop_all()
        at_exit.register(self)

    @property
    def local_session(self) -> Session:
        """The session of a person at this machine who is in no conversation; it is not stored."""
        return Session(id=f"local-{self.home.profile}", identity=self.home.profile, home=str(self.home.path))

    @property
    def selected(self) -> str:
        """The name of the external provider that this memory should have; "" for built-in only."""
        return self._selected

    # ---------------------------------------------------------------- sessions

    def start_session(
        self,
        session_id: str = "",
        *,
        source: str = "",
        title: str = "",
        started_at: float | None = None,
        **identity: Any,
    ) -> Session:
        """Begin a session, or go on with one that is stored, and make the providers ready for it.

        `identity` are fields of `Session`: platform, user_id, parent_id, agent_context and the others. Raises
        `SessionError` for an `agent_context` that there is not.
        """
        session = Session(
            id=session_id or uuid.uuid4().hex,
            **{"identity": self.home.profile, **identity, "home": str(self.home.path)},
        )
        known_context(session)
        self.sessions.create_session(
            session.id,
            source or session.platform,
            user=session.owner,
            parent_id=session.parent_id,
            title=title,
            started_at=started_at,
            identity=session.to_dict(),
        )
        self.manager.initialize_all(session)
        return session

    def end_session(self, session: Session, reason: EndReason = "close") -> None:
        """Mark the session as ended and let the provider learn from the whole of it, durably.

        The provider hears of one end for each last message, however often this is called.
        """
        _checked(session)
        with self.sessions.transaction():
            last = self.sessions.last_message_id(session.id)
            if last is not None:
                self._enqueue(partial(self.manager.on_session_end, session, reason, last))
            self.sessions.end_session(session.id, reason)

    def switch_session(self, switch: SessionSwitch) -> None:
        """Go on under another session id. The provider hears of it after the old session's writes."""
        self._enqueue(partial(self.manager.on_session_switch, switch))

    def rewind(self, session: Session, message_id: int) -> list[str]:
        """Undo this message and all after it, and return the ids of the turns that go with them.

        Turns that were not sent yet never reach the provider; it is asked to forget the others.
        """
        _checked(session)
        with self.sessions.transaction():
            turns = self.sessions.rewind(session.id, message_id)
            switch = SessionSwitch(uuid.uuid4().hex, session, session, "rewind", rewound_turns=tuple(turns))
            self.manager.on_session_switch(switch)
        return turns

    def delete_session(self, session_id: str) -> None:
        """Delete a session, the sessions that it delegated, and their writes that wait for the provider.

        The provider keeps what it has. It is still asked to forget turns that were rewound before.
        """
        if not isinstance(session_id, str):
            raise SessionError(f"a {type(session_id).__name__} is no id", "give session.id")
        with self.sessions.transaction():
            for deleted in delegated(self.sessions.database, session_id):
                self.manager.forget_session(deleted)
            self.sessions.delete_session(session_id)

    # -------------------------------------------------------------------- turn

    def system_prompt(self, session: Session) -> str:
        """Curated memory and the provider's block: the same bytes for the whole session, while this memory is open."""
        _checked(session)
        return self.manager.build_system_prompt(session)

    def tool_schemas(self) -> list[dict[str, Any]]:
        """The tools for the model, as `{"name", "description", "parameters"}`: memory, search, the provider's."""
        schemas = self.manager.get_all_tool_schemas()
        return [*schemas, self._search.schema] if self.config.sessions.search_enabled else schemas

    def summarise_with(self, summarise: Summarise | None) -> None:
        """Let `session_search` offer summaries of past sessions: `summarise(text, question)` returns one, on any thread."""
        self._search.summarise = summarise

    def call_tool(self, name: str, arguments: Any, session: Session, call_id: str = "") -> str:
        """Run a tool that the model called; the answer is text for the model, an error never an exception.

        `arguments` are an object, or its JSON as chat APIs send it. Providers that have not started start now, also for
        a session that is not stored.
        """
        _checked(session)
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        if name == SESSION_SEARCH_SCHEMA["name"]:
            return self._search.call(arguments, session)
        if name == MEMORY_SCHEMA["name"] and not self.curated.enabled_targets:
            return call_memory_tool(None, arguments, session)
        self.manager.initialize_all(session)
        return self.manager.handle_tool_call(ToolCall(name, arguments, call_id), session)

    def begin_turn(
        self, text: Content, session: Session, *, recent: Sequence[Mapping[str, Any]] = ()
    ) -> TurnRecall:
        """Recall for the person's message, text or parts, once a turn; waits for a provider no longer than its deadline."""
        _checked(session)
        query = self._query(text_of(text), recent)
        number = self._read("turns so far", lambda: self.sessions.turn_count(session.id), 0) + 1
        recall = self.manager.prefetch_all(query, session, turn_number=number)
        told = SeenTexts(
            (self.manager.frozen_system_prompt(session), *(message["content"] for message in query.recent))
        )
        recall = told.without_repeats(recall)
        past = self._read(
            "past sessions", lambda: self._past.of_turn(query, session, told), Recall()
        ).render()
        contexts = (*recall.contexts, *([(SESSIONS_LABEL, past)] if past else []))
        return TurnRecall(recall, contexts, (*self.problems(session), *told.left_out))

    def end_turn(
        self,
        session: Session,
        user: Content,
        assistant: Content,
        *,
        messages: Sequence[Mapping[str, Any]] = (),
        turn_id: str = "",
        at: float | None = None,
        warm: bool = True,
        author: str = "",
    ) -> Turn:
        """Store a completed turn: in state.db and in the outbox before this returns, searchable at once.

        `messages` are the turn's own, clean of recall; without them the two texts are stored. Giving the same
        `turn_id` again stores nothing twice; one of another session, or that was taken back, is refused with
        `SessionError`. `warm` lets providers prepare the next turn's recall. `author` is who spoke, where several people do.
        """
        _checked(session)
        said, answer, author = text_of(user), text_of(assistant), str(author or "")  # as Session takes them
        both = Message(role="user", content=said), Message(role="assistant", content=answer)
        stored = tuple(messages) or both
        turn = Turn(
            id=str(turn_id or "") or uuid.uuid4().hex,  # a chat's own number, too
            number=self.sessions.turn_count(session.id) + 1,
            user=said,
            assistant=answer,
            messages=in_text(stored),
            author=author,
            at=time.time() if (given := epoch_seconds(at)) is None else given,
        )
        row = self.manager.turn_row(turn, session)  # redacted before the write lock is taken
        with self.sessions.transaction():
            self.sessions.append_turn(session.id, stored, turn.id, turn.number, author=author, at=turn.at)
            self._enqueue(partial(self.manager.put, row, session))
        if warm:
            self.manager.queue_prefetch_all(self._query(said, stored), session)
        return turn

    def change_memory(
        self,
        action: str,
        target: str = "memory",
        content: str = "",
        old_text: str = "",
        *,
        session: Session | None = None,
    ) -> dict[str, Any]:
        """Change curated memory as the `memory` tool does; its result. Without a session a person at home asks."""
        who = session or self.local_session
        arguments = {"action": action, "target": target, "content": content, "old_text": old_text}
        given = {name: value for name, value in arguments.items() if value}
        result: dict[str, Any] = json.loads(self.call_tool("memory", given, who))
        return result

    # ------------------------------------------------------------------ report

    def recall(self, text: Content, *, limit: int = 10, session: Session | None = None) -> RecallReport:
        """What a turn with this message would be given, by source, and what searching past sessions finds."""
        began = time.perf_counter()
        text, here = text_of(text), session or self.local_session
        _checked(here)
        self.manager.initialize_all(here)
        query, entries = self._query(text), self.curated.of(here).shown_entries()
        told = SeenTexts(entries)
        results = [RecallHit("memory", True, entry) for entry in entries]
        results += of_providers(told.without_repeats(self.manager.prefetch_all(query, here)), limit)
        if self.config.sessions.search_enabled:
            results += self._read("past sessions", lambda: self._past.found(query, here, limit, told), [])
        tokens = sum(count_tokens(result.text) for result in results if result.injected)
        elapsed = round((time.perf_counter() - began) * 1000, 3)
        return RecallReport(text, tuple(results), tokens, elapsed, (*self.problems(here), *told.left_out))

    def providers(self) -> list[ProviderEntry]:
        """The catalog of what is installed, with this memory's own provider in the state that it is really in."""
        found = discover_providers(
            self.home, control=self._control, active=self._selected, entry_points=self._entry_points
        )
        return [self._observed(entry) for entry in found]

    def problems(self, session: Session | None = None) -> list[str]:
        """What is configured and does not work for who speaks, a sentence each; empty when all is well."""
        found = [str(self._load_error)] if self._load_error else []
        found += self._observer_problems
        found += dict.fromkeys(filter(None, [*self._unread.values(), self.manager.outbox.held_back]))
        if self.sessions.vectors is not None:
            found += filter(None, [self.sessions.vectors.fault])
        found += [str(conflict) for conflict in self.curated.of(session).problems().values()]
        # A damaged state.db is said once: the provider's writes stand in it as well.
        found += [
            problem for problem in self.manager.problems() if not any(earlier in problem for earlier in found)
        ]
        # They reach the person, other programs and models; an error may quote an address with a password.
        return [redact(problem) for problem in found]

    @property
    def outbox_problem(self) -> str:
        """Why the last write is not sent to the provider; "" if it is."""
        return redact(self._unread.get("outbox", ""))

    # --------------------------------------------------------------------- end

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until the provider has taken all writes; False when some stay in the outbox."""
        return self.manager.flush(timeout)

    def close(self, timeout: float = 15.0) -> None:
        """End the sessions of its agents, shut down and close all, at the latest when the program ends; nothing in a fork. What
        was not sent stays in the outbox.
        """
        if self.manager.forked:
            return
        at_exit.unregister(self)
        until = time.monotonic() + timeout
        at_exit.close_users_of(self, until)
        self.at_close.close()
        self.sessions.database.shorten_waits()
        self.manager.shutdown_all(max(until - time.monotonic(), min(timeout, 1.0)))
        self.curated.close()
        with contextlib.suppress(StorageError):
            delete_backup(self.home, self.manager.outbox)
        self.sessions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------- private

    def _enqueue(self, put: Callable[[], object]) -> None:
        """Put a row into the outbox. If it is full, the event is stored without it, and `problems` says so."""
        try:
            put()
        except OutboxError as exc:
            log.error("a write was not accepted for the provider: %s", exc)
            self._unread["outbox"] = f"the last write was not accepted for the provider: {exc}"
        else:
            self._unread.pop("outbox", None)

    def _load(self, name: str) -> None:
        try:
            loaded = load_provider(name, self.home, self._control, self._entry_points)
        except ProviderError as exc:
            self._load_error = exc
        else:
            self.loaded = loaded
            self._hold(loaded.factory, loaded.entry.name, loaded.settings)

    def _hold(self, source: object, name: str, fields: Sequence[Field]) -> None:
        """Hand the provider to the manager, with the notes that a crash kept from it."""
        self._external, account = name, account_of(fields, name, self.home)
        self._taken = self.manager.add_provider(source, name=name, fingerprint=account)
        # Rows of an earlier version that could not be read yet go first.
        if self._taken and not self.manager.outbox.held_back:
            self._read("notes for the provider", self.curated.enqueue_missing, 0)

    def _read(self, what: str, read: Callable[[], Read], without: Read) -> Read:
        """What a database of ours holds, or `without` it where that can't be read, and `problems` says so."""
        try:
            found = read()
        except (OutboxError, StorageError) as exc:
            log.error("%s: %s", what, exc)
            self._unread[what] = str(exc)
            return without
        self._unread.pop(what, None)
        return found

    def _observed(self, entry: ProviderEntry) -> ProviderEntry:
        """A catalog entry that this memory loaded, with the manager's word on how it does."""
        if entry.state == "shadowed" or entry.name not in (self._external, self._selected):
            return entry
        if self._load_error:
            state: ProviderState = (
                "unavailable" if isinstance(self._load_error, ProviderUnavailable) else "failed"
            )
            return entry.failed(self._load_error, state if entry.state == "active" else entry.state)
        warnings = self.loaded.warnings if self.loaded else ()
        for health in self.manager.health():
            if health.name == entry.name:
                if health.state == "idle" and entry.state == "active":  # chosen, and nobody has spoken yet
                    return dataclasses.replace(entry, notes=warnings)
                return dataclasses.replace(entry, state=health.state, reason=health.reason, notes=warnings)
        return entry

    def _query(self, text: str, recent: Sequence[Mapping[str, Any]] = ()) -> Query:
        return Query(text=text, budget=self.config.recall.budget, recent=in_text(recent), now=time.time())
