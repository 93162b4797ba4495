"""The memory of one home: configuration, loader, manager, notes and sessions in one object.

The agent, the command line, the MCP server and other hosts call `open_memory`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import socket
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack, get_args

from hermes_core.config import Config, load_config, override_config
from hermes_core.config.keys import COMPOSITE, TRUSTED_TOOLS, RecallConfig, TelemetryConfig
from hermes_core.config.profile import ProfileField, parse_profile_fields
from hermes_core.contract.values import (
    AgentContext,
    EndReason,
    Field,
    Message,
    Origin,
    Query,
    Recall,
    Session,
    SessionFields,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.curated.project import Repository, repository_of
from hermes_core.curated.store import DataNote, MemoryStore
from hermes_core.curated.tool import MEMORY_SCHEMA, CuratedProvider, call_memory_tool
from hermes_core.errors import (
    ConfigError,
    MemoryConflict,
    OutboxError,
    ProviderError,
    ProviderUnavailable,
    SessionError,
    StorageError,
)
from hermes_core.home import HermesHome, expanded
from hermes_core.kit.settings import load_settings
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import ProviderEntry, ProviderState
from hermes_core.loader.entry_points import LoadControl, installed_entry_points
from hermes_core.loader.extensions import Extensions, extension_remedy, load_extensions, unmet_keys
from hermes_core.loader.extras import NO_EXTRAS, CombinedExtras, ProviderExtras
from hermes_core.loader.load import LoadedProvider, declared_settings, load_observers, load_provider
from hermes_core.loader.parts import HomeParts
from hermes_core.logs import LogFile
from hermes_core.manager import at_exit
from hermes_core.manager.composite import ALL_KINDS, WriteKind, routes_of
from hermes_core.manager.manager import MemoryManager, RecallResult
from hermes_core.outbox.recovery import outbox_of_home
from hermes_core.outbox.rows import NewRow, with_turn_number
from hermes_core.recall.amounts import result_count
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.fence import without_context
from hermes_core.safety.origin import (
    RANKS,
    Reading,
    current_reading,
    in_scope,
    lowest,
    may_command,
    report_result,
)
from hermes_core.safety.redact import redact
from hermes_core.safety.scrubber import StreamingContextScrubber
from hermes_core.sessions.db import as_conversation
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.lineage import delegated
from hermes_core.sessions.open_turns import HostState, OpenTurnStore, StoredOpenTurn
from hermes_core.sessions.records import (
    SYSTEM_ROLES,
    AppendedTurn,
    Content,
    StoredMessage,
    TurnStart,
    epoch_seconds,
    in_text,
    sqlite_text,
    text_of,
)
from hermes_core.sessions.summaries import Summarise
from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA, SessionSearchTool
from hermes_core.sessions.turn_records import TurnRecord, record_statements
from hermes_core.storage.engine import Engine, Statement
from hermes_core.storage.inventory import Inventory
from hermes_core.storage.verdicts import Verdicts
from hermes_core.tracing import Telemetry, traced
from hermes_core.turn_recall import (
    NOTES_LABEL,
    UPDATES_LABEL,
    NoteUpdates,
    PastSessions,
    PendingTurn,
    RecallHit,
    RecallReport,
    SeenTexts,
    TurnRecall,
    provider_hits,
    recall_record,
    render_notes,
    render_updates,
)

log = logging.getLogger(__name__)

Value = TypeVar("Value")
Name = TypeVar("Name")
MessageContent = TypeVar("MessageContent")
Source = Literal["memory", "provider", "sessions"]

# The form in which a model's API takes the schemas of tools.
ToolForm = Literal["openai", "anthropic", "mcp", "plain"]

# Begun turns, and results of tools, of which the origin is known until they are stored.
MAX_REMEMBERED = 4096

# Types of content parts that hold the result of a tool.
RESULT_PARTS = ("tool_result", "function_call_output")

# Authors of turns that are programs in a chat.
PROGRAM_AUTHORS = ("bot:", "plugin:")

# Messages before the person's message that providers get with the query.
RECENT_MESSAGES = 6

SECONDS_PER_HOUR = 3600.0

# Seconds between two looks for conversations that are older than `sessions.retention`, and how many are deleted at a time:
# a session waits for it at its start, some milliseconds for each.
PRUNE_INTERVAL_S = 3600.0
MAX_PRUNED = 50

# Key in `state_meta`: "1" if users' prompts may hold the notes of the home, because `memory.per_user` was off.
SHARED_NOTES_KEY = "shared_notes"

SESSIONS_LABEL = "sessions"

# Hermes Agent waits this long for the recall of an external provider, and providers are written for it.
PUBLISHED_RECALL_S = 8.0
"""Label of the recall from past sessions in the fence."""


def open_memory(
    home: str | os.PathLike[str] | HermesHome | None = None,
    *,
    profile: str | None = None,
    config: Mapping[str, Any] | None = None,
    provider: object = None,
    observers: Sequence[object] = (),
    deadlines: Mapping[str, float] | None = None,
    telemetry: Telemetry | bool | None = None,
    folder: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Memory:
    """Open the memory of a home. Use the returned object in a `with` block, or call its `close`.

    If the provider can't be loaded, no exception is raised. `Memory.problems()` reports it.

    Args:
        home: Folder of the home; default: HERMES_HOME, else ~/.hermes.
        profile: Name of a profile of that home.
        config: Keys as in config.yaml, such as {"recall": {"budget": 800}}. They replace those of the file.
        provider: Used in place of `memory.provider` of config.yaml: a name, "" for no provider, or an object, a
            class or a factory of a provider.
        observers: Objects with observer hooks, beside those that are installed.
        deadlines: Seconds by hook name. They replace the default deadlines of these hooks.
        telemetry: True or a `Telemetry` of the extension `telemetry` to make OpenTelemetry spans and metrics, False
            to make none; default: `telemetry.enabled` of config.yaml.
        folder: The working folder, of whose repository PROJECT.md keeps notes if `memory.project` is `auto`; default:
            the current folder.
        clock: Returns seconds. Measures the ages of recall and the pauses before retries.

    Raises:
        ConfigError: config.yaml or `config` is not valid.
        ProviderError: An observer has no observer hook, or one that can't be called.
    """
    resolved = home if isinstance(home, HermesHome) else HermesHome.resolve(home, profile)
    return Memory(
        resolved,
        override_config(load_config(resolved), config or {}),
        provider=provider,
        observers=observers,
        deadlines=deadlines,
        telemetry=telemetry,
        folder=folder,
        clock=clock,
    )


def known_context(session: Session) -> Session:
    """Return the session. Raise `SessionError` if its `agent_context` is not one of the values of `AgentContext`."""
    if session.agent_context not in (kinds := get_args(AgentContext)):
        raise SessionError(
            f"{session.agent_context!r} is no agent_context: nothing would reach a provider",
            f"use one of {', '.join(kinds)}",
        )
    return session


def _configured_deadlines(config: Config) -> dict[str, float]:
    """Return the deadlines that the configuration sets. A default leaves it to the kind of the provider."""
    deadline = config.recall.deadline
    if "recall.deadline" in config.configured or deadline != RecallConfig().deadline:
        return {"prefetch": deadline}
    return {}


def _repository(config: Config, folder: str | os.PathLike[str] | None) -> Repository | None:
    """Return the repository of the working folder if the config wants notes on it."""
    return None if config.memory.project == "off" else repository_of(Path(folder or "."))


def _profile_fields(config: Config) -> tuple[ProfileField, ...]:
    try:
        return parse_profile_fields(config.memory.profile_fields)
    except ValueError as exc:
        raise ConfigError(f"memory.profile_fields: {exc}", "correct it in config.yaml") from exc


def account_of(settings: Sequence[Field], name: str, home: HermesHome) -> Callable[[], str]:
    """Return a function that reads the stored settings of a provider and returns the fingerprint of its account.

    Pass this function to `MemoryManager.add_provider` as `fingerprint`.
    """

    def fingerprint() -> str:
        if not any(field.identity for field in settings):
            return ""
        return load_settings(settings, home.path, name).fingerprint

    return fingerprint


def _telemetry_of(
    choice: Telemetry | bool | None, config: TelemetryConfig, extensions: Extensions
) -> tuple[Telemetry | None, ConfigError | None]:
    """Return the telemetry of a memory, None if it is off, and an error if it can't be had."""
    if choice is None:
        choice = config.enabled
    if not isinstance(choice, bool):
        return choice, None
    if not choice:
        return None, None
    made = (made for _, made in extensions.call("make_tracer", config=config))
    telemetry = next((one for one in made if hasattr(one, "tracer_of")), None)
    if telemetry is None:
        remedy = f"{extension_remedy(extensions, 'telemetry')}, or set telemetry.enabled to false"
        return None, ConfigError("telemetry is on, and no extension makes it", remedy)
    return telemetry, None


def _local_refusal(config: Config) -> str:
    """Return why a provider that keeps files of its own can't be used on this machine; "" if it can."""
    storage, machine = config.storage, socket.gethostname()
    if not storage.url or storage.local_host == machine:
        return ""
    pinned = (
        f"it runs on {storage.local_host!r} only"
        if storage.local_host
        else "other machines would not have them"
    )
    return (
        f"it keeps files on this machine ({machine!r}), and the sessions are on a server that several machines share: "
        f"{pinned}; set storage.local_host in config.yaml to the one machine that uses it, or choose another provider"
    )


class Memory:
    """The memory of one home. It lives as long as the process, and threads, agents and sessions may share it.

    Attributes:
        home: The home of this memory.
        config: The configuration of the home.
        extensions: The extensions that the configuration lets in.
        parts: The parts of the home that extensions keep, such as skills.
        sessions: The store of sessions and turns, which also holds the outbox.
        curated: The store of the notes.
        manager: The manager of the providers.
        inventory: The stores of the home that have held data.
        at_session_start: Functions that `continue_session` calls, of extensions. They must return at once.
        extension_problems: Sentences of extensions for `problems`, by any name; "" for none.
        at_close: Exit stack that `close` unwinds before the stores are closed.
        tracer: The spans and metrics of this memory; None if telemetry is off.
        telemetry_problem: Error that says why telemetry is on and can't work; None if it works or is off.
    """

    def __init__(
        self,
        home: HermesHome,
        config: Config,
        *,
        provider: object = None,
        observers: Sequence[object] = (),
        deadlines: Mapping[str, float] | None = None,
        telemetry: Telemetry | bool | None = None,
        folder: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.home, self.config, self.at_close = home, config, ExitStack()
        self.at_session_start: list[Callable[[], object]] = []
        self.extension_problems: dict[str, str] = {}
        self.inventory = Inventory(home.path)
        self._verdicts = Verdicts(home)
        # Scanning the installed packages takes longer than all else here, so it is done once.
        self._entry_points = list(installed_entry_points())
        self.extensions = load_extensions(config, self._entry_points)
        self.parts = HomeParts(home, config, self.extensions)
        self.sessions = open_sessions(
            home,
            config,
            extensions=self.extensions,
        )
        chosen = config.memory.provider if provider is None else provider
        self._selected = chosen if isinstance(chosen, str) else str(getattr(chosen, "name", ""))
        self._load_errors: dict[str, ProviderError] = {}
        self._members = self._routes()
        self._control = LoadControl.of(config.providers)
        installed, self._observer_problems = load_observers(
            self._control, self._entry_points, MemoryManager.vet_observer
        )
        source, self.telemetry_problem = _telemetry_of(telemetry, config.telemetry, self.extensions)
        self.tracer = None if source is None else source.tracer_of(home.profile, lambda: self._external)
        self.manager = MemoryManager(
            home,
            deadlines={**_configured_deadlines(config), **(deadlines or {})},
            clock=clock,
            outbox=outbox_of_home(home, self.sessions.database),
            selected=self._members,
            transcripts=self.sessions.transcript,
            observers=[*observers, *installed, *(self.tracer.observers if self.tracer else ())],
            on_event=LogFile(home).on_event,
            tracer=self.tracer,
            refuse_local=_local_refusal(config),
        )
        self.curated = MemoryStore(
            home,
            memory_char_limit=config.memory.memory_char_limit,
            user_char_limit=config.memory.user_char_limit,
            memory_enabled=config.memory.memory_enabled,
            user_profile_enabled=config.memory.user_profile_enabled,
            per_user=config.memory.per_user,
            shared_base=self.shared_base,
            trust=config.memory.trust,
            accepted_origins=config.memory.accepted_origins,
            profile_fields=_profile_fields(config),
            project=_repository(config, folder),
            project_char_limit=config.memory.project_char_limit,
            filter_write=self.manager.filter_write,
            suppresses=self.manager.suppresses_local_writes,
            on_write=self.manager.on_memory_write,
            provider=lambda: self._external if self._taken else self._selected,
            database=self.shared_database,
            in_files=self.shared_database is None,
            mirror=config.memory.mirror,
        )
        self._updates = NoteUpdates()
        self._past = PastSessions(self.sessions, config, self.manager.filter_recall)
        self._search = SessionSearchTool(self.sessions if config.sessions.search_enabled else None)
        self._external = ""
        self._taken = False
        self._failures: dict[str, str] = (
            {"telemetry": str(self.telemetry_problem)} if self.telemetry_problem else {}
        )
        self._owners = frozenset(config.identity.owners)
        self._adopted: set[str] = set()  # owners whose earlier sessions are the home's now
        self._warned = False
        self._pruned_at = 0.0
        self.loaded: dict[str, LoadedProvider] = {}
        # What hosts without open turns have begun, and what tools answered, by session: neither is stored yet.
        self._begun: OrderedDict[str, BegunTurn] = OrderedDict()
        # Seconds between the clock of a session and that of the machine.
        self._clock_offsets: OrderedDict[str, float] = OrderedDict()
        self._results: OrderedDict[tuple[str, str], Origin] = OrderedDict()
        self._returned: OrderedDict[str, Origin] = OrderedDict()
        self.manager.add_provider(CuratedProvider(self.curated, self.reading_of), builtin=True)
        if self.tracer is not None:
            self.tracer.watch(self.manager)
        with ExitStack() as undo:
            undo.callback(self.manager.shutdown_all, 1.0)
            if not isinstance(chosen, str):
                self._add_provider(chosen, self._selected, declared_settings(chosen))
            for name in self._members if isinstance(chosen, str) else ():
                self._load(name)
            # Changes of the notes that a crash left out; rows of `outbox.db` that can't be read yet go first.
            if self._taken and not self.manager.outbox.held_back:
                self._read("notes for the provider", self.curated.enqueue_missing, 0)
            undo.pop_all()
        self.inventory.record()
        self.parts.record()
        at_exit.register(self)
        self.extensions.notify("on_home_opened", memory=self)

    @property
    def local_session(self) -> Session:
        """The session that stands for the person at home outside of a conversation. It is not stored."""
        return Session(id=f"local-{self.home.profile}", identity=self.home.profile, home=str(self.home.path))

    @property
    def selected(self) -> str:
        """The name of the external provider that was chosen, even if it could not be loaded; "" for none."""
        return self._selected

    @property
    def selected_providers(self) -> tuple[str, ...]:
        """The names of the external providers that were chosen: none, one, or the members of the composite."""
        return tuple(self._members)

    @property
    def shared_database(self) -> Engine | None:
        """The database of `storage.url`, in which the notes are as well; None for a home with files."""
        return self.sessions.database if self.config.storage.url else None

    @property
    def shared_base(self) -> Path | None:
        """Path of `memory.shared_base`; None if it is not set."""
        name = self.config.memory.shared_base
        return self.home.path / expanded(name) if name else None

    # ---------------------------------------------------------------- sessions

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
        return self._with_owner(known_context(session))

    def complete(self, session: Session) -> Session:
        """Return a session that the host made, as all methods use it: with this home, its owner, and an id of its own.

        This is the only place that decides whether a session is of the person at home. Call it before a session is
        passed to `curated` or `manager`; methods of `Memory` do it themselves.

        Raises:
            SessionError: `session` is not a `Session` but a session id, for instance.
        """
        session = self._with_owner(session)
        own = self._read("sessions", lambda: self.sessions.id_for(session.id, session.owner), session.id)
        return self._with_id(session, own)

    def _with_id(self, session: Session, own: str) -> Session:
        """Return the session with the id under which it is stored, and with this home."""
        if session.home and session.id == own:
            return session
        return dataclasses.replace(session, id=own, home=session.home or str(self.home.path))

    def _with_owner(self, session: Session) -> Session:
        """Return the session with `is_owner`, whatever the host wrote there."""
        if not isinstance(session, Session):
            raise SessionError(
                f"session must be a Session, got {type(session).__name__}", "pass the result of start_session"
            )
        outside = session.outside_id
        is_owner = outside in self._owners
        if is_owner and outside not in self._adopted:
            # What this person stored before config.yaml listed the id.
            self._read("sessions of an owner", lambda: self.sessions.give_to_home(outside), 0)
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
        if started_at is not None and self.sessions.get_session(chosen.id) is None:
            self._set_clock(chosen, epoch_seconds(started_at))

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

    def read_turn_start(
        self, session: Session, *, title: str, recent: int, expired_before: float
    ) -> tuple[Session, TurnStart | None]:
        """Return the session with its owner, and what a turn needs of it; None if something of it must be stored first.

        All of it is one round trip, with the notes and what waits for the providers if the caller is within `reading`.

        Args:
            title: Title that the session must have; "" for any.
            recent: Number of latest messages to read.
            expired_before: Time in epoch seconds before which an unfinished turn has expired.
        """
        session = self._with_owner(session)
        fields = {
            "identity": session.id,
            "parent_id": session.parent_id,
            "relation": session.parent_id if session.agent_context == "subagent" else "",
            "title": title,
        }
        try:
            start = self.sessions.established_session(
                session.id,
                session.owner,
                fields,
                recent=recent,
                expired_before=expired_before,
                meta_key=SHARED_NOTES_KEY,
            )
        except StorageError:  # each of the reads of its own reports what can't be read
            return session, None
        if start is None or (session.owner and (start.meta == "1") == self.config.memory.per_user):
            return session, None
        return self._with_id(session, session.id), start

    @contextlib.contextmanager
    def reading(self, session: Session) -> Iterator[None]:
        """Look at the notes of a session, and at what waits for the providers, at most once within the block.

        That is so on a server only; files are read each time.
        """
        with self.curated.of(session).reading(), self.manager.reading():
            yield

    def conversation(
        self, session_id: str = "", *, source: str = "", title: str = "", **fields: Unpack[SessionFields]
    ) -> Conversation:
        """Return a handle on a conversation, which begins and finishes its turns. Nothing is stored before the first turn.

        Args:
            session_id: Id of the session; default: a new one. With the id of a stored session of this user, the
                conversation goes on.
            source: Name of the program in which the conversation takes place; default: the platform.
            title: Title of a new session.
            fields: Fields of `Session`, as in `session`.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        session = self.session(session_id, **fields)
        return Conversation(self, self.complete(session), source=source, title=title)

    def commit_session(self, session: Session) -> None:
        """Let the provider learn from the session so far, as at its end. The session stays open.

        If this is called again without a new message in the session, the provider is not notified again.
        """
        session = self.complete(session)
        with self.sessions.transaction():
            last = self.sessions.last_message_id(session.id)
            if last is not None:
                self._enqueue(partial(self.manager.on_session_end, session, "cadence", last))

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
        for stored in self.sessions.idle_sessions(before, sources):
            data = self.sessions.session_identity(stored.id)
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
                self._enqueue(partial(self.manager.on_session_end, session, reason, last))
            self.sessions.end_session(session.id, reason)

    def switch_session(self, switch: SessionSwitch) -> None:
        """Continue under another session id.

        The provider is notified after it has got the writes of the old session.
        """
        self._enqueue(partial(self.manager.on_session_switch, switch))

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
                for deleted in delegated(self.sessions.database, session_id):
                    self.manager.forget_session(deleted)
                self.sessions.delete_session(session_id)

        self.sessions.with_index(delete)

    # -------------------------------------------------------------------- turn

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

    def is_outdated(self, session: Session, prompt: str) -> bool:
        """Return True if a stored prompt of a session has to be built anew.

        The origin of a note in it was lowered, it holds notes on another repository than that of the working folder, or it
        was built while notes on a server could not be read. What the model wrote so far may follow a note of low origin,
        so that the session counts as having read it.
        """
        notes = self.curated.of(session)
        origin = notes.outdated_origin(prompt)
        if origin is not None:
            self.note_read(session, origin)
        return origin is not None or notes.is_of_another_project(prompt) or notes.is_renewable(prompt)

    def frozen_prompt(self, session: Session, start: TurnStart | None = None) -> str:
        """Return the text of `system_prompt` as it was when the session began, also in another process.

        The first call for a stored session stores the text. A text with a note that may not stand in a system prompt any
        more is replaced.

        Args:
            start: What `read_turn_start` returned for this turn; None to read it.
        """
        if start is None:
            session = self.complete(session)
            stored = self.sessions.memory_prompt(session.id)
        else:
            stored = start.prompt
        prompt = stored
        if prompt is None or self.is_outdated(session, prompt):
            # A framework may ask for the prompt before the first turn; the provider's block must stand in it.
            self.manager.initialize_all(session)
            prompt = self.system_prompt(session)
            if self.sessions.get_session(session.id) is not None:
                prompt = self.sessions.freeze_memory_prompt(session.id, prompt, replaces=stored)
        return self.manager.freeze_system_prompt(session, prompt)

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
        session = self.complete(session)
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        reading = current_reading() or self.reading_of(session)
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
        if name == MEMORY_SCHEMA["name"]:
            self.inventory.record_after(self.curated.of(session).store_files)
        self.remember_result(session, answer, reading.result)
        # The model reads it before the host shows the result with the turn.
        returned = lowest([self._returned.get(session.id, "person"), reading.result])
        _remember(self._returned, session.id, returned)
        reading.result = lowest([reading.result, *([] if earlier is None else [earlier])])
        return answer

    def remember_result(self, session: Session, text: str, origin: Origin) -> None:
        """Remember the origin of a tool's result, which the host adds to the turn later."""
        _remember(self._results, (session.id, _digest(text)), origin)

    def note_read(self, session: Session, origin: Origin) -> None:
        """Note that the model of a session may have read a text of this origin, which no message of the turn shows."""
        report_result([origin])
        if may_command(origin):
            return
        begun = self._begun.get(session.id, BegunTurn("", at=time.time()))
        _remember(self._begun, session.id, dataclasses.replace(begun, origin=lowest([origin, begun.origin])))

    def reading_of(self, session: Session) -> Reading:
        """Return what the model has read in a session, as far as this memory knows: stored messages, unfinished turns, recall.

        A host whose model reads other texts before it calls a tool adds them with `OpenTurn.add`.
        """
        session = self.complete(session)
        stored = self._read("origins", lambda: self.sessions.lowest_origin(session.id), "import")
        origins: list[str] = [author_origin(session), stored, self._returned.get(session.id, "person")]
        said: list[str] = []
        if begun := self._begun.get(session.id):
            said += [begun.text] if is_said(begun.speaker) else []
            origins += [begun.origin, begun.speaker]
        for turn in self._read(
            "open turns", lambda: OpenTurnStore(self.sessions).open_in(session.id), list[StoredOpenTurn]()
        ):
            speaker = author_origin(session, turn.author)
            read = lowest([turn.origin, stored])
            messages = self._with_origins(session, [turn.user, *turn.messages], speaker, read)
            origins += [turn.origin, *(message["origin"] for message in messages)]
            said += [
                text_of(m.get("content")) for m in messages if m["role"] == "user" and is_said(m["origin"])
            ]

        def all_said() -> list[str]:
            history = self._read(
                "messages", lambda: self.sessions.get_messages(session.id), list[StoredMessage]()
            )
            return [*said, *(m.content for m in history if m.role == "user" and is_said(m.origin))]

        return Reading(lowest(origins), all_said)

    def _with_origins(
        self, session: Session, messages: Sequence[Mapping[str, Any]], speaker: Origin, read: Origin
    ) -> list[dict[str, Any]]:
        """Return messages with the origin of each: what a model writes has the lowest of what it had read before.

        The "origin" of a message that the host gives may lower its origin, and not raise it.

        Args:
            speaker: Origin of messages of the role "user".
            read: The lowest origin of what the model had read before these messages.
        """
        names = {
            call.get("id"): (call.get("function") or call).get("name")
            for message in messages
            for call in message.get("tool_calls") or ()
            if isinstance(call, Mapping)
        }
        labelled = []
        for message in messages:
            if message["role"] == "user" and not _holds_results(message):
                origin = speaker
            elif message["role"] != "assistant":
                name = (
                    message.get("name") or message.get("tool_name") or names.get(message.get("tool_call_id"))
                )
                origin = self.result_origin(session, str(name or ""), text_of(message.get("content")))
            else:
                origin = "assistant" if may_command(read) else read
            named = str(message.get("origin") or "")
            origin = lowest([named, origin]) if named in RANKS else origin
            read = lowest([read, origin])
            labelled.append({**message, "origin": origin})
        return labelled

    def _lower_notes(self, session: Session, messages: Sequence[Mapping[str, Any]], begun: BegunTurn) -> None:
        """Lower the origin of notes of a turn if the model had read more before it wrote them than was known then."""
        calls = [place for place, message in enumerate(messages) if _calls_memory(message)]
        before = messages[: calls[-1]] if calls else ()
        origin = in_scope(lowest(message["origin"] for message in before), session.owner)
        if may_command(origin):
            return
        said = [text_of(m.get("content")) for m in before if m["role"] == "user" and is_said(m["origin"])]
        notes = self.curated.of(session)
        self._read(
            "origins of notes", lambda: notes.lower(session, begun.at, Reading(origin, lambda: said)), None
        )

    def result_origin(self, session: Session, name: str, text: str) -> Origin:
        """Return the origin of the result `text` of the tool `name` in a session."""
        if (known := self._results.get((session.id, _digest(text)))) is not None:
            return known
        trusted = name in self.config.memory.trusted_tools and name not in TRUSTED_TOOLS
        return "assistant" if trusted else "tool"

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
        start: TurnStart | None = None,
    ) -> PendingTurn:
        """Begin a turn as `begin_turn` does, and do not wait for the recall of the providers.

        Args:
            begins_turn: False to ask for recall alone, without a turn of which the providers are notified.
            at: Time of the message in seconds since the epoch; default: now.
            start: What `read_turn_start` returned for this turn; None to read it.
        """
        session, at = self._with_owner(session), epoch_seconds(at)
        if start is not None:
            last_number, lineage = start.last_number, start.lineage
        else:
            # In one round trip, because a server may be far away.
            own, last_number, lineage = self._read(
                "turns so far",
                lambda: self.sessions.id_number_and_lineage(session.id, session.owner),
                (session.id, 0, frozenset([session.id])),
            )
            session = self._with_id(session, own)
        if begins_turn:
            self._set_clock(session, at)
        speaker = message_origin(session, author, origin)
        query = self._query(text_of(text), recent, self._now(session) if at is None else at)
        number = last_number + 1 if begins_turn else None
        pending = self.manager.ask_recall(query, session, turn_number=number, author=author)
        return PendingTurn(
            query,
            session,
            pending,
            is_first=not last_number,
            at=time.time(),
            speaker=speaker,
            lineage=lineage,
        )

    @traced
    def collect_recall(self, pending: PendingTurn) -> TurnRecall:
        """Wait for the recall that `ask_recall` asked for, at most until the deadline, and return it."""
        with self.curated.of(pending.session).reading():
            return self._collect_recall(pending)

    def _collect_recall(self, pending: PendingTurn) -> TurnRecall:
        query, session = pending.query, pending.session
        recall = self.manager.collect_recall(pending.recall)
        seen = SeenTexts(
            (self.manager.frozen_system_prompt(session), *(message["content"] for message in query.recent))
        )
        notes, updates, given = self._notes_of_turn(pending)
        seen.add(note.entry for note in notes)
        answered, recall = recall, seen.without_repeats(recall)
        past = self._read(
            "past sessions", lambda: self._past.for_turn(query, session, seen, pending.lineage), Recall()
        )
        parts = [
            (NOTES_LABEL, render_notes(notes)),
            (UPDATES_LABEL, updates),
            *recall.contexts,
            (SESSIONS_LABEL, past.render()),
        ]
        origin = lowest(
            [
                *(note.origin.origin for note in notes),
                *(["provider"] if recall.contexts else []),
                *(item.origin for item in past.items),
            ]
        )
        record = recall_record(
            self.manager.frozen_system_prompt(session), answered, recall, notes, past, seen.left_out
        )
        begun = BegunTurn(query.text, origin, pending.at, pending.speaker, record, given)
        if earlier := self._begun.get(session.id):  # two turns at once, or one that nobody finished
            begun = dataclasses.replace(begun, origin=lowest([origin, earlier.origin]), at=earlier.at)
        _remember(self._begun, session.id, begun)
        # In the first turn of a session only: it looks through the home, or asks a server.
        sharing = self._sharing_problems(session) if pending.is_first else []
        problems = (*self._faults(session), *sharing, *seen.left_out)
        return TurnRecall(recall, tuple(part for part in parts if part[1]), problems, begun.origin)

    def _notes_of_turn(self, pending: PendingTurn) -> tuple[list[DataNote], str, frozenset[str]]:
        """Return the notes that a turn gets as data, the changes that its frozen prompt does not show, and all their texts."""
        session, notes = pending.session, self.curated.of(pending.session)
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

    def _prompt_of(self, session: Session) -> str | None:
        """Return the frozen prompt of a session, of this process or as it is stored; None if there is none."""
        if self.manager.has_frozen_prompt(session):
            return self.manager.frozen_system_prompt(session)
        stored = self._read("prompts", lambda: self.sessions.memory_prompt(session.id), None)
        if stored is not None:
            return stored
        return self._read("prompts", lambda: self.sessions.system_prompt(session.id), "") or None

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
        warm: bool = True,
        author: str = "",
        origin: Origin | None = None,
        recalled_origin: Origin = "person",
        facts: tuple[str, int, Origin] | None = None,
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
            origin: Origin of the message, if no person of the session wrote it; default: as `begin_turn` got it.
            recalled_origin: The lowest origin of the turn's recall, if another process began the turn.
            facts: Result of `SessionDB.id_number_and_origin` for this turn; None to read it.

        Raises:
            SessionError: A turn with this id belongs to another session, or was rewound.
            DatabaseUnavailable: The turn could not be stored.
        """
        session = self._with_owner(session)
        own, last_number, stored_origin = facts or self.sessions.id_number_and_origin(
            session.id, session.owner
        )
        session = self._with_id(session, own)
        user, assistant, messages = self._without_injected(user, assistant, messages)
        question, answer, author = text_of(user), text_of(assistant), str(author or "")
        both = Message(role="user", content=question), Message(role="assistant", content=answer)
        speaker = message_origin(session, author, origin)
        begun = self._begun.get(session.id, BegunTurn(question, speaker=speaker))
        speaker = lowest([speaker, begun.speaker])
        read = lowest([begun.origin, recalled_origin, stored_origin])
        stored = self._with_origins(session, tuple(messages) or both, speaker, read)
        self._lower_notes(session, stored, begun)
        moment = epoch_seconds(at)
        self._set_clock(session, moment)
        turn = Turn(
            # A host may give the number of its chat, or half a surrogate pair, which SQLite does not take.
            id=sqlite_text(str(turn_id or "")) or uuid.uuid4().hex,
            number=last_number + 1,
            user=question,
            assistant=answer,
            messages=in_text(_for_provider(message, session.owner) for message in stored),
            author=author,
            at=time.time() if moment is None else moment,
            origin=in_scope(lowest(message["origin"] for message in stored), session.owner),
        )
        turn = self._store_turn(session, turn, stored, begun.record)
        for message in stored:  # now they are stored with their origins
            self._results.pop((session.id, _digest(text_of(message.get("content")))), None)
        self._updates.remember(session, begun.updates)
        self.forget_begun(session)  # a turn that could not be stored may be stored by another call
        if self.sessions.database.kind == "sqlite":
            self.inventory.add(self.home.state_db)
        if warm:
            self.manager.queue_prefetch_all(self._query(question, stored, self._now(session)), session)
        return turn

    def _store_turn(
        self, session: Session, turn: Turn, messages: Sequence[Mapping[str, Any]], record: TurnRecord | None
    ) -> Turn:
        """Store a turn with its outbox row and its record in one commit; return the turn with the number that it got.

        If the turn was stored before, return it with its number of then.
        """
        # Before the transaction: redaction takes time, and other writers wait for the lock.
        row = self.manager.turn_row(turn, session)
        puts: dict[str, Statement] = {}

        def statements_of(number: int) -> list[Statement]:
            nonlocal puts
            puts = self.manager.put_statements(numbered(number), session)
            if record is None:
                return [*puts.values()]
            return [*puts.values(), *record_statements(turn.id, session.owner, turn.at, record)]

        def numbered(number: int) -> NewRow | None:
            # Another program may have stored a turn of this session since its last number was read.
            return row if row is None or number == turn.number else with_turn_number(row, number)

        stored: list[AppendedTurn] = []
        self.sessions.append_turn(
            session.id,
            messages,
            turn.id,
            author=turn.author,
            at=turn.at,
            # Or the provider would not be notified of the end of what follows the first end.
            reopen=True,
            further=statements_of,
            then=stored.append,
        )
        (appended,) = stored
        if appended.results is not None and all(appended.results[: len(puts)]):
            self._failures.pop("outbox", None)
            self.manager.wake(puts)
        else:  # the turn or its row was stored before, or the outbox is full
            self._enqueue(partial(self.manager.put, numbered(appended.number), session))
        return dataclasses.replace(turn, number=appended.number)

    def forget_begun(self, session: Session) -> None:
        """Forget the turn that `begin_turn` began in a session and that nobody finishes."""
        self._begun.pop(session.id, None)
        self._returned.pop(session.id, None)

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
            notes = self.curated.of(session)
            answer = call_memory_tool(notes, arguments, session)
            self.inventory.record_after(notes.store_files)
        else:
            answer = self.call_tool(session, "memory", arguments)
        result: dict[str, Any] = json.loads(answer)
        return result

    # ------------------------------------------------------------------ report

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

        Raises:
            SessionError: `after` or `before` names no time.
        """
        session = self.complete(session or self.local_session)
        if read_your_writes:
            self.wait_for_writes()
        self.manager.initialize_all(session)
        pending = self.ask_recall(session, text, begins_turn=False, at=at)
        return self.report(pending, limit=limit, after=after, before=before)

    @traced
    def report(
        self,
        pending: PendingTurn,
        *,
        limit: int | None = None,
        after: str | float | None = None,
        before: str | float | None = None,
    ) -> RecallReport:
        """Wait for the recall that `ask_recall` asked for, and return the report of it; see `recall`."""
        query, session = pending.query, pending.session
        since, until = (self._moment(bound, query.now) for bound in (after, before))
        notes = self.curated.of(session)
        entries, data = notes.shown_entries(), notes.recalled_notes()
        seen = SeenTexts([*entries, *(note.entry for note in data)])
        hits = [RecallHit("memory", True, entry) for entry in entries]
        hits += [RecallHit("memory", True, note.entry, origin=note.origin.origin) for note in data]
        most = result_count(query.text) if limit is None else limit
        hits += provider_hits(seen.without_repeats(self.manager.collect_recall(pending.recall)), most)
        if self.config.sessions.search_enabled:
            hits += self._read(
                "past sessions", lambda: self._past.hits(query, session, limit, seen, since, until), []
            )
        tokens = sum(count_tokens(hit.text) for hit in hits if hit.injected)
        elapsed = round((time.monotonic() - pending.recall.began) * 1000, 3)
        problems = (*self._faults(session), *seen.left_out)
        report = RecallReport(query.text, tuple(hits), tokens, elapsed, problems)
        # A host may give it to the model, which then has read it.
        self.note_read(session, report.origin)
        return report

    def providers(self) -> list[ProviderEntry]:
        """Return an entry for each installed provider. The entry of this memory's provider has its current state."""
        entries = discover_providers(
            self.home,
            control=self._control,
            active=self._members,
            entry_points=self._entry_points,
            extensions=self.extensions,
        )
        return [self._with_state(entry) for entry in entries]

    def problems(self, session: Session | None = None) -> list[str]:
        """Return a sentence for each configured part of the memory that does not work.

        Args:
            session: A session of the user whose notes are checked; default: the person at home.
        """
        return self.problems_of(self.local_session if session is None else self.complete(session))

    def problems_of(self, session: Session) -> list[str]:
        """Return `problems` for a session that `complete` returned."""
        return [*map(redact, self._late_warnings), *self._faults(session)]

    @property
    def extras(self) -> ProviderExtras:
        """Extras of the providers' packages: skills, chat commands, hooks around tools."""
        parts = [loaded.extras for loaded in self.loaded.values() if loaded.extras is not NO_EXTRAS]
        return CombinedExtras(parts) if len(parts) > 1 else next(iter(parts), NO_EXTRAS)

    @property
    def _late_warnings(self) -> tuple[str, ...]:
        """Warnings of functions that the providers used and that have no effect in this host."""
        return tuple(warning for loaded in self.loaded.values() for warning in loaded.late_warnings())

    def _faults(self, session: Session) -> list[str]:
        """Return the problems that every turn repeats until they are gone. The session is a result of `complete`."""
        # If the sessions and notes are on a server, their earlier files may be moved away.
        on_server = self.shared_database is not None
        lost = [
            str(store) for store in self.inventory.lost() if not (on_server and store.is_replaced_by_server)
        ]
        problems = [str(error) for error in self._load_errors.values()]
        problems += lost
        problems += [
            *self._observer_problems,
            *self.extensions.problems(),
            *self.parts.problems(),
            *unmet_keys(self.config, self.extensions),
        ]
        failures = dict.fromkeys(
            filter(
                None,
                [*self._failures.values(), *self.extension_problems.values(), self.manager.outbox.held_back],
            )
        )
        # A lost state.db is reported once, although everything that reads it fails.
        problems += [failure for failure in failures if not any(store in failure for store in lost)]
        problems += filter(None, [self._read("past sessions", lambda: self.sessions.search_problem, "")])
        problems += filter(None, [self.sessions.vector_fault, self.unused_setting])
        notes = self.curated.of(session)
        with notes.reading():
            unreadable = notes.problems()
            problems += [*map(str, unreadable.values()), *notes.base_problems()]
            problems += [str(fault)] if (fault := self._verdicts.fault) else []
            origins = notes.origins.read().fault
        # Of a server that is down, the notes themselves tell.
        told = on_server and bool(unreadable)
        problems += [origins] if origins and not (told or any(store in origins for store in lost)) else []
        # A damaged state.db is reported once, although the provider's writes stand in it as well.
        problems += [
            problem
            for problem in self.manager.problems()
            if not any(earlier in problem for earlier in problems)
        ]
        # They reach the person, other programs and models; an error may quote an address with a password.
        return [redact(problem) for problem in problems]

    @property
    def unused_setting(self) -> str:
        """A sentence if settings of embeddings have no effect because of another setting; "" if they have."""
        return self.config.recall.unused_setting(search_enabled=self.config.sessions.search_enabled)

    def sharing_problem(self, owner: str = "") -> str:
        """Return a sentence if people of this home may see too little or too much of each other's notes, else "".

        Args:
            owner: `Session.owner` of a user who may have no stored session yet.
        """
        if self.config.memory.per_user:
            if self._owners or not self._has_own_texts():
                return ""
            return (
                "the notes and skills of this home are for the person at this machine only, who has no id on other "
                "platforms yet; if you write there too, name yourself: hermes-memory identity add telegram:123 "
                "(hermes-memory identity list shows who wrote)"
            )
        users = {
            *self._read("users", lambda: self.sessions.users(limit=2), list[str]()),
            *filter(None, [owner]),
        }
        at_home = self._read("sessions", lambda: bool(self.sessions.list_sessions(user="", limit=1)), False)
        if len(users) + at_home < 2:
            return ""
        return (
            "memory.per_user is false, so all users of this home see and change the same notes and skills; "
            "hermes-memory config set memory.per_user true gives each of them their own"
        )

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

    def wait_for_writes(self) -> bool:
        """Wait until the provider has taken all writes, at most the deadline of `prefetch`; see `flush`."""
        return self.flush(self.config.recall.deadline)

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
        self.sessions.close()
        self.inventory.record()
        self.parts.record()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return this memory itself: frameworks copy requests that hold tools, and there is one memory of a home."""
        return self

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

    def outside_paths(self) -> list[Path]:
        """Return files and folders outside the home in which the providers have data, as a backup must hold them."""
        paths: list[Path] = []
        for health in self.manager.health():
            result = self.manager.ask(health.name, "backup_paths")
            self._failures.pop(f"backup of {health.name}", None)
            if result.error:
                self._failures[f"backup of {health.name}"] = (
                    f"what {health.name!r} has outside the home is in no backup: {result.error}"
                )
            paths += [Path(path) for path in result.value or () if result.ok and Path(path).exists()]
        return [path for path in dict.fromkeys(paths) if not path.is_relative_to(self.home.path)]

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
            self._failures["retention"] = f"old sessions can't be deleted: {exc}"
        else:
            self._failures.pop("retention", None)

    def _routes(self) -> dict[str, frozenset[WriteKind]]:
        """Return the kinds of writes that each selected provider gets, by its name in config.yaml."""
        if self._selected != COMPOSITE:
            return {self._selected: ALL_KINDS} if self._selected else {}
        try:
            return routes_of(self.config.composite)
        except ConfigError as exc:
            self._load_errors[COMPOSITE] = ProviderError(exc.message, exc.remedy)
            return {}

    def _load(self, name: str) -> None:
        try:
            loaded = load_provider(
                name,
                self.home,
                self._control,
                self._entry_points,
                sessions=self.sessions,
                extensions=self.extensions,
            )
        except ProviderError as exc:
            self._load_errors[name] = exc
        else:
            self.loaded[loaded.entry.name] = loaded
            published = loaded.entry.kind == "hermes_agent"
            deadlines = {"prefetch": PUBLISHED_RECALL_S} if published else {}
            self._add_provider(
                loaded.factory, loaded.entry.name, loaded.settings, deadlines=deadlines, selector=name
            )

    def _add_provider(
        self,
        source: object,
        name: str,
        fields: Sequence[Field],
        deadlines: Mapping[str, float] | None = None,
        selector: str = "",
    ) -> None:
        """Add the provider to the manager."""
        member = self._selected == COMPOSITE
        taken = self.manager.add_provider(
            source,
            name=name,
            fingerprint=account_of(fields, name, self.home),
            deadlines=deadlines,
            kinds=self._members[selector] if member else None,
            selector=selector,
        )
        self._external, self._taken = COMPOSITE if member else name, self._taken or taken
        if taken:
            # A damaged state.db is noticed by the first command, not by the first turn.
            self._read("past sessions", partial(self.manager.outbox.waits, name), False)

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

    def _sharing_problems(self, session: Session) -> list[str]:
        """Return `sharing_problem` in the first turn of somebody outside, and nothing later in this process."""
        if not session.owner or self._warned:
            return []
        problem = self.sharing_problem(session.owner)
        self._warned = bool(problem)
        return [problem] if problem else []

    def _has_own_texts(self) -> bool:
        """Return True if the person at home has notes, or items of a part such as skills."""
        with contextlib.suppress(MemoryConflict):
            if any(self.curated.entries(target) for target in self.curated.enabled_targets):
                return True
        return self.parts.has_items_at_home()

    def _with_state(self, entry: ProviderEntry) -> ProviderEntry:
        """Return a copy of `entry` with its current state if it is this memory's provider, else `entry` itself."""
        loaded = self.loaded.get(entry.name)
        if entry.state == "shadowed" or not (loaded or entry.name in (self._external, *self._members)):
            return entry
        if error := self._load_errors.get(entry.name):
            state: ProviderState = "unavailable" if isinstance(error, ProviderUnavailable) else "failed"
            return entry.failed(error, state if entry.state == "active" else entry.state)
        notes = (*entry.notes, *((*loaded.warnings, *loaded.late_warnings()) if loaded else ()))
        for health in self.manager.health():
            if health.name == entry.name:
                if (
                    health.state == "idle" and entry.state == "active"
                ):  # chosen, and no session started it yet
                    return dataclasses.replace(entry, notes=notes)
                return dataclasses.replace(entry, state=health.state, reason=health.reason, notes=notes)
        return entry

    def _drop_shared_prompts(self) -> None:
        """Drop prompts of users that hold the notes of the home, if they were shared before and no longer are."""
        shared, before = not self.config.memory.per_user, self.sessions.get_meta(SHARED_NOTES_KEY)
        if shared and before != "1":
            self.sessions.set_meta(SHARED_NOTES_KEY, "1")
        elif not shared and before == "1":
            with self.sessions.transaction() as connection:
                sql = "UPDATE sessions SET system_prompt = '', memory_prompt = NULL WHERE \"user\" <> ''"
                connection.execute(sql)
                self.sessions.set_meta(SHARED_NOTES_KEY, "0")

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

    def _moment(self, bound: str | float | None, now: float) -> float | None:
        """Return a bound of a search in epoch seconds; raise `SessionError` for a text that names no time."""
        if isinstance(bound, str):
            return self.sessions.read_moment(bound, now=now) if bound.strip() else None
        return epoch_seconds(bound)

    def _set_clock(self, session: Session, at: float | None) -> None:
        """Let the clock of a session go on from `at`, if the host gave a time: it may replay a conversation of last year."""
        if at is not None:
            _remember(self._clock_offsets, session.id, at - time.time())

    def _now(self, session: Session) -> float:
        """Return the time of the session in epoch seconds: the machine's, unless the host gave another one."""
        return time.time() + self._clock_offsets.get(session.id, 0.0)

    def _query(self, text: str, recent: Sequence[Mapping[str, Any]], now: float) -> Query:
        clean = [
            without_context(message) for message in in_text(recent) if message["role"] not in SYSTEM_ROLES
        ]
        return Query(
            text=without_context(text),
            budget=self.config.recall.budget,
            recent=in_text(clean),
            now=now,
        )


# -------------------------------------------------------- handles for hosts


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    Attributes:
        text: The text for the model, also if the call failed.
        ok: True if the call did what it was asked for.
        error: Why the call failed; "" if it did not.
    """

    text: str
    ok: bool = True
    error: str = ""

    @classmethod
    def from_text(cls, text: str) -> ToolResult:
        """Return the result that a tool reports in its text: failures are JSON with `error`.

        >>> ToolResult.from_text('{"success": false, "error": "no such entry"}').error
        'no such entry'
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return cls(text)
        if not isinstance(value, dict) or not (value.get("success") is False or value.get("error")):
            return cls(text)
        return cls(text, False, str(value.get("error") or "the tool reported no success"))


class Conversation:
    """A conversation with one person or chat. Use `Memory.conversation` to make one. It stores nothing before its first turn.

    Attributes:
        memory: The memory that stores the conversation.
        session: The session of the conversation. If another user begins a session of the same id before the first
            turn, the user is appended to the id.
    """

    def __init__(self, memory: Memory, session: Session, *, source: str = "", title: str = "") -> None:
        self.memory, self.session = memory, session
        self._source, self._title = source, title
        self._open_turns = OpenTurnStore(memory.sessions)

    @property
    def state(self) -> HostState:
        """JSON values of this conversation, as a mapping. They are deleted with it."""
        return HostState(self.memory.sessions, "session", lambda: self._own().id, self._begin)

    @property
    def user_state(self) -> HostState:
        """JSON values of the user, for all their conversations."""
        return HostState(self.memory.sessions, "user", lambda: self.session.owner)

    @property
    def app_state(self) -> HostState:
        """JSON values of the platform, for all users."""
        return HostState(self.memory.sessions, "app", lambda: self.session.platform)

    @property
    def id(self) -> str:
        """Id of the session. `memory.conversation(id)` with the same user continues the conversation."""
        return self.session.id

    # -------------------------------------------------------------------- turn

    def turn(
        self,
        text: Content,
        *,
        turn_id: str = "",
        author: str = "",
        origin: Origin | None = None,
        native: object = None,
        history: int | None = None,
        read_your_writes: bool = False,
        at: float | None = None,
    ) -> OpenTurn:
        """Begin a turn with the person's message: start the providers and recall. A provider that fails raises nothing.

        Args:
            text: The message: a text, or a list of content parts. Recall in it is removed.
            turn_id: Id of the turn; default: a new one. If a turn with this id is open, it is continued.
            author: Name of the person, if several people speak in the conversation.
            origin: Origin of a message that no person of the conversation wrote, such as "tool" for a mail, a webhook's
                text or a cron job, or "web" for a page.
            native: The message as JSON in the form of a framework. It is stored and given to nobody.
            history: Largest number of earlier messages in `OpenTurn.messages`; default: all.
            read_your_writes: Wait until the provider has taken what was said before, at most the deadline of `prefetch`.
            at: Time of the message in seconds since the epoch, from which "last week" counts; default: now.

        Raises:
            SessionError: A turn with this id is finished, or belongs to another conversation, or there is no such origin.
            DatabaseUnavailable: The session or the turn could not be stored.
        """
        with self.memory.reading(self.session):
            draft = self.prepare_turn(
                text,
                turn_id=turn_id,
                author=author,
                origin=origin,
                native=native,
                read_your_writes=read_your_writes,
                at=at,
            )
            return self.open_turn(draft, history=history)

    def prepare_turn(
        self,
        text: Content,
        *,
        turn_id: str = "",
        author: str = "",
        origin: Origin | None = None,
        native: object = None,
        read_your_writes: bool = False,
        at: float | None = None,
    ) -> TurnDraft:
        """Begin a turn as `turn` does, and do not wait for the recall of the providers; `open_turn` does."""
        memory, turn_id = self.memory, sqlite_text(str(turn_id or ""))
        now = memory.sessions.database.now()
        if origin is not None:
            origin = message_origin(self._own(), author, origin)
        expired_before = now - memory.config.sessions.turn_expiry_hours * SECONDS_PER_HOUR
        self.session, start = memory.read_turn_start(
            self.session, title=self._title, recent=RECENT_MESSAGES, expired_before=expired_before
        )
        if start is None:
            self._begin()
        else:
            memory.continue_session(self.session)
        if turn_id and (stored := self._open_turns.get(turn_id)) is not None:
            return TurnDraft(stored)
        if start is None or start.has_expired_turns:
            self._open_turns.expire(before=expired_before)
        clean = without_context(text)
        if start is None:
            recent: Sequence[StoredMessage] = memory.sessions.get_messages(self.id, last=RECENT_MESSAGES)
        else:
            recent = start.recent
        if read_your_writes:
            memory.wait_for_writes()
        user: dict[str, Any] = {"role": "user", "content": "" if clean is None else clean}
        if native is not None:
            user["native"] = native
        if origin is not None:
            user["origin"] = origin
        stored = StoredOpenTurn(turn_id or uuid.uuid4().hex, self.id, user, author)
        self._open_turns.create(stored, at=now)
        # Frozen before recall, which leaves out what the prompt says.
        prompt = memory.frozen_prompt(self.session, start)
        messages = [message.as_text() for message in recent]
        recall = memory.ask_recall(
            self.session, clean, recent=messages, author=author, origin=origin, at=at, start=start
        )
        return TurnDraft(stored, recall, prompt)

    def open_turn(self, draft: TurnDraft, *, history: int | None = None) -> OpenTurn:
        """Wait for the recall that `prepare_turn` asked for, at most until the deadline, and return the turn."""
        if draft.recall is None:
            return self._continue(draft.turn, history)
        recall = self.memory.collect_recall(draft.recall)
        stored = dataclasses.replace(draft.turn, contexts=recall.contexts, origin=recall.origin)
        messages = self._open_turns.set_contexts_and_read(
            stored.id, recall.contexts, recall.origin, self.session.id
        )
        return OpenTurn(self, stored, recall, history, draft.prompt, messages)

    def drop(self, draft: TurnDraft) -> None:
        """Delete a turn that `prepare_turn` began and nobody waits for."""
        self._open_turns.delete(draft.turn.id)

    def resume(self, turn_id: str, *, history: int | None = None) -> OpenTurn:
        """Continue an unfinished turn, which another process may have begun. Nothing is recalled anew.

        Args:
            turn_id: Id of the turn.
            history: Largest number of earlier messages in `OpenTurn.messages`; default: all.

        Raises:
            SessionError: There is no such unfinished turn in this conversation.
        """
        turn_id = sqlite_text(str(turn_id))
        stored = self._open_turns.get(turn_id)
        if stored is None:
            fact = "is finished" if self.memory.sessions.has_turn(turn_id) else "is not open"
            raise SessionError(
                f"turn {turn_id!r} {fact}",
                "begin a new turn; unfinished turns expire after `sessions.turn_expiry_hours`",
            )
        self._begin()
        return self._continue(stored, history)

    def _continue(self, stored: StoredOpenTurn, history: int | None) -> OpenTurn:
        if stored.session_id != self.id:
            raise SessionError(
                f"turn {stored.id!r} belongs to another conversation", "give each turn an id of its own"
            )
        if stored.contexts is None:  # the process that began the turn died while it waited for the recall
            question = stored.user["content"]
            recall = self.memory.collect_recall(
                self.memory.ask_recall(
                    self.session,
                    question,
                    author=stored.author,
                    origin=stored.user.get("origin"),
                    begins_turn=False,
                )
            )
            self._open_turns.set_contexts(stored.id, recall.contexts, recall.origin)
        else:
            problems = tuple(self.memory.problems(self.session))
            recall = TurnRecall(RecallResult(), stored.contexts, problems, stored.origin)
        return OpenTurn(self, stored, recall, history)

    def _own(self) -> Session:
        """Return the session of this user. Before the first turn, another user may have begun one of the same id."""
        self.session = self.memory.complete(self.session)
        return self.session

    def _begin(self) -> None:
        """Store the session if it is new, and start the providers for it."""
        self.session = self.memory.begin_session(self.session, source=self._source, title=self._title)

    # ----------------------------------------------------------------- reading

    @property
    def system_prompt(self) -> str:
        """The notes and the provider's block for the system prompt, the same text for the whole conversation.

        The text is stored at the first turn, so that another process sends the same bytes.
        """
        return self.memory.frozen_prompt(self._own())

    def history(self, *, last: int | None = None) -> list[StoredMessage]:
        """Return the messages of finished turns, oldest first.

        Args:
            last: Return only so many messages at the end; default: all.
        """
        return self.memory.sessions.get_messages(self._own().id, last=last)

    def recall(
        self,
        text: Content,
        *,
        limit: int | None = None,
        read_your_writes: bool = False,
        after: str | float | None = None,
        before: str | float | None = None,
        at: float | None = None,
    ) -> RecallReport:
        """Return a report of the recall that a turn with this message would get; see `Memory.recall`."""
        return self.memory.recall(
            text,
            limit=limit,
            session=self.session,
            read_your_writes=read_your_writes,
            after=after,
            before=before,
            at=at,
        )

    def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called. Errors are in the result, not raised.

        Args:
            name: Name of the tool.
            arguments: The arguments as a dict, or as JSON text.
            call_id: Id that the model gave the call.
        """
        return ToolResult.from_text(self.memory.call_tool(self.session, name, arguments, call_id))

    def change_memory(
        self, action: str, target: str = "memory", content: str = "", old_text: str = ""
    ) -> dict[str, Any]:
        """Change the notes of this user with the `memory` tool, and return its result."""
        return self.memory.change_memory(action, target, content, old_text, session=self.session)

    # --------------------------------------------------------------------- end

    def commit(self) -> None:
        """Let the provider learn from the conversation so far. The conversation goes on."""
        self.memory.commit_session(self.session)

    def end(self, reason: EndReason = "close") -> None:
        """Mark the conversation as ended, and let the provider learn from all of it. A later turn opens it again."""
        if self.memory.sessions.get_session(self._own().id) is not None:
            self.memory.end_session(self.session, reason)

    def rewind(self, turns: int = 1) -> list[str]:
        """Undo the last turns, also at the provider. Return the ids of the undone turns.

        Args:
            turns: Number of turns.

        Raises:
            SessionError: The conversation has fewer turns.
        """
        return self.memory.rewind(self.session, self.memory.sessions.turn_start(self._own().id, turns))

    def delete(self) -> None:
        """Delete the conversation with its state; see `Memory.delete_session`."""
        self.memory.delete_session(self._own().id)


@dataclass(frozen=True, slots=True)
class TurnDraft:
    """A turn of a conversation before its recall has come. `recall` and `prompt` are None if the turn was begun earlier."""

    turn: StoredOpenTurn
    recall: PendingTurn | None = None
    prompt: str | None = None


class OpenTurn:
    """A turn that is not finished. `Conversation.turn` and `Conversation.resume` make one.

    Its messages are stored as they come. No search, recall, history or provider gets them before `finish`.

    Attributes:
        id: Id of the turn, by which another process may continue it.
        conversation: The conversation of the turn.
        recall: What was recalled for the person's message.
        problems: A sentence for each part of the memory that did not work.
    """

    def __init__(
        self,
        conversation: Conversation,
        stored: StoredOpenTurn,
        recall: TurnRecall,
        history: int | None,
        prompt: str | None = None,
        earlier: Sequence[StoredMessage] | None = None,
    ) -> None:
        self.id, self.conversation, self.recall = stored.id, conversation, recall
        self.problems: list[str] = list(recall.problems)
        self._memory, self._session = conversation.memory, conversation.session
        self._user, self._author = stored.user, stored.author
        self._messages: list[Mapping[str, Any]] = list(stored.messages)
        if earlier is None:
            earlier = self._memory.sessions.get_messages(self._session.id)
        self._history = _last_turns(as_conversation(earlier), history)
        self._open_turns = OpenTurnStore(self._memory.sessions)
        self._scrubber = StreamingContextScrubber()
        self._prompt = conversation.system_prompt if prompt is None else prompt

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self._session

    @property
    def text(self) -> str:
        """The person's message as text, without recall."""
        return text_of(self._user["content"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The request for the model in the OpenAI chat form, for this turn only.

        It has the system prompt if that is not empty, the earlier messages, the person's message with the recall, and
        what `add` stored.
        """
        system = [{"role": "system", "content": self._prompt}] if self._prompt else []
        return [*system, *self._history, self.request_message, *map(_without_native, self._messages)]

    @property
    def request_message(self) -> dict[str, Any]:
        """The person's message with the recall, in the OpenAI chat form, for the request of this turn only."""
        return {"role": "user", "content": self.recall.inject(self._user["content"])}

    def tools(self, form: ToolForm = "openai") -> list[dict[str, Any]]:
        """Return the schemas of the tools of memory in the form of a model's API; "plain" is `Memory.tool_schemas`."""
        return tool_schemas_as(self._memory.tool_schemas(), form)

    def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called; see `Conversation.call_tool`. The result is not added to the turn."""
        return self.conversation.call_tool(name, arguments, call_id)

    def add(self, *messages: Mapping[str, Any], native: object = None) -> None:
        """Store messages of the turn, such as tool calls of the model and their results. They are durable on return.

        Args:
            messages: Messages in the OpenAI chat form. Recall in them is removed, system prompts are left out.
            native: The last message as JSON in the form of a framework. It is stored and given to nobody.

        Raises:
            SessionError: A value is no message, or the turn is not open.
            DatabaseUnavailable: The messages could not be stored.
        """
        in_text(messages)  # raises for a value that is no message
        clean = [self._clean(message) for message in messages if message["role"] not in SYSTEM_ROLES]
        in_text(clean)  # a role that was nothing but recall
        if native is not None and clean:
            clean[-1] = {**clean[-1], "native": native}
        self._open_turns.add(self.id, clean, at=self._memory.sessions.database.now())
        self._messages += clean

    def scrub(self, chunk: str, *, end: bool = False) -> str:
        """Return what the person may see of a piece of the model's streamed answer: recall is removed.

        Args:
            chunk: The next piece of the answer. Text that may be the beginning of recall is returned with a later piece.
            end: True for the last piece.
        """
        visible = self._scrubber.feed(chunk)
        return visible + self._scrubber.flush() if end else visible

    def finish(
        self, answer: Content = None, *, native: object = None, at: float | None = None, warm: bool = True
    ) -> Turn:
        """Store the finished turn and its outbox row in one commit. It is durable and searchable on return.

        Args:
            answer: The model's answer; recall that it repeats is removed. Leave it out if `add` stored it already.
            native: The answer as JSON in the form of a framework.
            at: Time of the turn in epoch seconds; default: now.
            warm: True to let providers prepare the recall of the next turn.

        Raises:
            SessionError: The turn was cancelled, has expired, or was undone.
            DatabaseUnavailable: The turn could not be stored.
        """
        with self._memory.reading(self._session):
            return self._finish(answer, native, at, warm)

    def _finish(self, answer: Content, native: object, at: float | None, warm: bool) -> Turn:
        stored, facts = self._read_for_finish()
        # Another process may have added messages to the turn.
        messages = [self._user, *(self._messages if stored is None else stored.messages)]
        last = messages[-1]
        final = last.get("content") if last["role"] == "assistant" and not last.get("tool_calls") else None
        if answer is None:
            if final is None:
                raise SessionError(f"turn {self.id!r} has no answer", "give it to finish, or cancel the turn")
            answer = final
        elif final is None or text_of(final) != text_of(without_context(answer)):
            messages.append({"role": "assistant", "content": answer})
        if native is not None:
            messages[-1] = {**messages[-1], "native": native}
        if stored is None:
            self._require_stored(answer)
        turn = self._memory.end_turn(
            self._session,
            self._user["content"],
            answer,
            messages=messages,
            turn_id=self.id,
            at=at,
            warm=warm,
            author=self._author,
            recalled_origin=self.recall.origin,
            facts=facts,
        )
        self.problems = list(dict.fromkeys([*self.problems, *self._memory.problems_of(self._session)]))
        return turn

    def _read_for_finish(self) -> tuple[StoredOpenTurn | None, tuple[str, int, Origin] | None]:
        """Return the stored turn, and the facts that `Memory.end_turn` needs, in one round trip with the notes.

        The facts are None if `end_turn` reads them itself.
        """
        sessions, session = self._memory.sessions, self._session
        if sessions.database.kind == "sqlite":  # there is no round trip to save
            return self._open_turns.get(self.id), None
        facts = sessions.database.ask(sessions.id_number_and_origin_statements(session.id, session.owner))
        stored = self._open_turns.get(self.id)
        return stored, sessions.id_number_and_origin_from(facts(), session.id, session.owner)

    def _require_stored(self, answer: Content) -> None:
        """Raise `SessionError` unless the turn is finished with just this answer, by another thread for instance."""
        if not self._memory.sessions.has_turn(self.id):
            raise SessionError(
                f"turn {self.id!r} is not open: it was cancelled, or has expired",
                "begin a new turn; `sessions.turn_expiry_hours` says after how long one expires",
            )
        texts = [text for _, text in self._memory.sessions.turn_messages(self.id)]
        if not texts or texts[-1] != sqlite_text(text_of(without_context(answer))):
            raise SessionError(f"turn {self.id!r} is finished with another answer", "begin a new turn")

    def cancel(self) -> None:
        """Delete the unfinished turn: the person stopped it, or it failed. No provider hears of it."""
        self._open_turns.delete(self.id)
        self._memory.forget_begun(self._session)

    def _clean(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message without recall. What a tool answered is stored as it was."""
        clean = message if message["role"] == "tool" else without_context(dict(message))
        if clean != message:
            self.problems.append(
                "a message of the turn was stored without the recall in it: add the model's own words"
            )
        return dict(clean)


def tool_schemas_as(schemas: Sequence[Mapping[str, Any]], form: ToolForm) -> list[dict[str, Any]]:
    """Return schemas of tools (name, description, parameters) in the form of a model's API.

    Raises:
        SessionError: There is no such form.
    """
    if form == "openai":
        return [{"type": "function", "function": dict(schema)} for schema in schemas]
    if form == "plain":
        return [dict(schema) for schema in schemas]
    key = {"anthropic": "input_schema", "mcp": "inputSchema"}.get(form)
    if key is None:
        raise SessionError(
            f"there is no form {form!r} of tools", f"use one of {', '.join(get_args(ToolForm))}"
        )
    return [
        {"name": schema["name"], "description": schema["description"], key: schema["parameters"]}
        for schema in schemas
    ]


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """A turn that a host began and that is not stored yet.

    Attributes:
        text: The message.
        origin: The lowest origin of its recall.
        at: Its time in epoch seconds.
        speaker: Origin of the message.
        record: What the turn was given; None if it began without recall.
        updates: The changes of notes that it was given beside the frozen prompt.
    """

    text: str
    origin: Origin = "person"
    at: float = 0.0
    speaker: Origin = "person"
    record: TurnRecord | None = None
    updates: frozenset[str] = frozenset()


def _holds_results(message: Mapping[str, Any]) -> bool:
    """Return True if a message of the role "user" has results of tools, as in Anthropic's form."""
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return any(isinstance(part, Mapping) and part.get("type") in RESULT_PARTS for part in parts)


def _calls_memory(message: Mapping[str, Any]) -> bool:
    names = [
        (call.get("function") or call).get("name")
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
    return MEMORY_SCHEMA["name"] in names


def author_origin(session: Session, author: str = "") -> Origin:
    """Return the origin of what the person of a session writes. Programs may speak in a chat too."""
    if author.lower().startswith(PROGRAM_AUTHORS):
        return "tool"
    if session.owner:
        return "user"
    return "owner" if session.is_owner else "person"


def message_origin(session: Session, author: str, origin: Origin | None) -> Origin:
    """Return the origin of a message of the role "user": the lower of its author's and the one that the host gives.

    Raises:
        SessionError: There is no such origin.
    """
    if origin is not None and origin not in RANKS:
        raise SessionError(f"there is no origin {origin!r}", f"use one of {', '.join(RANKS)}")
    # In a tool, the words are those of the model that calls it.
    reading = current_reading()
    read = [] if reading is None or may_command(reading.origin) else [reading.origin]
    return lowest([author_origin(session, author), *([] if origin is None else [origin]), *read])


def is_said(origin: str) -> bool:
    """Return True if a person of the session's own scope said a text of this origin."""
    return origin in ("person", "owner", "user")


def _for_provider(message: Mapping[str, Any], owner: str) -> Mapping[str, Any]:
    """Return a message with its origin only if nobody of the session's scope said it."""
    if may_command(in_scope(message["origin"], owner)):
        return {key: value for key, value in message.items() if key != "origin"}
    return message


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _remember(table: OrderedDict[Name, Value], key: Name, value: Value) -> None:
    """Store a value as the newest one, and drop the oldest beyond `MAX_REMEMBERED`."""
    table.pop(key, None)
    table[key] = value
    while len(table) > MAX_REMEMBERED:
        table.popitem(last=False)


def _without_native(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "native"}


def _last_turns(history: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """Return at most `limit` messages from the end that begin with a person's message: APIs refuse half a tool call."""
    if limit is None or len(history) <= limit:
        return history
    starts = range(len(history) - max(limit, 0), len(history))
    first = next((at for at in starts if history[at]["role"] == "user"), len(history))
    return history[first:]
