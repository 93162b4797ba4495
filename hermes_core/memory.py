"""The memory of one home: configuration, loader, manager, notes and sessions in one object.

The agent, the command line, the MCP server and other hosts call `open_memory`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from hermes_core.config import Config, load_config, override_config
from hermes_core.config.keys import RecallConfig, TelemetryConfig
from hermes_core.contract.values import Session, SessionFields
from hermes_core.conversation import Conversation
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.project import Repository, repository_of
from hermes_core.curated.store import Notes
from hermes_core.curated.stored import NoteSettings
from hermes_core.curated.tool import CuratedProvider
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from hermes_core.lifecycle import Internals
from hermes_core.loader.entry_points import installed_entry_points
from hermes_core.loader.extensions import Extensions, extension_remedy, load_extensions
from hermes_core.loader.load import load_observers
from hermes_core.loader.parts import HomeParts
from hermes_core.logs import LogFile
from hermes_core.manager import at_exit
from hermes_core.manager.manager import MemoryManager
from hermes_core.manager.plugins import vet_observer
from hermes_core.origins import OriginLedger
from hermes_core.outbox.recovery import outbox_of_home
from hermes_core.problems import ProblemLog
from hermes_core.recaller import Recaller
from hermes_core.selection import ProviderSelection
from hermes_core.session_facts import SessionPrompts, SessionResolver
from hermes_core.sessions.home_store import open_sessions
from hermes_core.sessions.tool import SessionSearchTool
from hermes_core.storage.inventory import STATE_DB, Inventory
from hermes_core.storage.verdicts import Verdicts
from hermes_core.tracing import Telemetry
from hermes_core.turn import MemoryTurns


class MemoryOptions(TypedDict, total=False):
    """Options of `Memory`, which `open_memory` describes."""

    provider: object
    observers: Sequence[object]
    deadlines: Mapping[str, float] | None
    telemetry: Telemetry | bool | None
    folder: str | os.PathLike[str] | None
    clock: Callable[[], float]


def open_memory(
    home: str | os.PathLike[str] | HermesHome | None = None,
    *,
    profile: str | None = None,
    config: Mapping[str, Any] | None = None,
    **options: Unpack[MemoryOptions],
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
    stored = load_config(resolved)
    return Memory(resolved, override_config(stored, config) if config else stored, **options)


class Memory(MemoryTurns):
    """The memory of one home. It lives as long as the process, and threads, agents and sessions may share it.

    Attributes:
        home: The home of this memory.
        config: The configuration of the home.
        sessions: The store of sessions and turns, which also holds the outbox.
        curated: The store of the notes.
        manager: The manager of the providers.
        problem_log: The parts that do not work.
        local_session: The session that stands for the person at home outside of a conversation. It is not stored.
        internals: The parts that extensions and agents need, and hosts do not.
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
        self.home, self.config = home, config
        self.local_session = Session(id=f"local-{home.profile}", identity=home.profile, home=str(home.path))
        inventory = Inventory(home.path)
        # Scanning the installed packages takes longer than all else here, so it is done once.
        entry_points = list(installed_entry_points())
        extensions = load_extensions(config, entry_points)
        parts = HomeParts(home, config, extensions)
        self.sessions = open_sessions(home, config, extensions=extensions)
        selection = ProviderSelection(home, config, provider, entry_points, extensions)
        installed, observer_problems = load_observers(selection.control, entry_points, vet_observer)
        source, telemetry_problem = _telemetry_of(telemetry, config.telemetry, extensions)
        tracer = self._tracer = (
            None if source is None else source.tracer_of(home.profile, lambda: selection.external)
        )
        self.manager = MemoryManager(
            home,
            deadlines={**_configured_deadlines(config), **(deadlines or {})},
            clock=clock,
            outbox=outbox_of_home(home, self.sessions.database),
            selected=selection.routes,
            transcripts=self.sessions.transcript,
            observers=[*observers, *installed, *(tracer.observers if tracer else ())],
            on_event=LogFile(home).on_event,
            tracer=tracer,
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
                lambda: selection.external if selection.is_taken else selection.name,
            ),
            project=_repository(config, folder),
            lost_at=inventory.accepted(STATE_DB),
        )
        self.problem_log = ProblemLog(
            config,
            sessions=self.sessions,
            curated=self.curated,
            manager=self.manager,
            extensions=extensions,
            parts=parts,
            inventory=inventory,
            verdicts=Verdicts(home),
            loaded=selection.loaded,
            load_errors=selection.load_errors,
            observer_problems=observer_problems,
        )
        if telemetry_problem:
            self.problem_log.failures["telemetry"] = str(telemetry_problem)
        origins = OriginLedger(self.sessions, self.curated, config.memory, self.problem_log)
        resolver, prompts = SessionResolver(self), SessionPrompts(self, origins)
        self.internals = Internals(
            manager=self.manager,
            resolver=resolver,
            prompts=prompts,
            recaller=Recaller(self, origins, resolver, prompts),
            origins=origins,
            search=SessionSearchTool(self.sessions if config.sessions.search_enabled else None),
            selection=selection,
            inventory=inventory,
            extensions=extensions,
            parts=parts,
            telemetry_problem=telemetry_problem,
        )
        super().__init__()
        self.manager.add_provider(CuratedProvider(self.curated, origins.reading_of), builtin=True)
        if tracer is not None:
            tracer.watch(self.manager)
        with ExitStack() as undo:
            undo.callback(self.manager.shutdown_all, 1.0)
            selection.load(self.manager, self.sessions, self.problem_log)
            # Rows of `outbox.db` that can't be read yet go first.
            if selection.is_taken and not self.manager.outbox.held_back:
                # The next read of the sessions, which are in the same database, takes back that it failed.
                self.problem_log.read("past sessions", self.curated.tell_removals, None)
            undo.pop_all()
        inventory.record()
        parts.record()
        at_exit.register(self)
        extensions.notify("on_home_opened", memory=self)

    def conversation(
        self,
        session_id: str | Session = "",
        *,
        source: str = "",
        title: str = "",
        **fields: Unpack[SessionFields],
    ) -> Conversation:
        """Return a handle on a conversation, which begins and finishes its turns. Nothing is stored before the first turn.

        Args:
            session_id: Id of the session; default: a new one. With the id of a stored session of this user, the
                conversation goes on. Or a `Session`.
            source: Name of the program in which the conversation takes place; default: the platform.
            title: Title of a new session.
            fields: Fields of `Session`, as in `session`.

        Raises:
            SessionError: The `agent_context` does not exist.
        """
        return Conversation(self, self.session(session_id, **fields), source=source, title=title)

    def problems(self, session: Session | None = None) -> list[str]:
        """Return a sentence for each configured part of the memory that does not work.

        Args:
            session: A session of the user whose notes are checked; default: the person at home.
        """
        complete = self.internals.resolver.complete
        return self.problem_log.all_of(self.local_session if session is None else complete(session))

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
        self.internals.at_close.close()
        self.sessions.database.shorten_waits()
        self.manager.shutdown_all(max(until - time.monotonic(), min(timeout, 1.0)))
        self.sessions.close()
        self.internals.inventory.record()
        self.internals.parts.record()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return this memory itself: frameworks copy requests that hold tools, and there is one memory of a home."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _configured_deadlines(config: Config) -> dict[str, float]:
    """Return the deadlines that the configuration sets. A default leaves it to the kind of the provider."""
    deadline = config.recall.deadline
    if "recall.deadline" in config.configured or deadline != RecallConfig().deadline:
        return {"prefetch": deadline}
    return {}


def _repository(config: Config, folder: str | os.PathLike[str] | None) -> Repository | None:
    """Return the repository of the working folder if the config wants notes on it."""
    return None if config.memory.project == "off" else repository_of(Path(folder or "."))


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
