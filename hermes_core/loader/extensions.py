"""The extensions of an environment: discovery by entry point, load control, and guarded calls of their hooks.

Each extension has a pluggy manager of its own, so that a hook that raises stops no other extension. What fails becomes a
state with a reason, never an exception at start.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

import importlib_metadata
import pluggy
from msgspec import Struct, structs

from hermes_core.config import Config
from hermes_core.contract.extensions import (
    EXTENSION_GROUP,
    EXTENSION_HOOKS,
    PART_NAME,
    CommandEntry,
    ExtensionHooks,
    HomePart,
    ImporterEntry,
    IndexEntry,
    Named,
    Registrations,
)
from hermes_core.contract.hooks import PROJECT
from hermes_core.errors import ConfigError
from hermes_core.loader.entry_points import LoadControl, installed_entry_points, normalise
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.packages import (
    KNOWN_EXTENSIONS,
    OWN_PACKAGES,
    install_remedy,
    name_and_version,
    program_version,
)

logger = logging.getLogger(__name__)

ExtensionState = Literal["active", "failed", "blocked", "missing"]

Entry = TypeVar("Entry", bound=Named)

Row = TypeVar("Row")

_COMMAND_NAME = re.compile(r"[^\W_][\w-]*( [^\W_][\w-]*)?")

_TAKEN_NAMES = frozenset(
    {"sessions", "notes", "memories", "accepted", "rejected", "waiting", "accepted_origins"}
)
_TAKEN_NOUNS = frozenset(
    {"text", "file", "folder", "list", "remove", "user", "json", "help", "session", "note"}
)

# The attribute in which pluggy's marker leaves the options of a hook implementation.
_MARK = f"{PROJECT}_impl"


class Extension(Struct, frozen=True):
    """One extension, as `hermes-memory extensions` lists it.

    Attributes:
        name: Name of the entry point.
        adds: The hooks that it implements.
        reason: Why it is not active, "" if it is.
        remedy: What to do about it.
        hook: The callers of its hooks; None if it is not active.
    """

    name: str
    distribution: str = ""
    version: str = ""
    state: ExtensionState = "active"
    reason: str = ""
    remedy: str = ""
    adds: tuple[str, ...] = ()
    hook: pluggy.HookRelay | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        names = ("name", "distribution", "version", "state", "reason", "remedy", "adds")
        return {name: getattr(self, name) for name in names}


class Extensions:
    """The extensions that a home may use, in the order in which their hooks are called.

    Args:
        found: All extensions, also those that can't be used.
    """

    def __init__(self, found: Iterable[Extension] = ()) -> None:
        self.found = tuple(found)
        self._faults: dict[str, str] = {}

    def problems(self) -> list[str]:
        """Return a sentence for each extension that failed to load, and for each hook that raised."""
        sentences = []
        for one in self.found:
            if one.state == "failed":
                sentences.append(f"the extension {one.name!r} is not active: {one.reason}; {one.remedy}")
        return [*sentences, *self._faults.values()]

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[Extension, Any]]:
        """Yield each active extension whose `hook` answers, with the answer. Leave out those that raise."""
        for extension in self.found:
            answer = self._call(extension, hook, arguments)
            if answer is not None:
                yield extension, answer

    def _call(self, extension: Extension, hook: str, arguments: Mapping[str, Any]) -> Any:
        """Return the answer of one extension, None if it has none or raises."""
        if extension.hook is None or hook not in extension.adds:
            return None
        answer = call_foreign(lambda: getattr(extension.hook, hook)(**arguments))
        if isinstance(answer, ForeignError):
            self._note_fault(extension, hook, answer)
            return None
        # pluggy returns a list with the one answer, or the answer itself for a hook with `firstresult`.
        return next(iter(answer), None) if isinstance(answer, list) else answer

    def notify(self, hook: str, **arguments: Any) -> None:
        """Call `hook` of each active extension that implements it."""
        for extension in self.found:
            self._call(extension, hook, arguments)

    def first(self, hook: str, **arguments: Any) -> Any:
        """Return the first answer that is not None."""
        return next((answer for _, answer in self.call(hook, **arguments)), None)

    @cached_property
    def commands(self) -> Mapping[str, CommandEntry]:
        """The commands of all extensions by name."""
        return self._registered("register_commands", "commands", CommandEntry)

    @cached_property
    def importers(self) -> Mapping[str, ImporterEntry]:
        """The formats of files of all extensions by name."""
        return self._registered("register_importers", "importers", ImporterEntry)

    @cached_property
    def indexes(self) -> Mapping[str, IndexEntry]:
        """The indexes of messages of all extensions by name."""
        return self._registered("register_indexes", "indexes", IndexEntry)

    @cached_property
    def parts(self) -> Mapping[str, HomePart]:
        """The parts of a home that the extensions keep, by name. The first of a name counts."""
        parts: dict[str, HomePart] = {}
        for one, answer in self.call("home_parts"):
            for part in self._rows(one, "home_parts", answer):
                if fault := part_fault(part):
                    self._note(
                        f"{one.name}.home_parts",
                        f"the extension {one.name!r} has a part that is left out: {fault}",
                    )
                    continue
                parts.setdefault(part.name, replace(part, extension=one.name, package=one.distribution))
        return parts

    def findings(self, kind: type[Row], home: Path, config: Config, *, trial: bool) -> list[Row]:
        """Return what the extensions find in a home. One that raises has a sentence in `problems`.

        Args:
            kind: The class of a finding. An answer of another class is left out, and is a problem.
        """
        findings: list[Row] = []
        for extension, answer in self.call("examine", home=home, config=config, trial=trial):
            rows = self._rows(extension, "examine", answer)
            findings += (row for row in rows if isinstance(row, kind))
            if others := [row for row in rows if not isinstance(row, kind)]:
                self._note(
                    f"{extension.name}.examine",
                    f"the extension {extension.name!r} found a {type(others[0]).__name__}, which is no "
                    f"{kind.__name__}",
                )
        return findings

    def _rows(self, extension: Extension, hook: str, answer: Any) -> list[Any]:
        """Return the rows of an answer. A generator runs here, so that it is guarded here."""
        rows = call_foreign(lambda: list(answer))
        if isinstance(rows, ForeignError):
            self._note_fault(extension, hook, rows)
            return []
        return rows

    def _note_fault(self, extension: Extension, hook: str, fault: ForeignError) -> None:
        self._note(f"{extension.name}.{hook}", f"the extension {extension.name!r} raised in {hook}: {fault}")

    def _note(self, key: str, sentence: str) -> None:
        self._faults[key] = sentence
        logger.warning("%s", sentence)

    def _registered(self, hook: str, argument: str, kind: type[Entry]) -> dict[str, Entry]:
        """Return what the extensions register.

        An entry that can't be used is left out and reported, as is one with a name that an earlier extension has.
        """
        entries: dict[str, Entry] = {}
        for extension in self.found:
            registrations = Registrations[Entry]()
            self._call(extension, hook, {argument: registrations})
            for name, entry in registrations.entries.items():
                if fault := _entry_fault(entry, kind):
                    self._note(
                        f"{extension.name}.{hook}.{name}",
                        f"the extension {extension.name!r} has in {hook} what is left out: {fault}",
                    )
                elif (other := entries.get(name)) is not None:
                    owner = getattr(other, "extension", "")
                    sentence = (
                        f"the extension {extension.name!r} offers {name!r}, which {owner!r} has already"
                    )
                    self._faults[f"{extension.name}.{name}"] = sentence
                else:
                    entries[name] = cast("Entry", replace(cast("Any", entry), extension=extension.name))
        return entries


def part_fault(part: Any) -> str:
    """Return why a part can't be used, "" if it can.

    Its names are kinds of records, keys of JSON and options. Its patterns must stay in the home, because `forget` and
    `restore` delete what they name.
    """
    if fault := _type_fault(part, HomePart):
        return fault
    if not PART_NAME.fullmatch(part.name) or part.name in _TAKEN_NAMES:
        return f"its name {part.name!r} is taken, or is not of lower-case letters, digits and '-'"
    if not PART_NAME.fullmatch(part.noun) or part.noun in _TAKEN_NOUNS:
        return f"its noun {part.noun!r} is taken, or is not of lower-case letters, digits and '-'"
    if "/" in part.journal:
        return f"its journal {part.journal!r} is not the name of a file"
    for pattern in part.patterns:
        path = PurePosixPath(pattern)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            return f"its pattern {pattern!r} is not of a folder below the home"
    return ""


def _entry_fault(entry: Any, kind: type[Any]) -> str:
    """Return why an entry can't be used, "" if it can."""
    if fault := _type_fault(entry, kind):
        return fault
    if kind is CommandEntry and not _COMMAND_NAME.fullmatch(entry.name):
        return f"{entry.name!r} is not one word of letters, digits and '-', or two with a space between them"
    return ""


def _type_fault(value: Any, kind: type[Any]) -> str:
    """Return why a value is none of `kind`, or has a field of another type, "" if all is right."""
    if not isinstance(value, kind):
        return f"{value!r} is no {kind.__name__}"
    for one in fields(value):
        content = getattr(value, one.name)
        if one.type == "str" and not isinstance(content, str):
            return f"{one.name} of {value.name!r} must be a str, got {content!r}"
        if one.name == "patterns" and not (
            isinstance(content, tuple) and all(isinstance(pattern, str) for pattern in content)
        ):
            return f"patterns of {value.name!r} must be a tuple of str, got {content!r}"
    return ""


def load_extensions(
    config: Config, entry_points: Iterable[importlib_metadata.EntryPoint] | None = None
) -> Extensions:
    """Import the extensions that are installed and that `extensions.allow` and `extensions.block` let in.

    Args:
        entry_points: The entry points to load; default: those of the environment.
    """
    rules = config.extensions
    control = LoadControl.of(rules)
    points = installed_entry_points() if entry_points is None else entry_points
    rank = {name: position for position, name in enumerate(rules.order)}
    candidates = [point for point in points if point.group == EXTENSION_GROUP]
    candidates.sort(key=lambda point: (rank.get(point.name, len(rank)), point.name, not _is_own(point)))
    owners: dict[str, str] = {}
    loaded: list[Extension] = []
    for point in candidates:
        loaded.append(one := _load(point, control, owners.get(point.name)))
        if one.state != "blocked":
            owners.setdefault(one.name, one.distribution)
    return Extensions(loaded)


def missing_extensions(extensions: Extensions) -> list[Extension]:
    """Return the extensions of this project that are not installed."""
    installed = {one.name for one in extensions.found}
    return [
        Extension(
            name,
            known.distribution,
            state="missing",
            reason="it is not installed",
            remedy=f"run: {install_remedy(known.distribution)}",
        )
        for name, known in KNOWN_EXTENSIONS.items()
        if name not in installed
    ]


def extension_remedy(extensions: Extensions, name: str) -> str:
    """Return what to do about an extension that is needed and is not active, or lacks a package that it needs."""
    for one in (*extensions.found, *missing_extensions(extensions)):
        if one.name == name:
            reinstall = "run: " + install_remedy(normalise(one.distribution))
            return one.remedy or (
                reinstall if normalise(one.distribution) in OWN_PACKAGES else f"reinstall {one.distribution}"
            )
    return "see 'hermes-memory extensions'"


def unmet_keys(config: Config, extensions: Extensions) -> list[str]:
    """Return a sentence for each key that config.yaml sets and that has no effect, because its extension is not active."""
    active = {one.name for one in extensions.found if one.state == "active"}
    return [
        f"{key} is set, and it is {inactive_reason(extensions, name)}"
        for name, known in KNOWN_EXTENSIONS.items()
        if name not in active
        for key in known.keys
        if key in config.configured
    ]


def inactive_reason(extensions: Extensions, name: str) -> str:
    """Return where something of an extension of this project is and why it can't be used, with what to do.

    It completes a sentence that begins with the name of a command or a format and "is".
    """
    if (one := next((one for one in extensions.found if one.name == name), None)) is not None:
        return f"of the extension {name!r}, which is {one.state}: {one.reason}; {one.remedy}"
    distribution = KNOWN_EXTENSIONS[name].distribution
    return f"in the package {distribution}, which is not installed; run: {install_remedy(distribution)}"


def import_target(target: str) -> Any:
    """Return the object that "module:attribute" names. Raise `ImportError` if it can't be had, whatever its module raises."""
    module, _, attribute = str(target).partition(":")
    loaded = call_foreign(lambda: getattr(importlib.import_module(module), attribute))
    if not isinstance(loaded, ForeignError):
        return loaded
    if isinstance(loaded.error, ImportError):
        raise loaded.error
    raise ImportError(f"{target!r} can't be imported: {loaded}") from loaded.error


def _is_own(point: importlib_metadata.EntryPoint) -> bool:
    return normalise(_name_and_version(point)[0]) in OWN_PACKAGES


def _name_and_version(point: importlib_metadata.EntryPoint) -> tuple[str, str]:
    return name_and_version(point.dist.read_text) if point.dist else ("", "")


def _load(point: importlib_metadata.EntryPoint, control: LoadControl, owner: str | None) -> Extension:
    """Return an extension, imported if it may be. `owner` is the distribution that has its name already."""
    distribution, version = _name_and_version(point)
    extension = Extension(point.name, distribution, version)
    if refusal := control.refusal(point.name, distribution):
        remedy = "change extensions.allow or extensions.block"
        return structs.replace(extension, state="blocked", reason=refusal, remedy=remedy)
    known = KNOWN_EXTENSIONS.get(point.name)
    if owner is None and known and point.dist and normalise(distribution) != known.distribution:
        owner = known.distribution
    if owner is not None:
        reason = f"its name is the one of an extension of {owner or 'another distribution'}"
        remedy = f"uninstall {distribution}, or name it in extensions.block"
        return structs.replace(extension, state="failed", reason=reason, remedy=remedy)
    if reason := _other_version(distribution, version):
        remedy = f"install both from one place: {install_remedy(normalise(distribution))}"
        return structs.replace(extension, state="failed", reason=reason, remedy=remedy)
    loaded = call_foreign(lambda: _register(point.load(), point.name))
    if isinstance(loaded, ForeignError):
        fault = loaded.error
        if isinstance(fault, ConfigError):
            return structs.replace(extension, state="failed", reason=fault.message, remedy=fault.remedy)
        remedy = "upgrade or reinstall it; hermes-memory --debug shows the traceback"
        return structs.replace(extension, state="failed", reason=str(loaded), remedy=remedy)
    manager, adds = loaded
    return structs.replace(extension, adds=adds, hook=manager.hook)


def _other_version(distribution: str, version: str) -> str:
    """Return why an extension of this project is of another release than the core, "" if it is not."""
    core = program_version()
    if normalise(distribution) not in OWN_PACKAGES or core.split(".")[:2] == version.split(".")[:2]:
        return ""
    if not version:
        return "its metadata has no version"
    return (
        f"version {version} is for hermes-memory-core {'.'.join(version.split('.')[:2])}, and this is {core}"
    )


def _register(value: Any, name: str) -> tuple[pluggy.PluginManager, tuple[str, ...]]:
    """Return a pluggy manager with the extension, and the names of its hooks. Raises `ConfigError` for a wrong mark."""
    if isinstance(value, ModuleType):
        return _register_module(value, name)
    return _register_object(value() if isinstance(value, type) else value, name)


@functools.cache
def _register_module(module: ModuleType, name: str) -> tuple[pluggy.PluginManager, tuple[str, ...]]:
    """Register a module once in a process, since each memory that is opened loads all extensions."""
    return _register_object(module, name)


def _register_object(plugin: Any, name: str) -> tuple[pluggy.PluginManager, tuple[str, ...]]:
    marked = [attribute for attribute in dir(plugin) if hasattr(getattr(plugin, attribute, None), _MARK)]
    for attribute in marked:
        if attribute not in EXTENSION_HOOKS:
            close = difflib.get_close_matches(attribute, EXTENSION_HOOKS, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}()?" if close else f"there are {', '.join(EXTENSION_HOOKS)}"
            raise ConfigError(f"{attribute}() is no hook of an extension", hint)
    if not marked:
        raise ConfigError("it has no function that is marked @hookimpl", "mark the hooks that it implements")
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(ExtensionHooks)
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as exc:
        # The reason stands after the lines that name the plugin, the hook and the definition.
        raise ConfigError(" ".join(str(exc).split()), "correct the parameters of the hook") from exc
    return manager, tuple(hook for hook in EXTENSION_HOOKS if hook in marked)
