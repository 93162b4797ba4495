"""The memory of one home: configuration, loader, manager, notes and sessions in one object.

The agent, the command line, the MCP server and other hosts call `open_memory`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, TypeVar, get_args

from hermes_core.config import Config, load_config
from hermes_core.contract.values import (
    AgentContext,
    EndReason,
    Field,
    Message,
    Query,
    Recall,
    RecallItem,
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
from hermes_core.kit.text import is_trivial
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import (
    LoadControl,
    ProviderEntry,
    ProviderState,
    installed_entry_points,
)
from hermes_core.loader.extras import NO_EXTRAS, ProviderExtras
from hermes_core.loader.load import LoadedProvider, declared_settings, load_observers, load_provider
from hermes_core.logs import LogFile
from hermes_core.manager import at_exit
from hermes_core.manager.manager import MemoryManager, RecallResult
from hermes_core.manager.prefetch import CHARS_PER_TOKEN, cut_to_budget
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.fence import build_memory_context_block, inject_memory_context, without_context
from hermes_core.safety.redact import redact, redact_value
from hermes_core.sessions.db import SessionDB
from hermes_core.sessions.lineage import delegated
from hermes_core.sessions.records import (
    SYSTEM_ROLES,
    Content,
    SearchHit,
    epoch_seconds,
    in_text,
    local_time,
    text_of,
)
from hermes_core.sessions.summaries import Summarise
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA, SessionSearchTool
from hermes_core.storage.inventory import Inventory
from hermes_core.upgrade import delete_backup, outbox_of_home

log = logging.getLogger(__name__)

Value = TypeVar("Value")
MessageContent = TypeVar("MessageContent")
Source = Literal["memory", "provider", "sessions"]

SESSIONS_LABEL = "sessions"
"""Label of the recall from past sessions in the fence, if `recall.sessions` is `auto`."""


def open_memory(
    home: str | os.PathLike[str] | HermesHome | None = None,
    *,
    profile: str | None = None,
    provider: object = None,
    deadlines: Mapping[str, float] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Memory:
    """Open the memory of a home. Use the returned object in a `with` block, or call its `close`.

    If the provider can't be loaded, no exception is raised. `Memory.problems()` reports it.

    Args:
        home: Folder of the home; default: HERMES_HOME, else ~/.hermes.
        profile: Name of a profile of that home.
        provider: Used in place of `memory.provider` of config.yaml: a name, "" for no provider, or an object, a
            class or a factory of a provider.
        deadlines: Seconds by hook name. They replace the default deadlines of these hooks.
        clock: Returns seconds. Measures the ages of recall and the pauses before retries.

    Raises:
        ConfigError: config.yaml is not valid.
    """
    resolved = home if isinstance(home, HermesHome) else HermesHome.resolve(home, profile)
    return Memory(resolved, load_config(resolved), provider=provider, deadlines=deadlines, clock=clock)


def known_context(session: Session) -> Session:
    """Return the session. Raise `SessionError` if its `agent_context` is not one of the values of `AgentContext`."""
    if session.agent_context not in (kinds := get_args(AgentContext)):
        raise SessionError(
            f"{session.agent_context!r} is no agent_context: nothing would reach a provider",
            f"use one of {', '.join(kinds)}",
        )
    return session


def account_of(settings: Sequence[Field], name: str, home: HermesHome) -> Callable[[], str]:
    """Return a function that reads the stored settings of a provider and returns the fingerprint of its account.

    Pass this function to `MemoryManager.add_provider` as `fingerprint`.
    """

    def fingerprint() -> str:
        if not any(field.identity for field in settings):
            return ""
        return load_settings(settings, home.path, name).fingerprint

    return fingerprint


class Memory:
    """The memory of one home. It lives as long as the process, and threads, agents and sessions may share it.

    Attributes:
        home: The home of this memory.
        config: The configuration of the home.
        sessions: The store of sessions and turns, which also holds the outbox.
        curated: The store of the notes.
        manager: The manager of the providers.
        inventory: The stores of the home that have held data.
        at_close: Exit stack that `close` unwinds before the stores are closed.
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
        self.inventory = Inventory(home.path)
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
        self._failures: dict[str, str] = {}
        self._load_error: ProviderError | None = None
        self.loaded: LoadedProvider | None = None
        self.manager.add_provider(CuratedProvider(self.curated), builtin=True)
        with ExitStack() as undo:
            undo.callback(self.manager.shutdown_all, 1.0)
            if not isinstance(chosen, str):
                self._add_provider(chosen, self._selected, declared_settings(chosen))
            elif chosen:
                self._load(chosen)
            undo.pop_all()
        self.inventory.record()
        at_exit.register(self)

    @property
    def local_session(self) -> Session:
        """The session that stands for the person at home outside of a conversation. It is not stored."""
        return Session(id=f"local-{self.home.profile}", identity=self.home.profile, home=str(self.home.path))

    @property
    def selected(self) -> str:
        """The name of the external provider that was chosen, even if it could not be loaded; "" for none."""
        return self._selected

    # ---------------------------------------------------------------- sessions

    def session(
        self,
        session_id: str = "",
        *,
        platform: str = "cli",
        user_id: str = "",
        user_name: str = "",
        chat_id: str = "",
        chat_name: str = "",
        chat_type: str = "",
        thread_id: str = "",
        gateway_session_key: str = "",
        parent_id: str = "",
        agent_context: AgentContext = "primary",
        identity: str = "",
        workspace: str = "hermes",
        user_id_alt: str = "",
    ) -> Session:
        """Return a complete `Session` of this home, without storing it.

        Args:
            session_id: Id of the session; default: a new one.
            identity: Name of the profile; default: the profile of this home.
            user_id_alt: Another id of the same user, if the platform has two.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        return known_context(
            Session(
                session_id or uuid.uuid4().hex,
                parent_id,
                platform,
                agent_context,
                identity or self.home.profile,
                workspace,
                user_id,
                user_name,
                chat_id,
                chat_name,
                chat_type,
                thread_id,
                gateway_session_key,
                str(self.home.path),
                user_id_alt,
            )
        )

    def start_session(
        self,
        session_id: str = "",
        *,
        source: str = "",
        title: str = "",
        started_at: float | None = None,
        **identity: Any,
    ) -> Session:
        """Begin a session, or continue a stored one, and start the providers for it.

        Args:
            session_id: Id of the session; default: a new one. If another user has a session with this id, the
                user is appended to the id of the returned session.
            source: Name of the program in which the conversation takes place; default: the platform, or the
                agent_context if no person takes part.
            title: Title of a new session.
            started_at: Start of a new session in seconds since the epoch; default: now.
            identity: Other arguments of `session`, such as platform, user_id, parent_id and agent_context.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        session = self._complete(self.session(session_id, **identity))
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
        self.manager.initialize_all(session)
        return session

    def end_session(self, session: Session, reason: EndReason = "close") -> None:
        """Mark the session as ended, and store its end in the outbox, so that the provider learns from all of it.

        If this is called again without a new message in the session, the provider is not notified again.
        """
        session = self._complete(session)
        with self.sessions.transaction():
            last = self.sessions.last_message_id(session.id)
            if last is not None:
                self._enqueue(partial(self.manager.on_session_end, session, reason, last))
            self.sessions.end_session(session.id, reason)

    def switch_session(self, switch: SessionSwitch) -> None:
        """Continue under another session id.

        The provider is notified after it has got the writes of the old session.
        """
        self._enqueue(partial(self.manager.on_session_switch, switch))

    def rewind(self, session: Session, message_id: int) -> list[str]:
        """Undo the message with this id and all later messages of the session. Return the ids of the rewound turns.

        Rewound turns that were not sent yet never reach the provider. It is asked to forget the others.
        """
        session = self._complete(session)

        def undo() -> list[str]:
            with self.sessions.transaction():
                turns = self.sessions.rewind(session.id, message_id)
                switch = SessionSwitch(
                    uuid.uuid4().hex, session, session, "rewind", rewound_turns=tuple(turns)
                )
                self.manager.on_session_switch(switch)
            return turns

        return self.sessions.with_index(undo)

    def delete_session(self, session_id: str) -> None:
        """Delete a session, the sessions of its subagents, and the pending writes of all these sessions.

        The provider keeps the turns that were delivered to it. It is still asked to forget turns that were rewound
        before.
        """
        if not isinstance(session_id, str):
            raise SessionError(f"a {type(session_id).__name__} is no id", "give session.id")

        def delete() -> None:
            with self.sessions.transaction():
                for deleted in delegated(self.sessions.database, session_id):
                    self.manager.forget_session(deleted)
                self.sessions.delete_session(session_id)

        self.sessions.with_index(delete)

    # -------------------------------------------------------------------- turn

    def system_prompt(self, session: Session) -> str:
        """Return the notes and the provider's block for the system prompt.

        As long as this memory is open, the text is the same for the whole session.
        """
        session = self._complete(session)
        return self.manager.build_system_prompt(session)

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

    def call_tool(self, name: str, arguments: Any, session: Session, call_id: str = "") -> str:
        """Run a tool that the model called, and return the text for the model.

        Errors are returned as text, not raised.

        Providers that have not started yet are started.

        Args:
            name: Name of the tool.
            arguments: The arguments as a dict, or as JSON text.
            call_id: Id that the model gave the call.
        """
        session = self._complete(session)
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        if name == SESSION_SEARCH_SCHEMA["name"]:
            return self._search.call(arguments, session)
        if name == MEMORY_SCHEMA["name"] and not self.curated.enabled_targets:
            return call_memory_tool(None, arguments, session)
        self.manager.initialize_all(session)
        answer = self.manager.handle_tool_call(ToolCall(name, arguments, call_id), session)
        if name == MEMORY_SCHEMA["name"]:
            self.inventory.record()
        return answer

    def begin_turn(
        self, text: Content, session: Session, *, recent: Sequence[Mapping[str, Any]] = ()
    ) -> TurnRecall:
        """Return the recall for the person's message, and notify providers of the turn.

        Call this once at the start of a turn.

        Each provider has to answer before the deadline of `prefetch`.

        Args:
            text: The message: a text, or a list of content parts.
            recent: The last messages before this one, which the providers get with the query.
        """
        session = self._complete(session)
        query = self._query(text_of(text), recent)
        number = self._read("turns so far", lambda: self.sessions.turn_count(session.id), 0) + 1
        recall = self.manager.prefetch_all(query, session, turn_number=number)
        seen = SeenTexts(
            (self.manager.frozen_system_prompt(session), *(message["content"] for message in query.recent))
        )
        recall = seen.without_repeats(recall)
        past = self._read(
            "past sessions", lambda: self._past.for_turn(query, session, seen), Recall()
        ).render()
        contexts = (*recall.contexts, *([(SESSIONS_LABEL, past)] if past else []))
        return TurnRecall(recall, contexts, (*self._faults(session), *seen.left_out))

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
        """Store a completed turn and its outbox row in one commit. A search finds the turn as soon as this returns.

        Args:
            user: The message of the person: a text, or a list of content parts.
            assistant: The answer of the agent.
            messages: All messages of the turn; default: `user` and `assistant`. Injected recall and system messages
                are removed, and `problems` says so.
            turn_id: Id of the turn; default: a new one. A second call with the same id stores nothing.
            at: Time of the turn in seconds since the epoch; default: now.
            warm: True to let providers prepare the recall of the next turn.
            author: Name of the person, if several people speak in the session.

        Raises:
            SessionError: A turn with this id belongs to another session, or was rewound.
            DatabaseUnavailable: The turn could not be stored.
        """
        session = self._complete(session)
        user, assistant, messages = self._without_injected(user, assistant, messages)
        question, answer, author = text_of(user), text_of(assistant), str(author or "")
        both = Message(role="user", content=question), Message(role="assistant", content=answer)
        stored = tuple(messages) or both
        moment = epoch_seconds(at)
        turn = Turn(
            id=str(turn_id or "") or uuid.uuid4().hex,  # a host may give the number of its chat
            number=self.sessions.turn_count(session.id) + 1,
            user=question,
            assistant=answer,
            messages=in_text(stored),
            author=author,
            at=time.time() if moment is None else moment,
        )
        # Before the transaction: redaction takes time, and other writers wait for the lock.
        row = self.manager.turn_row(turn, session)

        def store() -> None:
            with self.sessions.transaction():
                self.sessions.append_turn(session.id, stored, turn.id, turn.number, author=author, at=turn.at)
                self._enqueue(partial(self.manager.put, row, session))

        self.sessions.with_index(store)
        self.inventory.add(self.home.state_db)
        if warm:
            self.manager.queue_prefetch_all(self._query(question, stored), session)
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
        """Change the notes with the `memory` tool, and return its result.

        The default `session` is `local_session`.
        """
        arguments = {"action": action, "target": target, "content": content, "old_text": old_text}
        arguments = {name: value for name, value in arguments.items() if value}
        result: dict[str, Any] = json.loads(
            self.call_tool("memory", arguments, session or self.local_session)
        )
        return result

    # ------------------------------------------------------------------ report

    def recall(self, text: Content, *, limit: int = 10, session: Session | None = None) -> RecallReport:
        """Return a report of the recall that a turn with this message would get, and of a search in past sessions.

        Args:
            limit: Largest number of results from the search, and from each provider.
            session: The session of the message; default: `local_session`.
        """
        began = time.perf_counter()
        text, session = text_of(text), session or self.local_session
        session = self._complete(session)
        self.manager.initialize_all(session)
        query, entries = self._query(text), self.curated.of(session).shown_entries()
        seen = SeenTexts(entries)
        hits = [RecallHit("memory", True, entry) for entry in entries]
        hits += provider_hits(seen.without_repeats(self.manager.prefetch_all(query, session)), limit)
        if self.config.sessions.search_enabled:
            hits += self._read("past sessions", lambda: self._past.hits(query, session, limit, seen), [])
        tokens = sum(count_tokens(hit.text) for hit in hits if hit.injected)
        elapsed = round((time.perf_counter() - began) * 1000, 3)
        return RecallReport(text, tuple(hits), tokens, elapsed, (*self._faults(session), *seen.left_out))

    def providers(self) -> list[ProviderEntry]:
        """Return an entry for each installed provider. The entry of this memory's provider has its current state."""
        entries = discover_providers(
            self.home, control=self._control, active=self._selected, entry_points=self._entry_points
        )
        return [self._with_state(entry) for entry in entries]

    def problems(self, session: Session | None = None) -> list[str]:
        """Return a sentence for each configured part of the memory that does not work.

        Args:
            session: A session of the user whose USER.md is checked; default: the person at home.
        """
        return [*map(redact, self._late_warnings), *self._faults(session)]

    @property
    def extras(self) -> ProviderExtras:
        """What the provider's package brings beside it: skills, chat commands, hooks around tools."""
        return self.loaded.extras if self.loaded else NO_EXTRAS

    @property
    def _late_warnings(self) -> tuple[str, ...]:
        """What the provider has used that has no effect in this host."""
        return self.loaded.late_warnings() if self.loaded else ()

    def _faults(self, session: Session | None) -> list[str]:
        """Return the problems that every turn repeats until they are gone."""
        lost = [str(store) for store in self.inventory.lost()]
        problems = [str(self._load_error)] if self._load_error else []
        problems += lost
        problems += self._observer_problems
        failures = dict.fromkeys(filter(None, [*self._failures.values(), self.manager.outbox.held_back]))
        # A lost state.db is reported once, although everything that reads it fails.
        problems += [failure for failure in failures if not any(store in failure for store in lost)]
        problems += filter(None, [self._read("past sessions", lambda: self.sessions.search_problem, "")])
        if self.sessions.vectors is not None:
            problems += filter(None, [self.sessions.vectors.fault])
        problems += [str(conflict) for conflict in self.curated.of(session).problems().values()]
        # A damaged state.db is reported once, although the provider's writes stand in it as well.
        problems += [
            problem
            for problem in self.manager.problems()
            if not any(earlier in problem for earlier in problems)
        ]
        # They reach the person, other programs and models; an error may quote an address with a password.
        return [redact(problem) for problem in problems]

    @property
    def outbox_problem(self) -> str:
        """A sentence that tells why the last write could not be put into the outbox; "" if it could."""
        return redact(self._failures.get("outbox", ""))

    # --------------------------------------------------------------------- end

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until the provider has taken all writes, at most `timeout` seconds.

        Return False if some stay in the outbox.
        """
        return self.manager.flush(timeout)

    def close(self, timeout: float = 15.0) -> None:
        """Close the agents on this memory, shut the providers down and close the stores, within `timeout` seconds.

        Writes that were not sent stay in the outbox. If this is not called, the memory is closed when the program
        ends.
        """
        if self.manager.forked:  # threads and connections belong to the parent process
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
        self.inventory.record()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----------------------------------------------------------------- private

    def _enqueue(self, put: Callable[[], object]) -> None:
        """Call `put`, which puts a row into the outbox.

        If the outbox refuses the row, go on, and let `outbox_problem` report it.
        """
        try:
            put()
        except OutboxError as exc:
            log.error("a write was not accepted for the provider: %s", exc)
            self._failures["outbox"] = f"the last write was not accepted for the provider: {exc}"
        else:
            self._failures.pop("outbox", None)

    def _load(self, name: str) -> None:
        try:
            loaded = load_provider(name, self.home, self._control, self._entry_points, sessions=self.sessions)
        except ProviderError as exc:
            self._load_error = exc
        else:
            self.loaded = loaded
            self._add_provider(loaded.factory, loaded.entry.name, loaded.settings)

    def _add_provider(self, source: object, name: str, fields: Sequence[Field]) -> None:
        """Add the provider to the manager. Then put changes of the notes into the outbox that a crash left out."""
        self._external, account = name, account_of(fields, name, self.home)
        self._taken = self.manager.add_provider(source, name=name, fingerprint=account)
        if self._taken:
            # A damaged state.db is noticed by the first command, not by the first turn.
            self._read("past sessions", partial(self.manager.outbox.waits, name), False)
        # Rows of an earlier version that could not be read yet go first.
        if self._taken and not self.manager.outbox.held_back:
            self._read("notes for the provider", self.curated.enqueue_missing, 0)

    def _read(self, what: str, read: Callable[[], Value], default: Value) -> Value:
        """Return the result of `read`. If a database can't be read, return `default` and let `problems` report it.

        Args:
            what: Name of the data, for the log.
        """
        try:
            value = read()
        except (OutboxError, StorageError) as exc:
            log.error("%s: %s", what, exc)
            self._failures[what] = str(exc)
            return default
        self._failures.pop(what, None)
        return value

    def _with_state(self, entry: ProviderEntry) -> ProviderEntry:
        """Return a copy of `entry` with its current state if it is this memory's provider, else `entry` itself."""
        if entry.state == "shadowed" or entry.name not in (self._external, self._selected):
            return entry
        if self._load_error:
            state: ProviderState = (
                "unavailable" if isinstance(self._load_error, ProviderUnavailable) else "failed"
            )
            return entry.failed(self._load_error, state if entry.state == "active" else entry.state)
        loading = (*self.loaded.warnings, *self._late_warnings) if self.loaded else ()
        notes = (*entry.notes, *loading)
        for health in self.manager.health():
            if health.name == entry.name:
                if (
                    health.state == "idle" and entry.state == "active"
                ):  # chosen, and no session started it yet
                    return dataclasses.replace(entry, notes=notes)
                return dataclasses.replace(entry, state=health.state, reason=health.reason, notes=notes)
        return entry

    def _complete(self, session: Session) -> Session:
        """Return the session with this home, if the host made it without one, and with an id of this user's own.

        Raises:
            SessionError: `session` is not a `Session` but a session id, for instance.
        """
        if not isinstance(session, Session):
            raise SessionError(
                f"session must be a Session, got {type(session).__name__}", "pass the result of start_session"
            )
        own = self._read("sessions", lambda: self.sessions.id_for(session.id, session.owner), session.id)
        if session.home and session.id == own:
            return session
        return dataclasses.replace(session, id=own, home=session.home or str(self.home.path))

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
        self._failures.pop("turn", None)
        if clean != turn:
            self._failures["turn"] = (
                "the last turn was stored without the recall or system prompt in it: give end_turn the person's own "
                "words and the model's answer, not the copy from inject()"
            )
        return clean

    def _query(self, text: str, recent: Sequence[Mapping[str, Any]] = ()) -> Query:
        clean = [
            without_context(message) for message in in_text(recent) if message["role"] not in SYSTEM_ROLES
        ]
        return Query(
            text=without_context(text),
            budget=self.config.recall.budget,
            recent=in_text(clean),
            now=time.time(),
        )


# ------------------------------------------------------------------ recall


@dataclass(frozen=True, slots=True)
class TurnRecall:
    """The recall for one turn.

    Attributes:
        recall: The results of the providers.
        contexts: (label, text) of each part of the fence.
        problems: A sentence for each part of the memory that did not work, and for each recall that was left out.
    """

    recall: RecallResult
    contexts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = ()

    @property
    def context(self) -> str:
        """The recalled text in the fence; "" if nothing was recalled."""
        return build_memory_context_block(self.contexts)

    def inject(self, content: MessageContent) -> MessageContent:
        """Return a copy of the person's message with the fence after it.

        Use the copy for the request, and do not store it.

        A fence that the person typed is removed from the copy, because only recall may stand in a fence.

        Args:
            content: The message: a text, or a list of content parts.
        """
        own: Any = "" if content is None else without_context(content)
        copy: MessageContent = inject_memory_context(own, self.contexts)
        return copy


class SeenTexts:
    """The texts that the model already sees in this turn. They are not recalled again.

    `left_out` has a sentence for each recall that an observer refused.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.left_out: list[str] = []
        self._texts = [_comparable(text) for text in texts]

    def without_repeats(self, recall: RecallResult) -> RecallResult:
        """Return the recall without items whose text the model already sees.

        Add the remaining texts to the seen ones.
        """
        parts = []
        for part in recall.parts:
            if part.reason and part.state == "active":
                self.left_out.append(f"recall of {part.provider!r} was left out: {part.reason}")
            if part.recall.text.strip():
                self._texts.append(_comparable(part.recall.text))
                parts.append(part)
            else:
                fresh = dataclasses.replace(part.recall, items=self.add_new(part.recall.items))
                parts.append(part._replace(recall=fresh))
        return recall._replace(parts=tuple(parts))

    def add_new(self, items: Iterable[RecallItem]) -> tuple[RecallItem, ...]:
        """Return the items whose text the model does not see yet. Add their texts to the seen ones."""
        new = []
        for item in items:
            text = _comparable(item.text)
            if not any(text in seen for seen in self._texts):
                self._texts.append(text)
                new.append(item)
        return tuple(new)


def _comparable(text: str) -> str:
    # Whole words, however they are spaced.
    return f" {' '.join(text.split())} "


@dataclass(frozen=True, slots=True)
class RecallHit:
    """One line of a recall report.

    `injected` is True if a turn would get this recall without a search by the model.
    """

    source: Source
    injected: bool
    text: str
    session_id: str = ""
    message_id: int | None = None
    ref: str = ""
    speaker: str = ""
    when: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class RecallReport:
    """Report of the recall for a message and of a search in past sessions.

    `tokens` is the number of tokens of the results that a turn would get without a search.
    """

    query: str
    results: tuple[RecallHit, ...]
    tokens: int
    elapsed_ms: float
    problems: tuple[str, ...] = ()


def provider_hits(recall: RecallResult, limit: int) -> list[RecallHit]:
    """Return the recall of the providers as lines of a report, at most `limit` lines for each provider."""
    hits: list[RecallHit] = []
    for part in recall.parts:
        if part.recall.items:
            hits += [_hit("provider", True, item) for item in part.recall.items[:limit]]
        elif part.recall:
            hits.append(RecallHit("provider", True, part.recall.render()))
    return hits


def _hit(source: Source, injected: bool, item: RecallItem) -> RecallHit:
    return RecallHit(
        source,
        injected,
        item.text,
        item.session_id,
        item.message_id,
        item.ref,
        item.speaker,
        item.when,
        item.score,
    )


class PastSessions:
    """Recall from past sessions, for turns (if `recall.sessions` is `auto`) and for recall reports."""

    def __init__(self, sessions: SessionDB, config: Config) -> None:
        self._sessions = sessions
        self._in_each_turn = config.recall.sessions == "auto" and config.sessions.search_enabled

    def for_turn(self, query: Query, session: Session, seen: SeenTexts) -> Recall:
        """Return the recall from past sessions for a turn; an empty one if `recall.sessions` is not `auto`.

        If all messages of persons' past sessions fit into the budget of the query, return all. Otherwise return those
        that a search finds for the query.
        """
        if not self._in_each_turn or is_trivial(query.text):
            return Recall()
        user, lineage = session.owner or None, tuple(self._sessions.lineage(session.id))
        hits = self._sessions.everything(query.budget * CHARS_PER_TOKEN, user=user, exclude_sessions=lineage)
        if hits is None:
            from hermes_core.recall.rank import MAX_PROACTIVE_HITS  # only a search needs the ranking

            hits = self._sessions.search(
                query.text,
                exclude_sessions=lineage,
                user=user,
                limit=MAX_PROACTIVE_HITS,
                proactive=True,
                distinct=True,
            )
        return cut_to_budget(Recall(seen.add_new(map(_item, hits))), query.budget)

    def hits(self, query: Query, session: Session, limit: int, seen: SeenTexts) -> list[RecallHit]:
        """Return lines of a report: the results of a search, and the messages that a turn would get without a search."""
        found = self._sessions.search(query.text, limit=limit, user=session.owner or None)
        injected = {item.message_id: item for item in self.for_turn(query, session, seen).items}
        hits = [
            _hit("sessions", hit.message_id in injected, injected.pop(hit.message_id, _item(hit)))
            for hit in found
        ]
        return hits + [_hit("sessions", True, item) for item in injected.values()]


def _item(hit: SearchHit) -> RecallItem:
    """Return the message of a search hit as an item of recall."""
    day = local_time(hit.timestamp)
    return RecallItem(
        text=hit.excerpt,
        score=round(hit.score, 4),
        session_id=hit.session_id,
        message_id=hit.message_id,
        ref=hit.ref,
        speaker=hit.speaker or hit.role,
        when=f"{day.day} {day:%B %Y}" if day else "",
    )
