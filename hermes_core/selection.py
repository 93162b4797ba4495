"""The external providers that config.yaml, or the program, has chosen for a memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from importlib_metadata import EntryPoint
from msgspec import structs

from hermes_core.config import Config, provider_name
from hermes_core.config.keys import COMPOSITE
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, ProviderError, ProviderUnavailable
from hermes_core.home import HermesHome
from hermes_core.kit.settings import load_settings
from hermes_core.loader.catalog import discover_providers
from hermes_core.loader.discover import ProviderEntry, ProviderState
from hermes_core.loader.entry_points import LoadControl
from hermes_core.loader.extensions import Extensions
from hermes_core.loader.extras import NO_EXTRAS, CombinedExtras, ProviderExtras
from hermes_core.loader.load import LoadedProvider, declared_settings, load_provider
from hermes_core.manager.composite import ALL_KINDS, WriteKind, routes_of
from hermes_core.manager.manager import MemoryManager
from hermes_core.problems import ProblemLog
from hermes_core.sessions.session_store import SessionStore

# Hermes Agent waits this long for the recall of an external provider, and providers are written for it.
PUBLISHED_RECALL_S = 8.0


class ProviderSelection:
    """The external providers of a memory: those that were chosen, and those of them that could be loaded.

    Attributes:
        name: The name of the external provider that was chosen, even if it could not be loaded; "" for none.
        names: The names of the external providers that were chosen: none, one, or the members of the composite.
        routes: The kinds of writes that each of them gets, by its name in config.yaml.
        control: The provider packages that config.yaml lets in.
        loaded: The providers that were loaded by their names, with their packages.
        load_errors: Errors of the chosen providers that could not be loaded, by their names.
        extras: Extras of the providers' packages: skills, chat commands, hooks around tools.
        external: The name under which the manager knows the provider; "" for none.
        is_taken: True if the manager has taken a provider.
    """

    def __init__(
        self,
        home: HermesHome,
        config: Config,
        chosen: object,
        entry_points: Sequence[EntryPoint],
        extensions: Extensions,
    ) -> None:
        self._home, self._entry_points, self._extensions = home, entry_points, extensions
        chosen = config.memory.provider if chosen is None else chosen
        self._chosen = provider_name(chosen) if isinstance(chosen, str) else chosen
        self.name = self._chosen if isinstance(self._chosen, str) else str(getattr(chosen, "name", ""))
        self.routes, self.load_errors = _routes(self.name, config)
        self.names = tuple(self.routes)
        self.control = LoadControl.of(config.providers)
        self.loaded: dict[str, LoadedProvider] = {}
        self.extras: ProviderExtras = NO_EXTRAS
        self.external, self.is_taken = "", False

    def load(self, manager: MemoryManager, sessions: SessionStore, problem_log: ProblemLog) -> None:
        """Load the chosen providers and add them to the manager. One that fails is in the problem log."""
        self._manager, self._problem_log = manager, problem_log
        if not isinstance(self._chosen, str):
            self._add(self._chosen, self.name, declared_settings(self._chosen))
        for name in self.routes if isinstance(self._chosen, str) else ():
            self._load(name, sessions)
        extras = [loaded.extras for loaded in self.loaded.values() if loaded.extras is not NO_EXTRAS]
        self.extras = CombinedExtras(extras) if len(extras) > 1 else next(iter(extras), NO_EXTRAS)

    def _load(self, name: str, sessions: SessionStore) -> None:
        try:
            loaded = load_provider(
                name,
                self._home,
                self.control,
                self._entry_points,
                sessions=sessions,
                extensions=self._extensions,
            )
        except ProviderError as exc:
            self.load_errors[name] = exc
        else:
            self.loaded[loaded.entry.name] = loaded
            published = loaded.entry.kind == "hermes_agent"
            deadlines = {"prefetch": PUBLISHED_RECALL_S} if published else {}
            self._add(loaded.factory, loaded.entry.name, loaded.settings, deadlines=deadlines, selector=name)

    def _add(
        self,
        source: object,
        name: str,
        fields: Sequence[Field],
        deadlines: Mapping[str, float] | None = None,
        selector: str = "",
    ) -> None:
        """Add the provider to the manager."""
        member = self.name == COMPOSITE
        taken = self._manager.add_provider(
            source,
            name=name,
            fingerprint=account_of(fields, name, self._home),
            deadlines=deadlines,
            kinds=self.routes[selector] if member else None,
            selector=selector,
        )
        self.external, self.is_taken = COMPOSITE if member else name, self.is_taken or taken
        if taken:
            # A damaged state.db is noticed by the first command, not by the first turn.
            self._problem_log.read("past sessions", partial(self._manager.outbox.waits, name), False)

    def entries(self) -> list[ProviderEntry]:
        """Return an entry for each installed provider. The entry of a chosen provider has its current state."""
        entries = discover_providers(
            self._home,
            control=self.control,
            active=self.routes,
            entry_points=self._entry_points,
            extensions=self._extensions,
        )
        return [self._with_state(entry) for entry in entries]

    def _with_state(self, entry: ProviderEntry) -> ProviderEntry:
        """Return a copy of `entry` with its current state if the provider is chosen, else `entry` itself."""
        loaded = self.loaded.get(entry.name)
        if entry.state == "shadowed" or not (loaded or entry.name in (self.external, *self.routes)):
            return entry
        if error := self.load_errors.get(entry.name):
            state: ProviderState = "unavailable" if isinstance(error, ProviderUnavailable) else "failed"
            return entry.failed(error, state if entry.state == "active" else entry.state)
        notes = (*entry.notes, *((*loaded.warnings, *loaded.late_warnings()) if loaded else ()))
        for health in self._manager.health():
            if health.name == entry.name:
                if (
                    health.state == "idle" and entry.state == "active"
                ):  # chosen, and no session started it yet
                    return structs.replace(entry, notes=notes)
                return structs.replace(entry, state=health.state, reason=health.reason, notes=notes)
        return entry


def account_of(settings: Sequence[Field], name: str, home: HermesHome) -> Callable[[], str]:
    """Return a function that reads the stored settings of a provider and returns the fingerprint of its account.

    Pass this function to `MemoryManager.add_provider` as `fingerprint`.
    """

    def fingerprint() -> str:
        if not any(field.identity for field in settings):
            return ""
        return load_settings(settings, home.path, name).fingerprint

    return fingerprint


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
