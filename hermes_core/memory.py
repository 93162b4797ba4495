"""The memory of one home: configuration, loader, manager, notes and sessions in one object.

The agent, the command line, the MCP server and other hosts call `open_memory`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

from msgspec import structs

from hermes_core.config import Config, load_config, override_config, provider_name
from hermes_core.config.keys import COMPOSITE, RecallConfig, TelemetryConfig
from hermes_core.contract.values import Field, Session, SessionFields
from hermes_core.conversation import Conversation
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.project import Repository, repository_of
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import NoteSettings
from hermes_core.curated.tool import CuratedProvider
from hermes_core.errors import ConfigError, ProviderError, ProviderUnavailable
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import ProviderEntry, ProviderState
from hermes_core.loader.entry_points import LoadControl, installed_entry_points
from hermes_core.loader.extensions import Extensions, extension_remedy, load_extensions
from hermes_core.loader.extras import NO_EXTRAS, CombinedExtras, ProviderExtras
from hermes_core.loader.load import LoadedProvider, declared_settings, load_observers, load_provider
from hermes_core.loader.parts import HomeParts
from hermes_core.logs import LogFile
from hermes_core.manager import at_exit
from hermes_core.manager.composite import ALL_KINDS, WriteKind, routes_of
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.plugins import vet_observer
from hermes_core.origins import OriginLedger
from hermes_core.outbox.recovery import outbox_of_home
from hermes_core.problems import ProblemLog
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.session_store import SessionStore
from hermes_core.storage.engine import Engine
from hermes_core.storage.inventory import STATE_DB, Inventory
from hermes_core.storage.verdicts import Verdicts
from hermes_core.tracing import Telemetry
from hermes_core.turn import MemoryTurns

# Hermes Agent waits this long for the recall of an external provider, and providers are written for it.
PUBLISHED_RECALL_S = 8.0


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
        override_config(load_config(resolved), config) if config else load_config(resolved),
        provider=provider,
        observers=observers,
        deadlines=deadlines,
        telemetry=telemetry,
        folder=folder,
        clock=clock,
    )


class Memory(MemoryTurns):
    """The memory of one home. It lives as long as the process, and threads, agents and sessions may share it.

    Attributes:
        home: The home of this memory.
        config: The configuration of the home.
        sessions: The store of sessions and turns, which also holds the outbox.
        curated: The store of the notes.
        manager: The manager of the providers.
        origins: The origins of texts that are not stored yet.
        problem_log: The parts that do not work.
        inventory: The stores of the home that have held data.
        local_session: The session that stands for the person at home outside of a conversation. It is not stored.
        tracer: The spans and metrics of this memory; None if telemetry is off.
        at_session_start: Functions that `continue_session` calls, of extensions. They must return at once.
        extensions: The extensions that the configuration lets in.
        parts: The parts of the home that extensions keep, such as skills.
        extension_problems: Sentences of extensions for `problems`, by any name; "" for none.
        at_close: Exit stack that `close` unwinds before the stores are closed.
        telemetry_problem: Error that says why telemetry is on and can't work; None if it works or is off.
        selected: The name of the external provider that was chosen, even if it could not be loaded; "" for none.
        selected_providers: The names of the external providers that were chosen: none, one, or the members of the
            composite.
        loaded: The providers that were loaded by their names, with their packages.
        extras: Extras of the providers' packages: skills, chat commands, hooks around tools.
        shared_database: The database of `storage.url`, in which the notes are as well; None for a home with files.
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
        self.local_session = Session(id=f"local-{home.profile}", identity=home.profile, home=str(home.path))
        self.at_session_start = []
        self.extension_problems: dict[str, str] = {}
        self.inventory = Inventory(home.path)
        # Scanning the installed packages takes longer than all else here, so it is done once.
        self._entry_points = list(installed_entry_points())
        self.extensions = load_extensions(config, self._entry_points)
        self.parts = HomeParts(home, config, self.extensions)
        self.sessions = open_sessions(home, config, extensions=self.extensions)
        self.shared_database = notes_database(config, self.sessions)
        chosen = config.memory.provider if provider is None else provider
        if isinstance(chosen, str):
            chosen = provider_name(chosen)
        self.selected = chosen if isinstance(chosen, str) else str(getattr(chosen, "name", ""))
        self._members, load_errors = _routes(self.selected, config)
        self.selected_providers = tuple(self._members)
        self._control = LoadControl.of(config.providers)
        installed, observer_problems = load_observers(self._control, self._entry_points, vet_observer)
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
        self.curated = Notes(
            home,
            self.sessions.database,
            NoteSettings.of(home, config),
            NoteHooks(
                self.manager.observers.filter_write,
                self.manager.suppresses_local_writes,
                self.manager.on_memory_write,
                lambda: self._external if self._taken else self.selected,
            ),
            project=_repository(config, folder),
            lost_at=self.inventory.accepted(STATE_DB),
        )
        self.loaded: dict[str, LoadedProvider] = {}
        self.problem_log = ProblemLog(
            config,
            sessions=self.sessions,
            curated=self.curated,
            manager=self.manager,
            extensions=self.extensions,
            parts=self.parts,
            inventory=self.inventory,
            verdicts=Verdicts(home),
            on_server=self.shared_database is not None,
            loaded=self.loaded,
            load_errors=load_errors,
            observer_problems=observer_problems,
            extension_problems=self.extension_problems,
        )
        if self.telemetry_problem:
            self.problem_log.failures["telemetry"] = str(self.telemetry_problem)
        self.origins = OriginLedger(self.sessions, config.memory.trusted_tools, self.problem_log)
        super().__init__()
        self._external, self._taken = "", False
        self.manager.add_provider(CuratedProvider(self.curated, self.origins.reading_of), builtin=True)
        if self.tracer is not None:
            self.tracer.watch(self.manager)
        with ExitStack() as undo:
            undo.callback(self.manager.shutdown_all, 1.0)
            if not isinstance(chosen, str):
                self._add_provider(chosen, self.selected, declared_settings(chosen))
            for name in self._members if isinstance(chosen, str) else ():
                self._load(name)
            # Rows of `outbox.db` that can't be read yet go first.
            if self._taken and not self.manager.outbox.held_back:
                # The next read of the sessions, which are in the same database, takes back that it failed.
                self.problem_log.read("past sessions", self.curated.tell_removals, None)
            undo.pop_all()
        extras = [loaded.extras for loaded in self.loaded.values() if loaded.extras is not NO_EXTRAS]
        self.extras: ProviderExtras = (
            CombinedExtras(extras) if len(extras) > 1 else next(iter(extras), NO_EXTRAS)
        )
        self.inventory.record()
        self.parts.record()
        at_exit.register(self)
        self.extensions.notify("on_home_opened", memory=self)

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
        return self.problem_log.all_of(self.local_session if session is None else self.complete(session))

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
            self.problem_log.load_errors[name] = exc
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
        member = self.selected == COMPOSITE
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
            self.problem_log.read("past sessions", partial(self.manager.outbox.waits, name), False)

    def _with_state(self, entry: ProviderEntry) -> ProviderEntry:
        """Return a copy of `entry` with its current state if it is this memory's provider, else `entry` itself."""
        loaded = self.loaded.get(entry.name)
        if entry.state == "shadowed" or not (loaded or entry.name in (self._external, *self._members)):
            return entry
        if error := self.problem_log.load_errors.get(entry.name):
            state: ProviderState = "unavailable" if isinstance(error, ProviderUnavailable) else "failed"
            return entry.failed(error, state if entry.state == "active" else entry.state)
        notes = (*entry.notes, *((*loaded.warnings, *loaded.late_warnings()) if loaded else ()))
        for health in self.manager.health():
            if health.name == entry.name:
                if (
                    health.state == "idle" and entry.state == "active"
                ):  # chosen, and no session started it yet
                    return structs.replace(entry, notes=notes)
                return structs.replace(entry, state=health.state, reason=health.reason, notes=notes)
        return entry


def _configured_deadlines(config: Config) -> dict[str, float]:
    """Return the deadlines that the configuration sets. A default leaves it to the kind of the provider."""
    deadline = config.recall.deadline
    if "recall.deadline" in config.configured or deadline != RecallConfig().deadline:
        return {"prefetch": deadline}
    return {}


def _repository(config: Config, folder: str | os.PathLike[str] | None) -> Repository | None:
    """Return the repository of the working folder if the config wants notes on it."""
    return None if config.memory.project == "off" else repository_of(Path(folder or "."))


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


def notes_database(config: Config, sessions: SessionStore) -> Engine | None:
    """Return the database in which the notes are; None for a home with files."""
    return sessions.database if config.storage.url else None


def _routes(
    selected: str, config: Config
) -> tuple[dict[str, frozenset[WriteKind]], dict[str, ProviderError]]:
    """Return the kinds of writes that each selected provider gets, by its name in config.yaml, and errors by name."""
    if selected != COMPOSITE:
        return {selected: ALL_KINDS} if selected else {}, {}
    try:
        return routes_of(config.composite), {}
    except ConfigError as exc:
        return {}, {COMPOSITE: ProviderError(exc.message, exc.remedy)}
